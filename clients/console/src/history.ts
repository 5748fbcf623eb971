// The whole stream of a session, read from its beginning when somebody wants to see what happened, and then followed.
import { signal } from "@preact/signals";
import { said, service } from "./api.ts";
import { Timeline } from "./timeline.ts";
import { chunkOf, type StreamMessage } from "./wire.ts";

const DRAW_MS = 50;

export class History {
  readonly timeline: Timeline;
  readonly drawn = signal(0);
  readonly problem = signal("");
  readonly #id: string;
  #started = false;
  #closed = false;
  #drawing = false;
  #reading: AsyncGenerator<StreamMessage, void, undefined> | undefined;

  constructor(id: string) {
    this.#id = id;
    this.timeline = new Timeline(id);
  }

  /** Idempotent. */
  start(): void {
    if (this.#started) return;
    this.#started = true;
    this.#read().catch((error: unknown) => {
      if (!this.#closed) this.problem.value = said(error);
    });
  }

  close(): void {
    this.#closed = true;
    void this.#reading?.return();
  }

  async #read(): Promise<void> {
    this.#reading = service().follow(this.#id, { after: 0 });
    for await (const message of this.#reading) {
      if (this.#closed) return;
      this.timeline.take(message, message.kind === "chunk" ? chunkOf(message) : undefined);
      if (this.#drawing) continue;
      this.#drawing = true;
      setTimeout(() => {
        this.#drawing = false;
        this.drawn.value++;
      }, DRAW_MS);
    }
  }
}
