// How a step was bought, as the service has it: for steps whose attempts or calls did not go straight through.
import { useState } from "preact/hooks";
import { said, service } from "./api.ts";
import { money } from "./format.ts";
import { Text } from "./pieces.tsx";
import type { StepSpan } from "./timeline.ts";
import type { Results } from "./wire.ts";

type Bought = Results["get_step"];

export function Details({ step }: { step: StepSpan }) {
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
      <summary>Outcome</summary>
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
  summary: "wrote a summary",
  failed: "failed",
  lost: "its answer came too late",
  cancelled: "cancelled",
  dead: "its worker died",
};
