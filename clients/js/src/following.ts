// Which streams the readers need, and asking again for what did not come. A stream is asked for from the earliest place that
// one of its feeds needs, by one request at a time; a new connection asks for all streams that are still read.
import { HelixError } from "./errors.ts";
import { Feed } from "./feed.ts";
import { type ClientSettings, sleep } from "./settings.ts";
import type { Judge, StreamMessage } from "./wire.ts";

export type Ask = (action: string, fields: object) => Promise<Record<string, unknown>>;

const MAX_STREAMS = 24; // subscriptions that a connection holds; the service allows a few more
const MAX_EARLY = 4_000;
const SLOWEST_MS = 5_000;

export class Following {
  readonly #ask: Ask;
  readonly #settings: ClientSettings;
  #feeds = new Map<string, Feed[]>();
  #subscribed = new Set<string>();
  /** Streams that are asked for now, and whether to ask once more. */
  #asking = new Map<string, boolean>();
  #starting = 0;
  #early: StreamMessage[] = [];
  #failed = false;

  constructor(ask: Ask, settings: ClientSettings) {
    this.#ask = ask;
    this.#settings = settings;
  }

  // --- for readers ----------------------------------------------------------------------------------------------------

  /** `work` asks for a run: its first messages may be here before its stream is known. */
  async starting<T>(work: () => Promise<T>): Promise<T> {
    this.#starting += 1;
    try {
      return await work();
    } finally {
      this.#starting -= 1;
      if (this.#starting === 0) this.#early = [];
    }
  }

  /** A feed of the stream from behind `after`. `subscribed`: the service posts what comes behind that already. */
  add(streamId: string, after: number, judge: Judge, subscribed: boolean): Feed {
    const feed = new Feed(streamId, after, judge, this.#settings.buffer);
    this.#feeds.set(streamId, [...this.#of(streamId), feed]);
    this.#offer(
      feed,
      this.#early.filter((message) => message.stream_id === streamId),
    );
    this.#subscribed.add(streamId);
    if (!subscribed) this.catchUp(feed);
    return feed;
  }

  /** The feed to its end, to be iterated once. */
  async *read(feed: Feed): AsyncGenerator<StreamMessage, void, undefined> {
    try {
      while (true) {
        const message = await feed.next(this.#settings.quietMs);
        if (message !== undefined) yield message;
        else if (feed.done) return;
        else this.catchUp(feed);
        if (feed.dropped && !feed.waiting) {
          feed.dropped = false;
          this.catchUp(feed);
        }
      }
    } finally {
      this.leave(feed);
    }
  }

  leave(feed: Feed): void {
    const rest = this.#of(feed.streamId).filter((other) => other !== feed);
    if (rest.length > 0) this.#feeds.set(feed.streamId, rest);
    else this.#feeds.delete(feed.streamId);
  }

  /** Before another stream: unsubscribe from those that nobody reads any more, if there are many. */
  async makeRoom(): Promise<void> {
    if (this.#subscribed.size < MAX_STREAMS) return;
    for (const streamId of [...this.#subscribed]) {
      if (this.#feeds.has(streamId) || this.#asking.has(streamId)) continue;
      if (!this.#subscribed.delete(streamId)) continue; // another caller unsubscribes from it
      try {
        await this.#ask("unsubscribe", { stream_id: streamId });
      } catch (error) {
        if (!(error instanceof HelixError) || error.code !== "session_not_found") throw error; // the stream is gone
      }
    }
  }

  // --- for the link ---------------------------------------------------------------------------------------------------

  /** A new connection has no subscriptions. */
  onOpen(): void {
    this.#subscribed.clear();
    for (const feeds of [...this.#feeds.values()]) this.catchUp(feeds[0] as Feed);
  }

  onMessages(streamId: string, messages: StreamMessage[]): void {
    for (const feed of this.#of(streamId)) this.#offer(feed, messages);
    if (this.#starting === 0) return;
    this.#early.push(...messages); // also what a reader has: the run that starts may be on the same stream
    if (this.#early.length > MAX_EARLY) this.#early.splice(0, this.#early.length - MAX_EARLY); // shows as a gap
  }

  onLagging(streamId: string): void {
    const feed = this.#of(streamId)[0];
    if (feed !== undefined) this.catchUp(feed);
  }

  /** Once, when the link has given up. */
  onFail(error: Error): void {
    this.#failed = true;
    for (const feeds of this.#feeds.values()) for (const feed of feeds) feed.fail(error);
    this.#feeds.clear();
  }

  #of(streamId: string): readonly Feed[] {
    return this.#feeds.get(streamId) ?? [];
  }

  #offer(feed: Feed, messages: readonly StreamMessage[]): void {
    feed.offer(messages);
    if (feed.done) this.leave(feed);
    else if (feed.hasGap && !this.#asking.has(feed.streamId)) {
      void this.#catchUp(feed.streamId, this.#settings.reorderMs);
    }
  }

  // --- asking again ---------------------------------------------------------------------------------------------------

  /** Ask for what is behind the place of the stream's feeds, now. */
  catchUp(feed: Feed): void {
    if (this.#asking.has(feed.streamId)) this.#asking.set(feed.streamId, true); // once more, when this is done
    else void this.#catchUp(feed.streamId, 0);
  }

  async #catchUp(streamId: string, delayMs: number): Promise<void> {
    this.#asking.set(streamId, delayMs === 0);
    let [pauseMs, reached, slowest] = [this.#settings.reorderMs, -1, undefined as Feed | undefined];
    try {
      if (delayMs > 0) await sleep(delayMs);
      for (let feeds = this.#of(streamId); feeds.length > 0; feeds = this.#of(streamId)) {
        if (!this.#asking.get(streamId) && !feeds.some((feed) => feed.hasGap)) return;
        this.#asking.set(streamId, false);
        const last = feeds.reduce((one, other) => (other.position < one.position ? other : one));
        const { position } = last;
        const moves = last !== slowest || position > reached; // another reader may begin where one has been
        pauseMs = moves ? this.#settings.reorderMs : Math.min(SLOWEST_MS, pauseMs * 2);
        [reached, slowest] = [position, last];
        try {
          await this.#replay(streamId, position);
        } catch (error) {
          if (!(error instanceof HelixError) || error.code !== "timeout") throw error;
          this.#asking.set(streamId, true);
        }
        await sleep(pauseMs);
      }
    } catch (error) {
      this.#failStream(streamId, error as Error);
    } finally {
      this.#asking.delete(streamId);
    }
  }

  async #replay(streamId: string, after: number): Promise<void> {
    while (true) {
      this.#subscribed.add(streamId);
      const answer = await this.#ask("subscribe", { stream_id: streamId, after });
      if (answer["complete"] !== false) return;
      after = Number(answer["caught_up"]);
    }
  }

  /** Nothing more of this stream can be read. */
  #failStream(streamId: string, error: Error): void {
    if (this.#failed) return;
    for (const feed of this.#of(streamId)) feed.fail(error);
    this.#feeds.delete(streamId);
  }
}
