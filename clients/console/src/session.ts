// The session that is shown: what is stored of it, and what comes. It is read once, then followed; after a rewind, or where the
// stream has lost its beginning, it is read again.
import { type Signal, signal } from "@preact/signals";
import { applyPatches, type JsonObject, type SessionState, type SubSessionRef } from "../../js/src/index.ts";
import { HelixError, said, service } from "./api.ts";
import { type Children, Conversation, take, touch } from "./fold.ts";
import { History } from "./history.ts";
import { chunkOf, type Message, type StreamChunk, type StreamMessage } from "./wire.ts";

const HIDDEN_MS = 250;
/** After these chunks, what is stored of the session is another. */
const CHANGES: ReadonlySet<string> = new Set(["stream_resync", "message_queued"]);
const GLANCE = 60;
/** Messages of a long session that are read at once, from its end. */
const PAGE = 100;
/** How often a running session is read again: a worker that died says nothing. */
const LOOK_MS = 8_000;

export class OpenSession {
  readonly id: string;
  conversation: Conversation;
  /** Changes when the conversation has: so that a burst of chunks is drawn once. */
  readonly drawn = signal(0);
  readonly stored: Signal<SessionState | undefined> = signal(undefined);
  readonly resumable = signal(false);
  readonly error = signal<string | undefined>(undefined);
  readonly custom: Signal<Record<string, unknown>> = signal({});
  /** The places of the state that changed last, as JSON pointers. */
  readonly changed = signal<ReadonlySet<string>>(new Set());
  /** What a reader hears who cannot see it. */
  readonly announced = signal("");
  readonly history: History;
  #closed = false;
  #looking: ReturnType<typeof setInterval> | undefined;
  #drawing = false;
  /** Up to here the stream is in what was read. */
  #base = 0;
  #reading: AsyncGenerator<StreamMessage, void, undefined> | undefined;
  readonly #whole: boolean;
  #children: Children = new Map();
  /** Messages of the session before those that were read. */
  #unread = 0;
  #fetching: Promise<void> | undefined;

  /** `whole`: all of it is read at once, else the newest messages, and others when somebody looks. */
  constructor(id: string, whole = false) {
    this.id = id;
    this.#whole = whole;
    this.conversation = new Conversation(id);
    this.history = new History(id);
  }

