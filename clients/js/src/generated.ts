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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
   */
  attempt: number;
  /**
   * The checkpoint to go back to.
   */
  checkpoint_id: string;
  /**
   * The number of messages that are history at the checkpoint.
   */
  message_count: number;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The number of the last step that is history at the checkpoint.
   */
  step_count: number;
  /**
   * The Unix seconds at which the writer made the chunk.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "checkpoint_created";
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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
   */
  attempt: number;
  /**
   * The JSON value that the tool or hook gave.
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
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The Unix seconds at which the writer made the chunk.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "custom";
}
/**
 * A failure of a model call, of a tool call that is not executed, or of the run.
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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
   */
  attempt: number;
  /**
   * A stable code of the error, such as `model_error` or `invalid_tool_call` (`core.errors`).
   */
  code: string;
  /**
   * The error message.
   */
  error: string;
  /**
   * True if the run goes on. False exactly once, right before the stream of a failed run ends.
   */
  recoverable: boolean;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The Unix seconds at which the writer made the chunk.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "error";
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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
   */
  attempt: number;
  /**
   * The JSON of the run's structured output.
   */
  output: unknown;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The Unix seconds at which the writer made the chunk.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "output";
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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
   */
  attempt: number;
  /**
   * The last checkpoint of the run, which a resume goes on from. None if the run wrote none.
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
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The Unix seconds at which the writer made the chunk.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "run_interrupted";
}
/**
 * The end of a paused run. It waits for people, or for room in a budget.
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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
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
   * `pending` if calls wait for an answer, `budget_exceeded` if a budget has no room for the next model call.
   */
  reason: string;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The Unix seconds at which the writer made the chunk.
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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
   */
  attempt: number;
  /**
   * The Unix seconds until which the run may wait.
   */
  expires_at: number;
  /**
   * The number of runs of the agent that waited at that moment, this one included.
   */
  queued: number;
  /**
   * Why no run starts if the agent is stopped, such as `stopped by budget agent:poet/day/micros`. None if the run waits for a free slot only.
   */
  reason: string | null;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The Unix seconds at which the writer made the chunk.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "run_queued";
}
/**
 * The first chunk of a run that goes on from an earlier one.
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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
   */
  attempt: number;
  /**
   * The checkpoint that the claim of this run wrote.
   */
  checkpoint_id: string | null;
  /**
   * A resume or retry mode, or `takeover` (`core.status.ClaimMode`).
   */
  mode: string;
  /**
   * The run that this one goes on from.
   */
  previous_run_id: string;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The Unix seconds at which the writer made the chunk.
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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
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
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
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
   * The Unix seconds at which the writer made the chunk.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "run_superseded";
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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
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
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The Unix seconds at which the writer made the chunk.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "state_patch";
  /**
   * Texts about parallel calls that changed the same place of the state. Each names the calls and what was done.
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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
   */
  attempt: number;
  /**
   * The model that answered. None if the sequencer wrote the chunk in place of a worker that died.
   */
  model: string | null;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
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
   * The Unix seconds at which the writer made the chunk.
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
 * The tokens and the cost of one call or of several calls together.
 */
export interface Usage {
  /**
   * The tokens of the prompts that the provider read from its cache.
   */
  cached_tokens: number;
  /**
   * The number of calls. Each try that the provider may bill counts.
   */
  calls: number;
  /**
   * The tokens of the answers, including `reasoning_tokens`.
   */
  completion_tokens: number;
  /**
   * The cost in millionths of a US dollar. A call without a known price adds 0.
   */
  cost_micros: number;
  /**
   * Whether all prices were known.
   */
  priced: boolean;
  /**
   * The tokens of the prompts, including `cached_tokens`.
   */
  prompt_tokens: number;
  /**
   * The tokens of the answers that were reasoning.
   */
  reasoning_tokens: number;
  /**
   * The number of calls that may have used more than was reported. They were cut off, or answered without their usage.
   */
  unknown_calls: number;
}
/**
 * A request to drop what this step and attempt showed.
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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
   */
  attempt: number;
  /**
   * The reason why the attempt was dropped, as a text.
   */
  reason: string | null;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
   */
  session_id: string;
  /**
   * The status of the run, if its end cut the attempt off; otherwise None. The text of an `interrupted` run may stay on a page until another attempt of the step begins.
   */
  status: string | null;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The Unix seconds at which the writer made the chunk.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "step_discarded";
}
/**
 * A request to drop what is shown and start again from the checkpoint: the session was rewound, or chunks were
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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
   */
  attempt: number;
  /**
   * The checkpoint to start from, which the claim of the rewinding run wrote. None if chunks are missing: start from the session's latest.
   */
  checkpoint_id: string | null;
  /**
   * The last sequence of the stream before the run that rewound it, or before the chunks that follow a gap.
   */
  from_sequence: number;
  /**
   * `chunks were lost`, `messages have expired`, or the mode of the run that rewound the session (`core.status.ClaimMode`).
   */
  reason: string;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The Unix seconds at which the writer made the chunk.
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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
   */
  attempt: number;
  /**
   * The error message if there is no output. None if the sub-agent completed.
   */
  error: string | null;
  /**
   * The call of the parent that the sub-agent works for.
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
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
   */
  session_id: string;
  /**
   * `completed`, `failed`, or `interrupted` if the call was ended without the sub-agent's own result.
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
   * The Unix seconds at which the writer made the chunk.
   */
  timestamp: number;
  /**
   * The tag of this chunk on the wire.
   */
  type: "subagent_end";
}
/**
 * The start or continuation of a sub-agent's session. It follows the `tool_start` of its call.
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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
   */
  attempt: number;
  /**
   * The call of the parent that the sub-agent works for.
   */
  parent_tool_call_id: string;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
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
   * The Unix seconds at which the writer made the chunk.
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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
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
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The Unix seconds at which the writer made the chunk.
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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
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
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The Unix seconds at which the writer made the chunk.
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
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
   */
  attempt: number;
  /**
   * The arguments of the call: the model's, or those that a person approved before the outcome was lost.
   */
  input: {
    [k: string]: unknown;
  };
  /**
   * The question: `approval` of the call, the `client`'s result, or a ruling on an `unknown` outcome.
   */
  kind: "approval" | "client" | "unknown";
  /**
   * The JSON schema of `input`. Empty if the agent no longer has the tool.
   */
  parameters: {
    [k: string]: unknown;
  };
  /**
   * Why the tool asks, if its rule gives a reason.
   */
  reason: string | null;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The Unix seconds at which the writer made the chunk.
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
   * The model's arguments of a refused call, which has no `tool_start`. None for other calls, and if the writer did not have the arguments.
   */
  arguments: {
    [k: string]: unknown;
  } | null;
  /**
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
   */
  attempt: number;
  /**
   * The error message of a failed call. None for a success.
   */
  error: string | null;
  /**
   * The value that the call returned. For a failed call, the content of its result, such as `{"error": message}`.
   */
  result: unknown;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
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
   * The Unix seconds at which the writer made the chunk.
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
   * The arguments that the call is executed with: the model's, or those that a person approved in their place.
   */
  arguments: {
    [k: string]: unknown;
  };
  /**
   * The number of the try at the step. For the chunks of a tool call, the number of the claim of the call.
   */
  attempt: number;
  /**
   * The person who approved other arguments than the model's, and the time. None if `arguments` are the model's.
   */
  edited: Edit | null;
  /**
   * The run that wrote the chunk.
   */
  run_id: string;
  /**
   * The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents.
   */
  sequence: number;
  /**
   * The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream.
   */
  session_id: string;
  /**
   * The step that the chunk belongs to. 0 for chunks about the run as a whole.
   */
  step: number;
  /**
   * The Unix seconds at which the writer made the chunk.
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
 * The author and the time of a change to a call's arguments before it was executed.
 */
