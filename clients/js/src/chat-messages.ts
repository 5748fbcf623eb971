// The messages of a chat, for a page that loads: what `useChat` has after it has seen all of it live. Each message of the page is
// folded from the stream as the page folds it; what the stream does not have any more, or never had in a copied session, is
// made of the session's history.
import { type DynamicToolUIPart, readUIMessageStream, type UIMessage, type UIMessageChunk } from "ai";
import type { HelixClient } from "./client.ts";
import { CONTINUES } from "./conversation/changes.ts";
import { isCut } from "./conversation/items.ts";
import { addUrls, resultFiles, uiFile } from "./file-urls.ts";
import type { AskedQuestion, RunRow, SessionFound, WaitingMessage } from "./generated.ts";
import { partsOf } from "./message-parts.ts";
import { ANSWERED_BY, answersOf, peopleOf, QUESTION, questionId, roundsOf, shownQuestion } from "./question-parts.ts";
import { servedParts } from "./served-parts.ts";
import { userMessageId } from "./talks.ts";
import { UIMessageEncoder } from "./ui-messages.ts";
import { messageOf, type StreamMessage, waitsIn } from "./wire.ts";

const [RUNS, MESSAGES, CHUNKS] = [100, 100, 500];
const REWINDS: ReadonlySet<string> = new Set(["from_checkpoint", "from_start"]);

type Stored = NonNullable<SessionFound["messages"]>[number];
type Part = UIMessage["parts"][number];

/** A run, and those that go on with its message of the page. */
interface Entry {
  first: RunRow;
  runs: Set<string>;
  /** The last step that a rewind behind it left. */
  lastStep: number;
  log: StreamMessage[];
  /** Ends of its calls that came after it: of calls that waited when a new message closed them. */
  late: StreamMessage[];
}

/** Rejects with `session_not_found` where nothing was said yet. */
export async function chatMessages(client: HelixClient, session_id: string): Promise<UIMessage[]> {
  const found = await messagesOf(client, session_id);
  await addUrls(client, session_id, found.flatMap(({ parts }) => parts));
  return found;
}

async function messagesOf(client: HelixClient, session_id: string): Promise<UIMessage[]> {
  const { session, runs = [] } = await client.ask("get_session", { session_id, runs: RUNS });
  const history = await historyOf(client, session_id, session.message_count);
  const entries = entriesOf(runs.toReversed());
  const before = entries[0]?.first.start_count ?? history.length;
  const found = historyMessages(session_id, history.slice(0, before));
  if (entries.length === 0) return found;
  const from = await readLog(client, session_id, entries);
  for (const [n, entry] of entries.entries()) {
    const { start_count, start_sequence, run_id } = entry.first;
    const said = history[start_count];
    const own = said?.role === "user" && said.run_id !== null && entry.runs.has(said.run_id);
    if (own) found.push(userMessage(said));
    const rest = history.slice(start_count + Number(own), entries[n + 1]?.first.start_count); // messages that steered follow the answer
    if (start_sequence + 1 >= from) {
      const answer = await folded(session_id, entry);
      if (answer !== undefined) found.push(answer);
      found.push(...rest.flatMap((message) => (message.role === "user" ? [userMessage(message)] : [])));
    } else found.push(...historyMessages(session_id, rest, run_id));
  }
  return [...found, ...session.inbox.map(waitingMessage)];
}

async function historyOf(client: HelixClient, session_id: string, count: number): Promise<Stored[]> {
  const pages: Stored[][] = [];
  for (let before = count; before > 0; ) {
    const page = await client.getMessages(session_id, { limit: MESSAGES, before });
    pages.unshift(page.messages);
    before = page.offset;
  }
  return pages.flat();
}

