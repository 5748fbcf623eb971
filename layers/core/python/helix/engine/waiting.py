"""Which calls of an open step wait for people, here or in a sub-agent."""

from __future__ import annotations

from helix.core.claiming import OpenRows
from helix.core.rows import Pending
from helix.engine.engine import Engine


async def waiting_calls(engine: Engine, rows: OpenRows) -> dict[str, Pending]:
    """Asked calls, and calls whose sub-agent is paused or interrupted, by call id in call order."""
    found: dict[str, Pending] = {}
    for row in rows.calls:
        if row is None or row.state == "done":
            continue
        if row.state == "asked":
            found[row.call_id] = Pending(call_id=row.call_id, tool_name=row.tool_name, kind=row.ask or "approval")
        elif row.child is not None:
            child = await engine.history.session(row.child.session_id)
            if child is not None and child.status in ("paused", "interrupted"):
                found[row.call_id] = Pending(
                    call_id=row.call_id, tool_name=row.tool_name, kind="child", child_session_id=child.session_id
                )
    return found
