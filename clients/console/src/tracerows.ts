// The rows of the trace, of equal height: runs, what lies between them, their steps, and the parts of those that are unfolded.
import type { Attempt, CallSpan, Range, RunSpan, StepSpan, Timeline, ViewChange } from "./timeline.ts";
import { rangeOf } from "./timeline.ts";

export type Part = { kind: "attempt"; attempt: Attempt } | { kind: "call"; call: CallSpan } | { kind: "view"; view: ViewChange };
export type Row = {
  key: string;
  /** Of its run's row: 1. */
  level: number;
  run: RunSpan;
  /** Whether its parts are shown; `undefined` if it has none. */
  unfolded: boolean | undefined;
} & ({ kind: "run" } | Gap | { kind: "step"; step: StepSpan } | ({ step: StepSpan } & Part));
/** Time between runs, or before the first step of one. */
export interface Gap {
  kind: "gap";
  why: "person" | "queue" | "takeover" | "pause";
  from: number;
  to: number | undefined;
}

export const WHICH = ["all", "errors", "lost", "slow", "expensive"] as const;
export interface Filter {
  which: (typeof WHICH)[number];
  /** The name of the tool or sub-agent that a step calls. Empty: any. */
  tool: string;
  /** Words that are in a step. */
  text: string;
}
export const ALL: Filter = { which: "all", tool: "", text: "" };
export const isAll = ({ which, tool, text }: Filter): boolean => which === "all" && tool === "" && text.trim() === "";
export interface Folds {
  /** Whether steps and sub-agents are unfolded; `undefined`: as many as fit. */
  all: boolean | undefined;
  /** Those rows that were folded or unfolded one by one, by key. */
  keys: ReadonlyMap<string, boolean>;
}

/** The share of the steps that count as slow or expensive. */
const SHARE = 0.05;
/** Runs of sessions with more steps begin folded to a row for each step. */
const FEW = 40;

const keyOfStep = (step: StepSpan): string => `s ${step.run.id} ${step.session} ${step.step}`;
const keyOfCall = (step: StepSpan, call: CallSpan): string => `c ${step.run.id} ${step.session} ${call.id}`;

type Test = (step: StepSpan) => boolean;

/** A test for the steps that the filter lets through. Slow and expensive ones are those of all steps. */
export function stepTest(steps: readonly StepSpan[], { which, tool, text }: Filter): Test {
  const words = text.toLowerCase().split(/\s+/).filter((word) => word !== "");
  const tests: Test[] = [];
  if (which === "errors") tests.push((step) => step.problems > 0);
  else if (which === "lost") tests.push(lostCache);
  else if (which !== "all") tests.push(among(steps, which === "slow" ? lasted : (step) => step.cost));
  if (tool !== "") tests.push(within((step) => step.calls.some((call) => call.name === tool)));
  if (words.length > 0) tests.push(within((step) => hasWords(step, words)));
  return (step) => tests.every((test) => test(step));
}

/** Whether the step passes the test, or one of a sub-agent that it called. */
const within = (test: Test): Test => (step) => test(step) || step.below.some(within(test));

/** A test for the largest of the steps. */
function among(steps: readonly StepSpan[], measure: (step: StepSpan) => number): Test {
  const found = steps.map(measure).sort((one, other) => other - one);
  const least = found[Math.max(0, Math.ceil(found.length * SHARE) - 1)] ?? 0;
  return (step) => measure(step) >= least && measure(step) > 0;
}

/** Whether each word is in what the page has read of the step: names, errors, and the beginnings of arguments and texts. */
function hasWords(step: StepSpan, words: readonly string[]): boolean {
  const calls = step.calls.flatMap(({ name, args, error }) => [name, args, error]);
  const attempts = step.attempts.flatMap(({ model, text, why }) => [model, text, why]);
  const all = [`step ${step.step}`, step.agent, ...calls, ...attempts, ...step.views.map(({ text }) => text)].join("\n").toLowerCase();
  return words.every((word) => all.includes(word));
}

const LOSSES: Record<string, string> = {
  model: "the model changed",
  tools: "the tools changed",
  system_prompt: "the system prompt changed",
  settings: "the settings or the tool choice changed",
  history: "the history that the model is shown changed",
  expired: "its lifetime was over",
  provider: "the provider did not have it",
};
/** Why a cache was lost, in words. */
export const lossWords = (reason: string): string => LOSSES[reason] ?? reason;

/** Whether the step, or one below it, lost its prompt from the provider's cache. */
export const lostCache = (step: StepSpan): boolean => step.attempts.some(({ lost }) => lost !== null) || step.below.some(lostCache);

export const lasted = (step: StepSpan): number => {
  const [from, to] = rangeOf(step, step.run.to);
  return to - from;
};

interface Counts {
  problems: number;
  lost: number;
  tools: Map<string, number>;
}

/** How many steps have a problem, how many lost their cache, and how many calls each tool has. */
export function countsOf(steps: readonly StepSpan[]): Counts {
  const tools = new Map<string, number>();
  let [problems, lost] = [0, 0];
  for (const step of steps) {
    if (step.problems > 0) problems++;
    if (step.attempts.some((one) => one.lost !== null)) lost++;
    for (const call of step.calls) tools.set(call.name, (tools.get(call.name) ?? 0) + 1);
  }
  return { problems, lost, tools };
}