/** Of the runs, the oldest first, those that the conversation has: a rewind takes away what came behind its checkpoint. */
function entriesOf(runs: readonly RunRow[]): Entry[] {
  const entries: Entry[] = [];
  for (const run of runs) {
    const last = entries.at(-1);
    if (CONTINUES.has(run.mode) && last !== undefined && last.runs.has(run.previous_run_id ?? "")) {
      last.runs.add(run.run_id);
      continue;
    }
    if (REWINDS.has(run.mode)) {
      while ((entries.at(-1)?.first.start_count ?? -1) >= run.start_count) entries.pop();
      const left = entries.at(-1);
      if (left !== undefined) left.lastStep = Math.min(left.lastStep, run.start_step);
    }
    entries.push({ first: run, runs: new Set([run.run_id]), lastStep: Infinity, log: [], late: [] });
  }
  return entries;
}

/** Give each entry its messages of the stream, those of sub-agents between. The first sequence that the stream still has. */
async function readLog(client: HelixClient, session_id: string, entries: readonly Entry[]): Promise<number> {
  const placeOf = new Map(entries.flatMap((entry, place) => [...entry.runs].map((run) => [run, place])));
  let [after, from, present] = [entries[0]!.first.start_sequence, Infinity, -1];
  while (true) {
    const { stream_id, messages } = await client.readStream(session_id, { after, limit: CHUNKS });
    for (const message of messages.map((body) => messageOf(stream_id, body))) {
      if (from === Infinity || message.run_id === "") from = message.sequence; // or the word that all before is lost
      const own = message.session_id === session_id;
      if (own && message.run_id !== "") present = placeOf.get(message.run_id) ?? -1;
      if (message.run_id !== "") entries[present]?.log.push(message);
      if (own && message.chunk?.["type"] === "tool_end") entries[present - 1]?.late.push(message);
      after = message.sequence;
    }
    if (messages.length === 0) return from;
  }
}

/** What the page makes of the entry's responses, one after the other; undefined where they show nothing. */
async function folded(session_id: string, { log, late, lastStep }: Entry): Promise<UIMessage | undefined> {
  const encoder = new UIMessageEncoder(session_id);
  const responses: UIMessageChunk[][] = [[]];
  for (const message of log) {
    const own = message.session_id === session_id;
    if (own && Number(message.chunk?.["step"] ?? 0) > lastStep) break;
    const response = responses.at(-1)!;
    response.push(...encoder.feed(message));
    if (!own || message.kind === "chunk") continue;
    response.push(...encoder.close());
    responses.push([]);
  }
  for (const message of late) responses.at(-1)!.push(...encoder.endCall(message));
  let shown: UIMessage | undefined;
  for (const response of responses) {
    if (response.length === 0) continue;
    const stream = new ReadableStream<UIMessageChunk>({
      start(controller) {
        for (const part of joined(response)) controller.enqueue(part);
        controller.close();
      },
    });
    const options = { stream, onError: () => undefined, ...(shown !== undefined && { message: shown }) };
    for await (const message of readUIMessageStream(options)) shown = message;
  }
  return shown !== undefined && shown.parts.length > 0 ? shown : undefined;
}

/** With one delta for all that follow each other: each costs a copy of the message. */
function joined(parts: readonly UIMessageChunk[]): UIMessageChunk[] {
  const found: UIMessageChunk[] = [];
  for (const part of parts) {
    const last = found.at(-1);
    const isDelta = part.type === "text-delta" || part.type === "reasoning-delta";
    if (isDelta && last?.type === part.type && last.id === part.id) found[found.length - 1] = { ...last, delta: last.delta + part.delta };
    else found.push(part);
  }
  return found;
}

// --- from history -----------------------------------------------------------------------------------------------------------

/** It is the last on the page, as on the page that sent it. */
const waitingMessage = ({ id, metadata = {}, content, files = [] }: WaitingMessage): UIMessage => ({
  ...userMessage({ id, run_id: null, queued_id: id, metadata, content, files }),
  metadata: { queuedId: id, state: "waiting" },
});

const userMessage = (said: Parameters<typeof userMessageId>[0] & Pick<WaitingMessage, "content" | "files">): UIMessage => ({
  id: userMessageId(said),
  role: "user",
  parts: partsOf(said.content, said.files ?? []).map((part) =>
    typeof part === "string" ? { type: "text", text: part } : uiFile(part),
  ),
});

