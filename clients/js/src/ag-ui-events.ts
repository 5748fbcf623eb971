// The log as events of AG-UI 1.0: what `helix.stream.agui` makes of it in Python, event for event. Each run of the root session
// is one AG-UI run, and all that it opened is closed before it finishes.
import { type AgUiMessage, AgUiMessages } from "./ag-ui-messages.ts";
import { CONTINUES } from "./conversation/changes.ts";
import { HelixError } from "./errors.ts";
import { DEFAULTS, type StreamChunk } from "./generated.ts";
import { applyPatches, type JsonObject } from "./patches.ts";
import { shownCall } from "./turns.ts";
import { NO_USAGE, type Usage, usageFields, withUsage } from "./usage.ts";
import type { StreamMessage } from "./wire.ts";

type Chunk = Record<string, unknown>;
export type AgUiEvent = { type: string } & Record<string, unknown>;

const ANSWER = {
  type: "object",
  properties: {
    approved: { type: "boolean" },
    reason: { type: "string" },
    arguments: { type: "object" },
    data: {},
  },
  required: ["approved"],
};

interface Writer {
  session: string;
  run: string;
  /** What its events carry. */
  tag: { subagentRunId?: string };
  at: string;
  message: string | undefined;
  thought: string | undefined;
  thoughts: number;
  /** Messages of the present attempt. */
  shown: string[];
}

const writerOf = (session: string, run: string, tag: Writer["tag"] = {}): Writer => ({
  ...{ session, run, tag, at: "0/0", message: undefined, thought: undefined, thoughts: 0, shown: [] },
});
const text = (value: unknown): string => String(value ?? "");
const atOf = (chunk: Chunk): string => `${Number(chunk["step"] ?? 0)}/${Number(chunk["attempt"] ?? 0)}`;

/** The id of the interrupt of a run that waits for no call, as for a budget. */
export const pauseId = (runId: string): string => `${runId}/pause`;

export interface AgUiEncoderOptions {
  /** The conversation before the first run, with ids as the reader has them. */
  messages?: readonly AgUiMessage[];
  /** The committed state at that moment, if it is known. */
  state?: JsonObject | undefined;
}

/** Stream messages in, AG-UI events out. Feed it from the first message of a run. */
export class AgUiEncoder {
  readonly #root: string;
  #state: JsonObject | undefined;
  #announced = { run: "", messages: false };
  #sequence = 0;
  #talk: AgUiMessages;
  #out: AgUiEvent[] = [];
  #time = 0;
  #run: Writer | undefined;
  #links = new Map<string, { agent: string; call: string; parent: string }>();
  #asked = new Map<string, Record<string, unknown>>();
  /** By session and step, the message that its calls are in. */
  #answers = new Map<string, string>();
  /** Of sub-agents, while no run of the root is open. */
  #early: StreamMessage[] = [];
  #children = new Map<string, Writer>();
  /** Runs of sub-agents that are closed. */
  #past = new Set<string>();
  /** By message, the tag that opened it. */
  #owners = new Map<string, object>();
  /** Calls whose results were sent. */
  #results = new Set<string>();
  /** Messages of an attempt that an interrupt cut off. */
  #kept: string[] = [];
  /** By model, of the present run. */
  #usage = new Map<string, Usage>();
  #output: unknown = null;
  #failure = "error";
  #reason = "pending";

  constructor(sessionId: string, options: AgUiEncoderOptions = {}) {
    this.#root = sessionId;
    this.#state = options.state;
    this.#talk = new AgUiMessages(options.messages ?? []);
  }

  /** Send snapshots when that run begins: of the state, if it is known, and of the conversation, if the reader joins. */
  announce(run: string, messages: boolean): void {
    this.#announced = { run, messages };
  }

  /** Nothing: the events of a run's end close it. */
  close(): AgUiEvent[] {
    return [];
  }

