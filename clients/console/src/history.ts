// The stream of a session, read when somebody wants to see what happened, and then followed. A long one is shown from its end
// at once, and the whole takes its place when it is read.
import { signal } from "@preact/signals";
import { said, service } from "./api.ts";
import { Timeline } from "./timeline.ts";
import { chunkOf, type StreamMessage } from "./wire.ts";

const DRAW_MS = 50;
/** Steps after which the page is drawn more rarely, because each draw looks at all of them. */
const MANY = 2_000;
/** Messages of one read, the most that the service gives. */
const PAGE = 1_000;
/** The longest wait for the first draw before the beginning is read. */
const PATIENCE_MS = 2_000;
/** Reads that are under way at the same time. */
const AT_ONCE = 3;

export class History {
  /** What is known so far: of a long stream its end, until the whole is read. */
  timeline: Timeline;
  readonly drawn = signal(0);
  readonly problem = signal("");
  /** The messages that are read of those that are stored, while the beginning is on its way. */
  readonly reading = signal<{ read: number; all: number } | undefined>(undefined);
  /** Whether it takes more than one read, so that its end is shown first. */
  isLong = false;
  readonly #id: string;
  #started = false;
  #closed = false;
  #drawing = false;
  #isWhole = false;
  /** What was followed while the beginning was on its way. */
  #later: StreamMessage[] = [];
  #onShown: () => void = () => undefined;
  /** Resolves when the page has drawn something: the beginning is read after that, so that it does not delay the end. */
  readonly #shown = new Promise<void>((shown) => (this.#onShown = shown));
  #following: AsyncGenerator<StreamMessage, void, undefined> | undefined;

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
    void this.#following?.return();
  }

  async #read(): Promise<void> {
    const { snapshot, runs = [] } = await service().ask("get_session", { session_id: this.#id, snapshot: true, newest: 1, runs: 100 });
    const end = Math.max(0, (snapshot?.sequence ?? 0) - PAGE);
    this.isLong = end > 0;
    this.timeline.know(runs);
    const whole = new Timeline(this.#id);
    whole.know(runs);
    if (end > 0) {
      this.reading.value = { read: 0, all: end };
      for (const message of await this.#page(end, PAGE)) this.#take(message); // sooner than a subscription gives them
    }
    const begun = this.#follow(this.#later.at(-1)?.sequence ?? end, whole);
    if (end > 0) {
      await Promise.race([this.#shown, new Promise((waited) => setTimeout(waited, PATIENCE_MS))]);
      await this.#readBefore(end, whole);
    }
    await begun;
  }

  /** Read the messages up to the sequence `end`, and then show the whole in place of the end. */
  async #readBefore(end: number, whole: Timeline): Promise<void> {
    const pages: Promise<StreamMessage[]>[] = [];
    let [asked, last] = [0, 0];
    while (!this.#closed) {
      for (; pages.length < AT_ONCE && asked < end; asked += PAGE) {
        const page = this.#page(asked, Math.min(PAGE, end - asked));
        page.catch(() => undefined); // it is awaited below, or the read of an earlier one has failed
        pages.push(page);
      }
      const page = pages.shift();
      if (page === undefined) break;
      for (const message of await page) {
        if (message.sequence <= last || message.sequence > end) continue; // a page after a gap repeats what follows it
        last = message.sequence;
        take(whole, message);
      }
      this.reading.value = { read: Math.min(asked - pages.length * PAGE, end), all: end };
    }
    if (this.#closed) return;
    for (const message of this.#later) take(whole, message);
    [this.timeline, this.#later, this.#isWhole] = [whole, [], true];
    this.reading.value = undefined;
    this.#draw();
  }

  async #follow(after: number, whole: Timeline): Promise<void> {
    if (after === 0) [this.timeline, this.#isWhole] = [whole, true];
    this.#following = service().follow(this.#id, { after });
    for await (const message of this.#following) {
      if (this.#closed) return;
      this.#take(message);
    }
  }

  async #page(after: number, limit: number): Promise<StreamMessage[]> {
    const { messages } = await service().ask("read_stream", { session_id: this.#id, after, limit });
    return messages as unknown as StreamMessage[];
  }

  #take(message: StreamMessage): void {
    take(this.timeline, message);
    if (!this.#isWhole) this.#later.push(message);
    this.#draw();
  }

  #draw(): void {
    if (this.#drawing) return;
    this.#drawing = true;
    const many = this.timeline.runs.reduce((sum, run) => sum + run.sums.steps, 0) > MANY;
    setTimeout(
      () => {
        this.#drawing = false;
        this.drawn.value++;
        requestAnimationFrame(() => this.#onShown());
      },
      many ? DRAW_MS * 5 : DRAW_MS,
    );
  }
}

function take(timeline: Timeline, message: StreamMessage): void {
  timeline.take(message, message.kind === "chunk" ? chunkOf(message) : undefined);
}
