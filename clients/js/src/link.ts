// One lasting conversation with the service over connections that do not last. A request is answered once, or fails in time;
// what is unanswered for long, or when a connection ends, is asked again under the same id. Requests are made so that this is
// harmless: those that start something carry a key.
import { errorOf, HelixError } from "./errors.ts";
import { Following } from "./following.ts";
import { framesOf, Joiner, SUBPROTOCOL } from "./frames.ts";
import { type ClientSettings, sleep } from "./settings.ts";
import { messageOf } from "./wire.ts";

/** A token, or a function that gives one: it is asked at each connection, and when the service wants a new proof. */
export type Token = string | (() => string | Promise<string>) | undefined;

type Result = Record<string, unknown>;

interface Asked {
  id: string;
  frames: string[];
  resolve(result: Result): void;
  reject(error: Error): void;
}

const TRIES = 3;
const OPEN = 1; // of WebSocket

export class SocketLink {
  readonly following: Following;
  /** How often it has connected. */
  connections = 0;
  /** Aborted with the link's error once it is closed or has given up. */
  readonly ended: AbortSignal;
  /** Called with whether there is a connection, when that changes. */
  onConnection: ((connected: boolean) => void) | undefined;
  readonly #url: string;
  readonly #token: Token;
  readonly #settings: ClientSettings;
  #socket: WebSocket | undefined;
  #end: (() => void) | undefined;
  #asked = new Map<string, Asked>();
  #asks = 0;
  #long: Promise<unknown> = Promise.resolve();
  #renewing: Promise<void> | undefined;
  #joiner = new Joiner();
  #heard = false;
  #error: Error | undefined;
  readonly #over = new AbortController();
  #stop: (() => void) | undefined;
  readonly #opened: Promise<void>;
  #opens!: { resolve: () => void; reject: (error: Error) => void };
  #sendingAgain = false;
  #tries = 0;

  constructor(url: string, token: Token, settings: ClientSettings) {
    this.#url = url;
    this.#token = token;
    this.#settings = settings;
    this.ended = this.#over.signal;
    this.following = new Following((action, fields) => this.ask(action, fields), settings);
    // Node 20 has no `Promise.withResolvers`.
    this.#opened = new Promise((resolve, reject) => (this.#opens = { resolve, reject }));
    this.#opened.catch(() => undefined); // who has not asked for it has not to hear of it
  }

  /** Connect. Rejects with `connection_lost` where nothing answers for `openMs`, or where the token is refused: a browser does
   *  not say which. */
  async open(): Promise<void> {
    void this.#live();
    await this.#opened;
  }

  /** Idempotent. What is unanswered fails with `closed`. */
  close(): void {
    this.#fail(new HelixError("closed", "the client is closed"));
  }

  // --- asking ---------------------------------------------------------------------------------------------------------

  /** The result. Rejects with the service's error, `timeout` or `connection_lost`. */
  async ask(action: string, fields: object): Promise<Result> {
    try {
      return await this.#ask(action, fields);
    } catch (error) {
      const expired = error instanceof HelixError && error.code === "not_authenticated";
      if (!expired || action === "authenticate" || typeof this.#token !== "function") throw error;
      this.#renewing ??= this.#renew().finally(() => (this.#renewing = undefined));
      await this.#renewing;
      return await this.#ask(action, fields);
    }
  }

  async #renew(): Promise<void> {
    await this.#ask("authenticate", { token: await this.#freshToken() });
  }

  async #ask(action: string, fields: object): Promise<Result> {
    if (this.#error !== undefined) throw this.#error;
    this.#asks += 1;
    const id = `r${this.#asks}`;
    const frames = framesOf(JSON.stringify({ v: 1, action, id, ...fields }), id);
    if (frames.length === 1) return await this.#answered(id, action, frames);
    const before = this.#long; // few requests in parts may wait at the service at a time: one does
    const answer = (async () => {
      await before.catch(() => undefined);
      return await this.#answered(id, action, frames);
    })();
    this.#long = answer;
    return await answer;
  }

