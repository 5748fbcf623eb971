// Actions on the selected sessions. Each says what became of each session, and can be stopped.
import { useEffect, useRef, useState } from "preact/hooks";
import { said, service } from "./api.ts";
import { ExportFile } from "./exporting.ts";
import { count } from "./format.ts";
import { cursor, more, refresh, sessions } from "./listing.ts";
import { Dialog, Text } from "./pieces.tsx";
import { select, selected, startSelecting } from "./selection.ts";
import type { ListedSession } from "./wire.ts";

type Kind = "tag" | "export" | "stop" | "delete";
const AT_ONCE = 4;
const MOST = 500;
const LONGEST_TAG = 256;

interface Tags {
  add: string;
  remove: string;
}

interface Action {
  name: string;
  title: (n: number) => string;
  explain: string;
  /** Returns the outcome in words. */
  run: (session: ListedSession, tags: Tags, file: ExportFile) => Promise<string>;
  /** Whether a session stays selected afterwards. */
  keeps?: boolean;
}

const ACTIONS: Record<Kind, Action> = {
  tag: {
    name: "Tag",
    title: (n) => `Change the tags of ${count(n, "session")}`,
    explain: "Sessions that are running can be tagged too. A session has at most 50 tags.",
    run: async (session, { add, remove }) => {
      const change = { add: add === "" ? [] : [add], remove: remove === "" ? [] : [remove] };
      const { tags } = await service().ask("change_tags", { session_id: session.session_id, ...change });
      select([{ ...session, tags }], true);
      return tags.length === 0 ? "No tags" : tags.join(", ");
    },
    keeps: true,
  },
  export: {
    name: "Export",
    title: (n) => `Export ${count(n, "session")}?`,
    explain:
      "They are saved as one file for helix import, with their sub-agents' sessions. The bytes of their files are left out, as are sessions that are running and what exceeds 100 MB. helix export saves a single session with its files.",
    run: ({ session_id }, _, file) => file.add(session_id),
    keeps: true,
  },
  stop: {
    name: "Stop",
    title: (n) => `Stop ${count(n, "session")}?`,
    explain: "A run stops at the next possible point. It can be resumed.",
    run: async ({ session_id }) => ((await service().interrupt(session_id)) ? "Asked to stop" : "Not running"),
  },
  delete: {
    name: "Delete",
    title: (n) => `Delete ${count(n, "session")}?`,
    explain: "Their conversations, files and sub-agents' sessions are deleted for good. A session that is running is not deleted.",
    run: async ({ session_id }) => ((await service().delete(session_id)) ? "Deleted" : "Already deleted"),
  },
};

export function Bulk() {
  const [kind, setKind] = useState<Kind | undefined>(undefined);
  const chosen = [...selected.value.values()];
  const all = sessions.value.slice(0, MOST);
  const whole = all.length > 0 && all.every((one) => selected.value.has(one.session_id));
  return (
    <section class="bulk" aria-label="Selected sessions">
      <p role="status">{count(chosen.length, "session")} selected</p>
      <button class="small" onClick={() => select(all, !whole)}>
        {whole ? "Select none" : `Select the ${all.length} listed`}
      </button>
      {cursor.value !== null && all.length < MOST && (
        <button class="small plain" onClick={() => void more()}>
          List more
        </button>
      )}
      {(Object.keys(ACTIONS) as Kind[]).map((one) => (
        <button key={one} class={`small ${one === "delete" ? "danger" : ""}`} disabled={chosen.length === 0} onClick={() => setKind(one)}>
          {ACTIONS[one].name}
        </button>
      ))}
      <button class="small plain" onClick={() => startSelecting(false)}>
        Done
      </button>
      {kind !== undefined && <Carry action={ACTIONS[kind]} kind={kind} sessions={chosen} onClose={() => setKind(undefined)} />}
    </section>
  );
}

interface Outcome {
  words: string;
  failed: boolean;
}

interface CarryGiven {
  kind: Kind;
  action: Action;
  sessions: ListedSession[];
  onClose: () => void;
}

/** Asks, carries the action out on each session, a few at once, and says what became of each. A failure of one does not stop
 * the others. Closing the dialog begins no other. */