/** `runId`: of the message of the page that all answers belong to; by default each has the run that gave it. */
function historyMessages(session_id: string, history: readonly Stored[], runId?: string): UIMessage[] {
  const found: UIMessage[] = [];
  const calls = new Map<string, DynamicToolUIPart>();
  let answer: UIMessage | undefined;
  for (const stored of history) {
    if (stored.role === "user") found.push(userMessage(stored));
    else if (stored.role === "assistant") {
      const run = runId ?? stored.run_id ?? stored.id;
      if (found.at(-1)?.role !== "assistant") answer = found.findLast(({ id }) => id === run); // it was steered
      if (answer === undefined) {
        answer = { id: run, role: "assistant", metadata: { sessionId: session_id, runId: run }, parts: [] };
        found.push(answer);
      }
      answer.parts.push(...answerParts(stored, calls));
    } else if (stored.role === "tool") {
      const call = calls.get(stored.tool_call_id);
      if (call === undefined) continue;
      Object.assign(call, resultOf(stored));
      const { questions, responses } = waitsIn(stored);
      answer?.parts.push(...questionParts(stored, questions));
      const people = peopleOf(stored.tool_call_id, questions, responses);
      if (answer !== undefined && Object.keys(people).length > 0) {
        const metadata = answer.metadata as Record<string, object>;
        metadata[ANSWERED_BY] = { ...metadata[ANSWERED_BY], ...people };
      }
      answer?.parts.push(...resultFiles(stored.files ?? [], session_id, stored.tool_call_id));
    }
  }
  return found;
}

function answerParts(answer: Stored & { role: "assistant" }, calls: Map<string, DynamicToolUIPart>): Part[] {
  const parts: Part[] = [{ type: "step-start" }];
  for (const { text } of answer.thinking) if (text) parts.push({ type: "reasoning", text, state: "done" });
  const served = servedParts(answer);
  parts.push(...served.calls);
  if (answer.content) parts.push({ type: "text", text: answer.content, state: "done" });
  parts.push(...served.sources);
  if (isCut(answer)) parts.push({ type: "data-answer-cut", data: { step: answer.step } });
  for (const { id: toolCallId, name: toolName, arguments: input } of answer.tool_calls) {
    const call: DynamicToolUIPart = { type: "dynamic-tool", toolName, toolCallId, state: "input-available", input };
    calls.set(toolCallId, call);
    parts.push(call);
  }
  return parts;
}

/** The parts of the rounds of questions that the call asked. An unanswered one has the call's error. */
function questionParts(stored: Stored & { role: "tool" }, questions: readonly AskedQuestion[]): DynamicToolUIPart[] {
  return roundsOf(questions).map(([round, asked]): DynamicToolUIPart => {
    const toolCallId = questionId(stored.tool_call_id, round);
    const about = { type: "dynamic-tool" as const, toolName: QUESTION, toolCallId, input: { questions: asked.map(shownQuestion) } };
    if (asked.every(({ answered }) => answered)) return { ...about, state: "output-available", output: answersOf(asked) };
    return { ...about, state: "output-error", errorText: (resultOf(stored) as { errorText?: string }).errorText ?? "" };
  });
}

function resultOf({ content, success, metadata }: Stored & { role: "tool" }): object {
  const value = valueOf(content);
  const edited = metadata["edited"] as { arguments?: unknown } | undefined;
  const input = edited?.arguments === undefined ? {} : { input: edited.arguments };
  if (success) return { ...input, state: "output-available", output: value };
  const error = (value as { error?: unknown } | null)?.error;
  return { ...input, state: "output-error", errorText: typeof error === "string" ? error : content };
}

/** A text as it is, any other value from its JSON. */
function valueOf(content: string): unknown {
  try {
    return JSON.parse(content);
  } catch {
    return content;
  }
}
