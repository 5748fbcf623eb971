// AG-UI: an agent of a deployment as an `AbstractAgent`, over WebSocket.
import {
  AbstractAgent,
  type AgentConfig,
  type AgentStateMutation,
  type AgentSubscriber,
  type BaseEvent,
  type RunAgentInput,
  type ToolMessage,
} from "@ag-ui/client";
import { Observable, tap } from "rxjs";
import { AgUiEncoder, type AgUiEvent, pauseId } from "./ag-ui-events.ts";
import type { HelixClient } from "./client.ts";
import type { AgUiMessage } from "./ag-ui-messages.ts";
import { HelixError } from "./errors.ts";
import type { SessionSnapshot } from "./generated.ts";
import { agUiContent, agUiParts } from "./message-parts.ts";
import { type Json, type JsonObject, same } from "./patches.ts";
import { formatPosition, isBehind, Opened, parsePosition, Places, type Position } from "./positions.ts";
import { type AnsweredRound, answeredRounds, QUESTION } from "./question-parts.ts";
import { agUiCall, servedMessages } from "./served-parts.ts";
import { freshKey } from "./settings.ts";
import { type Answer, giveAnswers, prefixOf, say, sessionOf, userMessageId, type WhenRunning } from "./talks.ts";
import { batchesOf, type Turn, turnOf } from "./turns.ts";
import { awaitTurn, type Fate, isWaiting, type Waiting } from "./waiting.ts";
import { type StreamMessage, waitsIn } from "./wire.ts";

export { AgUiEncoder, type AgUiEncoderOptions } from "./ag-ui-events.ts";

/** How many checkpoints back a page's copy of the state may be. */
const OLDER_STATES = 20;

export interface HelixAgentConfig extends AgentConfig {
  /** A client, or one that still connects. It is the caller's to close. */
  client: HelixClient | Promise<HelixClient>;
  /** The name of the agent in the deployment. */
  agent: string;
  /** The last event whose effects `initialMessages` and `initialState` have: the `position` of an agent that had them. */
  position?: string | undefined;
  /** What happens to a message while the agent works. Default: it waits for a turn of its own. A message to a session that waits
   *  for a person then closes the calls, unless older messages wait. `forwardedProps.when_running` is for one message. */
  whenRunning?: WhenRunning | undefined;
}

/** Where a reader begins: at the run `from`, or behind an event of the turn that it has; `joins`: it has nothing of it. */
interface Begin {
  turn: Turn;
  from: number;
  joins?: boolean;
  after?: Position | undefined;
  /** The ids of the reader's own messages with results of its tools, by the call. */
  results?: ReadonlyMap<string, string>;
}

/**
 * `new HelixAgent({ client, agent: "support", threadId })`: a thread is a session, whose id follows the own prefix.
 *
 * `runAgent` sends the newest message of the user with `tools`, or `resume` and the results of those tools (the tool messages at
 * the end), and gives the events of the run. While the agent works, a message waits for its own run, and so do the events.
 * `connectAgent` goes on behind
 * `position`; without one, or where other runs came since, it gives the present or last run from its beginning, with the state
 * and the conversation before it. `abortRun` interrupts the run.
 */
export class HelixAgent extends AbstractAgent {
  readonly #config: HelixAgentConfig;
  #session: string | undefined;
  #position: string | undefined;
  /** Of the event that is being applied. */
  #next: string | undefined;
  /** Stops the uploads of the message that is being sent. */
  #sending: AbortController | undefined;

  constructor(config: HelixAgentConfig) {
    super(config);
    this.#config = config;
    this.position = config.position;
  }

  /** The last event whose effects `messages` and `state` have: the sequence of its message on the stream, and its place. Store it
   *  with them to go on from there. */
  get position(): string | undefined {
    return this.#position;
  }

