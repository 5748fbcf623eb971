// What the selected row of the trace did: in short, what the model was asked and answered, and what it changed of the state.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { said, service } from "./api.ts";
import { Details } from "./bought.tsx";
import { CheckpointRow } from "./checkpoints.tsx";
import { clock, contextWords, count, money, parsed, seconds, tokens, visible } from "./format.ts";
import { StepLog } from "./onaws.tsx";
import { operator } from "./operator.ts";
import { Payload } from "./payload.tsx";
import { Code, Copy, Icon, Problem, Status, Summary, Text } from "./pieces.tsx";
import { RunDetail } from "./rundetail.tsx";
import { link } from "./route.ts";
import type { OpenSession } from "./session.ts";
import { StepState } from "./statediff.tsx";
import { type Attempt, type CallSpan, ownTime, partsOf, rangeOf, type StepSpan } from "./timeline.ts";
import { lossWords, type Row } from "./tracerows.ts";
import { bare } from "./tracetree.tsx";
import { chunkOf, type StreamMessage } from "./wire.ts";

interface Given {
  row: Row;
  session: OpenSession;
  /** Whether the session is a root, which has its own branches and traces. */
  own: boolean;
  branch: (checkpoint: string) => void;
  rewind: ((checkpoint: string) => void) | undefined;
  close: () => void;
}

/** Own time below this is not worth a word. */
const LEAST_S = 0.001;
const VIEWS = { summary: "Summary", payload: "Payload", state: "State" } as const;
type View = keyof typeof VIEWS;
/** The view that was looked at last: the next row opens with it. */
let last: View = "summary";

export function Detail({ row, session, own, branch, rewind, close }: Given) {
  const [view, setView] = useState<View>(last);
  const step = row.kind === "run" || row.kind === "gap" ? undefined : row.step;
  const choose = (name: View) => setView((last = name));
  const leave = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || (event.target as HTMLElement).closest("input, textarea, select") !== null) return;
    event.stopPropagation();
    close();
  };
  return (
    <section class="trace-detail" tabIndex={-1} aria-label={`Details of ${titleOf(row)}`} onKeyDown={leave}>
      <header>
        <h2>
          <Text of={titleOf(row)} length={60} />
        </h2>
        <button class="plain round" aria-label="Close the details" onClick={close}>
          <Icon name="close" />
        </button>
      </header>
      {step !== undefined && (
        <div class="tabs" role="tablist" aria-label="Views of the step">
          {Object.entries(VIEWS).map(([name, words]) => (
            <button key={name} role="tab" id={`detail-${name}`} aria-selected={name === view} aria-controls="detail-panel" onClick={() => choose(name as View)}>
              {words}
            </button>
          ))}
        </div>
      )}
      <div class="detail-panel" id="detail-panel" tabIndex={0} {...(step === undefined ? {} : { role: "tabpanel", "aria-labelledby": `detail-${view}` })}>
        {step === undefined && <RunDetail run={row.run} session={session} own={own} />}
        {step !== undefined && view === "summary" && row.kind === "call" && <CallDetail call={row.call} step={step} />}
        {step !== undefined && view === "summary" && row.kind !== "call" && <StepSummary step={step} own={own} branch={branch} rewind={rewind} />}
        {step !== undefined && view === "payload" && <Payload step={step} />}
        {step !== undefined && view === "state" && <StepState step={step} />}
      </div>
    </section>
  );
}

function titleOf(row: Row): string {
  switch (row.kind) {
    case "run":
    case "gap":
      return `Run ${row.run.turn}`;
    case "call":
      return `${bare(row.call.name)}, step ${row.step.step}`;
    case "attempt":
    case "step":
    case "view":
      return `Step ${row.step.step}`;
  }
}

export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

interface SummaryGiven {
  step: StepSpan;
  own: boolean;
  branch: (checkpoint: string) => void;
  rewind: ((checkpoint: string) => void) | undefined;
}

function StepSummary({ step, own, branch, rewind }: SummaryGiven) {
  const now = step.run.to;
  const [from, to] = rangeOf(step, now);
  const self = ownTime([from, to], [...partsOf(step, now), ...step.below.map((one) => rangeOf(one, now))]);
  const rough = step.attempts.some((one) => one.state === "discarded") || step.calls.some((one) => one.claims > 1);
  const root = own && step.above === undefined;
  const run = step.attempts.at(-1)?.runId;
  return (
    <>
      <dl class="facts">
        <Fact name="Agent">
          <Text of={step.agent} length={60} />
        </Fact>
        <Fact name="Began">{clock(from)}</Fact>
        <Fact name="Took">
          {seconds(to - from)}
          {self >= LEAST_S && `, own ${seconds(self)}`}
        </Fact>
        {step.cost > 0 && <Fact name="Cost">{money(step.cost)}</Fact>}
      </dl>
      {step.views.map((view, n) => (
        <div class="span-why" key={n}>
          {view.text === "" ? contextWords(view) : <Summary words={contextWords(view)} of={view.text} />}
        </div>
      ))}
      {step.attempts.map((attempt) => (
        <AttemptDetail key={`${attempt.runId} ${attempt.attempt}`} attempt={attempt} several={step.attempts.length > 1} />
      ))}
      {step.calls.length > 0 && (
        <section>
          <h3>{step.calls.length === 1 ? "Call" : `${step.calls.length} calls`}</h3>
          <ul class="detail-list">
            {step.calls.map((call) => (
              <li key={call.id}>
                <a href={link.session(step.session, "chat", call.id)} title="Show it in the chat">
                  <Text of={bare(call.name)} length={40} />
                </a>{" "}
                <code>
                  <Text of={call.args} length={160} />
                </code>
                {call.error !== null && (
                  <p class="bad-text">
                    <Text of={call.error} length={300} />
                  </p>
                )}
              </li>
            ))}
          </ul>
        </section>
      )}
      {rough && <Details step={step} />}
      {step.checkpoint !== undefined && root && <CheckpointRow id={step.checkpoint} step={step} branch={branch} rewind={rewind} />}
      {operator.value && run !== undefined && <StepLog key={`${run} ${step.step}`} session={step.session} run={run} from={from} to={to} />}
    </>
  );
}

