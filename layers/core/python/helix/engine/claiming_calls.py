"""The first row of a call: who must be asked, who takes it."""

from __future__ import annotations

from helix.core.agents import AnyAgent
from helix.core.messages import ToolCallRequest
from helix.core.rows import AssistantRow, CallRow
from helix.core.tools import AnyTool
from helix.engine.engine import Delivery, logger


def first_claim(
    agent: AnyAgent, request: ToolCallRequest, answer: AssistantRow, run_id: str, delivery: Delivery, now: float
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
    )
    if tool is not None and (tool.kind == "client" or needs_approval(tool, request)):
        ask = "client" if tool.kind == "client" else "approval"
        return row.model_copy(update={"state": "asked", "ask": ask, "owner": None})
    child = answer.children.get(request.id)
    if child is not None:  # claimed by the child: no deadline, its end is the result
        return row.model_copy(update={"child": child, "claim": 1, "owner": child.session_id})
    return claimed(row, tool, delivery, run_id, now)


def claimed(row: CallRow, tool: AnyTool | None, delivery: Delivery, run_id: str, now: float) -> CallRow:
    """`row` claimed by this delivery, one claim further."""
    deadline = min(delivery.deadline, now + tool.timeout_s) if tool is not None else delivery.deadline
    deadline = max(deadline, now)
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


def needs_approval(tool: AnyTool, request: ToolCallRequest) -> bool:
    """What the tool says; a rule that raises counts as yes, because a veto must not fail open."""
    if isinstance(tool.require_approval, bool):
        return tool.require_approval
    try:
        return bool(tool.require_approval(tool.input_schema.model_validate(request.arguments)))
    except Exception:
        logger.warning("require_approval of tool %r raised; asking for approval", tool.name, exc_info=True)
        return True
