// The trace of each run on a line of time: its steps, their attempts, calls and sub-agents with how long each took, and
// checkpoints; a branch begins at any of these.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { begin } from "./api.ts";
import { Details } from "./bought.tsx";
import { CheckpointRow, Stored } from "./checkpoints.tsx";
import { clock, contextWords, count, money, seconds, tokens, visible } from "./format.ts";
import { Copy, Status, Summary, Text } from "./pieces.tsx";
import { link, route } from "./route.ts";
import type { OpenSession } from "./session.ts";
import { StepContext } from "./stepcontext.tsx";
import { type Attempt, type CallSpan, everything, ownTime, partsOf, type Range, rangeOf, type RunSpan, type StepSpan, traceId } from "./timeline.ts";

interface Given {
  session: OpenSession;
  branch: (checkpoint: string) => void;
  attempt: (work: () => Promise<unknown>) => void;
  /** A run or a call that the address names. */
  target: string | undefined;
}

/** Steps of a run, and runs, that are drawn at first, the newest; and how many more each time. */
const PAGE = 100;
const MODES: Record<string, string> = {
  start: "",
  continue: "resumed",
  with_message: "resumed with a message",
  with_confirmation: "went on after an answer",
  from_checkpoint: "from a checkpoint",
  from_start: "from its start",
  takeover: "taken over from a dead worker",
};
/** Own time below this is not worth a word. */
const LEAST_S = 0.001;

export function TimelineView({ session, branch, attempt, target }: Given) {
  const { history } = session;
  useEffect(() => history.start(), [history]);
  void history.drawn.value;
  const { timeline } = history;
  const [shown, setShown] = useState(PAGE);
  const runs = timeline.runs.slice(-shown);
  const hidden = timeline.runs.reduce((sum, run) => sum + (runs.includes(run) ? Math.max(0, run.steps.length - shown) : run.steps.length), 0);
  const problem = history.problem.value;
  const rewind = (checkpoint: string) => attempt(() => begin("resume", { session_id: session.id, mode: "from_checkpoint", checkpoint_id: checkpoint }));
  const idle = session.stored.value?.status !== "running";
  const own = session.stored.value?.parent_session_id === null;
  return (
    <div class="scroller plain-panel" tabIndex={0} role="region" aria-label="Timeline">
      {problem && <p class="problem">{problem}</p>}
      {timeline.runs.length === 0 && <p class="quiet">No run of this session is on its stream.</p>}
      {hidden > 0 && (
        <p class="earlier">
          <button class="small" onClick={() => setShown(shown + PAGE)}>
            Show earlier: {count(hidden, "step")} more
          </button>
        </p>
      )}
      <ol class="runs">
        {runs.map((run) => (
          <Run key={run.id} run={run} traced={own} target={target}>
            {run.steps.slice(Math.max(0, run.steps.length - shown)).map((step) => (
              <StepRow key={`${step.session} ${step.step}`} step={step} run={run} target={target}>
                {step.checkpoint !== undefined && own && (
                  <CheckpointRow id={step.checkpoint} step={step} branch={branch} rewind={idle ? rewind : undefined} />
                )}
              </StepRow>
            ))}
          </Run>
        ))}
      </ol>
      {own && <Stored session={session} branch={branch} />}
    </div>
  );
}

interface RunGiven {
  run: RunSpan;
  /** Whether it is the root of its trace. */
  traced: boolean;
  target: string | undefined;
  children: ComponentChildren;
}

