// The form that answers the questions of a tool: a field for a text, a choice, or a field for each property of the schema. The
// service checks the answers; what it says is shown here.
import { useState } from "preact/hooks";
import { type Schema, said, service } from "./api.ts";
import type { Call } from "./fold.ts";
import { blankFields, choicesOf, FieldGroup, type Problems, problemsIn, valueOf } from "./fields.tsx";
import { visible } from "./format.ts";
import { onCtrlEnter } from "./keys.tsx";
import { Problem, Text } from "./pieces.tsx";
import type { OpenSession } from "./session.ts";

interface Draft {
  text: string;
  chosen: readonly string[];
  fields: Record<string, unknown>;
}

export function QuestionForm({ call, session }: { call: Call; session: OpenSession }) {
  const questions = call.questions;
  const [drafts, setDrafts] = useState<readonly Draft[]>(() => questions.map((question) => draftOf(question.answer_schema as Schema)));
  const [reason, setReason] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");

  const send = async (approved: boolean) => {
    setProblem("");
    let data: unknown;
    try {
      const answers = approved ? questions.map((question, place) => answerOf(question.answer_schema as Schema, drafts[place])) : [];
      data = answers.length === 1 ? answers[0] : answers;
    } catch (error) {
      return setProblem(said(error));
    }
    setBusy(true);
    const fields = approved ? { approved, data } : { approved, reason: reason || undefined };
    const about = { session_id: session.id, tool_call_id: call.id, round: call.round, subscribe: false };
    try {
      await service().ask("answer", { ...about, ...fields });
      call.state = "open";
      await session.refresh();
    } catch (error) {
      setProblem(said(error));
    }
    setBusy(false);
  };

  return (
    <form
      class="approval"
      tabIndex={-1}
      onSubmit={(event) => event.preventDefault()}
      onKeyDown={(event) => onCtrlEnter(event, () => !busy && void send(true))}
      aria-label={`This call asks you ${visible(call.name)}`}
    >
      {questions.map((question, place) => (
        <div key={place}>
          <p class="approval-title">
            <strong>
              <Text of={question.text} />
            </strong>
          </p>
          <Problem of={question.problem ?? ""} />
          <Answer
            label={question.text}
            schema={question.answer_schema as Schema}
            draft={drafts[place]}
            problems={problemsIn(problem, drafts[place]?.fields ?? {})}
            change={(draft) => setDrafts(drafts.map((old, at) => (at === place ? { ...old, ...draft } : old)))}
          />
        </div>
      ))}
      <label class="field">
        <span>Note for the agent, if you do not answer</span>
        <input value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
      <Problem of={problem} />
      <div class="buttons">
        <button class="primary" disabled={busy} onClick={() => void send(true)} title="Ctrl Enter">
          Send the answer
        </button>
        <button disabled={busy} onClick={() => void send(false)}>
          Do not answer
        </button>
      </div>
    </form>
  );
}

interface AnswerGiven {
  label: string;
  schema: Schema;
  draft: Draft | undefined;
  problems: Problems;
  change: (draft: Partial<Draft>) => void;
}

function Answer({ label, schema, draft = draftOf(schema), problems, change }: AnswerGiven) {
  const several = schema.type === "array" ? schema.items?.enum : undefined;
  if (several !== undefined) {
    return (
      <div class="fields" role="group" aria-label={label}>
        {several.map(String).map((choice) => (
          <label key={choice}>
            <input
              type="checkbox"
              checked={draft.chosen.includes(choice)}
              onChange={(event) => {
                const rest = draft.chosen.filter((one) => one !== choice);
                change({ chosen: event.currentTarget.checked ? [...rest, choice] : rest });
              }}
            />{" "}
            <Text of={choice} />
          </label>
        ))}
      </div>
    );
  }
  if (schema.properties !== undefined) {
    return <FieldGroup schema={schema} value={draft.fields} change={(fields) => change({ fields })} problems={problems} />;
  }
  const choices = choicesOf(schema);
  return (
    <label class="field">
      <span>{schema.type === "string" ? "Answer" : <small>{String(schema.type ?? "JSON")}</small>}</span>
      {choices === undefined ? (
        <textarea rows={2} value={draft.text} onInput={(event) => change({ text: event.currentTarget.value })} />
      ) : (
        <select value={draft.text} onChange={(event) => change({ text: event.currentTarget.value })}>
          {choices.map((choice) => (
            <option key={String(choice)} value={String(choice)}>
              {String(choice)}
            </option>
          ))}
        </select>
      )}
    </label>
  );
}

/** What a form shows first: the first choice where there are choices, since that is what a list of them shows. */
function draftOf(schema: Schema): Draft {
  const first = (one: Schema | undefined) => String(choicesOf(one)?.[0] ?? "");
  return { text: first(schema), chosen: [], fields: blankFields(schema) };
}

/** Throws what to say of a text that is not of its type. */
function answerOf(schema: Schema, draft: Draft | undefined): unknown {
  const { text, chosen, fields } = draft ?? draftOf(schema);
  if (schema.type === "array" && schema.items?.enum !== undefined) return chosen;
  if (schema.properties !== undefined) return valueOf(fields);
  if (schema.type === "string") return text;
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${JSON.stringify(text)} is no ${String(schema.type ?? "JSON value")}`);
  }
}
