// Generated from schema.json by scripts/generate.ts: do not edit.

/**
 * @minItems 2
 * @maxItems 2
 */
export type Trace = [unknown, unknown];

/**
 * All types of the protocol, as the service has them.
 */
export interface Protocol {
  chunks: Chunks;
  requests: Requests;
  replies: Replies;
  made: Made;
}
/**
 * Chunks by their `type`.
 */
export interface Chunks {
  checkpoint_created: CheckpointCreatedChunk;
  custom: CustomEventChunk;
  error: ErrorChunk;
  output: OutputChunk;
  run_interrupted: RunInterruptedChunk;
  run_paused: RunPausedChunk;
  run_queued: RunQueuedChunk;
  run_resumed: RunResumedChunk;
  run_superseded: RunSupersededChunk;
  state_patch: StatePatchChunk;
  step_committed: StepCommittedChunk;
  step_discarded: StepDiscardedChunk;
  stream_resync: StreamResyncChunk;
  subagent_end: SubAgentEndChunk;
  subagent_start: SubAgentStartChunk;
  text_delta: TextDeltaChunk;
  thinking: ThinkingChunk;
  tool_approval_request: ToolApprovalRequestChunk;
  tool_end: ToolEndChunk;
  tool_start: ToolStartChunk;
}
export interface CheckpointCreatedChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  checkpoint_id: string;
  message_count: number;
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  step_count: number;
  timestamp: number;
  type: "checkpoint_created";
}
export interface CustomEventChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  data: unknown;
  event_name: string;
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  timestamp: number;
  type: "custom";
}
/**
 * `recoverable` is false exactly once, right before the stream of a failed run ends.
 */
export interface ErrorChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  code: string;
  error: string;
  recoverable: boolean;
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  timestamp: number;
  type: "error";
}
export interface OutputChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  output: unknown;
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  timestamp: number;
  type: "output";
}
export interface RunInterruptedChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  checkpoint_id: string | null;
  reason: string | null;
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  timestamp: number;
  type: "run_interrupted";
}
/**
 * The run waits for people: `pending` lists the calls, see `core.rows.Pending`.
 */
export interface RunPausedChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  checkpoint_id: string | null;
  pending: {
    [k: string]: unknown;
  }[];
  reason: string;
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  timestamp: number;
  type: "run_paused";
}
/**
 * The run waits for a free slot of its agent, or of the account. `queued` runs of the agent waited then, with it.
 * `reason`: why none starts, if the agent is stopped: `stopped by budget agent:poet/day/micros`.
 */
export interface RunQueuedChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  expires_at: number;
  queued: number;
  reason: string | null;
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  timestamp: number;
  type: "run_queued";
}
/**
 * First chunk of a run that goes on from an earlier one. `mode` is a resume or retry mode, or `takeover`.
 */
export interface RunResumedChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  checkpoint_id: string | null;
  mode: string;
  previous_run_id: string;
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  timestamp: number;
  type: "run_resumed";
}
export interface RunSupersededChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  by_run_id: string;
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  superseded_run_id: string;
  timestamp: number;
  type: "run_superseded";
}
/**
 * RFC 6902 operations from the previously committed custom state to the one now committed.
 */
export interface StatePatchChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  patches: Patch[];
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  timestamp: number;
  type: "state_patch";
  warnings: string[];
}
/**
 * An operation of RFC 6902. The engine writes `add`, `remove` and `replace`; tools may emit any.
 */
export interface Patch {
  from?: string;
  op: "add" | "copy" | "move" | "remove" | "replace" | "test";
  path: string;
  value?: unknown;
}
/**
 * The text of this step and attempt is final and equals the stored answer.
 */
export interface StepCommittedChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  model: string | null;
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  stop_reason: string | null;
  timestamp: number;
  type: "step_committed";
  usage: Usage | null;
}
/**
 * Tokens of one call or a sum of calls. `prompt_tokens` includes `cached_tokens`; `completion_tokens` includes
 * `reasoning_tokens`. `cost_micros` is in millionths of a US dollar; `priced` is false where no price was known.
 * `unknown_calls`: those that may have used more than was reported: cut off, or answered without their usage.
 */
export interface Usage {
  cached_tokens: number;
  calls: number;
  completion_tokens: number;
  cost_micros: number;
  priced: boolean;
  prompt_tokens: number;
  reasoning_tokens: number;
  unknown_calls: number;
}
/**
 * Drop what this step and attempt showed. `status`: of the run, if its end cut the attempt off. The words of an
 * `interrupted` run may stay on a page until another attempt of the step begins.
 */
export interface StepDiscardedChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  reason: string | null;
  run_id: string;
  sequence: number;
  session_id: string;
  status: string | null;
  step: number;
  timestamp: number;
  type: "step_discarded";
}
/**
 * Drop what is shown and start again from the checkpoint: the session was rewound, or chunks were lost.
 */
export interface StreamResyncChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  checkpoint_id: string | null;
  from_sequence: number;
  reason: string;
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  timestamp: number;
  type: "stream_resync";
}
export interface SubAgentEndChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  error: string | null;
  parent_tool_call_id: string;
  result: unknown;
  run_id: string;
  sequence: number;
  session_id: string;
  status: string;
  step: number;
  sub_agent_id: string;
  sub_agent_type: string;
  timestamp: number;
  type: "subagent_end";
}
export interface SubAgentStartChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  parent_tool_call_id: string;
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  sub_agent_id: string;
  sub_agent_type: string;
  timestamp: number;
  type: "subagent_start";
}
export interface TextDeltaChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  delta: string;
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  timestamp: number;
  type: "text_delta";
}
/**
 * A delta where `is_complete` is false; the whole block once where it is true (do not append it to the deltas).
 */
