// What two JSON values differ in, and the longest common beginning of two conversations.
import type { Item } from "./fold.ts";

export interface Difference {
  path: string;
  left: unknown;
  right: unknown;
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);

/** One entry for each place; `undefined` where a side has nothing there. */
export function differences(left: unknown, right: unknown, path = ""): Difference[] {
  if (isObject(left) && isObject(right)) {
    const names = [...new Set([...Object.keys(left), ...Object.keys(right)])].sort();
    return names.flatMap((name) => differences(own(left, name), own(right, name), path === "" ? name : `${path}.${name}`));
  }
  if (Array.isArray(left) && Array.isArray(right)) {
    const length = Math.max(left.length, right.length);
    return Array.from({ length }, (_, n) => differences(left[n], right[n], `${path}[${n}]`)).flat();
  }
  return JSON.stringify(left) === JSON.stringify(right) ? [] : [{ path: path || "(all)", left, right }];
}

const own = (value: Record<string, unknown>, name: string): unknown => (Object.hasOwn(value, name) ? value[name] : undefined);

/** What of an item counts when two are compared: not its ids. */
function essence(item: Item): string {
  if (item.type === "user") return JSON.stringify([item.type, item.text]);
  if (item.type === "notice") return JSON.stringify([item.type, item.kind, item.text]);
  return JSON.stringify([item.text, item.calls.map((call) => [call.name, call.arguments, call.state, call.error ?? call.result])]);
}

/** How many items at the beginning are the same. */
export function shared(left: Item[], right: Item[]): number {
  let n = 0;
  while (n < left.length && n < right.length && essence(left[n] as Item) === essence(right[n] as Item)) n++;
  return n;
}
