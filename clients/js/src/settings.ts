/** Times are in milliseconds. */
export interface ClientSettings {
  /** How long an answer is waited for, reconnections included. */
  requestMs: number;
  /** One attempt to connect; and how long the first connection is tried. */
  openMs: number;
  /** How long connecting again is tried before everything that waits fails. */
  giveUpMs: number;
  /** The pause after the first failed attempt; doubled up to the longest, each times a random part of one. */
  backoffMs: number;
  backoffMaxMs: number;
  /** How often something is sent on a quiet connection: API Gateway ends one after 10 minutes. */
  heartbeatMs: number;
  /** When a connection is replaced: API Gateway ends one after 2 hours. */
  maxAgeMs: number;
  /** How long a missing message may be late before it is asked for. */
  reorderMs: number;
  /** How long a run may say nothing before the log is asked whether it has. */
  quietMs: number;
  /** Messages that are stored for a reader that does not read. */
  buffer: number;
  /** The class of a WebSocket. Default: the global one, which Node 20 has only with `--experimental-websocket`; the package
   *  `ws` has one too. */
  webSocket: typeof WebSocket | undefined;
}

export const SETTINGS: Readonly<ClientSettings> = {
  requestMs: 30_000,
  openMs: 10_000,
  giveUpMs: 120_000,
  backoffMs: 250,
  backoffMaxMs: 15_000,
  heartbeatMs: 240_000,
  maxAgeMs: 6_900_000,
  reorderMs: 200,
  quietMs: 20_000,
  buffer: 10_000,
  webSocket: undefined,
};

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** What makes the repeats of a request one. */
export const freshKey = (): string => `key_${randomHex()}`;

/** The id of a new session, for callers whose ids need no prefix. */
export const freshSession = (): string => `ses_${randomHex()}`;

/** Pages without TLS have no `randomUUID`. */
const randomHex = (): string => hexOf(crypto.getRandomValues(new Uint8Array(16)));

export const hexOf = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
