// What a page shows of a session: a run, and where the page's message that it belongs to began.
import type { HelixClient } from "./client.ts";
import { CONTINUES } from "./conversation/changes.ts";
import { HelixError } from "./errors.ts";
import type { RunRow, SessionState } from "./generated.ts";
import { questionId } from "./question-parts.ts";
import type { Judge, StreamMessage } from "./wire.ts";

const RUNS = 100;

/** The id of a call on a page. A call's id is unique within its session only, so a sub-agent's is named with it. */
export const shownCall = (root: string, sessionId: string, callId: string): string =>
  sessionId === root ? callId : `${sessionId}/${callId}`;

export interface Turn {
  session: SessionState;
  /** The run that a response ends with. */
  run_id: string;
  turn: number;
  /** The run that began its message: itself, unless it goes on from one that paused, was interrupted, failed or died. */
  first: RunRow;
}

/** The turn of a run, by default of the session's present one. */
export async function turnOf(client: HelixClient, session_id: string, run_id?: string): Promise<Turn> {
  const { session, runs = [] } = await client.ask("get_session", { session_id, runs: RUNS });
  const byId = new Map(runs.map((run) => [run.run_id, run]));
  const run = byId.get(run_id ?? session.current_run_id);
  if (run === undefined) throw new HelixError("run_not_found", `session ${session_id} has no run ${run_id}`);
  let first: RunRow = run;
  while (CONTINUES.has(first.mode) && first.previous_run_id !== null) {
    const before = byId.get(first.previous_run_id);
    if (before === undefined) break; // of a copied session, whose runs stayed behind
    first = before;
  }
  return { session, run_id: run.run_id, turn: run.turn, first };
}

/** The turn's messages from the beginning of its first run to where nothing more comes by itself, those of sub-agents
 *  between: a sub-agent that is at work when its run pauses starts another run when it ends. */
export async function* messagesOf(client: HelixClient, turn: Turn): AsyncGenerator<StreamMessage, void, undefined> {
  const { session_id, stream_id } = turn.session;
  let begun = false;
  const judge: Judge = (message) => {
    const own = message.session_id === session_id;
    begun ||= own && message.turn >= turn.first.turn;
    if (!begun && message.run_id !== "") return "skip";
    return isEnd(turn, message) && message.kind !== "paused" ? "last" : "show";
  };
  const ended = new Map<string, number>();
  let pause: StreamMessage | undefined;
  for await (const message of client.read(await client.feed(stream_id, turn.first.start_sequence, judge))) {
    if (pause !== undefined && beginsAnother(message, pause)) return;
    if (message.kind !== "chunk") ended.set(message.session_id, message.turn);
    if (message.session_id === session_id && message.run_id !== "") pause = isEnd(turn, message) ? message : undefined;
    yield message;
    if (pause !== undefined && message.kind !== "chunk" && !(await goesOn(client, pause, ended))) return;
  }
}

/** Whether it begins the session's next message: no run that goes on with this one. */
function beginsAnother({ session_id, run_id, chunk }: StreamMessage, end: StreamMessage): boolean {
  if (session_id !== end.session_id || run_id === "" || run_id === end.run_id) return false;
  return chunk?.["type"] !== "run_resumed" || !CONTINUES.has(String(chunk["mode"]));
}

/** Whether more comes after that pause. `ended` has the turns of the ends so far: rows are ahead of the log. */
async function goesOn(client: HelixClient, pause: StreamMessage, ended: ReadonlyMap<string, number>): Promise<boolean> {
  const root = await client.getSession(pause.session_id);
  if (root.turn > pause.turn || root.status === "running") return true;
  const children = await childrenOf(client, root);
  return children.some((child) => isWorking(child) || child.turn > (ended.get(child.session_id) ?? child.turn));
}

