// The custom state as it is now, and what changed it, step by step.
import { useEffect } from "preact/hooks";
import { Changes } from "./changes.tsx";
import { clock } from "./format.ts";
import type { OpenSession } from "./session.ts";
import { Tree } from "./tree.tsx";

export function StateView({ session }: { session: OpenSession }) {
  const { history } = session;
  useEffect(() => history.start(), [history]);
  void history.drawn.value;
  const state = session.custom.value;
  const steps = history.timeline.runs.flatMap((run) => run.steps).filter((step) => step.patches.length > 0);
  const last = steps.at(-1);
  const changed = session.changed.value.size > 0 ? session.changed.value : new Set(last?.patches.map((patch) => patch.path.replace(/\/-$/, "")));
  return (
    <div class="scroller plain-panel" tabIndex={0} role="region" aria-label="State">
      {history.problem.value && <p class="problem">{history.problem.value}</p>}
      <div class="split">
        <section class="card">
          <h2>Now</h2>
          {Object.keys(state).length === 0 ? <p class="quiet">This session has no state.</p> : <Tree value={state} changed={changed} />}
        </section>
        <section class="card">
          <h2>Changes</h2>
          {steps.length === 0 && <p class="quiet">No step has changed the state.</p>}
          <ol class="log">
            {steps.toReversed().map((step) => (
              <li key={`${step.session} ${step.step} ${step.at}`}>
                <h3>
                  Step {step.step} <small>{clock(step.at)}</small>
                </h3>
                <Changes patches={step.patches} />
              </li>
            ))}
          </ol>
        </section>
      </div>
    </div>
  );
}
