// The uploads of a client. A file is hashed, announced, sent to the store and checked by the service. Each step can be
// repeated: the address of a file is its content.
import { HelixError } from "./errors.ts";
import { checkMessage, checkSize, isLocal, label, type LocalFile, nameOf, type ReadContent } from "./files.ts";
import type { FilePart, UploadBegun, UploadFinished } from "./generated.ts";
import { type OnProgress, send } from "./send.ts";
import { type ClientSettings, hexOf } from "./settings.ts";

/** Uploads of one client at the same time. Each holds its file in memory. */
const AT_ONCE = 4;
const TRIES = 4;

export interface UploadOptions {
  /** The session whose message will name the file. Needed if `whoami` has no principal; it may be a new id then. */
  session_id?: string | undefined;
  /** Stops the upload, which then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Called with the number of bytes sent so far, and the file's size. Browsers only; elsewhere it is called at the end. */
  onProgress?: OnProgress | undefined;
}

/** The fields of `upload`. */
interface UploadFields {
  sha256: string;
  size: number;
  media_type?: string;
  name?: string;
  session_id?: string;
}

type Ask = (action: string, fields: object) => Promise<Record<string, unknown>>;

export class Uploads {
  readonly #ask: Ask;
  readonly #settings: ClientSettings;
  /** Aborted with the client's error when the client ends. */
  readonly #ended: AbortSignal;
  #free = AT_ONCE;
  #waiting: (() => void)[] = [];

  constructor(ask: Ask, settings: ClientSettings, ended: AbortSignal) {
    this.#ask = ask;
    this.#settings = settings;
    this.#ended = ended;
  }

  /**
   * The fields `message` and `files` of a request with this content, after its files are stored. `session`: asked for the
   * session before the first upload. A message that breaks a limit is rejected before that. If one file fails, the others are stopped, and the error names the one that failed.
   */
  async fieldsOf(
    { text, files }: ReadContent,
    session: () => Promise<string | undefined>,
    given?: AbortSignal,
  ): Promise<{ message?: string; files?: FilePart[] }> {
    if (files.length === 0) return { message: text };
    const message = text === "" ? {} : { message: text }; // the service takes no empty text
    given?.throwIfAborted();
    checkMessage(files);
    const session_id = files.some(({ input }) => isLocal(input)) ? await session() : undefined;
    const failed = new AbortController();
    const signal = any(failed.signal, given);
    const stored = files.map(async ({ input, after_text, kind }, index) => {
      if (!isLocal(input)) return { ...input, after_text };
      const part = await this.upload(input, { session_id, signal }, index + 1);
      if (kind !== undefined && part.kind !== kind) {
        const found = `${label(input, index + 1)} is ${part.media_type}, not ${kind === "image" ? "an image" : kind}`;
        throw new HelixError("invalid_file", `${found}: send it with its own type, or convert it`);
      }
      return { ...part, after_text };
    });
    try {
      return { ...message, files: await Promise.all(stored) };
    } catch (error) {
      failed.abort(error);
      await Promise.allSettled(stored);
      throw error;
    }
  }

  /** Store a file, and return what a message names it by. `number`: the number of the file in its message, for errors. */
  async upload(file: LocalFile, options: UploadOptions = {}, number?: number): Promise<FilePart> {
    const signal = any(this.#ended, options.signal);
    const what = label(file, number);
    checkSize(file, what);
    await this.#acquire(signal);
    try {
      const bytes = await bytesOf(file, what);
      const sha256 = await hashOf(bytes);
      const name = nameOf(file);
      const about = {
        sha256,
        ...(name !== undefined && { name }),
        ...(options.session_id !== undefined && { session_id: options.session_id }),
      };
      const media_type = file instanceof Blob && file.type !== "" ? { media_type: file.type } : {};
      const part = await this.#store({ ...about, ...media_type, size: bytes.length }, bytes, what, signal, options.onProgress);
      options.onProgress?.(bytes.length, bytes.length);
      return part;
    } finally {
      this.#release();
    }
  }

  /** Each attempt asks for a new request: the last one may have expired, or have stored the bytes and lost its response. */
  async #store(
    request: UploadFields,
    bytes: Uint8Array<ArrayBuffer>,
    what: string,
    signal: AbortSignal,
    onProgress?: OnProgress,
  ): Promise<FilePart> {
    const { sha256, name, session_id } = request;
    for (let tries = 1; ; tries += 1) {
      const begun = (await unless(signal, this.#ask("upload", request))) as unknown as UploadBegun;
      const failure = begun.upload == null ? undefined : await send(begun.upload, bytes, signal, onProgress);
      if (failure === undefined) {
        try {
          const finish = this.#ask("finish_upload", { sha256, name, session_id });
          return ((await unless(signal, finish)) as unknown as UploadFinished).file;
        } catch (error) {
          const missing = error instanceof HelixError && error.code === "file_missing";
          if (!missing || tries >= TRIES) throw error;
        }
      } else if (!failure.retry || tries >= TRIES) {
        const details = { name: name ?? null, sha256, tries };
        const advice = failure.retry ? "send it again later" : "ask the operator of the service";
        const message = `${what} was not uploaded: ${failure.why}; ${advice}`;
        throw new HelixError("transfer_failed", message, { recoverable: failure.retry, details, cause: failure.cause });
      }
      await this.#pause(tries, signal);
    }
  }

  #pause(tries: number, signal: AbortSignal): Promise<void> {
    const { backoffMs, backoffMaxMs } = this.#settings;
    const ms = Math.min(backoffMaxMs, backoffMs * 2 ** (tries - 1)) * Math.random();
    return unless(signal, new Promise((resolve) => setTimeout(resolve, ms)));
  }

  async #acquire(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#free > 0) {
      this.#free -= 1;
      return;
    }
    let turn: () => void = () => undefined;
    const released = new Promise<void>((resolve) => this.#waiting.push((turn = resolve)));
    try {
      await unless(signal, released);
    } catch (error) {
      const place = this.#waiting.indexOf(turn);
      if (place >= 0) this.#waiting.splice(place, 1);
      else this.#release(); // the slot was handed over while the upload was aborted
      throw error;
    }
  }

  #release(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free += 1;
    else next();
  }
}

/** The SHA-256 of a file, in hexadecimal. */
export const sha256Of = async (file: LocalFile): Promise<string> => await hashOf(await bytesOf(file, label(file)));

/** The bytes now. A copy of an array, because the caller may change it while it is sent. */
async function bytesOf(file: LocalFile, what: string): Promise<Uint8Array<ArrayBuffer>> {
  if (!(file instanceof Blob)) return Uint8Array.from(file);
  try {
    return new Uint8Array(await file.arrayBuffer());
  } catch (cause) {
    throw new HelixError("invalid_file", `${what} cannot be read: choose it again`, { cause });
  }
}

/** The id of the new session of a request with this idempotency key: the same in every page and process, and in Python. */
export const sessionOfKey = async (key: string): Promise<string> =>
  `ses_${(await hashOf(new TextEncoder().encode(key))).slice(0, 32)}`;

async function hashOf(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const subtle = globalThis.crypto?.subtle as SubtleCrypto | undefined;
  if (subtle === undefined) {
    throw new HelixError("no_crypto", "this page cannot hash files: load it over https, or from localhost");
  }
  return hexOf(new Uint8Array(await subtle.digest("SHA-256", bytes)));
}

const any = (one: AbortSignal, other: AbortSignal | undefined): AbortSignal =>
  other === undefined ? one : AbortSignal.any([one, other]);

/** The result of `work`, unless the signal aborts first. */
function unless<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const stop = () => reject(signal.reason as Error);
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}
