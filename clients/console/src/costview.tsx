// What the session cost, line by line, and the budgets that bind it.
import { useEffect, useState } from "preact/hooks";
import { HelixError, said, service } from "./api.ts";
import { money } from "./format.ts";
import { Text } from "./pieces.tsx";
import type { OpenSession } from "./session.ts";
import type { Results } from "./wire.ts";

type Cost = Results["get_cost"];
type Budget = Results["get_budgets"]["budgets"][number];

const MICROS = 1e6;
const usd = (amount: number): string => money(Math.round(amount * MICROS));

export function CostView({ session }: { session: OpenSession }) {
  const [cost, setCost] = useState<Cost | undefined>(undefined);
  const [budgets, setBudgets] = useState<Budget[]>([]);
  const [problem, setProblem] = useState("");
  const version = session.stored.value?.version;
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
  const total = session.stored.value?.usage;
  return (
    <div class="scroller plain-panel" tabIndex={0} role="region" aria-label="Cost">
      {problem && <p class="problem">{problem}</p>}
      {total !== undefined && (
        <dl class="figures">
          <Figure name="Models and tools" value={money(total.cost_micros)} note={total.priced ? "" : "Some models have no known price."} />
          {cost !== undefined && <Figure name="With the platform" value={usd(cost.usd)} note={cost.prices} />}
          <Figure name="Tokens in" value={total.prompt_tokens.toLocaleString("en")} note={`${total.cached_tokens.toLocaleString("en")} from a cache`} />
          <Figure name="Tokens out" value={total.completion_tokens.toLocaleString("en")} note={`${total.reasoning_tokens.toLocaleString("en")} of reasoning`} />
        </dl>
      )}
      {budgets.length > 0 && <Budgets budgets={budgets} />}
      {cost !== undefined && <Lines cost={cost} session={session.id} />}
    </div>
  );
}

function Budgets({ budgets }: { budgets: Budget[] }) {
  return (
    <section class="card budgets">
      <h2>Budgets</h2>
      <ul>
        {budgets.map((one) => (
          <li key={one.budget}>
            <span>
              <Text of={one.budget} /> {one.exhausted && <span class="tag bad">used up</span>}
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
          </li>
        ))}
      </ul>
    </section>
  );
}

const amount = (value: number, unit: string): string => (unit === "usd" ? usd(value) : `${value.toLocaleString("en")} tokens`);

function Lines({ cost, session }: { cost: Cost; session: string }) {
  return (
    <>
      <div class="table" tabIndex={0} role="region" aria-label="Cost line by line">
        <table>
          <thead>
            <tr>
              <th scope="col">Service</th>
              <th scope="col">What</th>
              <th scope="col">Step</th>
              <th scope="col" class="number">
                Quantity
              </th>
              <th scope="col">Basis</th>
              <th scope="col" class="number">
                Cost
              </th>
            </tr>
          </thead>
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
              <th scope="row" colSpan={5}>
                Sum
              </th>
              <td class="number">{usd(cost.usd)}</td>
            </tr>
          </tfoot>
        </table>
      </div>
      {!cost.agrees && <p class="problem">The lines of the models are not what the rows of the runs say.</p>}
      {cost.left_out.length > 0 && (
        <p class="quiet small-print">
          In no line: <Text of={cost.left_out.join("; ")} />
        </p>
      )}
    </>
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
