// What a call asks of a person: to approve it, with its arguments as they are or edited; to give a client's result; or to say
// what came of a call whose outcome is unknown. The service checks the arguments; what it says is shown here.
import { useState } from "preact/hooks";
import { type Schema, said, service } from "./api.ts";
import type { Call } from "./fold.ts";
import { json, parsed, visible } from "./format.ts";
import { Problem, Text } from "./pieces.tsx";
import type { OpenSession } from "./session.ts";

const TITLES = {
  approval: "Approve this call?",
  client: "This call waits for your result",
  unknown: "The outcome of this call is unknown",
  question: "This call asks you",
  elsewhere: "Another system ends this call",
};

export function ApprovalForm({ call, session }: { call: Call; session: OpenSession }) {
  const kind = call.kind;
  const [texts, setTexts] = useState<Record<string, string>>(() => textsOf(call.arguments));
  const [asJson, setAsJson] = useState<string | undefined>(undefined);
  const [reason, setReason] = useState("");
  const [result, setResult] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const schema = call.parameters as Schema | undefined;

  const send = async (verdict: { approved: boolean; data?: unknown; edit?: boolean }) => {
    setProblem("");
    let edited: Record<string, unknown> | undefined;
    try {
      edited = verdict.edit ? changed(call.arguments, asJson === undefined ? valuesOf(texts, call.arguments, schema) : object(asJson)) : undefined;
    } catch (error) {
      return setProblem(said(error));
    }
    setBusy(true);
    const fields = { approved: verdict.approved, data: verdict.data, reason: reason || undefined, ...(edited && { arguments: edited }) };
    try {
      await service().ask("answer", { session_id: session.id, tool_call_id: call.id, ...fields, subscribe: false });
      call.state = "open";
      await session.refresh();
    } catch (error) {
      setProblem(said(error));
    }
    setBusy(false);
  };

  return (
    <form class="approval" onSubmit={(event) => event.preventDefault()} aria-label={`${TITLES[kind]} ${visible(call.name)}`}>
      <p class="approval-title">
        <strong>{TITLES[kind]}</strong>
        {call.reason && (
          <span class="quiet">
            {" "}
            Reason: <Text of={call.reason} />
          </span>
        )}
      </p>
      {kind === "approval" && asJson === undefined && (
        <Fields args={call.arguments} schema={schema} texts={texts} change={(name, text) => setTexts({ ...texts, [name]: text })} />
      )}
      {kind === "approval" && asJson !== undefined && (
        <label class="field">
          <span>Arguments as JSON</span>
          <textarea rows={6} spellcheck={false} value={asJson} onInput={(event) => setAsJson(event.currentTarget.value)} />
        </label>
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
          <input value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
        </label>
      )}
      <Problem of={problem} />
      <div class="buttons">
        {kind === "approval" && (
          <>
            <button class="primary" disabled={busy} onClick={() => void send({ approved: true, edit: true })}>
              Approve
            </button>
            <button disabled={busy} onClick={() => void send({ approved: false })}>
              Deny
            </button>
            <button
              class="plain"
              onClick={() =>
                setAsJson(asJson === undefined ? JSON.stringify(valuesOrArgs(texts, call, schema), null, 2) : undefined)
              }
            >
              {asJson === undefined ? "Edit as JSON" : "Edit as fields"}
            </button>
          </>
        )}
        {kind === "client" && (
          <button class="primary" disabled={busy} onClick={() => void send({ approved: true, data: parsed(result) })}>
            Send the result
          </button>
        )}
        {kind === "unknown" && (
          <>
            <button class="primary" disabled={busy} onClick={() => void send({ approved: true })}>
              Run it again
            </button>
            <button disabled={busy || result === ""} onClick={() => void send({ approved: false, data: parsed(result) })}>
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

interface FieldsGiven {
  args: Record<string, unknown>;
  schema: Schema | undefined;
  texts: Record<string, string>;
  change: (name: string, text: string) => void;
}

export function Fields({ args, schema, texts, change }: FieldsGiven) {
  const names = [...new Set([...Object.keys(schema?.properties ?? {}), ...Object.keys(args)])];
  if (names.length === 0) return <p class="quiet">It has no arguments.</p>;
  return (
    <div class="fields">
      {names.map((name) => {
        const type = typeOf(name, args, schema);
        const text = texts[name] ?? "";
        const described = schema?.properties?.[name]?.description;
        const choices = schema?.properties?.[name]?.enum;
        return (
          <label class="field" key={name}>
            <span>
              <Text of={name} /> <small>{type}</small>
              {described && (
                <small class="quiet">
                  {" "}
                  <Text of={described} />
                </small>
              )}
            </span>
            {type === "boolean" || choices !== undefined ? (
              <select value={text} onChange={(event) => change(name, event.currentTarget.value)}>
                {(choices ?? [true, false]).map((choice) => (
                  <option key={String(choice)} value={String(choice)}>
                    {String(choice)}
                  </option>
                ))}
              </select>
            ) : type === "string" && text.length < 60 && !text.includes("\n") ? (
              <input value={text} onInput={(event) => change(name, event.currentTarget.value)} />
            ) : type === "number" || type === "integer" ? (
              <input inputMode="decimal" value={text} onInput={(event) => change(name, event.currentTarget.value)} />
            ) : (
              <textarea rows={3} spellcheck={false} value={text} onInput={(event) => change(name, event.currentTarget.value)} />
            )}
          </label>
        );
      })}
    </div>
  );
}

function typeOf(name: string, args: Record<string, unknown>, schema: Schema | undefined): string {
  const named = schema?.properties?.[name]?.type;
  if (typeof named === "string") return named;
  const value = args[name];
  return ["string", "number", "boolean"].includes(typeof value) ? typeof value : "JSON";
}

function textsOf(args: Record<string, unknown>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(args).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value, null, 1)]),
  );
}

/** Throws what to say of a field that is not of its type. An empty field that was empty before is left out. */
export function valuesOf(texts: Record<string, string>, args: Record<string, unknown>, schema: Schema | undefined): Record<string, unknown> {
  const made: Record<string, unknown> = {};
  for (const [name, text] of Object.entries(texts)) {
    if (text === "" && !(name in args)) continue;
    const type = typeOf(name, args, schema);
    if (type === "string") made[name] = text;
    else {
      try {
        made[name] = JSON.parse(text);
      } catch {
        throw new Error(`${name}: ${JSON.stringify(text)} is no ${type === "JSON" ? "JSON value" : type}`);
      }
    }
  }
  return made;
}

function valuesOrArgs(texts: Record<string, string>, call: Call, schema: Schema | undefined): Record<string, unknown> {
  try {
    return valuesOf(texts, call.arguments, schema);
  } catch {
    return call.arguments;
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
