"""The first row of a call: who must be asked, who takes it."""

from __future__ import annotations

from helix.core.agents import AnyAgent
from helix.core.messages import ToolCallRequest
from helix.core.rows import AssistantRow, CallRow
from helix.core.tools import AnyTool
from helix.engine.delivery import Delivery
from helix.engine.engine import logger


def first_claim(
    agent: AnyAgent,
    request: ToolCallRequest,
    answer: AssistantRow,
    run_id: str,
    delivery: Delivery,
    now: float,
    margin_s: float,
) -> CallRow:
    """The row for a call that has none: asked, claimed by its sub-agent, or claimed by this delivery."""
    tool = agent.find_tool(request.name)
    row = CallRow(
        call_id=request.id,
        tool_name=request.name,
        step=answer.step,
        state="claimed",
        run_id=run_id,
        owner=delivery.owner,
        inline=tool is not None and tool.inline,
    )
    if tool is not None and (tool.kind == "client" or needs_approval(tool, request)):
        ask = "client" if tool.kind == "client" else "approval"
        return row.model_copy(update={"state": "asked", "ask": ask, "owner": None})
    child = answer.children.get(request.id)
    if child is not None:  # claimed by the child: no deadline, its end is the result
        return row.model_copy(update={"child": child, "claim": 1, "owner": child.session_id})
    return claimed(row, tool, delivery, run_id, now, margin_s)


def claimed(
    row: CallRow, tool: AnyTool | None, delivery: Delivery, run_id: str, now: float, margin_s: float
) -> CallRow:
    """`row` claimed by this delivery, one claim further. The deadline is the latest moment at which the tool can still be
    at work: what all its tries may take, and `margin_s` to get them started."""
    deadline = delivery.deadline if tool is None else min(delivery.deadline, now + longest(tool) + margin_s)
    return row.model_copy(
        update={
            "state": "claimed",
            "ask": None,
            "owner": delivery.owner,
            "leased": delivery.leased,
            "claim": row.claim + 1,
            "run_id": run_id,
            "deadline": None if delivery.leased else deadline,
        }
    )


def longest(tool: AnyTool) -> float:
    """Seconds that one execution may take: every try, and the waits between them."""
    return (tool.retries + 1) * tool.timeout_s + 0.5 * (2.0**tool.retries - 1)


def may_start(row: CallRow, tool: AnyTool, delivery: Delivery, now: float) -> bool:
    """The holder's last look at its clock before the tool starts: past this moment others may take the call while it is
    still at work. At a delivery's own deadline its platform ends it, so only a shorter one needs room for the tool."""
    if not delivery.may_act(now):
        return False
    return row.deadline is None or row.deadline >= delivery.deadline or now + longest(tool) <= row.deadline


def needs_approval(tool: AnyTool, request: ToolCallRequest) -> bool:
    """What the tool says; a rule that raises counts as yes, because a veto must not fail open."""
    if isinstance(tool.require_approval, bool):
        return tool.require_approval
    try:
        return bool(tool.require_approval(tool.input_schema.model_validate(request.arguments)))
    except Exception:
        logger.warning("require_approval of tool %r raised; asking for approval", tool.name, exc_info=True)
        return True
