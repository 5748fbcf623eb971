// Custom state on the stream: a view of the state that its patches hold up to date.
import { HelixError } from "./errors.ts";
import type { StreamChunk } from "./generated.ts";
import { applyPatches, type Json, type JsonObject, same } from "./patches.ts";

/** The committed state, with every `state_patch` up to and including `sequence` in it. A `SessionSnapshot` is one. */
export interface StateSnapshot {
  custom_state: Record<string, unknown>;
  sequence: number;
}

export interface ProjectorOptions<T> {
  /** What of the state is of interest: a pure function of it. Default: the whole state. */
  project?: (state: JsonObject) => T;
  /** Asked where the stream cannot say how to go on; without it, `feed` rejects with `stale_state` then. */
  load?: () => Promise<StateSnapshot>;
}

/**
 * Follows the state of one session from `snapshot` on; other sessions on the stream are other states. A projector that starts
 * from the state at sequence s and takes every later chunk holds the committed state.
 */
export class StateProjector<T = JsonObject> {
  readonly #sessionId: string;
  readonly #project: (state: JsonObject) => T;
  readonly #load: (() => Promise<StateSnapshot>) | undefined;
  #state: JsonObject;
  #sequence: number;
  #seen: T;

  constructor(sessionId: string, snapshot: StateSnapshot, options: ProjectorOptions<T> = {}) {
    this.#sessionId = sessionId;
    this.#project = options.project ?? ((state) => state as T);
    this.#load = options.load;
    this.#state = structuredClone(snapshot.custom_state) as JsonObject;
    this.#sequence = snapshot.sequence;
    this.#seen = this.value;
  }

  /** The projected value now; the caller's own to change. */
  get value(): T {
    return this.#project(structuredClone(this.#state));
  }

  /** Take in one chunk; true if the projected value changed by it. */
  async feed(chunk: StreamChunk): Promise<boolean> {
    if (chunk.session_id !== this.#sessionId || (chunk.sequence > 0 && chunk.sequence <= this.#sequence)) return false;
    if (chunk.type === "state_patch") {
      try {
        this.#state = applyPatches(this.#state, chunk.patches);
      } catch (error) {
        if (!(error instanceof HelixError)) throw error;
        await this.#reload(error);
      }
    } else if (chunk.type === "stream_resync") await this.#reload(undefined);
    else return false;
    this.#sequence = Math.max(this.#sequence, chunk.sequence);
    const value = this.value;
    if (same(value as Json, this.#seen as Json)) return false;
    this.#seen = value;
    return true;
  }

  async #reload(cause: unknown): Promise<void> {
    if (this.#load === undefined) {
      const problem = `the stream cannot go on with the state of ${this.#sessionId}: load it again, or give load`;
      throw new HelixError("stale_state", problem, { cause, recoverable: true });
    }
    const snapshot = await this.#load();
    this.#state = structuredClone(snapshot.custom_state) as JsonObject;
    this.#sequence = snapshot.sequence;
  }
}
