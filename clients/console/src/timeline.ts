// What happened in a session and when, folded from its stream: runs, their steps, the attempts of each, calls and checkpoints.
import { isNotice } from "../../js/src/wire.ts";
import { inline } from "./format.ts";
import type { Results, StreamChunk, StreamMessage, Usage } from "./wire.ts";

type RunRecord = NonNullable<Results["get_session"]["runs"]>[number];

export interface Patch {
  op: string;
  path: string;
  value?: unknown;
  from?: string;
}
export interface Attempt {
  attempt: number;
  from: number;
  to: number;
  /** When it first said something; 0 before. */
  first: number;
  state: "open" | "committed" | "discarded";
  why: string | null;
  text: string;
  usage: Usage | null;
  model: string | null;
  /** Why the provider's cache lost its prompt. */
  lost: string | null;
  /** Of the run that made it. */
  runId: string;
}
export interface CallSpan {
  id: string;
  name: string;
  from: number;
  to: number;
  claims: number;
  ok: boolean | undefined;
  error: string | null;
  /** The session of the sub-agent that it asked. */
  child: string | undefined;
  /** Its arguments on one line, cut. Empty until they are known. */
  args: string;
  /** When it began to wait for a response, and when that wait ended; `undefined` while it waits. */
  waits: [from: number, to: number | undefined][];
  /** The sequences of the messages that have its arguments and its result. 0: not on the stream. */
  begins: number;
  ends: number;
}
/** A change of the model's view of the conversation. */
export interface ViewChange {
  /** The messages at the beginning that the model does not see any more. 0: only results were cleared. */
  hidden: number;
  /** The summary in their place. */
  text: string;
  /** The cause. */
  code: string;
}
export interface StepSpan {
  step: number;
  session: string;
  agent: string;
  attempts: Attempt[];
  calls: CallSpan[];
  checkpoint: string | undefined;
  patches: Patch[];
  /** What the model sees from this step on. */
  views: ViewChange[];
  /** Of the sub-agents that its calls asked. */
  below: StepSpan[];
  at: number;
  run: RunSpan;
  /** The step whose call asked for it. */
  above: StepSpan | undefined;
  /** The checkpoint before it, with the state that it began with. */
  earlier: string | undefined;
  /** From its first attempt to its last call, those of sub-agents included. 0 before the first. */
  from: number;
  to: number;
  /** The cost of its answers and of those below it, in millionths of a dollar. */
  cost: number;
  /** Discarded attempts and failed calls, in it and below it. */
  problems: number;
}
export interface RunSpan {
  id: string;
  turn: number;
  /** How it began: `start`, or a mode of resume, retry or takeover. */
  mode: string;
  status: string;
  error: string | null;
  from: number;
  to: number;
  /** When it began to wait for a slot, and when its first step began; `undefined` while it waits. */
  queued: [from: number, to: number | undefined] | undefined;
  /** When its worker was last heard of, which another worker's word of its death is not. */
  alive: number;
  /** The run that it continues. */
  previous: string | null;
  /** The number of executions in Step Functions that carried it out, one after the other. */
  parts: number;
  steps: StepSpan[];
  /** Sums over its steps and those below them. */
  sums: { answers: number; calls: number; discarded: number; cost: number; problems: number; steps: number };
}

export class Timeline {
  readonly root: string;
  readonly runs: RunSpan[] = [];
  /** Whether the stream has lost messages before those that were taken. */
  lost = false;
  /** Of each session that is known, the step that asked for it. */
  #asked = new Map<string, StepSpan | undefined>();
  /** When each session was last heard of: then its next answer was asked for. */
  #heard = new Map<string, number>();
  /** What the service has stored of the runs, which says more than the stream. */
  #records = new Map<string, RunRecord>();
  /** The last checkpoint of each session. */
  #checkpoints = new Map<string, string>();
  /** The last view of each session. */
  #views = new Map<string, Extract<StreamChunk, { type: "context_changed" }>>();

  constructor(root: string) {
    this.root = root;
    this.#asked.set(root, undefined);
  }

  /** Learn when the runs began, and how. */
  know(records: readonly RunRecord[]): void {
    for (const record of records) this.#records.set(record.run_id, record);
    for (const run of this.runs) this.#complete(run);
  }

