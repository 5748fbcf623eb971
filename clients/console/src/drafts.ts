// What a person has written and the service has not taken: for each place where one writes, in this tab, over a reload too.
import { type Signal, signal } from "@preact/signals";

/** A message on its way. The key makes all its repeats one run. `problem`: why it did not arrive. */
export interface Unsent {
  text: string;
  key: string;
  problem?: string;
}

export interface Draft {
  text: string;
  unsent?: Unsent;
}

const PREFIX = "helix-draft:";
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
    if (draft.text === "" && draft.unsent === undefined) sessionStorage.removeItem(PREFIX + place);
    else sessionStorage.setItem(PREFIX + place, JSON.stringify(draft));
  } catch {
    // The storage is full or closed: the draft lives as long as the page.
  }
}

/** When a person signs out: the next one may be another. */
export function forgetDrafts(): void {
  drafts.clear();
  for (const name of Object.keys(sessionStorage)) if (name.startsWith(PREFIX)) sessionStorage.removeItem(name);
}

/** Send a message, and hold it until the service has taken it. `send` rejects with what went wrong. */
export async function deliver(place: string, unsent: Unsent, send: (text: string, key: string) => Promise<void>, why: (error: unknown) => string): Promise<void> {
  if (sending.value.has(unsent.key)) return;
  const { text, key } = unsent;
  sending.value = new Set([...sending.value, key]);
  setDraft(place, { ...draftOf(place).value, unsent: { text, key } });
  try {
    await send(text, key);
    if (draftOf(place).value.unsent?.key === key) setDraft(place, { text: draftOf(place).value.text });
  } catch (error) {
    if (draftOf(place).value.unsent?.key === key) setDraft(place, { ...draftOf(place).value, unsent: { text, key, problem: why(error) } });
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