export function rowsOf(timeline: Timeline, filter: Filter, folds: Folds): Row[] {
  const steps = timeline.runs.flatMap((run) => run.steps);
  const fits = stepTest(steps, filter);
  const every = isAll(filter);
  const open = folds.all ?? (steps.length <= FEW || (!every && steps.filter(fits).length <= FEW));
  const rows: Row[] = [];
  for (const [n, run] of timeline.runs.entries()) {
    const fitting = every ? run.steps : run.steps.filter(fits);
    if (!every && fitting.length === 0) continue;
    if (every) rows.push(...gapsBefore(run, timeline.runs[n - 1]));
    const unfolded = folds.keys.get(`r ${run.id}`) ?? true;
    rows.push({ key: `r ${run.id}`, kind: "run", level: 1, run, unfolded: run.steps.length === 0 ? undefined : unfolded });
    if (!unfolded) continue;
    if (run.queued !== undefined && every) {
      const [from, to] = run.queued;
      rows.push({ key: `q ${run.id}`, kind: "gap", level: 2, run, unfolded: undefined, why: "queue", from, to });
    }
    for (const step of fitting) addStep(rows, step, 2, folds, open);
  }
  return rows;
}

function gapsBefore(run: RunSpan, before: RunSpan | undefined): Row[] {
  if (before === undefined || run.previous !== before.id || before.to === 0) return [];
  const why = run.mode === "takeover" ? "takeover" : before.steps.at(-1)?.calls.some((call) => call.waits.length > 0 && call.ok === undefined) ? "person" : "pause";
  return [{ key: `g ${run.id}`, kind: "gap", level: 1, run, unfolded: undefined, why, from: before.to, to: run.from }];
}

function addStep(rows: Row[], step: StepSpan, level: number, folds: Folds, open: boolean): void {
  const key = keyOfStep(step);
  const parts = step.attempts.length + step.calls.length + step.views.length;
  const unfolded = folds.keys.get(key) ?? open;
  rows.push({ key, kind: "step", level, run: step.run, step, unfolded: parts === 0 ? undefined : unfolded });
  if (!unfolded) return;
  const more = { level: level + 1, run: step.run, step, unfolded: undefined };
  for (const [n, view] of step.views.entries()) rows.push({ key: `v ${key} ${n}`, kind: "view", view, ...more });
  for (const attempt of step.attempts) rows.push({ key: `a ${key} ${attempt.runId} ${attempt.attempt}`, kind: "attempt", attempt, ...more });
  for (const call of step.calls) {
    const below = call.child === undefined ? [] : step.below.filter((one) => one.session === call.child);
    const inner = keyOfCall(step, call);
    const shown = folds.keys.get(inner) ?? open;
    rows.push({ ...more, key: inner, kind: "call", call, unfolded: below.length === 0 ? undefined : shown });
    if (shown) for (const one of below) addStep(rows, one, level + 2, folds, open);
  }
}

/** The index of the row that has this one as a part. -1: none. */
export function parentOf(rows: readonly Row[], index: number): number {
  const level = rows[index]?.level ?? 0;
  for (let n = index - 1; n >= 0; n--) if ((rows[n]?.level ?? 0) < level) return n;
  return -1;
}

/** The rows to unfold so that a call is shown, and its own key. `undefined`: there is no such call. */
export function pathTo(timeline: Timeline, callId: string): { key: string; unfold: string[] } | undefined {
  const look = (steps: readonly StepSpan[], above: string[]): { key: string; unfold: string[] } | undefined => {
    for (const step of steps) {
      const unfold = [...above, keyOfStep(step)];
      for (const call of step.calls) {
        if (call.id === callId) return { key: keyOfCall(step, call), unfold };
        const found = look(step.below.filter((one) => one.session === call.child), [...unfold, keyOfCall(step, call)]);
        if (found !== undefined) return found;
      }
    }
    return undefined;
  };
  for (const run of timeline.runs) {
    const found = look(run.steps, [`r ${run.id}`]);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** The rows to unfold so that the row with this key is shown. `undefined`: there is no such row. */
export function pathToRow(timeline: Timeline, key: string): string[] | undefined {
  const rows = rowsOf(timeline, ALL, { all: true, keys: new Map() });
  const index = rows.findIndex((row) => row.key === key);
  if (index < 0) return undefined;
  const unfold: string[] = [];
  for (let n = parentOf(rows, index); n >= 0; n = parentOf(rows, n)) unfold.push(rows[n]?.key ?? "");
  return unfold;
}

/** How many calls of the step were under way at once at most. */
export function together({ calls }: StepSpan, now: number): number {
  const ends = calls.flatMap((call): [number, number][] => [[call.from, 1], [call.ok === undefined ? now : call.to, -1]]);
  let [most, at] = [0, 0];
  for (const [, by] of ends.sort(([one, up], [other, down]) => one - other || down - up)) most = Math.max(most, (at += by));
  return most;
}

/** When the row's span began and ended. */
export function spanOf(row: Row): Range {
  switch (row.kind) {
    case "run":
      return [row.run.from, row.run.to];
    case "gap":
      return [row.from, row.to ?? row.run.to];
    case "step":
      return rangeOf(row.step, row.run.to);
    case "attempt":
      return [row.attempt.from, row.attempt.to];
    case "call":
      return [row.call.from, row.call.ok === undefined ? row.run.to : row.call.to];
    case "view":
      return [row.step.at, row.step.at];
  }
}
