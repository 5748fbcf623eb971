"""From a claim to its execution (PROTOCOL 4).

Law: the claim is durable before anything is announced or started, and every step from it to the execution may be repeated.
"""

from __future__ import annotations

from helix.core.agents import AnyAgent
from helix.core.rows import RunRow, SessionRow
from helix.engine.announcing import announce_claim, announce_untold
from helix.engine.claims import Claimed
from helix.engine.ends import guarded_hook, part_of
from helix.engine.engine import Engine
from helix.engine.hooking import tell_history
from helix.engine.run_stream import RunStream
from helix.engine.untold import read_untold
from helix.ports.launcher import Launcher


def launcher_of(engine: Engine) -> Launcher:
    assert engine.launcher is not None, "this engine executes runs in its own process"
    return engine.launcher


async def begin(engine: Engine, agent: AnyAgent, claimed: Claimed) -> None:
    """Announce a run that was just claimed, and start its first execution."""
    session, run = claimed.session, claimed.run
    stream = RunStream(engine.streams, engine.clock, session, run.run_id, run.turn)
    announce_claim(stream, claimed)
    await stream.flush()
    await _start_hook(engine, agent, session, run, stream)
    await tell_history(engine, agent, session, claimed.plan.added, claimed.patches, stream)
    await stream.close()
    await launcher_of(engine).start(part_of(agent, run))


async def begin_all(engine: Engine, claims: list[Claimed]) -> None:
    """Begin runs that were claimed on the way: parents that waited."""
    for claimed in claims:
        await begin(engine, engine.agents(claimed.session.agent_type), claimed)


async def begin_again(engine: Engine, agent: AnyAgent, session: SessionRow, run: RunRow) -> None:
    """Start what was claimed, and may not have been announced or started: the stream drops what it knows."""
    stream = RunStream(engine.streams, engine.clock, session, run.run_id, run.turn)
    stream.put("run", mark="started", last=session.last)
    untold = await read_untold(engine, session.session_id, session.checkpoint)
    if untold is not None:
        announce_untold(stream, untold)
    await _start_hook(engine, agent, session, run, stream)
    await stream.close()
    await launcher_of(engine).start(part_of(agent, run))


async def _start_hook(engine: Engine, agent: AnyAgent, session: SessionRow, run: RunRow, stream: RunStream) -> None:
    if engine.hooks.wanted("on_agent_start", agent.hooks):
        state = await engine.history.state(session)
        start = {"agent": agent.name, "input": run.input, "trigger": run.mode, "initial_state": state, "step": 0}
        await guarded_hook(engine, agent, session, run.run_id, "on_agent_start", start, stream)
