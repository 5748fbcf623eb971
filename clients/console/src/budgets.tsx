// The budgets that bind a session: how far each is used, another limit for one, and the run that one has stopped.
import { useEffect, useState } from "preact/hooks";
import { begin, HelixError, said, service } from "./api.ts";
import "./budgets.css";
import { money } from "./format.ts";
import { operator } from "./operator.ts";
import { Copy, Icon, Problem, Text } from "./pieces.tsx";
import type { OpenSession } from "./session.ts";
import type { Results } from "./wire.ts";

export type Budget = Results["get_budgets"]["budgets"][number];

const MICROS = 1e6;
const EXCEEDED = "budget_exceeded";
export const usd = (amount: number): string => money(Math.round(amount * MICROS));
const amount = (value: number, unit: string): string => (unit === "usd" ? usd(value) : `${value.toLocaleString("en")} tokens`);

/** Whether a budget has stopped the session's current run. */
export function useStopped(session: OpenSession): boolean {
  const stored = session.stored.value;
  const [paused, setPaused] = useState(false);
  const [run, status] = [stored?.current_run_id, stored?.status];
  useEffect(() => {
    setPaused(false);
    if (status !== "paused" || run === undefined) return;
    let closed = false;
    service()
      .ask("get_session", { session_id: session.id, run_id: run })
      .then((found) => !closed && setPaused(found.run?.completion_reason === EXCEEDED))
      .catch((error: unknown) => {
        if (!(error instanceof HelixError)) throw error; // the view shows what went wrong with the budgets
      });
    return () => void (closed = true);
  }, [session.id, run, status]);
  return paused || (status === "failed" && stored?.error?.code === EXCEEDED);
}

interface StoppedGiven {
  session: OpenSession;
  attempt: (work: () => Promise<unknown>) => void;
  budgets: Budget[];
  raised: boolean;
}

export function Stopped({ session, attempt, budgets, raised }: StoppedGiven) {
  const stored = session.stored.value;
  const failed = stored?.status === "failed";
  const goOn = () => attempt(() => begin(failed ? "retry" : "resume", { session_id: session.id }));
  const full = budgets.filter((one) => one.exhausted).map((one) => one.budget);
  return (
    <div class={`stopped ${raised ? "done" : ""}`} role="status">
      <p>
        <strong>{raised ? "The budget has room again." : "A budget stopped this run."}</strong>{" "}
        {raised ? (
          "The run goes on where it stopped."
        ) : (
          <>
            {full.length > 0 && (
              <>
                Used up: <Text of={full.join(", ")} length={160} />.{" "}
              </>
            )}
            {full.length === 0 && "Too little is left for the next model call. "}
            {operator.value ? "Raise its limit below, then continue." : "An operator can raise its limit."}
          </>
        )}
      </p>
      <button class={raised ? "primary" : ""} onClick={goOn}>
        <Icon name={failed ? "again" : "play"} /> {failed ? "Retry the run" : "Resume the run"}
      </button>
    </div>
  );
}

const SCOPES: Record<string, string> = { global: "All runs", agent: "Agent", tenant: "User", session: "This session" };
const PERIODS: Record<string, string> = { hour: "each hour", day: "each day", week: "each week", month: "each month" };

/** Such as "Agent desk, each day". */
function label({ scope, period }: Budget): string {
  const [kind = "", name = ""] = scope.split(/:(.*)/s);
  const whose = kind === "agent" || kind === "tenant" ? `${SCOPES[kind]} ${name}` : (SCOPES[kind] ?? scope);
  return `${whose}, ${PERIODS[period] ?? "in all"}`;
}

interface BudgetsGiven {
  budgets: Budget[];
  change: (budget: string, limit: number) => Promise<void>;
}

export function Budgets({ budgets, change }: BudgetsGiven) {
  return (
    <section class="card budgets">
      <h2>Budgets</h2>
      <ul>
        {budgets.map((one) => (
          <li key={one.budget}>
            <span>
              <span title={one.budget}>
                <Text of={label(one)} />
              </span>{" "}
              {one.exhausted && <span class="tag bad">used up</span>}
            </span>
            {one.limit !== null && one.used !== null ? (
              <>
                <meter min={0} max={one.limit} high={0.9 * one.limit} value={one.used} aria-label={`Used of ${one.budget}`} />
                <span class="quiet">
                  {amount(one.used, one.unit)} of {amount(one.limit, one.unit)}
                </span>
              </>
            ) : (
              <span class="quiet">Its amounts are for the operator.</span>
            )}
            <span class="quiet">
              this run: {amount(one.run.spent, one.unit)} spent, {amount(one.run.reserved, one.unit)} reserved
            </span>
            <Raise budget={one} change={change} />
          </li>
        ))}
      </ul>
    </section>
  );
}

/** A field for operators; the command for others. */
function Raise({ budget, change }: { budget: Budget; change: BudgetsGiven["change"] }) {
  const [open, setOpen] = useState(false);
  const [value, setValue] = useState("");
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const dollars = budget.unit === "usd";
  const show = () => {
    setValue(String(2 * (budget.limit ?? 1)));
    setOpen(true);
  };
  const save = async () => {
    setBusy(true);
    setProblem("");
    try {
      await change(budget.budget, Number(value));
      setOpen(false);
    } catch (error) {
      setProblem(said(error));
    }
    setBusy(false);
  };
  if (!open) {
    return (
      <button class="small" onClick={show} aria-label={`Change limit of ${budget.budget}`}>
        Change limit
      </button>
    );
  }
  if (!operator.value) {
    return (
      <p class="raise">
        <span>An operator runs</span> <code>{command(budget)}</code> <Copy of={command(budget)} label="Copy the command" />
      </p>
    );
  }
  return (
    <form class="raise" onSubmit={(event) => (event.preventDefault(), void save())}>
      <label>
        {dollars ? "US dollars" : "Tokens"} {PERIODS[budget.period] ?? "in all"}{" "}
        <input
          type="number"
          required
          autofocus
          min={dollars ? "0.000001" : "1"}
          step={dollars ? "any" : "1"}
          value={value}
          onInput={(event) => setValue(event.currentTarget.value)}
        />
      </label>
      <button class="small primary" disabled={busy}>
        Set limit
      </button>
      <button class="small plain" type="button" onClick={() => setOpen(false)}>
        Cancel
      </button>
      <Problem of={problem} />
    </form>
  );
}

/** Quoted for a shell: names are anybody's. */
function command(budget: Budget): string {
  const [kind, name] = budget.scope.split(/:(.*)/s);
  const of = name === undefined ? "" : ` --${kind} '${name.replaceAll("'", "'\\''")}'`;
  return `helix fleet set-budget AMOUNT ${budget.period}${of} --unit ${budget.unit}`;
}
