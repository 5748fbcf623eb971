// The log as the UI message stream of the AI SDK, version 7: what `helix.stream.ui_messages` makes of it in Python, part for
// part. A message of the page is one run and the runs that go on from it; its id is the first run's.
import type { UIMessageChunk } from "ai";
import type { CallChange, Change, Of, RunEnded, StepChange } from "./conversation/changes.ts";
import { Conversation } from "./conversation/conversation.ts";
import type { Call, Part, Question, Step } from "./conversation/items.ts";
import { resultFiles } from "./file-urls.ts";
import { UI_FIELDS } from "./generated.ts";
import { GrowingText, readPartial } from "./partial-output.ts";
import { type Json, same } from "./patches.ts";
import { QuestionParts } from "./question-parts.ts";
import { executedBy, sourcePart } from "./served-parts.ts";
import { shownCall } from "./turns.ts";
import { NO_USAGE, type Usage, usageFields, withUsage } from "./usage.ts";
import type { StreamMessage } from "./wire.ts";

/** A call as the page shows it. */
interface Shown {
  readonly call: Call;
  /** The arguments as last shown. A person may have edited them. */
  input: unknown;
  /** The kind of response that the page is asked for. */
  asked: Question | undefined;
  /** Its part shows an approval request. */
  requested: boolean;
  /** Its part shows a result. */
  done: boolean;
  /** The call started a sub-agent. */
  child: boolean;
}

const textOf = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value ?? null));

/** Stream messages in, AI SDK parts out. Feed it from the first message of a run that starts a page's message. */
export class UIMessageEncoder {
  readonly #root: string;
  #questions = new QuestionParts((part) => this.#emit(part as UIMessageChunk));
  #sequence = 0;
  #messageId = "";
  #out: UIMessageChunk[] = [];
  /** Of the page's message: a call of an earlier message is not on it. */
  #conversation: Conversation;
  #started = false;
  #closed = false;
  #stepOpen = false;
  #steps = new Set<number>();
  #open: { part: Part; kind: "text" | "reasoning"; id: string } | undefined;
  #growing: { part: Part; text: GrowingText } | undefined;
  #usage: Usage = NO_USAGE;
  #calls = new Map<string, Shown>();
  /** By session, the text of the last committed step of each sub-agent on the page. */
  #children = new Map<string, string>();
  #end: RunEnded | undefined;
  #reason: string | null = null;

  constructor(sessionId: string) {
    this.#root = sessionId;
    this.#conversation = new Conversation(sessionId);
  }

