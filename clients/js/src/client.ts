// HelixClient: deployed agents over WebSocket. What a caller asks for is done once, whatever happens to the connection; what a
// caller reads has no gap and no repeat.
import { HelixError } from "./errors.ts";
import type { Feed } from "./feed.ts";
import { type Content, isContent, type LocalFile, type ReadContent, readContent, readMapping } from "./files.ts";
import type {
  AgentList,
  Authenticated,
  BudgetChanged,
  BudgetList,
  CanResumeResult,
  CheckpointDiff,
  CheckpointFound,
  CheckpointList,
  ContextFound,
  CostFound,
  FileAddress,
  FilePart,
  FleetFound,
  Replies,
  Requests,
  SessionFound,
  SessionList,
  SessionSnapshot,
  SessionState,
  Started,
  StepFound,
  StreamPage,
  UsageFound,
  WithdrawnReply,
} from "./generated.ts";
import { RunHandle } from "./handle.ts";
import { SocketLink, type Token } from "./link.ts";
import { type ClientSettings, freshKey, freshSession, SETTINGS } from "./settings.ts";
import { sessionOfKey, type UploadOptions, Uploads } from "./uploads.ts";
import { type Judge, oneRun, type StreamMessage, wholeStream } from "./wire.ts";

export type Action = keyof Requests;
/** What a request of that action takes, as the service names it; what is undefined is left out. */
export type Fields<A extends Action> = {
  [K in keyof Requests[A] as K extends "v" | "id" | "action" ? never : K]: Requests[A][K];
};
type Options<A extends Action, Given extends string> = Partial<Omit<Fields<A>, Given | "subscribe">>;
/** `signal` stops the uploads of the message's files; a run that was asked for starts. */
type RunOptions<A extends Action, Given extends string> = Options<A, Given | "message" | "files"> & { signal?: AbortSignal };

export interface ConnectOptions {
  /** An API key, a JSON Web Token, or a function that gives one; none where the service takes anybody. */
  token?: Token;
  settings?: Partial<ClientSettings>;
  /** Called with whether there is a connection, when that changes. A lost one is made again, for `giveUpMs`. */
  onConnection?: (connected: boolean) => void;
}

export class HelixClient {
  readonly settings: Readonly<ClientSettings>;
  readonly #link: SocketLink;
  readonly #uploads: Uploads;

  private constructor(url: string, options: ConnectOptions) {
    this.settings = { ...SETTINGS, ...options.settings };
    this.#link = new SocketLink(url, options.token, this.settings);
    this.#link.onConnection = options.onConnection;
    this.#uploads = new Uploads((action, fields) => this.#link.ask(action, fields), this.settings, this.#link.ended);
  }

  /**
   * A connected client, to be closed. `url`: of the WebSocket API, `wss://...`.
   * Rejects with `connection_lost` where nothing answers, or where the token is refused: a browser does not say which.
   */
  static async connect(url: string, options: ConnectOptions = {}): Promise<HelixClient> {
    const client = new HelixClient(url, options);
    await client.#link.open();
    return client;
  }

  /** Idempotent. Runs go on; what waits here fails with `closed`. */
  close(): void {
    this.#link.close();
  }

  /** How often it has connected. */
  get connections(): number {
    return this.#link.connections;
  }

