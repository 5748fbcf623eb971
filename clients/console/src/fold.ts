// A conversation, folded from the messages of a session and the chunks behind them. No I/O: the same messages and chunks give
// the same conversation, wherever they come from. Chunks of sub-agents go into conversations of their own, below their calls.
import type { Edit, Message, Pending, StreamChunk, StreamMessage, ToolCallRequest, Usage } from "./wire.ts";

export type Asking = "approval" | "client" | "unknown";
export interface Call {
  id: string;
  name: string;
  args: Record<string, unknown>;
  state: "open" | "running" | "waiting" | "done" | "failed";
  /** Claims of the call; more than one says that a worker died. */
  attempt: number;
  result?: unknown;
  error?: string | null;
  ask?: { kind: Asking; parameters?: Record<string, unknown>; reason?: string | null };
  edited?: Edit | null;
  child?: { id: string; agent: string };
}
interface Base {
  key: string;
  /** Changes with the item: what was drawn of an earlier one is drawn again. */
  rev: number;
}
export interface User extends Base {
  kind: "user";
  text: string;
  runId: string | null;
}
export interface Step extends Base {
  kind: "step";
  runId: string | null;
  step: number;
  attempt: number;
  text: string;
  thinking: string;
  calls: Call[];
  state: "open" | "committed" | "discarded";
  why?: string | null;
  usage?: Usage | null;
}
export interface Notice extends Base {
  kind: "notice";
  tone: "plain" | "good" | "warn" | "bad";
  text: string;
}
export type Item = User | Step | Notice;
export type Children = Map<string, { id: string; agent: string }>;
type ToolMessage = Pick<Extract<Message, { role: "tool" }>, "tool_call_id" | "success" | "content" | "metadata">;

export class Conversation {
  readonly id: string;
  items: Item[] = [];
  /** Of sub-agents, by session. */
  readonly below: Map<string, Conversation>;
  /** Chunks up to this sequence are in the messages already, but for those of later steps. */
  #base = 0;
  #stored = 0;
  readonly calls = new Map<string, { call: Call; step: Step }>();
  readonly runs = new Set<string>();
  /** Messages of the session before those that were loaded. */
  earlier = 0;
  /** Results whose calls are in earlier messages. */
  #results = new Map<string, ToolMessage>();
  #keys = 0;

  constructor(id: string, below = new Map<string, Conversation>()) {
    this.id = id;
    this.below = below;
    below.set(id, this);
  }

  /** Begin with what is stored, from the message `offset` on. `children`: sessions of sub-agents by the call that they answer. */
  load(messages: Message[], children: Children, sequence = 0, offset = 0): void {
    this.items = [];
    this.calls.clear();
    this.runs.clear();
    this.#results.clear();
    this.earlier = offset;
    this.#base = sequence;
    this.#stored = Math.max(0, ...messages.map((message) => ("step" in message ? (message.step ?? 0) : 0)));
    this.#read(messages, children);
  }

  /** Messages right before those that are here, from the message `offset` on. */
  prepend(messages: Message[], children: Children, offset: number): void {
    const later = this.items;
    this.items = [];
    this.earlier = offset;
    this.#read(messages, children);
    this.items.push(...later);
  }

