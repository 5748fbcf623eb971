// What the keyboard can do, in one table: the list under ? is made of it.
import { signal } from "@preact/signals";
import { sessions } from "./listing.ts";
import { operator } from "./operator.ts";
import { Dialog } from "./pieces.tsx";
import { go, link, route, TABS } from "./route.ts";

export const helpOpen = signal(false);
/** Actions of the view that is shown, by their key. */
export const actions = signal<Record<string, () => void>>({});

const KEYS: [string, string, () => void][] = [
  ["?", "Show or hide this list", () => (helpOpen.value = !helpOpen.value)],
  ["/", "Search sessions", () => focus("search")],
  ["n", "New chat", () => go(link.new())],
  ["m", "Write a message", () => focus("composer")],
  ["a", "Attach files", () => document.getElementById("attach")?.click()],
  ["j", "Next session of the list", () => step(1)],
  ["k", "Previous session of the list", () => step(-1)],
  ["1", "Chat", () => tab(0)],
  ["2", "Timeline", () => tab(1)],
  ["3", "State", () => tab(2)],
  ["4", "Cost", () => tab(3)],
  ["i", "Interrupt the run", () => actions.value["interrupt"]?.()],
  ["r", "Resume or retry", () => actions.value["go on"]?.()],
  ["b", "Branch from the newest checkpoint", () => actions.value["branch"]?.()],
  ["c", "Compare a branch with its origin", () => actions.value["compare"]?.()],
  ["f", "Fleet, for operators", () => operator.value && go(link.fleet())],
  ["w", "Go to the call that waits", () => document.querySelector<HTMLElement>(".approval input, .approval textarea, .approval select, .approval button")?.focus()],
];
const OTHERS: [string, string][] = [
  ["Enter", "Send the message"],
  ["Shift Enter", "A new line"],
  ["Esc", "Leave a field, close a dialog"],
  ["Tab", "To the next control; Enter or Space opens and closes what has an arrow"],
];

function focus(id: string): void {
  document.getElementById(id)?.focus();
}

function step(by: number): void {
  const at = route.value.view === "session" ? route.value.id : undefined;
  const found = sessions.value;
  const index = found.findIndex((session) => session.session_id === at);
  const next = found[index < 0 ? 0 : Math.min(found.length - 1, Math.max(0, index + by))];
  if (next !== undefined) go(link.session(next.session_id));
}

function tab(index: number): void {
  const name = TABS[index];
  if (route.value.view === "session" && name !== undefined) go(link.session(route.value.id, name));
}

/** Returns what ends it. */
export function listenToKeys(): () => void {
  const pressed = (event: KeyboardEvent) => {
    const target = event.target as HTMLElement;
    const writing = target.closest("input, textarea, select") !== null;
    if (event.key === "Escape" && writing) return target.blur();
    if (writing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]") !== null && event.key !== "?") return;
    const found = KEYS.find(([key]) => key === event.key);
    if (found === undefined) return;
    event.preventDefault();
    found[2]();
  };
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}

export function Help() {
  if (!helpOpen.value) return null;
  return (
    <Dialog title="Keyboard" onClose={() => (helpOpen.value = false)}>
      <dl class="keys">
        {[...KEYS.filter(([key]) => key !== "f" || operator.value), ...OTHERS].map(([key, what]) => (
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