export interface ThinkingChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  content: string;
  is_complete: boolean;
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  timestamp: number;
  type: "thinking";
}
/**
 * `kind` says what is asked for: `approval` of the call, the `client`'s result, or a ruling on an `unknown` outcome.
 * `parameters` is the JSON schema of `input`; `reason` is why the tool asks, where its rule says it.
 */
export interface ToolApprovalRequestChunk {
  agent_id: string;
  agent_type: string;
  attempt: number;
  input: {
    [k: string]: unknown;
  };
  kind: "approval" | "client" | "unknown";
  parameters: {
    [k: string]: unknown;
  };
  reason: string | null;
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  timestamp: number;
  tool_call_id: string;
  tool_name: string;
  type: "tool_approval_request";
}
/**
 * `arguments`: the model's arguments of a refused call, which has no `tool_start`. None if the writer lacked them.
 */
export interface ToolEndChunk {
  agent_id: string;
  agent_type: string;
  arguments: {
    [k: string]: unknown;
  } | null;
  attempt: number;
  error: string | null;
  result: unknown;
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  success: boolean;
  timestamp: number;
  tool_call_id: string;
  tool_name: string;
  type: "tool_end";
}
/**
 * A claimed call begins. A second one for the same call (higher `attempt`) replaces the first. `edited`: a person
 * approved these `arguments` in place of the model's.
 */
export interface ToolStartChunk {
  agent_id: string;
  agent_type: string;
  arguments: {
    [k: string]: unknown;
  };
  attempt: number;
  edited: Edit | null;
  run_id: string;
  sequence: number;
  session_id: string;
  step: number;
  timestamp: number;
  tool_call_id: string;
  tool_name: string;
  type: "tool_start";
}
/**
 * Who changed the arguments of a call before it was executed, and when (Unix seconds). `by` is None where the service
 * does not know its users, or its operator did it.
 */
export interface Edit {
  at: number;
  by: string | null;
}
/**
 * Requests by their `action`.
 */
export interface Requests {
  abort: Abort;
  answer: AnswerAction;
  authenticate: Authenticate;
  branch: Branch;
  change_budget: ChangeBudget;
  clone: Clone;
  delete: Delete;
  diff_checkpoints: DiffCheckpoints;
  get_budgets: GetBudgets;
  get_checkpoint: GetCheckpoint;
  get_cost: GetCost;
  get_fleet: GetFleet;
  get_session: GetSession;
  get_step: GetStep;
  get_usage: GetUsage;
  interrupt: Interrupt;
  list_agents: ListAgents;
  list_checkpoints: ListCheckpoints;
  list_sessions: ListSessions;
  ping: Ping;
  read_rows: ReadRows;
  read_stream: ReadStream;
  resume: Resume;
  retry: Retry;
  run: Run;
  subscribe: Subscribe;
  unsubscribe: Unsubscribe;
}
/**
 * Result: `{}`. Idempotent.
 */
export interface Abort {
  action: "abort";
  id: string;
  reason?: string | null;
  run_id?: string | null;
  session_id: string;
  v: 1;
}
/**
 * A person's word on a call that waits, in the session or in a sub-agent below it; the first one counts. `arguments`
 * of an approval take the place of the model's; they fit the tool's schema, or the call waits on.
 * Result: as of `Run`, `run_id` being the session's current run, and `resumed`: whether the answer started one.
 */
export interface AnswerAction {
  action: "answer";
  approved?: boolean;
  arguments?: {
    [k: string]: unknown;
  } | null;
  data?: unknown;
  id: string;
  reason?: string | null;
  session_id: string;
  subscribe?: boolean;
  tool_call_id: string;
  v: 1;
}
/**
 * A new proof of the same principal; without a token: who this connection is.
 * Result: `{"principal", "expires_at", "prefix"}`; session ids of one's own choice begin with `prefix`.
 */
export interface Authenticate {
  action: "authenticate";
  id: string;
  token?: string | null;
  v: 1;
}
/**
 * A new session from a checkpoint (default the latest). Result: `{"session_id"}`; `target` names it, see `Run`.
 */
export interface Branch {
  action: "branch";
  checkpoint_id?: string | null;
  id: string;
  key?: string | null;
  session_id: string;
  target?: string | null;
  v: 1;
}
/**
 * For operators: another limit, in the budget's unit, for a `budget` that `get_budgets` lists; all else of it stays. It
 * holds from the next model call on. Result: `{"budget", "unit", "limit"}`.
 */
export interface ChangeBudget {
  action: "change_budget";
  budget: string;
  id: string;
  limit: number;
  v: 1;
}
/**
 * A copy up to a checkpoint or message. Result: `{"session_id"}`; `target` names it, see `Run`.
 */
export interface Clone {
  action: "clone";
  checkpoint_id?: string | null;
  id: string;
  key?: string | null;
  message_index?: number | null;
  session_id: string;
  target?: string | null;
  v: 1;
}
/**
 * Result: `{"deleted": true}`.
 */
export interface Delete {
  action: "delete";
  id: string;
  session_id: string;
  v: 1;
}
/**
 * What changed from the checkpoint `before` to `checkpoint_id` (default the latest). Result: `{"before", "after"}`, the
 * ids; `"patches"`: RFC 6902, from the one state to the other; `"messages"`: those that are in the second only, from
 * `offset` on, at most `limit`; `"added"`, `"removed"`: how many messages are in the second or in the first only.
 */
