// What changed from one JSON value to another: entries, elements of lists that came, went, moved or changed, and words of texts.
import { diffWordsWithSpace } from "diff";
import { create, type ArrayDelta, type Delta, type DiffContext } from "jsondiffpatch";

/** A list is `changed` as a whole where it is too long to compare its elements. */
export type StateChange = { path: string } & (
  | { kind: "added"; value: unknown }
  | { kind: "removed"; value: unknown }
  | { kind: "changed"; before: unknown; after: unknown }
  | { kind: "moved"; from: string; value: unknown }
);
export interface Words {
  text: string;
  kind: "same" | "added" | "removed";
}

/** Texts with more characters are compared as a whole: a comparison by word takes the square of the changes. */
const LONG_TEXT = 20_000;
/** An element with one of these names is the same element as one with the same value, wherever it is. */
const IDS = ["id", "_id", "key", "uuid", "name"];

/** Lists with more pairs of elements, between what both begin and end with, are compared as a whole: a comparison takes time and room
 *  for each pair. */
const MOST_PAIRS = 250_000;

const hashOf = (one: object): string =>
  IDS.map((name) => (one as Record<string, unknown>)[name]).find((id) => typeof id === "string" || typeof id === "number")?.toString() ?? JSON.stringify(one);
const differ = create({ objectHash: hashOf, arrays: { detectMove: true } });

const long = Object.assign(
  (context: DiffContext) => {
    const { left, right } = context;
    if (Array.isArray(left) && Array.isArray(right) && pairsOf(left, right) > MOST_PAIRS) context.setResult([left, right]).exit();
  },
  { filterName: "long" },
);
differ.processor.pipes.diff?.before("arrays", long);

/** The pairs of elements between the common beginning and the common end. */
function pairsOf(left: unknown[], right: unknown[]): number {
  if (left.length * right.length <= MOST_PAIRS) return 0;
  const same = (one: unknown, other: unknown) =>
    one === other || (typeof one === "object" && typeof other === "object" && one !== null && other !== null && hashOf(one) === hashOf(other));
  let [begin, end] = [0, 0];
  const shorter = Math.min(left.length, right.length);
  while (begin < shorter && same(left[begin], right[begin])) begin++;
  while (end < shorter - begin && same(left.at(-1 - end), right.at(-1 - end))) end++;
  return (left.length - begin - end) * (right.length - begin - end);
}

export function changesOf(before: unknown, after: unknown): StateChange[] {
  const found: StateChange[] = [];
  collect(found, "", differ.diff(before, after), before, after);
  return found;
}

function collect(found: StateChange[], path: string, delta: Delta, before: unknown, after: unknown): void {
  if (delta === undefined) return;
  const place = path || "(all)";
  if (Array.isArray(delta)) {
    if (delta.length === 1) found.push({ path: place, kind: "added", value: delta[0] });
    else if (delta.length === 2) found.push({ path: place, kind: "changed", before: delta[0], after: delta[1] });
    else found.push({ path: place, kind: "removed", value: delta[0] });
  } else if (isArrayDelta(delta)) {
    collectElements(found, path, delta, before as unknown[], after as unknown[]);
  } else {
    const [left, right] = [before as Record<string, unknown>, after as Record<string, unknown>];
    for (const [name, inner] of Object.entries(delta)) collect(found, path === "" ? name : `${path}.${name}`, inner as Delta, left[name], right[name]);
  }
}

const isArrayDelta = (delta: object): delta is ArrayDelta => "_t" in delta && delta._t === "a";

function collectElements(found: StateChange[], path: string, delta: ArrayDelta, before: unknown[], after: unknown[]): void {
  const removed = new Map<number, unknown>();
  const moved = new Map<number, number>();
  for (const [name, entry] of Object.entries(delta)) {
    if (!name.startsWith("_") || name === "_t") continue;
    const [index, [value, to, what]] = [Number(name.slice(1)), entry as [unknown, number, number]];
    if (what === 3) moved.set(to, index);
    else removed.set(index, value);
  }
  for (const [to, from] of moved) found.push({ path: `${path}[${to}]`, kind: "moved", from: `${path}[${from}]`, value: after[to] });
  for (const [name, entry] of Object.entries(delta)) {
    if (name.startsWith("_")) continue;
    const index = Number(name);
    const place = `${path}[${index}]`;
    if (!Array.isArray(entry)) {
      collect(found, place, entry as Delta, before[moved.get(index) ?? index], after[index]);
    } else if (removed.has(index) && alike(removed.get(index), entry[0])) {
      collect(found, place, differ.diff(removed.get(index), entry[0]), removed.get(index), entry[0]);
      removed.delete(index);
    } else {
      found.push({ path: place, kind: "added", value: entry[0] });
    }
  }
  for (const [index, value] of removed) found.push({ path: `${path}[${index}]`, kind: "removed", value });
}

/** Whether two elements at the same place are one that changed, rather than two. */
function alike(one: unknown, other: unknown): boolean {
  const shape = (value: unknown) => (value === null ? "null" : Array.isArray(value) ? "list" : typeof value);
  return shape(one) === shape(other);
}

/** The words of two texts, or the whole texts where they are long. */
export function wordsOf(before: string, after: string): Words[] {
  if (before.length + after.length > LONG_TEXT) {
    return [
      { text: before, kind: "removed" },
      { text: after, kind: "added" },
    ];
  }
  return diffWordsWithSpace(before, after).map(({ value, added, removed }) => ({ text: value, kind: added ? "added" : removed ? "removed" : "same" }));
}