function AttemptDetail({ attempt, several }: { attempt: Attempt; several: boolean }) {
  const gone = attempt.state === "discarded";
  const { usage } = attempt;
  return (
    <section>
      <h3>
        {several || gone ? `Attempt ${attempt.attempt}` : "Answer"} <Status of={attempt.state} />
      </h3>
      <dl class="facts">
        {attempt.model !== null && (
          <Fact name="Model">
            <Text of={attempt.model} length={80} />
          </Fact>
        )}
        <Fact name="Took">
          {seconds(attempt.to - attempt.from)}
          {attempt.first > attempt.from && `, first words after ${seconds(attempt.first - attempt.from)}`}
        </Fact>
        {usage !== null && (
          <Fact name="Tokens">
            {tokens(usage)}
            {usage.cached_tokens > 0 && `, ${usage.cached_tokens.toLocaleString("en")} from a cache`}
            {usage.reasoning_tokens > 0 && `, ${usage.reasoning_tokens.toLocaleString("en")} of reasoning`}
          </Fact>
        )}
        {usage !== null && usage.cost_micros > 0 && <Fact name="Cost">{money(usage.cost_micros)}</Fact>}
        {attempt.lost !== null && (
          <Fact name="Lost cache">
            {usage !== null && `${usage.lost_tokens.toLocaleString("en")} tokens: `}
            {lossWords(attempt.lost)}
          </Fact>
        )}
      </dl>
      {gone && (
        <p class="span-why">
          Discarded: <bdi>{visible(attempt.why ?? "its worker did not finish it")}</bdi>.
          {attempt.text !== "" && (
            <>
              {" Readers saw "}
              <q>
                <Text of={attempt.text} length={160} />
              </q>
            </>
          )}
        </p>
      )}
    </section>
  );
}

interface Whole {
  arguments: unknown;
  result: unknown;
}

/** A call with its arguments and its result, which are read from the stream when somebody looks. */
function CallDetail({ call, step }: { call: CallSpan; step: StepSpan }) {
  const [whole, setWhole] = useState<Whole | undefined>(undefined);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let closed = false;
    Promise.all([chunkAt(step.session, call.begins), chunkAt(step.session, call.ends)])
      .then(([begun, ended]) => {
        if (closed) return;
        const given = begun?.type === "tool_start" ? begun.arguments : begun?.type === "tool_approval_request" ? begun.input : undefined;
        setWhole({ arguments: given ?? (ended?.type === "tool_end" ? ended.arguments : null), result: ended?.type === "tool_end" ? ended.result : undefined });
      })
      .catch((error: unknown) => !closed && setProblem(said(error)));
    return () => void (closed = true);
  }, [call.id, call.begins, call.ends]);
  const below = step.below.filter((one) => one.session === call.child).map((one) => rangeOf(one, step.run.to));
  const result = typeof whole?.result === "string" ? parsed(whole.result) : whole?.result;
  return (
    <>
      <dl class="facts">
        <Fact name="State">{call.ok === undefined ? (call.claims === 0 ? "waits for a response" : "runs") : call.ok ? "done" : "failed"}</Fact>
        <Fact name="Took">
          {call.ok === undefined ? "has not ended" : seconds(call.to - call.from)}
          {call.ok !== undefined && below.length > 0 && `, own ${seconds(ownTime([call.from, call.to], below))}`}
        </Fact>
        {call.child !== undefined && (
          <Fact name="Sub-agent">
            <a href={link.session(call.child, "timeline")}>
              <Text of={call.child} length={60} />
            </a>
            {`, ${count(below.length, "step")}`}
          </Fact>
        )}
        {call.waits.map(([from, to], n) => (
          <Fact key={n} name="Waited">
            {to === undefined ? `since ${clock(from)}` : `${seconds(to - from)} for a response`}
          </Fact>
        ))}
        {call.claims > 1 && <Fact name="Claims">{count(call.claims, "claim")}: earlier workers did not finish it</Fact>}
        <Fact name="In the chat">
          <a href={link.session(step.session, "chat", call.id)}>{bare(call.name)}</a>
        </Fact>
      </dl>
      {call.error !== null && (
        <p class="problem">
          <Text of={call.error} length={2000} />
        </p>
      )}
      <Problem of={problem} />
      {whole?.arguments != null && <Titled title="Arguments" of={whole.arguments} label={`Arguments of ${bare(call.name)}`} />}
      {result !== undefined && result !== null && <Titled title="Result" of={result} label={`Result of ${bare(call.name)}`} />}
    </>
  );
}

function Titled({ title, of, label }: { title: string; of: unknown; label: string }) {
  return (
    <section>
      <h3 class="with-copy">
        {title} <Copy of={typeof of === "string" ? of : JSON.stringify(of, null, 2)} label={`Copy: ${visible(label)}`} />
      </h3>
      <Code of={of} label={label} />
    </section>
  );
}

async function chunkAt(session: string, sequence: number) {
  if (sequence === 0) return undefined;
  const { messages } = await service().ask("read_stream", { session_id: session, after: sequence - 1, limit: 1 });
  const found = messages[0] as unknown as StreamMessage | undefined;
  return found === undefined || found.sequence !== sequence || found.kind !== "chunk" ? undefined : chunkOf(found);
}
