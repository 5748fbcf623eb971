"""Handoffs: which agent makes the next step, and whether this worker may make it.

Law: the active agent is in the session's row. The fold of a step with a handoff changes it, in the transaction that
claims the next step or ends the run.
"""

from __future__ import annotations

from helix.core.agents import AnyAgent
from helix.core.entries import AssistantRow
from helix.core.errors import AgentNotFoundError
from helix.core.handoffs import mismatch
from helix.core.messages import ToolCallRequest
from helix.core.planning import Resolved, failure
from helix.core.rows import ErrorInfo
from helix.core.session_row import SessionRow
from helix.engine.context import RunContext
from helix.engine.runs.admission import profile_of


def refuse_handoff(run: RunContext, call: ToolCallRequest) -> Resolved | None:
    """Return the failed result of a call that hands over to an agent that cannot take over here, otherwise None. The
    model reads it, and goes on as the same agent."""
    tool = run.agent.find_tool(call.name)
    if tool is None or tool.kind != "handoff":
        return None
    target = _find(run, tool.hands_to)
    problem = f"agent {tool.hands_to!r} is not deployed here" if target is None else mismatch(run.agent, target)
    return None if problem is None else failure(f"not handed over: {problem}")


def activate(run: RunContext, session: SessionRow) -> ErrorInfo | None:
    """Let the agent act that is active in this row. Returns the error that ends the run if it is not known here; a retry
    goes on once it is deployed again."""
    try:
        run.activate(session.active_agent)
        return None
    except AgentNotFoundError as error:
        return ErrorInfo(
            code=error.code, message=f"the conversation was handed over to {session.active_agent!r}: {error}"
        )


def elsewhere(run: RunContext, answer: AssistantRow) -> str | None:
    """Return the name of the agent that makes the step after `answer`, if it has functions of its own and these are not
    they. None: this worker may go on."""
    if not answer.handoff or not run.engine.placement.has_profiles:
        return None
    here, there = _find(run, run.part_agent), _find(run, answer.handoff)
    if here is None or there is None or profile_of(run.engine, here) == profile_of(run.engine, there):
        return None
    return answer.handoff


def _find(run: RunContext, name: str) -> AnyAgent | None:
    try:
        return run.engine.find_agent(run.own, name)
    except AgentNotFoundError:
        return None
