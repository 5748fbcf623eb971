// The list of sessions: pages of the service, newest first, read as one scrolls, and again while the page is looked at. The service
// filters and searches all of them.
import { signal } from "@preact/signals";
import type { ListedSession } from "./wire.ts";
import { said, service } from "./api.ts";
import { connection, watched } from "./connection.tsx";

export const FILTERS = ["all", "waiting", "running", "failed", "interrupted"] as const;
export type Filter = (typeof FILTERS)[number];
const PAGE = 100;
const REFRESH_MS = 4_000;
const PAUSE_MS = 200;
/** A page of what is searched for may be short or empty: others are read until there are so many. */
const ENOUGH = 20;

export const filter = signal<Filter>("all");
export const query = signal("");
export const sessions = signal<ListedSession[]>([]);
export const cursor = signal<string | null>(null);
export const problem = signal<string | undefined>(undefined);
export const loaded = signal(false);
/** Which list is meant: another filter or other words are another one. */
let asked = 0;
let reading = false;
let pause: ReturnType<typeof setTimeout> | undefined;

async function page(after: string | undefined): Promise<{ sessions: ListedSession[]; cursor: string | null }> {
  const chosen = filter.value;
  const which = chosen === "all" ? {} : chosen === "waiting" ? { waiting: true } : { status: chosen };
  const text = query.value.trim();
  return await service().listSessions({ limit: PAGE, titles: true, after, ...which, ...(text !== "" && { text }) });
}

/** The first page again; what was read behind it stays. */
export async function refresh(): Promise<void> {
  const turn = asked;
  try {
    const found = await watched(page(undefined));
    if (turn !== asked) return;
    const { cursor: end } = found;
    const ids = new Set(found.sessions.map((session) => session.session_id));
    const joined = end !== null && loaded.value && sessions.value.some((one) => ids.has(one.session_id) || one.session_id >= end);
    const rest = joined ? sessions.value.filter((one) => one.session_id < end && !ids.has(one.session_id)) : [];
    [sessions.value, problem.value] = [[...found.sessions, ...rest], undefined];
    if (!joined) cursor.value = end;
  } catch (error) {
    if (turn === asked && connection.value === "open") problem.value = said(error);
  }
  if (turn === asked) loaded.value = true;
}

/** The next page. */
export async function more(): Promise<void> {
  if (cursor.value === null || reading) return;
  const turn = asked;
  reading = true;
  try {
    const found = await page(cursor.value);
    if (turn !== asked) return;
    const ids = new Set(sessions.value.map((session) => session.session_id));
    [sessions.value, cursor.value] = [[...sessions.value, ...found.sessions.filter((one) => !ids.has(one.session_id))], found.cursor];
  } catch (error) {
    if (turn === asked) problem.value = said(error);
  } finally {
    reading = false;
  }
}

async function begin(): Promise<void> {
  const turn = ++asked;
  [sessions.value, cursor.value, loaded.value] = [[], null, false];
  await refresh();
  while (turn === asked && cursor.value !== null && sessions.value.length < ENOUGH && problem.value === undefined) {
    if (reading) await new Promise((done) => setTimeout(done, PAUSE_MS));
    else await more();
  }
}

export function choose(next: Filter): void {
  filter.value = next;
  void begin();
}

/** Once the words are written. */
export function search(words: string): void {
  query.value = words;
  clearTimeout(pause);
  pause = setTimeout(() => void begin(), PAUSE_MS);
}

export function keepFresh(): void {
  connection.subscribe((now) => {
    if (now === "open") void refresh();
  });
  let looking = false;
  const look = async () => {
    if (looking || document.visibilityState !== "visible" || query.value !== "") return;
    looking = true;
    await refresh();
    looking = false;
  };
  setInterval(() => void look(), REFRESH_MS);
}
