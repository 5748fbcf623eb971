// What the keyboard can do, in one table: the list under ? (`palette.tsx`) is made of it.
import { signal } from "@preact/signals";
import { sessions } from "./listing.ts";
import { operator } from "./operator.ts";
import { go, link, route, TABS } from "./route.ts";
import { select, selected, selecting, startSelecting } from "./selection.ts";

export const helpOpen = signal(false);
export const paletteOpen = signal(false);
/** Whether the list's filters are open. */
export const panelOpen = signal(false);
/** Actions of the view that is shown, by their key. */
export const actions = signal<Record<string, () => void>>({});

interface Command {
  key: string;
  what: string;
  run: () => void;
  /** Whether it can be carried out now. */
  can?: () => boolean;
}

const inSession = (): boolean => route.value.view === "session";
const has = (name: string) => (): boolean => actions.value[name] !== undefined;
export const KEYS: Command[] = [
  { key: "?", what: "Show or hide the list of keys", run: () => (helpOpen.value = !helpOpen.value) },
  { key: "/", what: "Search sessions", run: () => focus("search") },
  { key: "n", what: "New chat", run: () => go(link.new()) },
  { key: "m", what: "Write a message", run: () => focus("composer"), can: () => document.getElementById("composer") !== null },
  { key: "a", what: "Attach files", run: () => document.getElementById("attach")?.click(), can: () => document.getElementById("attach") !== null },
  { key: "j", what: "Next session of the list", run: () => step(1) },
  { key: "k", what: "Previous session of the list", run: () => step(-1) },
  { key: "1", what: "Chat", run: () => tab(0), can: inSession },
  { key: "2", what: "Timeline", run: () => tab(1), can: inSession },
  { key: "3", what: "State", run: () => tab(2), can: inSession },
  { key: "4", what: "Cost", run: () => tab(3), can: inSession },
  { key: "i", what: "Interrupt the run", run: () => actions.value["interrupt"]?.(), can: has("interrupt") },
  { key: "r", what: "Resume or retry", run: () => actions.value["go on"]?.(), can: has("go on") },
  { key: "b", what: "Branch from the newest checkpoint", run: () => actions.value["branch"]?.(), can: has("branch") },
  { key: "c", what: "Compare with another run or session", run: () => actions.value["compare"]?.(), can: has("compare") },
  { key: "t", what: "Rename the session", run: () => actions.value["rename"]?.(), can: has("rename") },
  { key: "p", what: "Save the session as a page", run: () => actions.value["share"]?.(), can: has("share") },
  { key: "d", what: "Delete the session", run: () => actions.value["delete"]?.(), can: has("delete") },
  { key: "l", what: "Running now", run: () => go(link.live()) },
  { key: "v", what: "Filters and saved views", run: () => (panelOpen.value = !panelOpen.value) },
  { key: "s", what: "Select sessions", run: () => startSelecting(!selecting.value) },
  { key: "x", what: "Select or deselect the session that is open", run: mark, can: () => selecting.value && inSession() },
  { key: "f", what: "Fleet, for operators", run: () => go(link.fleet()), can: () => operator.value },
  { key: "w", what: "Go to the next call that waits", run: () => nextWaiting()?.focus(), can: () => nextWaiting() !== undefined },
];
/** What a form does for Ctrl Enter, or Cmd Enter, in any of its fields. */
export function onCtrlEnter(event: KeyboardEvent, send: () => void): void {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  send();
}

/** The form after the one that has the focus, and then the first one again. */
function nextWaiting(): HTMLElement | undefined {
  const forms = [...document.querySelectorAll<HTMLElement>(".approval")];
  const at = forms.findIndex((form) => form.contains(document.activeElement));
  return forms[at + 1] ?? forms[0];
}

/** Those that can be carried out now. */
export const commands = (): Command[] => KEYS.filter(({ can }) => can === undefined || can());

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

function mark(): void {
  const at = route.value.view === "session" ? route.value.id : undefined;
  const session = sessions.value.find((one) => one.session_id === at);
  if (session !== undefined) select([session], !selected.value.has(session.session_id));
}

function tab(index: number): void {
  const name = TABS[index];
  if (route.value.view === "session" && name !== undefined) go(link.session(route.value.id, name));
  focus("main");
}

/** Returns what ends it. */
export function listenToKeys(): () => void {
  const pressed = (event: KeyboardEvent) => {
    const target = event.target as HTMLElement;
    const writing = target.closest("input, textarea, select") !== null;
    if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
      event.preventDefault();
      if (document.querySelector("dialog[open]") === null) paletteOpen.value = true;
      return;
    }
    if (event.key === "Escape" && writing) return target.blur();
    if (writing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]") !== null && event.key !== "?") return;
    const found = commands().find(({ key }) => key === event.key);
    if (found === undefined) return;
    event.preventDefault();
    found.run();
  };
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}
