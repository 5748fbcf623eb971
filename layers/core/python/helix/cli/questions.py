"""What a paused session waits for, in its sub-agents too."""

from __future__ import annotations

from helix.cli.views import Question
from helix.runtime.executor import Executor


async def open_questions(executor: Executor, session_id: str) -> list[Question]:
    """In call order. A sub-agent's question stands for the call of its parent that waits for it."""
    state = await executor.sessions.load(session_id)
    if state is None or not state.pending:
        return []
    history = executor.engine.history
    rows = await history.open_rows(await history.existing(session_id))
    arguments = {call.id: call.arguments for call in rows.answer.tool_calls} if rows is not None else {}
    found: list[Question] = []
    for pending in state.pending:
        if pending.child_session_id is not None:
            found += await open_questions(executor, pending.child_session_id)
        else:
            given = arguments.get(pending.call_id, {})
            found.append(Question(pending.call_id, pending.tool_name, pending.kind, given, state.agent_type))
    return found
