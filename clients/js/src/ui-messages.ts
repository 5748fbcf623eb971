// The log as the UI message stream of the AI SDK, version 7: what `helix.stream.ui_messages` makes of it in Python, part for
// part. A message of the page is one run and the runs that go on from it; its id is the first run's.
import type { UIMessageChunk } from "ai";
import { CONTINUES } from "./conversation/changes.ts";
import type { StreamChunk } from "./generated.ts";
import { type Json, same } from "./patches.ts";
import { shownCall } from "./turns.ts";
import { NO_USAGE, type Usage, usageFields, withUsage } from "./usage.ts";
import type { StreamMessage } from "./wire.ts";

/** The chunks that are shown as transient data, with the fields that they show. */
const NOTICES = {
  run_queued: ["queued", "expires_at", "reason"],
  stream_resync: ["reason", "checkpoint_id"],
  state_patch: ["patches"],
};

type Chunk = Record<string, unknown>;
type Kind = "text" | "reasoning";

interface Call {
  name: string;
  input: unknown;
  /** What it waits for. */
  asked: string | undefined;
  /** Its part has an approval. */
  requested: boolean;
  /** It was executed since it was asked. */
  begun: boolean;
  done: boolean;
  child: boolean;
}

interface Child {
  agent: string;
  call: string;
  status: string;
  text: string;
  draft: string;
  attempt: string;
}

/** A try at a step: its parts, the last of which may be open. */
interface Attempt {
  step: number;
  attempt: number;
  parts: { kind: Kind; id: string }[];
  thought: boolean; // deltas of the present block of reasoning were shown
}

const textOf = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value ?? null));
const numberOf = (value: unknown): number => Number(value ?? 0);

/** Stream messages in, AI SDK parts out. Feed it from the first message of a run that starts a page's message. */
export class UIMessageEncoder {
  readonly #root: string;
  #sequence = 0;
  #messageId = "";
  #runId = "";
  #out: UIMessageChunk[] = [];
  #started = false;
  #closed = false;
  #stepOpen = false;
  #steps = new Set<number>();
  #attempt: Attempt | undefined;
  /** The step whose words were kept when its run was interrupted. */
  #interrupted: number | undefined;
  #usage: Usage = NO_USAGE;
  #calls = new Map<string, Call>();
  #children = new Map<string, Child>();
  #end: StreamMessage | undefined;
  #reason: string | undefined;

  constructor(sessionId: string) {
    this.#root = sessionId;
  }