  /** Any request of the protocol. Rejects with the service's error, `timeout`, `connection_lost` or `closed`. */
  async ask<A extends Action>(action: A, fields: Fields<A>): Promise<Replies[A]> {
    return (await this.#link.ask(action, fields)) as unknown as Replies[A];
  }

  // --- starting runs --------------------------------------------------------------------------------------------------

  /**
   * Start a run: a new session, or the next message of one that is not running. `message`: a text, a list of texts and files,
   * `{ message, state, files }` with files that are stored already, or a function agent's parameters. Files are uploaded
   * first. `session_id`: one that exists, or a new one that begins with the own prefix (`whoami`). `key`: what makes a repeat,
   * from another page too, find the same run for at least a day; default a new one. If the client uploads files, and there is
   * no user and no `session_id`, the id is `ses_` and the first 32 hexadecimal digits of the key's SHA-256 hash.
   * `when_running`: whether a message to a session that is running is refused (the default), steers the run, queues for a turn
   * of its own or interrupts the run; the handle has the `queued_id` of a message that waits. `settings`: the run's own
   * `tool_choice`, `parallel_tool_calls` and `top_p`.
   * Rejects with `agent_already_running` if the session is running, `inbox_full` if too many messages wait, `queue_full` if too many runs wait, and for a file with
   * `invalid_file`, `file_missing` or `transfer_failed`.
   */
  async run(
    agent: string,
    message: Content | Record<string, unknown>,
    { signal, ...options }: RunOptions<"run", "agent" | "input"> = {},
  ): Promise<RunHandle> {
    if (!isContent(message) && !("message" in message)) return await this.#start("run", { agent, input: message, ...options });
    const { content, state } = isContent(message) ? { content: readContent(message) } : readMapping(message);
    let session_id = options.session_id ?? undefined;
    const fresh = async () => (options.key == null ? freshSession() : await sessionOfKey(options.key));
    const session = async () => (session_id ??= (await this.whoami()).principal == null ? await fresh() : undefined);
    const fields = await this.#uploads.fieldsOf(content, session, signal);
    const more = { ...(state !== undefined && { state }), ...(session_id !== undefined && { session_id }) };
    return await this.#start("run", { agent, ...fields, ...options, ...more });
  }

  /** Go on with an interrupted or paused session, or rewind to a checkpoint. `message`: as for `run`. */
  async resume(session_id: string, options: RunOptions<"resume", "session_id"> & { message?: Content | null } = {}): Promise<RunHandle> {
    return await this.#goOn("resume", session_id, options);
  }

  /** Try a failed session again. `message`: as for `run`. */
  async retry(session_id: string, options: RunOptions<"retry", "session_id"> & { message?: Content | null } = {}): Promise<RunHandle> {
    return await this.#goOn("retry", session_id, options);
  }

  async #goOn<A extends "resume" | "retry">(
    action: A,
    session_id: string,
    { message, signal, ...options }: { message?: Content | null; signal?: AbortSignal },
  ): Promise<RunHandle> {
    const fields = message == null ? {} : await this.#uploads.fieldsOf(readContent(message), async () => session_id, signal);
    return await this.#start(action, { session_id, ...fields, ...options } as Partial<Fields<A>>);
  }

  // --- files ----------------------------------------------------------------------------------------------------------

  /** Store a file, so that messages may name it. Idempotent, and nothing is sent if the service has the bytes already.
   *  Rejects with `invalid_file` for a file that breaks a limit, and `transfer_failed` if the store does not take it. */
  async upload(file: LocalFile, options: UploadOptions = {}): Promise<FilePart> {
    return await this.#uploads.upload(file, options);
  }

  /** @internal The fields `message` and `files` of a request with this content, after its files are stored. */
  async store(content: ReadContent, session_id: string, signal?: AbortSignal): Promise<{ message?: string; files?: FilePart[] }> {
    return await this.#uploads.fieldsOf(content, async () => session_id, signal);
  }

  /** An address from which anyone can download a file that the session holds, until `expires_at` (Unix seconds). Rejects with
   *  `file_missing` if the session does not hold it. */
  async fileUrl(session_id: string, { sha256, name, url }: Pick<FilePart, "sha256" | "name" | "url">): Promise<FileAddress> {
    if (url != null) throw new HelixError("invalid_input", "this file is not stored: download it from its url");
    return await this.ask("get_file", { session_id, sha256: sha256 as string, name });
  }

  // --- answering ------------------------------------------------------------------------------------------------------

  /**
   * Answer a call that waits, in the session or a sub-agent below it. The handle is of the session's current run. The first
   * answer wins; a later one rejects with `call_not_pending`, and so does one that was sent twice because the connection was
   * lost behind the first.
   */
  async answer(
    session_id: string,
    tool_call_id: string,
    options: Options<"answer", "session_id" | "tool_call_id"> = {},
  ): Promise<RunHandle> {
    return await this.#started("answer", { session_id, tool_call_id, ...options });
  }

  /** A handle of a run by ids (default: the session's current run). */
  async handle(session_id: string, run_id?: string): Promise<RunHandle> {
    const id = run_id ?? (await this.getSession(session_id)).current_run_id;
    const { run, session } = await this.ask("get_session", { session_id, run_id: id });
    if (run == null) throw new HelixError("run_not_found", `session ${session_id} has no run ${id}`);
    const place = { session_id, run_id: id, turn: run.turn, after: run.start_sequence, stream_id: session.stream_id };
    return new RunHandle(this, place);
  }

