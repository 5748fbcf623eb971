import type { HelixClient } from "./client.ts";
import { HelixError } from "./errors.ts";
import type { Feed } from "./feed.ts";
import type { AgentResult, SessionState, Started, StreamChunk } from "./generated.ts";
import { type DeepPartial, type OutputItem, outputItems, partialOutputs } from "./partial-output.ts";
import { behind, chunkOf, oneRun, type StreamMessage } from "./wire.ts";

type RunPlace = Omit<Started, "replay" | "queued_id"> & Partial<Pick<Started, "queued_id">>;

/** A run of a session. It is made of plain ids: `client.handle(session_id, run_id)` makes it again anywhere. Nothing is lost
 *  when it is dropped: the run goes on. */
export class RunHandle implements AsyncIterable<StreamChunk> {
  readonly session_id: string;
  readonly run_id: string;
  readonly turn: number;
  readonly stream_id: string;
  /** The id under which the message waits, for `withdraw`. null if it started its run at once. */
  readonly queued_id: string | null;
  readonly #client: HelixClient;
  readonly #after: number;
  #first: Feed | undefined;
  #read = false;

  /** @internal `first`: what this run's first reader reads, and its end is known by. */
  constructor(client: HelixClient, place: RunPlace, first?: Feed) {
    this.session_id = place.session_id;
    this.run_id = place.run_id;
    this.turn = place.turn;
    this.stream_id = place.stream_id;
    this.queued_id = place.queued_id ?? null;
    this.#client = client;
    this.#after = place.after;
    this.#first = first;
  }

  /** The run's chunks, replayed from its beginning (or after a sequence) and then live, each once, to its end. */
  async *stream(options: { after?: number } = {}): AsyncGenerator<StreamChunk, void, undefined> {
    for await (const message of this.messages(options)) if (message.kind === "chunk") yield chunkOf(message);
  }

  [Symbol.asyncIterator](): AsyncGenerator<StreamChunk, void, undefined> {
    return this.stream();
  }

  /** Like `stream`, in wire form, the end message included. */
  async *messages(options: { after?: number } = {}): AsyncGenerator<StreamMessage, void, undefined> {
    const { after } = options;
    let feed: Feed;
    if (after === undefined && !this.#read) {
      this.#read = true;
      feed = await this.#feed();
    } else {
      const judge = oneRun(this.session_id, this.turn, this.run_id);
      const wanted = after === undefined ? judge : behind(after, judge);
      feed = await this.#client.feed(this.stream_id, this.#after, wanted);
    }
    yield* this.#client.read(feed);
  }

  /**
   * The structured output each time that it has grown, from the beginning of the run, and the whole output last. Fields that
   * have not arrived are missing, and the last string or number may be cut. `{}` follows if the answer was discarded or
   * refused. `T` is the type of the output; the values are not validated until the run has completed.
   */
  partialOutputs<T = Record<string, unknown>>(): AsyncGenerator<DeepPartial<T>, void, undefined> {
    return partialOutputs(this.stream(), this.session_id) as AsyncGenerator<DeepPartial<T>, void, undefined>;
  }

  /** Each element of a list in the structured output once, as soon as it is complete. `discarded` follows if the answer was
   *  discarded or refused: all elements before it are void. `field` is a top-level field of the output. */
  outputItems<E = unknown>(field: string): AsyncGenerator<OutputItem<E>, void, undefined> {
    return outputItems(this.stream(), this.session_id, field) as AsyncGenerator<OutputItem<E>, void, undefined>;
  }

  /**
   * How the run ended: completed, failed, interrupted or paused. It waits until the stream says that it has; a quiet stream
   * is not trusted. Rejects with `timeout` after `timeoutMs`, if given.
   */
  async result(options: { timeoutMs?: number } = {}): Promise<AgentResult> {
    const until = Date.now() + (options.timeoutMs ?? Infinity);
    while (true) {
      const { run } = await this.#client.ask("get_session", { session_id: this.session_id, run_id: this.run_id });
      if (run != null && run.status !== "running") {
        const { turn: _turn, start_sequence: _start, ...result } = run;
        return result as AgentResult;
      }
      const left = until - Date.now();
      if (left <= 0) throw new HelixError("timeout", `run ${this.run_id} has not ended`, { recoverable: true });
      const feed = await this.#feed();
      const ended = await feed.ended(Math.min(this.#client.settings.quietMs, left));
      if (feed.error !== undefined) throw feed.error;
      if (!ended) this.#client.catchUp(feed);
    }
  }

  /** Ask this run to stop at its next point; `resume` goes on. False if it does not run any more. */
  async interrupt(reason?: string): Promise<boolean> {
    return await this.#client.interrupt(this.session_id, { run_id: this.run_id, reason });
  }

  /** Fail this run for good. Idempotent; a run that has ended is left alone. */
  async abort(reason?: string): Promise<void> {
    await this.#client.abort(this.session_id, { run_id: this.run_id, reason });
  }

  /** The session's committed state. */
  async getState(): Promise<SessionState> {
    return await this.#client.getSession(this.session_id);
  }

  /** Answer a call that waits, here or in a sub-agent: a handle of the session's current run. */
  async answer(tool_call_id: string, options: Parameters<HelixClient["answer"]>[2] = {}): Promise<RunHandle> {
    return await this.#client.answer(this.session_id, tool_call_id, options);
  }

  /** A handle of the session's current run. */
  async current(): Promise<RunHandle> {
    return await this.#client.handle(this.session_id);
  }

  /** Go on as a new run. */
  async resume(options: Parameters<HelixClient["resume"]>[1] = {}): Promise<RunHandle> {
    return await this.#client.resume(this.session_id, options);
  }

  /** Try a failed session again. */
  async retry(options: Parameters<HelixClient["retry"]>[1] = {}): Promise<RunHandle> {
    return await this.#client.retry(this.session_id, options);
  }

  async #feed(): Promise<Feed> {
    this.#first ??= await this.#client.feed(this.stream_id, this.#after, oneRun(this.session_id, this.turn, this.run_id));
    return this.#first;
  }
}
