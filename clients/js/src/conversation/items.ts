// The items of a conversation: messages of the user, attempts at steps with their parts and calls, and notices. They are the
// items of `helix.core.conversation.items` in Python. Only the conversation that contains an item creates or changes it.
import type { AskedQuestion, AssistantMessage, CallResponse, Edit, FilePart, Pending, Usage } from "../generated.ts";
import type { Conversation } from "./conversation.ts";

export type PartKind = "text" | "reasoning" | "output";
export type CallState = "open" | "running" | "waiting" | "done" | "failed";
export type Question = Exclude<Pending["kind"], "child">;
export type NoticeKind = "queued" | "error" | "context" | "takeover" | "budget" | "failed" | "interrupted" | "note";
export type Tone = "plain" | "warn" | "bad";
type Arguments = Record<string, unknown>;

/** The completion reason of a run that a budget paused, which does not wait for a person. */
export const BUDGET = "budget_exceeded";
/** The beginning of the name of each tool that starts a sub-agent. */
export const SUBAGENT = "subagent__";
/** The tool with which a model gives its structured output. */
export const FINISH = "__finish__";

export interface User {
  readonly type: "user";
  text: string;
  /** The files of the message, by their place in the text. */
  files: readonly FilePart[];
  /** The run that the message started. Empty for a stored message without a run. */
  runId: string;
  /** The id under which the message waited for a run. Absent if it did not wait. */
  queuedId?: string;
  /** When a stored message was added, in Unix seconds. Absent for one from the stream. */
  at?: number;
}

/** The `stop_reason` of an answer that an interrupt cut off. */
export const INTERRUPTED = "interrupted";
export const isCut = (answer: { metadata: Record<string, unknown> }): boolean => answer.metadata["stop_reason"] === INTERRUPTED;

/** A piece of an answer without a change of kind: text, one block of reasoning, or the structured output as JSON text. */
export interface Part {
  readonly step: Step;
  readonly kind: PartKind;
  /** The position among the parts of the attempt, starting at 0. */
  readonly index: number;
  text: string;
}

/** An attempt at a step: the part of the model's answer that has arrived, and its calls. */
export class Step {
  readonly type = "step";
  readonly conversation: Conversation;
  /** The run that made the attempt. Null if a waiting call is all that is known about the step. */
  readonly runId: string | null;
  readonly step: number;
  /** The number of the attempt, starting at 1. 0: unknown, as for stored messages. */
  readonly attempt: number;
  readonly parts: Part[] = [];
  /** The part that the next piece of its kind is appended to. Undefined between two parts. */
  open: Part | undefined;
  readonly calls: Call[] = [];
  /** The calls of the provider's own tools, by the provider's ids, in order. */
  readonly served = new Map<string, Call>();
  /** The sources of the text. */
  readonly citations: Source[] = [];
  /** `open` while the text is provisional, `committed` once it is stored, `discarded` if the attempt was dropped. */
  state: "open" | "committed" | "discarded" = "open";
  /** Whether the text of a discarded attempt stays readable until another attempt at the step begins. */
  retained = false;
  /** Whether an interrupt cut off the answer, whose text so far is committed. */
  cut = false;
  /** The reason why the attempt was discarded. */
  why: string | null = null;
  /** The model that answered. Null until the commit, or if the commit does not name it. */
  model: string | null = null;
  usage: Usage | null = null;
  /** The agent of a stored answer that another agent than the session's own gave. Empty for other answers. */
  agent = "";
  /** When a stored answer was added, in Unix seconds. Null for one from the stream. */
  at: number | null = null;

  constructor(conversation: Conversation, runId: string | null, step: number, attempt: number) {
    this.conversation = conversation;
    this.runId = runId;
    this.step = step;
    this.attempt = attempt;
  }

  /** Add a part, which becomes the last one. */
  add(kind: PartKind, text: string): Part {
    const part: Part = { step: this, kind, index: this.parts.length, text };
    this.parts.push(part);
    return part;
  }

  /** The sources of the text, each once, in the order of their first citations. */
  get sources(): Source[] {
    const isFirst = (one: Source, at: number) =>
      this.citations.findIndex((other) => other.url === one.url && other.title === one.title) === at;
    return this.citations.filter(isFirst);
  }

  /** The text of the answer so far. */
  get text(): string {
    return this.#joined("text", "");
  }

  /** The model's reasoning so far, with an empty line between two blocks. */
  get thinking(): string {
    return this.#joined("reasoning", "\n\n");
  }

