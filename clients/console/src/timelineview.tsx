// Runs, steps, attempts, calls and checkpoints on a line of time; a branch begins at any checkpoint.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { begin, said, service } from "./api.ts";
import { Changes } from "./changes.tsx";
import { clock, count, money, seconds, visible } from "./format.ts";
import { Icon, Status, Text } from "./pieces.tsx";
import type { OpenSession } from "./session.ts";
import { Tree } from "./tree.tsx";
import type { Results } from "./wire.ts";
import { type Attempt, type CallSpan, figures, type RunSpan, type StepSpan } from "./timeline.ts";

interface Given {
  session: OpenSession;
  branch: (checkpoint: string) => void;
  attempt: (work: () => Promise<unknown>) => void;
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

export function TimelineView({ session, branch, attempt }: Given) {
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
          <Run key={run.id} run={run}>
            {run.steps.slice(Math.max(0, run.steps.length - shown)).map((step) => (
              <StepRow key={`${step.session} ${step.step}`} step={step} run={run}>
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

const everything = (steps: StepSpan[]): StepSpan[] => steps.flatMap((step) => [step, ...everything(step.below)]);

function Run({ run, children }: { run: RunSpan; children: ComponentChildren }) {
  const attempts = everything(run.steps).flatMap((step) => step.attempts);
  const lost = attempts.filter((one) => one.state === "discarded").length;
  const cost = attempts.reduce((sum, one) => sum + (one.usage?.cost_micros ?? 0), 0);
  return (
    <li class="run">
      <header>
        <h2>
          Run {run.turn} <Status of={run.status} />
        </h2>
        <p class="quiet">
          {run.from > 0 && `${clock(run.from)} · ${seconds(run.to - run.from)}`}
          {MODES[run.mode] !== "" && ` · ${MODES[run.mode] ?? run.mode}`}
          {cost > 0 && ` · ${money(cost)}`}
          {lost > 0 && <strong class="bad-text"> · {count(lost, "attempt")} discarded</strong>}
        </p>
        {run.error && (
          <p class="problem">
            <Text of={run.error} />
          </p>
        )}
      </header>
      <ol class="steps">{children}</ol>
    </li>
  );
}

interface StepGiven {
  step: StepSpan;
  run: RunSpan;
  nested?: boolean;
  children?: ComponentChildren;
}

function StepRow({ step, run, nested = false, children }: StepGiven) {
  const several = step.attempts.length > 1;
  const rough = step.attempts.some((one) => one.state === "discarded") || step.calls.some((one) => one.claims > 1);
  return (
    <li class="step-row">
      <h3>
        Step {step.step}
        {nested && (
          <small>
            {" "}
            of <Text of={step.agent} length={24} />
          </small>
        )}
      </h3>
      <ul class="spans">
        {step.attempts.map((attempt) => (
          <AttemptRow key={`${attempt.attempt} ${attempt.runId}`} attempt={attempt} several={several} run={run} />
        ))}
        {step.calls.map((call) => (
          <CallRow key={call.id} call={call} run={run} />
        ))}
      </ul>
      {rough && <Details step={step} />}
      {step.below.length > 0 && (
        <ol class="steps below">
          {step.below.map((one) => (
            <StepRow key={`${one.session} ${one.step}`} step={one} run={run} nested />
          ))}
        </ol>
      )}
      {children}
    </li>
  );
}

type Bought = Results["get_step"];

/** How the step was bought, as the service has it: for steps whose attempts or calls did not go straight through. */
function Details({ step }: { step: StepSpan }) {
  const [found, setFound] = useState<Bought | undefined>(undefined);
  const [problem, setProblem] = useState("");
  const load = () => {
    service()
      .ask("get_step", { session_id: step.session, step: step.step })
      .then(setFound)
      .catch((error: unknown) => setProblem(said(error)));
  };
  return (
    <details class="bought" onToggle={(event) => event.currentTarget.open && found === undefined && load()}>
      <summary>What became of it</summary>
      {problem && <p class="problem">{problem}</p>}
      <ul>
        {found?.attempts.map((one) => (
          <li key={`${one.run_id} ${one.attempt}`}>
            Run {one.turn}, attempt {one.attempt}: <strong>{OUTCOMES[one.outcome] ?? one.outcome}</strong>.
            {one.error && (
              <>
                {" "}
                <Text of={one.error} length={160} />
              </>
            )}
            {one.assumed_usd > 0 && ` It may have used ${money(one.assumed_usd * 1e6)}, which counts as spent.`}
            {one.taken_over_by && " Another run took over."}
          </li>
        ))}
        {found?.calls
          .filter((call) => call.starts > 1 || call.ruling !== null || call.edited !== null)
          .map((call) => (
            <li key={call.call_id}>
              <Text of={call.tool_name} length={40} />: {call.starts > 1 && `began ${call.starts} times. `}
              {call.ruling !== null && `Its outcome was unknown: ${call.ruling.replaceAll("_", " ")}. `}
              {call.edited !== null && (
                <>
                  Arguments edited by <Text of={call.edited.by ?? "the operator"} />.
                </>
              )}
            </li>
          ))}
      </ul>
    </details>
  );
}

const OUTCOMES: Record<string, string> = {
  open: "goes on",
  answered: "answered",
  failed: "failed",
  lost: "its answer came too late",
  cancelled: "cancelled",
  dead: "its worker died",
};

function AttemptRow({ attempt, several, run }: { attempt: Attempt; several: boolean; run: RunSpan }) {
  const gone = attempt.state === "discarded";
  return (
    <li class={`span model ${attempt.state}`}>
      <span class="span-name">
        {several || gone ? `attempt ${attempt.attempt}` : "answer"}
        {gone && <span class="tag bad">discarded</span>}
      </span>
      <Lane from={attempt.from} to={attempt.to} run={run} />
      <span class="span-figures">{figures(attempt)}</span>
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

function CallRow({ call, run }: { call: CallSpan; run: RunSpan }) {
  const state = call.ok === undefined ? "open" : call.ok ? "done" : "failed";
  return (
    <li class={`span tool ${state}`}>
      <span class="span-name">
        <Text of={call.name.replace(/^subagent__/, "")} length={28} />
        {call.claims > 1 && <span class="tag warn">{call.claims} claims</span>}
      </span>
      <Lane from={call.from} to={state === "open" ? run.to : call.to} run={run} />
      <span class="span-figures">{call.claims === 0 && state === "open" ? "asked a person" : state === "open" ? "no result" : seconds(call.to - call.from)}</span>
      {call.error && (
        <p class="span-why">
          <Text of={call.error} length={200} />
        </p>
      )}
    </li>
  );
}

function Lane({ from, to, run }: { from: number; to: number; run: RunSpan }) {
  const whole = Math.max(run.to - run.from, 0.001);
  const left = Math.min(99, (100 * Math.max(0, from - run.from)) / whole);
  const width = Math.min(100 - left, Math.max(0.8, (100 * (to - from)) / whole));
  return (
    <span class="lane" aria-hidden="true">
      <i style={{ left: `${left}%`, width: `${width}%` }} />
    </span>
  );
}

interface CheckpointGiven {
  id: string;
  step: StepSpan;
  branch: (checkpoint: string) => void;
  rewind: ((checkpoint: string) => void) | undefined;
}

function CheckpointRow({ id, step, branch, rewind }: CheckpointGiven) {
  return (
    <div class="checkpoint">
      <span class="dot" aria-hidden="true" />
      <span class="checkpoint-name" title={id}>
        Checkpoint
      </span>
      {step.patches.length > 0 && (
        <details>
          <summary>{count(step.patches.length, "change")} of the state</summary>
          <Changes patches={step.patches} />
        </details>
      )}
      <StateHere checkpoint={id} session={step.session} />
      <span class="checkpoint-actions">
        <button class="small" onClick={() => branch(id)} aria-label={`Branch from here, step ${step.step}`}>
          <Icon name="branch" /> Branch from here
        </button>
        {rewind !== undefined && (
          <button class="small plain" onClick={() => rewind(id)} aria-label={`Run again from here, step ${step.step}`}>
            <Icon name="again" /> Run again from here
          </button>
        )}
      </span>
    </div>
  );
}

function StateHere({ checkpoint, session }: { checkpoint: string; session: string }) {
  const [state, setState] = useState<Record<string, unknown> | undefined>(undefined);
  const [problem, setProblem] = useState("");
  const load = () => {
    service()
      .ask("get_checkpoint", { session_id: session, checkpoint_id: checkpoint })
      .then((found) => setState(found.checkpoint.custom_state))
      .catch((error: unknown) => setProblem(said(error)));
  };
  return (
    <details onToggle={(event) => event.currentTarget.open && state === undefined && load()}>
      <summary>State here</summary>
      {problem && <p class="problem">{problem}</p>}
      {state !== undefined && (Object.keys(state).length === 0 ? <p class="quiet">It is empty.</p> : <Tree value={state} changed={NONE} />)}
    </details>
  );
}

const NONE: ReadonlySet<string> = new Set();

interface Listed {
  id: string;
  step: number;
  turn: number;
  count: number;
  name: string | null;
  created_at: number;
}

/** All that are stored: those of a session that was copied are on no stream. */
function Stored({ session, branch }: { session: OpenSession; branch: (checkpoint: string) => void }) {
  const [found, setFound] = useState<Listed[]>([]);
  const [cursor, setCursor] = useState<string | null | undefined>(undefined);
  const [problem, setProblem] = useState("");
  const more = () =>
    service()
      .listCheckpoints(session.id, { limit: 50, after: cursor ?? undefined })
      .then((page) => {
        setFound([...found, ...(page.checkpoints as unknown as Listed[])]);
        setCursor(page.cursor);
      })
      .catch((error: unknown) => setProblem(said(error)));
  return (
    <details class="stored" onToggle={(event) => event.currentTarget.open && cursor === undefined && void more()}>
      <summary>All stored checkpoints</summary>
      {problem && <p class="problem">{problem}</p>}
      <ul>
        {found.map((one) => (
          <li key={one.id}>
            <code>
              <Text of={one.id} />
            </code>
            <span class="quiet">
              step {one.step} · {count(one.count, "message")} · {clock(one.created_at)}
              {one.name && ` · ${one.name}`}
            </span>
            <button class="small" onClick={() => branch(one.id)} aria-label={`Branch from checkpoint ${one.id}`}>
              Branch
            </button>
          </li>
        ))}
      </ul>
      {cursor && (
        <button class="plain" onClick={() => void more()}>
          Show more
        </button>
      )}
    </details>
  );
}
