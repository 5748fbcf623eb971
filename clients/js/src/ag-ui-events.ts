// The log as events of AG-UI 1.0: what `helix.stream.agui` makes of it in Python, event for event. Each run of the root session
// is one AG-UI run, and all that it opened is closed before it finishes.
import { type AgUiMessage, AgUiMessages } from "./ag-ui-messages.ts";
import { answerId, Answers, type Writer, writerOf } from "./ag-ui-writers.ts";
import type { CallChange, Change, Of, RunBegan, RunEnded, StepChange } from "./conversation/changes.ts";
import { Conversation } from "./conversation/conversation.ts";
import type { Call } from "./conversation/items.ts";
import { HelixError } from "./errors.ts";
import { DEFAULTS, UI_FIELDS } from "./generated.ts";
import { agUiParts } from "./message-parts.ts";
import { applyPatches, type JsonObject } from "./patches.ts";
import { answeredRounds, answersSchema, QUESTION, questionId, shownQuestion } from "./question-parts.ts";
import { shownCall } from "./turns.ts";
import { NO_USAGE, type Usage, usageFields, withUsage } from "./usage.ts";
import type { StreamMessage } from "./wire.ts";

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

/** The id of the interrupt of a run that waits for no call, as for a budget. */
export const pauseId = (runId: string): string => `${runId}/pause`;

export interface AgUiEncoderOptions {
  /** The conversation before the first run, with ids as the reader has them. */
  messages?: readonly AgUiMessage[];
  /** The committed state at that moment, if it is known. */
  state?: JsonObject | undefined;
  /** The ids of the reader's own messages with results of its tools, by the call: it has those, so they are not sent. */
  results?: ReadonlyMap<string, string>;
}

/** Stream messages in, AG-UI events out. Feed it from the first message of a run. */
export class AgUiEncoder {
  readonly #root: string;
  #state: JsonObject | undefined;
  #announced = { run: "", messages: false };
  #sequence = 0;
  readonly #talk: AgUiMessages;
  readonly #conversation: Conversation;
  readonly #answers: Answers;
  #out: AgUiEvent[] = [];
  #time = 0;
  #run: Writer | undefined;
  #asked = new Map<string, Record<string, unknown>>();
  /** Waiting calls that are not interrupts: those of tools that the run declared, and those that end elsewhere. */
  #unasked = new Set<string>();
  readonly #given: ReadonlyMap<string, string>;
  /** Of sub-agents, while no run of the root is open. */
  #early: StreamMessage[] = [];
  #children = new Map<string, Writer>();
  /** Runs of sub-agents that are closed. */
  #past = new Set<string>();
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
    this.#given = options.results ?? new Map();
    this.#talk = new AgUiMessages(options.messages ?? []);
    this.#conversation = new Conversation(sessionId);
    this.#answers = new Answers((type, writer, fields) => this.#emit(type, writer, fields), this.#talk);
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
    this.#time = Math.trunc(Number(message.chunk?.["timestamp"] ?? 0) * 1000) || this.#time;
    const own = message.session_id === this.#root;
    if (!own && this.#run === undefined) return void this.#early.push(message);
    const changes = this.#conversation.take(message);
    if (own && changes[0]?.type === "RunBegan") this.#begin(changes[0]);
    const writer = own ? this.#run : this.#child(message);
    if (writer !== undefined) for (const change of changes) this.#show(writer, change, message);
  }

