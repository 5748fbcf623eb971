// The attempts at the steps of one session: the parts of their answers, and what a discard takes away. Pieces are appended to
// the current attempt. A piece of another attempt ends the open part of the current one. The text of an interrupted run is
// retained until another attempt at the step begins.
import type { Chunks } from "../generated.ts";
import type { Change } from "./changes.ts";
import type { Conversation } from "./conversation.ts";
import { endServed, INTERRUPTED, type PartKind, servedCall, Step } from "./items.ts";

type AnswerChunk = Chunks[
  "text_delta" | "output_delta" | "thinking" | "server_tool" | "citation" | "step_committed" | "step_discarded"
];

export class Attempts {
  readonly #conversation: Conversation;
  #runId = "";
  #current: Step | undefined;
  #retained: Step | undefined;

  constructor(conversation: Conversation) {
    this.#conversation = conversation;
  }

  /** Note the session's new run. Return the attempt of the interrupted run that it continues, if its text was retained. */
  beginRun(runId: string, continues: boolean): Step | undefined {
    this.#runId = runId;
    if (!continues) this.#retained = undefined;
    return this.#retained;
  }

  take(chunk: AnswerChunk): Change[] {
    switch (chunk.type) {
      case "text_delta":
        return this.grow("text", chunk.step, chunk.attempt, chunk.delta);
      case "output_delta":
        return this.grow("output", chunk.step, chunk.attempt, chunk.delta);
      case "thinking":
        if (chunk.is_complete) return this.#completeReasoning(chunk);
        return this.grow("reasoning", chunk.step, chunk.attempt, chunk.content);
      case "server_tool":
        return this.#takeServed(chunk);
      case "citation":
        return this.#cite(chunk);
      case "step_committed":
        return this.#commit(chunk);
      case "step_discarded":
        return this.#discard(chunk);
      default:
        return chunk satisfies never;
    }
  }

  /** Append a piece to the open part of the attempt, or to a new part. */
  grow(kind: PartKind, step: number, attempt: number, delta: string): Change[] {
    const out: Change[] = [];
    const found = this.#begin(step, attempt, out);
    if (found === undefined) return out;
    let part = found.open;
    if (part?.kind !== kind) {
      endPart(found, out);
      part = found.open = found.add(kind, "");
      out.push({ type: "PartBegan", part });
    }
    part.text += delta;
    out.push({ type: "PartGrew", part, delta });
    return out;
  }

