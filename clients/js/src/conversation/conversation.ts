// The fold of a session's stored messages and of the messages of its stream into a conversation, and into the changes that its
// readers show: what `helix.core.conversation` makes of them in Python. The same messages give the same items and the same
// changes. A sub-agent has its own conversation below the call that started it. The text of a discarded attempt stays in its
// step, which says that it is discarded.
import type { Edit, FilePart, NoticeChunk, Pending, SessionSnapshot, StreamChunk, SubSessionRef, ToolResultMessage } from "../generated.ts";
import { chunkOf, isNotice, lineOf, type StreamMessage, waitsIn } from "../wire.ts";
import { Attempts } from "./attempts.ts";
import { type Change, CONTINUES } from "./changes.ts";
import { BUDGET, type Call, isCut, type Item, loadServed, newCall, type Notice, Step, SUBAGENT, type Tone, type User } from "./items.ts";

export type StoredMessage = SessionSnapshot["messages"][number];
/** By call, the session and the agent of its sub-agent. */
export type Children = ReadonlyMap<string, { id: string; agent: string }>;
type ChunkOf<Type extends StreamChunk["type"]> = Extract<StreamChunk, { type: Type }>;

/** The conversation of a session. That of the root session receives the messages of the whole stream. */
export class Conversation {
  id: string;
  agent = "";
  items: Item[] = [];
  readonly calls = new Map<string, Call>();
  /** The runs whose messages are here. */
  readonly runs = new Set<string>();
  runId = "";
  /** The call that the sub-agent answers. */
  call: Call | undefined;
  status = "";
  /** By session, the conversations of the root session and of its sub-agents. */
  readonly below: Map<string, Conversation>;
  /** Conversations of sub-agents whose call is not known yet. */
  readonly #unlinked: Map<string, Conversation>;
  readonly #root: Conversation;
  readonly #attempts = new Attempts(this);
  /** The stored messages contain the stream up to this sequence, except for chunks of steps after `#stored`. */
  #base = 0;
  #stored = 0;
  /** The messages that wait for the session's run, by their `queued_id`, in the order of their arrival. */
  readonly inbox = new Map<string, User>();
  /** The `queued_id` of messages that were delivered or withdrawn. */
  readonly #delivered = new Set<string>();
  /** The last chunk about the model's view of history. */
  #context: ChunkOf<"context_changed"> | undefined;
  /** Stored results whose calls are in messages before those that were loaded. */
  readonly #results = new Map<string, ToolResultMessage>();

  constructor(id: string, root?: Conversation) {
    this.id = id;
    this.#root = root ?? this;
    this.below = root?.below ?? new Map([[id, this]]);
    this.#unlinked = root === undefined ? new Map() : root.#unlinked;
  }

  // --- stored messages ------------------------------------------------------------------------------------------------

  /** Start with the stored messages. They contain the stream up to `sequence`; chunks of later steps are still added. */
  load(messages: readonly StoredMessage[], children: Children, sequence = 0): void {
    this.#base = sequence;
    this.#stored = Math.max(0, ...messages.map((message) => (message.role === "system" ? 0 : (message.step ?? 0))));
    this.#read(messages, children);
  }

  /** Add the stored messages right before those that were loaded. */
  prepend(messages: readonly StoredMessage[], children: Children): void {
    const later = this.items;
    this.items = [];
    this.#read(messages, children);
    this.items.push(...later);
  }

