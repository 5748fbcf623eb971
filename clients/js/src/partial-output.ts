// The structured output of a run while it arrives: partial objects, and the complete elements of its lists. An output is
// provisional until its run has completed, so a reader is told when what it received is void. The twin in Python is
// `helix.core.partial_output`.
import { Allow, parse } from "partial-json";
import type { StreamChunk } from "./generated.ts";

/** A text is read again when it has grown by this part of its length, so that reading a long one many times stays cheap. */
const GROWTH = 32;
const CUT = Allow.STR | Allow.NUM | Allow.OBJ | Allow.ARR;

/** An object whose fields may not have arrived yet, at any depth. */
export type DeepPartial<T> = T extends readonly (infer E)[]
  ? DeepPartial<E>[]
  : T extends object
    ? { [K in keyof T]?: DeepPartial<T[K]> }
    : T;

/** A complete element of a list in the output, with its position in the list; or the notice that all elements so far are
 *  void, because their answer was discarded or refused. The list then starts again at index 0. */
export type OutputItem<E = unknown> = { type: "item"; index: number; value: E } | { type: "discarded"; reason: string | null };

/** JSON text that arrives in pieces. */
export class GrowingText {
  text = "";
  #due = 0;

  /** Append a piece. Return whether the text has grown enough to be read again. */
  add(delta: string): boolean {
    this.text += delta;
    if (this.text.length <= this.#due) return false;
    this.#due = this.text.length + Math.floor(this.text.length / GROWTH);
    return true;
  }
}

/** The object of an incomplete JSON text, without what is not known yet. Its last string or number may be cut. Undefined if
 *  the text is not the beginning of an object. */
export function readPartial(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = parse(text, CUT);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined; // nothing has arrived, or it is not JSON
  }
}

/** The output of a run each time that it has grown. See `RunHandle.partialOutputs`. */
export async function* partialOutputs(chunks: AsyncIterable<StreamChunk>, sessionId: string): AsyncGenerator<Record<string, unknown>> {
  let last = "";
  for await (const event of events(chunks, sessionId)) {
    const value = event.type === "text" ? readPartial(event.text) : event.type === "discarded" ? {} : event.output;
    if (!isObject(value)) continue;
    const now = JSON.stringify(value);
    if (now === last) continue;
    last = now;
    yield value;
  }
}

/** The elements of a list in the output. See `RunHandle.outputItems`. */
export async function* outputItems(chunks: AsyncIterable<StreamChunk>, sessionId: string, field: string): AsyncGenerator<OutputItem> {
  let given: string[] = [];
  for await (const event of events(chunks, sessionId)) {
    let reason: string | null | undefined = event.type === "discarded" ? event.reason : undefined;
    let found: unknown[] = [];
    if (event.type === "text") found = elements(readPartial(event.text), field, event.whole);
    if (event.type === "given") {
      found = elements(event.output, field, true);
      if (given.some((one, n) => one !== JSON.stringify(found[n]))) reason = "the output differs from its text";
    }
    if (reason !== undefined && given.length > 0) {
      given = [];
      yield { type: "discarded", reason };
    }
    for (const value of found.slice(given.length)) {
      given.push(JSON.stringify(value));
      yield { type: "item", index: given.length - 1, value };
    }
  }
}

type Event =
  | { type: "text"; text: string; whole: boolean }
  | { type: "given"; output: unknown }
  | { type: "discarded"; reason: string | null };

/** What happens to the output of the session. Chunks of sub-agents are ignored. */
async function* events(chunks: AsyncIterable<StreamChunk>, sessionId: string): AsyncGenerator<Event> {
  let place: string | undefined;
  let growing = new GrowingText();
  let isGiven = false;
  for await (const chunk of chunks) {
    if (chunk.agent_id !== sessionId) continue;
    const at = `${chunk.run_id} ${chunk.step} ${chunk.attempt}`;
    switch (chunk.type) {
      case "output_delta":
        if (place !== undefined && place !== at) yield { type: "discarded", reason: "the answer was refused" };
        if (place !== at) [place, growing] = [at, new GrowingText()];
        if (growing.add(chunk.delta)) yield { type: "text", text: growing.text, whole: false };
        break;
      case "step_committed":
        if (place === at) yield { type: "text", text: growing.text, whole: true };
        break;
      case "step_discarded":
      case "stream_resync":
        if (place === undefined || (chunk.type === "step_discarded" && !place.endsWith(` ${chunk.step} ${chunk.attempt}`))) break;
        place = undefined;
        yield { type: "discarded", reason: chunk.reason };
        break;
      case "output":
        isGiven = true;
        yield { type: "given", output: chunk.output };
    }
  }
  if (place !== undefined && !isGiven) yield { type: "discarded", reason: "the run ended without an output" };
}

/** The complete elements. The last one of an incomplete output is complete when the model goes on after it. */
function elements(output: unknown, field: string, whole: boolean): unknown[] {
  const items = isObject(output) ? output[field] : undefined;
  if (!Array.isArray(items)) return [];
  return whole || Object.keys(output as object).at(-1) !== field ? items : items.slice(0, -1);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
