// Exports of sessions in one file, one after the other, as `helix export --no-files` writes each. The service writes the lines: a
// number of a row may be one that JavaScript cannot hold.
import { oneRun } from "../../js/src/wire.ts";
import { HelixError, service } from "./api.ts";
import { count } from "./format.ts";
import type { Results, StreamMessage } from "./wire.ts";

type Run = NonNullable<Results["get_session"]["runs"]>[number];

/** The largest file. Its lines are ASCII, so a character is a byte. */
const MOST_BYTES = 100_000_000;
const TRIES = 5;
const WAIT_MS = 15_000;
const LOOK_MS = 250;
const PAGE = 1_000;

export class ExportFile {
  sessions = 0;
  readonly #parts: string[] = [];
  #bytes = 0;

  /** Add a session, with its sub-agents' sessions and its stream. Returns what was exported, in words. */
  async add(id: string): Promise<string> {
    for (let n = 0; n < TRIES; n++) {
      const { session, runs = [] } = await service().ask("get_session", { session_id: id, runs: 1 });
      if (session.status === "running") throw new Error("It is running: export it once it has stopped.");
      if (runs[0] !== undefined) await untilStreamed(id, runs[0]);
      const made = new Lines((more) => this.#grow(more));
      try {
        await made.read(id);
        if ((await service().getSession(id)).version === session.version) return this.#take(made);
      } catch (error) {
        this.#bytes -= made.bytes;
        throw error;
      }
      this.#bytes -= made.bytes;
    }
    throw new Error("It changes during the export: export it once it is at rest.");
  }

  save(): void {
    const url = URL.createObjectURL(new Blob(this.#parts, { type: "application/x-ndjson" }));
    const link = document.createElement("a");
    [link.href, link.download] = [url, "sessions.jsonl"];
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }

  #grow(more: number): void {
    if (this.#bytes + more > MOST_BYTES) throw new Error("Left out: the file would be larger than 100 MB.");
    this.#bytes += more;
  }

  #take({ text, files }: Lines): string {
    this.#parts.push(text);
    this.sessions++;
    return files === 0 ? "Exported" : `Exported without the bytes of ${count(files, "file")}`;
  }
}

/** The lines of one session. */
class Lines {
  bytes = 0;
  readonly #lines: string[] = [];
  readonly #files = new Set<string>();
  readonly #grow: (more: number) => void;

  constructor(grow: (more: number) => void) {
    this.#grow = grow;
  }

  get text(): string {
    return this.#lines.join("");
  }

  /** How many stored files the rows name. */
  get files(): number {
    return this.#files.size;
  }

  async read(root: string): Promise<void> {
    const sessions = [root];
    let rows = 0;
    for (const id of sessions) {
      try {
        rows += await this.#rows(id, false, sessions);
      } catch (error) {
        if (id === root || !(error instanceof HelixError) || error.code !== "session_not_found") throw error; // it never started
      }
    }
    rows += await this.#rows(root, true, sessions);
    this.#put(JSON.stringify({ end: true, rows }));
  }

  /** Returns how many rows there are. `sessions` gets the sub-agents' ones. */
  async #rows(session_id: string, stream: boolean, sessions: string[]): Promise<number> {
    const seen = new Set<string>();
    for (let after: string | null | undefined; after !== null; ) {
      const { cursor, export: page }: Results["read_rows"] = await service().ask("read_rows", { session_id, stream, after, lines: true });
      if (page == null) throw new Error("The service returned no lines of an export.");
      if (this.#lines.length === 0) this.#put(page.head);
      for (const { sort, line } of page.lines) {
        if (seen.has(sort)) continue; // several pages may have the same request head
        seen.add(sort);
        this.#put(line);
      }
      for (const child of page.children) if (!sessions.includes(child)) sessions.push(child);
      for (const file of page.files) this.#files.add(file);
      after = cursor;
    }
    return seen.size;
  }

  #put(line: string): void {
    this.#grow(line.length + 1);
    this.bytes += line.length + 1;
    this.#lines.push(line, "\n");
  }
}

/** Wait until the stream has the end of the run, which may come after the run's row. At once if the stream was deleted. */
async function untilStreamed(session_id: string, run: Run): Promise<void> {
  const judge = oneRun(session_id, run.turn);
  let after = run.start_sequence;
  for (const end = Date.now() + WAIT_MS; Date.now() < end; ) {
    const { messages } = await service().ask("read_stream", { session_id, after, limit: PAGE });
    for (const message of messages as unknown as StreamMessage[]) {
      after = message.sequence;
      if (["last", "over"].includes(judge(message))) return;
    }
    if (messages.length > 0) continue;
    if (after === 0 && run.effects === "done") return;
    await new Promise((looked) => setTimeout(looked, LOOK_MS));
  }
}
