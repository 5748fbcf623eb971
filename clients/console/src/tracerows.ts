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

export interface Filter {
  which: "all" | "problems" | "lost" | "slow" | "expensive" | "tools";
  /** The name of the tool or sub-agent, for `tools`. Empty: any. */
  tool: string;
}
export const ALL: Filter = { which: "all", tool: "" };
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

/** A test for the steps that the filter lets through. */
export function stepTest(steps: readonly StepSpan[], { which, tool }: Filter): (step: StepSpan) => boolean {
  if (which === "all") return () => true;
  if (which === "problems") return (step) => step.problems > 0;
  if (which === "lost") return lostCache;
  if (which === "tools") return (step) => step.calls.some((call) => tool === "" || call.name === tool) || step.below.some(stepTest([], { which, tool }));
  const measure = which === "slow" ? lasted : (step: StepSpan) => step.cost;
  const found = steps.map(measure).sort((one, other) => other - one);
  const least = found[Math.max(0, Math.ceil(found.length * SHARE) - 1)] ?? 0;
  return (step) => measure(step) >= least && measure(step) > 0;
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
  const open = folds.all ?? (steps.length <= FEW || (filter.which !== "all" && steps.filter(fits).length <= FEW));
  const rows: Row[] = [];
  for (const [n, run] of timeline.runs.entries()) {
    const fitting = filter.which === "all" ? run.steps : run.steps.filter(fits);
    if (filter.which !== "all" && fitting.length === 0) continue;
    if (filter.which === "all") rows.push(...gapsBefore(run, timeline.runs[n - 1]));
    const unfolded = folds.keys.get(`r ${run.id}`) ?? true;
    rows.push({ key: `r ${run.id}`, kind: "run", level: 1, run, unfolded: run.steps.length === 0 ? undefined : unfolded });
    if (!unfolded) continue;
    if (run.queued !== undefined && filter.which === "all") {
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
