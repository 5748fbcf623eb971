// A message that waits for the session's run, and its own turn.
import type { HelixClient } from "./client.ts";
import { HelixError } from "./errors.ts";
import type { MessageQueuedChunk, SessionState, Started, WaitingMessage } from "./generated.ts";
import { isAtWork, type Turn, turnOf } from "./turns.ts";
import { chunkOf, type StreamMessage } from "./wire.ts";

/** The reply to a message that waits. */
export type Waiting = Started & { queued_id: string };

export const isWaiting = (started: object): started is Waiting => "queued_id" in started;

/** What a page is told of a message: it waits, or what became of it. */
export type Fate = Pick<MessageQueuedChunk, "queued_id" | "state"> & Partial<Pick<MessageQueuedChunk, "mode" | "content" | "files">>;

/**
 * The message's fate so far, and its own turn once it has begun. Without a turn the last fate is final: the message joined
 * another run, was withdrawn, or waits until someone continues the session. The turns before the message's own are never
 * given: another reader of the page shows them.
 */
export async function* awaitTurn(client: HelixClient, waiting: Waiting): AsyncGenerator<Fate | Turn, void, undefined> {
  const { session_id, stream_id, queued_id, after } = waiting;
  const feed = await client.feed(stream_id, after, (message) => (concerns(message, waiting) ? "show" : "skip"));
  const messages = client.read(feed);
  try {
    const session = await client.getSession(session_id);
    const own = find(session, queued_id);
    if (own !== undefined) yield fateOf(own);
    if (own === undefined || (await stays(client, session, own))) {
      if (own === undefined) yield* delivered(client, waiting);
      return;
    }
    for await (const message of messages) {
      const chunk = message.kind === "chunk" ? chunkOf(message) : undefined;
      if (chunk?.type === "message_queued" && chunk.queued_id === queued_id) {
        if (chunk.state === "waiting") continue;
        if (chunk.state === "delivered" && chunk.mode !== "steer") yield await turnOf(client, session_id, own.run_id);
        else yield chunk;
        return;
      }
      const now = await client.getSession(session_id); // a run has ended
      const still = find(now, queued_id);
      if (still === undefined) return yield* delivered(client, waiting, own.run_id);
      if (await stays(client, now, still)) return;
    }
  } catch (error) {
    if (!(error instanceof HelixError) || error.code !== "session_not_found") throw error; // it was deleted meanwhile
  } finally {
    messages.return().catch(() => undefined);
  }
}

/** The message's own turn, or what became of it. `run_id`: its own run; default: that of the reply. */
async function* delivered(
  client: HelixClient,
  { session_id, run_id, queued_id }: Waiting,
  own: string = run_id,
): AsyncGenerator<Fate | Turn, void, undefined> {
  const { runs = [] } = await client.ask("get_session", { session_id, runs: 100 });
  const run = runs.find((one) => one.run_id === own);
  const { messages, offset } = await client.getMessages(session_id, { limit: 100 });
  const place = messages.findIndex((message) => message.role === "user" && message.queued_id === queued_id);
  const said = messages[place];
  if (said?.role !== "user") return yield { queued_id, state: "withdrawn" };
  const began = run?.run_id === said.run_id && offset + place === run?.start_count;
  if (began) yield await turnOf(client, session_id, own);
  else yield { queued_id, state: "delivered", mode: "steer", content: said.content, files: said.files ?? [] };
}

const find = (session: SessionState, queued_id: string): WaitingMessage | undefined =>
  session.inbox.find(({ id }) => id === queued_id);

const fateOf = ({ id, mode, content, files }: WaitingMessage): Fate => ({
  ...{ queued_id: id, state: "waiting", mode, content },
  files: files ?? [],
});

function concerns({ kind, session_id, chunk }: StreamMessage, waiting: Waiting): boolean {
  if (session_id !== waiting.session_id) return false;
  return kind !== "chunk" || (chunk?.["type"] === "message_queued" && chunk["queued_id"] === waiting.queued_id);
}

/** Whether the message waits for a person: a run that completes or fails by itself starts what waits. */
async function stays(client: HelixClient, session: SessionState, { mode }: WaitingMessage): Promise<boolean> {
  if (session.status === "interrupted") return mode !== "interrupt";
  if (session.status === "failed") return session.aborted;
  return session.status === "paused" && !(await isAtWork(client, session));
}