  #read(messages: readonly StoredMessage[], children: Children): void {
    for (const message of messages) {
      if (message.role === "system") continue;
      const runId = message.run_id ?? "";
      this.runs.add(runId);
      if (message.role === "user") {
        const { content, files = [], queued_id: queuedId = "" } = message;
        const about = { ...(queuedId !== "" && { queuedId }), ...(message.created_at != null && { at: message.created_at }) };
        this.items.push({ type: "user", text: content, files, runId, ...about });
        this.#noteDelivered(queuedId);
      } else if (message.role === "tool") this.#loadResult(message);
      else {
        const step = new Step(this, message.run_id, message.step ?? 0, 0);
        step.state = "committed";
        step.cut = isCut(message);
        [step.agent, step.at] = [String(message.metadata["agent"] ?? ""), message.created_at ?? null];
        this.items.push(step);
        for (const block of message.thinking) step.add("reasoning", block.text || "(redacted)");
        if (message.content) step.add("text", message.content);
        loadServed(step, message);
        for (const { id, name, arguments: given } of message.tool_calls) {
          const call = this.#add(step, id, name, given);
          const child = children.get(id);
          if (child !== undefined) this.#adopt(call, child.id, child.agent, true);
          const result = this.#results.get(id);
          if (result !== undefined) this.#loadResult(result);
        }
        for (const { error } of (message.metadata["guards"] ?? []) as { error?: string }[]) {
          if (error !== undefined) this.#notice("error", error, "warn", { code: "guard_blocked" });
        }
        const agent = message.metadata["handoff"];
        if (typeof agent === "string") this.#notice("note", lineOf({ type: "agent_changed", agent } as NoticeChunk), "plain");
      }
    }
  }

  #loadResult(message: ToolResultMessage): void {
    const call = this.calls.get(message.tool_call_id);
    if (call === undefined) return void this.#results.set(message.tool_call_id, message);
    [call.state, call.result] = [message.success ? "done" : "failed", message.content];
    call.error = message.success ? null : message.content;
    call.files = message.files ?? [];
    Object.assign(call, waitsIn(message));
    const edited = message.metadata["edited"] as (Edit & { arguments?: Record<string, unknown> }) | undefined;
    if (edited !== undefined) {
      call.edited = edited;
      if (edited.arguments !== undefined) [call.asked, call.arguments] = [call.arguments, edited.arguments];
    }
  }

  /** Insert the user's message that started a run before any steps of the run that already arrived, unless it is here. */
  insert(text: string, runId: string, files: readonly FilePart[] = []): void {
    this.runs.add(runId);
    if (this.items.some((item) => item.type === "user" && item.runId === runId)) return;
    const user: User = { type: "user", text, files, runId };
    const first = this.items.findIndex((item) => item.type === "step" && item.runId === runId);
    this.items.splice(first < 0 ? this.items.length : first, 0, user);
  }

  /** Add a line of the reader itself. */
  note(text: string, tone: Tone = "warn"): void {
    this.#notice("note", text, tone);
  }

  #notice(kind: Notice["kind"], text = "", tone: Tone = "warn", more: { code?: string; queued?: number } = {}): void {
    const last = this.items.at(-1);
    if (last?.type === "notice" && last.kind === kind && last.text === text) return;
    this.items.push({ type: "notice", kind, text, tone, code: "", queued: 0, hidden: 0, ...more });
  }

  /** The calls that wait for a person, including those of sub-agents. */
  waiting(): Call[] {
    const calls = [...this.below.values()].flatMap((one) => [...one.calls.values()]);
    return calls.filter((call) => call.state === "waiting" && call.kind !== "elsewhere");
  }

  /** Mark the calls that the session waits for, even if the stream no longer contains them. Return them. */
  expect(pending: readonly Pending[]): Call[] {
    const found: Call[] = [];
    for (const one of pending) {
      if (one.kind === "child") continue;
      const call = this.calls.get(one.call_id) ?? this.#add(this.#lastStep(), one.call_id, one.tool_name, one.arguments);
      [call.state, call.kind, call.reason] = ["waiting", one.kind, one.reason ?? call.reason];
      if (Object.keys(one.parameters ?? {}).length > 0) call.parameters = one.parameters;
      if (one.questions?.length) call.questions = one.questions;
      call.round = one.round || call.round;
      found.push(call);
    }
    return found;
  }

  /** Add the call of a sub-agent that works for an answer that is not part of history yet. Known calls stay as they are. */
  expectChild({ parent_tool_call_id: id, session_id: child, agent_type: agent }: SubSessionRef): void {
    if (this.calls.has(id)) return;
    const call = this.#add(this.#lastStep(), id, SUBAGENT + agent, {});
    this.#adopt(call, child, agent);
    call.state = "running";
  }

  #lastStep(): Step {
    const last = this.items.findLast((item) => item.type === "step");
    const old = last?.attempt === 0 && last.state === "committed"; // history lacks the open answer
    if (last !== undefined && !old) return last;
    const step = new Step(this, null, 0, 0);
    this.items.push(step);
    return step;
  }

  // --- the stream -----------------------------------------------------------------------------------------------------

  /** Apply a message of the stream, and return what it changed. */
  take(message: StreamMessage): Change[] {
    const own = this.#of(message.session_id);
    const sent = (message.chunk ?? {}) as Partial<ChunkOf<"text_delta" | "output_delta" | "thinking">>;
    const { step = 0, attempt = 0 } = sent;
    if (message.sequence <= own.#base && step <= own.#stored) return [];
    if (message.run_id === own.runId) {
      // Most messages are pieces of text. To fill in their defaults would take longer than all the rest.
      if (sent.type === "text_delta") return own.#attempts.grow("text", step, attempt, sent.delta ?? "");
      if (sent.type === "output_delta") return own.#attempts.grow("output", step, attempt, sent.delta ?? "");
      if (sent.type === "thinking" && !sent.is_complete) {
        return own.#attempts.grow("reasoning", step, attempt, sent.content ?? "");
      }
    }
    return message.kind === "chunk" ? own.#take(message.run_id, chunkOf(message)) : own.#end(message, message.kind);
  }

  /** Return the conversation of a session. A sub-agent whose call is not known yet has one that is not `below`. */
  #of(sessionId: string): Conversation {
    const known = this.below.get(sessionId) ?? this.#unlinked.get(sessionId);
    if (known !== undefined) return known;
    const made = new Conversation(sessionId, this.#root);
    this.#unlinked.set(sessionId, made);
    return made;
  }

  #take(runId: string, chunk: StreamChunk): Change[] {
    const out: Change[] = [];
    this.#begin(runId, chunk.type === "run_resumed" ? chunk.mode : "execute", out);
    switch (chunk.type) {
      case "text_delta":
      case "output_delta":
      case "thinking":
      case "server_tool":
      case "citation":
      case "step_committed":
      case "step_discarded":
        out.push(...this.#attempts.take(chunk));
        break;
      case "tool_start":
      case "tool_approval_request":
      case "tool_end":
        out.push(this.#takeCall(chunk));
        break;
      case "subagent_start":
      case "subagent_end":
        out.push(this.#takeChild(chunk));
        break;
      case "run_resumed":
        if (chunk.mode === "takeover") this.#notice("takeover");
        out.push({ type: "RunResumed", conversation: this, chunk });
        break;
      case "run_paused":
        if (chunk.reason === BUDGET) this.#notice("budget");
        out.push({ type: "RunPaused", conversation: this, chunk });
        break;
      case "run_interrupted":
        out.push({ type: "RunInterrupted", conversation: this, chunk });
        break;
      case "run_queued":
        this.#notice("queued", chunk.reason ?? "", "plain", { queued: chunk.queued });
        out.push({ type: "RunQueued", conversation: this, chunk });
        break;
      case "error":
        if (chunk.recoverable) this.#notice("error", chunk.error, "warn", { code: chunk.code });
        out.push({ type: "ErrorRaised", conversation: this, chunk });
        break;
      case "output":
        out.push({ type: "OutputGiven", conversation: this, chunk });
        break;
      case "custom":
        out.push({ type: "CustomEmitted", conversation: this, chunk });
        break;
      case "state_patch":
        out.push({ type: "StatePatched", conversation: this, chunk });
        break;
      case "checkpoint_created":
        out.push({ type: "CheckpointCreated", conversation: this, chunk });
        break;
      case "context_changed":
        this.#takeContext(chunk, out);
        break;
      case "message_queued":
        this.#takeQueued(chunk, out);
        break;
      case "stream_resync":
        this.#context = undefined;
        out.push({ type: "Resynced", conversation: this, chunk });
        break;
      default:
        if (isNotice(chunk)) {
          const line = lineOf(chunk);
          if (line !== "") this.#notice("note", line, "plain");
          out.push({ type: "Noticed", conversation: this, chunk, line });
          break;
        }
        chunk satisfies never; // a later version may send other types
        out.push({ type: "Unknown", conversation: this });
    }
    return out;
  }

  // --- runs -----------------------------------------------------------------------------------------------------------

  /** Note the run that wrote a chunk, if it is a new one. The log's own records have no run. */
  #begin(runId: string, mode: string, out: Change[]): void {
    if (runId === "" || runId === this.runId) return;
    this.runId = runId;
    const continues = CONTINUES.has(mode);
    const retained = this.#attempts.beginRun(runId, continues);
    out.push({ type: "RunBegan", conversation: this, runId, mode, continues, retained });
  }

  #end({ run_id, status, error }: StreamMessage, kind: Exclude<StreamMessage["kind"], "chunk">): Change[] {
    const out: Change[] = [];
    this.#begin(run_id, "execute", out);
    if (kind !== "paused") {
      for (const call of this.calls.values()) if (call.state === "running") call.state = "open";
    }
    if (kind === "fail") this.#notice("failed", error ?? "", "bad");
    else if (status === "interrupted") this.#notice("interrupted");
    out.push({ type: "RunEnded", conversation: this, kind, status, error });
    return out;
  }

  /** Note a waiting message, move it to its place, or drop it. A message that was delivered or withdrawn stays so. */
  #takeQueued(chunk: ChunkOf<"message_queued">, out: Change[]): void {
    const { queued_id: id, state, mode, content, files } = chunk;
    if (this.#delivered.has(id) || (state === "waiting" && this.inbox.has(id))) return;
    const user: User = { type: "user", text: content, files, runId: "", queuedId: id };
    if (state === "waiting") this.inbox.set(id, user);
    else this.#noteDelivered(id);
    const known = this.items.some((item) => item.type === "user" && item.runId === this.runId);
    if (state === "delivered" && (mode === "steer" || !known)) {
      this.items.push(mode === "steer" ? user : { ...user, runId: this.runId });
      this.runs.add(this.runId);
    }
    out.push({ type: "MessageQueued", conversation: this, chunk });
  }

  #noteDelivered(queuedId: string): void {
    if (queuedId === "") return;
    this.#delivered.add(queuedId);
    this.inbox.delete(queuedId);
  }

  /** Note the model's new view of history. A worker that takes a step over sends the view's chunk again, and nothing else has
   * the same step and the same places in history. */
  #takeContext(chunk: ChunkOf<"context_changed">, out: Change[]): void {
    const last = this.#context;
    this.#context = chunk;
    if (last?.step === chunk.step && last.hidden === chunk.hidden && last.cleared === chunk.cleared) return;
    const shown = last?.hidden === chunk.hidden ? { text: "", hidden: 0 } : { text: chunk.summary, hidden: chunk.hidden };
    const notice: Notice = { type: "notice", kind: "context", tone: "plain", code: chunk.cause, queued: 0, ...shown };
    this.items.push(notice);
    out.push({ type: "ContextChanged", conversation: this, notice, chunk });
  }

  // --- calls ----------------------------------------------------------------------------------------------------------

  #takeCall(chunk: ChunkOf<"tool_start" | "tool_approval_request" | "tool_end">): Change {
    const known = this.calls.has(chunk.tool_call_id);
    const call = this.#known(chunk.step, chunk.tool_call_id, chunk.tool_name);
    switch (chunk.type) {
      case "tool_start":
        if (chunk.edited && call.edited === null && Object.keys(call.arguments).length > 0) call.asked = call.arguments;
        // An execution that asked questions did not fail.
        [call.arguments, call.state, call.attempt] = [chunk.arguments, "running", chunk.attempt - call.round];
        [call.edited, call.questions] = [chunk.edited ?? call.edited, chunk.questions];
        call.responses = chunk.responses;
        return { type: "CallStarted", call };
      case "tool_approval_request":
        [call.arguments, call.state, call.kind] = [chunk.input, "waiting", chunk.kind];
        [call.parameters, call.reason] = [chunk.parameters, chunk.reason];
        [call.questions, call.round, call.declared] = [chunk.questions, chunk.round, chunk.declared];
        return { type: "CallAsked", call };
      case "tool_end":
        if (!known) call.arguments = chunk.arguments ?? {};
        [call.state, call.result, call.error] = [chunk.success ? "done" : "failed", chunk.result, chunk.error];
        call.files = chunk.files;
        if (chunk.questions.length > 0) call.questions = chunk.questions; // an older version left them out
        if (chunk.responses.length > 0) call.responses = chunk.responses;
        return { type: "CallEnded", call };
      default:
        return chunk satisfies never;
    }
  }

  #takeChild(chunk: ChunkOf<"subagent_start" | "subagent_end">): Change {
    const call = this.#known(chunk.step, chunk.parent_tool_call_id, SUBAGENT + chunk.sub_agent_type);
    if (chunk.type === "subagent_start") {
      const child = this.#adopt(call, chunk.sub_agent_id, chunk.sub_agent_type);
      call.state = child.status = "running";
      return { type: "ChildBegan", call, child };
    }
    const child = this.#of(chunk.sub_agent_id);
    [call.state, child.status] = [chunk.status === "completed" ? "done" : "failed", chunk.status];
    [call.result, call.error] = [chunk.result, chunk.error];
    return { type: "ChildEnded", call, child, chunk };
  }

  /** Return the call. A new one belongs to the newest answer of its step, because a later run may execute it. */
  #known(stepNumber: number, id: string, name: string): Call {
    const known = this.calls.get(id);
    if (known !== undefined) return known;
    let step = this.items.findLast(
      (item): item is Step => item.type === "step" && item.step === stepNumber && item.state !== "discarded",
    );
    if (step === undefined) this.items.push((step = new Step(this, this.runId, stepNumber, 0)));
    return this.#add(step, id, name, {});
  }

  #add(step: Step, id: string, name: string, given: Record<string, unknown>): Call {
    const call = newCall(step, id, name, given);
    this.calls.set(id, call);
    step.calls.push(call);
    return call;
  }

  /** Return the conversation of the call's sub-agent. With `stored`, the stored messages contain all of it. */
  #adopt(call: Call, sessionId: string, agent: string, stored = false): Conversation {
    let child = this.below.get(sessionId);
    if (child === undefined) {
      child = (stored ? undefined : this.#unlinked.get(sessionId)) ?? new Conversation(sessionId, this.#root);
      if (!stored) this.#unlinked.delete(sessionId);
      this.below.set(sessionId, child);
      [child.agent, child.call] = [agent, call];
      if (stored) child.#base = child.#stored = Infinity;
    }
    call.child = child;
    return child;
  }
}