  #complete(run: RunSpan): void {
    const record = this.#records.get(run.id);
    if (record === undefined) return;
    if (record.started_at > 0) run.from = run.from > 0 ? Math.min(run.from, record.started_at) : record.started_at;
    run.parts = Math.max(run.parts, record.part);
    run.previous ??= record.previous_run_id;
    if (run.mode === "start" && record.mode in { takeover: 0, continue: 0 }) run.mode = record.mode;
  }

  take(message: StreamMessage, chunk: StreamChunk | undefined): void {
    const session = message.session_id;
    if (!this.#asked.has(session)) return;
    const at = chunk?.timestamp ?? 0;
    if (chunk?.type === "stream_resync" && !message.run_id) {
      this.lost = true;
      return void this.#views.clear();
    }
    const run = this.#run(message, at);
    if (at > 0) run.to = Math.max(run.to, at);
    if (chunk !== undefined && chunk.type !== "step_discarded") run.alive = at;
    if (chunk === undefined) {
      if (session === this.root) [run.status, run.error] = [message.status ?? message.kind, message.error];
      return;
    }
    if (run.queued !== undefined && run.queued[1] === undefined && chunk.type !== "run_queued" && session === this.root) run.queued[1] = at;
    this.#chunk(run, session, chunk, at, message.sequence);
    this.#heard.set(session, at);
  }

  #run(message: StreamMessage, at: number): RunSpan {
    const last = this.runs.at(-1);
    if (message.session_id !== this.root && last !== undefined) return last;
    const known = this.runs.findLast((run) => run.id === message.run_id);
    if (known !== undefined) return known;
    const { run_id: id, turn } = message;
    const made: RunSpan = {
      ...{ id, turn, mode: "start", status: "running", error: null, from: at, to: at, queued: undefined, alive: at, previous: null, parts: 1, steps: [] },
      sums: { answers: 0, calls: 0, discarded: 0, cost: 0, problems: 0, steps: 0 },
    };
    this.runs.push(made);
    this.#complete(made);
    return made;
  }

  #chunk(run: RunSpan, session: string, chunk: StreamChunk, at: number, sequence: number): void {
    switch (chunk.type) {
      case "run_resumed":
        if (session !== this.root) return;
        [run.mode, run.previous] = [chunk.mode, chunk.previous_run_id];
        for (const earlier of this.runs) {
          if (earlier.id === chunk.previous_run_id && chunk.mode === "takeover") died(earlier);
          else if (earlier.id === chunk.previous_run_id && earlier.status === "running") earlier.status = "waited";
          if (earlier.id === chunk.previous_run_id && earlier.status === "paused") earlier.status = "waited";
        }
        return;
      case "text_delta":
      case "output_delta":
      case "thinking": {
        const step = this.#step(run, session, chunk);
        const attempt = this.#attempt(step, chunk, at);
        attempt.to = at;
        if (attempt.first === 0) attempt.first = at;
        this.#note(step, attempt.from, at, 0, 0);
        if (chunk.type !== "thinking" && attempt.text.length < 200) attempt.text += chunk.delta;
        return;
      }
      case "step_committed": {
        const step = this.#step(run, session, chunk);
        const attempt = this.#attempt(step, chunk, at);
        const cost = (chunk.usage?.cost_micros ?? 0) - (attempt.usage?.cost_micros ?? 0);
        Object.assign(attempt, { to: at, state: "committed", usage: chunk.usage, model: chunk.model, lost: chunk.lost_cache ?? null });
        run.sums.cost += cost;
        this.#note(step, attempt.from, at, cost, 0);
        return;
      }
      case "step_discarded": {
        const step = this.#step(run, session, chunk);
        const attempt = this.#attempt(step, chunk, at);
        const known = attempt.state === "discarded";
        Object.assign(attempt, { to: at, state: "discarded", why: chunk.reason });
        if (!known) run.sums.discarded++;
        this.#note(step, attempt.from, at, 0, known ? 0 : 1);
        return;
      }
      case "tool_approval_request":
      case "tool_start": {
        const call = this.#call(run, session, chunk, chunk.tool_call_id, chunk.tool_name, at);
        call.args ||= inline(chunk.type === "tool_start" ? chunk.arguments : chunk.input, ARGUMENTS);
        call.begins = sequence;
        const wait = call.waits.at(-1);
        if (chunk.type === "tool_approval_request") {
          if (wait === undefined || wait[1] !== undefined) call.waits.push([at, undefined]);
          return;
        }
        if (wait !== undefined) wait[1] ??= at;
        if (call.claims === 0) call.from = call.to = at;
        call.claims = Math.max(call.claims, chunk.attempt, 1);
        return;
      }
      case "server_tool": {
        this.#attempt(this.#step(run, session, chunk), chunk, at).to = at;
        const call = this.#call(run, session, chunk, `${chunk.step}/${chunk.attempt}/${chunk.tool_call_id}`, chunk.tool_name, at);
        call.args ||= inline(chunk.arguments, ARGUMENTS);
        if (call.claims === 0) call.from = call.to = at;
        call.claims = 1;
        if (chunk.done) this.#end(this.#step(run, session, chunk), call, at, chunk.error === null, chunk.error);
        return;
      }
      case "tool_end": {
        const call = this.#call(run, session, chunk, chunk.tool_call_id, chunk.tool_name, at);
        this.#end(this.#step(run, session, chunk), call, at, chunk.success, chunk.error);
        if (chunk.arguments !== null) call.args ||= inline(chunk.arguments, ARGUMENTS);
        call.ends = sequence;
        return;
      }
      case "subagent_start":
        this.#call(run, session, chunk, chunk.parent_tool_call_id, `subagent__${chunk.sub_agent_type}`, at).child = chunk.sub_agent_id;
        this.#asked.set(chunk.sub_agent_id, this.#step(run, session, chunk));
        this.#heard.set(chunk.sub_agent_id, at);
        return;
      case "subagent_end": {
        const call = this.#call(run, session, chunk, chunk.parent_tool_call_id, `subagent__${chunk.sub_agent_type}`, at);
        this.#end(this.#step(run, session, chunk), call, at, chunk.status === "completed", chunk.error);
        return;
      }
      case "checkpoint_created": {
        const step = this.#last(session, chunk.step);
        if (step !== undefined && chunk.step > 0) {
          step.earlier ??= this.#checkpoints.get(session);
          step.checkpoint = chunk.checkpoint_id;
        }
        this.#checkpoints.set(session, chunk.checkpoint_id);
        return;
      }
      case "state_patch": {
        const step = this.#last(session, chunk.step);
        step?.patches.push(...(chunk.patches as unknown as Patch[]));
        return;
      }
      case "context_changed": {
        const last = this.#views.get(session);
        this.#views.set(session, chunk);
        if (last?.step === chunk.step && last.hidden === chunk.hidden && last.cleared === chunk.cleared) return; // a takeover repeats it
        const hidden = last?.hidden === chunk.hidden ? 0 : chunk.hidden;
        this.#step(run, session, chunk).views.push({ hidden, text: hidden === 0 ? "" : chunk.summary, code: chunk.cause });
        return;
      }
      case "stream_resync":
        this.#views.delete(session);
        return;
      case "message_queued":
        return; // it has no span of its own
      case "run_queued":
        if (session === this.root) run.queued ??= [at, undefined];
        return;
      case "run_interrupted":
      case "run_paused":
      case "output":
      case "error":
      case "custom":
      case "citation":
        return;
      default:
        if (isNotice(chunk)) return;
        chunk satisfies never; // a later version may send other types, which the page skips
    }
  }

  #last(session: string, step: number): StepSpan | undefined {
    const above = this.#asked.get(session);
    for (const steps of above === undefined ? this.runs.map((run) => run.steps).reverse() : [above.below]) {
      const found = steps.findLast((one) => one.session === session && (step === 0 || one.step === step));
      if (found !== undefined) return found;
    }
    return undefined;
  }

  #step(run: RunSpan, session: string, chunk: StreamChunk): StepSpan {
    const known = this.#last(session, chunk.step);
    const nested = this.#asked.get(session) !== undefined;
    if (known !== undefined && known.step === chunk.step && (nested || known.run === run)) return known;
    const above = this.#asked.get(session);
    const made: StepSpan = {
      ...{ step: chunk.step, session, agent: chunk.agent_type, attempts: [], calls: [], checkpoint: undefined, patches: [], views: [], below: [] },
      ...{ at: chunk.timestamp, run, above, earlier: undefined, from: 0, to: 0, cost: 0, problems: 0 },
    };
    (above?.below ?? run.steps).push(made);
    run.sums.steps++;
    return made;
  }

  /** A part of a step lasted from `from` to `to`; what cost and failed in it counts in all steps above it. */
  #note(step: StepSpan | undefined, from: number, to: number, cost: number, problems: number): void {
    for (let one = step; one !== undefined; one = one.above) {
      one.from = one.from > 0 ? Math.min(one.from, from) : from;
      one.to = Math.max(one.to, to);
      one.cost += cost;
      one.problems += problems;
    }
    if (step !== undefined) step.run.sums.problems += problems;
  }

  #end(step: StepSpan, call: CallSpan, at: number, ok: boolean, error: string | null): void {
    const failed = !ok && call.ok !== false;
    Object.assign(call, { to: at, ok, error });
    const wait = call.waits.at(-1);
    if (wait !== undefined) wait[1] ??= at;
    this.#note(step, call.from, at, 0, failed ? 1 : 0);
  }

  #attempt(step: StepSpan, chunk: StreamChunk, at: number): Attempt {
    const { run } = step;
    const known = step.attempts.find((one) => one.attempt === chunk.attempt && one.runId === chunk.run_id);
    if (known !== undefined) return known;
    const made: Attempt = {
      ...{ attempt: chunk.attempt, from: Math.max(run.from, this.#heard.get(step.session) ?? (step.above === undefined ? run.from : at)), to: at, first: 0, state: "open" as const, why: null, text: "", usage: null, model: null, lost: null },
      runId: chunk.run_id,
    };
    step.attempts.push(made);
    run.sums.answers++;
    this.#note(step, made.from, at, 0, 0);
    return made;
  }

  #call(run: RunSpan, session: string, chunk: StreamChunk, id: string, name: string, at: number): CallSpan {
    const step = this.#step(run, session, chunk);
    const known = step.calls.find((one) => one.id === id);
    if (known !== undefined) return known;
    const made: CallSpan = { id, name, from: at, to: at, claims: 0, ok: undefined, error: null, child: undefined, args: "", waits: [], begins: 0, ends: 0 };
    step.calls.push(made);
    run.sums.calls++;
    this.#note(step, at, at, 0, 0);
    return made;
  }
}