function Run({ run, traced, target, children }: RunGiven) {
  const steps = everything(run.steps);
  const attempts = steps.flatMap((step) => step.attempts);
  const calls = steps.reduce((sum, step) => sum + step.calls.length, 0);
  const lost = attempts.filter((one) => one.state === "discarded").length;
  const cost = attempts.reduce((sum, one) => sum + (one.usage?.cost_micros ?? 0), 0);
  const own = ownTime([run.from, run.to], run.steps.map((step) => rangeOf(step, run.to)));
  return (
    <li class={`run ${run.id === target ? "target" : ""}`} ref={useTarget(run.id === target)}>
      <header>
        <h2>
          Run {run.turn} <Status of={run.status} />
        </h2>
        {traced && <Trace run={run.id} />}
        {traced && route.value.view === "session" && <a href={link.compare(route.value.id, "", run.id)}>Compare with…</a>}
        <p class="quiet">
          {run.from > 0 && `${clock(run.from)} · ${seconds(run.to - run.from)}`}
          {own >= LEAST_S && ` (${seconds(own)} between steps)`}
          {MODES[run.mode] !== "" && ` · ${MODES[run.mode] ?? run.mode}`}
          {` · ${count(attempts.length, "model call")}`}
          {calls > 0 && ` · ${count(calls, "tool call")}`}
          {cost > 0 && ` · ${money(cost)}`}
          {lost > 0 && <strong class="bad-text"> · {count(lost, "attempt")} discarded</strong>}
        </p>
        {run.error && (
          <p class="problem">
            <Text of={run.error} />
          </p>
        )}
      </header>
      <div class="span ruler" aria-hidden="true">
        <span class="marks">
          {[0, 0.25, 0.5, 0.75, 1].map((part) => (
            <i key={part}>{part === 0 ? "0" : seconds(part * (run.to - run.from))}</i>
          ))}
        </span>
      </div>
      <ol class="steps">{children}</ol>
    </li>
  );
}

function Trace({ run }: { run: string }) {
  const [id, setId] = useState("");
  useEffect(() => void traceId(run).then(setId), [run]);
  if (id === "") return null;
  return (
    <p class="trace" title={`In X-Ray: 1-${id.slice(0, 8)}-${id.slice(8)}`}>
      <small>Trace</small> <code>{id}</code>
      <Copy of={id} label="Copy the trace's id: X-Ray and OpenTelemetry know the run by it" />
    </p>
  );
}

/** Scrolls the element into view when the address names it. */
function useTarget(named: boolean) {
  const element = useRef<HTMLLIElement>(null);
  useEffect(() => {
    if (named) element.current?.scrollIntoView({ block: "center" });
  }, [named]);
  return element;
}

interface StepGiven {
  step: StepSpan;
  run: RunSpan;
  target: string | undefined;
  /** Of the sub-agent, below the root agent. */
  depth?: number;
  children?: ComponentChildren;
}

function StepRow({ step, run, target, depth = 0, children }: StepGiven) {
  const several = step.attempts.length > 1;
  const rough = step.attempts.some((one) => one.state === "discarded") || step.calls.some((one) => one.claims > 1);
  const [from, to] = rangeOf(step, run.to);
  const own = ownTime([from, to], [...partsOf(step, run.to), ...step.below.map((one) => rangeOf(one, run.to))]);
  return (
    <li class="step-row">
      <div class="span whole">
        <h3 class="span-name">
          Step {step.step}
          {depth > 0 && (
            <small>
              of <Text of={step.agent} length={24} />
            </small>
          )}
        </h3>
        <Lane from={from} to={to} run={run} />
        <span class="span-figures">
          <strong>{seconds(to - from)}</strong>
          {own >= LEAST_S && <small> own {seconds(own)}</small>}
        </span>
      </div>
      {step.views.map((view, n) => (
        <div class="span-why" key={n}>
          {view.text === "" ? contextWords(view) : <Summary words={contextWords(view)} of={view.text} />}
        </div>
      ))}
      <ul class="spans">
        {step.attempts.map((attempt) => (
          <AttemptRow key={`${attempt.attempt} ${attempt.runId}`} attempt={attempt} several={several} run={run} />
        ))}
        {step.calls.map((call) => (
          <CallRow key={call.id} call={call} step={step} run={run} named={call.id === target} />
        ))}
      </ul>
      {step.attempts.length > 0 && <StepContext step={step} />}
      {rough && <Details step={step} />}
      {step.below.length > 0 && (
        <ol class="steps below" style={{ "--depth": depth + 1 }}>
          {step.below.map((one) => (
            <StepRow key={`${one.session} ${one.step}`} step={one} run={run} target={undefined} depth={depth + 1} />
          ))}
        </ol>
      )}
      {children}
    </li>
  );
}

