// The command palette: one field that finds sessions, agents and actions; and the list of the keys.
import { useEffect, useRef, useState } from "preact/hooks";
import { agents, said, service } from "./api.ts";
import { brief } from "./format.ts";
import { commands, helpOpen, KEYS, paletteOpen } from "./keys.tsx";
import { sessions } from "./listing.ts";
import { Dialog, Problem, Text } from "./pieces.tsx";
import { operator } from "./operator.ts";
import { go, link } from "./route.ts";
import type { ListedSession } from "./wire.ts";
import "./palette.css";

const PAUSE_MS = 150;
const MOST = 8;

interface Entry {
  key: string;
  kind: "Action" | "Agent" | "Session";
  text: string;
  /** What else is known, such as the key of an action. */
  note: string;
  run: () => void;
}

const fits = (text: string, words: string): boolean =>
  words.toLowerCase().split(/\s+/).every((word) => text.toLowerCase().includes(word));

function entries(words: string, found: readonly ListedSession[]): Entry[] {
  const actions = commands().map(({ key, what, run }): Entry => ({ key: `action ${key}`, kind: "Action", text: what, note: key, run }));
  const chats = agents.value.map(
    ({ name, description = "" }): Entry => ({
      ...{ key: `agent ${name}`, kind: "Agent", text: `New chat with ${name}` },
      ...{ note: brief(description, 60), run: () => go(link.new(name)) },
    }),
  );
  const listed = found.map(
    ({ session_id, title, agent_type }): Entry => ({
      ...{ key: `session ${session_id}`, kind: "Session", text: title || session_id, note: agent_type },
      run: () => go(link.session(session_id)),
    }),
  );
  if (words === "") return [...listed.slice(0, MOST), ...actions];
  return [actions, chats].flatMap((all) => all.filter((one) => fits(one.text, words)).slice(0, MOST)).concat(listed.slice(0, MOST));
}

/** The sessions that the service finds for the words, and the newest ones without words. */
function useSessions(words: string): [ListedSession[], string] {
  const [found, setFound] = useState<ListedSession[]>([]);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (words === "") return setFound(sessions.peek());
    let current = true;
    const pause = setTimeout(() => {
      service()
        .listSessions({ limit: MOST, titles: true, text: words })
        .then((page) => current && (setFound(page.sessions), setProblem("")))
        .catch((error: unknown) => current && setProblem(said(error)));
    }, PAUSE_MS);
    return () => {
      current = false;
      clearTimeout(pause);
    };
  }, [words]);
  return [found, problem];
}

export function Palette() {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [found, problem] = useSessions(text.trim());
  const shown = entries(text.trim(), found);
  const chosen = Math.min(at, shown.length - 1);
  const list = useRef<HTMLUListElement>(null);
  const close = () => (paletteOpen.value = false);
  const run = (entry: Entry | undefined) => {
    if (entry === undefined) return;
    close();
    // The dialog gives the focus back first, so that an action can move it.
    setTimeout(entry.run);
  };
  useEffect(() => list.current?.children[chosen]?.scrollIntoView({ block: "nearest" }), [chosen]);
  const pressed = (event: KeyboardEvent) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by !== undefined && shown.length > 0) {
      event.preventDefault();
      setAt((chosen + by + shown.length) % shown.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(shown[chosen]);
    }
  };
  return (
    <Dialog title="Go to" onClose={close}>
      <input
        type="text"
        role="combobox"
        aria-label="Find a session, an agent or an action"
        placeholder="Find a session, an agent or an action"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={chosen < 0 ? undefined : `palette-${chosen}`}
        autocomplete="off"
        autofocus
        value={text}
        onInput={(event) => (setText(event.currentTarget.value), setAt(0))}
        onKeyDown={pressed}
      />
      <Problem of={problem} />
      <ul class="palette" id="palette-list" role="listbox" aria-label="Found" ref={list}>
        {shown.map((entry, n) => (
          <li key={entry.key} id={`palette-${n}`} role="option" aria-selected={n === chosen} onClick={() => run(entry)}>
            <span class="quiet">{entry.kind}</span>
            <Text of={entry.text} length={70} />
            <span class="quiet note">
              <Text of={entry.note} length={60} />
            </span>
          </li>
        ))}
      </ul>
      {shown.length === 0 && <p class="quiet">Nothing fits.</p>}
    </Dialog>
  );
}

const OTHERS: [string, string][] = [
  ["Ctrl K", "Find a session, an agent or an action"],
  ["Enter", "Send the message"],
  ["Ctrl Enter", "Approve the call unless a note is written, or send the written result"],
  ["Shift Enter", "A new line"],
  ["Esc", "Leave a field, close a dialog"],
  ["↑ ↓ ← →", "In the timeline: move and fold; Enter opens the details, + - 0 zoom"],
  ["Tab", "To the next control; Enter or Space opens and closes what has an arrow"],
];

/** The list of the keys. */
export function Help() {
  return (
    <Dialog title="Keyboard" onClose={() => (helpOpen.value = false)}>
      <dl class="keys">
        {[...KEYS.filter(({ key }) => key !== "f" || operator.value).map(({ key, what }) => [key, what] as const), ...OTHERS].map(([key, what]) => (
          <div key={key}>
            <dt>
              {key.split(" ").map((part) => (
                <kbd key={part}>{part}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