export interface DiffCheckpoints {
  action: "diff_checkpoints";
  before: string;
  checkpoint_id?: string | null;
  id: string;
  limit?: number;
  offset?: number;
  session_id: string;
  v: 1;
}
/**
 * The budgets that bind the session, in their present windows. `run`: what its current run has spent and set aside.
 * Budgets of all users, or of an agent, show no amounts but to an operator. Result: `{"session_id", "budgets"}`.
 */
export interface GetBudgets {
  action: "get_budgets";
  id: string;
  session_id: string;
  v: 1;
}
/**
 * A checkpoint with its custom state; default the latest. Result: `{"checkpoint"}`, as of `list_checkpoints`, with
 * `custom_state`.
 */
export interface GetCheckpoint {
  action: "get_checkpoint";
  checkpoint_id?: string | null;
  id: string;
  session_id: string;
  v: 1;
}
/**
 * What the session cost, with its sub-agents', line by line. Result: `{"session_id", "usd", "services", "agrees",
 * "prices", "left_out", "lines"}`. Refused for a session of more than 20,000 rows.
 */
export interface GetCost {
  action: "get_cost";
  id: string;
  session_id: string;
  v: 1;
}
/**
 * For operators: limits, queues, health, and why limits moved, of agents by name, or of one `agent`. `waiting`,
 * `decisions`: at most so many of each agent. Result: `helix.core.reports.FleetFound`.
 */
export interface GetFleet {
  action: "get_fleet";
  after?: string | null;
  agent?: string | null;
  decisions?: number;
  id: string;
  limit?: number;
  v: 1;
  waiting?: number;
}
/**
 * Result: `{"session", "can_resume"}`, and where its run waits for a slot `"queued"`: `{"place", "expires_at"}`, 1
 * being the next of its agent to go; with `run_id` also `"run"`: how that run ended (status `running` if it has
 * not), with `messages` and `runs` the newest that many of these, with `sub_sessions` those of its sub-agents, and with
 * `snapshot` the conversation and where the stream goes on from it, of which `newest` asks for the last messages only.
 */
export interface GetSession {
  action: "get_session";
  before?: number | null;
  id: string;
  messages?: number;
  newest?: number | null;
  run_id?: string | null;
  runs?: number;
  session_id: string;
  snapshot?: boolean;
  sub_sessions?: boolean;
  v: 1;
}
/**
 * How a step was bought: each attempt with what it showed and what became of it, and what became of its calls. A number
 * comes again after a rewind: then the newest is meant, or that of `run_id`. Result: `helix.core.reports.StepFound`.
 */
export interface GetStep {
  action: "get_step";
  id: string;
  run_id?: string | null;
  session_id: string;
  step: number;
  v: 1;
}
/**
 * What a user has used: the caller; an operator names a `user`. `hours`: the number of past hours, the present one
 * included; default ever. Result: `{"user", "since", "usd", "lines"}`.
 */
export interface GetUsage {
  action: "get_usage";
  hours?: number | null;
  id: string;
  user?: string | null;
  v: 1;
}
/**
 * Result: `{"interrupted"}`: false if the run does not run any more.
 */
export interface Interrupt {
  action: "interrupt";
  id: string;
  reason?: string | null;
  run_id?: string | null;
  session_id: string;
  v: 1;
}
/**
 * The agents that `run` takes, by name. Result: `{"agents", "cursor"}`; `cursor` is the next page's `after`. Of each:
 * `name`, `description`, `kind` (`chat` or `function`), `input` and `output`: JSON schemas of what `run` takes besides
 * the agent, and of the result's output.
 */
export interface ListAgents {
  action: "list_agents";
  after?: string | null;
  id: string;
  limit?: number;
  v: 1;
}
/**
 * Newest first, without states. Result: `{"checkpoints", "cursor"}`.
 */
export interface ListCheckpoints {
  action: "list_checkpoints";
  after?: string | null;
  id: string;
  limit?: number;
  session_id: string;
  v: 1;
}
/**
 * One's own root sessions, newest id first; an operator's are those of all users, or of `user`. The other fields are
 * filters; `since` is the Unix time of the last change; each word of `text` must be in the id, the agent, the tags, the
 * status or the beginning of the first message, whatever its case. Result: `{"sessions", "cursor", "damaged"}`, with
 * `titles` each with its first message's beginning; `cursor` is the next page's `after`: a page may be short although
 * there is more.
 */
export interface ListSessions {
  action: "list_sessions";
  after?: string | null;
  agent?: string | null;
  id: string;
  limit?: number;
  since?: number | null;
  status?: ("running" | "completed" | "failed" | "interrupted" | "paused" | "deleting") | null;
  tag?: string | null;
  text?: string | null;
  titles?: boolean;
  user?: string | null;
  v: 1;
  waiting?: boolean;
}
/**
 * Keeps the connection open. Result: `{"now"}`, the server's Unix seconds.
 */
export interface Ping {
  action: "ping";
  id: string;
  v: 1;
}
/**
 * A page of a session's stored rows, or with `stream` of its stream's. Result: `{"rows", "cursor"}`, each
 * `[sort, value]`; `cursor` is the next page's `after`.
 */
export interface ReadRows {
  action: "read_rows";
  after?: string | null;
  id: string;
  limit?: number;
  session_id: string;
  stream?: boolean;
  v: 1;
}
/**
 * A page of the stored stream behind the sequence `after`. Result: `{"stream_id", "messages"}`.
 */
