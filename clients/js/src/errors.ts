import type { ServiceErrorCode } from "./generated.ts";

/**
 * The service's codes; and of the client itself: `connection_lost` (there is no connection and patience is at an end: runs go
 * on), `timeout` (no answer in time), `closed` (by the caller), `no_websocket` (this JavaScript has none), `no_crypto` (this
 * page cannot hash files, because it was loaded without TLS), `transfer_failed` (the store did not take a file).
 */
export type ErrorCode =
  | ServiceErrorCode
  | "connection_lost"
  | "timeout"
  | "closed"
  | "no_websocket"
  | "no_crypto"
  | "transfer_failed";

/**
 * What the service refuses, or the client cannot do. Branch on `code`, never on the message.
 * `recoverable`: the same request may succeed later.
 */
export class HelixError extends Error {
  override readonly name = "HelixError";
  readonly code: ErrorCode;
  readonly recoverable: boolean;
  readonly details: Readonly<Record<string, unknown>>;

  constructor(
    code: ErrorCode,
    message: string,
    more: { recoverable?: boolean; details?: Record<string, unknown>; cause?: unknown } = {},
  ) {
    super(message, "cause" in more ? { cause: more.cause } : undefined);
    this.code = code;
    this.recoverable = more.recoverable ?? false;
    this.details = more.details ?? {};
  }
}

/** The error of a refusal on the wire. */
export function errorOf(refusal: unknown): HelixError {
  const said = (typeof refusal === "object" && refusal !== null ? refusal : {}) as Record<string, unknown>;
  const details = said["details"];
  return new HelixError(
    (typeof said["code"] === "string" ? said["code"] : "internal_error") as ErrorCode,
    typeof said["message"] === "string" ? said["message"] : "the service failed",
    {
      recoverable: said["recoverable"] !== false,
      details: typeof details === "object" && details !== null ? (details as Record<string, unknown>) : {},
    },
  );
}
