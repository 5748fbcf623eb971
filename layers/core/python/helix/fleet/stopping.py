"""Stop the runs of an agent from a process that has neither the agent's code nor its executor.

Law: only stop records are written. A run's process sees its record within a second, or at the next delivery, and ends the
run. Waiting runs stay in the queue unless `force` aborts them, and continue when the agent starts again. A session that
cannot be read does not prevent other runs from being stopped.
"""

from __future__ import annotations

from typing import Literal

from helix.core.errors import DamagedRowError, SessionNotFoundError
from helix.core.rows import StopRow
from helix.engine.engine import Engine, logger
from helix.engine.runs.ends import put_stop
from helix.ports.state_store import Row
from helix.services.open_runs import PARTITIONS, partition_name
from helix.services.paging import pages


async def stop_runs(engine: Engine, agent: str, reason: str, *, force: bool = False) -> int:
    """Interrupt every active run of the agent. With `force`, abort active and waiting runs. Returns the number of stopped
    runs."""
    waiting = set()
    if engine.slots is not None and not force:
        waiting = {ticket.candidate.run_id for ticket in await engine.slots.queue(agent)}
    stopped = 0
    for number in range(PARTITIONS):
        async for rows in pages(engine.store, partition_name(number)):
            for row in rows:
                if row.value["agent_type"] == agent and row.key.sort not in waiting:
                    stopped += await _stop(engine, row, "abort" if force else "interrupt", reason)
    return stopped


async def _stop(engine: Engine, row: Row, how: Literal["abort", "interrupt"], reason: str) -> bool:
    run_id = row.key.sort
    try:
        stop = StopRow(run_id=run_id, stop=how, reason=reason, created_at=engine.clock.now())
        return await put_stop(engine, row.value["session_id"], stop)
    except SessionNotFoundError:
        return False  # deleted, or expired
    except DamagedRowError as error:  # the sweep fails its run
        logger.warning("run %s of agent %s cannot be stopped: %s", run_id, row.value["agent_type"], error)
        return False