/** Whether the session runs, or will by itself: it waits for a sub-agent that is at work, or has just ended. */
export const isAtWork = async (client: HelixClient, session: SessionState): Promise<boolean> =>
  session.status === "running" || (await childrenOf(client, session)).some(isWorking);

const isWorking = ({ status }: SessionState): boolean => status === "running" || status === "completed" || status === "failed";

/** The sub-agents that a paused session waits for, and those below them. */
async function childrenOf(client: HelixClient, root: SessionState): Promise<SessionState[]> {
  const found: SessionState[] = [];
  const stack = [root];
  for (let state = stack.pop(); state !== undefined; state = stack.pop()) {
    for (const { child_session_id } of state.status === "paused" ? state.pending : []) {
      if (child_session_id === null) continue;
      try {
        const child = await client.getSession(child_session_id);
        found.push(child);
        stack.push(child);
      } catch (error) {
        if (!(error instanceof HelixError) || error.code !== "session_not_found") throw error; // deleted
      }
    }
  }
  return found;
}

/** Whether the stream still has messages of the turn. */
export async function hasMessages(client: HelixClient, { session, first }: Turn): Promise<boolean> {
  const { messages } = await client.readStream(session.session_id, { after: first.start_sequence, limit: 1 });
  return messages.length > 0;
}

/** The end of the run, or of a later one that took it over. */
export const isEnd = (turn: Turn, message: StreamMessage): boolean =>
  message.kind !== "chunk" && message.session_id === turn.session.session_id && message.turn >= turn.turn;

export interface Encoder<T> {
  feed(message: StreamMessage): T[];
  close(): T[];
}

/** Events that one message of the stream becomes. */
export interface Batch<T> {
  sequence: number;
  events: T[];
}

/**
 * The events of a turn, from the run `from` on: a response to a page that has all before. Default: from the beginning of the
 * page's message, however many runs it took.
 */
export async function* eventsOf<T>(
  client: HelixClient,
  turn: Turn,
  encoder: Encoder<T>,
  from: number = turn.first.turn,
): AsyncGenerator<T, void, undefined> {
  for await (const { events } of batchesOf(client, turn, encoder, from)) yield* events;
}

/** The same, message by message of the stream. */
export async function* batchesOf<T>(
  client: HelixClient,
  turn: Turn,
  encoder: Encoder<T>,
  from: number,
): AsyncGenerator<Batch<T>, void, undefined> {
  let [live, early] = [false, [] as Batch<T>[]];
  for await (const message of messagesOf(client, turn)) {
    const own = message.session_id === turn.session.session_id;
    const events = encoder.feed(message);
    early.push({ sequence: message.sequence, events });
    live ||= own && message.turn >= from;
    if (isEnd(turn, message)) events.push(...encoder.close());
    else if (own && message.kind !== "chunk" && !live) {
      encoder.close(); // a response ended here
      early = [];
    }
    if (live) yield* early.splice(0);
  }
}

/** A call that waits: where it lives, what it waits for, and the arguments that would be executed. */
export interface Question {
  session_id: string;
  call_id: string;
  kind: string;
  arguments: object;
  /** The round of the questions that a tool asks. */
  round: number;
}

/** The calls of the session and of its sub-agents that wait for the user, by their id on a page. */
export async function questionsOf(client: HelixClient, root: SessionState): Promise<Map<string, Question>> {
  const found = new Map<string, Question>();
  const stack = [root];
  for (let state = stack.pop(); state !== undefined; state = stack.pop()) {
    for (const { call_id, kind, child_session_id, arguments: given, round } of state.pending) {
      const { session_id } = state;
      const question = { session_id, call_id, kind, arguments: given, round };
      const shown = shownCall(root.session_id, session_id, call_id);
      if (kind === "elsewhere") continue;
      if (kind !== "child") found.set(kind === "question" ? questionId(shown, round) : shown, question);
      else if (child_session_id !== null) stack.push(await client.getSession(child_session_id));
    }
  }
  return found;
}