/** Nothing of a run lasted longer than its worker. */
function died(run: RunSpan): void {
  [run.status, run.to] = ["died", run.alive];
  for (const step of everything(run.steps.slice(-1))) {
    for (const attempt of step.attempts) attempt.to = Math.min(attempt.to, run.alive);
    step.to = Math.min(step.to, run.alive);
  }
}

/** The characters of a call's arguments that its row may show. */
const ARGUMENTS = 160;

export type Range = [from: number, to: number];

/** Of a step, with what its sub-agents did. What goes on lasts until `now`. */
export function rangeOf(step: StepSpan, now: number): Range {
  if (step.from === 0) return [step.at, step.at]; // its worker died before it asked the model
  return [step.from, isOpen(step) ? Math.max(now, step.to) : step.to];
}

const isOpen = (step: StepSpan): boolean => step.attempts.at(-1)?.state === "open" || step.calls.some((call) => call.ok === undefined) || step.below.some(isOpen);

/** Its attempts and calls. What goes on lasts until `now`. */
export function partsOf(step: StepSpan, now: number): Range[] {
  const calls = step.calls.map((call): Range => [call.from, call.ok === undefined ? now : call.to]);
  return [...step.attempts.map((one): Range => [one.from, one.to]), ...calls];
}

/** How long a span was at none of its parts, which may overlap. */
export function ownTime([from, to]: Range, parts: Range[]): number {
  let [own, end] = [0, from];
  for (const [begin, stop] of parts.toSorted(([one], [other]) => one - other)) {
    own += Math.max(0, Math.min(begin, to) - end);
    end = Math.max(end, Math.min(stop, to));
  }
  return own + Math.max(0, to - end);
}

export const everything = (steps: StepSpan[]): StepSpan[] => steps.flatMap((step) => [step, ...everything(step.below)]);