export interface ReadStream {
  action: "read_stream";
  after?: number;
  id: string;
  limit?: number;
  session_id: string;
  v: 1;
}
/**
 * Result as of `Run`.
 */
export interface Resume {
  action: "resume";
  checkpoint_id?: string | null;
  id: string;
  key?: string | null;
  message?: string | null;
  mode?: "continue" | "with_message" | "from_checkpoint";
  session_id: string;
  subscribe?: boolean;
  v: 1;
}
/**
 * Result as of `Run`.
 */
export interface Retry {
  action: "retry";
  id: string;
  key?: string | null;
  message?: string | null;
  mode?: "from_checkpoint" | "from_start";
  session_id: string;
  subscribe?: boolean;
  v: 1;
}
/**
 * A new session, or the next message of one. `message`, or `input` with a function agent's parameters.
 *
 * `session_id` of a session that does not exist must begin with the principal's prefix (see `Authenticate`).
 * `key` makes repeats harmless: a repeat returns the run that was started under it. Without a key, that holds for
 * the same request on the same connection. `priority`: where runs wait for slots, a higher one goes first. A client may
 * set 0 or less. `message_id`: what a front end calls its message; stored as `metadata.id`. `edits`: it takes the place of
 * the one with that id, unless that is the newest and has the same text: then the present run answers.
 * Result: `{"session_id", "run_id", "turn", "stream_id", "after", "replay"}`: the run's messages have sequences above
 * `after`; where `replay` is true some were there before the subscription: subscribe after `after`.
 */
export interface Run {
  action: "run";
  agent: string;
  edits?: boolean;
  id: string;
  input?: {
    [k: string]: unknown;
  } | null;
  key?: string | null;
  message?: string | null;
  message_id?: string | null;
  metadata?: {
    [k: string]: unknown;
  };
  priority?: number | null;
  session_id?: string | null;
  state?: {
    [k: string]: unknown;
  } | null;
  subscribe?: boolean;
  /**
   * @maxItems 50
   */
  tags?: string[];
  v: 1;
}
/**
 * Be sent what is on the stream after the sequence `after`, and what comes.
 * Result: `{"stream_id", "caught_up", "complete"}`: what was stored up to `caught_up` has been sent; where `complete`
 * is false there is more: subscribe again after it.
 */
export interface Subscribe {
  action: "subscribe";
  after?: number;
  id: string;
  session_id?: string | null;
  stream_id?: string | null;
  v: 1;
}
/**
 * Result: `{"stream_id"}`.
 */
export interface Unsubscribe {
  action: "unsubscribe";
  id: string;
  session_id?: string | null;
  stream_id?: string | null;
  v: 1;
}
/**
 * Results by the `action` of their request.
 */
export interface Replies {
  abort: Nothing;
  answer: Answered;
  authenticate: Authenticated;
  branch: Copied;
  change_budget: BudgetChanged;
  clone: Copied;
  delete: Deleted;
  diff_checkpoints: CheckpointDiff;
  get_budgets: BudgetList;
  get_checkpoint: CheckpointFound;
  get_cost: CostFound;
  get_fleet: FleetFound;
  get_session: SessionFound;
  get_step: StepFound;
  get_usage: UsageFound;
  interrupt: Interrupted;
  list_agents: AgentList;
  list_checkpoints: CheckpointList;
  list_sessions: SessionList;
  ping: Pong;
  read_rows: RowPage;
  read_stream: StreamPage;
  resume: Started;
  retry: Started;
  run: Started;
  subscribe: Subscribed;
  unsubscribe: Unsubscribed;
}
export interface Nothing {}
export interface Answered {
  after: number;
  replay: boolean;
  resumed: boolean;
  run_id: string;
  session_id: string;
  stream_id: string;
  turn: number;
}
/**
 * `operator`: it may read the fleet and change budgets.
 */
export interface Authenticated {
  expires_at: number;
  operator: boolean;
  prefix: string;
  principal: string | null;
}
export interface Copied {
  session_id: string;
}
export interface BudgetChanged {
  budget: string;
  limit: number;
  unit: "usd" | "tokens";
}
export interface Deleted {
  deleted: true;
}
/**
 * `patches` make the state of `after` of that of `before` (RFC 6902). `messages` are those that are in `after` only,
 * `offset` of `added`; `removed`: how many are in `before` only, because the session was rewound.
 */
export interface CheckpointDiff {
  added: number;
  after: string;
  before: string;
  messages: (SystemMessage | UserMessage | AssistantMessage | ToolResultMessage)[];
  offset: number;
  patches: Patch[];
  removed: number;
}
export interface SystemMessage {
  content: string;
  role: "system";
}
export interface UserMessage {
  content: string;
  /**
   * Unix seconds.
   */
  created_at: number | null;
  id: string;
  metadata: {
    [k: string]: unknown;
  };
  role: "user";
  run_id: string | null;
  step: number | null;
}
export interface AssistantMessage {
  content: string | null;
  /**
   * Unix seconds.
   */
  created_at: number | null;
  id: string;
  metadata: {
    [k: string]: unknown;
  };
  role: "assistant";
  run_id: string | null;
  step: number | null;
  thinking: ThinkingContent[];
  tool_calls: ToolCallRequest[];
}
/**
 * One reasoning block, kept losslessly: its model wants it back beside the tool results.
 *
 * text: what is shown. Of OpenAI's models it is a summary.
 * signature: what the provider proves or reads the block by; of OpenAI's models the encrypted reasoning.
 * redacted: a block that only the provider can read, in place of text.
 * id: the provider's name of the block, where it has one.
 * after_text, after_calls: how many characters of the answer's text, and how many of its calls, came before the block.
 */
