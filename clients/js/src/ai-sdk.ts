// The AI SDK: `useChat` on agents over WebSocket.
import type { ChatTransport, UIMessage, UIMessageChunk } from "ai";
import { chatMessages } from "./chat-messages.ts";
import type { HelixClient } from "./client.ts";
import { HelixError } from "./errors.ts";
import { addUrls } from "./file-urls.ts";
import type { FrontendTool } from "./generated.ts";
import { isSame, uiContent } from "./message-parts.ts";
import { type PageTools, toolsOf } from "./page-tools.ts";
import { freshKey } from "./settings.ts";
import { type Answer, giveAnswers, prefixOf, say, sessionOf, storedMessage, type WhenRunning } from "./talks.ts";
import { eventsOf, hasMessages, isAtWork, type Turn, turnOf } from "./turns.ts";
import { UIMessageEncoder } from "./ui-messages.ts";
import { awaitTurn, isWaiting, type Waiting } from "./waiting.ts";

export { UIMessageEncoder } from "./ui-messages.ts";

export interface HelixChatTransportOptions {
  /** A client, or one that still connects: `HelixClient.connect(url, { token })`. It is the caller's to close. */
  client: HelixClient | Promise<HelixClient>;
  /** The name of the agent. */
  agent: string;
  /** The session of a chat. Default: an id that begins with `ses_` or the own prefix is one; another follows the prefix. */
  sessionId?: (chatId: string) => string | Promise<string>;
  /** The tools that the page executes, or a function that returns them for each message. `body.tools` of a message replaces them. */
  tools?: PageTools | (() => PageTools);
  /** What happens to a message while the agent works. Default: it waits for a turn of its own. A message to a session that waits
   *  for a person then closes the calls, unless older messages wait. */
  whenRunning?: WhenRunning;
}

/** What `sendMessage` and `addToolApprovalResponse` may give as `body`. */
export interface HelixChatBody {
  /** Of this message, in place of the transport's `whenRunning`. */
  when_running?: WhenRunning;
  /** Of approved calls, in place of the model's: by approval id. */
  arguments?: Record<string, Record<string, unknown>>;
  /** The tools that the page executes for this message's run, as assistant-ui sends them. */
  tools?: PageTools;
}

type SendOptions<M extends UIMessage> = Parameters<ChatTransport<M>["sendMessages"]>[0];

/**
 * A `ChatTransport` over a `HelixClient`: `useChat({ transport: new HelixChatTransport({ client, agent }), resume: true })`.
 *
 * A message while the agent runs waits for its own turn, which its response shows; `whenRunning` says otherwise. A transient part
 * `data-message-queued` has its `queued_id`, for `client.withdraw`. `stop()` interrupts the run; it can be resumed.
 * A lost connection shows nothing but a pause; a page that comes back shows the run from the beginning of its message.
 * Of the page's conversation only the newest message and the answers to calls that wait are used: the rest is the session's. A
 * message that the page edits takes the place of the one with its id, and all behind it goes.
 */
export class HelixChatTransport<M extends UIMessage = UIMessage> implements ChatTransport<M> {
  readonly resumeStreamIsReplay = true;
  readonly #client: Promise<HelixClient>;
  readonly #options: HelixChatTransportOptions;
  #prefix: Promise<string> | undefined;
  /** How often each chat was shown again. */
  #reconnects = new Map<string, number>();

  constructor(options: HelixChatTransportOptions) {
    this.#options = options;
    this.#client = Promise.resolve(options.client);
    this.#client.catch(() => undefined); // each request says so
  }

