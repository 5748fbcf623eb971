"""Applies the verdicts of guards to the plan of a step.

Law: pure. A refused call has a result and is not executed. A refused text or output is in no message of history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from helix.core.json import JsonObject, JsonValue, dumps
from helix.core.messages import ToolCallRequest
from helix.core.planning import AssistantMessagePlan, Resolved, StatusUpdate, StepProcessingPlan
from helix.core.rows import ErrorInfo
from helix.core.tools import FINISH_TOOL_NAME
from helix.core.verdicts import BLOCKED, Verdict, describe_change


def blocked_result(verdict: Verdict) -> Resolved:
    """Return the result that the model reads in place of what the guard refused."""
    return Resolved(dumps({"error": describe_change(verdict), "code": BLOCKED}), False)


def blocked_error(verdict: Verdict) -> ErrorInfo:
    return ErrorInfo(code=BLOCKED, message=describe_change(verdict))


def failed_plan(verdict: Verdict, *, stores_answer: bool = False) -> StepProcessingPlan:
    """Return the plan of a run that the guard ends. `stores_answer`: an empty answer is added to history, so that the
    blocked message before it stays blocked."""
    message = AssistantMessagePlan(None) if stores_answer else None
    return StepProcessingPlan(message, status_update=StatusUpdate("failed", blocked_error(verdict)), is_terminal=True)


def with_calls(plan: StepProcessingPlan, refused: Mapping[str, Verdict]) -> StepProcessingPlan:
    """Return the plan without the refused calls, which get a result instead. If only the output is left, the run
    completes."""
    if not refused:
        return plan
    resolved = {**plan.resolved, **{call_id: blocked_result(verdict) for call_id, verdict in refused.items()}}
    tools = [call for call in plan.pending_tool_calls if call.id not in refused]
    children = [call for call in plan.pending_sub_agent_calls if call.id not in refused]
    handoff = None if plan.handoff is not None and plan.handoff.call_id in refused else plan.handoff
    left = replace(plan, pending_tool_calls=tools, pending_sub_agent_calls=children, handoff=handoff)
    return _with_status(replace(left, resolved=resolved))


def with_text(plan: StepProcessingPlan, text: str | None) -> StepProcessingPlan:
    """Return the plan with another text. None: the text was refused, and with it an answer without calls."""
    message = plan.assistant_message_plan
    assert message is not None
    if text is not None:
        return replace(plan, assistant_message_plan=replace(message, content=text, server_blocks=[], citations=[]))
    message = replace(message, content=None, thinking=[], server_blocks=[], citations=[])
    if message.tool_calls:
        return replace(plan, assistant_message_plan=message)
    return StepProcessingPlan(message, missed=True)


def with_output(plan: StepProcessingPlan, output: JsonValue, refused: Verdict | None) -> StepProcessingPlan:
    """Return the plan with another output, or without one if it was refused. The arguments of `__finish__` in history
    are those of the new output."""
    message, finish = plan.assistant_message_plan, plan.finish
    assert message is not None and finish is not None
    arguments: JsonObject = {} if refused is not None else output if isinstance(output, dict) else {"output": output}
    calls = [_rewritten(call, finish.call_id, arguments) for call in message.tool_calls]
    if refused is None:
        message = replace(message, tool_calls=calls)
        return replace(plan, assistant_message_plan=message, finish=replace(finish, output=output), output=output)
    message = replace(message, tool_calls=calls, thinking=[], server_blocks=[], citations=[])
    resolved = {**plan.resolved, finish.call_id: blocked_result(refused)}
    return _with_status(
        replace(plan, assistant_message_plan=message, resolved=resolved, finish=None, output=None, missed=True)
    )


def _rewritten(call: ToolCallRequest, call_id: str, arguments: JsonObject) -> ToolCallRequest:
    """Return the call with the arguments that history has. Later `__finish__` calls of the answer lose theirs."""
    if call.name != FINISH_TOOL_NAME:
        return call
    return call.model_copy(update={"arguments": arguments if call.id == call_id else {}})


def _with_status(plan: StepProcessingPlan) -> StepProcessingPlan:
    """Return the plan with the status that follows from the calls that are left."""
    alone = plan.finish is not None and not plan.pending_tool_calls and not plan.pending_sub_agent_calls
    return replace(plan, status_update=StatusUpdate("completed") if alone else None, is_terminal=alone)


def first_ending(verdicts: Sequence[Verdict]) -> Verdict | None:
    """Return the first verdict that ends the run, or None."""
    return next((verdict for verdict in verdicts if verdict.ends_run), None)
