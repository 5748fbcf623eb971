// What a front end says: a message for a session, and answers to calls that wait.
import type { HelixClient } from "./client.ts";
import { HelixError } from "./errors.ts";
import type { ReadContent } from "./files.ts";
import type { FrontendTool, UserMessage } from "./generated.ts";
import { type Json, same } from "./patches.ts";
import { freshKey } from "./settings.ts";
import { questionsOf, type Turn, turnOf } from "./turns.ts";

const TRIES = 3;

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
export const userMessageId = ({ id, run_id, queued_id, metadata }: UserMessage): string =>
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
}

/** A message of the user, once: the repeat of a request with that `id` finds the run that the first one started. A run that is
 *  at work is interrupted first. */
export async function say(
  client: HelixClient,
  agent: string,
  session_id: string,
  { content, id = "", edits, tools, signal }: Said,
): Promise<Turn> {
  const fields = await client.store(content, session_id, signal);
  const words = edits === undefined ? id : `${id}/${edits}`;
  const key = id === "" || words.length > 100 || !/^[!-~]*$/.test(words) ? freshKey() : `ui:${words}`;
  for (let tries = 1; ; tries += 1) {
    try {
      const named = id === "" || id.length > 256 ? {} : { message_id: id, edits: edits !== undefined };
      const own = tools !== undefined && tools.length > 0 ? { tools } : {}; // an older service does not know them
      const { run_id } = await client.ask("run", { agent, ...fields, session_id, key, subscribe: false, ...named, ...own });
      return await turnOf(client, session_id, run_id);
    } catch (error) {
      const running = error instanceof HelixError && error.code === "agent_already_running";
      if (!running || tries >= TRIES) throw error;
      await client.interrupt(session_id, { reason: "another message of the user" });
      await (await client.handle(session_id)).result();
    }
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
