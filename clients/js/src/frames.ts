// What goes through a socket: requests over the limit of a frame in parts, and parts of messages whole again.
import { HelixError } from "./errors.ts";

export const SUBPROTOCOL = "helix.v1";
/** The service's limit of a request, in bytes of UTF-8. */
export const MAX_REQUEST_BYTES = 128 * 1024;
const MAX_FRAME_BYTES = 32 * 1024 - 14; // of a frame's payload: the longest header of a frame has 14 bytes
const PART_CHARS = 10_000; // fits a frame whatever it contains
const MAX_PARTS = 2048;
const OPEN_TEXTS = 32;

/** The request's text as frames: itself if it fits one, or its parts. A browser cannot choose the frames of a message. */
export function framesOf(text: string, id: string): string[] {
  const size = new TextEncoder().encode(text).length;
  if (size > MAX_REQUEST_BYTES) {
    throw new HelixError("invalid_message", `the message has ${size} bytes; the limit is ${MAX_REQUEST_BYTES}`, {
      details: { field: "body" },
    });
  }
  if (size <= MAX_FRAME_BYTES) return [text];
  const pieces: string[] = [];
  for (let start = 0; start < text.length; ) {
    let end = Math.min(start + PART_CHARS, text.length);
    if (end < text.length && isHighSurrogate(text.charCodeAt(end - 1))) end -= 1;
    pieces.push(text.slice(start, end));
    start = end;
  }
  return pieces.map((data, index) =>
    JSON.stringify({ v: 1, type: "part", part: id, index, total: pieces.length, data }),
  );
}

const isHighSurrogate = (unit: number): boolean => unit >= 0xd800 && unit <= 0xdbff;

/** Makes texts of parts, whatever their order and however often each comes. One for each connection. */
export class Joiner {
  #open = new Map<string, { total: number; parts: Map<number, string> }>();

  /** The text, once this part makes it whole. Throws `invalid_message` for what is no part. */
  add(part: Record<string, unknown>): string | undefined {
    const { part: id, index, total, data } = part;
    if (typeof id !== "string" || !isCount(index) || !isCount(total) || typeof data !== "string") {
      throw new HelixError("invalid_message", "a part has part, index, total and data");
    }
    let text = this.#open.get(id);
    if (total < 1 || total > MAX_PARTS || index >= total || (text !== undefined && text.total !== total)) {
      throw new HelixError("invalid_message", `part ${index} of ${total} cannot be`);
    }
    if (text === undefined) this.#open.set(id, (text = { total, parts: new Map() }));
    text.parts.set(index, data);
    if (text.parts.size === total) {
      this.#open.delete(id);
      return Array.from({ length: total }, (_, i) => text.parts.get(i)).join("");
    }
    for (const oldest of this.#open.keys()) {
      if (this.#open.size <= OPEN_TEXTS) break;
      this.#open.delete(oldest);
    }
    return undefined;
  }
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
