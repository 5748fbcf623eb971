"""Settling a sub-agent's call without a child."""

from __future__ import annotations

from helix.core.planning import result_content
from helix.core.rows import CallRow
from helix.engine.announcing import announce_result
from helix.engine.children import is_done
from helix.engine.engine import Engine
from helix.engine.run_stream import RunStream
from helix.engine.step_view import StepView
from helix.engine.writing import commit, entry_put
from helix.ports.state_store import When


async def refuse_child(engine: Engine, view: StepView, row: CallRow, reason: str, stream: RunStream) -> str:
    """A child that must not be started is a failed result that the parent's model sees."""
    changes = {"state": "done", "content": result_content(reason, False), "success": False, "by": "plan"}
    done = row.model_copy(update={**changes, "ended_at": engine.clock.now()})
    key = view.key(row.call_id)
    index = int(key.sort.rpartition("#")[2])
    when = When(equal={"state": "claimed", "owner": row.owner})
    put = entry_put(view.session.session_id, view.session.lineage, index, done, when)
    if not await commit(engine, "call_result", [put], lambda: is_done(engine, key)):
        return "again"
    announce_result(stream, done)
    return "done"
