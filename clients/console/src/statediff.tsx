// The state before and after a step, and what changed from the one to the other.
import { useEffect, useMemo, useState } from "preact/hooks";
import { said, service } from "./api.ts";
import { count, inline, visible } from "./format.ts";
import { Problem, Text } from "./pieces.tsx";
import { changesOf, type StateChange, wordsOf } from "./statechanges.ts";
import type { StepSpan } from "./timeline.ts";
import { Tree } from "./tree.tsx";

type State = Record<string, unknown>;
interface Pair {
  before: State;
  after: State;
}

const VIEWS = { changes: "Changes", before: "Before", after: "After" } as const;
type View = keyof typeof VIEWS;
/** Changes that are drawn at first, and how many more each time. */
const PAGE = 100;
/** Characters up to which a value is shown on its line. */
const SHORT = 80;
const NONE: ReadonlySet<string> = new Set();

export function StepState({ step }: { step: StepSpan }) {
  const [pair, setPair] = useState<Pair | undefined>(undefined);
  const [problem, setProblem] = useState("");
  const [view, setView] = useState<View>("changes");
  useEffect(() => {
    let closed = false;
    setProblem("");
    if (step.checkpoint === undefined) return setPair(undefined);
    pairOf(step, step.checkpoint)
      .then((found) => !closed && setPair(found))
      .catch((error: unknown) => !closed && setProblem(said(error)));
    return () => void (closed = true);
  }, [step.session, step.checkpoint, step.earlier]);
  if (problem !== "") return <Problem of={problem} />;
  if (step.checkpoint === undefined) return <p class="quiet">This step has no checkpoint: it has not ended, or its checkpoint was deleted.</p>;
  if (pair === undefined) return <p class="quiet">Reading…</p>;
  return (
    <>
      <div class="filters" role="group" aria-label="State of the step">
        {Object.entries(VIEWS).map(([name, words]) => (
          <button key={name} class="chip" aria-pressed={view === name} onClick={() => setView(name as View)}>
            {words}
          </button>
        ))}
      </div>
      {view === "changes" ? <StateChanges {...pair} /> : <Whole of={pair[view]} />}
    </>
  );
}

async function pairOf(step: StepSpan, checkpoint: string): Promise<Pair> {
  const { session } = step;
  const earlier = step.earlier ?? (await service().listCheckpoints(session, { limit: 1, after: checkpoint })).checkpoints[0]?.id;
  const read = async (id: string): Promise<State> => (await service().getCheckpoint(session, id)).custom_state;
  const [before, after] = await Promise.all([earlier === undefined ? {} : read(earlier), read(checkpoint)]);
  return { before, after };
}

function Whole({ of }: { of: State }) {
  return Object.keys(of).length === 0 ? <p class="quiet">It is empty.</p> : <Tree value={of} changed={NONE} />;
}

function StateChanges({ before, after }: Pair) {
  const changes = useMemo(() => changesOf(before, after), [before, after]);
  const [shown, setShown] = useState(PAGE);
  if (changes.length === 0) return <p class="quiet">The step did not change the state.</p>;
  return (
    <>
      <ul class="state-changes">
        {changes.slice(0, shown).map((change, n) => (
          <li key={n} class={change.kind}>
            <span class="sign" aria-hidden="true">
              {SIGNS[change.kind]}
            </span>
            <span class="unseen">{change.kind} </span>
            <code>
              <Text of={change.path} />
            </code>
            <Values of={change} />
          </li>
        ))}
      </ul>
      {changes.length > shown && (
        <button class="small" onClick={() => setShown(shown + PAGE)}>
          Show more: {count(changes.length - shown, "change")}
        </button>
      )}
    </>
  );
}

const SIGNS: Record<StateChange["kind"], string> = { added: "+", removed: "−", changed: "~", moved: "→" };

function Values({ of }: { of: StateChange }) {
  switch (of.kind) {
    case "added":
      return <Value of={of.value} as="ins" />;
    case "removed":
      return <Value of={of.value} as="del" />;
    case "moved":
      return (
        <span class="quiet">
          from <Text of={of.from} />: <Text of={inline(of.value, SHORT)} />
        </span>
      );
    case "changed":
      if (typeof of.before === "string" && typeof of.after === "string" && of.before.length + of.after.length > SHORT) return <WordChanges {...of} before={of.before} after={of.after} />;
      return (
        <>
          {Array.isArray(of.before) && Array.isArray(of.after) && <span class="quiet">too long to compare element by element</span>}
          <Value of={of.before} as="del" />
          <Value of={of.after} as="ins" />
        </>
      );
  }
}

function WordChanges({ before, after }: { before: string; after: string }) {
  const words = useMemo(() => wordsOf(before, after), [before, after]);
  return (
    <p class="words" dir="auto">
      {words.map(({ text, kind }, n) => {
        const Tag = kind === "added" ? "ins" : kind === "removed" ? "del" : "span";
        return <Tag key={n}>{visible(text)}</Tag>;
      })}
    </p>
  );
}

/** A short value on the line, another one folded. */
function Value({ of, as: Tag }: { of: unknown; as: "ins" | "del" }) {
  const text = typeof of === "string" ? of : JSON.stringify(of);
  if (text.length <= SHORT) {
    return (
      <Tag>
        <Text of={typeof of === "string" ? `“${of}”` : text} />
      </Tag>
    );
  }
  return (
    <details>
      <summary>
        <Tag>
          <Text of={inline(of, SHORT)} />
        </Tag>
      </summary>
      {typeof of === "object" ? <Tree value={of} changed={NONE} /> : <p class="words">{visible(text)}</p>}
    </details>
  );
}