function AttemptRow({ attempt, several, run }: { attempt: Attempt; several: boolean; run: RunSpan }) {
  const gone = attempt.state === "discarded";
  const { usage } = attempt;
  const more = [
    ...(usage === null ? [] : [tokens(usage)]),
    ...(usage === null || usage.cached_tokens === 0 ? [] : [`${usage.cached_tokens.toLocaleString("en")} from a cache`]),
    ...(usage === null || usage.cost_micros === 0 ? [] : [money(usage.cost_micros)]),
    ...(attempt.first === 0 ? [] : [`first words after ${seconds(attempt.first - attempt.from)}`]),
  ];
  return (
    <li class={`span model ${attempt.state}`}>
      <span class="span-name">
        {several || gone ? `attempt ${attempt.attempt}` : "answer"}
        {attempt.model !== null && (
          <small>
            <Text of={attempt.model} length={24} />
          </small>
        )}
        {gone && <span class="tag bad">discarded</span>}
      </span>
      <Lane from={attempt.from} to={attempt.to} run={run} until={attempt.first} />
      <span class="span-figures">{seconds(attempt.to - attempt.from)}</span>
      {more.length > 0 && <p class="span-more">{more.join(" · ")}</p>}
      {gone && (
        <p class="span-why">
          Discarded: <bdi>{visible(attempt.why ?? "its worker did not finish it")}</bdi>.
          {attempt.text !== "" && (
            <>
              {" It had said "}
              <q>
                <Text of={attempt.text} length={120} />
              </q>
            </>
          )}
        </p>
      )}
    </li>
  );
}

interface CallGiven {
  call: CallSpan;
  step: StepSpan;
  run: RunSpan;
  named: boolean;
}

function CallRow({ call, step, run, named }: CallGiven) {
  const state = call.ok === undefined ? "open" : call.ok ? "done" : "failed";
  const to = state === "open" ? run.to : call.to;
  const below = step.below.filter((one) => one.session === call.child).map((one): Range => rangeOf(one, run.to));
  const asked = call.claims === 0 && state === "open" && call.child === undefined;
  return (
    <li class={`span tool ${state} ${named ? "target" : ""}`} ref={useTarget(named)}>
      <span class="span-name">
        <a href={link.session(step.session, "chat", call.id)} title="Its arguments and its result, in the chat">
          <Text of={call.name.replace(/^subagent__/, "")} length={28} />
        </a>
        {call.child !== undefined && <small>sub-agent</small>}
        {call.claims > 1 && <span class="tag warn">{call.claims} claims</span>}
        {state === "failed" && <span class="tag bad">failed</span>}
      </span>
      <Lane from={call.from} to={to} run={run} />
      <span class="span-figures">{asked ? "asked a person" : state === "open" ? "no result" : seconds(call.to - call.from)}</span>
      {below.length > 0 && state !== "open" && (
        <p class="span-more">
          {count(below.length, "step")} · own {seconds(ownTime([call.from, to], below))}
        </p>
      )}
      {call.error && (
        <p class="span-why">
          <Text of={call.error} length={200} />
        </p>
      )}
    </li>
  );
}

/** `until`: up to there it waited for the first words; 0 where there were none. */
function Lane({ from, to, run, until = 0 }: { from: number; to: number; run: RunSpan; until?: number }) {
  const whole = Math.max(run.to - run.from, 0.001);
  const left = Math.min(99, (100 * Math.max(0, from - run.from)) / whole);
  const width = Math.min(100 - left, Math.max(0.8, (100 * (to - from)) / whole));
  const waited = Math.min(width, Math.max(0, (100 * (until - from)) / whole));
  return (
    <span class="lane" aria-hidden="true">
      <i style={{ left: `${left}%`, width: `${width}%` }} />
      {until > 0 && <b style={{ left: `${left}%`, width: `${waited}%` }} />}
    </span>
  );
}
