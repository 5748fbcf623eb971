// A service on a scripted socket, and a store on a real HTTP server, which checks uploads as S3 does.
import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { HelixClient } from "../../src/client.ts";

type Fields = Record<string, any>;
type Refusal = { code: string; message: string; recoverable: boolean };

export class Refused extends Error {
  readonly refusal: Refusal;

  constructor(code: string, message: string) {
    super(message);
    this.refusal = { code, message, recoverable: false };
  }
}

/** The bytes that were announced and stored, by session and hash, and the requests in their order. */
export class FakeService {
  principal: string | null = "ada";
  readonly asked: Fields[] = [];
  /** Announced uploads by the path of their URL. `stored`: the bytes passed the store's checks. */
  readonly announced = new Map<string, Fields & { stored: boolean }>();
  /** Called before each PUT is looked at; a number is the status to refuse it with. */
  beforePut: (attempt: number, name: string) => number | undefined | Promise<number | undefined> = () => undefined;
  /** The most PUTs at the same time, and all of them. */
  atOnce = 0;
  puts = 0;
  readonly #server = createServer((request, response) => void this.#store(request, response));
  #port = 0;
  #open = 0;
  #files = 0;

  async start(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    this.#port = (this.#server.address() as AddressInfo).port;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  connect(): Promise<HelixClient> {
    const service = this;
    class Socket {
      static readonly OPEN = 1;
      readyState = 1;
      onopen: (() => void) | null = null;
      onmessage: ((event: { data: string }) => void) | null = null;

      constructor() {
        queueMicrotask(() => this.onopen?.());
      }

      send(text: string): void {
        const request = JSON.parse(text);
        queueMicrotask(() => this.onmessage?.({ data: JSON.stringify(service.answer(request)) }));
      }

      close(): void {}
    }
    const settings = { backoffMs: 1, webSocket: Socket as unknown as typeof WebSocket };
    return HelixClient.connect("ws://fake", { settings });
  }

  of(action: string): Fields[] {
    return this.asked.filter((request) => request["action"] === action);
  }

  answer({ v, id, action, ...fields }: Fields): Fields {
    this.asked.push({ action, ...fields });
    try {
      return { v, id, type: "reply", result: this.#result(action, fields) };
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      return { v, id, type: "error", error: error.refusal };
    }
  }

  #result(action: string, fields: Fields): Fields {
    switch (action) {
      case "authenticate":
        return { principal: this.principal, prefix: "", expires_at: null, operator: false };
      case "upload":
        return this.#begin(fields);
      case "finish_upload":
        return { file: this.#finish(fields) };
      case "get_file":
        if (this.#row(fields) === undefined) throw new Refused("file_missing", `session ${fields["session_id"]} does not hold this file`);
        return { url: `https://bucket/${fields["sha256"]}?name=${fields["name"]}`, expires_at: 7 };
      case "run":
      case "resume":
      case "retry": {
        const session_id = fields["session_id"] ?? "ses_made";
        return { session_id, run_id: "run_1", turn: 1, stream_id: session_id, after: 0, replay: false };
      }
      default:
        throw new Refused("invalid_message", `no action ${action}`);
    }
  }

  #owner(fields: Fields): string {
    if (this.principal === null && !fields["session_id"]) throw new Refused("invalid_input", "an upload needs session_id");
    return this.principal ?? fields["session_id"];
  }

  #row({ sha256, ...fields }: Fields): (Fields & { stored: boolean }) | undefined {
    const owner = this.#owner(fields);
    return [...this.announced.values()].find((row) => row["sha256"] === sha256 && row["owner"] === owner && row.stored);
  }

  #begin(fields: Fields): Fields {
    if (this.#row(fields) !== undefined) return { stored: true, upload: null };
    this.#files += 1;
    const path = `/blobs/${this.#files}`;
    this.announced.set(path, { ...fields, owner: this.#owner(fields), stored: false });
    const headers = {
      "Content-Length": String(fields["size"]),
      "Content-Type": fields["media_type"] ?? "application/octet-stream",
      "x-amz-checksum-sha256": Buffer.from(fields["sha256"], "hex").toString("base64"),
    };
    return { stored: false, upload: { url: `http://127.0.0.1:${this.#port}${path}`, method: "PUT", headers, expires_at: 1 } };
  }

  #finish(fields: Fields): Fields {
    const row = this.#row(fields);
    if (row === undefined) throw new Refused("file_missing", "the bytes did not arrive");
    if (fields["name"]?.endsWith(".bad")) throw new Refused("invalid_file", `file '${fields["name"]}' is damaged`);
    const { sha256, size, media_type = "application/octet-stream" } = row;
    return { kind: "file", media_type, sha256, size, url: null, name: fields["name"] ?? null, after_text: 0 };
  }

  async #store(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.puts += 1;
    this.#open += 1;
    this.atOnce = Math.max(this.atOnce, this.#open);
    response.on("close", () => (this.#open -= 1));
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of request) chunks.push(chunk);
    } catch {
      return; // the client stopped
    }
    const told = await this.beforePut(this.puts, this.announced.get(request.url ?? "")?.["name"] ?? "");
    const problem = told === undefined ? this.#check(request, Buffer.concat(chunks)) : `Told${told}`;
    response.statusCode = told ?? (problem === undefined ? 200 : 400);
    response.end(problem === undefined ? "" : `<Error><Code>${problem}</Code></Error>`);
  }

  /** The code of S3's refusal. */
  #check({ method, headers, url }: IncomingMessage, body: Buffer): string | undefined {
    const row = this.announced.get(url ?? "");
    if (row === undefined) return "NoSuchUpload";
    const sent = { method, length: headers["content-length"], type: headers["content-type"], chunked: headers["transfer-encoding"] };
    const wanted = { method: "PUT", length: String(row["size"]), type: row["media_type"] ?? "application/octet-stream", chunked: undefined };
    if (JSON.stringify(sent) !== JSON.stringify(wanted)) return "SignatureDoesNotMatch";
    const sum = createHash("sha256").update(body);
    if (headers["x-amz-checksum-sha256"] !== sum.copy().digest("base64")) return "BadDigest";
    if (sum.digest("hex") !== row["sha256"] || body.length !== row["size"]) return "BadDigest";
    row.stored = true;
    return undefined;
  }
}