  /** The parts of the next message. One that was fed before gives none. */
  feed(message: StreamMessage): UIMessageChunk[] {
    if (message.sequence <= this.#sequence) return [];
    this.#sequence = message.sequence;
    let changes = this.#conversation.take(message);
    const began = changes[0];
    if (began?.type === "RunBegan" && began.conversation === this.#conversation) {
      if (this.#messageId === "" || !began.continues) {
        this.#close();
        this.#newMessage(message.run_id);
        changes = this.#conversation.take(message);
      }
      [this.#end, this.#closed, this.#reason] = [undefined, false, null];
    }
    for (const change of changes) this.#show(change, message);
    return this.#take();
  }

  /** The parts that end a response, after the message that ended its run: what waits for the user, then `finish`. None where
   *  the run goes on. A later run of the same message begins another response, and so does what its sub-agents do before that. */
  close(): UIMessageChunk[] {
    this.#close();
    return this.#take();
  }

  /** The parts of a `tool_end` that belongs to this page's message and comes after it: of a call that waited when a new message
   *  of the user closed it. None for any other message. */
  endCall(message: StreamMessage): UIMessageChunk[] {
    const chunk = message.chunk ?? {};
    const shown = this.#calls.get(shownCall(this.#root, message.session_id, String(chunk["tool_call_id"])));
    if (chunk["type"] !== "tool_end" || shown === undefined || shown.done) return [];
    for (const change of this.#conversation.take(message)) if (change.type === "CallEnded") this.#endCall(change.call);
    return this.#take();
  }

  #close(): void {
    const end = this.#end;
    if (end === undefined || this.#closed) return;
    this.#start();
    this.#finishText();
    if (end.kind === "paused") this.#wait();
    else this.#withdraw();
    this.#finishStep();
    let finishReason = { end: "stop", paused: "tool-calls", fail: "error" }[end.kind];
    if (end.kind === "fail") this.#emit({ type: "error", errorText: end.error || "the run failed" });
    else if (end.status !== "completed" && end.kind === "end") {
      finishReason = "interrupted";
      this.#emit({ type: "abort", ...(this.#reason ? { reason: this.#reason } : {}) });
    }
    const usage = usageFields(this.#usage);
    this.#emit({ type: "finish", finishReason, ...(usage && { messageMetadata: { usage } }) } as UIMessageChunk);
    [this.#started, this.#closed] = [false, true];
  }

  // --- runs and steps -------------------------------------------------------------------------------------------------

  #newMessage(runId: string): void {
    [this.#messageId, this.#conversation] = [runId, new Conversation(this.#root)];
    [this.#started, this.#stepOpen, this.#open, this.#usage] = [false, false, undefined, NO_USAGE];
    [this.#steps, this.#calls, this.#children] = [new Set(), new Map(), new Map()];
    this.#questions = new QuestionParts((part) => this.#emit(part as UIMessageChunk));
  }

  #start(): void {
    if (this.#started) return;
    [this.#started, this.#closed] = [true, false];
    const messageMetadata = { sessionId: this.#root, runId: this.#messageId };
    this.#out.push({ type: "start", messageId: this.#messageId, messageMetadata });
  }

  #emit(part: UIMessageChunk): void {
    this.#start();
    this.#out.push(part);
  }

  #take(): UIMessageChunk[] {
    return this.#out.splice(0);
  }

  /** A step that was shown is not begun again: a repeated call belongs to the part that shows it. */
  #step(step: number): void {
    if (this.#steps.has(step)) return;
    this.#finishStep();
    this.#emit({ type: "start-step" });
    this.#steps.add(step);
    this.#stepOpen = true;
  }

  #finishStep(): void {
    if (this.#stepOpen) this.#emit({ type: "finish-step" });
    this.#stepOpen = false;
  }

  // --- changes --------------------------------------------------------------------------------------------------------

  #show(change: Change, message: StreamMessage): void {
    switch (change.type) {
      case "PartGrew": {
        const open = this.#open; // with it, the message has been started
        if (open?.part === change.part) this.#out.push({ type: `${open.kind}-delta`, id: open.id, delta: change.delta });
        else if (this.#growing?.part === change.part) this.#growOutput(change.delta);
        return;
      }
      case "PartBegan":
      case "PartEnded":
      case "StepBegan":
      case "StepCommitted":
      case "StepDiscarded":
        return this.#answer(change);
      case "TextCited":
        if (change.step.conversation === this.#conversation) this.#cite(change.step);
        return;
      case "CallAsked":
      case "CallStarted":
      case "CallEnded":
      case "ChildBegan":
      case "ChildEnded":
        return this.#call(change);
      case "CustomEmitted":
        return this.#emit({ type: `data-${change.chunk.event_name}`, data: change.chunk.data });
      case "ErrorRaised":
        if (change.chunk.recoverable) {
          const data = { code: change.chunk.code, message: change.chunk.error };
          this.#emit({ type: "data-error", data, transient: true });
        }
        return;
      case "OutputGiven":
      case "RunInterrupted":
      case "RunEnded":
        if (change.conversation === this.#conversation) this.#endRun(change);
        return;
      case "RunQueued":
      case "Resynced":
      case "StatePatched":
      case "ContextChanged":
      case "Noticed":
      case "MessageQueued":
        if (change.conversation === this.#conversation) this.#notice(change.chunk.type, message.chunk ?? {});
        return;
      case "RunBegan":
      case "RunResumed":
      case "RunPaused":
      case "CheckpointCreated":
      case "Unknown":
        return; // not on the page, apart from what the end of the response shows
      default:
        change satisfies never;
    }
  }

  /** Show the source of the step's newest citation, unless an earlier one has the same source. */
  #cite({ step, citations, sources }: Step): void {
    const last = citations.at(-1);
    if (last !== undefined && sources.at(-1) === last) this.#emit(sourcePart(step, sources.length, last));
  }

  #endRun(change: RunEnded | Of<"OutputGiven", "output"> | Of<"RunInterrupted", "run_interrupted">): void {
    if (change.type === "RunEnded") this.#end = change;
    else if (change.type === "RunInterrupted") this.#reason = change.chunk.reason;
    else this.#emit({ type: "data-output", id: change.conversation.runId, data: change.chunk.output });
  }

  /** Send the `UI_FIELDS` of a chunk as transient data. */
  #notice(kind: string, chunk: Record<string, unknown>): void {
    const fields = UI_FIELDS[kind];
    if (fields === undefined) return;
    const data = Object.fromEntries(fields.filter((name) => name in chunk).map((name) => [name, chunk[name]]));
    const steered = kind === "message_queued" && chunk["state"] === "delivered" && chunk["mode"] === "steer";
    const options = steered ? { id: String(chunk["queued_id"]) } : { transient: true }; // it stays at this place
    this.#emit({ type: `data-${kind.replaceAll("_", "-")}`, data, ...options });
  }

  // --- answers --------------------------------------------------------------------------------------------------------

  #answer(change: StepChange): void {
    switch (change.type) {
      case "PartBegan":
        if (change.part.step.conversation === this.#conversation) this.#beginPart(change.part);
        return;
      case "PartEnded":
        return; // it ends when the next part begins, or with its attempt
      case "StepBegan":
        if (change.step.conversation !== this.#conversation) return;
        this.#finishText();
        if (change.replaces !== undefined) this.#emit({ type: "reset-step" });
        return;
      case "StepCommitted":
        this.#usage = withUsage(this.#usage, change.step.usage);
        return this.#commit(change.step);
      case "StepDiscarded":
        if (change.step.conversation === this.#conversation) this.#discard(change.step);
        return;
      default:
        change satisfies never;
    }
  }

  #commit({ conversation, step, text, cut }: Step): void {
    if (conversation === this.#conversation) {
      this.#step(step);
      this.#finishText();
      if (cut) this.#emit({ type: "data-answer-cut", data: { step } });
    } else if (this.#children.has(conversation.id) && text !== "") {
      this.#children.set(conversation.id, text);
      this.#showChild(conversation);
    }
  }

  #discard(step: Step): void {
    if (this.#open?.part.step !== step) this.#finishText();
    if (step.parts.length + step.served.size > 0 && !step.retained) {
      this.#emit({ type: "reset-step" });
      this.#open = undefined;
    }
    this.#finishText();
  }

  #beginPart(part: Part): void {
    this.#finishText();
    this.#step(part.step.step);
    if (part.kind === "output") {
      this.#growing = { part, text: new GrowingText() };
      return;
    }
    this.#open = { part, kind: part.kind, id: `${part.step.step}/${part.step.attempt}/${part.index}` };
    this.#emit({ type: `${part.kind}-start`, id: this.#open.id });
  }

  /** Show the output so far. The page replaces the part, because its id is that of the run's output. */
  #growOutput(delta: string): void {
    const { part, text } = this.#growing as { part: Part; text: GrowingText };
    const data = text.add(delta) ? readPartial(text.text) : undefined;
    if (data !== undefined) this.#emit({ type: "data-output", id: part.step.conversation.runId, data });
  }

  /** End the open part and keep its text. */
  #finishText(): void {
    const open = this.#open;
    this.#open = undefined;
    if (open !== undefined) this.#emit({ type: `${open.kind}-end`, id: open.id });
  }

  // --- calls ----------------------------------------------------------------------------------------------------------

  #call(change: CallChange): void {
    switch (change.type) {
      case "CallStarted":
        this.#answered(this.#showCall(change.call), true);
        this.#questions.close(this.#idOf(change.call), change.call);
        return this.#questions.namePeople(this.#idOf(change.call), change.call);
      case "CallAsked": {
        const shown = this.#showCall(change.call);
        if (change.call.kind === "question") return this.#questions.ask(this.#idOf(change.call), change.call);
        if (change.call.kind === "elsewhere") return;
        shown.asked = change.call.kind;
        return this.#ask(shown);
      }
      case "CallEnded":
        return this.#endCall(change.call);
      case "ChildBegan": {
        if (!this.#children.has(change.child.id)) this.#children.set(change.child.id, "");
        const known = this.#calls.get(this.#idOf(change.call));
        if (known !== undefined) known.child = true;
        return this.#showChild(change.child);
      }
      case "ChildEnded":
        if (this.#children.has(change.child.id)) this.#showChild(change.child);
        return;
      default:
        change satisfies never;
    }
  }

  #endCall(call: Call): void {
    const { step } = call;
    const known = this.#calls.get(this.#idOf(call));
    if (known === undefined && step.conversation === this.#conversation && !this.#steps.has(step.step)) {
      return; // of a step of an earlier message, which its claim closed
    }
    const shown = known ?? this.#showCall(call);
    if (shown.done) return;
    if (shown.child) this.#endQuestions(call);
    shown.done = true;
    const success = call.state === "done";
    const denied = (shown.asked === "approval" || shown.asked === "unknown") && !success;
    const errorText = call.error || textOf(call.result);
    this.#questions.close(this.#idOf(call), call, success ? undefined : errorText);
    this.#questions.namePeople(this.#idOf(call), call);
    if (denied && shown.requested) return this.#deny(shown, errorText);
    this.#answered(shown, !denied, denied ? { reason: errorText } : {});
    if (success) this.#output(call, call.result);
    else this.#fail(call, errorText);
    this.#out.push(...resultFiles(call.files, call.step.conversation.id, this.#idOf(call)));
  }

  /** A sub-agent that is over waits for no answer any more. */
  #endQuestions(parent: Call): void {
    const reason = "the sub-agent has ended";
    for (const shown of this.#calls.values()) {
      if (shown.done || shown.asked === undefined || shown.call.step.conversation.call !== parent) continue;
      shown.done = true;
      if (shown.requested) this.#deny(shown, reason);
      else {
        this.#answered(shown, false, { reason });
        this.#fail(shown.call, reason);
      }
    }
  }

  /** A run that has ended waits for no approval. If it is tried again, it asks again. */
  #withdraw(): void {
    for (const shown of this.#calls.values()) {
      if (shown.asked !== undefined && shown.requested && !shown.done) this.#deny(shown, "the run has ended");
    }
  }

  #deny(shown: Shown, reason: string): void {
    this.#answered(shown, false, { reason });
    this.#emit({ type: "tool-output-denied", toolCallId: this.#idOf(shown.call) });
  }

  #output(call: Call, output: unknown): void {
    this.#emit({ type: "tool-output-available", toolCallId: this.#idOf(call), output, dynamic: true, ...executedBy(call) });
  }

  #fail(call: Call, errorText: string): void {
    this.#emit({ type: "tool-output-error", toolCallId: this.#idOf(call), errorText, dynamic: true, ...executedBy(call) });
  }