export interface ThinkingContent {
  after_calls: number;
  after_text: number;
  id: string | null;
  redacted: string | null;
  signature: string | null;
  text: string;
}
/**
 * A call the model asked for. `id` is unique in the session; `arguments` is the parsed JSON object.
 *
 * `malformed` holds the raw text where the model's arguments were no JSON object: never executed, answered as failed.
 */
export interface ToolCallRequest {
  arguments: {
    [k: string]: unknown;
  };
  id: string;
  malformed: string | null;
  name: string;
}
/**
 * `content` is a string result verbatim, any other value as JSON; a failure is `{"error": message}`. Where a person
 * changed the call's arguments, `metadata` has them as `edited` (`EditedArguments`).
 */
export interface ToolResultMessage {
  content: string;
  /**
   * Unix seconds.
   */
  created_at: number | null;
  id: string;
  metadata: {
    [k: string]: unknown;
  };
  role: "tool";
  run_id: string | null;
  step: number | null;
  success: boolean;
  tool_call_id: string;
  tool_name: string;
}
export interface BudgetList {
  budgets: BudgetFound[];
  session_id: string;
}
/**
 * `budget` is `<scope>/<period>/<unit>`; amounts are in `unit`. `used`: what all its runs have spent and set aside in
 * this window. `resets_at`: Unix seconds, None for a total. `run`: of the session's current run.
 */
export interface BudgetFound {
  budget: string;
  exhausted: boolean;
  limit: number | null;
  on_exceeded: ("fail" | "pause") | null;
  period: string;
  resets_at: number | null;
  run: RunMoney;
  scope: string;
  unit: "usd" | "tokens";
  used: number | null;
  window: string;
}
export interface RunMoney {
  reserved: number;
  spent: number;
}
export interface CheckpointFound {
  checkpoint: CheckpointState;
}
export interface CheckpointState {
  count: number;
  created_at: number;
  custom_state: {
    [k: string]: unknown;
  };
  id: string;
  lineage: number;
  name: string | null;
  pending: Pending[];
  run_id: string;
  state_at: string;
  status: "running" | "completed" | "failed" | "interrupted" | "paused" | "deleting";
  step: number;
  turn: number;
  usage: (number | boolean)[];
  warnings: string[];
}
/**
 * A call that waits for people. `kind`: `approval`, `client` (its result), `unknown` (a ruling), or `child`: a
 * sub-agent waits; then `child_session_id` is where. `reason`: why the tool asks, where its rule says it. `arguments` of
 * the call and `parameters`, their JSON schema, are not stored here: reads take them from the call and from the agent,
 * where they know it. `edited`: a person approved other `arguments` than the model's, before the outcome was lost.
 */
export interface Pending {
  arguments: {
    [k: string]: unknown;
  };
  call_id: string;
  child_session_id: string | null;
  edited: Edit | null;
  kind: "approval" | "client" | "unknown" | "child";
  parameters: {
    [k: string]: unknown;
  };
  reason: string | null;
  tool_name: string;
}
/**
 * `usd` is the sum of the lines. `agrees`: the lines of the models are what the runs' rows say. `left_out`: what costs
 * money and is in no line.
 */
export interface CostFound {
  agrees: boolean;
  left_out: string[];
  lines: CostLine[];
  prices: string;
  services: {
    [k: string]: number;
  };
  session_id: string;
  usd: number;
}
/**
 * A field that is empty is left out.
 */
export interface CostLine {
  attempt?: number | null;
  basis: "measured" | "counted" | "estimated";
  how?: string;
  quantity: number;
  run_id?: string | null;
  service: string;
  session_id: string;
  step?: number | null;
  unit?: string;
  usd: number;
  what: string;
}
/**
 * `limit`, `running`, `queued`: of all agents together. `ready`: False where an operator has closed the service, for
 * `reason`. `swept_at`: when the sweep last ran. `cursor`: the next page's `after`. Times in Unix seconds.
 */
export interface FleetFound {
  agents: FleetAgent[];
  cursor: string | null;
  limit: number | null;
  now: number;
  queued: number;
  ready: boolean;
  reason: string;
  running: number | null;
  swept_at: number | null;
}
/**
 * `limit`: how many runs may be at work, None for any number; then `running` is not counted. `wanted`: instances that
 * an operator or the registration asks for, of `min_instances` to `max_instances`. `waiting`: the first in line.
 * `decisions`: newest first. `stopped_by`: the budget, where one stopped it: `budget agent:poet/day/micros`.
 */
export interface FleetAgent {
  agent: string;
  checks: FleetCheck[];
  decisions: FleetDecision[];
  limit: number | null;
  max_instances: number | null;
  min_instances: number | null;
  processes: FleetProcess[];
  queued: number;
  running: number | null;
  status: "running" | "stopped";
  stopped_by: string | null;
  waiting: WaitingRun[];
  wanted: number | null;
}
/**
 * The newest result of a health check. The check `llm` judges the agent's model calls.
 */
export interface FleetCheck {
  check: string;
  check_type: string;
  checked_at: number | null;
  message: string;
  status: string;
}
/**
 * What moved a limit, or would have: `blocked_by` says what stood in the way of `wanted`. `rule`: as in
 * `helix.core.scaling`, `operator` being a person. `trigger`: what made `govern` look. `metrics`: the numbers it judged.
 * `applied`: it is in force, or was.
 */
