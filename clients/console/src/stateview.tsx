// The custom state as it is now, and the state before and after each step that changed it.
import { useEffect, useState } from "preact/hooks";
import { clock, count } from "./format.ts";
import type { OpenSession } from "./session.ts";
import { StepState } from "./statediff.tsx";
import type { StepSpan } from "./timeline.ts";
import { Tree } from "./tree.tsx";
import "./trace.css";

/** Steps that are listed at first, the newest; and how many more each time. */
const PAGE = 100;

export function StateView({ session }: { session: OpenSession }) {
  const { history } = session;
  useEffect(() => history.start(), [history]);
  void history.drawn.value;
  const [chosen, setChosen] = useState<string | undefined>(undefined);
  const [shown, setShown] = useState(PAGE);
  const state = session.custom.value;
  const steps = history.timeline.runs.flatMap((run) => run.steps).filter((step) => step.patches.length > 0);
  const last = steps.at(-1);
  const step = steps.find((one) => keyOf(one) === chosen) ?? last;
  const changed = session.changed.value.size > 0 ? session.changed.value : new Set(last?.patches.map((patch) => patch.path.replace(/\/-$/, "")));
  return (
    <div class="scroller plain-panel" tabIndex={0} role="region" aria-label="State">
      {history.problem.value && <p class="problem">{history.problem.value}</p>}
      <div class="split">
        <section class="card">
          <h2>Current state</h2>
          {Object.keys(state).length === 0 ? <p class="quiet">This session has no state.</p> : <Tree value={state} changed={changed} />}
        </section>
        <section class="card">
          <h2>Changes by step</h2>
          {history.reading.value !== undefined && <p class="quiet">Earlier steps are being read.</p>}
          {step === undefined ? (
            <p class="quiet">No step has changed the state.</p>
          ) : (
            <div class="by-step">
              <ol class="step-list">
                {steps
                  .slice(-shown)
                  .toReversed()
                  .map((one) => (
                    <li key={keyOf(one)}>
                      <button class="plain" aria-pressed={one === step} onClick={() => setChosen(keyOf(one))}>
                        Step {one.step} <small>{clock(one.at)}</small>
                      </button>
                    </li>
                  ))}
                {steps.length > shown && (
                  <li>
                    <button class="small" onClick={() => setShown(shown + PAGE)}>
                      Show earlier: {count(steps.length - shown, "step")} more
                    </button>
                  </li>
                )}
              </ol>
              <section class="step-state" aria-label={`State of step ${step.step}`} key={keyOf(step)}>
                <h3>Step {step.step}</h3>
                <StepState step={step} />
              </section>
            </div>
          )}
        </section>
      </div>
    </div>
  );
}

const keyOf = (step: StepSpan): string => `${step.run.id} ${step.step}`;
