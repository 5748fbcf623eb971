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
  agent_changed: AgentChangedChunk;
  call_reminder: CallReminderChunk;
  checkpoint_created: CheckpointCreatedChunk;
  citation: CitationChunk;
  context_changed: ContextChangedChunk;
  custom: CustomEventChunk;
  error: ErrorChunk;
  message_queued: MessageQueuedChunk;
  output: OutputChunk;
  output_delta: OutputDeltaChunk;
  run_interrupted: RunInterruptedChunk;
  run_paused: RunPausedChunk;
  run_queued: RunQueuedChunk;
  run_resumed: RunResumedChunk;
  run_superseded: RunSupersededChunk;
  server_tool: ServerToolChunk;
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
/**
 * A notice that another agent makes the next steps, after a handoff.
 */
export interface AgentChangedChunk {
  /**
   * The agent that takes over. Chunks from here on have it as `agent_type`.
   */
  agent: string;
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "agent_changed";
}
/**
 * A reminder of a call that still waits for a person or the client. It comes after the run has paused. Its `attempt` is
 * the number of the reminder.
 */
export interface CallReminderChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The time (Unix seconds) when the wait ends without a response. None: never.
   */
  expires_at: number | null;
  /**
   * The response that the call waits for, as in `tool_approval_request`.
   */
  kind: "approval" | "client" | "unknown" | "question";
  /**
   * The number of the reminder, starting at 1 for each call.
   */
  number: number;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The id of the call, unique in its session.
   */
  tool_call_id: string;
  /**
   * The tool that the model called.
   */
  tool_name: string;
  /**
   * The tag of this chunk on the wire.
   */
  type: "call_reminder";
}
/**
 * A notice that a checkpoint is durable.
 */
export interface CheckpointCreatedChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The id of the checkpoint.
   */
  checkpoint_id: string;
  /**
   * The number of messages in history at the checkpoint.
   */
  message_count: number;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The number of the last committed step at the checkpoint.
   */
  step_count: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "checkpoint_created";
}
/**
 * A source of a part of the answer's text.
 */
export interface CitationChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The index after the last character of the part.
   */
  end: number;
  /**
   * The cited text of the source. None if the provider does not give it.
   */
  quote: string | null;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The index of the first character of the part in the text of the attempt.
   */
  start: number;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The title of the source, or the name of the file.
   */
  title: string | null;
  /**
   * The tag of this chunk on the wire.
   */
  type: "citation";
  /**
   * The address of the source. None for a file or a document.
   */
  url: string | null;
}
/**
 * The model is shown another part of the history from this step on. Nothing of the history is lost.
 */
export interface ContextChangedChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * Why the view changed: `policy`, `overflow` (the provider refused the prompt as too long), or `request`.
   */
  cause: string;
  /**
   * The index in history before which notes take the place of long tool results.
   */
  cleared: number;
  /**
   * The number of messages at the beginning of history that the model is not shown.
   */
  hidden: number;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The summary in place of the hidden messages. Empty without a summary.
   */
  summary: string;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The estimated length of the prompt before the change, in tokens.
   */
  tokens: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "context_changed";
}
/**
 * An event that a tool or a hook emitted.
 */
export interface CustomEventChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The JSON value that the tool or hook attached.
   */
  data: unknown;
  /**
   * The name that the tool or hook gave the event.
   */
  event_name: string;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "custom";
}
/**
 * A failed model call, a tool call that cannot be executed, or a failed run.
 */
export interface ErrorChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * A stable error code, such as `model_error` or `invalid_tool_call` (`core.errors`).
   */
  code: string;
  /**
   * The error message.
   */
  error: string;
  /**
   * True if the run continues. False exactly once, right before the stream of a failed run ends.
   */
  recoverable: boolean;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "error";
}
/**
 * The fate of a message that waits for a run: it waits, it was delivered at this point, or it was withdrawn.
 *
 * Readers keep the last state of each `queued_id`. A repeated or late chunk changes nothing after `delivered` or
 * `withdrawn`.
 */
export interface MessageQueuedChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The text of the message. Empty for `withdrawn`.
   */
  content: string;
  /**
   * The files of the message. Empty for `withdrawn`.
   */
  files: FilePart[];
  /**
   * The id that the sender's page gave the message. None if it gave none, and for `withdrawn`.
   */
  message_id: string | null;
  /**
   * The delivery that the message waits for. A delivered message has `steer` if it joined a run, and None if it has a run of its own. None for `withdrawn`.
   */
  mode: ("steer" | "queue" | "interrupt") | null;
  /**
   * The id of the message in the session's `inbox`.
   */
  queued_id: string;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The state of the message. `delivered`: the conversation has it from here on.
   */
  state: "waiting" | "delivered" | "withdrawn";
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "message_queued";
}
/**
 * A file of a message or a tool result: bytes in the object store, or a URL that the provider reads.
 */
export interface FilePart {
  /**
   * The number of characters of the message's text before the file.
   */
  after_text?: number;
  /**
   * The height of an image in pixels. None if it is not known, or for another kind.
   */
  height?: number | null;
  /**
   * The way in which a model takes the file. `file` is any type that no model reads.
   */
  kind: "image" | "audio" | "document" | "file";
  /**
   * The type of the bytes, such as `image/png`. Helix reads it from the bytes, not from the name.
   */
  media_type: string;
  /**
   * The name of the file for people and models, without a path. None for a file without a name.
   */
  name?: string | null;
  /**
   * The number of pages of a document. None if it is not known, or for another kind.
   */
  pages?: number | null;
  /**
   * The hash of the bytes, which names them in the object store. None for a URL.
   */
  sha256?: string | null;
  /**
   * The number of bytes. 0 for a URL.
   */
  size?: number;
  /**
   * An `https` URL that is passed to the provider. Helix does not fetch it. None for stored bytes.
   */
  url?: string | null;
  /**
   * The width of an image in pixels. None if it is not known, or for another kind.
   */
  width?: number | null;
}
/**
 * The output of a completed run.
 */
export interface OutputChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The structured output as JSON.
   */
  output: unknown;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "output";
}
/**
 * A piece of the structured output, as JSON text.
 */
export interface OutputDeltaChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The text to append to the pieces of the same session, step and attempt. The pieces of a whole attempt are the arguments of its first `__finish__` call.
   */
  delta: string;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "output_delta";
}
/**
 * The end of an interrupted run.
 */
export interface RunInterruptedChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The last checkpoint of the run, from which a resume continues. None if the run wrote no checkpoint.
   */
  checkpoint_id: string | null;
  /**
   * The reason that the caller of the interrupt gave. None if the caller gave none.
   */
  reason: string | null;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "run_interrupted";
}
/**
 * The end of a paused run. The session waits for a response from a person or client, or for room in a budget.
 */
export interface RunPausedChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The last checkpoint of the run.
   */
  checkpoint_id: string | null;
  /**
   * The calls that wait, each as the JSON of a `core.rows.Pending`.
   */
  pending: {
    [k: string]: unknown;
  }[];
  /**
   * `pending` if calls wait for a response, `budget_exceeded` if a budget has no room for the next model call.
   */
  reason: string;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "run_paused";
}
/**
 * A notice that the run waits for a free slot of its agent, or of the account.
 */
export interface RunQueuedChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The end of the maximum wait, in Unix seconds.
   */
  expires_at: number;
  /**
   * The number of queued runs of the agent at that moment, including this one.
   */
  queued: number;
  /**
   * Why the agent is stopped and starts no runs, such as `stopped by budget agent:poet/day/micros`. None if the run only waits for a free slot.
   */
  reason: string | null;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "run_queued";
}
/**
 * The first chunk of a run that continues an earlier one.
 */
export interface RunResumedChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The checkpoint that the claim of this run wrote.
   */
  checkpoint_id: string | null;
  /**
   * The mode of the resume or retry, or `takeover` (`core.status.ClaimMode`).
   */
  mode: string;
  /**
   * The run that this run continues.
   */
  previous_run_id: string;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "run_resumed";
}
/**
 * A notice that a new message replaced a run that was interrupted or paused.
 */
export interface RunSupersededChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The run that the new message started.
   */
  by_run_id: string;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The run that was replaced.
   */
  superseded_run_id: string;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "run_superseded";
}
/**
 * A call that the provider executes while the model answers. It is sent when the call begins and again with each
 * change; the last one replaces the others. It is part of the attempt, like its text.
 */
export interface ServerToolChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The arguments of the call. Empty until the model has written them.
   */
  arguments: {
    [k: string]: unknown;
  };
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * Whether the call has its result.
   */
  done: boolean;
  /**
   * The error of a call that failed. None otherwise.
   */
  error: string | null;
  /**
   * The result without the provider's encrypted parts. None if it has none yet, or if the provider does not show it.
   */
  result: unknown;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The provider's id of the call, unique in its answer.
   */
  tool_call_id: string;
  /**
   * The tool: `web_search`, `code_execution`, `file_search`, or `<server>.<tool>` of an MCP server.
   */
  tool_name: string;
  /**
   * The tag of this chunk on the wire.
   */
  type: "server_tool";
}
/**
 * A change of the committed custom state.
 */
export interface StatePatchChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * RFC 6902 operations from the previously committed custom state to the one now committed.
   */
  patches: Patch[];
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "state_patch";
  /**
   * Messages about parallel calls that changed the same part of the state. Each names the calls and how the conflict was resolved.
   */
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
 * The commit of a step: the text of this step and attempt is final and equals the stored answer.
 */
export interface StepCommittedChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * Why the provider's cache lost the prompt (`core.lost_caches.LostCache`). None if it did not, or as for `model`.
   */
  lost_cache: string | null;
  /**
   * The model that answered. None if the sequencer wrote the chunk on behalf of a worker that died.
   */
  model: string | null;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * Why the model stopped (`core.steps.StopReason`). None as for `model`, or if the adapter gave none.
   */
  stop_reason: string | null;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "step_committed";
  /**
   * Tokens and cost of the answer. None as for `model`.
   */
  usage: Usage | null;
}
/**
 * The tokens and cost of one call, or the total of several calls.
 */
export interface Usage {
  /**
   * The prompt tokens that the provider read from its cache.
   */
  cached_tokens: number;
  /**
   * The number of calls. Every attempt that the provider may bill counts.
   */
  calls: number;
  /**
   * The answer tokens, including `reasoning_tokens`.
   */
  completion_tokens: number;
  /**
   * The cost in millionths of a US dollar. A call without a known price adds 0.
   */
  cost_micros: number;
  /**
   * The prompt tokens that the provider's cache should have had, and that were not read from it (`core.lost_caches`).
   */
  lost_tokens: number;
  /**
   * Whether all prices were known.
   */
  priced: boolean;
  /**
   * The prompt tokens, including `cached_tokens`.
   */
  prompt_tokens: number;
  /**
   * The answer tokens spent on reasoning.
   */
  reasoning_tokens: number;
  /**
   * The number of calls that may have used more than was reported, because they were cut off or their answer had no usage.
   */
  unknown_calls: number;
  /**
   * The prompt tokens that the provider wrote to its cache. 0 if it does not report them.
   */
  written_tokens: number;
}
/**
 * A request to remove everything that this step and attempt displayed.
 */
export interface StepDiscardedChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * Why the attempt was discarded.
   */
  reason: string | null;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The status of the run if its end cut off the attempt. The text of an `interrupted` run may stay until the next.
   */
  status: string | null;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "step_discarded";
}
/**
 * A request to clear the display and reload from the checkpoint, because the session was rewound or chunks were
 * lost.
 */
export interface StreamResyncChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The checkpoint to reload, of the run that rewound the session. None if chunks were lost: reload the latest one.
   */
  checkpoint_id: string | null;
  /**
   * The last sequence before the run that rewound the session, or before the first chunk after a gap.
   */
  from_sequence: number;
  /**
   * `chunks were lost`, `messages have expired`, or the `core.status.ClaimMode` of the run that rewound the session.
   */
  reason: string;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "stream_resync";
}
/**
 * The end of a sub-agent's work for a call. The `tool_end` of the call follows.
 */
export interface SubAgentEndChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The error message if there is no output. None if the sub-agent completed.
   */
  error: string | null;
  /**
   * The parent's tool call that started the sub-agent.
   */
  parent_tool_call_id: string;
  /**
   * The sub-agent's output. None unless it completed.
   */
  result: unknown;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * `completed`, `failed`, or `interrupted` if the call ended without a result from the sub-agent.
   */
  status: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The session id of the sub-agent.
   */
  sub_agent_id: string;
  /**
   * The name of the sub-agent's definition.
   */
  sub_agent_type: string;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "subagent_end";
}
/**
 * The start or resumption of a sub-agent's session. It follows the `tool_start` of its call.
 */
export interface SubAgentStartChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The parent's tool call that started the sub-agent.
   */
  parent_tool_call_id: string;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The session id of the sub-agent.
   */
  sub_agent_id: string;
  /**
   * The name of the sub-agent's definition.
   */
  sub_agent_type: string;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "subagent_start";
}
/**
 * A piece of the model's text.
 */
export interface TextDeltaChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The text to append to the pieces of the same session, step and attempt.
   */
  delta: string;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "text_delta";
}
/**
 * A piece of the model's reasoning, or a whole block of it.
 */
export interface ThinkingChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The piece, or the text of the whole block.
   */
  content: string;
  /**
   * False for a piece. True once for the whole block, which repeats the pieces: do not append it to them.
   */
  is_complete: boolean;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "thinking";
}
/**
 * A question to a person or to the client about a call.
 */
export interface ToolApprovalRequestChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * For `client`, whether the run declared the tool, and not the agent.
   */
  declared: boolean;
  /**
   * The arguments of the call: the model's, or, for an `unknown` outcome, the ones that a person had approved.
   */
  input: {
    [k: string]: unknown;
  };
  /**
   * The kind of response: `approval` of the call, the `client`'s result, a decision about an `unknown` outcome, the answers to the tool's `questions`, or the result of another system (`elsewhere`), which readers cannot give.
   */
  kind: "approval" | "client" | "unknown" | "question" | "elsewhere";
  /**
   * The JSON schema of `input`. Empty if the agent no longer has the tool.
   */
  parameters: {
    [k: string]: unknown;
  };
  /**
   * For `question`, the open questions. Empty for other kinds.
   */
  questions: AskedQuestion[];
  /**
   * Why the tool requires approval, if its rule gives a reason.
   */
  reason: string | null;
  /**
   * For `question`, the number that a response may name, as in `core.rows.Pending`. 0 for other kinds.
   */
  round: number;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The id of the call, unique in its session.
   */
  tool_call_id: string;
  /**
   * The tool that the model called.
   */
  tool_name: string;
  /**
   * The tag of this chunk on the wire.
   */
  type: "tool_approval_request";
}
/**
 * A question that a tool asked while it ran, and its answer.
 */