  /** The parts of the next message. One that was fed before gives none. */
  feed(message: StreamMessage): UIMessageChunk[] {
    if (message.sequence <= this.#sequence) return [];
    this.#sequence = message.sequence;
    const root = message.session_id === this.#root;
    const chunk = (message.chunk ?? {}) as Chunk;
    if (root && message.run_id !== "" && message.run_id !== this.#runId) this.#begin(message.run_id, chunk);
    if (message.kind === "chunk") this.#chunk(root, message.session_id, chunk);
    else if (root) this.#end = message;
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
    const chunk = (message.chunk ?? {}) as Chunk;
    const call = this.#calls.get(shownCall(this.#root, message.session_id, String(chunk["tool_call_id"])));
    if (chunk["type"] !== "tool_end" || call === undefined || call.done) return [];
    this.#toolEnd(message.session_id, chunk);
    return this.#take();
  }

  #close(): void {
    const end = this.#end;
    if (end === undefined || this.#closed) return;
    this.#start();
    this.#settle();
    if (end.kind === "paused") this.#wait();
    else this.#withdraw();
    this.#finishStep();
    let finishReason = { end: "stop", paused: "tool-calls", fail: "error", chunk: "" }[end.kind];
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

  #begin(runId: string, chunk: Chunk): void {
    const mode = chunk["type"] === "run_resumed" ? String(chunk["mode"]) : "execute";
    if (this.#messageId === "" || !CONTINUES.has(mode)) {
      this.#close();
      [this.#started, this.#stepOpen, this.#attempt, this.#interrupted] = [false, false, undefined, undefined];
      this.#usage = NO_USAGE;
      [this.#steps, this.#calls, this.#children] = [new Set(), new Map(), new Map()];
      this.#messageId = runId;
    }
    [this.#runId, this.#end, this.#closed, this.#reason] = [runId, undefined, false, undefined];
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

  // --- chunks ---------------------------------------------------------------------------------------------------------

  #chunk(root: boolean, sessionId: string, chunk: Chunk): void {
    const kind = chunk["type"] as StreamChunk["type"];
    switch (kind) {
      case "run_queued":
      case "stream_resync":
      case "state_patch": {
        const shown = NOTICES[kind].filter((name) => name in chunk);
        const data = Object.fromEntries(shown.map((name) => [name, chunk[name]]));
        if (root) this.#emit({ type: `data-${kind.replaceAll("_", "-")}`, data, transient: true });
        return;
      }
      case "text_delta":
      case "thinking":
      case "step_committed":
      case "step_discarded":
        this.#usage = withUsage(this.#usage, chunk["usage"]);
        return root ? this.#answer(kind, chunk) : this.#childAnswer(sessionId, kind, chunk);
      case "tool_start":
        return this.#toolStart(sessionId, chunk);
      case "tool_approval_request":
        return this.#approvalRequest(sessionId, chunk);
      case "tool_end":
        return this.#toolEnd(sessionId, chunk);
      case "subagent_start":
        return this.#childStart(sessionId, chunk);
      case "subagent_end":
        return this.#childEnd(chunk);
      case "custom":
        return this.#emit({ type: `data-${String(chunk["event_name"])}`, data: chunk["data"] ?? null });
      case "output":
        if (root) this.#emit({ type: "data-output", id: this.#runId, data: chunk["output"] ?? null });
        return;
      case "run_interrupted":
        if (root) this.#reason = (chunk["reason"] ?? undefined) as string | undefined;
        return;
      case "error":
        if (chunk["recoverable"] !== false) {
          const data = { code: chunk["code"] ?? "error", message: chunk["error"] ?? "" };
          this.#emit({ type: "data-error", data, transient: true });
        }
        return;
      case "run_resumed": // begins a response, or goes on with it: see `#begin`
      case "run_paused": // the calls that wait are asked for at the end of the response
      case "run_superseded":
      case "checkpoint_created":
        return;
      default:
        kind satisfies never; // a later version may send other types, which a page skips
    }
  }

  #answer(kind: string, chunk: Chunk): void {
    const [step, at] = [numberOf(chunk["step"]), numberOf(chunk["attempt"])];
    if (this.#attempt === undefined || this.#attempt.step !== step || this.#attempt.attempt !== at) {
      this.#settle();
      this.#attempt = { step, attempt: at, parts: [], thought: false };
      if (kind !== "step_discarded" && this.#interrupted !== undefined) {
        if (this.#interrupted === step) this.#emit({ type: "reset-step" });
        this.#interrupted = undefined;
      }
    }
    const attempt = this.#attempt;
    if (kind === "step_discarded") {
      this.#discard(attempt, chunk["status"] === "interrupted");
    } else if (kind === "step_committed") {
      this.#step(step);
      this.#settle();
    } else if (kind === "text_delta") {
      attempt.thought = false;
      this.#put(attempt, "text", String(chunk["delta"] ?? ""));
    } else if (chunk["is_complete"] !== true) {
      this.#put(attempt, "reasoning", String(chunk["content"] ?? ""), attempt.thought);
      attempt.thought = true;
    } else {
      if (!attempt.thought) this.#put(attempt, "reasoning", String(chunk["content"] ?? ""), false);
      attempt.thought = false;
    }
  }

  /** `kept`: the run was interrupted. What was read stays until another attempt of the step begins. */
  #discard(attempt: Attempt, kept: boolean): void {
    if (attempt.parts.length > 0) {
      if (!kept) {
        this.#emit({ type: "reset-step" });
        this.#attempt = undefined;
      }
      this.#interrupted = kept ? attempt.step : undefined;
    }
    this.#settle();
  }

  /** Add to the open part, or begin another. */
  #put(attempt: Attempt, kind: Kind, delta: string, more = true): void {
    let last = attempt.parts.at(-1);
    if (last?.kind !== kind || !more) {
      this.#endPart(last);
      last = { kind, id: `${attempt.step}/${attempt.attempt}/${attempt.parts.length}` };
      attempt.parts.push(last);
      this.#step(attempt.step);
      this.#emit({ type: `${kind}-start`, id: last.id });
    }
    this.#emit({ type: `${kind}-delta`, id: last.id, delta });
  }

  #endPart(part: { kind: Kind; id: string } | undefined): void {
    if (part !== undefined) this.#emit({ type: `${part.kind}-end`, id: part.id });
  }

  /** The attempt is over, and its text stands. */
  #settle(): void {
    const last = this.#attempt?.parts.at(-1);
    this.#attempt = undefined;
    this.#endPart(last);
  }

  // --- calls ----------------------------------------------------------------------------------------------------------

  #toolStart(sessionId: string, chunk: Chunk): void {
    const [shown, call] = this.#call(sessionId, chunk, chunk["arguments"] ?? {});
    call.begun = true;
    this.#answered(shown, call, true);
  }

