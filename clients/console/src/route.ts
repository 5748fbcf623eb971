// Where the page is: #/sessions/ID/TAB, #/sessions/ID/chat/CALL, #/sessions/ID/timeline/CALL, #/compare/A/B/RUN-OF-A/RUN-OF-B, #/new/AGENT, #/fleet/AGENT.
import { signal } from "@preact/signals";

export const TABS = ["chat", "timeline", "state", "cost"] as const;
export type Tab = (typeof TABS)[number];
export type Route =
  | { view: "home" }
  | { view: "new"; agent: string | undefined }
  | { view: "session"; id: string; tab: Tab; call: string | undefined }
  | { view: "fleet"; agent: string | undefined }
  | ({ view: "compare" } & Compared);

/** Two sides: sessions, or runs of them. Without `right`, it is still to be chosen. */
export interface Compared {
  left: string;
  right?: string;
  leftRun?: string;
  rightRun?: string;
}

function parse(hash: string): Route {
  const [view, ...rest] = hash.replace(/^#\/?/, "").split("/").map(decoded);
  const [first, second, third, fourth] = rest;
  if (view === "fleet") return { view, agent: first || undefined };
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

export const route = signal<Route>(parse(location.hash));
addEventListener("hashchange", () => (route.value = parse(location.hash)));

const path = (...parts: string[]): string => `#/${parts.map(encodeURIComponent).join("/")}`;
export const link = {
  home: () => "#/",
  new: (agent?: string) => (agent === undefined ? "#/new" : path("new", agent)),
  fleet: (agent?: string) => (agent === undefined ? "#/fleet" : path("fleet", agent)),
  session: (id: string, tab: Tab = "chat", call?: string) => path("sessions", id, tab, ...(call === undefined ? [] : [call])),
  compare: (left: string, right = "", leftRun = "", rightRun = "") => path("compare", left, right, leftRun, rightRun).replace(/\/+$/, ""),
};

export function go(to: string): void {
  location.hash = to;
}
