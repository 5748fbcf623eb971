"""Ends the runs that were asked to stop and that no worker holds.

Law: only executions with a recorded stop are played here, so no model is called and no tool is started.
"""

from __future__ import annotations

from helix.core.errors import AgentNotFoundError
from helix.engine.engine import Engine
from helix.engine.stops import read_stop
from helix.ports.state_store import Value
from helix.services.work_queue import WorkQueue
from helix.workers.execution import Execution


async def end_stopped(engine: Engine, queue: WorkQueue, worker_id: str) -> int:
    """Play every execution that no worker holds and that was asked to stop. Return their number."""
    to_stop = set()
    for row in await queue.open_work():
        if queue.free(row.value) and await _is_to_stop(engine, row.value):
            to_stop.add(row.value["name"])
    ended = 0
    while to_stop and (work := await queue.claim(worker_id, lambda value: value["name"] in to_stop)) is not None:
        to_stop.discard(work.name)
        if await Execution(engine, queue, work).play() == "ended":
            await queue.finish(work)
            ended += 1
    return ended


async def _is_to_stop(engine: Engine, value: Value) -> bool:
    session = await engine.history.session(value["session_id"])
    if session is None or session.run_id != value["run_id"]:
        return False
    try:
        engine.agents(value["agent_type"])
    except AgentNotFoundError:
        return False
    return session.status != "running" or await read_stop(engine.store, session, value["run_id"]) is not None
