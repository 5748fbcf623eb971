"""Telling the runs of an agent to stop, from a process that has neither the agents' code nor their executor.

Law: only stop records are written; whoever executes a run sees its record within a second, or at the next delivery, and
ends it. Runs that wait in the queue are left there: a stopped agent takes them on when it starts again.
"""

from __future__ import annotations

from helix.core.rows import StopRow
from helix.engine.ends import put_stop
from helix.engine.engine import Engine
from helix.engine.open_runs import PARTITIONS, partition_name


async def tell_to_stop(engine: Engine, agent: str, reason: str, *, force: bool = False) -> int:
    """Interrupt every run of the agent that is at work; with `force`, abort those that wait too. Returns how many were
    told."""
    waiting = set()
    if engine.slots is not None and not force:
        waiting = {ticket.candidate.run_id for ticket in await engine.slots.queue(agent)}
    told = 0
    for number in range(PARTITIONS):
        for row in await engine.store.query("control", partition_name(number)):
            run_id, session_id = row.key.sort, row.value["session_id"]
            if row.value["agent_type"] != agent or run_id in waiting:
                continue
            if await engine.history.session(session_id) is None:
                continue
            stop = StopRow(
                run_id=run_id, stop="abort" if force else "interrupt", reason=reason, created_at=engine.clock.now()
            )
            told += await put_stop(engine, session_id, stop)
    return told