  /** The JSON text of the structured output so far. Empty if the answer has none. */
  get output(): string {
    return this.#joined("output", "");
  }

  #joined(kind: PartKind, between: string): string {
    const texts = this.parts.filter((part) => part.kind === kind).map((part) => part.text);
    return texts.join(between);
  }
}

/** A source of a part of an answer's text, from the character `start` to before `end`. */
export interface Source {
  start: number;
  end: number;
  /** Null for a file or a document. */
  url: string | null;
  title: string | null;
  /** The cited text. Null if the provider does not give it. */
  quote: string | null;
}

/** A call of a tool or a sub-agent. */
export interface Call {
  /** The attempt whose answer contains the call. */
  readonly step: Step;
  readonly id: string;
  /** The name of the tool. That of a sub-agent begins with `SUBAGENT`. */
  readonly name: string;
  /** The arguments of the execution: the model's, or the edited ones that a person approved. */
  arguments: Arguments;
  /** An `open` call has not started, or its run ended before it could. A `waiting` call needs a person. */
  state: CallState;
  /** How many times workers have claimed the call since its last questions. More than 1: a worker died. */
  attempt: number;
  result: unknown;
  /** The files of the result, by their place in its text. */
  files: readonly FilePart[];
  error: string | null;
  /** The kind of answer that a waiting call needs. */
  kind: Question;
  /** The JSON schema of the arguments. Empty if it is not known. */
  parameters: Record<string, unknown>;
  /** The reason why the tool needs approval. */
  reason: string | null;
  /** The open questions of a waiting call of the kind `question`, or all questions of a call that went on. */
  questions: readonly AskedQuestion[];
  /** The approvals, denials, results and rulings that the call got. */
  responses: readonly CallResponse[];
  /** The last round of those questions, for the response. 0 if the call has asked none. */
  round: number;
  /** Whether the run declared the tool, whose calls the front end executes. */
  declared: boolean;
  /** Who edited the model's arguments when approving the call. */
  edited: Edit | null;
  /** The arguments before the edit. Null if they are the model's, or if the stream did not show them. */
  asked: Arguments | null;
  /** Whether the provider executes the call, while the model answers. */
  served: boolean;
  /** The conversation of the sub-agent that the call started. */
  child: Conversation | undefined;
}

export const newCall = (step: Step, id: string, name: string, given: Arguments): Call => ({
  ...{ step, id, name, arguments: given, state: "open", attempt: 0, result: null, files: [], error: null, kind: "approval" },
  ...{ parameters: {}, reason: null, questions: [], responses: [], round: 0, declared: false, edited: null, asked: null, served: false, child: undefined },
});

/** Return a call that the provider executes. Its id is made unique in the session. */
export const servedCall = (step: Step, id: string, name: string): Call => ({
  ...newCall(step, `${step.step}/${step.attempt}/${id}`, name, {}),
  ...{ state: "running", attempt: 1, served: true },
});

export function endServed(call: Call, result: unknown, error: string | null): void {
  [call.state, call.result, call.error] = [error === null ? "done" : "failed", result, error];
}

/** Read the calls of the provider's own tools and the sources of a stored answer. An older service sends neither. */
export function loadServed(step: Step, message: Partial<Pick<AssistantMessage, "server_blocks" | "citations">>): void {
  for (const { call: made } of message.server_blocks ?? []) {
    if (made == null) continue;
    const call = step.served.get(made.id) ?? servedCall(step, made.id, made.name);
    call.arguments = made.arguments;
    endServed(call, made.result, made.error);
    step.served.set(made.id, call);
  }
  for (const { start, end, url, title, quote } of message.citations ?? []) step.citations.push({ start, end, url, title, quote });
}

/** A line about the run that is not part of the conversation, such as an error. Readers put it into words. */
export interface Notice {
  readonly type: "notice";
  readonly kind: NoticeKind;
  /** The error, the reason, the summary or the content of the note. Empty if the kind says everything. */
  readonly text: string;
  readonly tone: Tone;
  /** The stable code of an `error`, or the cause of a `context`. Empty for other kinds. */
  readonly code: string;
  /** The number of runs in the queue, for `queued`. */
  readonly queued: number;
  /** For `context`, the number of messages at the beginning that the model does not see any more. 0: only results were cleared. */
  readonly hidden: number;
}

export type Item = User | Step | Notice;
