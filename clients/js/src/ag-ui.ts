// AG-UI: an agent of a deployment as an `AbstractAgent`, over WebSocket.
import { AbstractAgent, type AgentConfig, type BaseEvent, type RunAgentInput } from "@ag-ui/client";
import { Observable } from "rxjs";
import { AgUiEncoder, pauseId } from "./ag-ui-events.ts";
import type { HelixClient } from "./client.ts";
import type { AgUiMessage } from "./conversation.ts";
import { HelixError } from "./errors.ts";
import type { SessionSnapshot } from "./generated.ts";
import type { JsonObject } from "./patches.ts";
import { freshKey } from "./settings.ts";
import { type Answer, giveAnswers, prefixOf, say, sessionOf } from "./talks.ts";
import { eventsOf, type Turn, turnOf } from "./turns.ts";

export { AgUiEncoder, type AgUiEncoderOptions } from "./ag-ui-events.ts";

export interface HelixAgentConfig extends AgentConfig {
  /** A client, or one that still connects. It is the caller's to close. */
  client: HelixClient | Promise<HelixClient>;
  /** The name of the agent in the deployment. */
  agent: string;
}

/**
 * `new HelixAgent({ client, agent: "support", threadId })`: a thread is a session, whose id follows the own prefix.
 *
 * `runAgent` sends the newest message of the user, or `resume`, and gives the events of the run. `connectAgent` gives the present
 * or last run from its beginning, with the state and the conversation before it. `abortRun` interrupts the run.
 */
export class HelixAgent extends AbstractAgent {
  readonly #config: HelixAgentConfig;
  #session: string | undefined;

  constructor(config: HelixAgentConfig) {
    super(config);
    this.#config = config;
  }

  override run(input: RunAgentInput): Observable<BaseEvent> {
    return this.#events(input, async (client, session_id) => {
      const { resume = [] } = input;
      if (resume.length > 0) return await this.#resume(client, session_id, resume);
      const newest = input.messages.at(-1);
      if (newest?.role !== "user") {
        const problem = "the newest message must be the user's, or resume must answer what waits";
        throw new HelixError("invalid_input", problem);
      }
      const turn = await say(client, this.#config.agent, session_id, textOf(newest.content), newest.id);
      return { turn, from: turn.turn };
    });
  }

  /** Rejects with `session_not_found` where nothing was said yet. */
  protected override connect(input: RunAgentInput): Observable<BaseEvent> {
    return this.#events(input, async (client, session_id) => {
      const turn = await turnOf(client, session_id);
      return { turn, from: turn.first.turn, joins: true };
    });
  }

  override abortRun(): void {
    const session_id = this.#session;
    if (session_id === undefined) return;
    void Promise.resolve(this.#config.client)
      .then((client) => client.interrupt(session_id, { reason: "stopped by the user" }))
      .catch((error: unknown) => console.warn("helix: the run could not be stopped:", error));
  }

  override clone(): HelixAgent {
    const { client, agent } = this.#config;
    const made = super.clone() as HelixAgent;
    return Object.assign(new HelixAgent({ client, agent }), made);
  }

  #events(
    input: RunAgentInput,
    begin: (client: HelixClient, session_id: string) => Promise<{ turn: Turn; from: number; joins?: boolean }>,
  ): Observable<BaseEvent> {
    return new Observable<BaseEvent>((subscriber) => {
      const play = async () => {
        const client = await this.#config.client;
        const session_id = sessionOf(await prefixOf(client), input.threadId);
        this.#session = session_id;
        const { turn, from, joins = false } = await begin(client, session_id);
        const messages = await messagesBefore(client, turn);
        const encoder = new AgUiEncoder(session_id, { messages, state: await stateBefore(client, turn) });
        encoder.announce(joins ? turn.first.run_id : turn.run_id, joins);
        for await (const event of eventsOf(client, turn, encoder, from)) {
          if (subscriber.closed) return; // the run goes on
          subscriber.next(event as unknown as BaseEvent);
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
  ): Promise<{ turn: Turn; from: number }> {
    const answers = new Map(resume.map((entry) => [entry.interruptId, answerOf(entry)]));
    const session = await client.getSession(session_id);
    if (session.pending.length === 0 && answers.get(pauseId(session.current_run_id))?.approved) {
      const { run_id } = await client.ask("resume", { session_id, key: freshKey(), subscribe: false });
      const turn = await turnOf(client, session_id, run_id);
      return { turn, from: turn.turn };
    }
    return await giveAnswers(client, session_id, answers);
  }
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
    };
  }
  if (resolved) return { approved: true, data: payload, result: true };
  return { approved: false, reason: "cancelled", result: undefined };
}

function textOf(content: unknown): string {
  if (!Array.isArray(content)) return typeof content === "string" ? content : "";
  return content.flatMap((part) => (part?.type === "text" ? [String(part.text)] : [])).join("\n");
}

/** The conversation before the turn's first run, its own user message included. */
async function messagesBefore(client: HelixClient, { session, first }: Turn): Promise<AgUiMessage[]> {
  const { session_id } = session;
  const found: AgUiMessage[] = [];
  for (let before = first.start_count + (first.input?.["message"] == null ? 0 : 1); before > 0; ) {
    const page = await client.getMessages(session_id, { limit: 100, before });
    found.unshift(...page.messages.map((message, n) => agUiMessage(session_id, message, page.offset + n)));
    before = page.offset;
  }
  return found;
}

function agUiMessage(session_id: string, message: SessionSnapshot["messages"][number], n: number): AgUiMessage {
  if (message.role === "tool") {
    const { tool_call_id: toolCallId, content } = message;
    return { id: `${toolCallId}/result`, role: "tool", toolCallId, content };
  }
  const id = message.role === "user" && message.run_id ? `${message.run_id}/user` : `${session_id}/${n}`;
  const said: AgUiMessage = { id, role: message.role, ...(message.content && { content: message.content }) };
  if (message.role === "assistant" && message.tool_calls.length > 0) {
    said.toolCalls = message.tool_calls.map(({ id, name, arguments: given }) => ({
      ...{ id, type: "function" },
      function: { name, arguments: JSON.stringify(given) },
    }));
  }
  return said;
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
