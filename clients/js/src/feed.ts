// A reader's messages. They leave in the order of their sequences, each once, none left out.
import { isResync, type Judge, type StreamMessage } from "./wire.ts";

export class Feed {
  readonly streamId: string;
  /** The sequence of the last message that was taken. */
  position: number;
  done = false;
  error: Error | undefined;
  /** Messages were forgotten, because nobody read: they are asked for when the reader comes. */
  dropped = false;
  readonly #judge: Judge;
  readonly #limit: number;
  #early = new Map<number, StreamMessage>();
  #ready: StreamMessage[] = [];
  #wakes = new Set<() => void>();

  /** `after`: the sequence behind which it begins. `judge` sees each message once, in order. `limit`: messages for a reader
   *  that does not read. */
  constructor(streamId: string, after: number, judge: Judge, limit: number) {
    this.streamId = streamId;
    this.position = after;
    this.#judge = judge;
    this.#limit = limit;
  }

  /** Whether later messages are here, and the next one is not. */
  get hasGap(): boolean {
    return this.#early.size > 0 && !this.done;
  }

  get waiting(): boolean {
    return this.#ready.length > 0;
  }

  /** Take what a frame has brought. */
  offer(messages: readonly StreamMessage[]): void {
    if (this.done) return;
    for (const message of messages) {
      if (message.sequence > this.position) this.#early.set(message.sequence, message);
    }
    this.#advance();
    if (this.#early.size <= this.#limit) return;
    // The nearest stay: what closes the gap is never refused.
    this.#early = new Map([...this.#early].sort(([a], [b]) => a - b).slice(0, this.#limit));
    this.dropped = true;
  }

  fail(error: Error): void {
    this.error = error;
    this.#end();
  }

  /** Whether the last message is here, within `waitMs`, read or not. */
  async ended(waitMs: number): Promise<boolean> {
    const until = Date.now() + waitMs;
    for (let left = waitMs; !this.done && left > 0; left = until - Date.now()) await this.#change(left);
    return this.done;
  }

  /** The next message; undefined at the end, or if none came in `waitMs` (see `done`). */
  async next(waitMs: number): Promise<StreamMessage | undefined> {
    if (!this.waiting && !this.done) await this.#change(waitMs);
    const message = this.#ready.shift();
    if (message === undefined && this.error !== undefined) throw this.error;
    return message;
  }

  #change(waitMs: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.#wakes.delete(wake);
        resolve();
      };
      const timer = setTimeout(wake, waitMs);
      this.#wakes.add(wake);
    });
  }

  #changed(): void {
    for (const wake of [...this.#wakes]) wake();
  }

  #end(): void {
    this.done = true;
    this.#changed();
  }

  #advance(): void {
    while (this.#early.size > 0 && !this.done && this.#ready.length < this.#limit) {
      const message = this.#early.get(this.position + 1) ?? this.#resync();
      if (message === undefined) return;
      this.#early.delete(message.sequence);
      this.position = message.sequence;
      const verdict = this.#judge(message);
      if (verdict === "show" || verdict === "last") this.#ready.push(message);
      if (verdict === "last" || verdict === "over") this.#end();
      else this.#changed();
    }
    const full = this.#ready.length >= this.#limit;
    if (full && !this.done) this.dropped = true;
    if (full || this.done) this.#early.clear();
  }

  /** The log has lost its beginning: what it says of that stands for all before. */
  #resync(): StreamMessage | undefined {
    const found = [...this.#early.values()].filter(isResync).sort((a, b) => b.sequence - a.sequence)[0];
    if (found === undefined) return undefined;
    for (const sequence of this.#early.keys()) if (sequence < found.sequence) this.#early.delete(sequence);
    return found;
  }
}
