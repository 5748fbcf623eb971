// What the session cost, line by line, and the budgets that bind it.
import { useEffect, useState } from "preact/hooks";
import { HelixError, said, service } from "./api.ts";
import { type Budget, Budgets, Stopped, usd, useStopped } from "./budgets.tsx";
import { count, money } from "./format.ts";
import { Table, Text } from "./pieces.tsx";
import type { OpenSession } from "./session.ts";
import type { Results } from "./wire.ts";

type Cost = Results["get_cost"];

interface Given {
  session: OpenSession;
  attempt: (work: () => Promise<unknown>) => void;
}

export function CostView({ session, attempt }: Given) {
  const [cost, setCost] = useState<Cost | undefined>(undefined);
  const [budgets, setBudgets] = useState<Budget[]>([]);
  const [problem, setProblem] = useState("");
  const [raised, setRaised] = useState(false);
  const stored = session.stored.value;
  const version = stored?.version;
  const stopped = useStopped(session);
  useEffect(() => setRaised(false), [stored?.current_run_id]);
  useEffect(() => {
    let closed = false;
    const fields = { session_id: session.id };
    Promise.all([service().ask("get_cost", fields), service().ask("get_budgets", fields)])
      .then(([found, bound]) => {
        if (closed) return;
        setCost(found);
        setBudgets(bound.budgets);
      })
      .catch((error: unknown) => {
        const old = error instanceof HelixError && error.code === "invalid_message";
        if (!closed) setProblem(old ? "This service is of an older version: it does not say what a session cost line by line." : said(error));
      });
    return () => void (closed = true);
  }, [session.id, version]);
  const change = async (budget: string, limit: number) => {
    await service().changeBudget(budget, limit);
    setBudgets((await service().ask("get_budgets", { session_id: session.id })).budgets);
    setRaised(true);
  };
  const total = stored?.usage;
  return (
    <div class="scroller plain-panel" tabIndex={0} role="region" aria-label="Cost">
      {problem && <p class="problem">{problem}</p>}
      {stopped && <Stopped session={session} attempt={attempt} budgets={budgets} raised={raised} />}
      {total !== undefined && (
        <dl class="figures">
          <Figure name="Model calls" value={money(total.cost_micros)} note={total.priced ? "" : "Some models have no known price."} />
          {cost !== undefined && <Figure name="Total" value={usd(cost.usd)} note={included(cost)} />}
          <Figure name="Tokens in" value={total.prompt_tokens.toLocaleString("en")} note={`${total.cached_tokens.toLocaleString("en")} from a cache`} />
          <Figure name="Tokens out" value={total.completion_tokens.toLocaleString("en")} note={`${total.reasoning_tokens.toLocaleString("en")} of reasoning`} />
        </dl>
      )}
      {budgets.length > 0 && <Budgets budgets={budgets} change={change} />}
      {cost !== undefined && <Lines cost={cost} session={session.id} />}
    </div>
  );
}

/** What the sum has beside the answered calls. */
function included(cost: Cost): string {
  const estimated = cost.lines.filter((line) => line.service === "Model" && line.basis === "estimated").length;
  const parts = estimated > 0 ? [`an estimate for ${count(estimated, "call")} that got no answer`] : [];
  if (cost.lines.some((line) => line.service !== "Model")) parts.push(cost.prices);
  return parts.length > 0 ? `With ${parts.join(", and ")}` : "";
}

function Lines({ cost, session }: { cost: Cost; session: string }) {
  return (
    <div class="cost-lines">
      <Table label="Cost line by line" columns={["Service", "Item", "Step", "#Quantity", "Basis", "#Cost"]}>
        <tbody>
          {cost.lines.map((line, n) => (
            <tr key={n}>
              <th scope="row">
                <Text of={line.service} />
              </th>
              <td>
                <Text of={line.what} length={60} /> {line.session_id !== session && <small>sub-agent</small>}
              </td>
              <td>{line.step ?? ""}</td>
              <td class="number">
                {line.quantity.toLocaleString("en")} <small>{line.unit}</small>
              </td>
              <td title={line.how}>{line.basis}</td>
              <td class="number">{usd(line.usd)}</td>
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row" colSpan={4}>
              Total
            </th>
            <td />
            <td class="number">{usd(cost.usd)}</td>
          </tr>
        </tfoot>
      </Table>
      {!cost.agrees && <p class="problem">The model lines do not add up to the cost that the runs have stored.</p>}
      {cost.left_out.length > 0 && (
        <p class="quiet small-print">
          Not included: <Text of={cost.left_out.join("; ")} />
        </p>
      )}
    </div>
  );
}

function Figure({ name, value, note }: { name: string; value: string; note: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <strong>{value}</strong>
        {note && (
          <small>
            <Text of={note} length={90} />
          </small>
        )}
      </dd>
    </div>
  );
}