  async #start<A extends "run" | "resume" | "retry">(action: A, fields: Partial<Fields<A>> & { key?: string | null }): Promise<RunHandle> {
    return await this.#started(action, { ...fields, key: fields.key ?? freshKey() });
  }

  async #started(action: Action, fields: object): Promise<RunHandle> {
    const following = this.#link.following;
    await following.makeRoom();
    return await following.starting(async () => {
      const place = (await this.#link.ask(action, fields)) as unknown as Started;
      const judge = oneRun(place.session_id, place.turn, place.run_id);
      return new RunHandle(this, place, following.add(place.stream_id, place.after, judge, !place.replay));
    });
  }

  // --- controlling ----------------------------------------------------------------------------------------------------

  /** Ask the run (default: the current one) to stop; state is stored and `resume` goes on. False if it does not run. */
  async interrupt(session_id: string, options: Options<"interrupt", "session_id"> = {}): Promise<boolean> {
    return (await this.ask("interrupt", { session_id, ...options })).interrupted;
  }

  /** End a call that ends elsewhere with its result. The token is the only credential. */
  async completeCall(token: string, data: unknown = null): Promise<void> {
    await this.ask("report_call", { token, data });
  }

  /** End a call that ends elsewhere with an error message for the model. */
  async failCall(token: string, error: string): Promise<void> {
    await this.ask("report_call", { token, error });
  }

  /** Record a heartbeat of a call that ends elsewhere. Returns when its wait ends without another one, in Unix seconds. */
  async prolongCall(token: string): Promise<number | null> {
    return (await this.ask("report_call", { token, heartbeat: true })).expires_at;
  }

  /** Take back a message that waits in the session's `inbox`: `withdrawn`, or `delivered` or `not_found` if it is too late. */
  async withdraw(session_id: string, queued_id: string): Promise<WithdrawnReply["withdrawn"]> {
    return (await this.ask("withdraw", { session_id, queued_id })).withdrawn;
  }

  /** Fail the running session for good, its sub-agents too. */
  async abort(session_id: string, options: Options<"abort", "session_id"> = {}): Promise<void> {
    await this.ask("abort", { session_id, ...options });
  }

  /** Ask that the session's next step first replaces the beginning of the conversation by a summary, about `focus`. */
  async compact(session_id: string, focus = ""): Promise<void> {
    await this.ask("compact", { session_id, focus });
  }

  /** Give the session a title, and return it as stored. An empty one removes it. */
  async rename(session_id: string, title: string): Promise<string> {
    return (await this.ask("rename", { session_id, title })).title;
  }

  /** Who this connection is, until when (Unix seconds), and how the ids of sessions begin that it may choose itself. */
  async whoami(): Promise<Authenticated> {
    return await this.ask("authenticate", {});
  }

  /** Renew the proof of the same user on the open connection. */
  async authenticate(token: string): Promise<Authenticated> {
    return await this.ask("authenticate", { token });
  }

  /** The service's time, in Unix seconds. */
  async ping(): Promise<number> {
    return (await this.ask("ping", {})).now;
  }

  // --- sessions -------------------------------------------------------------------------------------------------------

  /** The session's committed state. Rejects with `session_not_found`. */
  async getSession(session_id: string): Promise<SessionState> {
    return (await this.ask("get_session", { session_id })).session;
  }

  async canResume(session_id: string): Promise<CanResumeResult> {
    return (await this.ask("get_session", { session_id })).can_resume;
  }

  /** The newest `limit` (at most 100) messages before the index `before`. */
  async getMessages(
    session_id: string,
    options: { limit?: number; before?: number } = {},
  ): Promise<Required<Pick<SessionFound, "messages" | "offset">>> {
    const { limit = 50, ...before } = options;
    const { messages = [], offset = 0 } = await this.ask("get_session", { session_id, messages: limit, ...before });
    return { messages, offset };
  }

  /** The conversation at its newest checkpoint, and the `sequence` after which the stream goes on from there. */
  async getSnapshot(session_id: string): Promise<SessionSnapshot> {
    return (await this.ask("get_session", { session_id, snapshot: true })).snapshot as SessionSnapshot;
  }

  /** One's own root sessions, newest first; `cursor` is the next page's `after`: there is more as long as there is one. */
  async listSessions(options: Options<"list_sessions", never> = {}): Promise<SessionList> {
    return await this.ask("list_sessions", options);
  }

  /** Newest first. */
  async listCheckpoints(
    session_id: string,
    options: Options<"list_checkpoints", "session_id"> = {},
  ): Promise<CheckpointList> {
    return await this.ask("list_checkpoints", { session_id, ...options });
  }

  /** A page of the stored stream behind the sequence `after`, without a subscription. */
  async readStream(
    session_id: string,
    options: Options<"read_stream", "session_id"> = {},
  ): Promise<StreamPage> {
    return await this.ask("read_stream", { session_id, ...options });
  }

  /** The agents that `run` takes, with JSON schemas of their input and output. */
  async listAgents(options: Options<"list_agents", never> = {}): Promise<AgentList> {
    return await this.ask("list_agents", options);
  }

  /** What the session cost, with its sub-agents', line by line. */
  async getCost(session_id: string): Promise<CostFound> {
    return await this.ask("get_cost", { session_id });
  }

  /** The budgets that bind the session. */
  async getBudgets(session_id: string): Promise<BudgetList> {
    return await this.ask("get_budgets", { session_id });
  }

  /** What this user has used, in the last `hours` (1 to 168) or ever. */
  async getUsage(options: Options<"get_usage", never> = {}): Promise<UsageFound> {
    return await this.ask("get_usage", options);
  }

  /** Another limit for a budget that `get_budgets` lists. For operators; others are refused with `not_allowed`. */
  async changeBudget(budget: string, limit: number): Promise<BudgetChanged> {
    return await this.ask("change_budget", { budget, limit });
  }

  /** Limits, queues, health and why limits moved. For operators; others are refused with `not_allowed`. */
  async getFleet(options: Options<"get_fleet", never> = {}): Promise<FleetFound> {
    return await this.ask("get_fleet", options);
  }

  /** How a step was bought: its attempts and its calls. */
  async getStep(session_id: string, step: number, options: { run_id?: string } = {}): Promise<StepFound> {
    return await this.ask("get_step", { session_id, step, ...options });
  }

  /** What the model was shown at a step (default the next one), and which messages were hidden or cleared. */
  async getContext(session_id: string, options: Options<"get_context", "session_id"> = {}): Promise<ContextFound> {
    return await this.ask("get_context", { session_id, ...options });
  }

  /** A checkpoint (default the latest), with its `custom_state`. */
  async getCheckpoint(session_id: string, checkpoint_id?: string): Promise<CheckpointFound["checkpoint"]> {
    return (await this.ask("get_checkpoint", { session_id, checkpoint_id })).checkpoint;
  }

  /** What changed from the checkpoint `before` to another (default the latest): patches, and messages that were added. */
  async diffCheckpoints(
    session_id: string,
    before: string,
    options: Options<"diff_checkpoints", "session_id" | "before"> = {},
  ): Promise<CheckpointDiff> {
    return await this.ask("diff_checkpoints", { session_id, before, ...options });
  }

  /** A new session with another's messages and state up to a checkpoint (default its latest): its id. */
  async branch(session_id: string, options: Options<"branch", "session_id"> = {}): Promise<string> {
    const fields = { session_id, ...options, key: options.key ?? freshKey() };
    return (await this.ask("branch", fields)).session_id;
  }

  /** A copy of a session up to a checkpoint, or of its first messages: its id. */
  async clone(session_id: string, options: Options<"clone", "session_id"> = {}): Promise<string> {
    const fields = { session_id, ...options, key: options.key ?? freshKey() };
    return (await this.ask("clone", fields)).session_id;
  }

  /** Delete the session, its sub-agents' sessions and its stream. False if there is none. */
  async delete(session_id: string): Promise<boolean> {
    try {
      return (await this.ask("delete", { session_id })).deleted;
    } catch (error) {
      if (error instanceof HelixError && error.code === "session_not_found") return false;
      throw error;
    }
  }

  // --- following ------------------------------------------------------------------------------------------------------

  /** The session's stream behind the sequence `after`, across its runs; it ends with its reader. */
  async *follow(session_id: string, options: { after?: number } = {}): AsyncGenerator<StreamMessage, void, undefined> {
    const { stream_id } = await this.getSession(session_id);
    yield* this.read(await this.feed(stream_id, options.after ?? 0, wholeStream));
  }

  /** @internal A feed of what is behind `after`. */
  async feed(streamId: string, after: number, judge: Judge): Promise<Feed> {
    await this.#link.following.makeRoom();
    return this.#link.following.add(streamId, after, judge, false);
  }

  /** @internal */
  read(feed: Feed): AsyncGenerator<StreamMessage, void, undefined> {
    return this.#link.following.read(feed);
  }

  /** @internal */
  catchUp(feed: Feed): void {
    this.#link.following.catchUp(feed);
  }
}