export interface FleetDecision {
  action: "up" | "down" | "hold";
  after: number;
  applied: boolean;
  at: number;
  before: number;
  blocked_by: string | null;
  metrics: {
    [k: string]: number;
  };
  reason: string;
  rule: string;
  trigger: string;
  wanted: number | null;
}
/**
 * As `helix.fleet.ProcessInfo`. Where functions execute the runs there are none.
 */
export interface FleetProcess {
  cpu_percent: number;
  last_error: string | null;
  memory_mb: number;
  pid: number | null;
  process_id: string;
  restart_count: number;
  started_at: number | null;
  status: string;
}
/**
 * `since`: when it was claimed; after `expires_at` it is ended. Unix seconds.
 */
export interface WaitingRun {
  expires_at: number;
  priority: number;
  run_id: string;
  session_id: string;
  since: number;
}
export interface SessionFound {
  can_resume: CanResumeResult;
  messages?: (SystemMessage | UserMessage | AssistantMessage | ToolResultMessage)[];
  more_runs?: boolean;
  offset?: number;
  queued?: Queued | null;
  run?: RunFound | null;
  runs?: RunRow[];
  session: SessionState;
  snapshot?: SessionSnapshot | null;
  sub_sessions?: SubSessionRef[];
}
/**
 * `reason` says why not, or for a failed session which verb fits; `pending_confirmation`: it can, with an answer.
 */
export interface CanResumeResult {
  can_resume: boolean;
  reason:
    | (
        | "running"
        | "completed"
        | "failed_use_retry"
        | "aborted"
        | "not_found"
        | "pending_confirmation"
        | "agent_not_registered"
      )
    | null;
}
/**
 * `place`: 1 is the next of its agent to go. `expires_at`: Unix seconds. `reason`: why none starts, if the agent is
 * stopped.
 */
export interface Queued {
  expires_at: number;
  place: number;
  reason: string | null;
}
/**
 * How a run ended, as `helix.AgentResult`; of one that is `running` no field from `output` on is there.
 */
export interface RunFound {
  completion_reason?: string | null;
  error?: string | null;
  error_code?: string | null;
  output?: unknown;
  pending?: Pending[];
  recoverable?: boolean;
  run_id: string;
  session_id: string;
  start_sequence: number;
  status: "running" | ("completed" | "failed" | "interrupted" | "paused");
  steps?: number;
  text?: string | null;
  turn: number;
  usage?: Usage;
}
/**
 * `start_*` is where the run began: what `retry from_start` goes back to. `part`, `part_step`: the execution at work
 * and the first step it buys (0: `first_step`). `model`: what its agent was set to call; `parts`: what of `usage` is of
 * others (`core.usage_parts`). `late_*`: answers that came when the run was no longer their delivery's; `over_*`: what
 * these used beyond what had been reserved for them. `editions`: (step, fingerprint) where a later step found another
 * agent. `deadline`: when a sub-agent's time is over (Unix seconds): its parent's tool waits no longer. `effects`:
 * docs/protocol.md#ends.
 */
export interface RunRow {
  agent_type: string;
  blocks: Block[];
  checkpoint: string | null;
  claim: StepClaim | null;
  completion_reason: string | null;
  deadline: number | null;
  editions: [unknown, unknown][];
  effects: "open" | "done";
  ended_at: number | null;
  error: ErrorInfo | null;
  fingerprint: string;
  first_step: number;
  input: {
    [k: string]: unknown;
  } | null;
  kind: "run";
  last: [unknown, unknown] | null;
  late_calls: number;
  late_micros: number;
  late_tokens: number;
  mode: string;
  model: string;
  output: unknown;
  over_micros: number;
  over_tokens: number;
  part: number;
  part_step: number;
  parts: {
    [k: string]: (number | boolean)[];
  };
  pending: Pending[];
  previous_run_id: string | null;
  priority: number;
  reason: string | null;
  run_id: string;
  session_id: string;
  start_count: number;
  start_lineage: number;
  start_sequence: number;
  start_state_at: string;
  start_step: number;
  started_at: number;
  status: string;
  steps: number;
  trace: Trace | null;
  turn: number;
  usage: (number | boolean)[];
}
/**
 * What the current run has drawn from one window of a budget, in the budget's unit: `spent + reserved + assumed <=
 * drawn`. `draws`: the session's version at its last draw. `reported`: of `spent` and `assumed`, what the last draw
 * reported to the budget. `closed`: no call is reserved from it any more, because another window has begun or the budget
 * is gone.
 */
export interface Block {
  assumed: number;
  budget: string;
  closed: boolean;
  drawn: number;
  draws: number;
  reported: number;
  spent: number;
  unit: "micros" | "tokens";
}
/**
 * Who is buying a step. `deadline` is the latest moment (Unix seconds) at which the holder can still act. `late`: how
 * many attempts at the step got no answer in the time that their worker had, or had a worker that fell silent.
 */
export interface StepClaim {
  attempt: number;
  attempt_id: string;
  deadline: number;
  late: number;
  micros: number;
  run_id: string;
  step: number;
  tokens: number;
}
/**
 * Why a run failed. `recoverable` says whether `retry` makes sense.
 */
export interface ErrorInfo {
  code: string;
  message: string;
  recoverable: boolean;
}
/**
 * The committed state of a session: what a run left, or has reached so far.
 */
