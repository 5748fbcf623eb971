"""Executions of runs that may work: what is announced, and the start (PROTOCOL 4).

Law: the claim is durable before anything is announced or started, and every step from it to the execution may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from helix.core.agents import AnyAgent
from helix.core.errors import AgentNotFoundError, RunNotFoundError, SessionNotFoundError, StoreError
from helix.core.measures import Measures
from helix.core.rows import RunRow, SessionRow
from helix.engine.announcing import announce_untold
from helix.engine.engine import Engine, logger
from helix.engine.parts import launcher_of, part_of
from helix.engine.run_hooks import start_hook
from helix.engine.run_stream import RunStream
from helix.engine.spanning import tell_wait
from helix.engine.untold import read_untold
from helix.ports.slots import Candidate


async def begin_again(engine: Engine, agent: AnyAgent, session: SessionRow, run: RunRow) -> None:
    """Start what was claimed, and may not have been announced or started: the stream drops what it knows."""
    stream = RunStream(engine.streams, engine.clock, session, run.run_id, run.turn)
    stream.put("run", mark="started", last=session.last)
    untold = await read_untold(engine, session.session_id, session.checkpoint)
    if untold is not None:
        announce_untold(stream, untold)
    await start_hook(engine, agent, session, run, stream)
    await stream.close()
    await launcher_of(engine).start(part_of(agent, run))


async def begin_granted(engine: Engine, granted: Sequence[Candidate]) -> None:
    """Start runs that waited and have a slot now, in their order. One that cannot be started here is left to a sweep; one
    that has ended passes its slot on by itself."""
    for heir in granted:
        try:
            session = await engine.history.session(heir.session_id)
            if session is None or session.run_id != heir.run_id or session.status != "running":
                continue
            run = await engine.history.run(heir.session_id, heir.run_id)
            waited_ms = max(0.0, engine.clock.now() - heir.order) * 1000
            engine.metrics.record(Measures({"QueueWait": waited_ms}, heir.agent_type, {"run_id": heir.run_id}))
            tell_wait(engine, session, run)
            await begin_again(engine, engine.agents(heir.agent_type), session, run)
        except (StoreError, AgentNotFoundError, RunNotFoundError, SessionNotFoundError) as error:
            logger.warning("run %s has a slot, and a sweep is to start it: %s", heir.run_id, error)