  /** Rejects with `HelixError`: of the connection, and what `HelixClient.run` and `answer` reject with. */
  async sendMessages({
    trigger,
    chatId,
    messageId,
    messages,
    abortSignal,
    body,
  }: SendOptions<M>): Promise<ReadableStream<UIMessageChunk>> {
    const client = await this.#client;
    const session_id = await this.#session(client, chatId);
    const interrupt = () => void this.#interrupt(client, session_id);
    const again = trigger === "regenerate-message";
    const sent = (body ?? {}) as HelixChatBody;
    const { tools: own = {} } = this.#options;
    const tools = toolsOf(sent.tools ?? (typeof own === "function" ? own() : own));
    const newest = (again ? undefined : messages.find((message) => message.id === messageId)) ?? messages.at(-1);
    if (again) {
      const turn = await this.#again(client, session_id, messageId, newest, tools, abortSignal);
      return this.#stream(client, turn, abortSignal, interrupt);
    }
    if (newest?.role === "assistant") {
      const answers = answersOf(newest, sent);
      const { turn, from } = await giveAnswers(client, session_id, answers);
      return this.#stream(client, turn, abortSignal, interrupt, from);
    }
    const edits = messageId !== undefined && messageId === newest?.id ? freshKey() : undefined;
    const whenRunning = (body as HelixChatBody | undefined)?.when_running ?? this.#options.whenRunning;
    const said = { content: uiContent(newest?.parts ?? []), id: newest?.id, edits, tools, signal: abortSignal, whenRunning };
    return this.#stream(client, await say(client, this.#options.agent, session_id, said), abortSignal, interrupt);
  }

