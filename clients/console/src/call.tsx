// A call of a tool or a sub-agent: its arguments, what it waits for, its result; a sub-agent's conversation inside.
import { useEffect, useState } from "preact/hooks";
import { ApprovalForm } from "./approval.tsx";
import { QuestionForm } from "./question.tsx";
import { Edits } from "./edits.tsx";
import { type Call, type CallResponse, FINISH, SUBAGENT } from "./fold.ts";
import { Files } from "./files.tsx";
import { clock, count, inline, parsed } from "./format.ts";
import { type DrawnGiven, Items } from "./items.tsx";
import { Code, Icon, Text } from "./pieces.tsx";
import { loadChild } from "./session.ts";

const WORDS: Record<Call["state"], string> = {
  open: "not run yet",
  running: "running",
  waiting: "waits for you",
  done: "done",
  failed: "failed",
};

/** Whether a person refused it: nothing failed. */
const isDenied = (call: Call): boolean => call.state === "failed" && call.responses.some(({ kind, approved }) => kind === "approval" && !approved);

/** What people said to a call, by what it waited for: yes, and no. */
const RESPONSES: Record<CallResponse["kind"], [string, string]> = {
  approval: ["Approved", "Denied"],
  client: ["Result given", "Failure reported"],
  unknown: ["Run again, as ruled", "Outcome ruled"],
  question: ["Answered", "Not answered"],
};

/** Who gave a response, and when. */
function Given({ word, by, at }: { word: string; by: string | null; at: number | null }) {
  return (
    <p class="quiet given">
      {word}
      {by !== null && (
        <>
          {" by "}
          <Text of={by} />
        </>
      )}
      {at !== null && at > 0 && (
        <>
          {" on "}
          <time dateTime={new Date(at * 1000).toISOString()}>
            {new Date(at * 1000).toISOString().slice(0, 10)}, {clock(at)}
          </time>
        </>
      )}
    </p>
  );
}

type DrawnCall = Omit<DrawnGiven, "item"> & { call: Call };

export function CallView({ call, rev, session, target }: DrawnCall) {
  const agent = call.name.startsWith(SUBAGENT) || call.child !== undefined;
  const output = call.name === FINISH;
  const name = output ? "output" : (call.child?.agent ?? (agent ? call.name.slice(SUBAGENT.length) : call.name));
  const [opened, setOpened] = useState(call.state === "waiting" || target === call.id);
  const elsewhere = call.state === "waiting" && call.kind === "elsewhere";
  const show = opened || call.state === "waiting";
  const [child, ended] = [call.child?.id, call.state === "done" || call.state === "failed"];
  // It may be opened before the page knows which session answered it.
  useEffect(() => {
    if (show && ended && child !== undefined) void loadChild(session, child);
  }, [show, ended, child]);
  const toggled = (open: boolean) => {
    setOpened(open);
    if (open && call.child !== undefined) void loadChild(session, call.child.id);
  };
  return (
    <details
      class={`call ${call.state}`}
      id={`call-${call.id}`}
      open={show}
      onToggle={(event) => toggled(event.currentTarget.open)}
    >
      <summary>
        <Icon name={agent ? "agent" : "tool"} />
        <span class="call-name">
          <Text of={name} />
        </span>
        <span class="call-args">
          <bdi>{summary(call.arguments)}</bdi>
        </span>
        {call.attempt > 1 && <span class="tag warn">attempt {call.attempt}</span>}
        {call.edited && <span class="tag">edited</span>}
        {call.files.length > 0 && <span class="tag">{count(call.files.length, "file")}</span>}
        <span class={`call-state ${isDenied(call) ? "denied" : call.state}`}>
          {elsewhere ? "waits for another system" : isDenied(call) ? "denied" : WORDS[call.state]}
        </span>
      </summary>
      {show && <Body call={call} rev={rev} session={session} target={target} />}
    </details>
  );
}

function Body({ call, rev, session, target }: DrawnCall) {
  const { child } = call;
  const result = call.error ?? (typeof call.result === "string" ? parsed(call.result) : call.result);
  return (
    <div class="call-body">
      {call.state === "waiting" && call.kind === "question" ? (
        <QuestionForm key={`${call.id}/${call.round}`} call={call} session={session} />
      ) : call.state === "waiting" && call.kind !== "elsewhere" ? (
        <ApprovalForm key={call.id} call={call} rev={rev} session={session} />
      ) : (
        <>
          {call.responses.map((response) => (
            <Given word={(RESPONSES[response.kind] ?? RESPONSES.approval)[response.approved ? 0 : 1]} by={response.by} at={response.at} />
          ))}
          {call.questions.map((question) => (
            <>
              <h2 class="label">
                <Text of={question.text} />
              </h2>
              {question.answered ? <Code of={question.data} label={`Answer to ${question.text}`} /> : <p class="quiet">No answer.</p>}
              {question.answered && <Given word={question.timed_out ? "The default, because no answer came in time," : "Answered"} by={question.by} at={question.at} />}
            </>
          ))}
          {call.edited !== null && call.asked !== null && (
            <>
              <Given word={call.edited.by?.startsWith("guard:") ? "Arguments changed" : "Arguments edited"} by={call.edited.by ?? null} at={call.edited.at ?? null} />
              <Edits before={call.asked} after={call.arguments} label="Changed arguments, before and after" />
            </>
          )}
          <h2 class="label">Arguments{call.edited ? `, edited by ${call.edited.by ?? "the operator"}` : ""}</h2>
          <Code of={call.arguments} label={`Arguments of ${call.name}`} />
        </>
      )}
      {child !== undefined && (
        <div class="child">
          <h2 class="label">
            Sub-agent <Text of={child.agent} />
          </h2>
          {child.items.length === 0 ? <p class="quiet">Nothing yet.</p> : <Items conversation={child} rev={rev} session={session} target={target} />}
        </div>
      )}
      {result !== undefined && result !== null && (
        <>
          <h2 class="label">{call.state === "failed" && !isDenied(call) ? "Error" : "Result"}</h2>
          {(result !== "" || call.files.length === 0) && <Code of={result} label={`Result of ${call.name}`} />}
        </>
      )}
      <Files of={call.files} session={call.step.conversation.id} label={`Files of the result of ${call.name}`} />
    </div>
  );
}

function summary(args: Record<string, unknown>): string {
  const pairs = Object.entries(args).map(([name, value]) => `${name}=${inline(value, 40)}`);
  return inline(pairs.join(", "), 110);
}