export interface SessionState {
  abort_reason: string | null;
  aborted: boolean;
  agent_type: string;
  checkpoint_id: string;
  created_at: number;
  current_run_id: string;
  custom_state: {
    [k: string]: unknown;
  };
  error: ErrorInfo | null;
  forked_from: {
    [k: string]: unknown;
  } | null;
  lease_expires: number;
  message_count: number;
  metadata: {
    [k: string]: unknown;
  };
  output: unknown;
  parent_session_id: string | null;
  pending: Pending[];
  session_id: string;
  status: "running" | "completed" | "failed" | "interrupted" | "paused";
  step_count: number;
  stream_id: string;
  tags: string[];
  turn: number;
  updated_at: number;
  usage: Usage;
  user_id: string | null;
  version: number;
}
/**
 * `status` is the session's at the moment of reading; messages and state are those of `checkpoint_id`. `offset`: the
 * place of the first of these messages in the session.
 */
export interface SessionSnapshot {
  checkpoint_id: string;
  custom_state: {
    [k: string]: unknown;
  };
  messages: (SystemMessage | UserMessage | AssistantMessage | ToolResultMessage)[];
  offset: number;
  pending: Pending[];
  run_id: string;
  sequence: number;
  session_id: string;
  status: "running" | "completed" | "failed" | "interrupted" | "paused" | "deleting";
}
/**
 * A sub-agent's session, as its parent knows it.
 */
export interface SubSessionRef {
  agent_type: string;
  parent_tool_call_id: string;
  session_id: string;
  status: "running" | "completed" | "failed" | "interrupted" | "paused" | "deleting" | "deleted" | "not_started";
}
/**
 * `complete`: the stream of the step was read to its end; else texts are what its first messages have.
 */
export interface StepFound {
  attempts: Attempt[];
  calls: StepCall[];
  complete: boolean;
  session_id: string;
  step: number;
}
/**
 * One try to buy a step. `outcome` is `open` while it goes on; else as in `helix.services.session_calls.ModelCall`.
 * `text` is what readers of the stream were shown; `discarded`: they were told to drop it, for `reason`; `dropped`: texts
 * of failed tries at the model before it, which they dropped too. `taken_over_by`:
 * the run that went on after its worker's death. Of `cancelled` and `dead` attempts only what they may have used is
 * known: `assumed_*`.
 */
export interface Attempt {
  assumed_tokens: number;
  assumed_usd: number;
  at: number;
  attempt: number;
  discarded: boolean;
  dropped: string[];
  error: string | null;
  model: string | null;
  outcome: "open" | "answered" | "failed" | "lost" | "cancelled" | "dead";
  reason: string | null;
  run_id: string;
  taken_over_by: string | null;
  text: string;
  turn: number;
  usage: Usage;
}
/**
 * `state` and `by` as in `helix.core.entries.CallRow`; `waiting`: nobody took the call. `starts`: how often readers of
 * the stream saw it begin. `ruling`: what became of an unknown outcome; None where the outcome was known.
 */
export interface StepCall {
  by: string | null;
  call_id: string;
  edited: Edit | null;
  ruling: ("asked" | "executed_again" | "reported" | "unknown") | null;
  starts: number;
  state: "waiting" | "asked" | "approved" | "claimed" | "done";
  success: boolean | null;
  tool_name: string;
}
/**
 * `since`: the first hour that counts, UTC (`2026-11-21T14`).
 */
export interface UsageFound {
  lines: UsageLine[];
  since: string | null;
  usd: number;
  user: string;
}
/**
 * `input` includes `cached`. `usd` is without the `unpriced` calls. `assumed_*`: what calls of which nobody heard again
 * may have used.
 */
export interface UsageLine {
  agent: string;
  assumed_tokens: number;
  assumed_usd: number;
  cached: number;
  calls: number;
  failed: number;
  input: number;
  model: string;
  operation: string;
  output: number;
  runs: number;
  unpriced: number;
  usd: number;
}
export interface Interrupted {
  interrupted: boolean;
}
export interface AgentList {
  agents: AgentFound[];
  cursor: string | null;
}
export interface AgentFound {
  description: string;
  input: {
    [k: string]: unknown;
  };
  kind: "chat" | "function";
  name: string;
  output: {
    [k: string]: unknown;
  };
}
export interface CheckpointList {
  checkpoints: ListedCheckpoint[];
  cursor: string | null;
}
/**
 * `usage`: the numbers of a `Usage` in the order of its fields, without zeros at the end.
 */
export interface ListedCheckpoint {
  count: number;
  created_at: number;
  id: string;
  lineage: number;
  name: string | null;
  pending: Pending[];
  run_id: string;
  state_at: string;
  status: "running" | "completed" | "failed" | "interrupted" | "paused" | "deleting";
  step: number;
  turn: number;
  usage: (number | boolean)[];
  warnings: string[];
}
export interface SessionList {
  cursor: string | null;
  damaged: string[];
  sessions: ListedSession[];
}
/**
 * A `SessionState` without `custom_state` and `output`. `title`: the beginning of its first message.
 */
export interface ListedSession {
  abort_reason: string | null;
  aborted: boolean;
  agent_type: string;
  checkpoint_id: string;
  created_at: number;
  current_run_id: string;
  error: ErrorInfo | null;
  forked_from: {
    [k: string]: unknown;
  } | null;
  lease_expires: number;
  message_count: number;
  metadata: {
    [k: string]: unknown;
  };
  parent_session_id: string | null;
  pending: Pending[];
  session_id: string;
  status: "running" | "completed" | "failed" | "interrupted" | "paused";
  step_count: number;
  stream_id: string;
  tags: string[];
  title?: string;
  turn: number;
  updated_at: number;
  usage: Usage;
  user_id: string | null;
  version: number;
}
export interface Pong {
  now: number;
}
/**
 * Each row is `[sort, value]`.
 */