export interface Edit {
  /**
   * The time of the change in Unix seconds.
   */
  at: number;
  /**
   * The user who changed the arguments. None if the service does not know its users, or if its operator did it.
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
 * Fail a run for good. Idempotent. Result: `{}`.
 */
export interface Abort {
  /**
   * The name of this action.
   */
  action: "abort";
  /**
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * The reason, which is stored with the run.
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
 * Answer a call that waits for a person, in the session or in a sub-agent below it. The first answer counts.
 *
 * The result is that of `Run`, where `run_id` is the session's current run. `resumed` says whether the answer started a
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
   * The arguments that an approved call is executed with. None: those of the model. If they do not fit the tool's schema, the request is refused and the call continues to wait.
   */
  arguments?: {
    [k: string]: unknown;
  } | null;
  /**
   * The data of the answer, as in `helix.core.handles.Confirmation`.
   */
  data?: unknown;
  /**
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * The reason for a denial, which the model sees.
   */
  reason?: string | null;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * Whether this connection is sent the run's messages.
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
 * Renew the connection's proof with a new token of the same user, or ask whose connection this is.
 *
 * Result: `{"principal", "expires_at", "operator", "prefix"}`. Session ids that a client chooses begin with `prefix`.
 */
export interface Authenticate {
  /**
   * The name of this action.
   */
  action: "authenticate";
  /**
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * A new token of the same user. None: change nothing and report whose connection this is.
   */
  token?: string | null;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Make a new session from a checkpoint. Result: `{"session_id"}`.
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
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * A name that makes repeats harmless: a repeat returns the copy that was made under the same key.
   */
  key?: string | null;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The id of the new session, which begins with the caller's prefix. None: the service makes one.
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
 * The new limit holds from the next model call on. The rest of the budget's definition stays.
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
   * The client's own name for the request. The reply, or the error, has it too.
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
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * A name that makes repeats harmless: a repeat returns the copy that was made under the same key.
   */
  key?: string | null;
  /**
   * The number of first messages to copy. Fewer are copied where a call would lose its result. Give this or `checkpoint_id`, not both.
   */
  message_index?: number | null;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The id of the new session, which begins with the caller's prefix. None: the service makes one.
   */
  target?: string | null;
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
   * The client's own name for the request. The reply, or the error, has it too.
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
 * of the checkpoints. The RFC 6902 `patches` turn the first state into the second. `messages` is a page of those that
 * only the second checkpoint has. `added` and `removed` count the messages that only the second, or only the first,
 * has.
 */
export interface DiffCheckpoints {
  /**
   * The name of this action.
   */
  action: "diff_checkpoints";
  /**
   * The checkpoint to compare with.
   */
  before: string;
  /**
   * The second checkpoint. None: the latest.
   */
  checkpoint_id?: string | null;
  /**
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * The largest number of added messages to return.
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
 * Read the budgets that bind a session, in their current windows.
 *
 * Result: `{"session_id", "budgets"}`. The `run` of a budget is what the session's current run has spent and set aside.
 * Only an operator sees the amounts of a budget of all users, or of an agent.
 */
export interface GetBudgets {
  /**
   * The name of this action.
   */
  action: "get_budgets";
  /**
   * The client's own name for the request. The reply, or the error, has it too.
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
 * Read a checkpoint. Result: `{"checkpoint"}`, as `list_checkpoints` has it, with its `custom_state`.
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
   * The client's own name for the request. The reply, or the error, has it too.
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
 * Compute the cost of a session and of its sub-agents' sessions, line by line.
 *
 * Result: `{"session_id", "usd", "services", "agrees", "prices", "left_out", "lines"}`. Refused for a session of more
 * than 20,000 rows.
 */
export interface GetCost {
  /**
   * The name of this action.
   */
  action: "get_cost";
  /**
   * The client's own name for the request. The reply, or the error, has it too.
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
   * The `cursor` of the previous page. None: the first page.
   */
  after?: string | null;
  /**
   * The only agent to read. None: all agents.
   */
  agent?: string | null;
  /**
   * The largest number of scaling decisions to return for each agent.
   */
  decisions?: number;
  /**
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * The largest number of agents on the page.
   */
  limit?: number;
  /**
   * The version of the protocol.
   */
  v: 1;
  /**
   * The largest number of waiting runs to return for each agent.
   */
  waiting?: number;
}
/**
 * Read a session, and more of it on request.
 *
 * Result: `{"session", "can_resume"}`, and the parts that the fields below ask for. While the current run waits for a
 * slot, `"queued"` has its `{"place", "expires_at", "reason"}`. Place 1 is the next of its agent to start.
 */
export interface GetSession {
  /**
   * The name of this action.
   */
  action: "get_session";
  /**
   * The index after the last of these messages. None: the newest messages.
   */
  before?: number | null;
  /**
   * The client's own name for the request. The reply, or the error, has it too.
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
   * The run whose end is added as `"run"`. Its status is `running` if it has not ended.
   */
  run_id?: string | null;
  /**
   * The number of runs to add as `"runs"`: the newest ones, or those before `runs_before`.
   */
  runs?: number;
  /**
   * The run after the last of these runs, which are newest first. None: the newest runs.
   */
  runs_before?: string | null;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * Whether to add the conversation as `"snapshot"`, with the sequence from which the stream continues it.
   */
  snapshot?: boolean;
  /**
   * Whether to add the sessions of the sub-agents as `"sub_sessions"`.
   */
  sub_sessions?: boolean;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Explain how a step was bought: its attempts, what each showed, and the results of its calls.
 *
 * Result: `helix.core.reports.StepFound`.
 */
export interface GetStep {
  /**
   * The name of this action.
   */
  action: "get_step";
  /**
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * The run whose step is meant.
   */
  run_id?: string | null;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * The number of the step. After a rewind two steps may have it: the newest is meant, or that of `run_id`.
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
   * The number of past hours to count, the current one included. None: all usage so far.
   */
  hours?: number | null;
  /**
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * The user. None: the caller. Only an operator may name another user, and has to name one.
   */
  user?: string | null;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Ask a run to stop. `resume` continues it. Result: `{"interrupted"}`, which is false if the run had ended.
 */
export interface Interrupt {
  /**
   * The name of this action.
   */
  action: "interrupt";
  /**
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * The reason, which is stored with the run.
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
 * fields that `run` takes besides the agent, `output` that of the result's output.
 */
export interface ListAgents {
  /**
   * The name of this action.
   */
  action: "list_agents";
  /**
   * The `cursor` of the previous page. None: the first page.
   */
  after?: string | null;
  /**
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * The largest number of agents on the page.
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
   * The `cursor` of the previous page, or the id of any checkpoint. None: the first page.
   */
  after?: string | null;
  /**
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * The largest number of checkpoints on the page.
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
 * List the caller's root sessions, newest id first. An operator gets those of all users, or of `user`.
 *
 * Result: `{"sessions", "cursor", "damaged"}`. A page may be short although there are more sessions. Fields other than
 * `limit`, `after`, `user` and `titles` are filters.
 */
export interface ListSessions {
  /**
   * The name of this action.
   */
  action: "list_sessions";
  /**
   * The `cursor` of the previous page. None: the first page.
   */
  after?: string | null;
  /**
   * The name of the sessions' agent.
   */
  agent?: string | null;
  /**
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * The largest number of sessions on the page.
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
   * Words that must all occur in the id, the agent, the tags, the status or the beginning of the first message. Case does not matter.
   */
  text?: string | null;
  /**
   * Whether to add a `title` to each session: the beginning of its first message.
   */
  titles?: boolean;
  /**
   * The user whose sessions are listed. Only an operator may name another user.
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
 * Keep the connection open. Result: `{"now"}`, the time of the service in Unix seconds.
 */
export interface Ping {
  /**
   * The name of this action.
   */
  action: "ping";
  /**
   * The client's own name for the request. The reply, or the error, has it too.
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
 * Result: `{"rows", "cursor"}`. Each row is `[sort, value]`.
 */
export interface ReadRows {
  /**
   * The name of this action.
   */
  action: "read_rows";
  /**
   * The `cursor` of the previous page. None: the first page.
   */
  after?: string | null;
  /**
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * The largest number of rows on the page.
   */
  limit?: number;
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * Whether to read the rows of the stream in place of the session's.
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
   * The sequence after which the page begins. 0: the beginning of the stream.
   */
  after?: number;
  /**
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * The largest number of messages on the page.
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
 * Continue an interrupted or paused session, or go back to a checkpoint. The result is that of `Run`.
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
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * A name that makes repeats harmless, as in `Run`.
   */
  key?: string | null;
  /**
   * The user's next text. None: the session continues without one.
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
   * Whether this connection is sent the run's messages.
   */
  subscribe?: boolean;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Try a failed session again. The result is that of `Run`.
 */
export interface Retry {
  /**
   * The name of this action.
   */
  action: "retry";
  /**
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * A name that makes repeats harmless, as in `Run`.
   */
  key?: string | null;
  /**
   * The user's next text. None: the session continues without one.
   */
  message?: string | null;
  /**
   * The place to start from: the last committed step, or the beginning of the failed run.
   */
  mode?: "from_checkpoint" | "from_start";
  /**
   * The session that the request is about.
   */
  session_id: string;
  /**
   * Whether this connection is sent the run's messages.
   */
  subscribe?: boolean;
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Start a run: in a new session, or with the next message of an existing one. Give `message` or `input`, not both.
 *
 * Result: `{"session_id", "run_id", "turn", "stream_id", "after", "replay"}`. The run's messages have sequences above
 * `after`. If `replay` is true, some of them were stored before the subscription: subscribe after `after`.
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
   * Whether the message replaces the one with the same `message_id`. If that is the newest message and has the same text, nothing starts: the result names the run that answered it.
   */
  edits?: boolean;
  /**
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * The parameters of a function agent. A chat agent takes `{"message": ...}` here.
   */
  input?: {
    [k: string]: unknown;
  } | null;
  /**
   * A name that makes repeats harmless: a repeat returns the run that was started under the same key. Without a key, the same holds for a repeat with the same `id` on the same connection.
   */
  key?: string | null;
  /**
   * The user's text.
   */
  message?: string | null;
  /**
   * The front end's id of the message. The stored message has it as `metadata.id`.
   */
  message_id?: string | null;
  /**
   * The metadata of a new session. An existing session keeps its own.
   */
  metadata?: {
    [k: string]: unknown;
  };
  /**
   * The priority of the session's runs that wait for a slot: a higher one goes first. A client may set 0 or less. None: an existing session keeps its priority, a new one has 0.
   */
  priority?: number | null;
  /**
   * An existing session, or the id of a new one. None: the service makes a session. The id of a new session must begin with the caller's prefix (see `Authenticate`).
   */
  session_id?: string | null;
  /**
   * An object that is merged over the session's custom state, key by key.
   */
  state?: {
    [k: string]: unknown;
  } | null;
  /**
   * Whether this connection is sent the run's messages.
   */
  subscribe?: boolean;
  /**
   * The tags of a new session. An existing session keeps its own.
   *
   * @maxItems 50
   */
  tags?: string[];
  /**
   * The version of the protocol.
   */
  v: 1;
}
/**
 * Send the stored messages of a stream after a sequence, and then the new ones.
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
   * The last sequence that the client has. 0: send the stream from its beginning.
   */
  after?: number;
  /**
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * The session whose stream is meant. Give this or `stream_id`, not both.
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
 * Stop sending the messages of a stream. Result: `{"stream_id"}`.
 */
export interface Unsubscribe {
  /**
   * The name of this action.
   */
  action: "unsubscribe";
  /**
   * The client's own name for the request. The reply, or the error, has it too.
   */
  id: string;
  /**
   * The session whose stream is meant. Give this or `stream_id`, not both.
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
/**
 * The result of `answer`. `run_id` is the session's current run.
 */
export interface Answered {
  /**
   * The sequence after which the run's messages begin.
   */
  after: number;
  /**
   * Whether messages of the run were stored before the subscription. If so, `subscribe` with this `after`.
   */
  replay: boolean;
  /**
   * Whether the answer started a run.
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
   * The stream that has the run's messages.
   */
  stream_id: string;
  /**
   * The number of the run in its session, from 1 on.
   */
  turn: number;
}
/**
 * The result of `authenticate`: the caller that the connection belongs to.
 */
export interface Authenticated {
  /**
   * The time when the proof of the caller expires, in Unix seconds. From then on, only `authenticate` is accepted.
   */
  expires_at: number;
  /**
   * Whether the caller may read the fleet and change budgets.
   */
  operator: boolean;
  /**
   * The prefix of session ids that the caller may choose. Empty without authentication: then any id may be chosen.
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
   * The index of the first of `messages` among the added messages.
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
   * The author of the message, which tells the types of messages apart.
   */
  role: "system";
}
/**
 * A message of the user.
 */
export interface UserMessage {
  /**
   * The text, as the user gave it.
   */
  content: string;
  /**
   * The time at which the message was stored. None for a message that is not from history.
   */
  created_at: number | null;
  /**
   * The message's place in history, `msg_<lineage>_<index>`. Empty for a message that does not come from history.
   */
  id: string;
  /**
   * Further facts about the message. A user's message has what its sender gave, an answer its model and stop reason, a result the edit of its call.
   */
  metadata: {
    [k: string]: unknown;
  };
  /**
   * The author of the message, which tells the types of messages apart.
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
   * The text of the answer. None if the answer has calls only.
   */
  content: string | null;
  /**
   * The time at which the message was stored. None for a message that is not from history.
   */
  created_at: number | null;
  /**
   * The message's place in history, `msg_<lineage>_<index>`. Empty for a message that does not come from history.
   */
  id: string;
  /**
   * Further facts about the message. A user's message has what its sender gave, an answer its model and stop reason, a result the edit of its call.
   */
  metadata: {
    [k: string]: unknown;
  };
  /**
   * The author of the message, which tells the types of messages apart.
   */
  role: "assistant";
  /**
   * The run that added the message.
   */
  run_id: string | null;
  /**
   * The step of an answer, or of the call that a result belongs to. None for a user's message.
   */
  step: number | null;
  /**
   * The blocks of reasoning in the answer, which go back to the same model only.
   */
  thinking: ThinkingContent[];
  /**
   * The calls in the answer, in the model's order. Calls of sub-agents and of `__finish__` are among them.
   */
  tool_calls: ToolCallRequest[];
}
/**
 * One block of reasoning, stored without loss: its model expects it back beside the tool results.
 */
export interface ThinkingContent {
  /**
   * The number of calls of the answer that came before the block.
   */
  after_calls: number;
  /**
   * The number of characters of the answer's text that came before the block.
   */
  after_text: number;
  /**
   * The provider's id of the block, if it gives one.
   */
  id: string | null;
  /**
   * The data of a block that only the provider can read, in place of `text`.
   */
  redacted: string | null;
  /**
   * The token by which the provider verifies or reads the block. For OpenAI's models it is the encrypted reasoning. None if the provider gives none.
   */
  signature: string | null;
  /**
   * The text to show. OpenAI's models give a summary.
   */
  text: string;
}
/**
 * A tool call that the model asked for.
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
   * The raw text of arguments that were not a JSON object, or the reason why they cannot be stored. Such a call is never executed; its result is a failure. None for a well-formed call.
   */
  malformed: string | null;
  /**
   * The tool that the model called.
   */
  name: string;
}
/**
 * The result of a tool call. If a person changed the call's arguments, `metadata` has them as `edited`
 * (`EditedArguments`).
 */
export interface ToolResultMessage {
  /**
   * A text result verbatim, any other value as JSON. A failure is `{"error": message}`.
   */
  content: string;
  /**
   * The time at which the message was stored. None for a message that is not from history.
   */
  created_at: number | null;
  /**
   * The message's place in history, `msg_<lineage>_<index>`. Empty for a message that does not come from history.
   */
  id: string;
  /**
   * Further facts about the message. A user's message has what its sender gave, an answer its model and stop reason, a result the edit of its call.
   */
  metadata: {
    [k: string]: unknown;
  };
  /**
   * The author of the message, which tells the types of messages apart.
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
 * The result of `get_budgets`.
 */
export interface BudgetList {
  /**
   * All budgets that bind the session.
   */
  budgets: BudgetFound[];
  /**
   * The session that was asked about.
   */
  session_id: string;
}
/**
 * A budget that binds a session, in its current window. All amounts are in `unit`.
 */
export interface BudgetFound {
  /**
   * The name of the budget: `<scope>/<period>/<unit>`, where the unit of money is `micros`.
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
   * The end of a run that finds no room. None: the agent's `on_budget` decides.
   */
  on_exceeded: ("fail" | "pause") | null;
  /**
   * The length of a window: `hour`, `day`, `week`, `month` or `total`.
   */
  period: string;
  /**
   * The end of the window, in Unix seconds. None for a total, which never ends.
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
   * The amount that all runs have spent and set aside in this window. None where `limit` is hidden.
   */
  used: number | null;
  /**
   * The key of the current window, in UTC: `2026-11-21` for a day, `2026-W47` for a week, `total` for a total.
   */
  window: string;
}
/**
 * The share of one run in a budget, in the budget's unit.
 */
export interface RunMoney {
  /**
   * The amount that the run has drawn from the budget and not spent. 0 once the run has ended.
   */
  reserved: number;
  /**
   * The amount that the run has spent. Calls whose usage is not known count with their reservation.
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
   * The id of the checkpoint. It is the `checkpoint_id` of other requests.
   */
  id: string;
  /**
   * The line of history that the checkpoint belongs to. A rewind starts a new one.
   */
  lineage: number;
  /**
   * The name that a caller gave to the checkpoint. Retention keeps named checkpoints.
   */
  name: string | null;
  /**
   * The calls that the session waited for at the checkpoint.
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
   * The conflicts between changes that parallel tools made to the custom state.
   */
  warnings: string[];
}
/**
 * A call that a session waits for.
 */
export interface Pending {
  /**
   * The arguments of the call. They are stored only with `edited`. Otherwise reads take them from the answer's row.
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
   * The person who changed the arguments in an earlier approval, and the time. The outcome of that execution is unknown. None if the arguments are the model's.
   */
  edited: Edit | null;
  /**
   * The kind of response that is missing. `approval`: a person's approval. `client`: the result of a tool that the client executes. `unknown`: a ruling on the outcome of a call whose worker died. `child`: the call's sub-agent is paused or interrupted.
   */
  kind: "approval" | "client" | "unknown" | "child";
  /**
   * The JSON schema of the arguments. It is never stored. Reads fill it in if they know the agent; otherwise it is empty.
   */
  parameters: {
    [k: string]: unknown;
  };
  /**
   * Why the tool's rule asks for an approval. None if the rule gives no reason.
   */
  reason: string | null;
  /**
   * The tool that the model called.
   */
  tool_name: string;
}
/**
 * The result of `get_cost`: the cost of a session and of its sub-agents' sessions.
 */
export interface CostFound {
  /**
   * Whether the lines of the models add up to the amounts in the rows of the runs.
   */
  agrees: boolean;
  /**
   * Items that cost money and appear in no line, in words.
   */
  left_out: string[];
  /**
   * The lines of the models and tools, then those of AWS, if the session ran there.
   */
  lines: CostLine[];
  /**
   * The price list that the lines of AWS are computed with: its region and date.
   */
  prices: string;
  /**
   * The sum of the lines of each service, in US dollars.
   */
  services: {
    [k: string]: number;
  };
  /**
   * The session that was asked about.
   */
  session_id: string;
  /**
   * The sum of all lines, in US dollars.
   */
  usd: number;
}
/**
 * A line of a session's cost. A field that is empty is left out.
 */
export interface CostLine {
  /**
   * The attempt at `step` that the line is about. None if it is not about one attempt.
   */
  attempt?: number | null;
  /**
   * The source of `quantity`. `measured`: a provider or a tool reported it. `counted`: the stored rows were counted. `estimated`: `how` explains the estimate.
   */
  basis: "measured" | "counted" | "estimated";
  /**
   * An explanation of the numbers, where they need one.
   */
  how?: string;
  /**
   * The amount that was used, in `unit`.
   */
  quantity: number;
  /**
   * The run that the line is about. None if it is about the whole session.
   */
  run_id?: string | null;
  /**
   * The service that is paid: `Model`, `Tool`, or a service of AWS. `Books` is a difference to the runs' rows.
   */
  service: string;
  /**
   * The session that the line belongs to: the one that was asked about, or a sub-agent's.
   */
  session_id: string;
  /**
   * The step that the line is about. None if it is about more than one.
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
   * The item: for a model its name and the outcome, for a tool its name, for AWS a function or a kind of request.
   */
  what: string;
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
   * The `after` of the next page. None on the last page.
   */
  cursor: string | null;
  /**
   * The number of runs of all agents together that may be at work at once. None: any number.
   */
  limit: number | null;
  /**
   * The time of the service.
   */
  now: number;
  /**
   * The number of runs of all agents that wait for a slot.
   */
  queued: number;
  /**
   * Whether the service accepts work. False if an operator has closed it.
   */
  ready: boolean;
  /**
   * The operator's reason for the value of `ready`. Empty if no operator has set it.
   */
  reason: string;
  /**
   * The number of runs of all agents that are at work. None without a `limit`.
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
   * The newest result of each health check.
   */
  checks: FleetCheck[];
  /**
   * The last scaling decisions, newest first, at most as many as the request asked for.
   */
  decisions: FleetDecision[];
  /**
   * The number of runs that may be at work at once. None: any number.
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
   * The number of runs at work. None without a `limit`: such runs are not counted.
   */
  running: number | null;
  /**
   * `stopped`: an operator or a budget has stopped the agent. It starts no new runs.
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
   * The instances that an operator or the registration asks for. None if the fleet does not manage the agent.
   */
  wanted: number | null;
}
/**
 * The newest result of a health check. The check `llm` judges the agent's model calls.
 */
export interface FleetCheck {
  /**
   * The name of the check.
   */
  check: string;
  /**
   * `readiness` (no new work while it fails), `liveness` (a failure calls for a restart) or `custom`.
   */
  check_type: string;
  /**
   * The time of the result, in Unix seconds. None before the first.
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
 * A scaling decision: a limit that was changed, or that a rule wanted to change.
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
   * Whether the decision is, or was, in force.
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
   * The obstacle to `wanted`, as in `helix.core.scaling`. None if nothing stood in the way.
   */
  blocked_by: string | null;
  /**
   * The numbers that the rules judged.
   */
  metrics: {
    [k: string]: number;
  };
  /**
   * An explanation for people.
   */
  reason: string;
  /**
   * The rule that decided, as in `helix.core.scaling`. `operator` is a person.
   */
  rule: string;
  /**
   * The event that made `govern` look: an alarm's name, `schedule` or `monitor`. Empty if `govern` did not decide.
   */
  trigger: string;
  /**
   * The number of instances that the rules asked for, where `blocked_by` prevented it.
   */
  wanted: number | null;
}
/**
 * A worker process, as in `helix.fleet.ProcessInfo`. Where functions execute the runs, there are no processes.
 */
export interface FleetProcess {
  /**
   * The processor usage, in percent of one core: 200 is two cores.
   */
  cpu_percent: number;
  /**
   * The reason for the last crash. None if the process never crashed, or was started by hand since.
   */
  last_error: string | null;
  /**
   * The memory of the process and of its children, in MiB.
   */
  memory_mb: number;
  /**
   * The process id of the operating system. None while no process runs.
   */
  pid: number | null;
  /**
   * The id of the process. It stays the same when the process is started again.
   */
  process_id: string;
  /**
   * The number of starts after the first.
   */
  restart_count: number;
  /**
   * The time of the last start, in Unix seconds. None if the process was never started.
   */
  started_at: number | null;
  /**
   * `starting`, `running`, `stopping`, `stopped`, `failed` (given up) or `crashed` (about to be started again).
   */
  status: string;
}
/**
 * A run that waits for a slot. Times are in Unix seconds.
 */
export interface WaitingRun {
  /**
   * The time after which the run is ended, because it has waited too long.
   */
  expires_at: number;
  /**
   * The priority of the run, from -999 to 999. A higher one gets the next free slot.
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
   * The index of the first of `messages` in the conversation.
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
   * The conversation, and the sequence from which the stream continues it.
   */
  snapshot?: SessionSnapshot | null;
  /**
   * The sub-agents' sessions, in the order of their calls.
   */
  sub_sessions?: SubSessionRef[];
}
/**
 * Whether `resume` would continue a session.
 */
export interface CanResumeResult {
  /**
   * True if `resume` would continue the session. With the reason `pending_confirmation` it needs an answer.
   */
  can_resume: boolean;
  /**
   * The reason why the session cannot be resumed. None if it can without an answer. pending_confirmation: the session can be resumed, with an answer to a call that waits. failed_use_retry: the session failed. `retry` continues it.
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
 * The place of a run that waits for a slot.
 */
export interface Queued {
  /**
   * The time after which the run is ended, because it has waited too long. In Unix seconds.
   */
  expires_at: number;
  /**
   * The place in the queue of its agent. 1 gets the next free slot.
   */
  place: number;
  /**
   * The reason why no run of the agent starts: a budget has stopped it. None if the agent only has no free slot.
   */
  reason: string | null;
}
/**
 * The result of a run, as in `helix.AgentResult`. While it is `running`, fields from `output` on are left out.
 */
export interface RunFound {
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
   * The output of a completed run: JSON of the agent's schema. Without one, the last text or a tool's result.
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
   * The status of the run. `running` also means that it waits for a slot.
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
   * The number of the run in its session, from 1 on.
   */
  turn: number;
  usage?: Usage;
}
/**
 * One execute, resume or retry of a session. Its claim writes the row, and its end completes it.
 */
export interface RunRow {
  /**
   * The name of the session's agent.
   */
  agent_type: string;
  /**
   * The amounts that the run drew from budgets, taken over from the session at the run's end. Its effects return the rest.
   */
  blocks: Block[];
  /**
   * The id of the session's last checkpoint at the run's end. None while the run is active.
   */
  checkpoint: string | null;
  /**
   * The step claim that was open at the run's end. Its effects count the reservation as spent. None if no call was open.
   */
  claim: StepClaim | null;
  /**
   * The cause of the end: `text`, `output`, `finish_with`, `stop_when` or `max_steps`; for a pause, its `reason`. None for other ends.
   */
  completion_reason: string | null;
  /**
   * The moment at which the tool of a sub-agent's parent stops waiting (Unix seconds). None for root runs, and in process, where the parent's worker watches the time.
   */
  deadline: number | null;
  /**
   * The (step, fingerprint) pairs of later steps at which a delivery found a changed agent.
   */
  editions: [unknown, unknown][];
  /**
   * `open` until all that follows from the run's end is done, then `done` (docs/protocol.md#ends).
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
   * A digest of the agent's prompt, model, tools and output schema at the claim.
   */
  fingerprint: string;
  /**
   * The number of the first step that the run may buy.
   */
  first_step: number;
  /**
   * The `message` and `state` that the run was given. None if it continues without a message.
   */
  input: {
    [k: string]: unknown;
  } | null;
  /**
   * The tag of this kind of row in the store.
   */
  kind: "run";
  /**
   * The (step, attempt) staged or committed last, taken over from the session at the run's end. None if there was none.
   */
  last: [unknown, unknown] | null;
  /**
   * The number of answers that came when the run was no longer their delivery's.
   */
  late_calls: number;
  /**
   * The micro-dollars that those answers cost.
   */
  late_micros: number;
  /**
   * The tokens that those answers used.
   */
  late_tokens: number;
  /**
   * The kind of claim that began the run (docs/protocol.md#claims).
   */
  mode: string;
  /**
   * The model that its agent was set to call. Empty if the agent decides at each call.
   */
  model: string;
  /**
   * The output of the run. None if it gave none.
   */
  output: unknown;
  /**
   * The micro-dollars that those answers cost beyond what had been reserved for them.
   */
  over_micros: number;
  /**
   * The tokens that those answers used beyond what had been reserved for them.
   */
  over_tokens: number;
  /**
   * The number of the execution at work, from 1. A long run on AWS moves to a new execution (docs/protocol.md#roll-over).
   */
  part: number;
  /**
   * The first step that this execution buys. 0: `first_step`.
   */
  part_step: number;
  /**
   * The parts of the run that `model` did not use, by name (`core.usage_parts`). The run's end writes them.
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
   * The rank of the run while it waits for a slot, from -999 to 999. A higher one goes first.
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
   * The number of messages in history before the run's own message.
   */
  start_count: number;
  /**
   * The lineage in which the run began. The `start_*` fields say where history stood before the run's own message. A retry `from_start` goes back there.
   */
  start_lineage: number;
  /**
   * The last sequence of the stream before the run. Readers of the run start after it. 0: the stream had no messages.
   */
  start_sequence: number;
  /**
   * The id of the checkpoint with the custom state that the run began with. Empty: the agent's initial state.
   */
  start_state_at: string;
  /**
   * The number of the last step in history when the run began.
   */
  start_step: number;
  /**
   * The time of the claim (Unix seconds).
   */
  started_at: number;
  /**
   * The status of the session while this is its current run; final afterwards. An interrupted or paused run becomes `superseded` when the next run is claimed.
   */
  status: string;
  /**
   * The number of steps that the run bought. The run's end writes it.
   */
  steps: number;
  /**
   * The run ids of the root and the parent, to which the spans of a sub-agent's run belong. None for a root run.
   */
  trace: Trace | null;
  /**
   * The number of the run within its session, from 1. It is not stored if the run's id contains it.
   */
  turn: number;
  /**
   * The usage of the run, including that of its tools and sub-agents. The run's end writes it. Late answers are not in it.
   */
  usage: (number | boolean)[];
}
/**
 * The amounts that the current run has drawn from one window of a budget. `spent + reserved + assumed <= drawn`,
 * unless a call used more than was reserved for it. The reserved amount is in the session's `claim`.
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
   * Whether no more calls are reserved from the block, because another window has begun or the budget is gone.
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
   * The number of the attempt, from 1 within the step.
   */
  attempt: number;
  /**
   * `<owner>.<session version>`, made once by the worker that claims. If the worker gets no reply to its transaction, it looks for this id.
   */
  attempt_id: string;
  /**
   * The latest moment (Unix seconds) at which the holder can still act. 0: the claim was released or expired.
   */
  deadline: number;
  /**
   * The number of this run's attempts at the step that got no answer in their worker's time, or whose worker fell silent. The run fails at three.
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
   * The tokens reserved for the call. 0 in the same cases as `micros`.
   */
  tokens: number;
}
/**
 * The reason why a run failed.
 */
export interface ErrorInfo {
  /**
   * The stable name of the error, such as `budget_exceeded` or `runtime_crash`. An abort is `aborted`.
   */
  code: string;
  /**
   * A description for people. Halves of characters are joined or replaced, so that the text can be stored.
   */
  message: string;
  /**
   * Whether `retry` makes sense. False after an abort and for damaged rows.
   */
  recoverable: boolean;
}
/**
 * The committed state of a session, after its last run or during the current one. Times are in Unix seconds.
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
   * The name of the session's agent. It never changes.
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
   * The deadline of the worker's claim on the run, for runs in process. 0 for other runs, and once the run has ended.
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
   * The output of the last run, as JSON. None if the run did not complete, or completed with a text only.
   */
  output: unknown;
  /**
   * The session that a sub-agent works for. None for a root session.
   */
  parent_session_id: string | null;
  /**
   * The calls of a paused or interrupted session that wait for a person, here or in a sub-agent's session.
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
   * The stream of the session's chunks: the id of the session, or of its root for a sub-agent's session.
   */
  stream_id: string;
  /**
   * The tags that the session was created with.
   */
  tags: string[];
  /**
   * The number of the current or last run, from 1 on. 0 in a copy that has not run yet.
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
 * The conversation at a checkpoint, and the place on the stream that follows it.
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
   * The messages at the checkpoint, oldest first: all of them, or the newest ones if the caller asked for these.
   */
  messages: (SystemMessage | UserMessage | AssistantMessage | ToolResultMessage)[];
  /**
   * The index of the first of `messages` in the conversation.
   */
  offset: number;
  /**
   * The calls that the session waits for at the time of the read.
   */
  pending: Pending[];
  /**
   * The current or last run of the session. Empty in a copy that has not run yet.
   */
  run_id: string;
  /**
   * The sequence from which the stream continues the snapshot. Read the messages after it.
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
 * A sub-agent's session, from its parent's view.
 */
export interface SubSessionRef {
  /**
   * The name of the sub-agent.
   */
  agent_type: string;
  /**
   * The call of the parent that the sub-agent works on.
   */
  parent_tool_call_id: string;
  /**
   * The session of the sub-agent.
   */
  session_id: string;
  /**
   * The status of the session. `deleted`: its rows are gone. `not_started`: the call has not begun it.
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
   * Whether the stream of the step was read to its end. If not, texts and `starts` cover its first messages only.
   */
  complete: boolean;
  /**
   * The session that was asked about.
   */
  session_id: string;
  /**
   * The number of the step that was asked about.
   */
  step: number;
}
/**
 * An attempt to buy a step: one call of the model, with what readers of the stream saw of it.
 */
export interface Attempt {
  /**
   * The tokens that were reserved for an attempt whose usage is not known. They count as used. Otherwise 0.
   */
  assumed_tokens: number;
  /**
   * The US dollars that were reserved for an attempt whose usage is not known. They count as spent. Otherwise 0.
   */
  assumed_usd: number;
  /**
   * The time when the outcome was recorded, in Unix seconds. 0 while the attempt is `open`.
   */
  at: number;
  /**
   * The number of the attempt within its step, from 1 on.
   */
  attempt: number;
  /**
   * Whether readers were told to drop `text`.
   */
  discarded: boolean;
  /**
   * The texts of earlier, failed model calls within this attempt. Readers were shown them and told to drop them.
   */
  dropped: string[];
  /**
   * The error of a `failed` attempt.
   */
  error: string | null;
  /**
   * The model that answered, or that the agent names. None if it is not known.
   */
  model: string | null;
  /**
   * `open` while the attempt goes on, otherwise as in `helix.services.session_calls.ModelCall`.
   */
  outcome: "open" | "answered" | "failed" | "lost" | "cancelled" | "dead";
  /**
   * The reason that readers were given when `text` was discarded.
   */
  reason: string | null;
  /**
   * The run that made the attempt.
   */
  run_id: string;
  /**
   * The run that continued after the worker of this attempt died. None if no run took over.
   */
  taken_over_by: string | null;
  /**
   * The text that readers of the stream were shown, at most its first 20,000 characters.
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
   * The author and the time of a change to the arguments. None if the model's arguments were executed.
   */
  edited: Edit | null;
  /**
   * The decision about a call whose outcome was unknown. None if the outcome was known. asked: a person has been asked and has not answered yet. executed_again: the tool was started once more. reported: a person gave the result. unknown: the model was told that the outcome is unknown.
   */
  ruling: ("asked" | "executed_again" | "reported" | "unknown") | null;
  /**
   * The number of times that readers of the stream saw the call begin.
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
   * The first hour that is counted, in UTC (`2026-11-21T14`). None: all hours are counted.
   */
  since: string | null;
  /**
   * The sum of all lines, in US dollars.
   */
  usd: number;
  /**
   * The user whose usage this is.
   */
  user: string;
}
/**
 * The usage of one agent with one model and operation.
 */
export interface UsageLine {
  /**
   * The type of the agent that used it.
   */
  agent: string;
  /**
   * The most tokens that calls without a known outcome may have used.
   */
  assumed_tokens: number;
  /**
   * The most US dollars that calls without a known outcome may have cost.
   */
  assumed_usd: number;
  /**
   * Tokens of prompts that the provider had in its cache.
   */
  cached: number;
  /**
   * The number of model calls.
   */
  calls: number;
  /**
   * The number of those `runs` that ended in an error of their own. Aborted runs do not count.
   */
  failed: number;
  /**
   * Tokens of prompts, `cached` ones included.
   */
  input: number;
  /**
   * The model. `-` if it is not known, and for tools.
   */
  model: string;
  /**
   * `completion` for model calls, `tool` for usage that tools reported.
   */
  operation: string;
  /**
   * Tokens of answers.
   */
  output: number;
  /**
   * The number of runs that have ended.
   */
  runs: number;
  /**
   * The number of calls without a known price. One such call makes all calls of its run to that model count.
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
   * Whether the run was asked to stop. False if it had ended.
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
   * The `after` of the next page. None on the last page.
   */
  cursor: string | null;
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
   * The JSON schema of the fields that `run` takes besides `agent`: `message` and `state`, or `input`.
   */
  input: {
    [k: string]: unknown;
  };
  /**
   * `chat`: a model answers a message. `function`: a Python function is called with `input`.
   */
  kind: "chat" | "function";
  /**
   * The name to give to `run` as `agent`.
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
   * The `after` of the next page. None on the last page.
   */
  cursor: string | null;
}
/**
 * A checkpoint without its custom state.
 */
export interface ListedCheckpoint {
  /**
   * The number of messages at the checkpoint.
   */
  count: number;
  /**
   * The time when the checkpoint was written, in Unix seconds.
   */
  created_at: number;
  /**
   * The id of the checkpoint. It is the `checkpoint_id` of other requests.
   */
  id: string;
  /**
   * The line of history that the checkpoint belongs to. A rewind starts a new one.
   */
  lineage: number;
  /**
   * The name that a caller gave to the checkpoint. Retention keeps named checkpoints.
   */
  name: string | null;
  /**
   * The calls that the session waited for at the checkpoint.
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
   * The conflicts between changes that parallel tools made to the custom state.
   */
  warnings: string[];
}
/**
 * The result of `list_sessions`.
 */
export interface SessionList {
  /**
   * The `after` of the next page. None on the last page.
   */
  cursor: string | null;
  /**
   * The ids of sessions on this page whose rows cannot be read.
   */
  damaged: string[];
  /**
   * A page of sessions, newest id first. It may be short, or empty, although there are more.
   */
  sessions: ListedSession[];
}
/**
 * A `SessionState` without `custom_state` and `output`, and with a title. Times are in Unix seconds.
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
   * The name of the session's agent. It never changes.
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
   * The deadline of the worker's claim on the run, for runs in process. 0 for other runs, and once the run has ended.
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
   * The calls that wait for a person, in this session or in a sub-agent's.
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
   * The tags that the session was created with.
   */
  tags: string[];
  /**
   * The beginning of the first message, at most 80 characters. Present only if the request asked for `titles`.
   */
  title?: string;
  /**
   * The number of the current or last run, from 1 on. 0 in a copy that has not run yet.
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
   * The time of the service, in Unix seconds.
   */
  now: number;
}
/**
 * The result of `read_rows`.
 */
export interface RowPage {
  /**
   * The `after` of the next page. None on the last page.
   */
  cursor: string | null;
  /**
   * A page of stored rows, sorted by key. Each row is `[sort, value]`: its sort key and its JSON value.
   */
  rows: [unknown, unknown][];
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
   * The run that wrote the message. Empty for a `stream_resync` chunk of the log itself.
   */
  run_id: string;
  /**
   * The place of the message in the stream: 1, 2, 3, ... without gaps.
   */
  sequence: number;
  /**
   * The session that wrote the message. A sub-agent writes on the stream of its root session.
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
 * The result of `run`, `resume` and `retry`.
 */
export interface Started {
  /**
   * The sequence after which the run's messages begin.
   */
  after: number;
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
   * The stream that has the run's messages.
   */
  stream_id: string;
  /**
   * The number of the run in its session, from 1 on.
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
   * `chunk` carries a chunk. `end`, `fail` and `paused` close the run's part of the stream.
   */
  kind: "chunk" | "end" | "fail" | "paused";
  /**
   * The run that the message belongs to. Empty if the log made the message itself.
   */
  run_id: string;
  /**
   * The position on the stream: 1, 2, 3, ... without gaps.
   */
  sequence: number;
  /**
   * The session that the message is about. The end of a sub-agent is not the end of the root.
   */
  session_id: string;
  /**
   * The status of a run that ended or paused. None for chunks.
   */
  status: string | null;
  /**
   * The stream, which has the id of its root session.
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
