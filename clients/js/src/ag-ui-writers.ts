// The answers of the sessions that write to one stream, as AG-UI shows them: what `helix.stream.agui_writers` makes of them in
// Python. The text of an attempt is one message, and each block of its reasoning is another. Both end at the latest with the
// attempt. The ids of the messages follow from session, step and attempt.
import type { AgUiMessages } from "./ag-ui-messages.ts";
import type { Part, Step } from "./conversation/items.ts";

/** The root session, or a run of a sub-agent. */
export interface Writer {
  session: string;
  run: string;
  /** What its events carry. */
  tag: { subagentRunId?: string };
  attempt: Step | undefined;
  message: string | undefined;
  thought: string | undefined;
  thoughts: number;
  /** Messages of the present attempt. */
  shown: string[];
}

export const writerOf = (session: string, run: string, tag: Writer["tag"] = {}): Writer => ({
  ...{ session, run, tag, attempt: undefined, message: undefined, thought: undefined, thoughts: 0, shown: [] },
});

/** The id of an answer's message. Not of its run, because a run that takes another over may be the one that shows it. */
export const answerId = ({ conversation, step }: Step, attempt: number): string => `${conversation.id}/${step}/${attempt}`;

type Emit = (type: string, writer: Writer, fields: object) => void;

/** Shows answers by events. Their messages are also added to the conversation of the reader. */
export class Answers {
  readonly #emit: Emit;
  readonly #talk: AgUiMessages;
  /** By message, the tag that opened it. */
  readonly owners = new Map<string, object>();

  constructor(emit: Emit, talk: AgUiMessages) {
    this.#emit = emit;
    this.#talk = talk;
  }

  /** Make the attempt the writer's present one. What is open of another attempt ends. */
  enter(writer: Writer, step: Step): void {
    if (writer.attempt === step) return;
    this.close(writer);
    [writer.attempt, writer.shown, writer.thoughts] = [step, [], 0];
  }

  /** Note that the attempt's message has a call, and so is discarded with the attempt even if it has no text. */
  hold(writer: Writer, step: Step): void {
    this.enter(writer, step);
    const id = answerId(step, step.attempt);
    if (!writer.shown.includes(id)) writer.shown.push(id);
  }

  /** End the attempt. Return the ids of its messages. */
  end(writer: Writer, step: Step): string[] {
    this.enter(writer, step);
    this.close(writer);
    return writer.shown.splice(0);
  }

  /** Append to the open message of this kind, or to a new one. */
  grow(writer: Writer, { step, kind }: Part, delta: string): void {
    this.enter(writer, step);
    if (kind === "output") {
      const value = { delta, step: step.step, attempt: step.attempt };
      return this.#emit("CUSTOM", writer, { name: "helix.output_delta", value });
    }
    const messageId = kind === "text" ? this.#text(writer, step) : this.#thought(writer, step);
    this.#talk.append(messageId, delta);
    this.#emit(kind === "text" ? "TEXT_MESSAGE_CONTENT" : "REASONING_MESSAGE_CONTENT", writer, { messageId, delta });
  }

  /** The open message of text. */
  #text(writer: Writer, step: Step): string {
    if (writer.message !== undefined) return writer.message;
    const messageId = (writer.message = answerId(step, step.attempt));
    if (!this.owners.has(messageId)) this.owners.set(messageId, writer.tag);
    this.#emit("TEXT_MESSAGE_START", writer, { messageId, role: "assistant" });
    this.#add(writer, messageId, "assistant");
    return messageId;
  }

  /** The open message of reasoning. */
  #thought(writer: Writer, step: Step): string {
    if (writer.thought !== undefined) return writer.thought;
    writer.thoughts += 1;
    const messageId = (writer.thought = `${answerId(step, step.attempt)}/thinking/${writer.thoughts}`);
    this.#emit("REASONING_START", writer, { messageId });
    this.#emit("REASONING_MESSAGE_START", writer, { messageId, role: "reasoning" });
    this.#add(writer, messageId, "reasoning");
    return messageId;
  }

  #add(writer: Writer, id: string, role: string): void {
    writer.shown.push(id);
    this.#talk.add({ id, role, content: "", ...writer.tag });
  }

  /** End the open messages of the writer. */
  close(writer: Writer): void {
    this.endThought(writer);
    if (writer.message !== undefined) this.#emit("TEXT_MESSAGE_END", writer, { messageId: writer.message });
    writer.message = undefined;
  }

  /** End the open block of reasoning, if any. */
  endThought(writer: Writer): void {
    if (writer.thought === undefined) return;
    this.#emit("REASONING_MESSAGE_END", writer, { messageId: writer.thought });
    this.#emit("REASONING_END", writer, { messageId: writer.thought });
    writer.thought = undefined;
  }
}
