// The wire format of a stream, and what a message is to a reader.
import { HelixError } from "./errors.ts";
import {
  type AskedQuestion, type CallResponse, DEFAULTS, type NoticeChunk, NOTICES, type StreamChunk, type StreamMessage as Sent,
  type ToolResultMessage,
} from "./generated.ts";

/**
 * A message of a stream. `kind` is `chunk`, or `end`, `fail` or `paused` where a run's part of the stream closes; then `status`
 * is the run's. `session_id` names the session: a sub-agent's end is not the root's.
 */
export type StreamMessage = Sent;

/** What a message is to a reader: to be shown, not its own, shown and the last, or a sign that the end has passed. */
export type Verdict = "show" | "skip" | "last" | "over";
export type Judge = (message: StreamMessage) => Verdict;

/** A message of a frame, whole. Throws `invalid_message` for what is none. */
export function messageOf(streamId: string, body: unknown): StreamMessage {
  const sent = (typeof body === "object" && body !== null ? body : {}) as Partial<StreamMessage>;
  const whole = { v: 1, turn: 0, chunk: null, status: null, error: null, ...sent, stream_id: streamId };
  if (
    !Number.isSafeInteger(sent.sequence) ||
    (sent.sequence as number) < 1 ||
    typeof sent.session_id !== "string" ||
    typeof sent.run_id !== "string" ||
    !["chunk", "end", "fail", "paused"].includes(sent.kind as string)
  ) {
    throw new HelixError("invalid_message", "a message of a stream has session_id, run_id, sequence and kind");
  }
  return whole as StreamMessage;
}

/** Defaults that hold no objects, so that a chunk may share their values. Copying them would cost more than all else for a piece of text. */
const PLAIN: ReadonlySet<object> = new Set(
  Object.values(DEFAULTS.types).filter((defaults) => Object.values(defaults).every((value) => typeof value !== "object" || value === null)),
);

/** The message's chunk with all its fields. Only where `kind` is `chunk`. */
export function chunkOf(message: StreamMessage): StreamChunk {
  const sent = (message.chunk ?? {}) as Record<string, unknown>;
  const defaults = DEFAULTS.types[sent["type"] as string] ?? {};
  const own = PLAIN.has(defaults) ? defaults : structuredClone(defaults);
  const chunk: Record<string, unknown> = { ...DEFAULTS.chunk, ...own, ...sent, sequence: message.sequence };
  if (chunk["type"] === "step_committed" && chunk["usage"] !== null) {
    chunk["usage"] = { ...DEFAULTS.usage, ...(chunk["usage"] as object) };
  }
  if (chunk["type"] === "tool_end") chunk["files"] = (chunk["files"] as object[]).map((file) => ({ ...DEFAULTS.file, ...file }));
  if (Array.isArray(chunk["questions"])) chunk["questions"] = questionsIn(chunk["questions"]);
  if (Array.isArray(chunk["responses"])) chunk["responses"] = chunk["responses"].map((one) => ({ ...DEFAULTS.response, ...one }));
  return chunk as unknown as StreamChunk;
}

/** The questions with the values that the stream leaves out. */
export const questionsIn = (sent: readonly object[]): AskedQuestion[] =>
  sent.map((question) => ({ ...structuredClone(DEFAULTS.question), ...question }) as AskedQuestion);

/** The questions and responses in the metadata of a stored result. */
export function waitsIn({ metadata }: ToolResultMessage): { questions: AskedQuestion[]; responses: CallResponse[] } {
  const { questions = [], responses = [] } = metadata as { questions?: object[]; responses?: CallResponse[] };
  return { questions: questionsIn(questions), responses };
}

/** Whether the chunk's readers show it by `NOTICES` alone. */
export function isNotice(chunk: StreamChunk): chunk is NoticeChunk {
  return Object.hasOwn(NOTICES, chunk.type);
}

/** The line of a notice with the values of its fields, or "". A field that is null leaves its place empty. */
export function lineOf(chunk: NoticeChunk): string {
  const fields: Record<string, unknown> = { ...chunk };
  return NOTICES[chunk.type].replace(/\{(\w+)\}/g, (_, name: string) => String(fields[name] ?? ""));
}

/** Whether the message is a `stream_resync` of the log itself. It marks the loss of all earlier chunks. */
export function isResync(message: StreamMessage): boolean {
  return message.run_id === "" && (message.chunk as { type?: unknown } | null)?.type === "stream_resync";
}

/** For readers that follow a stream across its runs. */
export const wholeStream: Judge = () => "show";

/**
 * For readers that follow one run: from the session's first message of that turn to its end, the sub-agents' messages between
 * included. A later turn means that the run was taken over, and has no end of its own. If `turn` is 0, the run has not begun:
 * `runId` names it, and everything before its first message is skipped.
 */
export function oneRun(sessionId: string, turn: number, runId = ""): Judge {
  let begun = false;
  return (message) => {
    const own = message.session_id === sessionId;
    if (turn === 0 && own && message.run_id === runId) turn = message.turn;
    if (isResync(message)) return "show";
    if (turn === 0) return "skip";
    if (own && message.turn > turn) return "over";
    if (own && message.turn === turn) {
      begun = true;
      return message.kind === "chunk" ? "show" : "last";
    }
    return begun && !own ? "show" : "skip";
  };
}

/** The same, without what has been seen already. */
export function behind(after: number, judge: Judge): Judge {
  return (message) => {
    const verdict = judge(message);
    if (message.sequence > after) return verdict;
    return verdict === "show" ? "skip" : verdict === "last" ? "over" : verdict;
  };
}
