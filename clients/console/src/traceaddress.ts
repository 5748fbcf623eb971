// What the trace shows, as the address has it: its filters, and the row whose details are open. Defaults leave nothing there.
import { computed } from "@preact/signals";
import { filtered, filters, go, traced } from "./route.ts";
import { type Filter, WHICH } from "./tracerows.ts";

export interface Shown extends Filter {
  /** The key of the row whose details are open. Empty: none. */
  row: string;
}

const NAMES = { trace: "which", trace_tool: "tool", trace_text: "text", trace_row: "row" } as const;

export const shown = computed<Shown>(() => {
  const given = new URLSearchParams(traced.value);
  const which = WHICH.find((name) => name === given.get("trace")) ?? "all";
  return { which, tool: given.get("trace_tool") ?? "", text: given.get("trace_text") ?? "", row: given.get("trace_row") ?? "" };
});

const written = (next: Shown): string =>
  new URLSearchParams(
    Object.entries(NAMES).flatMap(([name, of]) => (next[of] === "" || (of === "which" && next[of] === "all") ? [] : [[name, next[of]]])),
  ).toString();

/** Show something else. Back leads to what was shown. */
export function show(changes: Partial<Shown>): void {
  const to = written({ ...shown.value, ...changes });
  go(filtered(filters.value, to));
  traced.value = to; // the browser says it later
}

/** As one types or moves: Back does not lead through each letter or row. */
export function showQuietly(changes: Partial<Shown>): void {
  const to = written({ ...shown.value, ...changes });
  history.replaceState(history.state, "", filtered(filters.value, to));
  traced.value = to;
}
