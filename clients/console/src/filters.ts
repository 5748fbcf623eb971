// What the list is filtered by: the address has it, so that a view can be reopened, sent and saved.
import { computed } from "@preact/signals";
import type { Fields } from "../../js/src/index.ts";
import { filtered, filters, go, replaceFilters } from "./route.ts";

export const NAMES = ["text", "status", "waiting", "agent", "user", "tag", "tool", "error", "cost_from", "cost_to", "since", "until"] as const;
export type Name = (typeof NAMES)[number];
export type Wanted = Partial<Record<Name, string>>;

const isName = (name: string): name is Name => (NAMES as readonly string[]).includes(name);
const read = (query: string): Wanted =>
  Object.fromEntries([...new URLSearchParams(query)].filter(([name, value]) => isName(name) && value !== ""));
const written = (wanted: Wanted): string =>
  new URLSearchParams(NAMES.flatMap((name) => (wanted[name] ? [[name, wanted[name]]] : []))).toString();

export const wanted = computed<Wanted>(() => read(filters.value));
/** Those other than the words. */
export const chosen = computed(() => NAMES.filter((name) => name !== "text" && wanted.value[name] !== undefined));

/** Change some filters. An empty value removes one. */
export function want(changes: Wanted): void {
  go(filtered(written({ ...wanted.value, ...changes })));
}

/** Show a saved view, which replaces all filters. */
export const showView = (query: string): void => go(filtered(written(read(query))));

/** As one types: the address changes, and Back does not lead through each letter. */
export const wantText = (text: string): void => replaceFilters(written({ ...wanted.value, text }));

const UNITS: Record<string, number> = { h: 3600, d: 86_400, w: 7 * 86_400 };

/** The Unix seconds of an age such as 24h, or of a date. Undefined for another text. */
function moment(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const age = /^(\d{1,6})([hdw])$/.exec(text);
  if (age !== null) return Math.floor(Date.now() / 1000) - Number(age[1]) * (UNITS[age[2] as string] as number);
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : at / 1000;
}

/** Micro-dollars of dollars. Undefined for a text that is not an amount. */
function micros(text: string | undefined): number | undefined {
  const amount = Number(text);
  return text === undefined || !(amount >= 0) || amount > 1e9 ? undefined : Math.round(amount * 1e6);
}

/** The filters as a request has them. */
export function requested(): Partial<Fields<"list_sessions">> {
  const { text, status, agent, user, tag, tool, error, waiting, since, until, cost_from, cost_to } = wanted.value;
  const given = {
    ...{ status: status as Fields<"list_sessions">["status"], agent, user, tag, tool, error, text: text?.trim() || undefined },
    ...{ waiting: waiting === undefined ? undefined : true, since: moment(since), until: moment(until) },
    ...{ cost_from: micros(cost_from), cost_to: micros(cost_to) },
  };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}

export const TIMES: Record<string, [Wanted, string]> = {
  hour: [{ since: "1h", until: "" }, "In the last hour"],
  day: [{ since: "24h", until: "" }, "In the last day"],
  week: [{ since: "7d", until: "" }, "In the last 7 days"],
  month: [{ since: "30d", until: "" }, "In the last 30 days"],
  "older week": [{ since: "", until: "7d" }, "Not in the last 7 days"],
  "older month": [{ since: "", until: "30d" }, "Not in the last 30 days"],
};

export const STATUSES: Record<string, string> = {
  running: "Running",
  completed: "Completed",
  paused: "Waiting or paused",
  interrupted: "Interrupted",
  failed: "Failed",
};

const LABELS: Record<Name, string> = {
  text: "Words",
  status: "Status",
  waiting: "Waiting",
  agent: "Agent",
  user: "User",
  tag: "Tag",
  tool: "Tool",
  error: "Error",
  cost_from: "At least",
  cost_to: "At most",
  since: "Changed since",
  until: "Changed before",
};

const ago = (age: string): string => age.replace(/^(\d+)([hdw])$/, (_, n: string, unit: string) => `${n} ${{ h: "h", d: "d", w: "weeks" }[unit]} ago`);

/** A filter in words, for its chip. */
export function inWords(name: Name): string {
  const value = wanted.value[name] ?? "";
  if (name === "waiting") return "Waiting for a person";
  if (name === "status") return STATUSES[value] ?? value;
  if (name === "cost_from" || name === "cost_to") return `${LABELS[name]} $${value}`;
  if (name === "since" || name === "until") return `${LABELS[name]} ${ago(value)}`;
  return `${LABELS[name]}: ${value}`;
}
