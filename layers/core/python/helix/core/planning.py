"""Plans a step: turns a step result into the plan that every runtime executes.

Law: pure. The plan either executes a call of the model or settles it immediately with a result; no call is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pydantic import BaseModel, ValidationError

from helix.core.damage import every_problem
from helix.core.json import MAX_BYTES, JsonObject, JsonValue, check_json, dumps, size, text_size
from helix.core.messages import (
    AssistantMessage,
    Citation,
    ServerBlock,
    ThinkingContent,
    ToolCallRequest,
    check_message,
)
from helix.core.rows import ErrorInfo
from helix.core.status import AgentStatus
from helix.core.steps import (
    AnyStepResult,
    ErrorStepResult,
    ParsedSubAgentCall,
    ParsedToolCall,
    StopReason,
    StructuredOutputStepResult,
    TextStepResult,
    ToolCallsStepResult,
    is_error_stop_reason,
)
from helix.core.tools import FINISH_TOOL_NAME, SUBAGENT_TOOL_PREFIX, AnyTool

MAX_CALLS_PER_STEP = 500
"""The maximum number of calls in one answer that are executed. Every further call gets a failed result that explains
this limit."""
MAX_ARGUMENT_BYTES = 4_000_000
"""The maximum total size of the arguments in one answer, in bytes of JSON. A call beyond it is stored without arguments
and fails."""
ACKNOWLEDGED = {"acknowledged": True}
TOO_MANY_CALLS = f"this call was not executed: one answer may have {MAX_CALLS_PER_STEP} calls at most"
TOO_LONG_ARGUMENTS = (
    f"this call was not executed: the arguments of one answer's calls may have {MAX_ARGUMENT_BYTES} bytes at most"
)


_SHARED = (*("thinking", "server_blocks", "citations", "stop_reason", "usage", "model", "without_reasoning", "phase"),)
"""The fields of an answer that is an output which its equivalent call has too."""


@dataclass(frozen=True, slots=True)
class AssistantMessagePlan:
    """The assistant message that a step adds to history."""

    content: str | None
    """The text of the answer, if any."""
    tool_calls: list[ToolCallRequest] = field(default_factory=list)
    """The calls as stored, with ids that are unique in the session."""
    thinking: list[ThinkingContent] = field(default_factory=list)
    """The reasoning of the answer."""
    server_blocks: list[ServerBlock] = field(default_factory=list)
    """The items of the provider's own tools in the answer."""
    citations: list[Citation] = field(default_factory=list)
    """The sources of the answer's text."""

    @classmethod
    def of(cls, result: TextStepResult | ToolCallsStepResult, calls: list[ToolCallRequest]) -> Self:
        """Return the message of an answer, whose calls have these ids."""
        return cls(result.content, calls, result.thinking, result.server_blocks, result.citations)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A result that is known without executing the call."""

    content: str
    """The text of the result as stored."""
    success: bool
    """Whether the call counts as a success."""


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """A change of the run's status."""

    status: AgentStatus
    """The status of the run after the step."""
    error: ErrorInfo | None = None
    """The reason why the run failed. None if it did not."""


@dataclass(frozen=True, slots=True)
class FinishPlan:
    """A valid `__finish__`. The run completes once the step's other calls are done."""

    call_id: str
    """The id of the `__finish__` call."""
    output: JsonValue
    """The output of the run as JSON."""
    superseded_calls: list[str] = field(default_factory=list)
    """The ids of later `__finish__` calls in the same answer. Only the first valid one counts."""


@dataclass(frozen=True, slots=True)
class HandoffPlan:
    """A handoff. The step's other calls are executed first."""

    call_id: str
    """The id of the handoff's call."""
    agent: str
    """The agent that makes the next step."""


