// The fleet, for operators: how much each agent may do at once, who waits, what is ill, and why a limit moved.
import { useEffect, useState } from "preact/hooks";
import { said, service } from "./api.ts";
import { ago, brief, clock, count, seconds } from "./format.ts";
import { everybody, operator } from "./operator.ts";
import { Empty, Icon, Problem, Text } from "./pieces.tsx";
import { link } from "./route.ts";
import type { Results } from "./wire.ts";
import "./fleet.css";

type Fleet = Results["get_fleet"];
type Agent = Fleet["agents"][number];
type Decision = Agent["decisions"][number];
type Check = Agent["checks"][number];

const LOOK_MS = 5_000;
const PAGE = 20;
/** Of one agent that was opened. */
const MOST = 100;

/** What is read again and again while the page is looked at. */
function useFleet(agent: string | undefined) {
  const [found, setFound] = useState<Fleet | undefined>(undefined);
  const [problem, setProblem] = useState("");
  const [shown, setShown] = useState(PAGE);
  useEffect(() => {
    let closed = false;
    const look = async () => {
      try {
        const asked = agent === undefined ? { limit: Math.min(shown, 100) } : { agent, decisions: MOST, waiting: MOST };
        const fleet = await service().ask("get_fleet", asked);
        if (closed) return;
        setFound(fleet);
        setProblem("");
      } catch (error) {
        if (!closed) setProblem(said(error));
      }
    };
    void look();
    const looking = setInterval(() => document.visibilityState === "visible" && void look(), LOOK_MS);
    return () => {
      closed = true;
      clearInterval(looking);
    };
  }, [agent, shown]);
  return { found, problem, more: () => setShown(shown + PAGE) };
}

export function FleetView({ agent }: { agent: string | undefined }) {
  const { found, problem, more } = useFleet(agent);
  if (!operator.value && found === undefined) {
    return (
      <Empty title="The fleet is for operators">
        <p>
          Sign in with a key that was made with <code>helix keys create --operator</code>.
        </p>
      </Empty>
    );
  }
  return (
    <div class="fleet-view">
      <header class="bar slim">
        <a class="button plain back" href={agent === undefined ? link.home() : link.fleet()} aria-label="Back">
          <Icon name="back" />
        </a>
        <div class="bar-about">
          <h1>
            {agent === undefined ? "Fleet" : <Text of={agent} length={40} />}
            {found !== undefined && agent === undefined && <Service fleet={found} />}
          </h1>
          <p class="quiet">{agent === undefined ? "Limits, queues and health of all agents" : <a href={link.fleet()}>All agents</a>}</p>
        </div>
      </header>
      <div class="scroller plain-panel" tabIndex={0} role="region" aria-label="Fleet">
        <Problem of={problem} />
        {found !== undefined && agent === undefined && <Totals fleet={found} />}
        {found?.agents.length === 0 && <p class="quiet">This fleet has no agents yet.</p>}
        <ol class="fleet-agents">
          {found?.agents.map((one) => (
            <AgentCard key={one.agent} agent={one} now={found.now} alone={agent !== undefined} />
          ))}
        </ol>
        {found !== undefined && found.cursor !== null && found.agents.length < 100 && (
          <button class="plain wide" onClick={more}>
            Show more agents
          </button>
        )}
        {found !== undefined && found.cursor !== null && found.agents.length >= 100 && (
          <p class="quiet">The first 100 agents are shown. The address #/fleet/NAME shows any other.</p>
        )}
      </div>
    </div>
  );
}

function Service({ fleet }: { fleet: Fleet }) {
  if (!fleet.ready) return <span class="status bad">Closed</span>;
  return <span class="status good">Accepts runs</span>;
}

function Totals({ fleet }: { fleet: Fleet }) {
  const ill = fleet.agents.flatMap((one) => one.checks).filter((check) => check.status === "unhealthy").length;
  const working = fleet.running ?? fleet.agents.reduce((sum, one) => sum + (one.running ?? 0), 0);
  const oldest = Math.min(...fleet.agents.flatMap((one) => one.waiting.map((run) => run.since)));
  return (
    <>
      {!fleet.ready && (
        <p class="problem">
          No run is accepted: <Text of={fleet.reason || "an operator closed the service"} />
        </p>
      )}
      <dl class="figures">
        <Figure name="Running" value={`${working}`} note={fleet.limit === null ? "no limit for the fleet" : `of at most ${fleet.limit}`} />
        <Figure name="Waiting" value={`${fleet.queued}`} note={Number.isFinite(oldest) ? `the oldest for ${seconds(fleet.now - oldest)}` : "no run is queued"} />
        <Figure name="Health" value={ill === 0 ? "Healthy" : `${ill}`} note={ill === 0 ? "no check fails" : ill === 1 ? "check fails" : "checks fail"} tone={ill === 0 ? "" : "bad-text"} />
        <Figure name="Sweep" value={fleet.swept_at === null ? "–" : since(fleet.now - fleet.swept_at)} note={fleet.swept_at === null ? "has not run yet" : "restarts runs whose start was lost"} />
      </dl>
    </>
  );
}

