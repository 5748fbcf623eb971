"""Telling hooks about a session, with one event id per (run, step, hook, call)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from helix.core.agents import AnyAgent
from helix.core.chunks import CustomEventChunk
from helix.core.context import check_event
from helix.core.json import JsonObject, JsonValue
from helix.core.rows import AnyEntry, SessionRow, message_of
from helix.engine.engine import Engine
from helix.engine.hooks import HookContext
from helix.engine.run_stream import RunStream


async def call_hook(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    name: str,
    payload: Mapping[str, Any],
    stream: RunStream | None = None,
    *,
    call_id: str = "",
    state: JsonObject | None = None,
) -> None:
    """Call the hooks of that name, if there are any. Never raises."""
    if not engine.hooks.wanted(name, agent.hooks):
        return
    step = payload.get("step", session.step)
    if state is None:
        state = await engine.history.state(session) if session.state_at else {}

    def emit(event: str, data: JsonValue) -> None:
        if stream is not None:
            at = max(step, session.open.step if session.open is not None else session.step)
            check_event(event, data)
            chunk = CustomEventChunk(event_name=event, data=data)
            stream.put("call", [chunk], step=at, call_id=f"hook:{name}:{call_id}")

    context = HookContext(
        session_id=session.session_id,
        run_id=session.run_id,
        agent_type=session.agent_type,
        stream_id=session.stream_id,
        step_count=session.step,
        event_id=f"{session.run_id}/{step}/{name}/{call_id}",
        parent_session_id=session.parent.session_id if session.parent else None,
        user_id=session.user_id,
        tags=session.tags,
        metadata=session.metadata,
        state=state,
        _emit=emit,
    )
    await engine.hooks.invoke(name, agent.hooks, payload, context)


async def tell_history(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    entries: Sequence[AnyEntry],
    patches: Sequence[JsonObject],
    stream: RunStream,
) -> None:
    """`on_message` once per message that a commit made history, in order; `on_state_change` once per change set."""
    if engine.hooks.wanted("on_message", agent.hooks):
        for place, entry in enumerate(entries):
            index = session.count - len(entries) + place
            message = message_of(entry, session.lineage, index)
            await call_hook(engine, agent, session, "on_message", {"message": message}, stream, call_id=message.id)
    if patches and engine.hooks.wanted("on_state_change", agent.hooks):
        state = await engine.history.state(session)
        payload = {"patches": list(patches), "state": state}
        await call_hook(engine, agent, session, "on_state_change", payload, stream, state=state)
