// What happened in a session and when, folded from its stream: runs, their steps, the attempts of each, calls and checkpoints.
import { isNotice } from "../../js/src/wire.ts";
import type { StreamChunk, StreamMessage, Usage } from "./wire.ts";

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
  steps: StepSpan[];
}

export class Timeline {
  readonly root: string;
  readonly runs: RunSpan[] = [];
  /** Of each session that is known, the step that asked for it. */
  #asked = new Map<string, StepSpan | undefined>();
  /** When each session was last heard of: then its next answer was asked for. */
  #heard = new Map<string, number>();
  /** The last view of each session. */
  #views = new Map<string, Extract<StreamChunk, { type: "context_changed" }>>();

  constructor(root: string) {
    this.root = root;
    this.#asked.set(root, undefined);
  }

  take(message: StreamMessage, chunk: StreamChunk | undefined): void {
    const session = message.session_id;
    if (!this.#asked.has(session)) return;
    const at = chunk?.timestamp ?? 0;
    const run = this.#run(message, at);
    if (at > 0) run.to = Math.max(run.to, at);
    if (chunk === undefined) {
      if (session === this.root) [run.status, run.error] = [message.status ?? message.kind, message.error];
      return;
    }
    this.#chunk(run, session, chunk, at);
    this.#heard.set(session, at);
  }

  #run(message: StreamMessage, at: number): RunSpan {
    const last = this.runs.at(-1);
    if (message.session_id !== this.root && last !== undefined) return last;
    const known = this.runs.findLast((run) => run.id === message.run_id);
    if (known !== undefined) return known;
    const { run_id: id, turn } = message;
    const made: RunSpan = { id, turn, mode: "start", status: "running", error: null, from: at, to: at, steps: [] };
    this.runs.push(made);
    return made;
  }

  #chunk(run: RunSpan, session: string, chunk: StreamChunk, at: number): void {
    switch (chunk.type) {
      case "run_resumed":
        if (session !== this.root) return;
        run.mode = chunk.mode;
        for (const earlier of this.runs) {
          if (earlier.id === chunk.previous_run_id && earlier.status === "running") earlier.status = chunk.mode === "takeover" ? "died" : "waited";
          if (earlier.id === chunk.previous_run_id && earlier.status === "paused") earlier.status = "waited";
        }
        return;
      case "text_delta":
      case "output_delta":
      case "thinking": {
        const attempt = this.#attempt(run, session, chunk, at);
        attempt.to = at;
        if (attempt.first === 0) attempt.first = at;
        if (chunk.type !== "thinking" && attempt.text.length < 200) attempt.text += chunk.delta;
        return;
      }
      case "step_committed": {
        const attempt = this.#attempt(run, session, chunk, at);
        Object.assign(attempt, { to: at, state: "committed", usage: chunk.usage, model: chunk.model });
        return;
      }
      case "step_discarded": {
        const attempt = this.#attempt(run, session, chunk, at);
        Object.assign(attempt, { to: at, state: "discarded", why: chunk.reason });
        return;
      }
      case "tool_approval_request":
      case "tool_start": {
        const call = this.#call(run, session, chunk, chunk.tool_call_id, chunk.tool_name, at);
        if (chunk.type === "tool_start") {
          if (call.claims === 0) call.from = call.to = at;
          call.claims = Math.max(call.claims, chunk.attempt, 1);
        }
        return;
      }
      case "tool_end": {
        const call = this.#call(run, session, chunk, chunk.tool_call_id, chunk.tool_name, at);
        Object.assign(call, { to: at, ok: chunk.success, error: chunk.error });
        return;
      }
      case "subagent_start":
        this.#call(run, session, chunk, chunk.parent_tool_call_id, `subagent__${chunk.sub_agent_type}`, at).child = chunk.sub_agent_id;
        this.#asked.set(chunk.sub_agent_id, this.#step(run, session, chunk));
        this.#heard.set(chunk.sub_agent_id, at);
        return;
      case "subagent_end": {
        const call = this.#call(run, session, chunk, chunk.parent_tool_call_id, `subagent__${chunk.sub_agent_type}`, at);
        Object.assign(call, { to: at, ok: chunk.status === "completed", error: chunk.error });
        return;
      }
      case "checkpoint_created": {
        const step = this.#last(session, chunk.step);
        if (step !== undefined && chunk.step > 0) step.checkpoint = chunk.checkpoint_id;
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
      case "run_queued": // these have no span of their own
      case "run_interrupted":
      case "run_paused":
      case "output":
      case "error":
      case "custom":
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
    if (known !== undefined && known.step === chunk.step && (nested || run.steps.includes(known))) return known;
    const made: StepSpan = { step: chunk.step, session, agent: chunk.agent_type, attempts: [], calls: [], checkpoint: undefined, patches: [], views: [], below: [], at: chunk.timestamp };
    (this.#asked.get(session)?.below ?? run.steps).push(made);
    return made;
  }

  #attempt(run: RunSpan, session: string, chunk: StreamChunk, at: number): Attempt {
    const step = this.#step(run, session, chunk);
    const known = step.attempts.find((one) => one.attempt === chunk.attempt && one.runId === chunk.run_id);
    if (known !== undefined) return known;
    const made: Attempt = {
      ...{ attempt: chunk.attempt, from: Math.max(run.from, this.#heard.get(session) ?? at), to: at, first: 0, state: "open" as const, why: null, text: "", usage: null, model: null },
      runId: chunk.run_id,
    };
    step.attempts.push(made);
    return made;
  }

  #call(run: RunSpan, session: string, chunk: StreamChunk, id: string, name: string, at: number): CallSpan {
    const step = this.#step(run, session, chunk);
    const known = step.calls.find((one) => one.id === id);
    if (known !== undefined) return known;
    const made: CallSpan = { id, name, from: at, to: at, claims: 0, ok: undefined, error: null, child: undefined };
    step.calls.push(made);
    return made;
  }
}

export type Range = [from: number, to: number];

/** Of a step, with what its sub-agents did. */
export function rangeOf(step: StepSpan, now: number): Range {
  const parts: Range[] = [...partsOf(step, now), ...step.below.map((one) => rangeOf(one, now))];
  if (parts.length === 0) return [step.at, step.at]; // its worker died before it asked the model
  return [Math.min(...parts.map(([from]) => from)), Math.max(...parts.map(([, to]) => to))];
}

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

/** The id of a run's trace, as W3C Trace Context has it: it follows from the run's id (docs/guide/observability.md). */
export async function traceId(runId: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(`helix\0trace\0${runId}`));
  const bytes = Array.from(new Uint8Array(digest).subarray(0, 16));
  return bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