const since = (s: number): string => (s < 1 ? "now" : `${seconds(s).replace(/\.\d s/, " s")} ago`);

function Figure({ name, value, note, tone = "" }: { name: string; value: string; note: string; tone?: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <strong class={tone}>{value}</strong>
        <small>{note}</small>
      </dd>
    </div>
  );
}

function AgentCard({ agent, now, alone }: { agent: Agent; now: number; alone: boolean }) {
  const live = agent.processes.filter((one) => one.status !== "stopped" || alone);
  const quiet = agent.decisions.length === 0 && agent.waiting.length === 0 && agent.checks.length === 0 && live.length === 0;
  return (
    <li class="card fleet-agent">
      <header>
        <h2>
          {alone ? (
            <Text of={agent.agent} length={60} />
          ) : (
            <a href={link.fleet(agent.agent)}>
              <Text of={agent.agent} length={60} />
            </a>
          )}
          {agent.status === "stopped" ? (
            <span class="status bad">{agent.stopped_by ? `Stopped by ${agent.stopped_by}` : "Takes no runs"}</span>
          ) : (
            <Health checks={agent.checks} />
          )}
        </h2>
        <Capacity agent={agent} />
      </header>
      {!quiet && (
        <div class="fleet-parts">
          {agent.decisions.length > 0 && <Decisions agent={agent} alone={alone} />}
          {agent.waiting.length + agent.checks.length + live.length > 0 && (
            <div>
              {agent.waiting.length > 0 && <Queue agent={agent} now={now} />}
              {agent.checks.length > 0 && <Checks checks={agent.checks} now={now} />}
              {live.length > 0 && <Processes processes={live} now={now} />}
            </div>
          )}
        </div>
      )}
    </li>
  );
}

function Health({ checks }: { checks: Check[] }) {
  const worst = ["unhealthy", "degraded", "healthy"].find((status) => checks.some((check) => check.status === status));
  if (worst === undefined) return null;
  return <span class={`status ${TONES[worst] ?? "plain"}`}>{WORDS[worst] ?? worst}</span>;
}

const TONES: Record<string, string> = { healthy: "good", degraded: "warn", unhealthy: "bad" };
const WORDS: Record<string, string> = { healthy: "Healthy", degraded: "Degraded", unhealthy: "Unhealthy", unknown: "Unknown" };

function Capacity({ agent }: { agent: Agent }) {
  const { limit, running, max_instances: most, min_instances: least } = agent;
  const bounds = most === null ? "" : ` · may move from ${least ?? 0} to ${most}`;
  if (limit === null) return <p class="quiet">No limit on runs{bounds}</p>;
  const whole = Math.max(limit, running ?? 0, most ?? 0, 1);
  const cells = whole <= 24;
  return (
    <div class="capacity">
      <p>
        <strong>{running ?? 0}</strong> of <strong>{limit}</strong> running
        {agent.queued > 0 && <span class="warn-text"> · {count(agent.queued, "run")} {agent.queued === 1 ? "waits" : "wait"}</span>}
        <span class="quiet">{bounds}</span>
      </p>
      {cells ? (
        <span class="cells" aria-hidden="true">
          {Array.from({ length: whole }, (_, n) => (
            <i key={n} class={n < (running ?? 0) ? "busy" : n < limit ? "free" : ""} />
          ))}
        </span>
      ) : (
        <meter min={0} max={whole} value={running ?? 0} aria-label={`Running runs of ${agent.agent}`} />
      )}
    </div>
  );
}

function Decisions({ agent, alone }: { agent: Agent; alone: boolean }) {
  const title = "Why the limit moved";
  return (
    <section class="why" aria-label={`${title}: ${brief(agent.agent, 40)}`}>
      <h3>{title}</h3>
      {agent.decisions.length > 2 && <Steps decisions={agent.decisions} />}
      <ol>
        {agent.decisions.map((one) => (
          <DecisionRow key={`${one.at} ${one.before} ${one.after} ${one.reason}`} decision={one} alone={alone} />
        ))}
      </ol>
      {!alone && agent.decisions.length >= 5 && (
        <p class="small-print">
          <a href={link.fleet(agent.agent)}>All decisions</a>
        </p>
      )}
    </section>
  );
}

const MOVES: Record<string, [sign: string, word: string]> = { up: ["↑", "raised"], down: ["↓", "lowered"], hold: ["=", "stays"] };

