// Where the page is: #/sessions/ID/TAB, #/sessions/ID/chat/CALL, #/sessions/ID/timeline/CALL, #/compare/A/B/RUN-OF-A/RUN-OF-B,
// #/new/AGENT, #/fleet/AGENT, #/live. Behind a ? are the filters of the list, which all links keep, and what the trace shows, in
// names that begin with `trace`, which links do not keep.
import { signal } from "@preact/signals";

export const TABS = ["chat", "timeline", "state", "cost"] as const;
export type Tab = (typeof TABS)[number];
type Route =
  | { view: "home" }
  | { view: "new"; agent: string | undefined }
  | { view: "session"; id: string; tab: Tab; call: string | undefined }
  | { view: "fleet"; agent: string | undefined }
  | { view: "live" }
  | ({ view: "compare" } & Compared);

/** Two sides: sessions, or runs of them. Without `right`, it is still to be chosen. */
export interface Compared {
  left: string;
  right?: string;
  leftRun?: string;
  rightRun?: string;
}

function parse(hash: string): Route {
  const [view, ...rest] = (hash.replace(/^#\/?/, "").split("?")[0] as string).split("/").map(decoded);
  const [first, second, third, fourth] = rest;
  if (view === "fleet") return { view, agent: first || undefined };
  if (view === "live") return { view };
  if (view === "new") return { view, agent: first || undefined };
  if (view === "compare" && first) {
    const runs = { ...(third && { leftRun: third }), ...(fourth && { rightRun: fourth }) };
    return { view, left: first, ...(second && { right: second }), ...runs };
  }
  if (view === "sessions" && first) {
    const tab = TABS.find((name) => name === second) ?? "chat";
    return { view: "session", id: first, tab, call: third || undefined };
  }
  return { view: "home" };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** What is behind the ?: of the trace, or of the list. */
const behind = (ofTrace: boolean): string => {
  const all = new URLSearchParams(location.hash.split("?").slice(1).join("?"));
  return new URLSearchParams([...all].filter(([name]) => name.startsWith("trace") === ofTrace)).toString();
};

export const route = signal<Route>(parse(location.hash));
/** The filters of the list, as the address has them behind the ?. */
export const filters = signal(behind(false));
/** What the trace shows, as the address has it. */
export const traced = signal(behind(true));
addEventListener("hashchange", () => {
  route.value = parse(location.hash);
  filters.value = behind(false);
  traced.value = behind(true);
});

/** The address of the same view with other filters of the list. */
export const filtered = (to: string, trace = traced.value): string =>
  `${(location.hash || "#/").split("?")[0]}?${to}&${trace}`.replace("?&", "?").replace(/[?&]$/, "");

/** Change the filters without an entry in the browser's history. */
export function replaceFilters(to: string): void {
  history.replaceState(history.state, "", filtered(to));
  filters.value = to;
}

const path = (...parts: string[]): string => `#/${parts.map(encodeURIComponent).join("/")}${filters.value === "" ? "" : `?${filters.value}`}`;
const withoutEmptyEnd = (parts: string[]): string[] => parts.slice(0, parts.findLastIndex((part) => part !== "") + 1);
export const link = {
  home: () => path(),
  new: (agent?: string) => (agent === undefined ? path("new") : path("new", agent)),
  fleet: (agent?: string) => (agent === undefined ? path("fleet") : path("fleet", agent)),
  live: () => path("live"),
  session: (id: string, tab: Tab = "chat", call?: string) => path("sessions", id, tab, ...(call === undefined ? [] : [call])),
  compare: (left: string, right = "", leftRun = "", rightRun = "") => path("compare", ...withoutEmptyEnd([left, right, leftRun, rightRun])),
};

export function go(to: string): void {
  location.hash = to;
}
