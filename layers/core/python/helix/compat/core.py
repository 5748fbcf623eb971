"""The names of the Helix Agents framework in Python naming style. Each is an alias of its counterpart in Helix.

    from helix.compat.core import define_agent, define_tool, create_sub_agent_tool

The table of names (docs/appendix/names.md) says where each counterpart is and how it differs.
"""

from __future__ import annotations

from helix.core.lazy import LazyNames

_NAMES = LazyNames(
    __name__,
    {
        "helix": "Agent AgentAlreadyRunningError AgentConfig=Agent AgentExecutionHandle AgentNotFoundError "
        "AgentRegistry AgentResult FINISH_TOOL_NAME LLMConfig MockLLMAdapter=ScriptedModel "
        "RoutingMockLLMAdapter=ScriptedModel SUBAGENT_TOOL_PREFIX StreamChunk SubAgentTool=Tool Tool "
        "ToolConfig=Tool ToolContext VercelAIAdapter=LiteLLMAdapter create_finish_tool create_sub_agent_tool "
        "create_tool_context define_agent "
        "define_tool is_finish_tool is_sub_agent_tool recover_conversation",
        "helix.client": "FrontendHandler=HelixClient",
        "helix.core.chunks": "CustomEventChunk ErrorChunk OutputChunk StatePatchChunk "
        "StreamChunkSchema=parse_chunk SubAgentEndChunk SubAgentStartChunk TextDeltaChunk ThinkingChunk "
        "ToolEndChunk ToolStartChunk is_custom_event_chunk is_error_chunk is_output_chunk is_state_patch_chunk "
        "is_sub_agent_end_chunk is_sub_agent_start_chunk is_text_delta_chunk is_thinking_chunk is_tool_end_chunk "
        "is_tool_start_chunk",
        "helix.core.call_results": "create_sub_agent_result_message create_tool_result_message",
        "helix.core.errors": "StaleStateError",
        "helix.core.initial": "create_initial_agent_state initialize_agent_state",
        "helix.core.merge": "MergeChanges merge_custom_state",
        "helix.core.messages": "AssistantMessage Message SystemMessage ThinkingContent ToolCallRequest "
        "ToolResultMessage UserMessage get_tool_results_from_messages is_assistant_message is_tool_result_message "
        "strip_thinking",
        "helix.core.patches": "convert_immer_patch_to_rfc6902=to_rfc6902",
        "helix.core.planning": "StepProcessingPlan create_assistant_message plan_step_processing",
        "helix.core.prompt": "build_effective_tools build_messages_for_llm",
        "helix.core.registry": "AgentFactoryContext",
        "helix.core.status": "AgentStatus",
        "helix.core.steps": "ErrorStepResult ParsedSubAgentCall ParsedToolCall StepResult StopReason "
        "StructuredOutputStepResult TextStepResult ToolCallsStepResult is_error_stop_reason",
        "helix.core.stop_reasons": "map_anthropic_stop_reason map_gemini_finish_reason map_openai_finish_reason "
        "map_vercel_finish_reason",
        "helix.compat.stopping": "determine_final_status should_stop_execution",
        "helix.core.tracker": "Draft ImmerStateTracker=StateTracker create_immer_state_tracker=create_state_tracker",
        "helix.core.wire": "StreamMessageSchema=StreamMessage is_stream_end",
        "helix.services.hook_manager": "DefaultHookManager=HookManager HookContext HookManager",
        "helix.services.run_stream": "StreamWriter=RunStream",
        "helix.sessions.read": "AgentState=SessionState PaginatedMessages SessionState "
        "SubAgentRef=SubSessionRef SubSessionRef UntypedAgentState=SessionState get_sub_agent_refs_by_type",
        "helix.ports.model": "LLMAdapter LLMGenerateInput LLMStreamCallbacks",
        "helix.ports.state_store": "StateStore",
        "helix.ports.streams": "StreamManager",
        "helix.runtime.executor": "AgentExecutor=Executor",
        "helix.runtime.handle": "CanResumeResult",
        "helix.stream.filters": "collect_all collect_text combine_streams exclude_types filter_by_agent_id "
        "filter_by_agent_type filter_by_type filter_with skip take",
        "helix.stream.handler": "create_resumable_stream_handler extract_resume_position",
        "helix.stream.reader": "ResumableStreamReader StreamReader create_reader",
        "helix.stream.state": "CustomStateStreamer StateProjection StreamProjector create_state_projection "
        "create_state_streamer",
    },
)
__all__ = _NAMES.names()
__getattr__, __dir__ = _NAMES.load, _NAMES.names
