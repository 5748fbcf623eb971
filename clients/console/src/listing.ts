// The list of sessions: pages of the service, newest first, read again while the page is looked at.
import { computed, signal } from "@preact/signals";
import type { ListedSession } from "./wire.ts";
import { said, service } from "./api.ts";

export const FILTERS = ["all", "waiting", "running", "failed", "interrupted"] as const;
export type Filter = (typeof FILTERS)[number];
const PAGE = 40;
const REFRESH_MS = 4_000;

export const filter = signal<Filter>("all");
export const query = signal("");
export const sessions = signal<ListedSession[]>([]);
export const cursor = signal<string | null>(null);
export const problem = signal<string | undefined>(undefined);
export const loaded = signal(false);
let asked = 0;

/** The service filters by status; words are looked for in what is here. */
export const shown = computed(() => {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  return sessions.value.filter((session) => {
    const text = [session.session_id, session.agent_type, session.title ?? "", session.status, ...session.tags].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
});

async function page(after: string | undefined): Promise<{ sessions: ListedSession[]; cursor: string | null }> {
  const chosen = filter.value;
  const which = chosen === "all" ? {} : chosen === "waiting" ? { waiting: true } : { status: chosen };
  return await service().listSessions({ limit: PAGE, titles: true, after, ...which });
}

/** The first page again; what was read behind it stays. */
export async function refresh(): Promise<void> {
  const turn = ++asked;
  try {
    const found = await page(undefined);
    if (turn !== asked) return;
    const ids = new Set(found.sessions.map((session) => session.session_id));
    const last = found.sessions.at(-1)?.session_id;
    const rest = found.cursor === null || last === undefined ? [] : sessions.value.filter((one) => !ids.has(one.session_id) && one.session_id < last);
    [sessions.value, problem.value] = [[...found.sessions, ...rest], undefined];
    if (rest.length === 0) cursor.value = found.cursor;
  } catch (error) {
    problem.value = said(error);
  }
  loaded.value = true;
}

export async function more(): Promise<void> {
  if (cursor.value === null) return;
  const turn = ++asked;
  const found = await page(cursor.value);
  if (turn !== asked) return;
  [sessions.value, cursor.value] = [[...sessions.value, ...found.sessions], found.cursor];
}

export function choose(next: Filter): void {
  [filter.value, sessions.value, cursor.value, loaded.value] = [next, [], null, false];
  void refresh();
}

/** Look further for the words, until there is no more or enough is found. */
export async function search(): Promise<void> {
  for (let pages = 0; pages < 10 && cursor.value !== null && shown.value.length < 5; pages++) await more();
}

export function keepFresh(): void {
  void refresh();
  setInterval(() => {
    if (document.visibilityState === "visible") void refresh();
  }, REFRESH_MS);
}
