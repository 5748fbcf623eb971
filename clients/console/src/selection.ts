// The sessions of the list that are selected for an action on all of them.
import { signal } from "@preact/signals";
import type { ListedSession } from "./wire.ts";

/** Whether rows have a checkbox. */
export const selecting = signal(false);
export const selected = signal<ReadonlyMap<string, ListedSession>>(new Map());

export function select(sessions: readonly ListedSession[], on: boolean): void {
  const next = new Map(selected.value);
  for (const session of sessions) on ? next.set(session.session_id, session) : next.delete(session.session_id);
  selected.value = next;
}

export function startSelecting(on: boolean): void {
  selecting.value = on;
  selected.value = new Map();
}