function Carry({ kind, action, sessions: given, onClose }: CarryGiven) {
  const [all] = useState(given); // the selection changes behind the dialog
  const [outcomes, setOutcomes] = useState<ReadonlyMap<string, Outcome>>(new Map());
  const [state, setState] = useState<"asks" | "works" | "done">("asks");
  const [tags, setTags] = useState<Tags>({ add: "", remove: "" });
  const [file] = useState(() => new ExportFile());
  const [stopped, closed] = [useRef(false), useRef(false)];
  useEffect(() => () => void (stopped.current = closed.current = true), []);
  const carryOut = async (left: ListedSession[]) => {
    for (let session = left.shift(); session !== undefined && !stopped.current; session = left.shift()) {
      const { session_id: id } = session;
      const note = (outcome: Outcome) => setOutcomes((known) => new Map(known).set(id, outcome));
      try {
        note({ words: await action.run(session, { add: tags.add.trim(), remove: tags.remove }, file), failed: false });
        if (!action.keeps) select([session], false);
      } catch (error) {
        note({ words: said(error), failed: true });
      }
    }
  };
  const start = async () => {
    setState("works");
    const left = [...all];
    await Promise.all(Array.from({ length: AT_ONCE }, () => carryOut(left)));
    setState("done");
    if (file.sessions > 0 && !closed.current) file.save();
    await refresh();
  };
  const failed = [...outcomes.values()].filter((one) => one.failed).length;
  const nothing = kind === "tag" && tags.add.trim() === "" && tags.remove === "";
  return (
    <Dialog title={action.title(all.length)} onClose={onClose}>
      {state === "asks" && <p>{action.explain}</p>}
      {state === "asks" && kind === "tag" && <TagFields sessions={all} tags={tags} setTags={setTags} start={() => nothing || void start()} />}
      {state !== "asks" && (
        <p role="status">
          {outcomes.size} of {all.length} done{failed > 0 && `, ${failed} refused`}
          {state === "done" && outcomes.size < all.length && ". Stopped: the others are as they were"}
          {state === "done" && file.sessions > 0 && `. ${count(file.sessions, "session")} in sessions.jsonl`}
        </p>
      )}
      <ul class="bulk-list" tabIndex={0} aria-label="Sessions">
        {all.map((session) => {
          const outcome = outcomes.get(session.session_id);
          return (
            <li key={session.session_id}>
              <Text of={session.title || session.session_id} length={60} />
              <span class={outcome?.failed ? "bad-text" : "quiet"}>
                <Text of={outcome?.words ?? (state === "works" ? "…" : "")} length={300} />
              </span>
            </li>
          );
        })}
      </ul>
      <div class="bar-actions">
        {state === "asks" && (
          <button class={kind === "delete" ? "danger" : "primary"} disabled={nothing} onClick={() => void start()}>
            {action.name}
          </button>
        )}
        {state === "works" && <button onClick={() => (stopped.current = true)}>Stop here</button>}
        {state !== "works" && (
          <form method="dialog">
            <button>{state === "done" ? "Close" : "Cancel"}</button>
          </form>
        )}
      </div>
    </Dialog>
  );
}

interface TagGiven {
  sessions: readonly ListedSession[];
  tags: Tags;
  setTags: (tags: Tags) => void;
  start: () => void;
}

function TagFields({ sessions: all, tags, setTags, start }: TagGiven) {
  const known = new Map<string, number>();
  for (const tag of all.flatMap((session) => [...new Set(session.tags)])) known.set(tag, (known.get(tag) ?? 0) + 1);
  return (
    <form class="dialog-form" onSubmit={(event) => (event.preventDefault(), start())}>
      <label class="field">
        <span>Add this tag</span>
        <input
          type="text"
          autofocus
          maxLength={LONGEST_TAG}
          value={tags.add}
          onInput={(event) => setTags({ ...tags, add: event.currentTarget.value })}
        />
      </label>
      {known.size > 0 && (
        <label class="field">
          <span>Remove this tag</span>
          <select value={tags.remove} onChange={(event) => setTags({ ...tags, remove: event.currentTarget.value })}>
            <option value="">None</option>
            {[...known].sort().map(([tag, n]) => (
              <option key={tag} value={tag}>{`${tag} (${n.toLocaleString("en")})`}</option>
            ))}
          </select>
        </label>
      )}
    </form>
  );
}
