// The list of sessions: pages of the service, newest first, read as one scrolls, and again while the page is looked at. The service
// filters and searches all of them.
import { signal } from "@preact/signals";
import type { ListedSession } from "./wire.ts";
import { said, service } from "./api.ts";
import { connection, watched } from "./connection.tsx";
import { chosen, requested, wanted } from "./filters.ts";
import { filters } from "./route.ts";

/** The first page is what a screen shows; the others are read behind it. */
const FIRST_PAGE = 50;
const PAGE = 100;
const REFRESH_MS = 4_000;
/** A filtered list is read less often, because the service compares all sessions. */
const FILTERED_LOOKS = 4;
const PAUSE_MS = 200;
/** A page of what is searched for may be short or empty: others are read until there are so many. */
const ENOUGH = 20;

export const sessions = signal<ListedSession[]>([]);
export const cursor = signal<string | null>(null);
export const problem = signal<string | undefined>(undefined);
export const loaded = signal(false);
/** Which list is meant: another filter or other words are another one. */
let asked = 0;
let reading = false;
let pause: ReturnType<typeof setTimeout> | undefined;

async function page(after: string | undefined): Promise<{ sessions: ListedSession[]; cursor: string | null }> {
  return await service().listSessions({ limit: after === undefined ? FIRST_PAGE : PAGE, titles: true, after, ...requested() });
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

export function keepFresh(): void {
  connection.subscribe((now) => {
    if (now === "open") void (loaded.value ? refresh() : begin());
  });
  let shown = filters.value;
  filters.subscribe((now) => {
    if (now === shown) return;
    shown = now;
    clearTimeout(pause); // the address changes with each letter, the list once the words are written
    pause = setTimeout(() => void begin(), PAUSE_MS);
  });
  let [looking, looks] = [false, 0];
  const look = async () => {
    if (looking || document.visibilityState !== "visible" || wanted.value.text !== undefined) return;
    if (chosen.value.length > 0 && ++looks % FILTERED_LOOKS !== 0) return;
    looking = true;
    await refresh();
    looking = false;
  };
  setInterval(() => void look(), REFRESH_MS);
}