@dataclass(frozen=True, slots=True)
class StepProcessingPlan:
    """The plan for one step result."""

    assistant_message_plan: AssistantMessagePlan | None
    """The message to add to history. None only if the step failed."""
    pending_tool_calls: list[ParsedToolCall] = field(default_factory=list)
    """The tool calls to execute."""
    pending_sub_agent_calls: list[ParsedSubAgentCall] = field(default_factory=list)
    """The calls of sub-agents to execute."""
    resolved: dict[str, Resolved] = field(default_factory=dict)
    """The results of the calls that are not executed, by call id."""
    status_update: StatusUpdate | None = None
    """The new status of the run, if the step ends it immediately. None otherwise."""
    is_terminal: bool = False
    """Whether the step ends the run immediately, with no calls to wait for."""
    output: JsonValue = None
    """The output of a valid `__finish__`, if there was one."""
    finish: FinishPlan | None = None
    """The valid `__finish__`, if there was one."""
    handoff: HandoffPlan | None = None
    """The handoff to another agent, if there was one."""
    missed: bool = False
    """Whether an expected output is missing or not valid."""


def plan_step_processing(
    step_result: AnyStepResult,
    *,
    output_schema: type[BaseModel] | None = None,
    tools: Callable[[str], AnyTool | None] = lambda name: None,
    known_result: Callable[[ToolCallRequest], Resolved | None] = lambda call: None,
    used_call_ids: Collection[str] = (),
) -> StepProcessingPlan:
    """Plan a step result. `tools` looks up a tool by name. Calls of unknown tools, calls with invalid arguments, and
    valid calls with a `known_result` are settled here. `used_call_ids` are the call ids in the session's history; a
    repeated id gets a suffix."""
    if isinstance(step_result, ErrorStepResult):
        return failed(step_result.code, step_result.error)
    if is_error_stop_reason(step_result.stop_reason):
        reason = str(step_result.stop_reason)
        return failed(reason, _STOP_MESSAGES.get(reason, f"the model stopped with {reason!r}"))
    if isinstance(step_result, TextStepResult):
        message = AssistantMessagePlan.of(step_result, [])
        if not step_result.should_stop:
            return StepProcessingPlan(message)
        if output_schema is not None:
            return StepProcessingPlan(message, missed=True)
        return StepProcessingPlan(message, status_update=StatusUpdate("completed"), is_terminal=True)
    return _plan_calls(normalise(step_result), output_schema, tools, known_result, used_call_ids)


def normalise(step_result: ToolCallsStepResult | StructuredOutputStepResult) -> ToolCallsStepResult:
    """Convert a structured output to an equivalent `__finish__` call, so that history records it."""
    if isinstance(step_result, ToolCallsStepResult):
        return step_result
    arguments = step_result.output if isinstance(step_result.output, dict) else {"output": step_result.output}
    shared = {name: getattr(step_result, name) for name in _SHARED}
    return ToolCallsStepResult(
        tool_calls=[ParsedToolCall(id="finish", name=FINISH_TOOL_NAME, arguments=arguments)], **shared
    )


def output_text(step_result: AnyStepResult) -> str:
    """Return the JSON text of the answer's structured output: the arguments of its first `__finish__` call. Empty if
    it has no output."""
    if not isinstance(step_result, ToolCallsStepResult | StructuredOutputStepResult):
        return ""
    calls = normalise(step_result).tool_calls
    first = next((call for call in calls if call.name == FINISH_TOOL_NAME), None)
    if first is None:
        return ""
    return dumps(first.arguments) if first.malformed is None else first.malformed