  start(): void {
    void this.#live();
    this.#looking = setInterval(() => {
      if (this.status === "running" && document.visibilityState === "visible") void this.refresh().catch(() => undefined); // the next look may succeed
    }, LOOK_MS);
  }

  close(): void {
    this.#closed = true;
    clearInterval(this.#looking);
    this.history.close();
    void this.#reading?.return();
  }

  get status(): string {
    return this.stored.value?.status ?? "";
  }

  draw(): void {
    if (this.#drawing) return;
    this.#drawing = true;
    const now = () => {
      this.#drawing = false;
      this.drawn.value++;
    };
    if (document.hidden) setTimeout(now, HIDDEN_MS);
    else requestAnimationFrame(now);
  }

  /** How many messages are before those that are here. Of other conversations than the session's, all is here. */
  unread(conversation: Conversation): number {
    return conversation === this.conversation ? this.#unread : 0;
  }

  /** Read the messages before those that are here. One page at a time; of other conversations all is here. */
  async earlier(conversation: Conversation): Promise<void> {
    if (this.unread(conversation) === 0) return;
    this.#fetching ??= this.#page(conversation).finally(() => (this.#fetching = undefined));
    await this.#fetching;
  }

  /** Read back to a call, or to the beginning. */
  async reach(callId: string | undefined): Promise<void> {
    while (this.#unread > 0 && (callId === undefined || !this.conversation.calls.has(callId))) await this.earlier(this.conversation);
  }

  async #page(conversation: Conversation): Promise<void> {
    const { messages = [], offset } = await service().ask("get_session", { session_id: this.id, messages: PAGE, before: this.#unread });
    if (this.#closed || conversation !== this.conversation) return;
    conversation.prepend(messages as Message[], this.#children);
    this.#unread = offset ?? 0;
    this.draw();
  }

  /** Read again what is stored, but not the conversation. */
  async refresh(): Promise<void> {
    const found = await service().ask("get_session", { session_id: this.id });
    if (this.#closed) return;
    [this.stored.value, this.resumable.value] = [found.session, found.can_resume.can_resume];
    if (found.session.status === "paused") for (const call of this.conversation.expect(found.session.pending)) touch(call.step);
    this.draw();
  }

  async #live(): Promise<void> {
    try {
      while (!this.#closed) {
        const after = await this.#load();
        this.#reading = service().follow(this.id, { after });
        for await (const message of this.#reading) {
          if (this.#closed) return;
          if (await this.#take(message)) break;
        }
      }
    } catch (error) {
      if (this.#closed) return;
      if (error instanceof HelixError && error.code === "timeout") return void this.#live(); // the service may come again
      this.error.value = error instanceof HelixError && error.code === "session_not_found" ? "This session does not exist" : said(error);
    }
  }

  /** The newest messages, while the whole of a long session is on its way. */
  async #glance(): Promise<void> {
    const { session, messages = [], offset } = await service().ask("get_session", { session_id: this.id, messages: GLANCE });
    if (this.#closed || this.stored.value !== undefined) return;
    this.conversation.load(messages as Message[], new Map());
    this.#unread = offset ?? 0;
    this.stored.value = session;
    this.draw();
  }

  async #load(): Promise<number> {
    if (this.stored.value === undefined) this.#glance().catch(() => undefined); // what is asked for next says why
    const which = this.#whole ? {} : { newest: PAGE };
    const found = await service().ask("get_session", { session_id: this.id, snapshot: true, sub_sessions: true, ...which });
    const snapshot = found.snapshot;
    if (!snapshot) throw new Error("the service gives no snapshot");
    const conversation = new Conversation(this.id);
    this.#children = childrenOf(found.sub_sessions);
    conversation.load(snapshot.messages, this.#children, snapshot.sequence);
    sayMissing(conversation, found.sub_sessions);
    [this.conversation, this.#unread] = [conversation, snapshot.offset ?? 0];
    [this.stored.value, this.resumable.value] = [found.session, found.can_resume.can_resume];
    this.#base = snapshot.sequence;
    this.custom.value = snapshot.custom_state;
    this.draw();
    return found.session.status === "paused" ? Math.min(snapshot.sequence, await this.#begin()) : snapshot.sequence;
  }

  /** Behind which sequence the answer is that waits for people: in the run that asked, or in one before it. */
  async #begin(): Promise<number> {
    const { runs = [] } = await service().ask("get_session", { session_id: this.id, runs: 10 });
    let begin = Infinity;
    for (const run of runs) {
      begin = Math.min(begin, run.start_sequence);
      if (run.status !== "superseded" && run.run_id !== runs[0]?.run_id) break;
    }
    return begin;
  }

  /** True where everything is to be read again. */
  async #take(message: StreamMessage): Promise<boolean> {
    const chunk = message.kind === "chunk" ? chunkOf(message) : undefined;
    const replayed = message.sequence <= this.#base;
    if (chunk?.type === "stream_resync" && !replayed) return true;
    const own = message.session_id === this.id;
    if (own && chunk !== undefined && chunk.run_id && !this.conversation.runs.has(chunk.run_id)) {
      this.conversation.runs.add(chunk.run_id);
      void this.#begun(chunk.run_id);
    }
    take(this.conversation, message);
    if (own && !replayed && chunk?.type === "state_patch") this.#patched(chunk);
    const asks = chunk?.type === "tool_approval_request";
    if (asks) this.announced.value = `${chunk.tool_name} waits for you.`;
    // Where a session waits, its request is behind the message that says so, if the stream has it at all.
    if (own && (chunk === undefined || CHANGES.has(chunk.type) || (chunk.type === "run_resumed" && !replayed))) {
      if (chunk === undefined && !replayed) this.announced.value = `The run is ${message.status ?? message.kind}.`;
      await this.refresh();
    }
    this.draw();
    return false;
  }

  /** Another page has started a run, or this one: its message is stored. */
  async #begun(runId: string): Promise<void> {
    const { session, messages = [] } = await service().ask("get_session", { session_id: this.id, messages: 20 });
    this.stored.value = session;
    for (const message of messages) {
      if (message.role === "user" && message.run_id === runId) this.conversation.insert(message.content, runId, message.files ?? []);
    }
    this.draw();
  }

  #patched(chunk: Extract<StreamChunk, { type: "state_patch" }>): void {
    const before = this.custom.value;
    this.changed.value = new Set(chunk.patches.map((patch) => String(patch["path"]).replace(/\/-$/, "")));
    try {
      this.custom.value = applyPatches(structuredClone(before) as JsonObject, chunk.patches) as Record<string, unknown>;
    } catch (error) {
      if (!(error instanceof HelixError)) throw error;
      void service()
        .getSession(this.id)
        .then((session) => (this.custom.value = session.custom_state));
    }
  }
}

export function childrenOf(refs: unknown[] | undefined): Children {
  const found = new Map<string, { id: string; agent: string }>();
  for (const ref of (refs ?? []) as { session_id: string; agent_type: string; parent_tool_call_id: string }[]) {
    found.set(ref.parent_tool_call_id, { id: ref.session_id, agent: ref.agent_type });
  }
  return found;
}

const MISSING: Record<string, string> = { deleted: "was deleted", not_started: "has not started" };

/** Say of sub-agents whose sessions are not there what happened to them. */
function sayMissing(parent: Conversation, refs: SubSessionRef[] | undefined): void {
  for (const { session_id, status } of refs ?? []) {
    const why = MISSING[status];
    if (why !== undefined) parent.below.get(session_id)?.note(`The sub-agent's session ${why}.`, "plain");
  }
}

/** Of a sub-agent, when somebody looks. */
export async function loadChild(parent: OpenSession, id: string): Promise<void> {
  const child = parent.conversation.below.get(id);
  if (child === undefined || child.items.length > 0) return;
  const { snapshot, sub_sessions } = await service().ask("get_session", { session_id: id, snapshot: true, sub_sessions: true });
  if (!snapshot || child.items.length > 0) return;
  child.load(snapshot.messages.slice(snapshot.messages[0]?.role === "user" ? 1 : 0), childrenOf(sub_sessions));
  sayMissing(child, sub_sessions);
  parent.draw();
}

let current: OpenSession | undefined;
export function opened(id: string): OpenSession {
  if (current?.id !== id) {
    current?.close();
    current = new OpenSession(id);
    current.start();
  }
  return current;
}
