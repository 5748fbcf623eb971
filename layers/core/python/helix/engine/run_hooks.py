"""Hooks of a run as a whole: its start and its end, each told once (PROTOCOL 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helix.core.agents import AnyAgent
from helix.core.row_keys import guard_sort
from helix.core.rows import RunRow, SessionRow
from helix.engine.engine import Engine
from helix.engine.history import row_key
from helix.engine.hooking import call_hook
from helix.engine.run_stream import RunStream
from helix.engine.writing import commit
from helix.ports.state_store import ABSENT, Put


async def guarded_hook(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    run_id: str,
    name: str,
    payload: Mapping[str, Any],
    stream: RunStream | None = None,
) -> None:
    """A run-level hook: called until its guard row is written, so at least once; its event id lets it be dropped twice.
    Two finishers in one process call it once: an abort and the run that it ends, or a hook that sends the next message."""
    key, telling = row_key(session.session_id, guard_sort(run_id, name)), f"{run_id}/{name}"
    if telling in engine.telling:
        return
    engine.telling.add(telling)
    try:
        (seen,) = await engine.store.get([key])
        if seen is None:
            state = await engine.history.state(session) if session.state_at else {}
            await call_hook(engine, agent, session, name, payload, stream, state=state)
            await commit(engine, "hook_guard", [Put(key, {"at": engine.clock.now()}, ABSENT)], _no)
    finally:
        engine.telling.discard(telling)


async def start_hook(engine: Engine, agent: AnyAgent, session: SessionRow, run: RunRow, stream: RunStream) -> None:
    if engine.hooks.wanted("on_agent_start", agent.hooks):
        state = await engine.history.state(session)
        start = {"agent": agent.name, "input": run.input, "trigger": run.mode, "initial_state": state, "step": 0}
        await guarded_hook(engine, agent, session, run.run_id, "on_agent_start", start, stream)


async def end_hook(engine: Engine, agent: AnyAgent, session: SessionRow, run: RunRow) -> None:
    name = {"completed": "on_agent_complete", "failed": "on_agent_fail"}.get(run.status)
    if name is None or not engine.hooks.wanted(name, agent.hooks):
        return
    payload = {
        "output": run.output,
        "final_state": await engine.history.state(session) if session.state_at else {},
        "error": run.error,
        "step_count": run.steps,
        "duration_ms": ((run.ended_at or run.started_at) - run.started_at) * 1000,
        "step": 0,
    }
    await guarded_hook(engine, agent, session.model_copy(update={"run_id": run.run_id}), run.run_id, name, payload)


async def _no() -> bool:
    return False