  /** End the open block of reasoning, whose pieces the chunk repeats. Without one, add the block. */
  #completeReasoning(chunk: Chunks["thinking"]): Change[] {
    const out: Change[] = [];
    const found = this.#begin(chunk.step, chunk.attempt, out);
    if (found === undefined) return out;
    if (found.open?.kind !== "reasoning") out.push(...this.grow("reasoning", chunk.step, chunk.attempt, chunk.content));
    endPart(found, out);
    return out;
  }

  /** Note a call of the provider's own tool, which ends the open part. It is shown once its arguments are known. */
  #takeServed(chunk: Chunks["server_tool"]): Change[] {
    const out: Change[] = [];
    const found = this.#begin(chunk.step, chunk.attempt, out);
    if (found === undefined) return out;
    endPart(found, out);
    const before = found.served.get(chunk.tool_call_id);
    if (before === undefined && Object.keys(chunk.arguments).length === 0 && !chunk.done) return out;
    const call = before ?? servedCall(found, chunk.tool_call_id, chunk.tool_name);
    found.served.set(chunk.tool_call_id, call);
    if (before === undefined || JSON.stringify(chunk.arguments) !== JSON.stringify(call.arguments)) {
      call.arguments = chunk.arguments;
      out.push({ type: "CallStarted", call });
    }
    if (chunk.done && call.state === "running") {
      endServed(call, chunk.result, chunk.error);
      out.push({ type: "CallEnded", call });
    }
    return out;
  }

  #cite({ step, attempt, start, end, url, title, quote }: Chunks["citation"]): Change[] {
    const out: Change[] = [];
    const found = this.#begin(step, attempt, out);
    if (found === undefined) return out;
    const source = { start, end, url, title, quote };
    found.citations.push(source);
    return [...out, { type: "TextCited", step: found, source }];
  }

  #commit(chunk: Chunks["step_committed"]): Change[] {
    const out: Change[] = [];
    const step = this.#begin(chunk.step, chunk.attempt, out);
    if (step === undefined) return out;
    endPart(step, out);
    endCalls(step, null, out);
    [step.state, step.model, step.usage] = ["committed", chunk.model, chunk.usage];
    step.cut = chunk.stop_reason === INTERRUPTED;
    this.#current = undefined;
    out.push({ type: "StepCommitted", step });
    return out;
  }

  /** Discard an attempt. One that showed nothing gets no item. */
  #discard(chunk: Chunks["step_discarded"]): Change[] {
    const out: Change[] = [];
    const step = this.#find(chunk.step, chunk.attempt) ?? this.#made(chunk.step, chunk.attempt);
    if (step.state === "committed") return out;
    this.#leave(step, out);
    endPart(step, out);
    endCalls(step, "the attempt was discarded", out);
    this.#current = undefined;
    [step.state, step.why, step.retained] = ["discarded", chunk.reason, chunk.status === "interrupted"];
    if (step.parts.length + step.served.size > 0) this.#retained = step.retained ? step : undefined;
    out.push({ type: "StepDiscarded", step });
    return out;
  }

  /** Return the attempt that a piece or a commit belongs to, and make it the current one. Return undefined if its answer is
   *  committed already. */
  #begin(step: number, attempt: number, out: Change[]): Step | undefined {
    const current = this.#current;
    if (current?.step === step && current.attempt === attempt && current.runId === this.#runId) return current;
    let found = this.#find(step, attempt);
    if (found?.state === "committed") return undefined;
    if (found === undefined) {
      found = this.#made(step, attempt);
      this.#leave(found, out);
      this.#conversation.items.push(found);
      out.push({ type: "StepBegan", step: found, replaces: this.#replaced(step) });
    }
    this.#leave(found, out);
    this.#current = found;
    return found;
  }

  #made(step: number, attempt: number): Step {
    return new Step(this.#conversation, this.#runId, step, attempt);
  }

  /** Return the attempt whose retained text disappears when another attempt at the step begins. Without one, the retained
   *  text stays. */
  #replaced(step: number): Step | undefined {
    const retained = this.#retained;
    this.#retained = undefined;
    if (retained?.step !== step) return undefined;
    retained.retained = false;
    return retained;
  }

  /** End the open part of the current attempt if another attempt goes on. */
  #leave(next: Step, out: Change[]): void {
    if (this.#current !== undefined && this.#current !== next) endPart(this.#current, out);
  }

  /** Return the attempt of the present run, unless it was discarded. An answer of the stored messages does not have the
   *  number of its attempt, and is the one for every attempt. */
  #find(step: number, attempt: number): Step | undefined {
    return this.#conversation.items.findLast((item): item is Step => {
      if (item.type !== "step" || item.step !== step || item.state === "discarded") return false;
      const stored = item.attempt === 0 && item.state === "committed";
      return stored || (item.runId === this.#runId && item.attempt === attempt);
    });
  }
}

/** End the provider's calls whose result is not part of the answer: it may be in the next one. */
function endCalls(step: Step, error: string | null, out: Change[]): void {
  for (const call of step.served.values()) {
    if (call.state !== "running") continue;
    endServed(call, null, error);
    out.push({ type: "CallEnded", call });
  }
}

function endPart(step: Step, out: Change[]): void {
  const part = step.open;
  step.open = undefined;
  if (part !== undefined) out.push({ type: "PartEnded", part });
}