def _plan_calls(
    result: ToolCallsStepResult,
    output_schema: type[BaseModel] | None,
    tools: Callable[[str], AnyTool | None],
    known_result: Callable[[ToolCallRequest], Resolved | None],
    used: Collection[str],
) -> StepProcessingPlan:
    requests, resolved = _limit_calls(_requests(result, used))
    pending: list[ParsedToolCall] = []
    children: list[ParsedSubAgentCall] = []
    finish: FinishPlan | None = None
    handoff: HandoffPlan | None = None
    finishes = 0
    for request in requests:
        if request.name == FINISH_TOOL_NAME and output_schema is not None:
            finishes += 1
        if request.id in resolved:
            continue
        if request.name == FINISH_TOOL_NAME and output_schema is not None:
            if finish is not None:
                finish.superseded_calls.append(request.id)
                resolved[request.id] = Resolved(dumps({"status": "superseded"}), False)
                continue
            checked = _validate(output_schema, request)
            if isinstance(checked, Resolved):
                resolved[request.id] = checked
                continue
            try:
                output = checked.model_dump(mode="json", round_trip=True, by_alias=False)
                check_json(output, "the output")
            except ValueError as error:  # pydantic takes "inf" as a float, which is not JSON
                resolved[request.id] = failure(f"invalid arguments for {request.name!r}: {error}")
                continue
            finish = FinishPlan(request.id, output)
            resolved[request.id] = Resolved(dumps(ACKNOWLEDGED), True)
            continue
        tool = tools(request.name)
        known = refuse_call(request, tools) or known_result(request)
        if known is not None:
            resolved[request.id] = known
        elif tool is not None and tool.kind == "handoff":
            if handoff is not None:
                resolved[request.id] = failure(f"the conversation is handed over to {handoff.agent!r} already")
                continue
            handoff = HandoffPlan(request.id, tool.hands_to)
            resolved[request.id] = Resolved(dumps({"transferred_to": tool.hands_to}), True)
        elif request.name.startswith(SUBAGENT_TOOL_PREFIX):
            agent_type = request.name[len(SUBAGENT_TOOL_PREFIX) :]
            children.append(ParsedSubAgentCall(id=request.id, agent_type=agent_type, input=request.arguments))
        else:
            pending.append(ParsedToolCall(id=request.id, name=request.name, arguments=request.arguments))
    if finish is not None and handoff is not None:
        resolved[handoff.call_id] = failure(f"not handed over to {handoff.agent!r}: this answer ends the run")
        handoff = None
    alone = finish is not None and not pending and not children
    return StepProcessingPlan(
        AssistantMessagePlan.of(result, requests),
        pending_tool_calls=pending,
        pending_sub_agent_calls=children,
        resolved=resolved,
        status_update=StatusUpdate("completed") if alone else None,
        is_terminal=alone,
        output=finish.output if finish is not None else None,
        finish=finish,
        handoff=handoff,
        missed=finishes > 0 and finish is None,
    )


def refuse_output(plan: StepProcessingPlan, reason: str) -> StepProcessingPlan:
    """Return the plan with a failed result for its output, so that the run goes on."""
    assert plan.finish is not None
    resolved = {**plan.resolved, plan.finish.call_id: failure(reason)}
    return replace(
        plan, resolved=resolved, status_update=None, is_terminal=False, output=None, finish=None, missed=True
    )


def _limit_calls(requests: list[ToolCallRequest]) -> tuple[list[ToolCallRequest], dict[str, Resolved]]:
    """Return the calls to store, and failed results for the calls beyond the limits of a step."""
    resolved = {request.id: failure(TOO_MANY_CALLS) for request in requests[MAX_CALLS_PER_STEP:]}
    if len(requests) * MAX_BYTES <= MAX_ARGUMENT_BYTES:  # each one is within the limit of a single value
        return requests, resolved
    stored, total = [], 0
    for request in requests:
        total += size(request.arguments) + text_size(request.malformed or "")
        if total > MAX_ARGUMENT_BYTES:
            request = request.model_copy(update={"arguments": {}, "malformed": None})
            resolved.setdefault(request.id, failure(TOO_LONG_ARGUMENTS))
        stored.append(request)
    return stored, resolved


def _requests(result: ToolCallsStepResult, used: Collection[str]) -> list[ToolCallRequest]:
    """Return all calls in the model's order, with ids that are unique in the session."""
    found: dict[str, deque[ToolCallRequest]] = {}
    ids: list[str] = []
    for call in result.tool_calls:
        request = ToolCallRequest(id=call.id, name=call.name, arguments=call.arguments, malformed=call.malformed)
        found.setdefault(call.id, deque()).append(request)
        ids.append(call.id)
    for child in result.sub_agent_calls:
        name = SUBAGENT_TOOL_PREFIX + child.agent_type
        request = ToolCallRequest(id=child.id, name=name, arguments=child.input, malformed=child.malformed)
        found.setdefault(child.id, deque()).append(request)
        ids.append(child.id)
    order = result.order if sorted(result.order) == sorted(ids) else ids
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    requests = []
    for ident in order:
        request = found[ident].popleft()
        name = fresh = request.id or "call"
        while fresh in taken or fresh in used:
            numbers[name] = numbers.get(name, 1) + 1
            fresh = f"{name}_{numbers[name]}"
        taken.add(fresh)
        requests.append(request if request.id == fresh else request.model_copy(update={"id": fresh}))
    return requests