function DecisionRow({ decision, alone }: { decision: Decision; alone: boolean }) {
  const [sign, word] = MOVES[decision.action] ?? ["", decision.action];
  const numbers = Object.entries(decision.metrics).filter(([, value]) => value !== 0);
  return (
    <li class={`decision ${decision.action}`}>
      <span class="sign" aria-hidden="true">
        {sign}
      </span>
      <div>
        <p>
          <strong>
            {decision.action === "hold" ? `Stays at ${decision.before}` : `${decision.before} → ${decision.after}`}
            <span class="unseen">, {word}</span>
          </strong>
          <span class="tag">{decision.rule}</span>
          {decision.blocked_by !== null && (
            <span class="tag warn">
              {decision.wanted !== null && `${decision.wanted} wanted, `}held by {decision.blocked_by}
            </span>
          )}
          {!decision.applied && decision.blocked_by === null && <span class="tag warn">not in force yet</span>}
          <time class="quiet" dateTime={new Date(decision.at * 1000).toISOString()}>
            {clock(decision.at)} · {ago(decision.at)}
          </time>
        </p>
        <p>
          <Text of={decision.reason} length={240} />
          {decision.trigger !== "" && (
            <small>
              {" "}
              triggered by <Text of={decision.trigger} length={60} />
            </small>
          )}
        </p>
        {alone && numbers.length > 0 && (
          <details>
            <summary>Metrics</summary>
            <dl class="numbers">
              {numbers.map(([name, value]) => (
                <div key={name}>
                  <dt>{name.replaceAll("_", " ")}</dt>
                  <dd>{value.toLocaleString("en", { maximumFractionDigits: 4 })}</dd>
                </div>
              ))}
            </dl>
          </details>
        )}
      </div>
    </li>
  );
}

/** The limit over the decisions that are shown, oldest first: one step each. */
function Steps({ decisions }: { decisions: Decision[] }) {
  const values = [...decisions].reverse().flatMap((one, n) => (n === 0 ? [one.before, one.after] : [one.after]));
  const most = Math.max(...values, 1);
  const [wide, high] = [100 / (values.length - 1), 30];
  const y = (value: number): string => (high + 2 - (high * value) / most).toFixed(1);
  const line = values.map((value, n) => (n === 0 ? `M0 ${y(value)}` : `H${(n * wide).toFixed(1)}V${y(value)}`)).join("");
  return (
    <svg class="steps-line" viewBox="0 0 100 34" preserveAspectRatio="none" aria-hidden="true" focusable="false">
      <path class="area" d={`${line}V34H0Z`} />
      <path class="line" d={line} />
    </svg>
  );
}

function Queue({ agent, now }: { agent: Agent; now: number }) {
  return (
    <section aria-label={`Waiting: ${brief(agent.agent, 40)}`}>
      <h3>Waiting</h3>
      <ol class="rows">
        {agent.waiting.map((run, n) => (
          <li key={run.run_id}>
            <span class="quiet">{n + 1}</span>
            <span class="id">
              {everybody.value ? (
                <a href={link.session(run.session_id)}>
                  <Text of={run.session_id} length={40} />
                </a>
              ) : (
                <Text of={run.run_id} length={40} />
              )}
            </span>
            <span>
              for {seconds(Math.max(0, now - run.since))}
              {run.priority !== 0 && <small> priority {run.priority}</small>}
            </span>
          </li>
        ))}
        {agent.queued > agent.waiting.length && <li class="quiet">and {count(agent.queued - agent.waiting.length, "more run")}</li>}
      </ol>
    </section>
  );
}

function Checks({ checks, now }: { checks: Check[]; now: number }) {
  return (
    <section aria-label="Health checks">
      <h3>Health</h3>
      <ol class="rows">
        {checks.map((check) => (
          <li key={check.check}>
            <span class={`status ${TONES[check.status] ?? "plain"}`}>{WORDS[check.status] ?? check.status}</span>
            <span>
              {check.check === "llm" ? "Model calls" : <Text of={check.check} length={40} />}
              {check.message !== "" && (
                <small>
                  {" "}
                  <Text of={check.message} length={160} />
                </small>
              )}
            </span>
            <span class="quiet">{check.checked_at === null ? "not checked yet" : since(now - check.checked_at)}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Processes({ processes, now }: { processes: Agent["processes"]; now: number }) {
  return (
    <section aria-label="Worker processes">
      <h3>Workers</h3>
      <ol class="rows">
        {processes.map((one) => (
          <li key={one.process_id}>
            <span class={`status ${one.status === "running" ? "good" : one.status === "crashed" || one.status === "failed" ? "bad" : "plain"}`}>{one.status}</span>
            <span>
              <span class="id">
                <Text of={one.process_id} length={36} />
              </span>
              {one.last_error && (
                <small>
                  {" "}
                  <Text of={one.last_error} length={120} />
                </small>
              )}
            </span>
            <span class="quiet">{figures(one, now)}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function figures(one: Agent["processes"][number], now: number): string {
  const live = one.pid === null ? [] : [`${one.cpu_percent.toFixed(0)} % CPU`, `${one.memory_mb.toFixed(0)} MB`];
  if (one.restart_count > 0) live.push(count(one.restart_count, "restart"));
  if (one.pid !== null && one.started_at !== null) live.push(`up ${seconds(now - one.started_at)}`);
  return live.join(" · ");
}