  #emit(type: string, writer: Writer | undefined, fields: object = {}): void {
    const stamp = this.#time ? { timestamp: this.#time } : {};
    this.#out.push({ type, ...stamp, ...writer?.tag, ...fields });
  }

  // --- runs -----------------------------------------------------------------------------------------------------------

  #begin({ runId, retained }: RunBegan): void {
    if (this.#run !== undefined) {
      const about = { threadId: this.#root, runId: this.#run.run };
      this.#closeAll(); // its process died, and this run took it over
      this.#emit("RUN_FINISHED", undefined, { ...about, outcome: { type: "cancelled" }, ...this.#used() });
    }
    this.#run = writerOf(this.#root, runId);
    [this.#children, this.#past] = [new Map(), new Set()];
    this.#answers.owners.clear();
    [this.#output, this.#failure, this.#reason] = [null, "error", "pending"];
    this.#usage.clear();
    const kept = this.#kept.splice(0);
    const triesAgain = kept.length > 0 && retained !== undefined;
    if (triesAgain) this.#talk.discard(kept);
    this.#emit("RUN_STARTED", undefined, { threadId: this.#root, runId, protocolVersion: "1.0" });
    const { run, messages } = this.#announced;
    if (run === runId && this.#state !== undefined) this.#emit("STATE_SNAPSHOT", undefined, { snapshot: this.#state });
    if (triesAgain || (run === runId && messages)) this.#snapshot();
    for (const message of this.#early.splice(0)) this.#takeIn(message);
  }

  #finish(run: Writer, end: RunEnded): void {
    this.#closeAll();
    this.#run = undefined;
    if (end.kind === "fail") {
      const about = { message: end.error || "the run failed", code: this.#failure };
      return this.#emit("RUN_ERROR", undefined, { ...about, ...this.#used() });
    }
    const interrupts = end.kind === "paused" ? this.#interrupts(run.run) : [];
    const outcome =
      interrupts.length > 0
        ? { type: "interrupt", interrupts }
        : { type: end.kind === "paused" || end.status === "completed" ? "success" : "cancelled" };
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
    if (this.#asked.size + this.#unasked.size > 0) return [...this.#asked.values()];
    return [{ id: pauseId(runId), reason: `helix:${this.#reason}` }];
  }

  #closeAll(): void {
    for (const child of [...this.#children.values()].reverse()) this.#endChild(child, "paused", "paused", null);
    if (this.#run !== undefined) this.#answers.close(this.#run);
  }

  // --- sub-agents -----------------------------------------------------------------------------------------------------

  /** The writer of a sub-agent's run, announced with its first message. A run that is closed stays closed: what comes of it
   *  later carries its id. */
  #child(message: StreamMessage): Writer | undefined {
    const runId = message.run_id;
    const known = this.#children.get(runId);
    if (known !== undefined) return known;
    const writer = writerOf(message.session_id, runId, { subagentRunId: runId });
    if (this.#past.has(runId) || runId === "") return message.kind === "chunk" && runId !== "" ? writer : undefined;
    const below = this.#conversation.below.get(message.session_id);
    const [name, call] = [below?.agent ?? "", below?.call];
    const parent = [...this.#children.values()].findLast((child) => child.session === call?.step.conversation.id);
    this.#children.set(runId, writer);
    this.#emit("SUBAGENT_STARTED", writer, {
      name,
      parentToolCallId: call === undefined ? "" : this.#idOf(call),
      ...(parent && { parentSubagentRunId: parent.run }),
    });
    return writer;
  }

  #endChild(child: Writer, kind: string, status: string | null, error: string | null): void {
    if (!this.#children.delete(child.run)) return;
    this.#past.add(child.run);
    this.#answers.close(child);
    if (kind === "fail") return this.#emit("SUBAGENT_ERROR", child, { message: error || "the sub-agent failed" });
    const asked = [...this.#asked.values()].filter((ask) => ask["subagentRunId"] === child.run);
    const interruptIds = asked.map((ask) => ask["id"]);
    const suspended = { type: "suspended", ...(interruptIds.length > 0 && { interruptIds }) };
    this.#emit("SUBAGENT_FINISHED", child, { outcome: status === "completed" ? { type: "success" } : suspended });
  }

  // --- changes --------------------------------------------------------------------------------------------------------

  #show(writer: Writer, change: Change, message: StreamMessage): void {
    switch (change.type) {
      case "PartGrew":
        return this.#answers.grow(writer, change.part, change.delta);
      case "StepBegan":
      case "PartBegan":
      case "PartEnded":
      case "StepCommitted":
      case "StepDiscarded":
        return this.#answer(writer, change);
      case "CallAsked":
      case "CallStarted":
      case "CallEnded":
      case "ChildBegan":
      case "ChildEnded":
        return this.#call(writer, change);
      case "RunEnded":
        if (writer === this.#run) return this.#finish(writer, change);
        return this.#endChild(writer, change.kind, change.status, change.error);
      case "RunPaused":
      case "OutputGiven":
      case "StatePatched":
        if (writer === this.#run) this.#ofRun(change); // those of a sub-agent are not the run's
        return;
      case "CustomEmitted":
        return this.#emit("CUSTOM", writer, { name: change.chunk.event_name, value: change.chunk.data });
      case "ErrorRaised":
        if (change.chunk.recoverable) return this.#notice(writer, message);
        if (writer === this.#run) this.#failure = change.chunk.code;
        return;
      case "Resynced":
        this.#notice(writer, message);
        if (writer === this.#run) this.#snapshot(); // the reader may have messages that a rewind left
        return;
      case "Noticed":
        if (Object.hasOwn(UI_FIELDS, change.chunk.type)) this.#notice(writer, message);
        return;
      case "TextCited":
      case "RunQueued":
      case "CheckpointCreated":
      case "ContextChanged":
        return this.#notice(writer, message);
      case "MessageQueued":
        this.#notice(writer, message);
        if (writer === this.#run) this.#showSteering(change.chunk);
        return;
      case "RunBegan": // see `#begin`
      case "RunResumed":
      case "RunInterrupted": // the end of the run says so
      case "Unknown":
        return;
      default:
        change satisfies never;
    }
  }

  #ofRun(change: Of<"RunPaused", "run_paused"> | Of<"OutputGiven", "output"> | Of<"StatePatched", "state_patch">): void {
    if (change.type === "RunPaused") this.#reason = change.chunk.reason || "pending";
    else if (change.type === "OutputGiven") this.#output = change.chunk.output ?? null;
    else if (change.chunk.patches.length > 0) this.#patch(change.chunk.patches);
  }

  #patch(delta: object[]): void {
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

  /** A chunk that has no event of its own goes as a CUSTOM event, `helix.<type>`. */
  #notice(writer: Writer, { chunk }: StreamMessage): void {
    const { type, ...sent } = chunk ?? {};
    const fields = Object.entries(sent).filter(([name]) => !(name in DEFAULTS.chunk));
    this.#emit("CUSTOM", writer, { name: `helix.${type}`, value: Object.fromEntries(fields) });
  }

  // --- answers --------------------------------------------------------------------------------------------------------

  #answer(writer: Writer, change: StepChange): void {
    switch (change.type) {
      case "StepBegan":
        return this.#answers.enter(writer, change.step);
      case "PartBegan":
        return; // the first piece begins its message
      case "PartEnded": // the text of an attempt is one message, which ends with the attempt
        if (change.part.kind === "reasoning") this.#answers.endThought(writer);
        return;
      case "StepCommitted": {
        const { model, usage } = change.step;
        const used = this.#usage.get(model ?? "") ?? NO_USAGE;
        if (usage !== null) this.#usage.set(model ?? "", withUsage(used, usage));
        this.#answers.end(writer, change.step);
        const value = { messageId: answerId(change.step, change.step.attempt) };
        if (change.step.cut) this.#emit("CUSTOM", writer, { name: "helix.answer_cut", value });
        return;
      }
      case "StepDiscarded": {
        const shown = this.#answers.end(writer, change.step);
        if (shown.length === 0) return;
        const kept = writer === this.#run && change.step.retained;
        if (kept) this.#kept = this.#talk.rename(shown, writer.run); // another run's attempt has the same id
        else this.#talk.discard(shown);
        return this.#snapshot();
      }
      default:
        change satisfies never;
    }
  }

  /** Show a message that joined the run. A page that sent it may have it at another place. */
  #showSteering({ state, mode, queued_id, message_id, content, files }: Of<"MessageQueued", "message_queued">["chunk"]): void {
    if (state !== "delivered" || mode !== "steer") return;
    this.#talk.add({ id: message_id || `${queued_id}/user`, role: "user", content: agUiParts(content, files) });
    this.#snapshot();
  }

  #snapshot(): void {
    this.#emit("MESSAGES_SNAPSHOT", undefined, { messages: this.#talk.snapshot() });
  }

  // --- calls ----------------------------------------------------------------------------------------------------------

  #call(writer: Writer, change: CallChange): void {
    switch (change.type) {
      case "CallStarted":
        this.#asked.delete(questionId(this.#idOf(change.call), change.call.round));
        if (change.call.served) this.#answers.hold(writer, change.call.step);
        this.#showCall(writer, change.call);
        return this.#showAnswers(writer, change.call);
      case "CallAsked":
        return this.#ask(writer, change.call);
      case "CallEnded":
        return this.#endCall(writer, change.call);
      case "ChildBegan":
        return; // the first message of its run announces the sub-agent
      case "ChildEnded": {
        const { status, error } = change.chunk;
        const ended = [...this.#children.values()].filter((child) => child.session === change.child.id);
        for (const child of ended) this.#endChild(child, status === "failed" ? "fail" : "end", status, error);
        return;
      }
      default:
        change satisfies never;
    }
  }

  #idOf(call: Call): string {
    return shownCall(this.#root, call.step.conversation.id, call.id);
  }

  #ask(writer: Writer, call: Call): void {
    this.#showCall(writer, call);
    const id = this.#idOf(call);
    if (call.declared || call.kind === "elsewhere") return void this.#unasked.add(id);
    if (call.kind === "question") return this.#askQuestions(writer, call);
    const about = { id, reason: `helix:${call.kind}`, toolCallId: id, metadata: { tool: call.name }, ...writer.tag };
    this.#asked.set(id, call.kind === "client" ? about : { ...about, responseSchema: ANSWER });
  }

  #askQuestions(writer: Writer, { name, questions, round, ...call }: Call): void {
    const toolCallId = shownCall(this.#root, call.step.conversation.id, call.id);
    const id = questionId(toolCallId, round);
    const metadata = { tool: name, questions: questions.map(shownQuestion) };
    const message = questions.map(({ text }) => text).join("\n");
    const about = { id, reason: "helix:question", toolCallId, metadata, message, responseSchema: answersSchema(questions) };
    this.#asked.set(id, { ...about, ...writer.tag });
  }

  #showCall(writer: Writer, call: Call): void {
    const [toolCallId, delta] = [this.#idOf(call), JSON.stringify(call.arguments)];
    if (this.#talk.hasCall(toolCallId)) {
      if (this.#talk.changeArguments(toolCallId, delta)) this.#snapshot();
      return;
    }
    this.#emitCall(writer, call, { toolCallId, toolCallName: call.name, delta });
  }

  #emitCall(writer: Writer, { step, served }: Call, call: { toolCallId: string; toolCallName: string; delta: string }): void {
    const { toolCallId, toolCallName, delta } = call;
    const inAnswer = served || step.state === "committed";
    const parentMessageId = answerId(step, inAnswer ? step.attempt : 0);
    const tag = this.#answers.owners.get(parentMessageId) ?? writer.tag;
    this.#answers.owners.set(parentMessageId, tag);
    this.#emit("TOOL_CALL_START", undefined, { toolCallId, toolCallName, parentMessageId, ...tag });
    this.#emit("TOOL_CALL_ARGS", undefined, { toolCallId, delta, ...tag });
    this.#emit("TOOL_CALL_END", undefined, { toolCallId, ...tag });
    this.#talk.addCall(parentMessageId, toolCallId, toolCallName, delta, tag);
  }

  /** Show each answered round of questions as a call of its own with the answers, as the stored conversation does. */
  #showAnswers(writer: Writer, call: Call): void {
    for (const { id: toolCallId, text: delta, result } of answeredRounds(this.#idOf(call), call.questions)) {
      if (this.#talk.hasCall(toolCallId)) continue;
      this.#emitCall(writer, call, { toolCallId, toolCallName: QUESTION, delta });
      const { id: messageId, role, content } = result;
      this.#emit("TOOL_CALL_RESULT", writer, { messageId, toolCallId, role, content });
      this.#talk.addResult(messageId, toolCallId, content, writer.tag);
    }
  }

  #endCall(writer: Writer, call: Call): void {
    const toolCallId = this.#idOf(call);
    this.#unasked.delete(toolCallId);
    this.#asked.delete(toolCallId);
    this.#asked.delete(questionId(toolCallId, call.round));
    if (this.#results.has(toolCallId)) return;
    this.#results.add(toolCallId);
    if (!this.#talk.hasCall(toolCallId)) this.#showCall(writer, call);
    this.#showAnswers(writer, call);
    const result = call.result ?? call.error;
    const content = agUiParts(typeof result === "string" ? result : JSON.stringify(result), call.files);
    const given = this.#given.get(toolCallId);
    const messageId = given || `${toolCallId}/result`;
    if (given === undefined) this.#emit("TOOL_CALL_RESULT", writer, { messageId, toolCallId, role: "tool", content });
    this.#talk.addResult(messageId, toolCallId, content, writer.tag);
  }
}
