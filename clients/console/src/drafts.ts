// What a person has written and the service has not taken: for each place where one writes, in this tab, over a reload too.
import { type Signal, signal } from "@preact/signals";
import type { FilePart } from "../../js/src/index.ts";

/** A message to send. `session`: the id of the new session that holds the files, if the page had to choose it. */
export interface Outgoing {
  text: string;
  files?: FilePart[];
  session?: string;
}

/** A message on its way. The key makes all its repeats one run. `problem`: why it did not arrive. */
export interface Unsent extends Outgoing {
  key: string;
  problem?: string;
}

/** `files`: those that are stored already, of all that are attached. */
export interface Draft extends Outgoing {
  unsent?: Unsent;
}

const PREFIX = "helix-draft:";
const LAST = "helix-agent";
const EMPTY: Draft = { text: "" };
const drafts = new Map<string, Signal<Draft>>();
/** Keys of the messages that are being sent by this page. */
export const sending = signal<ReadonlySet<string>>(new Set());

export const draftPlace = {
  session: (id: string) => `session ${id}`,
  new: (agent: string) => `new ${agent}`,
};

export function draftOf(place: string): Signal<Draft> {
  const found = drafts.get(place) ?? signal(stored(place));
  drafts.set(place, found);
  return found;
}

export function setDraft(place: string, draft: Draft): void {
  draftOf(place).value = draft;
  try {
    if (draft.text === "" && !draft.files?.length && draft.unsent === undefined) sessionStorage.removeItem(PREFIX + place);
    else sessionStorage.setItem(PREFIX + place, JSON.stringify(draft));
  } catch {
    // The storage is full or closed: the draft lives as long as the page.
  }
}

export const changeDraft = (place: string, change: Partial<Draft>): void => setDraft(place, { ...draftOf(place).value, ...change });

/** The agent of the last chat that began on this page. The browser may keep no storage for the page; then there is none. */
export function lastAgent(): string | null {
  try {
    return localStorage.getItem(LAST);
  } catch {
    return null;
  }
}

export function keepAgent(name: string): void {
  try {
    localStorage.setItem(LAST, name);
  } catch {
    // The next chat begins with the first agent.
  }
}

/** When a person signs out: the next one may be another. */
export function forgetDrafts(): void {
  drafts.clear();
  for (const name of Object.keys(sessionStorage)) if (name.startsWith(PREFIX)) sessionStorage.removeItem(name);
  localStorage.removeItem(LAST);
}

/** Send a message, and hold it until the service has taken it. `send` rejects with what went wrong. */
export async function deliver(
  place: string,
  { problem: _, ...unsent }: Unsent,
  send: (message: Outgoing, key: string) => Promise<void>,
  why: (error: unknown) => string,
): Promise<void> {
  const { key } = unsent;
  if (sending.value.has(key)) return;
  sending.value = new Set([...sending.value, key]);
  changeDraft(place, { unsent });
  const held = () => draftOf(place).value.unsent?.key === key;
  try {
    await send(unsent, key);
    const { unsent: _sent, ...rest } = draftOf(place).value;
    if (held()) setDraft(place, rest);
  } catch (error) {
    if (held()) changeDraft(place, { unsent: { ...unsent, problem: why(error) } });
  } finally {
    sending.value = new Set([...sending.value].filter((other) => other !== key));
  }
}

function stored(place: string): Draft {
  try {
    const found = JSON.parse(sessionStorage.getItem(PREFIX + place) ?? "null") as Draft | null;
    return found !== null && typeof found.text === "string" ? found : EMPTY;
  } catch {
    return EMPTY;
  }
}