export interface RowPage {
  cursor: string | null;
  rows: [unknown, unknown][];
}
export interface StreamPage {
  messages: WireMessage[];
  stream_id: string;
}
/**
 * A `helix.core.wire.StreamMessage` without what equals its default. `chunk` is one of `chunks`, or of a type that
 * this version does not know.
 */
export interface WireMessage {
  chunk?: {
    [k: string]: unknown;
  } | null;
  error?: string | null;
  kind: "chunk" | "end" | "fail" | "paused";
  run_id: string;
  sequence: number;
  session_id: string;
  status?: string | null;
  turn?: number;
  v?: 1;
}
export interface Started {
  after: number;
  replay: boolean;
  run_id: string;
  session_id: string;
  stream_id: string;
  turn: number;
}
export interface Subscribed {
  caught_up: number;
  complete: boolean;
  stream_id: string;
}
export interface Unsubscribed {
  stream_id: string;
}
/**
 * What the client makes of replies.
 */
export interface Made {
  AgentResult: AgentResult;
  StreamMessage: StreamMessage;
}
/**
 * How a run ended. `output` is an instance of the agent's output schema (over a socket the JSON of one), or for agents
 * without a schema the last text. `error` is set for failed runs; `pending` lists what a paused one waits for.
 */
export interface AgentResult {
  completion_reason: string | null;
  error: string | null;
  error_code: string | null;
  output: unknown;
  pending: Pending[];
  recoverable: boolean;
  run_id: string;
  session_id: string;
  status: "completed" | "failed" | "interrupted" | "paused";
  steps: number;
  text: string | null;
  usage: Usage;
}
/**
 * `chunk` carries a chunk. `end`, `fail` and `paused` close a run's part of the stream: `status` is the run's, and
 * `error` its message. `session_id` names the session: a child's end is not the root's.
 */
export interface StreamMessage {
  chunk: {
    [k: string]: unknown;
  } | null;
  error: string | null;
  kind: "chunk" | "end" | "fail" | "paused";
  run_id: string;
  sequence: number;
  session_id: string;
  status: string | null;
  stream_id: string;
  turn: number;
  v: 1;
}

/** A chunk of a type that this version knows. One of a later version has another `type`: leave it out. */
export type StreamChunk = Chunks[keyof Chunks];

/** Codes of the service's errors. */
export type ServiceErrorCode =
  | "AGENT_ERROR"
  | "DUPLICATE_AGENT"
  | "INVALID_SCALE"
  | "access_denied"
  | "agent_already_running"
  | "agent_not_found"
  | "agent_stopped"
  | "batch_failed"
  | "body_too_large"
  | "budget_exceeded"
  | "call_not_pending"
  | "cannot_resume"
  | "checkpoint_not_found"
  | "condition_failed"
  | "contention"
  | "context_too_large"
  | "damaged_row"
  | "fatal_tool_error"
  | "helix_error"
  | "illegal_transition"
  | "internal_error"
  | "invalid_definition"
  | "invalid_input"
  | "invalid_message"
  | "invalid_request"
  | "model_error"
  | "not_allowed"
  | "not_authenticated"
  | "object_gone"
  | "operator_error"
  | "process_failed"
  | "process_not_found"
  | "queue_full"
  | "run_failed"
  | "run_not_found"
  | "script_exhausted"
  | "secret_not_found"
  | "session_exists"
  | "session_not_found"
  | "stale_state"
  | "store_error"
  | "stream_not_found"
  | "tool_error"
  | "work_in_progress";

/** Fields that are left out on the wire where they equal these. */
export const DEFAULTS: {
  chunk: object;
  usage: object;
  types: Record<string, object>;
} = {
  "chunk": {
    "agent_id": "",
    "agent_type": "",
    "attempt": 0,
    "run_id": "",
    "sequence": 0,
    "session_id": "",
    "step": 0,
    "timestamp": 0
  },
  "types": {
    "custom": {
      "data": null
    },
    "error": {
      "code": "error",
      "recoverable": true
    },
    "run_interrupted": {
      "checkpoint_id": null,
      "reason": null
    },
    "run_paused": {
      "checkpoint_id": null,
      "pending": [],
      "reason": "pending"
    },
    "run_queued": {
      "reason": null
    },
    "run_resumed": {
      "checkpoint_id": null
    },
    "state_patch": {
      "warnings": []
    },
    "step_committed": {
      "model": null,
      "stop_reason": null,
      "usage": null
    },
    "step_discarded": {
      "reason": null,
      "status": null
    },
    "stream_resync": {
      "checkpoint_id": null,
      "from_sequence": 0
    },
    "subagent_end": {
      "error": null,
      "result": null
    },
    "thinking": {
      "is_complete": false
    },
    "tool_approval_request": {
      "input": {},
      "kind": "approval",
      "parameters": {},
      "reason": null
    },
    "tool_end": {
      "arguments": null,
      "error": null,
      "result": null,
      "success": true
    },
    "tool_start": {
      "arguments": {},
      "edited": null
    }
  },
  "usage": {
    "cached_tokens": 0,
    "calls": 0,
    "completion_tokens": 0,
    "cost_micros": 0,
    "priced": true,
    "prompt_tokens": 0,
    "reasoning_tokens": 0,
    "unknown_calls": 0
  }
};
