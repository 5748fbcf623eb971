// Checkpoints of a session: what changed up to each, the state there, and a branch from it.
import { useState } from "preact/hooks";
import { said, service } from "./api.ts";
import { Changes } from "./changes.tsx";
import { clock, count } from "./format.ts";
import { Icon, Text } from "./pieces.tsx";
import type { OpenSession } from "./session.ts";
import type { StepSpan } from "./timeline.ts";
import { Tree } from "./tree.tsx";

interface CheckpointGiven {
  id: string;
  step: StepSpan;
  branch: (checkpoint: string) => void;
  rewind: ((checkpoint: string) => void) | undefined;
}

export function CheckpointRow({ id, step, branch, rewind }: CheckpointGiven) {
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
export function Stored({ session, branch }: { session: OpenSession; branch: (checkpoint: string) => void }) {
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
