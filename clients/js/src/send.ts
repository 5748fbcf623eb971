// Sends the bytes of a file to the store.
import type { UploadTarget } from "./generated.ts";

/** Called with the number of bytes that were sent. */
export type OnProgress = (sent: number, total: number) => void;

/** The reason why the store did not take a file. `retry`: a new request may succeed. */
export interface Failure {
  why: string;
  retry: boolean;
  cause?: unknown;
}

interface Answer {
  status: number;
  body: string;
}

/** The HTTP client sets it from the body, and a browser refuses to have it set. */
const OWN = "content-length";
/** An expired or damaged request is refused with 400 or 403, and a new one may be accepted. */
const RETRIED = new Set([400, 403, 408, 409, 429]);

/** Send the bytes; undefined if the store has taken them. Rejects with the signal's reason when it aborts. */
export async function send(
  target: UploadTarget,
  bytes: Uint8Array<ArrayBuffer>,
  signal: AbortSignal,
  onProgress?: OnProgress,
): Promise<Failure | undefined> {
  const headers = Object.fromEntries(Object.entries(target.headers).filter(([name]) => name.toLowerCase() !== OWN));
  let answer: Answer;
  try {
    const watched = onProgress !== undefined && globalThis.XMLHttpRequest !== undefined;
    answer = watched
      ? await withProgress({ ...target, headers }, bytes, signal, onProgress)
      : await withFetch({ ...target, headers }, bytes, signal);
  } catch (cause) {
    signal.throwIfAborted();
    return { why: "the store cannot be reached", retry: true, cause };
  }
  if (answer.status >= 200 && answer.status < 300) return undefined;
  const detail = answer.body.startsWith("<") ? /<Code>(\w+)<\/Code>/.exec(answer.body)?.[1] : answer.body.trim().slice(0, 300);
  const why = `the store refuses it with status ${answer.status}${detail ? ` (${detail})` : ""}`;
  return { why, retry: RETRIED.has(answer.status) || answer.status >= 500 };
}

async function withFetch({ url, method, headers }: UploadTarget, body: Uint8Array<ArrayBuffer>, signal: AbortSignal): Promise<Answer> {
  const response = await fetch(url, { method, headers, body, signal, credentials: "omit" });
  return { status: response.status, body: await response.text() };
}

/** `fetch` does not report progress. */
function withProgress(
  { url, method, headers }: UploadTarget,
  body: Uint8Array<ArrayBuffer>,
  signal: AbortSignal,
  onProgress: OnProgress,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const abort = () => request.abort();
    request.open(method, url);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.onprogress = ({ loaded }) => onProgress(loaded, body.length);
    request.onload = () => resolve({ status: request.status, body: request.responseText });
    request.onerror = request.onabort = () => reject(new TypeError("the request failed"));
    request.onloadend = () => signal.removeEventListener("abort", abort);
    signal.addEventListener("abort", abort, { once: true });
    request.send(body);
  });
}