  /**
   * All messages of the chat, for `useChat({ messages, resume: true })` of a page that loads: the same as a page has that saw them
   * come. None where nothing was said yet. What the stream has lost, or never had in a copied session, comes from the history,
   * without what sub-agents did.
   */
  async messages(chatId: string): Promise<M[]> {
    const client = await this.#client;
    try {
      return (await chatMessages(client, await this.#session(client, chatId))) as M[];
    } catch (error) {
      if (isMissing(error)) return [];
      throw error;
    }
  }

  /** The newest message of the chat, from its beginning, over or not; null where nothing was said yet. */
  async reconnectToStream({
    chatId,
    abortSignal,
  }: Parameters<ChatTransport<M>["reconnectToStream"]>[0]): Promise<ReadableStream<UIMessageChunk> | null> {
    const count = (this.#reconnects.get(chatId) ?? 0) + 1;
    this.#reconnects.set(chatId, count);
    const client = await this.#client;
    const session_id = await this.#session(client, chatId);
    let turn: Turn;
    try {
      turn = await turnOf(client, session_id);
    } catch (error) {
      if (isMissing(error)) return null;
      throw error;
    }
    const works = await isAtWork(client, turn.session);
    if (!works && !(await hasMessages(client, turn))) return null; // the stream's retention has deleted them
    // The SDK aborts a reconnection also when another one of the chat takes its place: that stops no run.
    const stop = () =>
      setTimeout(() => works && this.#reconnects.get(chatId) === count && void this.#interrupt(client, session_id));
    return this.#stream(client, turn, abortSignal, stop);
  }

  async #session(client: HelixClient, chatId: string): Promise<string> {
    if (this.#options.sessionId !== undefined) return await this.#options.sessionId(chatId);
    this.#prefix ??= prefixOf(client);
    this.#prefix.catch(() => (this.#prefix = undefined));
    return sessionOf(await this.#prefix, chatId);
  }

  /** Answer the run of that message anew: from the state in which it began. A message whose text or files the page changed is an
   *  edit, and one that the session does not have a message. */
  async #again(
    client: HelixClient,
    session_id: string,
    messageId: string | undefined,
    newest: M | undefined,
    tools: FrontendTool[],
    signal: AbortSignal | undefined,
  ): Promise<Turn | Waiting> {
    let run = messageId; // of an answer, unless it is a message of the user
    if (newest?.role === "user") {
      const [content, stored] = [uiContent(newest.parts), await storedMessage(client, session_id, newest.id)];
      if (stored === undefined || !(await isSame(stored, content))) {
        const { whenRunning } = this.#options;
        const said = { content, id: newest.id, edits: freshKey(), tools, signal, whenRunning };
        return await say(client, this.#options.agent, session_id, said);
      }
      if (run === undefined || run === newest.id) run = stored.run_id ?? undefined;
    }
    const { first } = await turnOf(client, session_id, run);
    let begin: string | undefined;
    for (let after: string | null | undefined; after !== null; ) {
      const { checkpoints, cursor } = await client.listCheckpoints(session_id, { limit: 100, after: after ?? null });
      const own = checkpoints.filter((checkpoint) => checkpoint.turn === first.turn);
      begin = own.at(-1)?.id ?? begin;
      after = checkpoints.some((checkpoint) => checkpoint.turn < first.turn) ? null : cursor;
    }
    if (begin === undefined) throw new HelixError("checkpoint_not_found", "the beginning of that message is gone");
    const own = tools.length > 0 ? { tools } : {}; // an older service does not know them
    const rewound = { session_id, mode: "from_checkpoint" as const, checkpoint_id: begin, ...own };
    const { run_id } = await client.ask("resume", { ...rewound, key: freshKey(), subscribe: false });
    return await turnOf(client, session_id, run_id);
  }

  async #interrupt(client: HelixClient, session_id: string): Promise<void> {
    try {
      await client.interrupt(session_id, { reason: "stopped by the user" });
    } catch (error) {
      console.warn("helix: the run could not be stopped:", error);
    }
  }

  #stream(
    client: HelixClient,
    shown: Turn | Waiting,
    signal: AbortSignal | undefined,
    onAbort: () => void,
    from?: number,
  ): ReadableStream<UIMessageChunk> {
    const session_id = isWaiting(shown) ? shown.session_id : shown.session.session_id;
    const parts: AsyncIterator<UIMessageChunk> = isWaiting(shown) ? waitingParts(client, shown) : partsOf(client, shown, from);
    if (signal?.aborted) onAbort();
    signal?.addEventListener("abort", onAbort, { once: true });
    const end = () => signal?.removeEventListener("abort", onAbort);
    return new ReadableStream<UIMessageChunk>({
      async pull(controller) {
        try {
          const { done, value } = await parts.next();
          if (!done) {
            if (value.type === "file") await addUrls(client, session_id, [value]);
            return controller.enqueue(value);
          }
          controller.close();
        } catch (error) {
          controller.error(error);
        }
        end();
      },
      cancel() {
        // The run goes on, unless the signal says otherwise. A reader that waits for a message is not waited for.
        parts.return?.().catch(() => undefined);
      },
    });
  }
}

/** Nothing was said yet. */
const isMissing = (error: unknown): boolean => error instanceof HelixError && error.code === "session_not_found";

async function* partsOf(
  client: HelixClient,
  turn: Turn,
  from: number = turn.first.turn,
): AsyncGenerator<UIMessageChunk, void, undefined> {
  if (turn.turn < from) return; // no run goes on yet: the call waits for other answers
  yield* eventsOf(client, turn, new UIMessageEncoder(turn.session.session_id), from);
}

async function* waitingParts(client: HelixClient, waiting: Waiting): AsyncGenerator<UIMessageChunk, void, undefined> {
  for await (const item of awaitTurn(client, waiting)) {
    if ("state" in item) yield { type: "data-message-queued", data: item, transient: true };
    else yield* partsOf(client, item);
  }
}

/** Approvals that the page has given, and results of its tools, by the id of their call on the page. */
function answersOf(message: UIMessage, body: HelixChatBody): Map<string, Answer> {
  const found = new Map<string, Answer>();
  for (const part of message.parts) {
    if (!("toolCallId" in part)) continue;
    if (part.state === "approval-responded") {
      const { id, approved, reason } = part.approval;
      const edited = body.arguments?.[id];
      found.set(id, {
        approved,
        result: false,
        shown: part.input,
        ...(reason !== undefined && { reason }),
        ...(edited !== undefined && { arguments: edited }),
      });
    } else if (part.state === "output-available") {
      found.set(part.toolCallId, { approved: true, data: part.output, result: true });
    } else if (part.state === "output-error") {
      found.set(part.toolCallId, { approved: false, reason: part.errorText, result: true });
    }
  }
  return found;
}