export interface AskedQuestion {
  /**
   * The JSON schema of the answer.
   */
  answer_schema: {
    [k: string]: unknown;
  };
  /**
   * Whether the question has an answer.
   */
  answered: boolean;
  /**
   * The time of the answer in Unix seconds. None until there is one, and in rows of earlier versions.
   */
  at: number | null;
  /**
   * The user who answered, as the service identified them. None if it does not identify its users, or if an operator answered.
   */
  by: string | null;
  /**
   * The answer. None until there is one.
   */
  data: unknown;
  /**
   * The answer if none came in time. None without the policy `default`.
   */
  default_answer: unknown;
  /**
   * The policy after `timeout_s`. `deny` fails the call, `fail` also the run, and `default` gives the `default_answer`.
   */
  on_timeout: "deny" | "fail" | "default";
  /**
   * Why the tool did not accept the last answer. None if the question was not asked before.
   */
  problem: string | null;
  /**
   * The numbers of seconds after which a reminder is recorded, if the question is still open.
   */
  remind_s: number[];
  /**
   * The round in which the question was asked, as in `Pending.round`. 0 in rows of earlier versions.
   */
  round: number;
  /**
   * The text that the person reads.
   */
  text: string;
  /**
   * Whether the answer is the default, because none came in time.
   */
  timed_out: boolean;
  /**
   * The number of seconds that the question waits. None: forever.
   */
  timeout_s: number | null;
}
/**
 * The result of a call, sent once per call.
 */
export interface ToolEndChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The model's arguments of a refused call, which has no `tool_start`. None for other calls, or if not known.
   */
  arguments: {
    [k: string]: unknown;
  } | null;
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The error message of a failed call. None for a success.
   */
  error: string | null;
  /**
   * The files that the tool returned, by their place in the result's text. The session holds them.
   */
  files: FilePart[];
  /**
   * All questions of the call, with their answers. One without an answer was not answered.
   */
  questions: AskedQuestion[];
  /**
   * The approvals, denials, results and rulings that people and clients gave.
   */
  responses: CallResponse[];
  /**
   * The value that the call returned. For a failed call, the content of its result, such as `{"error": message}`.
   */
  result: unknown;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * Whether the call succeeded.
   */
  success: boolean;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The id of the call, unique in its session.
   */
  tool_call_id: string;
  /**
   * The tool that the model called.
   */
  tool_name: string;
  /**
   * The tag of this chunk on the wire.
   */
  type: "tool_end";
}
/**
 * A response to a call that waited, except for the answers to questions, which are in `AskedQuestion`.
 */
export interface CallResponse {
  /**
   * Whether the call was approved, or the client had a result. False for a denial.
   */
  approved: boolean;
  /**
   * The time of the response in Unix seconds.
   */
  at: number;
  /**
   * The user who responded, as the service identified them. None if it does not identify its users, or if an operator responded.
   */
  by: string | null;
  /**
   * The response that the call waited for, as in `Pending.kind`. For `question`, the person did not answer.
   */
  kind: "approval" | "client" | "unknown" | "question";
}
/**
 * The start of a claimed call. A second one for the same call, with a higher `attempt`, replaces the first.
 */
export interface ToolStartChunk {
  /**
   * The session id of the agent that wrote the chunk, equal to `session_id`.
   */
  agent_id: string;
  /**
   * The name of the agent that wrote the chunk.
   */
  agent_type: string;
  /**
   * The arguments of the execution: the model's, or the ones that a person approved instead.
   */
  arguments: {
    [k: string]: unknown;
  };
  /**
   * The number of the attempt at the step. For chunks of a tool call, the number of the call's claim.
   */
  attempt: number;
  /**
   * The edit of the arguments in an approval. None if `arguments` are the model's.
   */
  edited: Edit | null;
  /**
   * The questions that earlier executions asked, with their answers.
   */
  questions: AskedQuestion[];
  /**
   * The responses that the call got before, such as its approval.
   */
  responses: CallResponse[];
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The position of the chunk in the stream: 1, 2, 3, ... without gaps across all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: the root session, or a sub-agent's session, which writes to its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The time when the writer created the chunk, in Unix seconds.
   */
  timestamp: number;
  /**
   * The id of the call, unique in its session.
   */
  tool_call_id: string;
  /**
   * The tool that the model called.
   */
  tool_name: string;
  /**
   * The tag of this chunk on the wire.
   */
  type: "tool_start";
}
/**
 * An edit of a call's arguments before its execution.
 */
export interface Edit {
  /**
   * The time of the edit in Unix seconds.
   */
  at: number;
  /**
   * The user who edited the arguments, or `guard:` and the name of the guard that did. None if the service does not identify its users, or if an operator made the edit.
   */
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
  change_tags: ChangeTags;
  clone: Clone;
  compact: Compact;
  compare: Compare;
  delete: Delete;
  diff_checkpoints: DiffCheckpoints;
  finish_upload: FinishUpload;
  get_budgets: GetBudgets;
  get_checkpoint: GetCheckpoint;
  get_context: GetContext;
  get_cost: GetCost;
  get_executions: GetExecutions;
  get_file: GetFile;
  get_fleet: GetFleet;
  get_logs: GetLogs;
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
  rename: Rename;
  report_call: ReportCall;
  resume: Resume;
  retry: Retry;
  run: Run;
  subscribe: Subscribe;
  unsubscribe: Unsubscribe;
  upload: Upload;
  withdraw: Withdraw;
}
/**
 * Fail a run permanently. Idempotent. Result: `{}`.
 */