  set position(value: string | undefined) {
    if (value !== undefined && parsePosition(value) === undefined) {
      throw new HelixError("invalid_input", `position is ${JSON.stringify(value)}: give that of an agent, such as 12.1`);
    }
    [this.#position, this.#next] = [value, undefined];
  }

  override run(input: RunAgentInput): Observable<BaseEvent> {
    return this.#events(input, async (client, session_id) => {
      const { resume = [] } = input;
      await checkInput(client, session_id, input);
      const results = resultsOf(input.messages);
      if (resume.length + results.length > 0) return await this.#resume(client, session_id, resume, results);
      const newest = input.messages.at(-1);
      if (newest?.role !== "user") {
        const problem = "the newest message must be the user's or a tool's result, or resume must answer what waits";
        throw new HelixError("invalid_input", problem);
      }
      const { signal } = (this.#sending = new AbortController());
      const tools = input.tools.map(({ name, description, parameters }) => ({ name, description, parameters: parameters ?? {} }));
      const props = input.forwardedProps as { when_running?: WhenRunning } | undefined;
      const whenRunning = props?.when_running ?? this.#config.whenRunning;
      const said = { content: agUiContent(newest.content), id: newest.id, edits: input.runId, tools, signal, whenRunning };
      const shown = await say(client, this.#config.agent, session_id, said);
      return isWaiting(shown) ? shown : { turn: shown, from: shown.turn };
    });
  }

  /** Rejects with `session_not_found` where nothing was said yet. */
  protected override connect(input: RunAgentInput): Observable<BaseEvent> {
    return this.#events(input, async (client, session_id) => {
      const turn = await turnOf(client, session_id);
      const after = this.#position === undefined ? undefined : parsePosition(this.#position);
      return { turn, from: turn.first.turn, joins: true, after };
    });
  }

  protected override apply(
    input: RunAgentInput,
    events: Observable<BaseEvent>,
    subscribers: AgentSubscriber[],
  ): Observable<AgentStateMutation> {
    const onEvent = ({ event }: { event: BaseEvent }): void => {
      this.#advance(); // the event before is applied
      this.#next = (event["rawEvent"] as { id?: string } | undefined)?.id;
    };
    return super.apply(input, events, [{ onEvent }, ...subscribers]);
  }

  protected override processApplyEvents(
    input: RunAgentInput,
    events: Observable<AgentStateMutation>,
    subscribers: AgentSubscriber[],
  ): Observable<AgentStateMutation> {
    const advance = () => this.#advance();
    return super.processApplyEvents(input, events.pipe(tap({ next: advance, complete: advance })), subscribers);
  }

  #advance(): void {
    this.#position = this.#next ?? this.#position;
  }

  override abortRun(): void {
    this.#sending?.abort();
    const session_id = this.#session;
    if (session_id === undefined) return;
    void Promise.resolve(this.#config.client)
      .then((client) => client.interrupt(session_id, { reason: "stopped by the user" }))
      .catch((error: unknown) => console.warn("helix: the run could not be stopped:", error));
  }

  override clone(): HelixAgent {
    const made = super.clone() as HelixAgent;
    return Object.assign(new HelixAgent({ ...this.#config, position: this.#position }), made);
  }

  #events(
    input: RunAgentInput,
    begin: (client: HelixClient, session_id: string) => Promise<Begin | Waiting>,
  ): Observable<BaseEvent> {
    return new Observable<BaseEvent>((subscriber) => {
      const play = async () => {
        const client = await this.#config.client;
        const session_id = sessionOf(await prefixOf(client), input.threadId);
        this.#session = session_id;
        const shown = await begin(client, session_id);
        const had = () => this.messages;
        const events = isWaiting(shown) ? waitingEvents(client, shown, had) : eventsFrom(client, shown, input.messages);
        for await (const [position, event] of events) {
          if (subscriber.closed) return; // the run goes on
          const placed = position === undefined ? {} : { rawEvent: { id: formatPosition(position) } };
          subscriber.next({ ...event, ...placed } as unknown as BaseEvent);
        }
        subscriber.complete();
      };
      play().catch((error: unknown) => subscriber.error(error));
    });
  }

  async #resume(
    client: HelixClient,
    session_id: string,
    resume: NonNullable<RunAgentInput["resume"]>,
    results: readonly ToolMessage[],
  ): Promise<Begin> {
    const given = results.map((message) => [message.toolCallId, resultOf(message)] as const);
    const answers = new Map([...given, ...resume.map((entry) => [entry.interruptId, answerOf(entry)] as const)]);
    const session = await client.getSession(session_id);
    if (session.pending.length === 0 && answers.get(pauseId(session.current_run_id))?.approved) {
      const { run_id } = await client.ask("resume", { session_id, key: freshKey(), subscribe: false });
      const turn = await turnOf(client, session_id, run_id);
      return { turn, from: turn.turn };
    }
    const ids = new Map(results.map(({ toolCallId, id }) => [toolCallId, id]));
    return { ...(await giveAnswers(client, session_id, answers)), results: ids };
  }
}

/** The events that a reader does not have, each with its position. One that connects in mid-run is first given what is open. */
async function* eventsFrom(
  client: HelixClient,
  begin: Begin,
  had: RunAgentInput["messages"],
): AsyncGenerator<[Position, AgUiEvent], void, undefined> {
  const { turn, from, joins = false } = begin;
  let { after } = begin;
  const encoder = new AgUiEncoder(turn.session.session_id, {
    messages: await messagesBefore(client, turn, had),
    state: await stateBefore(client, turn),
    ...(begin.results !== undefined && { results: begin.results }),
  });
  const announced = joins ? turn.first.run_id : turn.run_id;
  const [places, opened] = [new Places(), new Opened()];
  let begun = false;
  const announcing = {
    feed(message: StreamMessage): AgUiEvent[] {
      if (!begun && after !== undefined && message.sequence > after[0]) after = undefined; // nothing of this turn
      begun = true;
      const here = message.sequence === after?.[0]; // the snapshots behind its beginning may be missing
      encoder.announce(here ? message.run_id : announced, here || (joins && after === undefined));
      return encoder.feed(message);
    },
    close: () => encoder.close(),
  };
  let waits = true;
  for await (const { sequence, events } of batchesOf(client, turn, announcing, from)) {
    const rest: [Position, AgUiEvent][] = [];
    for (const item of places.of(sequence, events)) {
      if (after === undefined || isBehind(item[0], after)) rest.push(item);
      else opened.feed(item[1]);
    }
    if (waits && after !== undefined && sequence >= after[0]) {
      for (const event of opened.events()) yield [after, event];
      waits = false;
    }
    yield* rest;
  }
}

/** The results of the page's tools: the messages behind the newest answer. */
function resultsOf(messages: RunAgentInput["messages"]): ToolMessage[] {
  const last = messages.findLastIndex((message) => message.role !== "tool");
  return messages.slice(last + 1).filter((message) => message.role === "tool");
}

/** The text of a result, as the model reads it. */
function resultOf({ toolCallId, content, error }: ToolMessage): Answer {
  const texts = Array.isArray(content) ? content.map((part) => (part.type === "text" ? part.text : undefined)) : [content];
  if (texts.includes(undefined)) {
    throw new HelixError("invalid_input", `the result of call ${JSON.stringify(toolCallId)} has parts that are not text`);
  }
  const data = texts.join("\n");
  return error == null ? { approved: true, data, result: true } : { approved: false, reason: error || data, result: true };
}

/** The events of the message's own run. Without such a run, there is one that only says what became of the message. `had`: the
 *  conversation of the reader, which grows in the meantime. */
async function* waitingEvents(
  client: HelixClient,
  waiting: Waiting,
  had: () => RunAgentInput["messages"],
): AsyncGenerator<[Position | undefined, AgUiEvent], void, undefined> {
  let fate: Fate | undefined;
  for await (const item of awaitTurn(client, waiting)) {
    if ("state" in item) fate = item;
    else return yield* eventsFrom(client, { turn: item, from: item.turn, joins: true }, had());
  }
  const about = { threadId: waiting.session_id, runId: waiting.run_id };
  yield [undefined, { type: "RUN_STARTED", ...about }];
  yield [undefined, { type: "CUSTOM", name: "helix.message_queued", value: fate ?? {} }];
  const type = fate === undefined || fate.state === "withdrawn" ? "cancelled" : "success";
  yield [undefined, { type: "RUN_FINISHED", ...about, outcome: { type } }];
}

/** The payload as the interrupt's `responseSchema` has it; that of a tool of the page is its result. */
function answerOf({ status, payload }: { status: string; payload?: unknown }): Answer {
  const resolved = status === "resolved";
  if (typeof payload === "object" && payload !== null && "approved" in payload) {
    const { approved, reason, data, arguments: edited } = payload as Partial<Answer>;
    return {
      approved: resolved && approved === true,
      result: false,
      data,
      ...(typeof reason === "string" && { reason }),
      ...(edited !== undefined && { arguments: edited }),
      answer: { approved: resolved, data: payload, result: true },
    };
  }
  if (resolved) return { approved: true, data: payload, result: true };
  return { approved: false, reason: "cancelled", result: undefined };
}

/** The texts of a message that may have been sent elsewhere. */
function wordsIn(content: unknown): string {
  if (!Array.isArray(content)) return typeof content === "string" ? content : "";
  return content.filter((part) => part?.type === "text").map(({ text }) => String(text)).join("\n");
}

/** Refuse what would be lost. The state is sent back as it was received, maybe of an earlier moment; a page cannot set it. */
async function checkInput(client: HelixClient, session_id: string, input: RunAgentInput): Promise<void> {
  const { when_running: _, ...forwardedProps } = (input.forwardedProps ?? {}) as Record<string, unknown>;
  const given = { context: input.context, forwardedProps };
  for (const name of ["context", "forwardedProps"] as const) {
    if (Object.keys((given[name] as object | null) ?? {}).length === 0) continue;
    throw new HelixError("invalid_input", `${name} is not supported, and would be lost: leave it empty`);
  }
  const state = (input.state ?? {}) as Json;
  if (same(state, {}) || (await hadState(client, session_id, state))) return;
  const problem = "state is not that of the thread: a client cannot set it; leave it as it was received";
  throw new HelixError("invalid_input", problem);
}

async function hadState(client: HelixClient, session_id: string, state: Json): Promise<boolean> {
  try {
    if (same((await client.getSession(session_id)).custom_state as Json, state)) return true;
    const { checkpoints } = await client.listCheckpoints(session_id, { limit: OLDER_STATES });
    for (const id of new Set(checkpoints.map((checkpoint) => checkpoint.state_at))) {
      if (same((await client.getCheckpoint(session_id, id)).custom_state as Json, state)) return true;
    }
  } catch (error) {
    if (!(error instanceof HelixError) || !/_not_found$/.test(error.code)) throw error;
  }
  return false;
}

/** The conversation before the turn's first run, its own user message included; `had` by the reader, with the ids there. */
async function messagesBefore(
  client: HelixClient,
  { session, first }: Turn,
  had: RunAgentInput["messages"],
): Promise<AgUiMessage[]> {
  const found: SessionSnapshot["messages"] = [];
  for (let before = first.start_count + (first.input?.["message"] == null ? 0 : 1); before > 0; ) {
    const page = await client.getMessages(session.session_id, { limit: 100, before });
    found.unshift(...page.messages);
    before = page.offset;
  }
  const said = had.filter((message) => message.role === "user");
  const rounds = new Map<string, AnsweredRound[]>();
  for (const message of found) {
    if (message.role !== "tool") continue;
    rounds.set(message.tool_call_id, answeredRounds(message.tool_call_id, waitsIn(message).questions));
  }
  return found.flatMap((message, n) => {
    const unnamed = `${session.session_id}/${n}`;
    if (message.role !== "user") {
      const step = message.role === "assistant" ? `${session.session_id}/${message.step}/` : undefined;
      const known = had.find(({ id, role }) => role === "assistant" && step !== undefined && id.startsWith(step));
      return agUiMessages(message, known?.id ?? unnamed, rounds);
    }
    const own = said.findIndex(({ content }) => wordsIn(content) === message.content);
    const [user] = own < 0 ? [] : said.splice(0, own + 1).slice(-1);
    return agUiMessages(message, user?.id ?? userMessageId(message), rounds);
  });
}

/** The message, after the answers to the call's questions. `rounds`: by call. */
function agUiMessages(
  message: SessionSnapshot["messages"][number],
  id: string,
  rounds: ReadonlyMap<string, readonly AnsweredRound[]>,
): AgUiMessage[] {
  if (message.role === "tool") {
    const { tool_call_id: toolCallId, content } = message;
    const result = { id: `${toolCallId}/result`, role: "tool", toolCallId, content: agUiParts(content, message.files) };
    return [...(rounds.get(toolCallId) ?? []).map((round) => round.result), result];
  }
  if (message.role === "user") return [{ id, role: "user", content: agUiParts(message.content, message.files) }];
  const said: AgUiMessage = { id, role: message.role, ...(message.content && { content: message.content }) };
  if (message.role !== "assistant") return [said];
  const { calls, results } = servedMessages(message);
  const own = message.tool_calls.map(({ id, name, arguments: given }) => agUiCall(id, name, JSON.stringify(given)));
  const asked = message.tool_calls.flatMap((call) => rounds.get(call.id) ?? []).map(({ id, text }) => agUiCall(id, QUESTION, text));
  const all = [...calls, ...own, ...asked];
  if (all.length > 0) said.toolCalls = all;
  return [said, ...results];
}

/** The state that the turn's first run began with; undefined where its checkpoint is gone. */
async function stateBefore(client: HelixClient, { session, first }: Turn): Promise<JsonObject | undefined> {
  const { session_id } = session;
  for (let after: string | null | undefined; after !== null; ) {
    const page = await client.listCheckpoints(session_id, { limit: 100, after: after ?? null });
    const { turn, start_step } = first;
    const point = page.checkpoints.find((one) => one.turn < turn || (one.turn === turn && one.step === start_step));
    if (point !== undefined) return (await client.getCheckpoint(session_id, point.id)).custom_state as JsonObject;
    after = page.cursor;
  }
  return undefined;
}
