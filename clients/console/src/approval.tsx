// What a call asks of a person: to approve it, with its arguments as they are or edited; to give a client's result; or to say
// what came of a call whose outcome is unknown. The service checks the arguments; what it says is shown here.
import { useState } from "preact/hooks";
import { type Schema, said, service } from "./api.ts";
import type { Call } from "./fold.ts";
import { Edits } from "./edits.tsx";
import { FieldGroup, NO_PROBLEMS, problemsIn, UnfitError, valueOf } from "./fields.tsx";
import { json, parsed, visible } from "./format.ts";
import { onCtrlEnter } from "./keys.tsx";
import { Problem, Text } from "./pieces.tsx";
import type { OpenSession } from "./session.ts";

const TITLES = {
  approval: "Approve this call?",
  client: "This call waits for your result",
  unknown: "The outcome of this call is unknown",
  question: "This call asks you",
  elsewhere: "Another system ends this call",
};

/** `rev` changes with the step of the call, whose other calls may wait too. */
export function ApprovalForm({ call, session }: { call: Call; rev: number; session: OpenSession }) {
  const kind = call.kind;
  const [value, setValue] = useState(call.arguments);
  const [problems, setProblems] = useState(NO_PROBLEMS);
  const [asJson, setAsJson] = useState<string | undefined>(undefined);
  const [reason, setReason] = useState("");
  const [result, setResult] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const refuse = (error: unknown) => {
    setProblem(said(error));
    setProblems(error instanceof UnfitError ? error.problems : asJson === undefined ? problemsIn(said(error), value) : NO_PROBLEMS);
  };

  const send = async (verdict: { approved: boolean; data?: unknown; edit?: boolean }) => {
    setProblem("");
    setProblems(NO_PROBLEMS);
    let edited: Record<string, unknown> | undefined;
    try {
      edited = verdict.edit ? changed(call.arguments, asJson === undefined ? valueOf(value) : object(asJson)) : undefined;
    } catch (error) {
      return refuse(error);
    }
    setBusy(true);
    const fields = { approved: verdict.approved, data: verdict.data, reason: reason || undefined, ...(edited && { arguments: edited }) };
    try {
      await service().ask("answer", { session_id: session.id, tool_call_id: call.id, ...fields, subscribe: false });
      call.state = "open";
      await session.refresh();
    } catch (error) {
      refuse(error);
    }
    setBusy(false);
  };
  const given = kind === "approval" ? written(asJson, value) : undefined;
  const edited = given !== undefined && changed(call.arguments, given) !== undefined;
  const waiting = session.conversation.waiting();
  const place = waiting.indexOf(call);
  const approve = () => void send({ approved: true, edit: true });
  const give = () => void send({ approved: kind === "client", data: parsed(result) });
  /** Enter alone presses no button. Ctrl Enter neither runs a tool again nor approves a call that a person is about to deny. */
  const pressed = (event: KeyboardEvent) => {
    const field = event.target;
    if (event.key === "Enter" && field instanceof HTMLInputElement) event.preventDefault();
    onCtrlEnter(event, () => {
      if (busy || reason !== "" || (field instanceof HTMLInputElement && field.name === "note")) return;
      if (kind === "approval") approve();
      else if (kind === "client" || (kind === "unknown" && result !== "")) give();
    });
  };
  const toggle = () => {
    try {
      if (asJson === undefined) return setAsJson(JSON.stringify(valueOf(value), null, 2));
      setValue(object(asJson));
      setAsJson(undefined);
    } catch (error) {
      refuse(error);
    }
  };

  return (
    <form
      class="approval"
      tabIndex={-1}
      onSubmit={(event) => event.preventDefault()}
      onKeyDown={pressed}
      aria-label={`${TITLES[kind]} ${visible(call.name)}`}
    >
      <p class="approval-title">
        <strong>{TITLES[kind]}</strong>
        {waiting.length > 1 && place >= 0 && (
          <span class="tag">
            {place + 1} of {waiting.length}
          </span>
        )}
        {call.reason && (
          <span class="quiet">
            {" "}
            Reason: <Text of={call.reason} />
          </span>
        )}
      </p>
      {kind === "approval" && asJson === undefined && (
        <FieldGroup schema={call.parameters as Schema} value={value} change={setValue} problems={problems} before={call.arguments} />
      )}
      {kind === "approval" && asJson !== undefined && (
        <label class="field">
          <span>Arguments as JSON</span>
          <textarea rows={6} spellcheck={false} value={asJson} onInput={(event) => setAsJson(event.currentTarget.value)} />
        </label>
      )}
      {edited && (
        <section aria-label="Your changes">
          <h2 class="label">Your changes</h2>
          <Edits before={call.arguments} after={given} label="Your changes, before and after" />
        </section>
      )}
      {kind !== "approval" && (
        <>
          <pre class="code" tabIndex={0} role="group" aria-label={`Arguments of ${visible(call.name)}`}>
            {json(call.arguments)}
          </pre>
          <label class="field">
            <span>{kind === "client" ? "Result, as text or JSON" : "Its result, if you know that it happened"}</span>
            <textarea rows={3} value={result} onInput={(event) => setResult(event.currentTarget.value)} />
          </label>
        </>
      )}
      {kind !== "client" && (
        <label class="field">
          <span>Note for the agent, if you deny</span>
          <input name="note" value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
        </label>
      )}
      <Problem of={problem} />
      <div class="buttons">
        {kind === "approval" && (
          <>
            <button class="primary" disabled={busy} onClick={approve} title="Ctrl Enter">
              {edited ? "Approve with changes" : "Approve"}
            </button>
            <button disabled={busy} onClick={() => void send({ approved: false })}>
              Deny
            </button>
            <button class="plain" onClick={toggle}>
              {asJson === undefined ? "Edit as JSON" : "Edit as fields"}
            </button>
          </>
        )}
        {kind === "client" && (
          <button class="primary" disabled={busy} onClick={give} title="Ctrl Enter">
            Send the result
          </button>
        )}
        {kind === "unknown" && (
          <>
            <button class="primary" disabled={busy} onClick={() => void send({ approved: true })}>
              Run it again
            </button>
            <button disabled={busy || result === ""} onClick={give} title="Ctrl Enter">
              It happened, with this result
            </button>
            <button disabled={busy} onClick={() => void send({ approved: false })}>
              Leave it unknown
            </button>
          </>
        )}
      </div>
    </form>
  );
}

/** What is in the form so far. Undefined while a part of it cannot be read. */
function written(asJson: string | undefined, value: Record<string, unknown>): Record<string, unknown> | undefined {
  try {
    return asJson === undefined ? valueOf(value) : object(asJson);
  } catch {
    return undefined;
  }
}

function object(text: string): Record<string, unknown> {
  const value: unknown = JSON.parse(text);
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error("the arguments are a JSON object");
  return value as Record<string, unknown>;
}

/** Undefined where nothing was edited: then the model's own arguments are approved. */
function changed(before: Record<string, unknown>, after: Record<string, unknown>): Record<string, unknown> | undefined {
  const sorted = (value: Record<string, unknown>) => JSON.stringify(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
  return sorted(before) === sorted(after) ? undefined : after;
}
