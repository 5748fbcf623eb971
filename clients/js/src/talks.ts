// What a front end says: a message for a session, and answers to calls that wait.
import type { HelixClient } from "./client.ts";
import { HelixError } from "./errors.ts";
import type { ReadContent } from "./files.ts";
import type { FrontendTool, Run, Started, UserMessage } from "./generated.ts";
import { type Json, same } from "./patches.ts";
import { freshKey } from "./settings.ts";
import type { Waiting } from "./waiting.ts";
import { isAtWork, questionsOf, type Turn, turnOf } from "./turns.ts";

const TRIES = 3;

/** What happens to a message while its session works. `queue`: it gets a turn of its own afterwards. `steer`: the run sees it
 *  before its next model call. `interrupt`: it stops the run, and then gets a turn of its own. `refuse`: `agent_already_running`. */
export type WhenRunning = NonNullable<Run["when_running"]>;

/** An answer to a call that waits. `result`: `data` is the result of a tool of the page; undefined: either is meant. `shown`: the
 *  arguments that the page has; others than the model's are what to execute. */
export interface Answer {
  approved: boolean;
  reason?: string;
  data?: unknown;
  arguments?: Record<string, unknown>;
  result: boolean | undefined;
  /** The response if the call asks questions, where that differs. */
  answer?: Answer;
  shown?: unknown;
}

export const prefixOf = async (client: HelixClient): Promise<string> => (await client.whoami()).prefix;

/** The session of a conversation: an id that begins with `ses_` or the prefix is one; another follows the prefix. */
export const sessionOf = (prefix: string, id: string): string =>
  id.startsWith("ses_") || id.startsWith(prefix) ? id : `${prefix}${id}`;

/** What a page calls a stored message of the user: the id that it was sent with, if it was sent by a page. */
export const userMessageId = ({ id, run_id, queued_id, metadata }: Pick<UserMessage, "id" | "run_id" | "queued_id" | "metadata">): string =>
  typeof metadata["id"] === "string" ? metadata["id"] : `${queued_id || (run_id ?? id)}/user`;

/** What the session has of a message of the user. */
export async function storedMessage(client: HelixClient, session_id: string, id: string): Promise<UserMessage | undefined> {
  for (let before: number | undefined; before !== 0; ) {
    const { messages, offset } = await client.getMessages(session_id, before === undefined ? { limit: 100 } : { limit: 100, before });
    const found = messages.findLast((message) => message.role === "user" && userMessageId(message) === id);
    if (found?.role === "user") return found;
    before = offset;
  }
  return undefined;
}

/** `edits`: the message may take the place of one with its `id`; that is one request for each value. */
export interface Said {
  content: ReadContent;
  id?: string | undefined;
  edits?: string | undefined;
  /** The tools that the page executes for the run. */
  tools?: FrontendTool[] | undefined;
  /** Stops the uploads of the message's files. */
  signal?: AbortSignal | undefined;
  /** Default: `queue`. A message to a session that waits for a person then closes the calls, unless older messages wait. */
  whenRunning?: WhenRunning | undefined;
}

/** A message of the user, once: the repeat of a request with that `id` finds the run that the first one started. A message that
 *  waits has a `queued_id` and no turn yet. */
export async function say(
  client: HelixClient,
  agent: string,
  session_id: string,
  { content, id = "", edits, tools, signal, whenRunning }: Said,
): Promise<Turn | Waiting> {
  const fields = await client.store(content, session_id, signal);
  const words = edits === undefined ? id : `${id}/${edits}`;
  const key = id === "" || words.length > 100 || !/^[!-~]*$/.test(words) ? freshKey() : `ui:${words}`;
  const named = id === "" || id.length > 256 ? {} : { message_id: id, edits: edits !== undefined };
  const own = tools !== undefined && tools.length > 0 ? { tools } : {}; // an older service does not know them
  const request = { agent, ...fields, session_id, key, subscribe: false, ...named, ...own };
  const started = await begin(client, request, whenRunning);
  return started.queued_id == null ? await turnOf(client, session_id, started.run_id) : { ...started, queued_id: started.queued_id };
}

/** An edit rewinds the session, so it interrupts a run that is at work, unless `whenRunning` is `refuse`. */
async function begin(
  client: HelixClient,
  request: Parameters<typeof client.ask<"run">>[1] & { session_id: string },
  whenRunning: WhenRunning | undefined,
): Promise<Started> {
  for (let tries = 1; ; tries += 1) {
    const asks = whenRunning === undefined && (await waitsForPerson(client, request.session_id));
    try {
      return await client.ask("run", { ...request, when_running: asks ? "refuse" : (whenRunning ?? "queue") });
    } catch (error) {
      const running = error instanceof HelixError && error.code === "agent_already_running";
      if (!running || whenRunning === "refuse" || tries >= TRIES) throw error;
      if (asks) continue; // it has been answered in the meantime
      await client.interrupt(request.session_id, { reason: "another message of the user" });
      await (await client.handle(request.session_id)).result();
    }
  }
}

async function waitsForPerson(client: HelixClient, session_id: string): Promise<boolean> {
  try {
    const session = await client.getSession(session_id);
    return session.status === "paused" && session.inbox.length === 0 && !(await isAtWork(client, session));
  } catch (error) {
    if (error instanceof HelixError && error.code === "session_not_found") return false;
    throw error;
  }
}

/** Give the answers that somebody waits for; what the reader has not seen yet begins with the run `from`. */
export async function giveAnswers(
  client: HelixClient,
  session_id: string,
  answers: ReadonlyMap<string, Answer>,
): Promise<{ turn: Turn; from: number }> {
  const before = await client.getSession(session_id);
  const waiting = await questionsOf(client, before);
  let answered = 0;
  for (const [id, given] of answers) {
    const asked = waiting.get(id);
    const isResult = asked?.kind === "client" || asked?.kind === "question";
    const { result, shown, answer: _, ...answer } = (asked?.kind === "question" && given.answer) || given;
    if (asked === undefined || (result !== undefined && result !== isResult)) continue;
    const round = asked.kind === "question" && { round: asked.round };
    const call = { session_id: asked.session_id, tool_call_id: asked.call_id, ...round };
    if (shown !== undefined && answer.arguments === undefined && answer.approved && asked.kind === "approval") {
      if (!same(asked.arguments as Json, shown as Json)) answer.arguments = shown as Record<string, unknown>;
    }
    try {
      await client.ask("answer", { ...call, ...answer, subscribe: false });
      answered += 1;
    } catch (error) {
      if (!(error instanceof HelixError) || error.code !== "call_not_pending") throw error; // another tab was quicker
    }
  }
  if (waiting.size > 0 && answered === 0) {
    const calls = [...waiting.keys()].join(", ");
    throw new HelixError("call_not_pending", `no answer fits a call that waits: ${calls}`);
  }
  if (answered === 0 && before.status === "interrupted") {
    // A page that saw this run again would answer again, without end.
    const problem = "no call waits for an answer, because the run was interrupted: send a message, or answer the last one anew";
    throw new HelixError("call_not_pending", problem);
  }
  // Answers that were given before began the present run.
  const present = before.status === "running" || answered === 0;
  return { turn: await turnOf(client, session_id), from: present ? before.turn : before.turn + 1 };
}