  /** The events of the next message. One that was fed before gives none. */
  feed(message: StreamMessage): AgUiEvent[] {
    if (message.sequence <= this.#sequence) return [];
    this.#sequence = message.sequence;
    this.#takeIn(message);
    return this.#out.splice(0);
  }

  #takeIn(message: StreamMessage): void {
    const chunk = (message.chunk ?? {}) as Chunk;
    this.#time = Math.trunc(Number(chunk["timestamp"] ?? 0) * 1000) || this.#time;
    let writer: Writer | undefined;
    if (message.session_id === this.#root) {
      if (message.run_id !== "" && this.#run?.run !== message.run_id) this.#begin(message.run_id, chunk);
      writer = this.#run;
    } else if (this.#run === undefined) {
      this.#early.push(message);
      return;
    } else writer = this.#child(message);
    if (writer === undefined) return;
    if (message.kind === "chunk") this.#chunk(writer, chunk);
    else if (writer === this.#run) this.#finish(writer, message);
    else this.#endChild(writer, message.kind, message.status, message.error);
  }

  #emit(type: string, writer: Writer | undefined, fields: object = {}): void {
    const stamp = this.#time ? { timestamp: this.#time } : {};
    this.#out.push({ type, ...stamp, ...writer?.tag, ...fields });
  }

  // --- runs -----------------------------------------------------------------------------------------------------------

  #begin(runId: string, chunk: Chunk): void {
    if (this.#run !== undefined) {
      const about = { threadId: this.#root, runId: this.#run.run };
      this.#closeAll(); // its process died, and this run took it over
      this.#emit("RUN_FINISHED", undefined, { ...about, outcome: { type: "cancelled" }, ...this.#used() });
    }
    this.#run = writerOf(this.#root, runId);
    [this.#children, this.#past, this.#owners] = [new Map(), new Set(), new Map()];
    [this.#output, this.#failure, this.#reason] = [null, "error", "pending"];
    this.#usage.clear();
    const kept = this.#kept.splice(0);
    const triesAgain = kept.length > 0 && chunk["type"] === "run_resumed" && CONTINUES.has(text(chunk["mode"]));
    if (triesAgain) this.#talk.discard(kept);
    this.#emit("RUN_STARTED", undefined, { threadId: this.#root, runId, protocolVersion: "1.0" });
    const { run, messages } = this.#announced;
    if (run === runId && this.#state !== undefined) this.#emit("STATE_SNAPSHOT", undefined, { snapshot: this.#state });
    if (triesAgain || (run === runId && messages)) this.#snapshot();
    for (const message of this.#early.splice(0)) this.#takeIn(message);
  }

  #finish(run: Writer, end: StreamMessage): void {
    this.#closeAll();
    this.#run = undefined;
    if (end.kind === "fail") {
      const about = { message: end.error || "the run failed", code: this.#failure };
      return this.#emit("RUN_ERROR", undefined, { ...about, ...this.#used() });
    }
    const outcome =
      end.kind === "paused"
        ? { type: "interrupt", interrupts: this.#interrupts(run.run) }
        : { type: end.status === "completed" ? "success" : "cancelled" };
    const result = this.#output === null ? {} : { result: this.#output };
    this.#emit("RUN_FINISHED", undefined, { threadId: this.#root, runId: run.run, ...result, outcome, ...this.#used() });
  }

  /** The usage of the run's answers and of its sub-agents', by model. A call whose answer was lost is not in it. */
  #used(): { usage?: object[] } {
    const usage = [...this.#usage].flatMap(([model, used]) => {
      const fields = usageFields(used);
      return fields === undefined ? [] : [{ model, ...fields }];
    });
    return usage.length > 0 ? { usage } : {};
  }

  #interrupts(runId: string): object[] {
    if (this.#asked.size > 0) return [...this.#asked.values()];
    return [{ id: pauseId(runId), reason: `helix:${this.#reason}` }];
  }

  #closeAll(): void {
    for (const child of [...this.#children.values()].reverse()) this.#endChild(child, "paused", "paused", null);
    if (this.#run !== undefined) this.#close(this.#run);
  }

  // --- sub-agents -----------------------------------------------------------------------------------------------------

  /** The writer of a sub-agent's run, announced with its first message. A run that is closed stays closed: what comes of it
   *  later carries its id. */
  #child(message: StreamMessage): Writer | undefined {
    const [runId, link] = [message.run_id, this.#links.get(message.session_id)];
    const known = this.#children.get(runId);
    if (known !== undefined) return known;
    const writer = writerOf(message.session_id, runId, { subagentRunId: runId });
    if (this.#past.has(runId) || runId === "") return message.kind === "chunk" && runId !== "" ? writer : undefined;
    const parent = [...this.#children.values()].findLast((child) => link !== undefined && child.session === link.parent);
    this.#children.set(runId, writer);
    this.#emit("SUBAGENT_STARTED", writer, {
      name: link?.agent ?? "",
      parentToolCallId: link?.call ?? "",
      ...(parent && { parentSubagentRunId: parent.run }),
    });
    return writer;
  }

  #endChild(child: Writer, kind: string, status: string | null, error: string | null): void {
    if (!this.#children.delete(child.run)) return;
    this.#past.add(child.run);
    this.#close(child);
    if (kind === "fail") return this.#emit("SUBAGENT_ERROR", child, { message: error || "the sub-agent failed" });
    const asked = [...this.#asked.values()].filter((ask) => ask["subagentRunId"] === child.run);
    const interruptIds = asked.map((ask) => ask["id"]);
    const suspended = { type: "suspended", ...(interruptIds.length > 0 && { interruptIds }) };
    this.#emit("SUBAGENT_FINISHED", child, { outcome: status === "completed" ? { type: "success" } : suspended });
  }

  // --- chunks ---------------------------------------------------------------------------------------------------------

  #chunk(writer: Writer, chunk: Chunk): void {
    const kind = chunk["type"] as StreamChunk["type"];
    switch (kind) {
      case "text_delta":
        return this.#text(writer, chunk);
      case "thinking":
        return this.#thinking(writer, chunk);
      case "step_committed":
        if (chunk["usage"]) {
          const model = text(chunk["model"]);
          this.#usage.set(model, withUsage(this.#usage.get(model) ?? NO_USAGE, chunk["usage"]));
        }
        this.#answers.set(`${writer.session}/${Number(chunk["step"] ?? 0)}`, this.#messageId(writer, chunk));
        this.#close(writer);
        writer.shown = [];
        return;
      case "step_discarded":
        return this.#discarded(writer, chunk);
      case "tool_start":
        return void this.#call(writer, chunk, chunk["arguments"] ?? {});
      case "tool_approval_request":
        return this.#approvalRequest(writer, chunk);
      case "tool_end":
        return this.#toolEnd(writer, chunk);
      case "subagent_start": {
        const call = shownCall(this.#root, writer.session, text(chunk["parent_tool_call_id"]));
        const link = { agent: text(chunk["sub_agent_type"]), call, parent: writer.session };
        this.#links.set(text(chunk["sub_agent_id"]), link);
        return;
      }
      case "subagent_end": {
        const status = text(chunk["status"] ?? "completed");
        const ended = [...this.#children.values()].filter((child) => child.session === chunk["sub_agent_id"]);
        const error = (chunk["error"] ?? null) as string | null;
        for (const child of ended) this.#endChild(child, status === "failed" ? "fail" : "end", status, error);
        return;
      }
      case "custom":
        return this.#emit("CUSTOM", writer, { name: text(chunk["event_name"]), value: chunk["data"] ?? null });
      case "state_patch":
        return this.#statePatch(writer, chunk);
      case "output":
        if (writer === this.#run) this.#output = chunk["output"] ?? null;
        return;
      case "run_paused":
        if (writer === this.#run) this.#reason = text(chunk["reason"] || "pending");
        return;
      case "run_queued":
      case "stream_resync":
      case "checkpoint_created":
      case "error":
        return this.#notice(writer, kind, chunk);
      case "run_interrupted": // the end of the run says so
      case "run_resumed": // see `#begin`
      case "run_superseded":
        return;
      default:
        kind satisfies never; // a later version may send other types, which a page skips
    }
  }

  /** A chunk that has no event of its own goes as a CUSTOM event, `helix.<type>`. */
  #notice(writer: Writer, kind: string, chunk: Chunk): void {
    if (kind === "error" && chunk["recoverable"] === false) {
      if (writer === this.#run) this.#failure = text(chunk["code"] ?? "error");
      return;
    }
    const fields = Object.entries(chunk).filter(([name]) => name !== "type" && !(name in DEFAULTS.chunk));
    this.#emit("CUSTOM", writer, { name: `helix.${kind}`, value: Object.fromEntries(fields) });
    // the reader may have messages that a rewind left
    if (kind === "stream_resync" && writer === this.#run) this.#snapshot();
  }

  /** Not of its run, because a run that takes another over may be the one that shows it. */
  #messageId(writer: Writer, chunk: Chunk): string {
    const at = atOf(chunk);
    if (writer.at !== at) {
      this.#close(writer);
      [writer.at, writer.shown, writer.thoughts] = [at, [], 0];
    }
    return `${writer.session}/${at}`;
  }

  #text(writer: Writer, chunk: Chunk): void {
    const messageId = this.#messageId(writer, chunk);
    this.#endThought(writer);
    if (writer.message !== messageId) {
      this.#endText(writer);
      writer.message = messageId;
      if (!this.#owners.has(messageId)) this.#owners.set(messageId, writer.tag);
      writer.shown.push(messageId);
      this.#emit("TEXT_MESSAGE_START", writer, { messageId, role: "assistant" });
      this.#talk.add({ id: messageId, role: "assistant", content: "", ...writer.tag });
    }
    const delta = text(chunk["delta"]);
    this.#talk.append(messageId, delta);
    this.#emit("TEXT_MESSAGE_CONTENT", writer, { messageId, delta });
  }

  #thinking(writer: Writer, chunk: Chunk): void {
    const messageId = this.#messageId(writer, chunk);
    const complete = chunk["is_complete"] === true;
    if (!complete || writer.thought === undefined) this.#think(writer, messageId, text(chunk["content"]));
    if (complete) this.#endThought(writer);
  }

  #think(writer: Writer, messageId: string, delta: string): void {
    if (writer.thought === undefined) {
      writer.thoughts += 1;
      const thought = (writer.thought = `${messageId}/thinking/${writer.thoughts}`);
      writer.shown.push(thought);
      this.#emit("REASONING_START", writer, { messageId: thought });
      this.#emit("REASONING_MESSAGE_START", writer, { messageId: thought, role: "reasoning" });
      this.#talk.add({ id: thought, role: "reasoning", content: "", ...writer.tag });
    }
    this.#talk.append(writer.thought, delta);
    this.#emit("REASONING_MESSAGE_CONTENT", writer, { messageId: writer.thought, delta });
  }

  #discarded(writer: Writer, chunk: Chunk): void {
    this.#messageId(writer, chunk);
    this.#close(writer);
    if (writer.shown.length > 0) {
      const kept = writer === this.#run && chunk["status"] === "interrupted";
      if (kept) this.#kept = this.#talk.rename(writer.shown, writer.run); // another run's attempt has the same id
      else this.#talk.discard(writer.shown);
      this.#snapshot();
    }
    writer.shown = [];
  }

  #close(writer: Writer): void {
    this.#endThought(writer);
    this.#endText(writer);
  }

  #endText(writer: Writer): void {
    if (writer.message !== undefined) this.#emit("TEXT_MESSAGE_END", writer, { messageId: writer.message });
    writer.message = undefined;
  }

  #endThought(writer: Writer): void {
    if (writer.thought === undefined) return;
    this.#emit("REASONING_MESSAGE_END", writer, { messageId: writer.thought });
    this.#emit("REASONING_END", writer, { messageId: writer.thought });
    writer.thought = undefined;
  }

  #snapshot(): void {
    this.#emit("MESSAGES_SNAPSHOT", undefined, { messages: this.#talk.snapshot() });
  }

  // --- calls ----------------------------------------------------------------------------------------------------------

  #approvalRequest(writer: Writer, chunk: Chunk): void {
    const shown = this.#call(writer, chunk, chunk["input"] ?? {});
    const [kind, tool] = [text(chunk["kind"] ?? "approval"), text(chunk["tool_name"])];
    const about = { id: shown, reason: `helix:${kind}`, toolCallId: shown, metadata: { tool }, ...writer.tag };
    this.#asked.set(shown, kind === "client" ? about : { ...about, responseSchema: ANSWER });
  }

  #call(writer: Writer, chunk: Chunk, given: unknown): string {
    const toolCallId = shownCall(this.#root, writer.session, text(chunk["tool_call_id"]));
    const delta = JSON.stringify(given);
    if (this.#talk.hasCall(toolCallId)) {
      if (this.#talk.changeArguments(toolCallId, delta)) this.#snapshot();
      return toolCallId;
    }
    const step = Number(chunk["step"] ?? 0);
    const parentMessageId = this.#answers.get(`${writer.session}/${step}`) ?? `${writer.session}/${step}/0`;
    const tag = this.#owners.get(parentMessageId) ?? writer.tag;
    this.#owners.set(parentMessageId, tag);
    const toolCallName = text(chunk["tool_name"]);
    this.#emit("TOOL_CALL_START", undefined, { toolCallId, toolCallName, parentMessageId, ...tag });
    this.#emit("TOOL_CALL_ARGS", undefined, { toolCallId, delta, ...tag });
    this.#emit("TOOL_CALL_END", undefined, { toolCallId, ...tag });
    this.#talk.addCall(parentMessageId, toolCallId, toolCallName, delta, tag);
    return toolCallId;
  }

  #toolEnd(writer: Writer, chunk: Chunk): void {
    const toolCallId = shownCall(this.#root, writer.session, text(chunk["tool_call_id"]));
    this.#asked.delete(toolCallId);
    if (this.#results.has(toolCallId)) return;
    this.#results.add(toolCallId);
    if (!this.#talk.hasCall(toolCallId)) this.#call(writer, chunk, chunk["arguments"] ?? {});
    const result = chunk["result"] ?? chunk["error"] ?? null;
    const content = typeof result === "string" ? result : JSON.stringify(result);
    const messageId = `${toolCallId}/result`;
    this.#emit("TOOL_CALL_RESULT", writer, { messageId, toolCallId, role: "tool", content });
    this.#talk.addResult(messageId, toolCallId, content, writer.tag);
  }

  #statePatch(writer: Writer, chunk: Chunk): void {
    const delta = (chunk["patches"] ?? []) as object[];
    if (writer !== this.#run || delta.length === 0) return; // a sub-agent's state is not the run's
    if (this.#state !== undefined) {
      try {
        this.#state = applyPatches(this.#state, delta);
      } catch (error) {
        if (!(error instanceof HelixError)) throw error;
        this.#state = undefined; // chunks were lost: what the patch changes is not known
      }
    }
    this.#emit("STATE_DELTA", undefined, { delta });
  }
}