  /** The call on the page. Its part is made once, unless the arguments change: a second one would stand in the step that is open
   *  now. */
  #showCall(call: Call): Shown {
    const [toolCallId, { conversation, step }] = [this.#idOf(call), call.step];
    const { name: toolName, arguments: input } = call;
    const known = this.#calls.get(toolCallId);
    if (known !== undefined && (same(known.input as Json, input as Json) || known.done)) return known;
    if (conversation === this.#conversation) this.#step(step);
    const about = this.#children.has(conversation.id) && conversation.call !== undefined && {
      toolMetadata: {
        ...{ sessionId: conversation.id, agent: conversation.agent, parentToolCallId: this.#idOf(conversation.call) },
      },
    };
    const shown = known ?? { call, input, asked: undefined, requested: false, done: false, child: false };
    shown.input = input;
    this.#calls.set(toolCallId, shown);
    this.#emit({ type: "tool-input-available", toolCallId, toolName, input, dynamic: true, ...executedBy(call), ...about });
    this.#ask(shown); // its part is one without an approval again
    return shown;
  }

  #idOf(call: Call): string {
    return shownCall(this.#root, call.step.conversation.id, call.id);
  }

  #ask(shown: Shown): void {
    if (shown.asked === undefined || shown.asked === "client") return;
    const id = this.#idOf(shown.call);
    const what = shown.asked === "approval" ? {} : { approvalDescriptor: { kind: shown.asked } };
    shown.requested = true;
    this.#emit({ type: "tool-approval-request", approvalId: id, toolCallId: id, ...what });
  }

  #answered(shown: Shown, approved: boolean, why: { reason?: string } = {}): void {
    const asked = shown.asked;
    shown.asked = undefined;
    if (asked === "approval" || asked === "unknown") {
      this.#emit({ type: "tool-approval-response", approvalId: this.#idOf(shown.call), approved, ...why });
    }
  }

  /** What the run waits for. A sub-agent's call, and one that asks questions, has an output of its own until its answer comes,
   *  because a page goes on by itself only when no other call of the step is open. */
  #wait(): void {
    for (const { call, done, child } of this.#calls.values()) {
      if (!done && (child || this.#questions.isOpen(this.#idOf(call)))) this.#output(call, { status: "paused" });
    }
  }

  #showChild({ id, agent, call, status }: Conversation): void {
    const toolCallId = call === undefined ? "" : this.#idOf(call);
    this.#emit({ type: "data-subagent", id, data: { agent, toolCallId, status, text: this.#children.get(id) ?? "" } });
  }
}