export interface Abort {
  /**
   * The name of this action.
   */
  action: "abort";
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The reason, stored with the run.
   */
  reason?: string | null;
  /**
   * The run to stop. None: the session's current run.
   */
  run_id?: string | null;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Answer a pending call, in the session or in one of its sub-agents. Only the first response counts.
 *
 * Result: as for `Run`, with `run_id` being the session's current run. `resumed` tells whether the response started a
 * run.
 */
export interface AnswerAction {
  /**
   * The name of this action.
   */
  action: "answer";
  /**
   * Whether the call is approved. False denies it.
   */
  approved?: boolean;
  /**
   * The arguments to execute an approved call with. None keeps the model's arguments. If they do not match the tool's schema, the request is refused and the call stays pending.
   */
  arguments?: {
    [k: string]: unknown;
  } | null;
  /**
   * The data of the response, as in `helix.core.handles.Confirmation`.
   */
  data?: unknown;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The reason for a denial, which the model sees.
   */
  reason?: string | null;
  /**
   * The `round` of the questions that `data` answers. If the call asks other questions by now, the request is refused.
   */
  round?: number | null;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * Whether to send the run's messages to this connection.
   */
  subscribe?: boolean;
  /**
   * The `call_id` of a call in `pending`.
   */
  tool_call_id: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Renew the connection's credentials with a new token of the same user, or query the identity of the caller.
 *
 * Result: `{"principal", "expires_at", "operator", "prefix"}`. Session ids that a client chooses begin with `prefix`.
 */
export interface Authenticate {
  /**
   * The name of this action.
   */
  action: "authenticate";
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * A new token of the same user. None: change nothing and return the identity of the caller.
   */
  token?: string | null;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Create a new session from a checkpoint. Result: `{"session_id"}`.
 */
export interface Branch {
  /**
   * The name of this action.
   */
  action: "branch";
  /**
   * The checkpoint to copy from. None: the latest.
   */
  checkpoint_id?: string | null;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * An idempotency key: repeating the request returns the copy that was made with the same key.
   */
  key?: string | null;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The id of the new session, which must begin with the caller's prefix. None: the service generates one.
   */
  target?: string | null;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Change the limit of a budget. Operators only. Result: `{"budget", "unit", "limit"}`.
 *
 * The new limit applies from the next model call. The rest of the budget's definition is unchanged.
 */
export interface ChangeBudget {
  /**
   * The name of this action.
   */
  action: "change_budget";
  /**
   * The name of the budget, as `get_budgets` lists it.
   */
  budget: string;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The new limit, in the budget's unit: US dollars or tokens.
   */
  limit: number;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Add and remove tags of a session. Idempotent, and without any effect on a run. Result: `{"tags"}`, as stored.
 */
export interface ChangeTags {
  /**
   * The name of this action.
   */
  action: "change_tags";
  /**
   * The tags to add, of at most 256 characters on one line each. A session has at most 50.
   *
   * @maxItems 50
   */
  add?: string[];
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The tags to remove first. Tags that the session does not have are ignored.
   *
   * @maxItems 50
   */
  remove?: string[];
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Copy a session up to a checkpoint or a message. Result: `{"session_id"}`.
 */
export interface Clone {
  /**
   * The name of this action.
   */
  action: "clone";
  /**
   * The checkpoint to copy from. None: the latest.
   */
  checkpoint_id?: string | null;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * An idempotency key: repeating the request returns the copy that was made with the same key.
   */
  key?: string | null;
  /**
   * The number of messages to copy from the beginning. Fewer are copied if a call would lose its result. Give this or `checkpoint_id`, not both.
   */
  message_index?: number | null;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The id of the new session, which must begin with the caller's prefix. None: the service generates one.
   */
  target?: string | null;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Ask that the session's next step first replaces the beginning of the conversation by a summary. Idempotent; the
 * last focus counts. Result: `{}`.
 */
export interface Compact {
  /**
   * The name of this action.
   */
  action: "compact";
  /**
   * The topic that the summary should pay attention to. Empty for no particular focus.
   */
  focus?: string;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Compare two runs side by side, or two whole sessions: what was asked and answered, their steps and their states.
 *
 * Result: `helix.core.comparison.Comparison`. A run is compared together with the runs that it continues.
 */
export interface Compare {
  /**
   * The name of this action.
   */
  action: "compare";
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The run of `other_session_id`. None: the whole session.
   */
  other_run_id?: string | null;
  /**
   * The session of the other side. It may be the same session.
   */
  other_session_id: string;
  /**
   * The run of `session_id`. None: the whole session.
   */
  run_id?: string | null;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Delete a session, its sub-agents' sessions and its stream. Result: `{"deleted"}`, which is always true.
 */
export interface Delete {
  /**
   * The name of this action.
   */
  action: "delete";
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Compare two checkpoints of a session.
 *
 * Result: `{"before", "after", "patches", "messages", "offset", "added", "removed"}`. `before` and `after` are the ids
 * of the checkpoints. The RFC 6902 `patches` turn the first state into the second. `messages` is a page of the
 * messages that only the second checkpoint has. `added` counts the messages that only the second checkpoint has,
 * `removed` those that only the first has.
 */
export interface DiffCheckpoints {
  /**
   * The name of this action.
   */
  action: "diff_checkpoints";
  /**
   * The first checkpoint.
   */
  before: string;
  /**
   * The second checkpoint. None: the latest.
   */
  checkpoint_id?: string | null;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The maximum number of added messages to return.
   */
  limit?: number;
  /**
   * The index of the first added message to return.
   */
  offset?: number;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Check the bytes of an upload. From then on, a message may name the file. Idempotent.
 *
 * Result: `{"file"}`, for `files` in `run`, `resume` and `retry`. An upload that no message names is deleted after a day.
 */
export interface FinishUpload {
  /**
   * The name of this action.
   */
  action: "finish_upload";
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The name of the file for people and models. None for a file without a name.
   */
  name?: string | null;
  /**
   * The session whose message will name the file: an existing one, or the id of a new one. A caller without a user must give it, because the file then belongs to the session. Otherwise it belongs to the user.
   */
  session_id?: string | null;
  /**
   * The SHA-256 of the bytes, in hexadecimal.
   */
  sha256: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Read the budgets that apply to a session, in their current windows.
 *
 * Result: `{"session_id", "budgets"}`. A budget's `run` is the amount that the session's current run has spent and
 * reserved. Only operators see the amounts of a budget that spans all users or a whole agent.
 */
export interface GetBudgets {
  /**
   * The name of this action.
   */
  action: "get_budgets";
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Read a checkpoint. Result: `{"checkpoint"}`, as in `list_checkpoints` but with its `custom_state`.
 */
export interface GetCheckpoint {
  /**
   * The name of this action.
   */
  action: "get_checkpoint";
  /**
   * The checkpoint to read. None: the latest.
   */
  checkpoint_id?: string | null;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Read what the model was shown at a step: the messages, and which ones were hidden or cleared.
 *
 * Result: `helix.core.context_replies.ContextFound`.
 */
export interface GetContext {
  /**
   * The name of this action.
   */
  action: "get_context";
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The run that bought the step. None: the step of the present history.
   */
  run_id?: string | null;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The number of the step. None: the next step, as it would be shown now.
   */
  step?: number | null;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Return the itemized cost of a session and its sub-agents' sessions.
 *
 * Result: `{"session_id", "usd", "services", "agrees", "prices", "left_out", "lines"}`. Refused for sessions with more
 * than 20,000 rows.
 */
export interface GetCost {
  /**
   * The name of this action.
   */
  action: "get_cost";
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Return the executions in Step Functions that carry out a run, and where its log is. Operators only.
 *
 * Result: `{"session_id", "run_id", "stage", "executions", "log_groups", "logs_url"}`. On a developer's machine there
 * is no stage, and no execution.
 */
export interface GetExecutions {
  /**
   * The name of this action.
   */
  action: "get_executions";
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The run. None: the session's current or last run.
   */
  run_id?: string | null;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Ask for an address from which the client downloads a file of the session. Result: `{"url", "expires_at"}`.
 */
export interface GetFile {
  /**
   * The name of this action.
   */
  action: "get_file";
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The name under which a browser saves the file. None: the browser chooses.
   */
  name?: string | null;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The hash of the file, as messages name it.
   */
  sha256: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Read the limits, queues, health and scaling decisions of the agents. Operators only.
 *
 * Result: `helix.core.reports.FleetFound`, with the agents sorted by name.
 */
export interface GetFleet {
  /**
   * The name of this action.
   */
  action: "get_fleet";
  /**
   * The `cursor` of the previous page. None for the first page.
   */
  after?: string | null;
  /**
   * The agent to read. None: all agents.
   */
  agent?: string | null;
  /**
   * The maximum number of scaling decisions to return for each agent.
   */
  decisions?: number;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The maximum number of agents on the page.
   */
  limit?: number;
  /**
   * The version of the protocol.
   */
  v: 1;
  /**
   * The maximum number of waiting runs to return for each agent.
   */
  waiting?: number;
}
/**
 * Read a page of the log lines that name a run, from the logs of the functions that carry out runs. Operators only.
 *
 * Result: `{"session_id", "run_id", "lines", "cursor"}`. The functions' logs are read one after the other, for some
 * seconds, so a page may be short or empty even if there are more lines. Refused where runs are not carried out by the
 * functions of a stage.
 */
export interface GetLogs {
  /**
   * The name of this action.
   */
  action: "get_logs";
  /**
   * The `cursor` of the previous page, whose request had the same fields. None for the first page. It expires after 24 hours.
   */
  after?: string | null;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The maximum number of lines on the page.
   */
  limit?: number;
  /**
   * The run. None: the session's current or last run.
   */
  run_id?: string | null;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The earliest time of the lines, in Unix seconds. None: a minute before the run began.
   */
  since?: number | null;
  /**
   * The latest time of the lines, in Unix seconds. None: five minutes after the run's end, or now.
   */
  until?: number | null;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Read a session, with further parts on request.
 *
 * Result: `{"session", "can_resume"}`, and the parts requested by the fields below. While the current run waits for a
 * slot, `"queued"` has its `{"place", "expires_at", "reason"}`. The run in place 1 is the agent's next to start.
 */
export interface GetSession {
  /**
   * The name of this action.
   */
  action: "get_session";
  /**
   * The exclusive upper index of these messages. None: the newest messages.
   */
  before?: number | null;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The number of messages to add as `"messages"`: the newest ones, or those before `before`.
   */
  messages?: number;
  /**
   * The number of newest messages in the snapshot. None: all messages.
   */
  newest?: number | null;
  /**
   * The run whose result to add as `"run"`. Its status is `running` if it has not ended.
   */
  run_id?: string | null;
  /**
   * The number of runs to add as `"runs"`: the newest ones, or those before `runs_before`.
   */
  runs?: number;
  /**
   * The id of a run: only older runs are returned. None: the newest runs.
   */
  runs_before?: string | null;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * Whether to add the conversation as `"snapshot"`, with the stream sequence from which to continue.
   */
  snapshot?: boolean;
  /**
   * Whether to add the sub-agents' sessions as `"sub_sessions"`.
   */
  sub_sessions?: boolean;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Explain how a step was bought: its attempts, the text that each one showed, and the results of its calls.
 *
 * Result: `helix.core.reports.StepFound`.
 */
export interface GetStep {
  /**
   * The name of this action.
   */
  action: "get_step";
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The run that the step belongs to. None: the newest step with this number.
   */
  run_id?: string | null;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The number of the step. After a rewind, two steps may share a number: the newest one is returned, or that of `run_id`.
   */
  step: number;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Read the usage of a user. Result: `{"user", "since", "usd", "lines"}`.
 */
export interface GetUsage {
  /**
   * The name of this action.
   */
  action: "get_usage";
  /**
   * The number of hours to include, counting the current hour. None: all usage so far.
   */
  hours?: number | null;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The user. None: the caller. Only operators may name another user, and they must name one.
   */
  user?: string | null;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Ask a run to stop. `resume` continues it. Result: `{"interrupted"}`, which is false if the run had already
 * ended.
 */
export interface Interrupt {
  /**
   * The name of this action.
   */
  action: "interrupt";
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The reason, stored with the run.
   */
  reason?: string | null;
  /**
   * The run to stop. None: the session's current run.
   */
  run_id?: string | null;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * List the agents that `run` accepts, sorted by name. Result: `{"agents", "cursor"}`.
 *
 * Each agent has a `name`, a `description` and a `kind` (`chat` or `function`). `input` is the JSON schema of the
 * fields that `run` accepts besides `agent`, and `output` that of the result's output.
 */
export interface ListAgents {
  /**
   * The name of this action.
   */
  action: "list_agents";
  /**
   * The `cursor` of the previous page. None for the first page.
   */
  after?: string | null;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The maximum number of agents on the page.
   */
  limit?: number;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * List the checkpoints of a session, newest first and without states. Result: `{"checkpoints", "cursor"}`.
 */
export interface ListCheckpoints {
  /**
   * The name of this action.
   */
  action: "list_checkpoints";
  /**
   * The `cursor` of the previous page, or the id of any checkpoint. None for the first page.
   */
  after?: string | null;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The maximum number of checkpoints on the page.
   */
  limit?: number;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * List the caller's root sessions, newest id first. Operators see the sessions of all users, or of `user`.
 *
 * Result: `{"sessions", "cursor", "damaged"}`, and `"facets"` on request. A page may be short even if there are more
 * sessions. Fields other than `limit`, `after`, `user`, `titles` and `facets` are filters.
 */
export interface ListSessions {
  /**
   * The name of this action.
   */
  action: "list_sessions";
  /**
   * The `cursor` of the previous page. None for the first page.
   */
  after?: string | null;
  /**
   * The name of the sessions' agent.
   */
  agent?: string | null;
  /**
   * The lowest cost of the sessions, in micro-dollars.
   */
  cost_from?: number | null;
  /**
   * The highest cost of the sessions, in micro-dollars.
   */
  cost_to?: number | null;
  /**
   * The code of the error that ended the sessions' last run.
   */
  error?: string | null;
  /**
   * Whether to count the sessions by agent, user, status, tag, tool and error.
   */
  facets?: boolean;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The maximum number of sessions on the page.
   */
  limit?: number;
  /**
   * The earliest time of the last change, in Unix seconds.
   */
  since?: number | null;
  /**
   * The status of the sessions.
   */
  status?: ("running" | "completed" | "failed" | "interrupted" | "paused" | "deleting") | null;
  /**
   * A tag of the sessions.
   */
  tag?: string | null;
  /**
   * Search words. Each must occur in the id, the agent, the tags, the status, the title that a person gave, or the first 80 characters of the first message. Other messages are not searched. The search ignores case.
   */
  text?: string | null;
  /**
   * Whether a session without a given title has the beginning of its first message as its `title`.
   */
  titles?: boolean;
  /**
   * The name of a tool that the model of the sessions has called.
   */
  tool?: string | null;
  /**
   * The latest time of the last change, in Unix seconds.
   */
  until?: number | null;
  /**
   * The user whose sessions to list. Only operators may name another user.
   */
  user?: string | null;
  /**
   * The version of the protocol.
   */
  v: 1;
  /**
   * Whether to list only sessions that wait for a person.
   */
  waiting?: boolean;
}
/**
 * Keep the connection open. Result: `{"now"}`, the service's current time in Unix seconds.
 */
export interface Ping {
  /**
   * The name of this action.
   */
  action: "ping";
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Read a page of the stored rows of a session, or of its stream.
 *
 * Result: `{"rows", "cursor"}`. Each row is `[sort, value]`. With `lines`, the result has them in `export` instead.
 */
export interface ReadRows {
  /**
   * The name of this action.
   */
  action: "read_rows";
  /**
   * The `cursor` of the previous page. None for the first page.
   */
  after?: string | null;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The maximum number of rows on the page.
   */
  limit?: number;
  /**
   * Whether to return the rows as lines of an export, which keep each number as it is stored.
   */
  lines?: boolean;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * Whether to read the rows of the stream instead of the session's.
   */
  stream?: boolean;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Read a page of a session's stored stream. Result: `{"stream_id", "messages"}`.
 */
export interface ReadStream {
  /**
   * The name of this action.
   */
  action: "read_stream";
  /**
   * The sequence after which the page starts. 0: the beginning of the stream.
   */
  after?: number;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The maximum number of messages on the page.
   */
  limit?: number;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Give a session a title. Idempotent, and without any effect on a run. Result: `{"title"}`, as stored.
 */
export interface Rename {
  /**
   * The name of this action.
   */
  action: "rename";
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The title, of at most 120 characters on one line. Empty: the title is removed.
   */
  title: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Report the result of a call that ends elsewhere, its failure, or a heartbeat. Result: `{"expires_at"}`.
 *
 * The token is the only credential: the caller need not own the session. The same result again is acknowledged.
 */
export interface ReportCall {
  /**
   * The name of this action.
   */
  action: "report_call";
  /**
   * The result, unless `error` or `heartbeat` is given.
   */
  data?: unknown;
  /**
   * The error message of a call that failed.
   */
  error?: string | null;
  /**
   * Whether the call is still at work. It then waits on.
   */
  heartbeat?: boolean;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The token of the call (`helix.core.context.ToolContext.later`).
   */
  token: string;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Continue an interrupted or paused session, or go back to a checkpoint. Result: as for `Run`.
 */
export interface Resume {
  /**
   * The name of this action.
   */
  action: "resume";
  /**
   * The checkpoint to go back to.
   */
  checkpoint_id?: string | null;
  /**
   * The files of the message, as in `Run`.
   *
   * @maxItems 50
   */
  files?: FilePart[];
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * An idempotency key, as in `Run`.
   */
  key?: string | null;
  /**
   * The text of the next user message. None, without `files`: the session continues without one.
   */
  message?: string | null;
  /**
   * The way to continue. continue: execute pending calls, then continue. A `message` makes it `with_message`, a `checkpoint_id` makes it `from_checkpoint`. with_message: close pending calls, then take the new `message`. from_checkpoint: go back to `checkpoint_id` and continue from there.
   */
  mode?: "continue" | "with_message" | "from_checkpoint";
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * As in `Run`.
   */
  settings?: RunSettings | null;
  /**
   * Whether to send the run's messages to this connection.
   */
  subscribe?: boolean;
  /**
   * As in `Run`. Without `message`, `tools` and `settings`, the run keeps those of the run that it continues.
   *
   * @maxItems 32
   */
  tools?: FrontendTool[];
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * The settings of the model's calls for one run. They override those of the agent.
 */
export interface RunSettings {
  /**
   * As in `LLMConfig.parallel_tool_calls`. None: the agent's.
   */
  parallel_tool_calls?: boolean | null;
  /**
   * As in `LLMConfig.tool_choice`. None: the agent's.
   */
  tool_choice?: string | null;
  /**
   * As in `LLMConfig.top_p`. None: the agent's.
   */
  top_p?: number | null;
}
/**
 * A tool that the caller of a run executes itself, for this run only.
 */
export interface FrontendTool {
  /**
   * The text that tells the model what the tool does.
   */
  description?: string;
  /**
   * The name by which the model calls the tool, `[A-Za-z0-9_-]{1,64}`. The agent must not have a tool of this name.
   */
  name: string;
  /**
   * The JSON schema of the arguments, which are an object. Empty for a tool without arguments.
   */
  parameters?: {
    [k: string]: unknown;
  };
}
/**
 * Retry a failed session. Result: as for `Run`.
 */
export interface Retry {
  /**
   * The name of this action.
   */
  action: "retry";
  /**
   * The files of the message, as in `Run`.
   *
   * @maxItems 50
   */
  files?: FilePart[];
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * An idempotency key, as in `Run`.
   */
  key?: string | null;
  /**
   * The text of the next user message. None, without `files`: the session continues without one.
   */
  message?: string | null;
  /**
   * The place to restart: the last committed step, or the beginning of the failed run.
   */
  mode?: "from_checkpoint" | "from_start";
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * As in `Run`.
   */
  settings?: RunSettings | null;
  /**
   * Whether to send the run's messages to this connection.
   */
  subscribe?: boolean;
  /**
   * As in `Run`. Without `message`, `tools` and `settings`, the run keeps those of the run that it continues.
   *
   * @maxItems 32
   */
  tools?: FrontendTool[];
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Start a run in a new session, or send the next message to an existing one. Give `message` or `input`, not both.
 *
 * Result: `{"session_id", "run_id", "turn", "stream_id", "after", "replay"}`. The run's messages have sequences above
 * `after`. If `replay` is true, some of them were stored before the subscription took effect: `subscribe` with this
 * `after`. If the message waits for a run that works, the result has its `queued_id` too. `turn` is 0 if the message's
 * own run has not begun.
 */
export interface Run {
  /**
   * The name of this action.
   */
  action: "run";
  /**
   * The name of a registered agent.
   */
  agent: string;
  /**
   * Whether the message replaces the earlier message with the same `message_id`. If that is the latest message and its text is unchanged, no run starts: the result names the run that answered it.
   */
  edits?: boolean;
  /**
   * The files of the message, each with its position in the text: as `finish_upload` returned them, or at a URL.
   *
   * @maxItems 50
   */
  files?: FilePart[];
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The parameters of a function agent. A chat agent accepts `{"message": ...}` here.
   */
  input?: {
    [k: string]: unknown;
  } | null;
  /**
   * An idempotency key: repeating the request returns the run that was started with the same key. Without a key, the same applies to a repeated `id` on the same connection.
   */
  key?: string | null;
  /**
   * The user's text. It may be left out if there are `files`.
   */
  message?: string | null;
  /**
   * The front end's id of the message, stored as `metadata.id`.
   */
  message_id?: string | null;
  /**
   * The metadata of a new session. An existing session keeps its own.
   */
  metadata?: {
    [k: string]: unknown;
  };
  /**
   * The priority of the session's runs while they wait for a slot. Higher priorities go first. Clients may only set 0 or less. None: an existing session keeps its priority, and a new one gets 0.
   */
  priority?: number | null;
  /**
   * An existing session, or the id of a new one. None: the service creates a session. The id of a new session must begin with the caller's prefix (see `Authenticate`).
   */
  session_id?: string | null;
  /**
   * The run's own settings, which override those of the agent. They hold for the same runs as `tools`.
   */
  settings?: RunSettings | null;
  /**
   * An object whose fields are merged into the session's custom state.
   */
  state?: {
    [k: string]: unknown;
  } | null;
  /**
   * Whether to send the run's messages to this connection.
   */
  subscribe?: boolean;
  /**
   * The tags of a new session. An existing session keeps its own.
   *
   * @maxItems 50
   */
  tags?: string[];
  /**
   * Tools that the client executes, for this run and the runs that continue it without a message. The run pauses at a call, and `answer` has the result. The agent must accept them.
   *
   * @maxItems 32
   */
  tools?: FrontendTool[];
  /**
   * The version of the protocol.
   */
  v: 1;
  /**
   * The handling of the message if the session is running. refuse: the request is refused with `agent_already_running`. steer: the working run sees the message before its next model call. The result names the current run. queue: the message gets a run of its own when the working run has ended. interrupt: stops the working run; the message then gets a run of its own. A message that waits has no `state`. An edit of a message in history is refused while the session is running.
   */
  when_running?: "refuse" | "steer" | "queue" | "interrupt";
}
/**
 * Receive the stored messages of a stream after a sequence, and then new ones as they arrive.
 *
 * Result: `{"stream_id", "caught_up", "complete"}`. Stored messages up to `caught_up` have been sent. If `complete` is
 * false, there are more: subscribe again with `caught_up` as `after`.
 */
export interface Subscribe {
  /**
   * The name of this action.
   */
  action: "subscribe";
  /**
   * The last sequence that the client has received. 0: from the beginning of the stream.
   */
  after?: number;
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The session that the stream belongs to. Give this or `stream_id`, not both.
   */
  session_id?: string | null;
  /**
   * The stream. Give this or `session_id`, not both.
   */
  stream_id?: string | null;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Stop receiving the messages of a stream. Result: `{"stream_id"}`.
 */
export interface Unsubscribe {
  /**
   * The name of this action.
   */
  action: "unsubscribe";
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The session that the stream belongs to. Give this or `stream_id`, not both.
   */
  session_id?: string | null;
  /**
   * The stream. Give this or `session_id`, not both.
   */
  stream_id?: string | null;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Ask for the address to which the client sends the bytes of a file.
 *
 * Result: `{"stored", "upload"}`. If `stored` is true, the service already has the bytes. Otherwise the client sends them
 * to `upload`, and then requests `finish_upload`.
 */
export interface Upload {
  /**
   * The name of this action.
   */
  action: "upload";
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The type of the file, such as `text/csv`. It is used only if the bytes do not show another type.
   */
  media_type?: string | null;
  /**
   * The name of the file for people and models. None for a file without a name.
   */
  name?: string | null;
  /**
   * The session whose message will name the file: an existing one, or the id of a new one. A caller without a user must give it, because the file then belongs to the session. Otherwise it belongs to the user.
   */
  session_id?: string | null;
  /**
   * The SHA-256 of the bytes, in hexadecimal.
   */
  sha256: string;
  /**
   * The number of bytes.
   */
  size: number;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Take back a message that waits in the inbox of a session. Result: `{"withdrawn"}`.
 *
 * It is `withdrawn`, or `delivered` if the message is in history already, or `not_found` if no such message waits.
 */
export interface Withdraw {
  /**
   * The name of this action.
   */
  action: "withdraw";
  /**
   * The client's id for the request. The reply or error repeats it.
   */
  id: string;
  /**
   * The `id` of a message in `inbox`.
   */
  queued_id: string;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The version of the protocol.
   */
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
  change_tags: TagsChanged;
  clone: Copied;
  compact: Nothing;
  compare: Comparison;
  delete: Deleted;
  diff_checkpoints: CheckpointDiff;
  finish_upload: UploadFinished;
  get_budgets: BudgetList;
  get_checkpoint: CheckpointFound;
  get_context: ContextFound;
  get_cost: CostFound;
  get_executions: ExecutionsFound;
  get_file: FileAddress;
  get_fleet: FleetFound;
  get_logs: LogsFound;
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
  rename: Renamed;
  report_call: CallReported;
  resume: Started;
  retry: Started;
  run: Started;
  subscribe: Subscribed;
  unsubscribe: Unsubscribed;
  upload: UploadBegun;
  withdraw: WithdrawnReply;
}
export interface Nothing {}
/**
 * The result of `answer`. `run_id` is the session's current run.
 */
export interface Answered {
  /**
   * The sequence after which the run's messages begin.
   */
  after: number;
  /**
   * The id under which the message waits in the session's `inbox`. None if it started its run at once.
   */
  queued_id?: string | null;
  /**
   * Whether messages of the run were stored before the subscription. If so, `subscribe` with this `after`.
   */
  replay: boolean;
  /**
   * Whether the response started a run.
   */
  resumed: boolean;
  /**
   * The run that was started. A repeated request gets the run that the first one started.
   */
  run_id: string;
  /**
   * The session of the run. For `run` without a session id, the new session.
   */
  session_id: string;
  /**
   * The stream with the run's messages.
   */
  stream_id: string;
  /**
   * The number of the run in its session, starting at 1.
   */
  turn: number;
}
/**
 * The result of `authenticate`: the identity of the connection's caller.
 */
export interface Authenticated {
  /**
   * The time when the caller's credentials expire, in Unix seconds. After that, only `authenticate` is accepted.
   */
  expires_at: number;
  /**
   * Whether the caller may read the fleet and change budgets.
   */
  operator: boolean;
  /**
   * The required prefix of session ids that the caller chooses. Empty without authentication, when any id is allowed.
   */
  prefix: string;
  /**
   * The user, as `user` or `tenant/user`. None for an anonymous caller and for an operator that IAM authorized.
   */
  principal: string | null;
}
/**
 * The result of `branch` and `clone`.
 */
export interface Copied {
  /**
   * The new session.
   */
  session_id: string;
}
/**
 * The result of `change_budget`.
 */
export interface BudgetChanged {
  /**
   * The name of the budget.
   */
  budget: string;
  /**
   * The new limit.
   */
  limit: number;
  /**
   * The unit of `limit`: US dollars or tokens.
   */
  unit: "usd" | "tokens";
}
/**
 * The result of `change_tags`.
 */
export interface TagsChanged {
  /**
   * The session's tags as stored.
   */
  tags: string[];
}
/**
 * The result of `compare`.
 */
export interface Comparison {
  /**
   * The last answer of both sides, word by word: the text, or the output as JSON. Long answers are cut.
   */
  answer: TextPiece[];
  /**
   * The index in `steps` of the first pair whose steps are not the same. None if all are the same.
   */
  first_difference: number | null;
  /**
   * The first message of both sides, word by word. Long messages are cut.
   */
  input: TextPiece[];
  left: ComparedSide;
  /**
   * Whether there are more differences than `state` has.
   */
  more_state: boolean;
  right: ComparedSide;
  /**
   * The differences between the custom states at the ends of both sides.
   */
  state: StateDifference[];
  /**
   * The steps of both sides in order.
   */
  steps: StepPair[];
}
/**
 * A piece of a text that is compared with another one.
 */
export interface TextPiece {
  /**
   * `same`: both texts have the piece. `removed`: only the first. `added`: only the second.
   */
  kind: "same" | "removed" | "added";
  /**
   * The text of the piece.
   */
  text: string;
}
/**
 * The facts of one side.
 */
export interface ComparedSide {
  /**
   * The name of the session's agent.
   */
  agent: string;
  /**
   * The models that answered, in the order of their first answers.
   */
  models: string[];
  /**
   * The run. None: the whole session.
   */
  run_id: string | null;
  /**
   * The sum of the steps' times, without the time between an answer and the next message.
   */
  seconds: number;
  /**
   * The session.
   */
  session_id: string;
  /**
   * The status of the run or session.
   */
  status: string;
  /**
   * The number of steps.
   */
  steps: number;
  usage: Usage;
}
/**
 * A place where the two custom states differ.
 */
export interface StateDifference {
  /**
   * The value of the left side. None also if it has none. A value with more than 2,000 characters of JSON is the beginning of that text.
   */
  left: unknown;
  /**
   * The side that has the value, if only one has it.
   */
  only: ("left" | "right") | null;
  /**
   * The keys and indexes that lead to the value. Empty for the whole state.
   */
  path: string[];
  /**
   * The value of the right side, like that of the left one.
   */
  right: unknown;
}
/**
 * Two steps that correspond to each other, or one that only one side has.
 */
export interface StepPair {
  /**
   * What differs between the two steps. Empty if they are the same, or if only one side has the step.
   */
  differs: ("message" | "text" | "calls" | "results" | "model")[];
  /**
   * The step of the left side. None if only the right side has the step.
   */
  left: ComparedStep | null;
  /**
   * The step of the right side. None if only the left side has the step.
   */
  right: ComparedStep | null;
}
/**
 * A step: an answer of the model with its calls. Long texts are cut.
 */
export interface ComparedStep {
  /**
   * The calls of the answer, in the model's order.
   */
  calls: ComparedCall[];
  /**
   * The user's messages before the answer, after the previous one.
   */
  messages: string[];
  /**
   * The model that answered. None if it is not known.
   */
  model: string | null;
  /**
   * The time from the end of the previous step, or from the message, to the last result. It includes waits for people.
   */
  seconds: number;
  /**
   * The number of the step in its session.
   */
  step: number;
  /**
   * The text of the answer.
   */
  text: string;
  usage: Usage;
}
/**
 * A call of a tool or a sub-agent. Long texts are cut.
 */
export interface ComparedCall {
  /**
   * The arguments of the execution, as JSON text.
   */
  arguments: string;
  /**
   * The id of the call in its session.
   */
  call_id: string;
  /**
   * Whether a person or a guard changed the model's arguments.
   */
  edited: boolean;
  /**
   * The name of the tool.
   */
  name: string;
  /**
   * The text of the result. Empty without one.
   */
  result: string;
  /**
   * Whether the call succeeded. None without a result.
   */
  success: boolean | null;
}
/**
 * The result of `delete`.
 */
export interface Deleted {
  /**
   * Always true: a session that does not exist is an error.
   */
  deleted: true;
}
/**
 * The result of `diff_checkpoints`: the changes from the checkpoint `before` to the checkpoint `after`.
 */
export interface CheckpointDiff {
  /**
   * The number of messages that only `after` has.
   */
  added: number;
  /**
   * The id of the second checkpoint.
   */
  after: string;
  /**
   * The id of the first checkpoint.
   */
  before: string;
  /**
   * A page of the messages that only `after` has.
   */
  messages: (SystemMessage | UserMessage | AssistantMessage | ToolResultMessage)[];
  /**
   * The index among the added messages of the first message in `messages`.
   */
  offset: number;
  /**
   * The RFC 6902 patches that turn the state of `before` into the state of `after`.
   */
  patches: Patch[];
  /**
   * The number of messages that only `before` has, because the session was rewound.
   */
  removed: number;
}
/**
 * The system prompt as it is sent. It is never stored.
 */
export interface SystemMessage {
  /**
   * The system prompt, evaluated for this call.
   */
  content: string;
  /**
   * The role of the author, which distinguishes the message types.
   */
  role: "system";
}
/**
 * A user message.
 */
export interface UserMessage {
  /**
   * The text as the user sent it.
   */
  content: string;
  /**
   * The time at which the message was stored. None for a message that is not from history.
   */
  created_at: number | null;
  /**
   * The files of the message, by their place in the text.
   */
  files: FilePart[];
  /**
   * The message's position in history, `msg_<lineage>_<index>`. Empty for a message that is not from history.
   */
  id: string;
  /**
   * Additional data: the sender's metadata on a user message, the model and stop reason on an answer, and the edit of the call on a result.
   */
  metadata: {
    [k: string]: unknown;
  };
  /**
   * The id under which the message waited for a run (`core.inbox`). Empty if it did not wait.
   */
  queued_id: string;
  /**
   * The role of the author, which distinguishes the message types.
   */
  role: "user";
  /**
   * The run that added the message.
   */
  run_id: string | null;
  /**
   * The step of an answer, or of the call that a result belongs to. None for a user's message.
   */
  step: number | null;
}
/**
 * An answer of the model.
 */
export interface AssistantMessage {
  /**
   * The sources of the answer's text, by their place in it.
   */
  citations: Citation[];
  /**
   * The text of the answer. None if the answer only has tool calls.
   */
  content: string | null;
  /**
   * The time at which the message was stored. None for a message that is not from history.
   */
  created_at: number | null;
  /**
   * The message's position in history, `msg_<lineage>_<index>`. Empty for a message that is not from history.
   */
  id: string;
  /**
   * Additional data: the sender's metadata on a user message, the model and stop reason on an answer, and the edit of the call on a result.
   */
  metadata: {
    [k: string]: unknown;
  };
  /**
   * The role of the author, which distinguishes the message types.
   */
  role: "assistant";
  /**
   * The run that added the message.
   */
  run_id: string | null;
  /**
   * The items of the provider's own tools in the answer, in order. They are sent back only to the same model.
   */
  server_blocks: ServerBlock[];
  /**
   * The step of an answer, or of the call that a result belongs to. None for a user's message.
   */
  step: number | null;
  /**
   * The blocks of reasoning in the answer. They are sent back only to the same model.
   */
  thinking: ThinkingContent[];
  /**
   * The tool calls in the answer, in the model's order, including calls of sub-agents and of `__finish__`.
   */
  tool_calls: ToolCallRequest[];
}
/**
 * A source of a part of an answer's text.
 */
export interface Citation {
  /**
   * The index after the last character of the part.
   */
  end: number;
  /**
   * The cited text of the source. None if the provider does not give it.
   */
  quote: string | null;
  /**
   * The citation as the provider sent it, if its model expects it back. Empty otherwise.
   */
  raw: {
    [k: string]: unknown;
  };
  /**
   * The index of the first character of the part in the answer's text.
   */
  start: number;
  /**
   * The title of the source, or the name of the file.
   */
  title: string | null;
  /**
   * The address of the source. None for a file or a document.
   */
  url: string | null;
}
/**
 * An item of an answer that a tool of the provider produced (`core.server_tools`): a call, its result, or a list of
 * tools. It is stored without loss because its model expects it back.
 */
export interface ServerBlock {
  /**
   * The number of tool calls of the answer before the item.
   */
  after_calls: number;
  /**
   * The number of characters of the answer's text before the item.
   */
  after_text: number;
  /**
   * The number of blocks of reasoning before the item.
   */
  after_thinking: number;
  /**
   * The call that the item begins or ends. None for another item.
   */
  call: ServerCall | null;
  /**
   * The item as the provider sent it.
   */
  raw: {
    [k: string]: unknown;
  };
}
/**
 * A call that the provider executed with its own tool (`core.server_tools`), as readers see it.
 */
export interface ServerCall {
  /**
   * The arguments of the call.
   */
  arguments: {
    [k: string]: unknown;
  };
  /**
   * Whether the call has its result.
   */
  done: boolean;
  /**
   * The error of a call that failed. None otherwise.
   */
  error: string | null;
  /**
   * The provider's id of the call, unique in its answer.
   */
  id: string;
  /**
   * The tool: `web_search`, `code_execution`, `file_search`, or `<server>.<tool>` of an MCP server.
   */
  name: string;
  /**
   * The result without the provider's encrypted parts. None if it has none yet, or if the provider does not show it.
   */
  result: unknown;
}
/**
 * One block of reasoning, stored without loss because its model expects it back together with the tool results.
 */
export interface ThinkingContent {
  /**
   * The number of tool calls of the answer before the block.
   */
  after_calls: number;
  /**
   * The number of characters of the answer's text before the block.
   */
  after_text: number;
  /**
   * The provider's id of the block, if any.
   */
  id: string | null;
  /**
   * The encrypted data of a redacted block, in place of `text`. Only the provider can read it.
   */
  redacted: string | null;
  /**
   * The token by which the provider verifies or decrypts the block. For OpenAI models it is the encrypted reasoning. None if the provider sends no token.
   */
  signature: string | null;
  /**
   * The text to display. OpenAI models provide a summary.
   */
  text: string;
}
/**
 * A tool call that the model requested.
 */
export interface ToolCallRequest {
  /**
   * The parsed JSON object. Empty if `malformed` is set.
   */
  arguments: {
    [k: string]: unknown;
  };
  /**
   * The id of the call, unique in its session.
   */
  id: string;
  /**
   * The raw text of arguments that are not a JSON object, or the reason why they cannot be stored. Such a call is never executed and gets a failed result. None for a well-formed call.
   */
  malformed: string | null;
  /**
   * The tool that the model called.
   */
  name: string;
}
/**
 * The result of a tool call. `metadata` has what people did: `edited` (`EditedArguments`) if the call's arguments were
 * changed, `questions` (a list of `AskedQuestion`), `responses` (a list of `CallResponse`) and `reminded` (the number of
 * reminders).
 */
export interface ToolResultMessage {
  /**
   * The result: a string verbatim, or any other value as JSON. A failure is `{"error": message}`.
   */
  content: string;
  /**
   * The time at which the message was stored. None for a message that is not from history.
   */
  created_at: number | null;
  /**
   * The files that the tool returned, by their place in the text.
   */
  files: FilePart[];
  /**
   * The message's position in history, `msg_<lineage>_<index>`. Empty for a message that is not from history.
   */
  id: string;
  /**
   * Additional data: the sender's metadata on a user message, the model and stop reason on an answer, and the edit of the call on a result.
   */
  metadata: {
    [k: string]: unknown;
  };
  /**
   * The role of the author, which distinguishes the message types.
   */
  role: "tool";
  /**
   * The run that added the message.
   */
  run_id: string | null;
  /**
   * The step of an answer, or of the call that a result belongs to. None for a user's message.
   */
  step: number | null;
  /**
   * Whether the call succeeded.
   */
  success: boolean;
  /**
   * The call that the result belongs to.
   */
  tool_call_id: string;
  /**
   * The tool that was called.
   */
  tool_name: string;
}
/**
 * The result of `finish_upload`.
 */
export interface UploadFinished {
  file: FilePart;
}
/**
 * The result of `get_budgets`.
 */
export interface BudgetList {
  /**
   * All budgets that apply to the session.
   */
  budgets: BudgetFound[];
  /**
   * The requested session.
   */
  session_id: string;
}
/**
 * A budget that applies to a session, in its current window. All amounts are in `unit`.
 */
export interface BudgetFound {
  /**
   * The name of the budget: `<scope>/<period>/<unit>`, where `micros` is the unit of money.
   */
  budget: string;
  /**
   * Whether nothing remains in this window.
   */
  exhausted: boolean;
  /**
   * The limit of the window. None if others share the budget and the caller is not an operator.
   */
  limit: number | null;
  /**
   * Whether a run fails or pauses when the budget has no room. None: the agent's `on_budget` decides.
   */
  on_exceeded: ("fail" | "pause") | null;
  /**
   * The length of a window: `hour`, `day`, `week`, `month` or `total`.
   */
  period: string;
  /**
   * The time when the window ends, in Unix seconds. None for `total`, which never ends.
   */
  resets_at: number | null;
  run: RunMoney;
  /**
   * The scope: `global`, `agent:<root agent>`, `tenant:<user id>` or `session:<root session id>`.
   */
  scope: string;
  /**
   * The unit of the amounts here: US dollars or tokens.
   */
  unit: "usd" | "tokens";
  /**
   * The amount that all runs have spent or reserved in this window. None if `limit` is hidden.
   */
  used: number | null;
  /**
   * The key of the current window, in UTC: `2026-11-21` for a day, `2026-W47` for a week, `total` for a total.
   */
  window: string;
}
/**
 * One run's use of a budget, in the budget's unit.
 */
export interface RunMoney {
  /**
   * The amount that the run has drawn from the budget but not spent. 0 after the run has ended.
   */
  reserved: number;
  /**
   * The amount that the run has spent. A call whose usage is not known counts with its reservation.
   */
  spent: number;
}
/**
 * The result of `get_checkpoint`.
 */
export interface CheckpointFound {
  checkpoint: CheckpointState;
}
/**
 * A checkpoint with its custom state.
 */
export interface CheckpointState {
  /**
   * The agent that makes the next step. Empty before the first handoff: the session's own agent.
   */
  active_agent: string;
  /**
   * The number of messages at the checkpoint.
   */
  count: number;
  /**
   * The time when the checkpoint was written, in Unix seconds.
   */
  created_at: number;
  /**
   * The custom state at the checkpoint.
   */
  custom_state: {
    [k: string]: unknown;
  };
  /**
   * The id of the checkpoint, for use as `checkpoint_id` in other requests.
   */
  id: string;
  /**
   * The lineage of history that the checkpoint belongs to. A rewind starts a new lineage.
   */
  lineage: number;
  /**
   * The name that a caller gave the checkpoint, or None. Retention keeps named checkpoints.
   */
  name: string | null;
  /**
   * The pending calls at the checkpoint.
   */
  pending: Pending[];
  /**
   * The run that wrote the checkpoint. Empty for the first checkpoint of a copy.
   */
  run_id: string;
  /**
   * The id of the checkpoint that stores the custom state. It is this one if the state changed here.
   */
  state_at: string;
  /**
   * The status of the session at the checkpoint.
   */
  status: "running" | "completed" | "failed" | "interrupted" | "paused" | "deleting";
  /**
   * The number of the last committed step at the checkpoint.
   */
  step: number;
  /**
   * The number of that run in its session. 0 for the first checkpoint of a copy.
   */
  turn: number;
  /**
   * The usage of the session so far: the values of `Usage` in the order of its fields, without zeros at the end.
   */
  usage: (number | boolean)[];
  /**
   * The session version in the key of the view that the model was shown. 0: it was shown the whole history.
   */
  view: number;
  /**
   * The conflicts between changes that parallel tools made to the custom state.
   */
  warnings: string[];
}
/**
 * A call that a session waits for.
 */
export interface Pending {
  /**
   * The arguments of the call. They are stored here only if `edited` is set. Otherwise reads take them from the answer's row.
   */
  arguments: {
    [k: string]: unknown;
  };
  /**
   * The id of the call, unique in its session.
   */
  call_id: string;
  /**
   * For `child`, the sub-agent's session. None for other kinds.
   */
  child_session_id: string | null;
  /**
   * The edit of the arguments in an earlier approval. The outcome of that execution is unknown. None if the arguments are the model's.
   */
  edited: Edit | null;
  /**
   * The time (Unix seconds) when the wait ends without a response. None: never.
   */
  expires_at: number | null;
  /**
   * The kind of response that the call waits for. `approval`: a person's approval. `client`: the result of a tool that the client executes. `unknown`: a decision about the outcome of a call whose worker died. `question`: the answers to the tool's `questions`. `elsewhere`: the result of another system, which has a token. `child`: the call's sub-agent is paused or interrupted.
   */
  kind: "approval" | "client" | "unknown" | "question" | "elsewhere" | "child";
  /**
   * The JSON schema of the arguments. It is never stored: reads fill it in if they know the agent. Otherwise it is empty.
   */
  parameters: {
    [k: string]: unknown;
  };
  /**
   * For `question`, the open questions. They are never stored here: reads take them from the call's row.
   */
  questions: AskedQuestion[];
  /**
   * Why the tool's rule requires approval. None if the rule gives no reason.
   */
  reason: string | null;
  /**
   * The time (Unix seconds) of the next reminder. None: there is none.
   */
  remind_at: number | null;
  /**
   * The number of reminders so far.
   */
  reminded: number;
  /**
   * For `question`, a number that grows with each round of questions of the call. A response may name it, so that a repeated response never answers a later question. 0 for other kinds.
   */
  round: number;
  /**
   * The tool that the model called.
   */
  tool_name: string;
}
/**
 * The result of `get_context`: what the model was shown at a step.
 */
export interface ContextFound {
  /**
   * The indexes in the history of the tool results that a note replaces.
   */
  cleared: number[];
  /**
   * The number of messages in the history before the step.
   */
  count: number;
  /**
   * The id of the recorded request head of the step: of its answer, or else of its last attempt. None for a step that has not been attempted, and for steps of earlier versions.
   */
  head: string | null;
  /**
   * The number of messages at the beginning of the history that are not shown.
   */
  hidden: number;
  /**
   * The messages as they were shown, oldest first. If earlier ones are hidden, the first message replaces them.
   */
  messages: (SystemMessage | UserMessage | AssistantMessage | ToolResultMessage)[];
  /**
   * The model that answered, or the model of the last attempt at a step without an answer. None if it is not known.
   */
  model: string | null;
  /**
   * The maximum number of tokens in the answer, if budgets set it. None: `request.settings` has the agent's limit, if any.
   */
  output_limit: number | null;
  /**
   * The recorded request head: the system prompt, the tools and the settings as they were sent. None without `head`, or if the head is missing from the store.
   */
  request: RequestHead | null;
  /**
   * The run that bought the step. None for the next step, which is not bought yet.
   */
  run_id: string | null;
  /**
   * The requested session.
   */
  session_id: string;
  /**
   * The number of the step.
   */
  step: number;
  /**
   * The summary of the hidden messages. Empty without a summary.
   */
  summary: string;
  /**
   * The system prompt that was sent. Without a recorded head it is the agent's present prompt, or None if that depends on the custom state, or if the agent is not known here.
   */
  system_prompt: string | null;
  /**
   * The view. None: the whole history is shown.
   */
  view: ViewFound | null;
}
/**
 * The part of a request that is not conversation.
 */
export interface RequestHead {
  /**
   * The JSON schema of the agent's output. None if its output is text, and for the request of a summary.
   */
  output_schema: {
    [k: string]: unknown;
  } | null;
  /**
   * The texts of the messages at the end of the request that are not part of the history, in their order: the agent's reminders, and the request to finish.
   */
  reminders: string[];
  /**
   * The settings that differ from the defaults of `LLMConfig`, without the model, retries and timeouts. `cache` is missing if it was False. Provider options that may be secrets have the value `(not stored)`.
   */
  settings: {
    [k: string]: unknown;
  };
  /**
   * The system prompt. Empty if none was sent.
   */
  system_prompt: string;
  /**
   * The tool choice that was sent: `auto`, `required`, `none` or a tool's name.
   */
  tool_choice: string;
  /**
   * The tools in the order in which they were sent.
   */
  tools: HeadTool[];
}
/**
 * A tool as the model was told about it.
 */
export interface HeadTool {
  /**
   * The text that tells the model what the tool does.
   */
  description: string;
  /**
   * The name by which the model calls the tool.
   */
  name: string;
  /**
   * The JSON schema of the arguments.
   */
  parameters: {
    [k: string]: unknown;
  };
  /**
   * Whether the provider should constrain the arguments, as in `Tool.strict`. None: if the schema and the model allow it.
   */
  strict: boolean | null;
}
/**
 * The view of a history that a model was shown, and its cost.
 */
export interface ViewFound {
  /**
   * Why the view was made: by the agent's policy, because the provider refused the prompt as too long, or because a person asked for a summary.
   */
  cause: "policy" | "overflow" | "request";
  /**
   * The time when the view was made, in Unix seconds.
   */
  created_at: number;
  /**
   * The model that wrote the summary. None if no model was called, or if the session is a copy and its original paid for the call.
   */
  model: string | null;
  /**
   * The run that made the view.
   */
  run_id: string;
  /**
   * The step for which the view was made.
   */
  step: number;
  /**
   * The estimated length of the prompt before the change, in tokens.
   */
  tokens: number;
  usage: Usage;
}
/**
 * The result of `get_cost`: the cost of a session and of its sub-agents' sessions.
 */
export interface CostFound {
  /**
   * Whether the model lines add up to the amounts in the run rows.
   */
  agrees: boolean;
  /**
   * Descriptions of the costs that no line covers.
   */
  left_out: string[];
  /**
   * The lines for models and tools, then those for AWS if the session ran there.
   */
  lines: CostLine[];
  /**
   * The region and date of the price list behind the AWS lines.
   */
  prices: string;
  /**
   * The sum of the lines of each service, in US dollars.
   */
  services: {
    [k: string]: number;
  };
  /**
   * The requested session.
   */
  session_id: string;
  /**
   * The sum of all lines, in US dollars.
   */
  usd: number;
}
/**
 * A line of a session's cost. Empty fields are left out.
 */
export interface CostLine {
  /**
   * The attempt at `step` that caused the cost. None if it is not about one attempt.
   */
  attempt?: number | null;
  /**
   * The source of `quantity`. `measured`: a provider or a tool reported it. `counted`: the stored rows were counted. `estimated`: `how` explains the estimate.
   */
  basis: "measured" | "counted" | "estimated";
  /**
   * The derivation of the numbers. Empty if it is obvious.
   */
  how?: string;
  /**
   * The billed quantity, in `unit`.
   */
  quantity: number;
  /**
   * The run that caused the cost. None for the whole session.
   */
  run_id?: string | null;
  /**
   * The service that charges: `Model`, `Tool`, or an AWS service. `Books` is a difference from the run rows.
   */
  service: string;
  /**
   * The session that the line belongs to: the requested session, or a sub-agent's.
   */
  session_id: string;
  /**
   * The step that caused the cost. None for more than one step.
   */
  step?: number | null;
  /**
   * The unit of `quantity`: `tokens`, `requests`, `GB-seconds` and others.
   */
  unit?: string;
  /**
   * The cost of this line, in US dollars.
   */
  usd: number;
  /**
   * The billed item: a model's name and the outcome, a tool's name, or an AWS function or kind of request.
   */
  what: string;
}
/**
 * The result of `get_executions`. AWS deletes an execution 90 days after its end, and the addresses stay.
 */
export interface ExecutionsFound {
  /**
   * The executions, oldest first. Only the last one if the run changed to another agent's functions. Empty without a stage.
   */
  executions: Execution[];
  /**
   * The beginning of the names of the stage's log groups. None without a stage.
   */
  log_groups: string | null;
  /**
   * The address of these log groups in the AWS console. None without a stage or a known console.
   */
  logs_url: string | null;
  /**
   * The run that the executions carry out.
   */
  run_id: string;
  /**
   * The requested session.
   */
  session_id: string;
  /**
   * The name of the stage, for `helix logs --stage`. None on a developer's machine.
   */
  stage: string | null;
}
/**
 * An execution in Step Functions. A long run is carried out by several, one after the other.
 */
export interface Execution {
  /**
   * The ARN of the execution.
   */
  arn: string;
  /**
   * The number of the execution within its run, starting at 1.
   */
  part: number;
  /**
   * The address in the AWS console. None in a partition without a known console.
   */
  url: string | null;
}
/**
 * The result of `get_file`.
 */
export interface FileAddress {
  /**
   * The time until which the address works, in Unix seconds.
   */
  expires_at: number;
  /**
   * The address of the bytes. A browser saves them rather than displaying them.
   */
  url: string;
}
/**
 * The result of `get_fleet`. Times are in Unix seconds.
 */
export interface FleetFound {
  /**
   * A page of agents, sorted by name.
   */
  agents: FleetAgent[];
  /**
   * The value of `after` for the next page. None on the last page.
   */
  cursor: string | null;
  /**
   * The maximum number of concurrent runs of all agents together. None: no limit.
   */
  limit: number | null;
  /**
   * The service's current time.
   */
  now: number;
  /**
   * The number of runs of all agents that wait for a slot.
   */
  queued: number;
  /**
   * Whether the service accepts work. False if an operator closed it.
   */
  ready: boolean;
  /**
   * The operator's reason for `ready`. Empty if no operator has set it.
   */
  reason: string;
  /**
   * The number of active runs of all agents. None without a `limit`.
   */
  running: number | null;
  /**
   * The time of the last sweep. None before the first.
   */
  swept_at: number | null;
}
/**
 * An agent in the fleet: its limit, its runs and processes, its health, and its newest scaling decisions.
 */
export interface FleetAgent {
  /**
   * The name of the agent.
   */
  agent: string;
  /**
   * The latest result of each health check.
   */
  checks: FleetCheck[];
  /**
   * The latest scaling decisions, newest first, at most as many as the request asked for.
   */
  decisions: FleetDecision[];
  /**
   * The maximum number of concurrent runs. None: no limit.
   */
  limit: number | null;
  /**
   * The upper bound of `wanted`. None if the agent does not set one.
   */
  max_instances: number | null;
  /**
   * The lower bound of `wanted`. None if the agent does not set one.
   */
  min_instances: number | null;
  /**
   * The worker processes of the agent, oldest first.
   */
  processes: FleetProcess[];
  /**
   * The number of runs that wait for a slot.
   */
  queued: number;
  /**
   * The number of active runs. None without a `limit`, because such runs are not counted.
   */
  running: number | null;
  /**
   * `stopped`: an operator or a budget has stopped the agent, and no new runs start.
   */
  status: "running" | "stopped";
  /**
   * The budget that stopped the agent, such as `budget agent:poet/day/micros`. None if no budget did.
   */
  stopped_by: string | null;
  /**
   * The first runs in the queue, at most as many as the request asked for.
   */
  waiting: WaitingRun[];
  /**
   * The number of instances that an operator or the registration requested. None if the fleet does not manage the agent.
   */
  wanted: number | null;
}
/**
 * The latest result of a health check. The check `llm` evaluates the agent's model calls.
 */
export interface FleetCheck {
  /**
   * The name of the check.
   */
  check: string;
  /**
   * `readiness` (no new work while it fails), `liveness` (restart on failure) or `custom`.
   */
  check_type: string;
  /**
   * The time of the result in Unix seconds. None before the first check.
   */
  checked_at: number | null;
  /**
   * The message that the check returned. It may be empty.
   */
  message: string;
  /**
   * `healthy`, `degraded`, `unhealthy` or `unknown`.
   */
  status: string;
}
/**
 * A scaling decision: a change of an agent's limit, or a change that a rule asked for but that was blocked.
 */
export interface FleetDecision {
  /**
   * The direction from `before` to `after`. `hold`: both are equal.
   */
  action: "up" | "down" | "hold";
  /**
   * The number of instances that the decision sets.
   */
  after: number;
  /**
   * Whether the decision took effect.
   */
  applied: boolean;
  /**
   * The time of the decision, in Unix seconds.
   */
  at: number;
  /**
   * The number of instances before the decision.
   */
  before: number;
  /**
   * The reason why `wanted` was not applied, as in `helix.core.scaling`. None if it was.
   */
  blocked_by: string | null;
  /**
   * The metrics that the decision was based on.
   */
  metrics: {
    [k: string]: number;
  };
  /**
   * A human-readable explanation.
   */
  reason: string;
  /**
   * The rule that decided, as in `helix.core.scaling`. `operator` means a person.
   */
  rule: string;
  /**
   * The event that triggered `govern`: an alarm's name, `schedule` or `monitor`. Empty if `govern` did not decide.
   */
  trigger: string;
  /**
   * The number of instances that the rules asked for, if `blocked_by` prevented it.
   */
  wanted: number | null;
}
/**
 * A worker process, as in `helix.fleet.ProcessInfo`. There are none if functions execute the runs.
 */
export interface FleetProcess {
  /**
   * The CPU usage in percent of one core: 200 means two cores.
   */
  cpu_percent: number;
  /**
   * The reason for the last crash. None if the process never crashed, or was started manually since.
   */
  last_error: string | null;
  /**
   * The memory of the process and its children in MiB.
   */
  memory_mb: number;
  /**
   * The operating system's process id. None while no process runs.
   */
  pid: number | null;
  /**
   * The id of the process. It stays the same across restarts.
   */
  process_id: string;
  /**
   * The number of restarts.
   */
  restart_count: number;
  /**
   * The time of the last start, in Unix seconds. None if the process was never started.
   */
  started_at: number | null;
  /**
   * `starting`, `running`, `stopping`, `stopped`, `failed` (given up) or `crashed` (about to be restarted).
   */
  status: string;
}
/**
 * A run that waits for a slot. Times are in Unix seconds.
 */
export interface WaitingRun {
  /**
   * The time when the wait times out and the run is ended.
   */
  expires_at: number;
  /**
   * The priority of the run, from -999 to 999. The highest priority gets the next free slot.
   */
  priority: number;
  /**
   * The run that waits.
   */
  run_id: string;
  /**
   * The session of the run.
   */
  session_id: string;
  /**
   * The time when the run was claimed. Among runs of the same priority, the oldest goes first.
   */
  since: number;
}
/**
 * The result of `get_logs`.
 */
export interface LogsFound {
  /**
   * The value of `after` for the next page. None on the last page.
   */
  cursor: string | null;
  /**
   * A page of lines, sorted by time. Lines of later pages may be earlier, because each function has its own log.
   */
  lines: LogLine[];
  /**
   * The run that the lines name.
   */
  run_id: string;
  /**
   * The requested session.
   */
  session_id: string;
}
/**
 * A line of a function's log.
 */
export interface LogLine {
  /**
   * The time of the line, in Unix seconds.
   */
  at: number;
  /**
   * The function that wrote the line, without the prefix of its stage, such as `call_model`.
   */
  function: string;
  /**
   * The level of the line: `DEBUG`, `INFO`, `WARNING`, `ERROR` or `CRITICAL`. `INFO` if the line does not have one.
   */
  level: string;
  /**
   * The message with its fields, or the metrics, on one line. After 2,500 bytes it is cut, and ends with `…`.
   */
  text: string;
}
/**
 * The result of `get_session`. Fields from `run` on are present only if the request asked for them.
 */
export interface SessionFound {
  can_resume: CanResumeResult;
  /**
   * A page of the conversation, oldest message first.
   */
  messages?: (SystemMessage | UserMessage | AssistantMessage | ToolResultMessage)[];
  /**
   * Whether the session has older runs than `runs`.
   */
  more_runs?: boolean;
  /**
   * The index in the conversation of the first message in `messages`.
   */
  offset?: number;
  /**
   * The run's place in the queue. Left out if the run does not wait for a slot.
   */
  queued?: Queued | null;
  /**
   * The run that the request named with `run_id`.
   */
  run?: RunFound | null;
  /**
   * The newest runs, newest first.
   */
  runs?: RunRow[];
  session: SessionState;
  /**
   * The conversation, and the stream sequence from which to continue.
   */
  snapshot?: SessionSnapshot | null;
  /**
   * The sub-agents' sessions, in the order of their calls.
   */
  sub_sessions?: SubSessionRef[];
}
/**
 * The answer to whether `resume` would continue a session.
 */
export interface CanResumeResult {
  /**
   * True if `resume` would continue the session. With the reason `pending_confirmation`, it needs a response to a call.
   */
  can_resume: boolean;
  /**
   * Why the session cannot be resumed, or what resuming it requires. None if it can be resumed as it is. pending_confirmation: the session can be resumed with a response to a pending call. failed_use_retry: the session failed. `retry` continues it.
   */
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
 * The queue position of a run that waits for a slot.
 */
export interface Queued {
  /**
   * The time when the wait times out and the run is ended, in Unix seconds.
   */
  expires_at: number;
  /**
   * The position in the agent's queue. Position 1 gets the next free slot.
   */
  place: number;
  /**
   * Why a budget has stopped the agent, so that none of its runs start. None if the agent merely has no free slot.
   */
  reason: string | null;
}
/**
 * The result of a run, as in `helix.AgentResult`. While it is `running`, fields from `output` on are left out.
 */
export interface RunFound {
  /**
   * The name of the agent that ended the run. The output is of its schema.
   */
  agent?: string;
  /**
   * The reason why the run ended, such as `text`, `output` or `pending`. None for most failures: see `error_code`.
   */
  completion_reason?: string | null;
  /**
   * The message of the error that a failed run ended with.
   */
  error?: string | null;
  /**
   * The code of that error, stable and meant for programs.
   */
  error_code?: string | null;
  /**
   * The output of a completed run: JSON according to the agent's schema. Without a schema, the last text or a tool's result.
   */
  output?: unknown;
  /**
   * The calls that a paused or interrupted run waits for.
   */
  pending?: Pending[];
  /**
   * Whether `retry` may succeed after a failure.
   */
  recoverable?: boolean;
  /**
   * The run that the request named.
   */
  run_id: string;
  /**
   * The session of the run.
   */
  session_id: string;
  /**
   * The sequence after which the run's messages begin on the stream.
   */
  start_sequence: number;
  /**
   * The status of the run. `running` also means that it waits for a slot, or its message for another run.
   */
  status: "running" | ("completed" | "failed" | "interrupted" | "paused");
  /**
   * The number of steps that the run took.
   */
  steps?: number;
  /**
   * The text of a completed run's last answer. None if that answer had no text.
   */
  text?: string | null;
  /**
   * The number of the run in its session, starting at 1. 0 if its message still waits in `inbox`.
   */
  turn: number;
  usage?: Usage;
}
/**
 * A run: one execute, resume or retry of a session. The claim creates the row, and the end of the run completes
 * it.
 */
export interface RunRow {
  /**
   * The active agent when the run ended, which made the output. Empty before the first handoff: the session's own agent.
   */
  active_agent: string;
  /**
   * The name of the session's agent.
   */
  agent_type: string;
  /**
   * The number of messages that were left in the inbox while the run worked, and 1 if older ones waited at its beginning. If it is not 0, the run's effects start what waits.
   */
  arrived: number;
  /**
   * The amounts that the run drew from budgets, copied from the session when the run ends. The run's effects return the unused rest.
   */
  blocks: Block[];
  /**
   * The id of the session's last checkpoint when the run ended. None while the run is active.
   */
  checkpoint: string | null;
  /**
   * The step claim that was open when the run ended. The run's effects count its reservation as spent. None if no call was open.
   */
  claim: StepClaim | null;
  /**
   * Why the run completed: `text`, `output`, `finish_with`, `stop_when` or `max_steps`. For a pause, its `reason`. None for other ends.
   */
  completion_reason: string | null;
  /**
   * The time when the parent's tool call stops waiting for this sub-agent (Unix seconds). None for root runs, and in process, where the parent's worker enforces the timeout.
   */
  deadline: number | null;
  /**
   * The (step, fingerprint) pairs of later steps where a delivery found that the agent had changed.
   */
  editions: [unknown, unknown][];
  /**
   * `open` until all effects of the run's end are done, then `done` (docs/protocol.md#ends).
   */
  effects: "open" | "done";
  /**
   * The time of the end (Unix seconds). None while the run is active.
   */
  ended_at: number | null;
  /**
   * The reason why the run failed. None if it did not.
   */
  error: ErrorInfo | null;
  /**
   * A digest of the agent's prompt, model, tools and output schema at the time of the claim.
   */
  fingerprint: string;
  /**
   * The number of the first step that the run may buy.
   */
  first_step: number;
  /**
   * The id of the request head of that call. Empty if no call was open.
   */
  head: string;
  /**
   * The input `message`, `state` and `files` of the run. The files are stored in the short form of `core.compact`. None if the run continues without a message.
   */
  input: {
    [k: string]: unknown;
  } | null;
  /**
   * The tag of this kind of row in the store.
   */
  kind: "run";
  /**
   * The (step, attempt) that was staged or committed last, copied from the session when the run ends. None if there was none.
   */
  last: [unknown, unknown] | null;
  /**
   * The number of late answers: they arrived when their delivery no longer held the run.
   */
  late_calls: number;
  /**
   * The cost of the late answers in micro-dollars.
   */
  late_micros: number;
  /**
   * The tokens that the late answers used.
   */
  late_tokens: number;
  /**
   * The kind of claim that began the run (docs/protocol.md#claims).
   */
  mode: string;
  /**
   * The configured model of the run's agent. Empty if the agent chooses a model for each call.
   */
  model: string;
  /**
   * The output of the run. None if it had none.
   */
  output: unknown;
  /**
   * The output limit of that call in tokens, as in the session's row. None if budgets set none.
   */
  output_limit: number | null;
  /**
   * The cost of the late answers beyond their reservations, in micro-dollars.
   */
  over_micros: number;
  /**
   * The tokens that the late answers used beyond their reservations.
   */
  over_tokens: number;
  /**
   * The number of the current execution, starting at 1. A long run on AWS moves to a new execution (docs/protocol.md#roll-over).
   */
  part: number;
  /**
   * The agent whose functions carry out this execution. Empty: the session's own agent.
   */
  part_agent: string;
  /**
   * The first step that this execution buys. 0 means `first_step`.
   */
  part_step: number;
  /**
   * The usage of the run by anything but `model`, by part name (`core.usage_parts`). Written when the run ends.
   */
  parts: {
    [k: string]: (number | boolean)[];
  };
  /**
   * The calls that a paused run waits for.
   */
  pending: Pending[];
  /**
   * The run of the session before this one. None for the first.
   */
  previous_run_id: string | null;
  /**
   * The priority of the run while it waits for a slot, from -999 to 999. Higher priorities go first.
   */
  priority: number;
  /**
   * The reason of an interrupt or abort, or of a pause: `pending` or `budget_exceeded`. None for other ends.
   */
  reason: string | null;
  /**
   * The id of the run. It is not stored here, because the row's key has it.
   */
  run_id: string;
  /**
   * The session of the run. It is not stored here, because it names the partition.
   */
  session_id: string;
  /**
   * The active agent at the start of the run. Empty before the first handoff: the session's own agent.
   */
  start_agent: string;
  /**
   * The number of messages in history before the run's own message.
   */
  start_count: number;
  /**
   * The lineage in which the run began. The `start_*` fields describe history before the run's own message. A retry `from_start` goes back there.
   */
  start_lineage: number;
  /**
   * The last sequence of the stream before the run. Readers of the run start after it. 0 if the stream had no messages.
   */
  start_sequence: number;
  /**
   * The id of the checkpoint with the custom state at the start of the run. Empty for the agent's initial state.
   */
  start_state_at: string;
  /**
   * The number of the last step in history when the run began.
   */
  start_step: number;
  /**
   * The session version in the key of the view at the start of the run. 0: the whole history was shown.
   */
  start_view: number;
  /**
   * The time of the claim (Unix seconds).
   */
  started_at: number;
  /**
   * The status of the run. It equals the session's status while this is the current run, and is final afterwards. An interrupted or paused run becomes `superseded` when the next run is claimed.
   */
  status: string;
  /**
   * The number of steps that the run bought. Written when the run ends.
   */
  steps: number;
  /**
   * The run ids of the root and the parent, under which the spans of a sub-agent's run are recorded. None for a root run.
   */
  trace: Trace | null;
  /**
   * The number of the run within its session, starting at 1. It is not stored if the run's id contains it.
   */
  turn: number;
  /**
   * The usage of the run, including its tools and sub-agents but not late answers. Written when the run ends.
   */
  usage: (number | boolean)[];
}
/**
 * The amounts that the current run has drawn from one budget window. `spent + reserved + assumed <= drawn`, unless
 * a call used more than its reservation. The reserved amount is in the session's `claim`.
 */
export interface Block {
  /**
   * The amount reserved for calls whose usage is not known. It counts as spent.
   */
  assumed: number;
  /**
   * The name of the window: `<scope>/<period>/<unit>/<window key>`.
   */
  budget: string;
  /**
   * Whether the block takes no more reservations, because the next window has begun or the budget was deleted.
   */
  closed: boolean;
  /**
   * The amount that the run has taken from the window.
   */
  drawn: number;
  /**
   * The session's version at the last draw. 0 before the first.
   */
  draws: number;
  /**
   * The part of `spent` and `assumed` that the last draw reported to the budget.
   */
  reported: number;
  /**
   * The amount that finished calls used.
   */
  spent: number;
  /**
   * The unit of all amounts here: micro-dollars or tokens.
   */
  unit: "micros" | "tokens";
}
/**
 * The claim of a worker that is buying a step.
 */
export interface StepClaim {
  /**
   * The number of the attempt, starting at 1 within the step.
   */
  attempt: number;
  /**
   * `<owner>.<session version>`, unique to the claim. If the claiming transaction gets no reply, the worker looks for this id to see whether it succeeded.
   */
  attempt_id: string;
  /**
   * The name of the call that waits for a provider's batch (docs/protocol.md#batches). No worker holds the step meanwhile. Empty: a worker asks the model itself.
   */
  batch: string;
  /**
   * The time until which the holder may act (Unix seconds). 0 if the claim was released or has expired.
   */
  deadline: number;
  /**
   * The number of this run's attempts at the step that ran out of the worker's time, or whose worker fell silent. The run fails at three.
   */
  late: number;
  /**
   * The micro-dollars reserved for the call. 0 if nothing is reserved: without budgets, for a cached answer, and for a function agent.
   */
  micros: number;
  /**
   * The run that the worker buys the step for.
   */
  run_id: string;
  /**
   * The step that the worker is buying.
   */
  step: number;
  /**
   * Whether the call writes a summary for a view, and not an answer of the step.
   */
  summary: boolean;
  /**
   * The tokens reserved for the call. 0 in the same cases as `micros`.
   */
  tokens: number;
}
/**
 * The reason why a run failed.
 */
export interface ErrorInfo {
  /**
   * The stable error code, such as `budget_exceeded` or `runtime_crash`. An abort has `aborted`.
   */
  code: string;
  /**
   * A human-readable description. Split surrogate pairs are joined and lone surrogates replaced, so that it can be stored.
   */
  message: string;
  /**
   * Whether `retry` makes sense. False after an abort and for damaged rows.
   */
  recoverable: boolean;
}
/**
 * The committed state of a session, after its last run or during its current run. Times are in Unix seconds.
 */
export interface SessionState {
  /**
   * The reason that the caller of `abort` gave.
   */
  abort_reason: string | null;
  /**
   * Whether the session was aborted. It then accepts a new message, but no retry.
   */
  aborted: boolean;
  /**
   * The name of the agent that makes the next step: the session's own, or the one that was handed over to. Empty if the service is older than handoffs.
   */
  active_agent: string;
  /**
   * The name of the session's own agent, which never changes.
   */
  agent_type: string;
  /**
   * The newest checkpoint.
   */
  checkpoint_id: string;
  /**
   * The time when the session was created.
   */
  created_at: number;
  /**
   * The current or last run. Empty in a copy that has not run yet.
   */
  current_run_id: string;
  /**
   * The custom state that tools have committed.
   */
  custom_state: {
    [k: string]: unknown;
  };
  /**
   * The error that the last run ended with. None if it did not fail.
   */
  error: ErrorInfo | null;
  /**
   * The origin of a branch or clone: `session_id` and `checkpoint_id`. None for other sessions.
   */
  forked_from: {
    [k: string]: unknown;
  } | null;
  /**
   * Whether the current run waits for a provider's batch.
   */
  in_batch: boolean;
  /**
   * The messages that wait for the session's run, in the order of their arrival. Empty in lists of sessions.
   */
  inbox: WaitingMessage[];
  /**
   * The time when the worker's lease on an in-process run expires. 0 for other runs, and after the run has ended.
   */
  lease_expires: number;
  /**
   * The number of messages in the conversation.
   */
  message_count: number;
  /**
   * The metadata that the session was created with.
   */
  metadata: {
    [k: string]: unknown;
  };
  /**
   * The output of the last run, as JSON. None if the run did not complete, or completed with text only.
   */
  output: unknown;
  /**
   * The session that a sub-agent works for. None for a root session.
   */
  parent_session_id: string | null;
  /**
   * The calls of a paused or interrupted session that wait for a response, here or in a sub-agent's session.
   */
  pending: Pending[];
  /**
   * The id of the session.
   */
  session_id: string;
  /**
   * The status of the last run. A run that waits for a slot is `running`.
   */
  status: "running" | "completed" | "failed" | "interrupted" | "paused";
  /**
   * The number of the last committed step.
   */
  step_count: number;
  /**
   * The stream of the session's chunks. It has the id of the session, or of its root session for a sub-agent.
   */
  stream_id: string;
  /**
   * The session's tags.
   */
  tags: string[];
  /**
   * The title that a person gave the session. Empty without one.
   */
  title: string;
  /**
   * The number of the current or last run, starting at 1. 0 in a copy that has not run yet.
   */
  turn: number;
  /**
   * The time of the last change.
   */
  updated_at: number;
  usage: Usage;
  /**
   * The owner of the session. None if it was made without a user.
   */
  user_id: string | null;
  /**
   * The number of changes to the session so far.
   */
  version: number;
}
/**
 * A message that waits in a session, as readers see it.
 */
export interface WaitingMessage {
  /**
   * The text of the message.
   */
  content: string;
  /**
   * The time of arrival (Unix seconds).
   */
  created_at: number;
  /**
   * The files of the message.
   */
  files: FilePart[];
  /**
   * The id with which the message can be withdrawn. The delivered message names it as `queued_id`.
   */
  id: string;
  /**
   * The JSON object that the caller sent with the message.
   */
  metadata: {
    [k: string]: unknown;
  };
  /**
   * How the message waits.
   */
  mode: "steer" | "queue" | "interrupt";
  /**
   * The id of the message's own run, if it gets a turn of its own.
   */
  run_id: string;
}
/**
 * The conversation at a checkpoint, and the stream position from which to continue.
 */
export interface SessionSnapshot {
  /**
   * The checkpoint that `messages` and `custom_state` belong to: the newest one on the stream.
   */
  checkpoint_id: string;
  /**
   * The custom state at the checkpoint.
   */
  custom_state: {
    [k: string]: unknown;
  };
  /**
   * The messages that wait for the session's run, at the time of the read.
   */
  inbox: WaitingMessage[];
  /**
   * The messages at the checkpoint, oldest first: all of them, or only the newest ones if the caller asked for that.
   */
  messages: (SystemMessage | UserMessage | AssistantMessage | ToolResultMessage)[];
  /**
   * The index in the conversation of the first message in `messages`.
   */
  offset: number;
  /**
   * The pending calls at the time of the read.
   */
  pending: Pending[];
  /**
   * The current or last run of the session. Empty in a copy that has not run yet.
   */
  run_id: string;
  /**
   * The stream sequence that matches the snapshot. Read the stream after it.
   */
  sequence: number;
  /**
   * The session of the snapshot.
   */
  session_id: string;
  /**
   * The status of the session at the time of the read. It may be newer than the checkpoint.
   */
  status: "running" | "completed" | "failed" | "interrupted" | "paused" | "deleting";
}
/**
 * A reference to a sub-agent's session, as its parent sees it.
 */
export interface SubSessionRef {
  /**
   * The name of the sub-agent.
   */
  agent_type: string;
  /**
   * The parent's tool call that started the sub-agent.
   */
  parent_tool_call_id: string;
  /**
   * The session of the sub-agent.
   */
  session_id: string;
  /**
   * The status of the session. `deleted`: its rows were deleted. `not_started`: the call has not started it yet.
   */
  status: "running" | "completed" | "failed" | "interrupted" | "paused" | "deleting" | "deleted" | "not_started";
}
/**
 * The result of `get_step`.
 */
export interface StepFound {
  /**
   * All attempts to buy the step, oldest first.
   */
  attempts: Attempt[];
  /**
   * The calls of the answer, in the model's order. Empty if no attempt was answered.
   */
  calls: StepCall[];
  /**
   * Whether the stream of the step was read completely. If not, texts and `starts` cover only its first messages.
   */
  complete: boolean;
  /**
   * The requested session.
   */
  session_id: string;
  /**
   * The number of the requested step.
   */
  step: number;
}
/**
 * An attempt to buy a step: one model call, and what readers of the stream saw of it.
 */
export interface Attempt {
  /**
   * The tokens reserved for an attempt whose usage is not known, which count as used. Otherwise 0.
   */
  assumed_tokens: number;
  /**
   * The US dollars reserved for an attempt whose usage is not known, which count as spent. Otherwise 0.
   */
  assumed_usd: number;
  /**
   * The time when the outcome was recorded, in Unix seconds. 0 while the attempt is `open`.
   */
  at: number;
  /**
   * The number of the attempt within its step, starting at 1.
   */
  attempt: number;
  /**
   * Whether readers were told to discard `text`.
   */
  discarded: boolean;
  /**
   * The texts of earlier failed model calls within this attempt, which readers saw and were told to discard.
   */
  dropped: string[];
  /**
   * The error of a `failed` attempt.
   */
  error: string | null;
  /**
   * The id of the request head that was sent (`get_context` returns the head of a step). None if not recorded.
   */
  head: string | null;
  /**
   * The model that answered, or else the agent's configured model. None if not known.
   */
  model: string | null;
  /**
   * `open` while the attempt is in progress, otherwise as in `helix.services.session_calls.ModelCall`.
   */
  outcome: "open" | "answered" | "summary" | "failed" | "lost" | "cancelled" | "dead";
  /**
   * The maximum number of tokens in the answer, if budgets set it. None if they did not.
   */
  output_limit: number | null;
  /**
   * The reason that readers were given when `text` was discarded.
   */
  reason: string | null;
  /**
   * The run that made the attempt.
   */
  run_id: string;
  /**
   * The run that took over after the worker of this attempt died. None if no run took over.
   */
  taken_over_by: string | null;
  /**
   * The text that readers of the stream saw, up to 20,000 characters.
   */
  text: string;
  /**
   * The number of that run in its session.
   */
  turn: number;
  usage: Usage;
}
/**
 * A tool call of a step, and its result.
 */
export interface StepCall {
  /**
   * The source of the result, as in `helix.core.entries.CallRow`. None until there is a result.
   */
  by: string | null;
  /**
   * The id of the call, unique in its session.
   */
  call_id: string;
  /**
   * The edit of the arguments. None if the model's arguments were executed.
   */
  edited: Edit | null;
  /**
   * The decision about a call whose outcome was unknown. None if the outcome was known. asked: a person has been asked and has not answered yet. executed_again: the tool was started once more. reported: a person gave the result. unknown: the model was told that the outcome is unknown.
   */
  ruling: ("asked" | "executed_again" | "reported" | "unknown") | null;
  /**
   * The number of times that the stream shows the start of the call.
   */
  starts: number;
  /**
   * The state as in `helix.core.entries.CallRow`. `waiting`: no worker has claimed the call yet.
   */
  state: "waiting" | "asked" | "approved" | "claimed" | "done";
  /**
   * Whether the call succeeded. None until there is a result.
   */
  success: boolean | null;
  /**
   * The name by which the model called the tool.
   */
  tool_name: string;
}
/**
 * The result of `get_usage`.
 */
export interface UsageFound {
  /**
   * The usage by agent, model and operation, sorted by these.
   */
  lines: UsageLine[];
  /**
   * The first hour that is included, in UTC (`2026-11-21T14`). None: all hours.
   */
  since: string | null;
  /**
   * The sum of all lines, in US dollars.
   */
  usd: number;
  /**
   * The user.
   */
  user: string;
}
/**
 * The usage of one agent with one model and operation.
 */
export interface UsageLine {
  /**
   * The name of the agent.
   */
  agent: string;
  /**
   * The maximum number of tokens that calls with an unknown outcome may have used.
   */
  assumed_tokens: number;
  /**
   * The maximum cost in US dollars of calls with an unknown outcome.
   */
  assumed_usd: number;
  /**
   * The prompt tokens that the provider read from its cache.
   */
  cached: number;
  /**
   * The number of model calls.
   */
  calls: number;
  /**
   * The number of those `runs` that failed with an error. Aborted runs do not count.
   */
  failed: number;
  /**
   * The prompt tokens, including `cached` tokens.
   */
  input: number;
  /**
   * The prompt tokens that the provider's cache should have had and did not.
   */
  lost: number;
  /**
   * The model. `-` if not known, and for tools.
   */
  model: string;
  /**
   * `completion` for model calls, `tool` for usage that tools reported.
   */
  operation: string;
  /**
   * The answer tokens.
   */
  output: number;
  /**
   * The number of runs that have ended.
   */
  runs: number;
  /**
   * The number of calls without a known price. A single such call makes all of its run's calls to that model count.
   */
  unpriced: number;
  /**
   * The cost in US dollars, without the `unpriced` calls.
   */
  usd: number;
}
/**
 * The result of `interrupt`.
 */
export interface Interrupted {
  /**
   * Whether the run was asked to stop. False if it had already ended.
   */
  interrupted: boolean;
}
/**
 * The result of `list_agents`.
 */
export interface AgentList {
  /**
   * A page of agents, sorted by name.
   */
  agents: AgentFound[];
  /**
   * The value of `after` for the next page. None on the last page.
   */
  cursor: string | null;
  /**
   * The agent to offer first: the first that the project registered and that no other agent calls or hands over to. None without agents.
   */
  first: string | null;
}
/**
 * An agent that `run` accepts.
 */
export interface AgentFound {
  /**
   * The description from the agent's definition.
   */
  description: string;
  /**
   * Messages that a person may begin with. Often empty.
   */
  examples: string[];
  /**
   * The JSON schema of the fields that `run` accepts besides `agent`: `message` and `state`, or `input`.
   */
  input: {
    [k: string]: unknown;
  };
  /**
   * `chat`: a model answers a message. `function`: a Python function is called with `input`.
   */
  kind: "chat" | "function";
  /**
   * The name to pass to `run` as `agent`.
   */
  name: string;
  /**
   * The JSON schema of the result's output. Empty if a function agent does not declare one.
   */
  output: {
    [k: string]: unknown;
  };
}
/**
 * The result of `list_checkpoints`.
 */
export interface CheckpointList {
  /**
   * A page of checkpoints, newest first.
   */
  checkpoints: ListedCheckpoint[];
  /**
   * The value of `after` for the next page. None on the last page.
   */
  cursor: string | null;
}
/**
 * A checkpoint without its custom state.
 */
export interface ListedCheckpoint {
  /**
   * The agent that makes the next step. Empty before the first handoff: the session's own agent.
   */
  active_agent: string;
  /**
   * The number of messages at the checkpoint.
   */
  count: number;
  /**
   * The time when the checkpoint was written, in Unix seconds.
   */
  created_at: number;
  /**
   * The id of the checkpoint, for use as `checkpoint_id` in other requests.
   */
  id: string;
  /**
   * The lineage of history that the checkpoint belongs to. A rewind starts a new lineage.
   */
  lineage: number;
  /**
   * The name that a caller gave the checkpoint, or None. Retention keeps named checkpoints.
   */
  name: string | null;
  /**
   * The pending calls at the checkpoint.
   */
  pending: Pending[];
  /**
   * The run that wrote the checkpoint. Empty for the first checkpoint of a copy.
   */
  run_id: string;
  /**
   * The id of the checkpoint that stores the custom state. It is this one if the state changed here.
   */
  state_at: string;
  /**
   * The status of the session at the checkpoint.
   */
  status: "running" | "completed" | "failed" | "interrupted" | "paused" | "deleting";
  /**
   * The number of the last committed step at the checkpoint.
   */
  step: number;
  /**
   * The number of that run in its session. 0 for the first checkpoint of a copy.
   */
  turn: number;
  /**
   * The usage of the session so far: the values of `Usage` in the order of its fields, without zeros at the end.
   */
  usage: (number | boolean)[];
  /**
   * The session version in the key of the view that the model was shown. 0: it was shown the whole history.
   */
  view: number;
  /**
   * The conflicts between changes that parallel tools made to the custom state.
   */
  warnings: string[];
}
/**
 * The result of `list_sessions`.
 */
export interface SessionList {
  /**
   * The value of `after` for the next page. None on the last page.
   */
  cursor: string | null;
  /**
   * The ids of sessions on this page whose rows cannot be read.
   */
  damaged: string[];
  /**
   * The counts. Present only if the request asked for `facets`.
   */
  facets?: FacetCounts | null;
  /**
   * A page of sessions, newest id first. It may be short or empty even if there are more.
   */
  sessions: ListedSession[];
}
/**
 * The numbers of sessions by value, at most 100 values each. A facet is counted among the sessions that match all
 * other filters.
 */
export interface FacetCounts {
  /**
   * The number of sessions of each agent.
   */
  agent: {
    [k: string]: number;
  };
  /**
   * Whether these were all sessions.
   */
  complete: boolean;
  /**
   * The number of sessions whose last run ended with each error code.
   */
  error: {
    [k: string]: number;
  };
  /**
   * The number of sessions that were compared with the filters: at most the newest 10,000 after `after`.
   */
  sessions: number;
  /**
   * The number of sessions with each status.
   */
  status: {
    [k: string]: number;
  };
  /**
   * The number of sessions with each tag.
   */
  tag: {
    [k: string]: number;
  };
  /**
   * The number of sessions whose model called each tool.
   */
  tool: {
    [k: string]: number;
  };
  /**
   * The number of sessions of each user.
   */
  user: {
    [k: string]: number;
  };
}
/**
 * A `SessionState` without `custom_state`, `output` and `inbox`, and with a title. Times are in Unix seconds.
 */
export interface ListedSession {
  /**
   * The reason that the caller of `abort` gave.
   */
  abort_reason: string | null;
  /**
   * Whether the session was aborted. It then accepts a new message, but no retry.
   */
  aborted: boolean;
  /**
   * The name of the agent that makes the next step: the session's own, or the one that was handed over to.
   */
  active_agent: string;
  /**
   * The name of the session's own agent, which never changes.
   */
  agent_type: string;
  /**
   * The newest checkpoint.
   */
  checkpoint_id: string;
  /**
   * The time when the session was created.
   */
  created_at: number;
  /**
   * The current or last run. Empty in a copy that has not run yet.
   */
  current_run_id: string;
  /**
   * The error that the last run ended with. None if it did not fail.
   */
  error: ErrorInfo | null;
  /**
   * The origin of a branch or clone: `session_id` and `checkpoint_id`. None for other sessions.
   */
  forked_from: {
    [k: string]: unknown;
  } | null;
  /**
   * Whether the current run waits for a provider's batch.
   */
  in_batch?: boolean;
  /**
   * The time when the worker's lease on an in-process run expires. 0 for other runs, and after the run has ended.
   */
  lease_expires: number;
  /**
   * The number of messages in the conversation.
   */
  message_count: number;
  /**
   * The metadata that the session was created with.
   */
  metadata: {
    [k: string]: unknown;
  };
  /**
   * The parent of a sub-agent's session. None in this list, which has root sessions only.
   */
  parent_session_id: string | null;
  /**
   * The calls that wait for a response, in this session or in a sub-agent's.
   */
  pending: Pending[];
  /**
   * The id of the session.
   */
  session_id: string;
  /**
   * The status of the last run. A run that waits for a slot is `running`.
   */
  status: "running" | "completed" | "failed" | "interrupted" | "paused";
  /**
   * The number of the last committed step.
   */
  step_count: number;
  /**
   * The stream of the session's chunks. It has the id of the root session.
   */
  stream_id: string;
  /**
   * The session's tags.
   */
  tags: string[];
  /**
   * The title that a person gave the session. Without one, the beginning of the first message, at most 80 characters, if the request asked for `titles`.
   */
  title?: string;
  /**
   * The number of the current or last run, starting at 1. 0 in a copy that has not run yet.
   */
  turn: number;
  /**
   * The time of the last change.
   */
  updated_at: number;
  usage: Usage;
  /**
   * The owner of the session. None if it was made without a user.
   */
  user_id: string | null;
  /**
   * The number of changes to the session so far.
   */
  version: number;
}
/**
 * The result of `ping`.
 */
export interface Pong {
  /**
   * The service's current time in Unix seconds.
   */
  now: number;
}
/**
 * The result of `read_rows`.
 */
export interface RowPage {
  /**
   * The value of `after` for the next page. None on the last page.
   */
  cursor: string | null;
  /**
   * With `lines`, the rows as lines of an export, and `rows` is empty. None without.
   */
  export: ExportPage | null;
  /**
   * A page of stored rows, sorted by key. Each row is `[sort, value]`: its sort key and its JSON value. Request heads (`q#<id>`) that all sessions share are included beside the rows that name them, so two pages may have the same one.
   */
  rows: [unknown, unknown][];
}
/**
 * A page of rows as lines of an export.
 */
export interface ExportPage {
  /**
   * The sub-agents' sessions that these rows name.
   */
  children: string[];
  /**
   * The hashes of the stored files that these rows name.
   */
  files: string[];
  /**
   * The first line of an export of this session.
   */
  head: string;
  /**
   * The rows. Request heads that several pages have belong into an export once.
   */
  lines: ExportLine[];
}
/**
 * A row as a line of an export.
 */
export interface ExportLine {
  /**
   * The JSON text of the line, in ASCII.
   */
  line: string;
  /**
   * The sort key of the row.
   */
  sort: string;
}
/**
 * The result of `read_stream`.
 */
export interface StreamPage {
  /**
   * A page of stored messages. Empty at the end of the stream.
   */
  messages: WireMessage[];
  /**
   * The stream that was read.
   */
  stream_id: string;
}
/**
 * A `helix.core.wire.StreamMessage` without the fields that equal their defaults.
 */
export interface WireMessage {
  /**
   * The chunk: one of `chunks`, or of a type that this version does not know. None for other kinds.
   */
  chunk?: {
    [k: string]: unknown;
  } | null;
  /**
   * The message of the error that the run ended with.
   */
  error?: string | null;
  /**
   * `chunk` for a chunk. `end`, `fail` or `paused` ends the messages of a run.
   */
  kind: "chunk" | "end" | "fail" | "paused";
  /**
   * The run that wrote the message. Empty for a `stream_resync` chunk that the log itself created.
   */
  run_id: string;
  /**
   * The position of the message in the stream: 1, 2, 3, ... without gaps.
   */
  sequence: number;
  /**
   * The session that wrote the message. A sub-agent writes to the stream of its root session.
   */
  session_id: string;
  /**
   * The status of the run that ended. None for a chunk.
   */
  status?: string | null;
  /**
   * The number of that run in its session.
   */
  turn?: number;
  /**
   * The version of the wire format.
   */
  v?: 1;
}
/**
 * The result of `rename`.
 */
export interface Renamed {
  /**
   * The title as stored. Empty if the session has none.
   */
  title: string;
}
/**
 * The result of `report_call`.
 */
export interface CallReported {
  /**
   * For a heartbeat, the time (Unix seconds) when the wait ends without another one. None: never, or the call ended.
   */
  expires_at: number | null;
}
/**
 * The result of `run`, `resume` and `retry`.
 */
export interface Started {
  /**
   * The sequence after which the run's messages begin.
   */
  after: number;
  /**
   * The id under which the message waits in the session's `inbox`. None if it started its run at once.
   */
  queued_id?: string | null;
  /**
   * Whether messages of the run were stored before the subscription. If so, `subscribe` with this `after`.
   */
  replay: boolean;
  /**
   * The run that was started. A repeated request gets the run that the first one started.
   */
  run_id: string;
  /**
   * The session of the run. For `run` without a session id, the new session.
   */
  session_id: string;
  /**
   * The stream with the run's messages.
   */
  stream_id: string;
  /**
   * The number of the run in its session, starting at 1.
   */
  turn: number;
}
/**
 * The result of `subscribe`.
 */
export interface Subscribed {
  /**
   * The last sequence of the stored messages that were sent.
   */
  caught_up: number;
  /**
   * Whether all stored messages were sent. If not, subscribe again with `caught_up` as `after`.
   */
  complete: boolean;
  /**
   * The stream whose messages this connection receives from now on.
   */
  stream_id: string;
}
/**
 * The result of `unsubscribe`.
 */
export interface Unsubscribed {
  /**
   * The stream whose messages this connection no longer receives.
   */
  stream_id: string;
}
/**
 * The result of `upload`.
 */
export interface UploadBegun {
  /**
   * Whether the service already has the bytes.
   */
  stored: boolean;
  /**
   * The request with which to send the bytes. None if they are stored.
   */
  upload: UploadTarget | null;
}
/**
 * The request with which a client sends the bytes of a file.
 */
export interface UploadTarget {
  /**
   * The time until which the request is accepted, in Unix seconds.
   */
  expires_at: number;
  /**
   * The headers that the client must send unchanged. HTTP clients set `Content-Length` themselves.
   */
  headers: {
    [k: string]: string;
  };
  /**
   * The HTTP method.
   */
  method: string;
  /**
   * The address of the request.
   */
  url: string;
}
/**
 * The result of `withdraw`.
 */
export interface WithdrawnReply {
  /**
   * The fate of the message. `delivered`: it is in history already. `not_found`: no such message waits.
   */
  withdrawn: "withdrawn" | "delivered" | "not_found";
}
/**
 * What the client makes of replies.
 */
export interface Made {
  AgentResult: AgentResult;
  StreamMessage: StreamMessage;
}
/**
 * The result of a run that has ended.
 */
export interface AgentResult {
  /**
   * The name of the agent that ended the run. The output is of its schema.
   */
  agent: string;
  /**
   * The reason why the run ended, such as `text`, `output` or `pending`. None for most failures: see `error_code`.
   */
  completion_reason: string | null;
  /**
   * The message of the error that a failed run ended with. None for other runs.
   */
  error: string | null;
  /**
   * The code of that error, stable and meant for programs.
   */
  error_code: string | null;
  output: unknown;
  /**
   * The calls that a paused or interrupted run waits for.
   */
  pending: Pending[];
  /**
   * Whether `retry` may succeed after a failure.
   */
  recoverable: boolean;
  /**
   * The id of the run.
   */
  run_id: string;
  /**
   * The session of the run.
   */
  session_id: string;
  /**
   * How the run ended.
   */
  status: "completed" | "failed" | "interrupted" | "paused";
  /**
   * The number of steps that the run took.
   */
  steps: number;
  /**
   * The text of a completed run's last answer. None if that answer had no text.
   */
  text: string | null;
  usage: Usage;
}
/**
 * A message of a stream.
 */
export interface StreamMessage {
  /**
   * The chunk as JSON, without its `sequence`. None for the other kinds.
   */
  chunk: {
    [k: string]: unknown;
  } | null;
  /**
   * The message of the run's error. None for chunks, and for runs without an error.
   */
  error: string | null;
  /**
   * `chunk` contains a chunk. `end`, `fail` and `paused` end the run's part of the stream.
   */
  kind: "chunk" | "end" | "fail" | "paused";
  /**
   * The run that the message belongs to. Empty if the log itself created the message.
   */
  run_id: string;
  /**
   * The position on the stream: 1, 2, 3, ... without gaps.
   */
  sequence: number;
  /**
   * The session that the message belongs to. The end of a sub-agent's run is not the end of the root's run.
   */
  session_id: string;
  /**
   * The status of a run that ended or paused. None for chunks.
   */
  status: string | null;
  /**
   * The id of the stream, which is the id of its root session.
   */
  stream_id: string;
  /**
   * The number of that run within its session.
   */
  turn: number;
  /**
   * The version of this format.
   */
  v: 1;
}

/** A chunk of a type that this version knows. One of a later version has another `type`: leave it out. */
export type StreamChunk = Chunks[keyof Chunks];

/** The fields that the AI SDK encoder sends as the transient part `data-<type>`, by the type of the chunk. */
export const UI_FIELDS: Readonly<Record<string, readonly string[]>> = {
  "agent_changed": [
    "agent"
  ],
  "call_reminder": [
    "tool_call_id",
    "tool_name",
    "kind",
    "number",
    "expires_at"
  ],
  "context_changed": [
    "hidden",
    "cleared",
    "summary",
    "cause",
    "tokens"
  ],
  "message_queued": [
    "queued_id",
    "state",
    "mode",
    "content",
    "files",
    "message_id"
  ],
  "run_queued": [
    "queued",
    "expires_at",
    "reason"
  ],
  "state_patch": [
    "patches"
  ],
  "stream_resync": [
    "reason",
    "checkpoint_id"
  ]
};

/** The chunks that readers show by this table alone: their type, and the line for people, or "". */
export const NOTICES = {
  "agent_changed": "{agent} takes over",
  "call_reminder": "Reminder {number}: {tool_name} ({tool_call_id}) still waits.",
  "run_superseded": ""
} as const;

export type NoticeChunk = Chunks[keyof typeof NOTICES];

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
  | "call_ended"
  | "call_not_pending"
  | "cannot_resume"
  | "checkpoint_not_found"
  | "condition_failed"
  | "contention"
  | "context_too_large"
  | "damaged_row"
  | "dependency_failed"
  | "fatal_tool_error"
  | "file_missing"
  | "helix_error"
  | "illegal_transition"
  | "inbox_full"
  | "internal_error"
  | "invalid_call_token"
  | "invalid_definition"
  | "invalid_file"
  | "invalid_frontend_tool"
  | "invalid_input"
  | "invalid_message"
  | "invalid_request"
  | "message_withdrawn"
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
  file: object;
  question: object;
  response: object;
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
  "file": {
    "after_text": 0,
    "height": null,
    "name": null,
    "pages": null,
    "sha256": null,
    "size": 0,
    "url": null,
    "width": null
  },
  "question": {
    "answer_schema": {},
    "answered": false,
    "at": null,
    "by": null,
    "data": null,
    "default_answer": null,
    "on_timeout": "deny",
    "problem": null,
    "remind_s": [],
    "round": 0,
    "timed_out": false,
    "timeout_s": null
  },
  "response": {
    "approved": true,
    "at": 0,
    "by": null
  },
  "types": {
    "call_reminder": {
      "expires_at": null,
      "kind": "approval",
      "number": 1
    },
    "citation": {
      "quote": null,
      "title": null,
      "url": null
    },
    "context_changed": {
      "cause": "policy",
      "cleared": 0,
      "hidden": 0,
      "summary": "",
      "tokens": 0
    },
    "custom": {
      "data": null
    },
    "error": {
      "code": "error",
      "recoverable": true
    },
    "message_queued": {
      "content": "",
      "files": [],
      "message_id": null,
      "mode": null
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
    "server_tool": {
      "arguments": {},
      "done": false,
      "error": null,
      "result": null
    },
    "state_patch": {
      "warnings": []
    },
    "step_committed": {
      "lost_cache": null,
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
      "declared": false,
      "input": {},
      "kind": "approval",
      "parameters": {},
      "questions": [],
      "reason": null,
      "round": 0
    },
    "tool_end": {
      "arguments": null,
      "error": null,
      "files": [],
      "questions": [],
      "responses": [],
      "result": null,
      "success": true
    },
    "tool_start": {
      "arguments": {},
      "edited": null,
      "questions": [],
      "responses": []
    }
  },
  "usage": {
    "cached_tokens": 0,
    "calls": 0,
    "completion_tokens": 0,
    "cost_micros": 0,
    "lost_tokens": 0,
    "priced": true,
    "prompt_tokens": 0,
    "reasoning_tokens": 0,
    "unknown_calls": 0,
    "written_tokens": 0
  }
};