def refuse_call(request: ToolCallRequest, tools: Callable[[str], AnyTool | None]) -> Resolved | None:
    """Return a failed result if the call cannot be executed as requested, otherwise None."""
    tool = tools(request.name)
    if tool is None:
        return failure(f"there is no tool {request.name!r}: use only the tools you were given")
    checked = _validate(tool.input_schema, request)
    if isinstance(checked, Resolved):
        return checked
    if request.name.startswith(SUBAGENT_TOOL_PREFIX):
        try:
            check_message(child_message(tool, request.arguments))
        except ValueError as error:
            return failure(f"invalid arguments for {request.name!r}: {error}")
    return None


def _validate(schema: type[BaseModel], request: ToolCallRequest) -> BaseModel | Resolved:
    if request.malformed is not None:
        return failure(f"the arguments of {request.name!r} are not a JSON object: {request.malformed[:200]!r}")
    try:
        return schema.model_validate(request.arguments)
    except ValidationError as error:
        return failure(f"invalid arguments for {request.name!r}: {every_problem(error, 'arguments')}")


def failure(message: str) -> Resolved:
    return Resolved(dumps({"error": message}), False)


def failed(code: str, message: str) -> StepProcessingPlan:
    """Return the plan of a step that ends the run with this error."""
    update = StatusUpdate("failed", ErrorInfo(code=code, message=message))
    return StepProcessingPlan(None, status_update=update, is_terminal=True)


_STOP_MESSAGES: dict[str, str] = {
    StopReason.MAX_TOKENS: "the model ran into its output limit: raise max_output_tokens or ask for less",
    StopReason.CONTENT_FILTER: "the provider's content filter stopped the answer",
    StopReason.REFUSAL: "the model refused to answer",
    StopReason.ERROR: "the provider ended the answer with an error",
}


# --- message builders ---------------------------------------------------------------------------------------------


def create_assistant_message(plan: AssistantMessagePlan, **fields: Any) -> AssistantMessage:
    return AssistantMessage(
        content=plan.content,
        tool_calls=plan.tool_calls,
        thinking=plan.thinking,
        server_blocks=plan.server_blocks,
        citations=plan.citations,
        **fields,
    )


def child_message(tool: AnyTool, arguments: JsonObject) -> str:
    """Return a sub-agent's user message: the `message` field if it is the only field, otherwise the validated input as
    JSON."""
    value = tool.input_schema.model_validate(arguments).model_dump(mode="json")
    message = value.get("message")
    return message if list(value) == ["message"] and isinstance(message, str) else dumps(value)


def step_result_of(
    content: str | None, calls: Sequence[ToolCallRequest], stop_reason: str | None, **fields: Any
) -> AnyStepResult:
    """Rebuild the step result of a stored answer, so that `stop_when` also works after a fold in another process."""
    reason = StopReason(stop_reason) if stop_reason else None
    if not calls:
        return TextStepResult(content=content or "", stop_reason=reason, **fields)
    tools = [c for c in calls if not c.name.startswith(SUBAGENT_TOOL_PREFIX)]
    children = [c for c in calls if c.name.startswith(SUBAGENT_TOOL_PREFIX)]
    return ToolCallsStepResult(
        content=content,
        tool_calls=[ParsedToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in tools],
        sub_agent_calls=[
            ParsedSubAgentCall(id=c.id, agent_type=c.name[len(SUBAGENT_TOOL_PREFIX) :], input=c.arguments)
            for c in children
        ],
        order=[c.id for c in calls],
        stop_reason=reason,
        **fields,
    )