  #read(messages: Message[], children: Children): void {
    for (const message of messages) {
      if ("run_id" in message && message.run_id !== null) this.runs.add(message.run_id);
      if (message.role === "user") this.user(message.content, message.run_id);
      else if (message.role === "assistant") {
        const step = this.#step(message.run_id, message.step ?? 0, 0);
        step.text = message.content ?? "";
        step.thinking = message.thinking.map((block) => block.text || "(redacted)").join("\n\n");
        step.state = "committed";
        for (const request of message.tool_calls) this.#request(step, request, children);
      } else if (message.role === "tool") {
        this.#result(message);
      }
    }
  }

  user(text: string, runId: string | null): User {
    const item: User = { kind: "user", key: this.#key(), rev: 0, text, runId };
    this.items.push(item);
    if (runId !== null) this.runs.add(runId);
    return item;
  }

  /** A message of a run that another page has started, before what the run has said. */
  insertUser(text: string, runId: string): void {
    if (this.items.some((item) => item.kind === "user" && item.runId === runId)) return;
    const item = this.user(text, runId);
    const first = this.items.findIndex((other) => other.kind === "step" && other.runId === runId);
    if (first >= 0) {
      this.items.pop();
      this.items.splice(first, 0, item);
    }
  }

  notice(tone: Notice["tone"], text: string): void {
    const last = this.items.at(-1);
    if (last?.kind === "notice" && last.text === text) return;
    this.items.push({ kind: "notice", key: this.#key(), rev: 0, tone, text });
  }

  /** Calls that wait, here and below. */
  waiting(): Call[] {
    return [...this.below.values()].flatMap((one) => one.#waiting());
  }

  /** The last answer of the session was committed or given up: a stream that begins here may have lost the request. */
  expect(pending: Pending[]): void {
    for (const one of pending) {
      if (one.kind === "child") continue;
      const known = this.calls.get(one.call_id);
      const step = known?.step ?? this.#lastStep() ?? this.#step(null, 0, 0);
      const call = known?.call ?? this.#call(step, one.call_id, one.tool_name, one.arguments);
      const { parameters, reason } = one as Pending & { parameters?: Record<string, unknown>; reason?: string | null };
      call.state = "waiting";
      call.ask = { kind: one.kind, reason: reason ?? call.ask?.reason, parameters: parameters ?? call.ask?.parameters };
      step.rev++;
    }
  }

  message(message: StreamMessage, chunk: StreamChunk | undefined): void {
    const own = this.below.get(message.session_id);
    if (own === undefined) return;
    if (message.sequence <= own.#base && (chunk === undefined || chunk.step <= own.#stored)) return;
    if (chunk !== undefined) own.#chunk(chunk);
    else own.#end(message);
  }

  #waiting(): Call[] {
    return [...this.calls.values()].map(({ call }) => call).filter((call) => call.state === "waiting");
  }

  #end(message: StreamMessage): void {
    for (const { call, step } of this.calls.values()) {
      if (call.state === "running" && message.kind !== "paused") {
        call.state = "open";
        step.rev++;
      }
    }
    if (message.kind === "fail") this.notice("bad", message.error ?? "The run failed.");
    else if (message.status === "interrupted") this.notice("warn", "Interrupted. Resume continues from the last checkpoint.");
  }

  #chunk(chunk: StreamChunk): void {
    if (chunk.run_id) this.runs.add(chunk.run_id);
    switch (chunk.type) {
      case "text_delta":
        this.#provisional(chunk, (step) => (step.text += chunk.delta));
        break;
      case "thinking":
        this.#provisional(chunk, (step) => (step.thinking = chunk.is_complete ? chunk.content : step.thinking + chunk.content));
        break;
      case "step_committed": {
        const step = this.#find(chunk) ?? this.#step(chunk.run_id, chunk.step, chunk.attempt);
        [step.state, step.usage] = ["committed", chunk.usage];
        step.rev++;
        break;
      }
      case "step_discarded": {
        const step = this.#find(chunk);
        if (step === undefined) break;
        [step.state, step.why] = ["discarded", chunk.reason];
        step.rev++;
        break;
      }
      case "tool_start": {
        const { call, step } = this.#known(chunk.tool_call_id, chunk.tool_name, chunk);
        [call.args, call.state, call.attempt] = [chunk.arguments, "running", chunk.attempt];
        call.edited = (chunk as { edited?: Edit | null }).edited ?? call.edited;
        step.rev++;
        break;
      }
      case "tool_approval_request": {
        const { call, step } = this.#known(chunk.tool_call_id, chunk.tool_name, chunk);
        const more = chunk as { parameters?: Record<string, unknown>; reason?: string | null };
        [call.args, call.state] = [chunk.input, "waiting"];
        call.ask = { kind: chunk.kind, parameters: more.parameters, reason: more.reason };
        step.rev++;
        break;
      }
      case "tool_end": {
        const { call, step } = this.#known(chunk.tool_call_id, chunk.tool_name, chunk);
        call.state = chunk.success ? "done" : "failed";
        [call.result, call.error] = [chunk.result, chunk.error];
        step.rev++;
        break;
      }
      case "subagent_start": {
        const { call, step } = this.#known(chunk.parent_tool_call_id, `subagent__${chunk.sub_agent_type}`, chunk);
        call.state = "running";
        this.#adopt(call, chunk.sub_agent_id, chunk.sub_agent_type);
        step.rev++;
        break;
      }
      case "subagent_end": {
        const { call, step } = this.#known(chunk.parent_tool_call_id, `subagent__${chunk.sub_agent_type}`, chunk);
        call.state = chunk.status === "completed" ? "done" : "failed";
        [call.result, call.error] = [chunk.result, chunk.error];
        step.rev++;
        break;
      }
      case "run_resumed":
        if (chunk.mode === "takeover") this.notice("warn", "The worker died. Another one took the run over from the last checkpoint.");
        break;
      case "run_paused":
        if (chunk.reason === "budget_exceeded") this.notice("warn", "The budget is used up. Raise it, or wait for its next period; then resume.");
        else if (chunk.reason !== "pending") this.notice("warn", `Paused: ${chunk.reason}`);
        break;
      case "run_queued":
        this.notice("plain", `Waits for a free slot: ${chunk.queued} in the queue.`);
        break;
      case "error":
        if (chunk.recoverable) this.notice("warn", `${chunk.error} It is tried again.`);
        break;
      case "run_interrupted": // the end of the run says so
      case "run_superseded": // the new message says so
      case "output": // the messages have it
      case "stream_resync": // the session is loaded again
      case "checkpoint_created":
      case "state_patch":
      case "custom":
        break;
      default:
        chunk satisfies never; // a later version may send other types, which the page skips
    }
  }

  #provisional(chunk: StreamChunk, change: (step: Step) => void): void {
    const step = this.#find(chunk) ?? this.#step(chunk.run_id, chunk.step, chunk.attempt);
    if (step.state === "committed") return;
    change(step);
    step.rev++;
  }

  #lastStep(): Step | undefined {
    return this.items.findLast((item): item is Step => item.kind === "step");
  }

  /** What this attempt shows: attempts are counted anew in each run. */
  #find(chunk: StreamChunk): Step | undefined {
    return this.items.findLast(
      (item): item is Step =>
        item.kind === "step" &&
        item.step === chunk.step &&
        item.state !== "discarded" &&
        ((item.runId === chunk.run_id && item.attempt === chunk.attempt) || item.attempt === 0),
    );
  }

  /** The answer that a call is of: the run that executes it may be a later one. */
  #asking(chunk: StreamChunk): Step | undefined {
    return this.items.findLast((item): item is Step => item.kind === "step" && item.step === chunk.step && item.state !== "discarded");
  }

  #step(runId: string | null, step: number, attempt: number): Step {
    const item: Step = {
      ...{ kind: "step", key: this.#key(), rev: 0, runId, step, attempt },
      ...{ text: "", thinking: "", calls: [], state: "open" },
    };
    this.items.push(item);
    return item;
  }

  #known(id: string, name: string, chunk: StreamChunk): { call: Call; step: Step } {
    const known = this.calls.get(id);
    if (known !== undefined) return known;
    const step = this.#asking(chunk) ?? this.#step(chunk.run_id, chunk.step, 0);
    return { call: this.#call(step, id, name, {}), step };
  }

  #call(step: Step, id: string, name: string, args: Record<string, unknown>): Call {
    const call: Call = { id, name, args, state: "open", attempt: 0 };
    step.calls.push(call);
    this.calls.set(id, { call, step });
    return call;
  }

  #request(step: Step, request: ToolCallRequest, children: Children): void {
    const call = this.#call(step, request.id, request.name, request.arguments);
    const child = children.get(request.id);
    if (child !== undefined) this.#adopt(call, child.id, child.agent, true);
    const result = this.#results.get(request.id);
    if (result !== undefined) this.#result(result);
  }

  /** `stored`: the call is history, and so is all that its agent said. */
  #adopt(call: Call, id: string, agent: string, stored = false): void {
    call.child = { id, agent };
    if (this.below.has(id)) return;
    const child = new Conversation(id, this.below);
    if (stored) [child.#base, child.#stored] = [Infinity, Infinity];
  }

  #result({ tool_call_id: id, success, content, metadata }: ToolMessage): void {
    const known = this.calls.get(id);
    if (known === undefined) return void this.#results.set(id, { tool_call_id: id, success, content, metadata });
    const { call } = known;
    const edited = metadata["edited"] as (Edit & { arguments?: Record<string, unknown> }) | undefined;
    call.state = success ? "done" : "failed";
    if (success) call.result = content;
    else call.error = content;
    if (edited !== undefined) {
      call.edited = edited;
      if (edited.arguments !== undefined) call.args = edited.arguments;
    }
  }

  #key(): string {
    return `${this.id}.${this.#keys++}`;
  }
}