  #approvalRequest(sessionId: string, chunk: Chunk): void {
    const [shown, call] = this.#call(sessionId, chunk, chunk["input"] ?? {});
    [call.asked, call.begun] = [String(chunk["kind"] ?? "approval"), false];
    this.#ask(shown, call);
  }

  #toolEnd(sessionId: string, chunk: Chunk): void {
    const shown = shownCall(this.#root, sessionId, String(chunk["tool_call_id"]));
    if (!this.#calls.has(shown) && sessionId === this.#root && !this.#steps.has(numberOf(chunk["step"]))) {
      return; // of a step of an earlier message, which its claim closed
    }
    const call = this.#calls.get(shown) ?? this.#call(sessionId, chunk, chunk["arguments"] ?? {})[1];
    if (call.done) return;
    if (call.child) this.#endQuestions(shown);
    call.done = true;
    const success = chunk["success"] !== false;
    const denied = (call.asked === "approval" || call.asked === "unknown") && !call.begun && !success;
    const errorText = String(chunk["error"] || textOf(chunk["result"]));
    if (denied && call.requested) {
      this.#deny(shown, call, errorText);
      return;
    }
    this.#answered(shown, call, !denied, denied ? { reason: errorText } : {});
    if (success) {
      this.#emit({ type: "tool-output-available", toolCallId: shown, output: chunk["result"] ?? null, dynamic: true });
    } else {
      this.#emit({ type: "tool-output-error", toolCallId: shown, errorText, dynamic: true });
    }
  }

  /** A sub-agent that is over waits for no answer any more. */
  #endQuestions(parent: string): void {
    const errorText = "the sub-agent has ended";
    for (const [shown, call] of this.#calls) {
      const owner = this.#children.get(shown.slice(0, Math.max(0, shown.lastIndexOf("/"))));
      if (call.done || call.asked === undefined || owner?.call !== parent) continue;
      call.done = true;
      if (call.requested) this.#deny(shown, call, errorText);
      else {
        this.#answered(shown, call, false, { reason: errorText });
        this.#emit({ type: "tool-output-error", toolCallId: shown, errorText, dynamic: true });
      }
    }
  }

  /** A run that has ended waits for no approval. If it is tried again, it asks again. */
  #withdraw(): void {
    for (const [shown, call] of this.#calls) {
      if (call.asked !== undefined && call.requested && !call.done) this.#deny(shown, call, "the run has ended");
    }
  }

  #deny(shown: string, call: Call, reason: string): void {
    this.#answered(shown, call, false, { reason });
    this.#emit({ type: "tool-output-denied", toolCallId: shown });
  }

  /** The call on the page. Its part is made once: a second one would stand in the step that is open now. */
  #call(sessionId: string, chunk: Chunk, input: unknown): [string, Call] {
    const shown = shownCall(this.#root, sessionId, String(chunk["tool_call_id"]));
    const known = this.#calls.get(shown);
    if (known !== undefined && (same(known.input as Json, input as Json) || known.done)) return [shown, known];
    if (sessionId === this.#root) this.#step(numberOf(chunk["step"]));
    const child = this.#children.get(sessionId);
    const about = child && { toolMetadata: { sessionId, agent: child.agent, parentToolCallId: child.call } };
    const fresh = { asked: undefined, requested: false, begun: false, done: false, child: false };
    const call: Call = known ?? { name: String(chunk["tool_name"]), input, ...fresh };
    call.input = input;
    this.#calls.set(shown, call);
    const toolName = String(chunk["tool_name"]);
    this.#emit({ type: "tool-input-available", toolCallId: shown, toolName, input, dynamic: true, ...about });
    if (call.asked !== undefined) this.#ask(shown, call); // its part is one without an approval again
    return [shown, call];
  }

  #ask(shown: string, call: Call): void {
    if (call.asked === "client") return;
    const what = call.asked === "approval" ? {} : { approvalDescriptor: { kind: call.asked } };
    call.requested = true;
    this.#emit({ type: "tool-approval-request", approvalId: shown, toolCallId: shown, ...what });
  }

  #answered(shown: string, call: Call, approved: boolean, why: { reason?: string } = {}): void {
    const asked = call.asked;
    call.asked = undefined;
    if (asked === "approval" || asked === "unknown") {
      this.#emit({ type: "tool-approval-response", approvalId: shown, approved, ...why });
    }
  }

  /** What the run waits for. A sub-agent's call has an output of its own until its answer comes, because a page goes on by
   *  itself only when no other call of the step is open. */
  #wait(): void {
    for (const [shown, call] of this.#calls) {
      if (call.done || !call.child) continue;
      this.#emit({ type: "tool-output-available", toolCallId: shown, output: { status: "paused" }, dynamic: true });
    }
  }

  // --- sub-agents -----------------------------------------------------------------------------------------------------

  #childStart(sessionId: string, chunk: Chunk): void {
    const call = shownCall(this.#root, sessionId, String(chunk["parent_tool_call_id"]));
    const id = String(chunk["sub_agent_id"]);
    const fresh = { status: "running", text: "", draft: "", attempt: "0/0" };
    const child = this.#children.get(id) ?? { agent: String(chunk["sub_agent_type"] ?? ""), call, ...fresh };
    child.status = "running";
    this.#children.set(id, child);
    const known = this.#calls.get(call);
    if (known !== undefined) known.child = true;
    this.#show(id, child);
  }

  #childEnd(chunk: Chunk): void {
    const id = String(chunk["sub_agent_id"]);
    const child = this.#children.get(id);
    if (child === undefined) return;
    child.status = String(chunk["status"] ?? "completed");
    this.#show(id, child);
  }

  #childAnswer(sessionId: string, kind: string, chunk: Chunk): void {
    const child = this.#children.get(sessionId);
    if (child === undefined) return;
    const at = `${numberOf(chunk["step"])}/${numberOf(chunk["attempt"])}`;
    if (child.attempt !== at || kind === "step_discarded") [child.attempt, child.draft] = [at, ""];
    if (kind === "text_delta") child.draft += String(chunk["delta"] ?? "");
    else if (kind === "step_committed" && child.draft !== "") {
      [child.text, child.draft] = [child.draft, ""];
      this.#show(sessionId, child);
    }
  }

  #show(id: string, child: Child): void {
    const data = { agent: child.agent, toolCallId: child.call, status: child.status, text: child.text };
    this.#emit({ type: "data-subagent", id, data });
  }
}