  #answered(id: string, action: string, frames: string[]): Promise<Result> {
    const { requestMs } = this.#settings;
    return new Promise<Result>((resolve, reject) => {
      if (this.#error !== undefined) return reject(this.#error);
      const again = setInterval(() => this.#send(asked), requestMs / TRIES);
      const late = setTimeout(
        () => asked.reject(new HelixError("timeout", `${action}: no answer within ${requestMs} ms`, { recoverable: true })),
        requestMs,
      );
      const done = () => {
        clearInterval(again);
        clearTimeout(late);
        this.#asked.delete(id);
      };
      const asked: Asked = {
        id,
        frames,
        resolve: (result) => (done(), resolve(result)),
        reject: (error) => (done(), reject(error)),
      };
      this.#asked.set(id, asked);
      this.#send(asked);
    });
  }

  /** What cannot be sent now is sent by the next connection. */
  #send(asked: Asked): void {
    if (this.#socket?.readyState !== OPEN) return;
    for (const frame of asked.frames) this.#socket.send(frame);
  }

  #sendAll(): void {
    for (const asked of this.#asked.values()) this.#send(asked);
  }

  // --- living ---------------------------------------------------------------------------------------------------------

  async #live(): Promise<void> {
    let [failures, lostAt] = [0, Date.now()];
    while (this.#error === undefined) {
      try {
        const socket = await this.#connect();
        this.connections += 1;
        await this.#converse(socket);
        if (this.#heard) failures = 0;
        lostAt = Date.now();
      } catch (error) {
        if (error instanceof HelixError) return this.#fail(error);
        const patienceMs = this.connections > 0 ? this.#settings.giveUpMs : this.#settings.openMs;
        if (Date.now() - lostAt >= patienceMs) {
          const message = `${this.#url} cannot be reached, or refuses the token`;
          return this.#fail(new HelixError("connection_lost", message, { cause: error, recoverable: true }));
        }
      }
      failures += 1;
      if (this.#error === undefined) await this.#rest(this.#pause(failures));
    }
  }

  /** For so long, or until the link is closed. */
  #rest(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#stop = () => (clearTimeout(timer), resolve());
    });
  }

  #pause(failures: number): number {
    const { backoffMs, backoffMaxMs } = this.#settings;
    return Math.min(backoffMaxMs, backoffMs * 2 ** Math.min(failures - 1, 20)) * Math.random();
  }

  async #freshToken(): Promise<string | undefined> {
    return typeof this.#token === "function" ? await this.#token() : this.#token;
  }

  /** The one way that browsers and Node have: the token as a subprotocol, which is not echoed. */
  async #connect(): Promise<WebSocket> {
    const token = await this.#freshToken();
    const { webSocket = globalThis.WebSocket } = this.#settings;
    if (webSocket === undefined) {
      const ways = "use Node 22, or start Node 20 with --experimental-websocket, or give the class of the package ws as settings.webSocket";
      throw new HelixError("no_websocket", `this JavaScript has no WebSocket: ${ways}`);
    }
    let socket: WebSocket;
    try {
      socket = new webSocket(this.#url, token === undefined ? [SUBPROTOCOL] : [SUBPROTOCOL, `bearer.${token}`]);
    } catch (error) {
      const problem = "the URL begins with wss:// or ws://, and a token has letters, digits and - . _ ~ only";
      throw new HelixError("invalid_input", problem, { cause: error });
    }
    await new Promise<void>((resolve, reject) => {
      const end = (error: Error) => {
        clearTimeout(timer);
        this.#end = undefined;
        socket.onopen = socket.onerror = socket.onclose = null; // closing reports an error again
        socket.close();
        reject(error);
      };
      const timer = setTimeout(() => end(new Error("no answer in time")), this.#settings.openMs);
      this.#end = () => end(new Error("closed"));
      socket.onopen = () => {
        clearTimeout(timer);
        resolve();
      };
      socket.onerror = () => end(new Error("the connection was refused"));
      socket.onclose = () => end(new Error("the connection was closed"));
    });
    return socket;
  }

  /** Until the connection ends. A dead one does not say so: nobody waits for its farewell. */
  async #converse(socket: WebSocket): Promise<void> {
    this.#joiner = new Joiner();
    [this.#heard, this.#tries] = [false, 0];
    const ended = new Promise<void>((resolve) => (this.#end = resolve));
    const born = Date.now();
    const beat = setInterval(() => {
      if (Date.now() - born >= this.#settings.maxAgeMs) this.#end?.();
      else
        this.ask("ping", {}).catch((error: unknown) => {
          if (error instanceof HelixError && error.code === "timeout" && this.#socket === socket) this.#end?.();
        });
    }, Math.min(this.#settings.heartbeatMs, this.#settings.maxAgeMs));
    socket.onmessage = (event) => this.#receive(event.data);
    socket.onerror = socket.onclose = () => this.#end?.();
    this.#socket = socket;
    if (socket.readyState !== OPEN || this.#error !== undefined) this.#end?.();
    this.#opens.resolve();
    this.onConnection?.(true);
    this.following.onOpen();
    this.#sendAll();
    await ended;
    clearInterval(beat);
    [this.#socket, this.#end] = [undefined, undefined];
    socket.onmessage = socket.onerror = socket.onclose = null;
    socket.close();
    this.onConnection?.(false);
  }

  #fail(error: Error): void {
    if (this.#error !== undefined) return;
    this.#error = error;
    this.#over.abort(error);
    for (const asked of [...this.#asked.values()]) asked.reject(error);
    this.following.onFail(error);
    this.#opens.reject(error);
    this.#end?.();
    this.#stop?.();
  }

  // --- hearing --------------------------------------------------------------------------------------------------------

  /** Nothing that comes ends the conversation: what makes no sense is left out, and asked for again if need be. */
  #receive(text: unknown): void {
    try {
      const received: unknown = JSON.parse(String(text));
      if (typeof received === "object" && received !== null) this.#hear(received as Result);
    } catch (error) {
      if (!(error instanceof SyntaxError || error instanceof HelixError)) throw error;
      console.warn("helix: a frame makes no sense:", error.message);
    }
  }

  #hear(received: Result): void {
    if (received["type"] !== undefined) [this.#heard, this.#tries] = [true, 0];
    const streamId = String(received["stream_id"]);
    switch (received["type"]) {
      case "part": {
        const text = this.#joiner.add(received);
        if (text !== undefined) this.#receive(text);
        break;
      }
      case "messages": {
        const bodies = received["messages"];
        if (!Array.isArray(bodies)) throw new HelixError("invalid_message", "messages is a list");
        this.following.onMessages(
          streamId,
          bodies.map((body) => messageOf(streamId, body)),
        );
        break;
      }
      case "lagging":
        this.following.onLagging(streamId);
        break;
      case "reply":
        this.#asked.get(String(received["id"]))?.resolve((received["result"] ?? {}) as Result);
        break;
      case "error":
        this.#asked.get(String(received["id"]))?.reject(errorOf(received["error"]));
        break;
      case undefined: // the gateway itself did not take a message: too many at once, or a function that failed
        void this.#sendAgain();
        break;
    }
  }

  /** Once for all the refusals of a while, and later each time that nothing else comes. */
  async #sendAgain(): Promise<void> {
    if (this.#sendingAgain) return;
    this.#sendingAgain = true;
    this.#tries += 1;
    await sleep(this.#pause(this.#tries));
    this.#sendingAgain = false;
    this.#sendAll();
  }
}
