"""The actions on sessions that start nothing: looking, stopping, copying, deleting, following."""

from __future__ import annotations

from typing import Any

from helix.core.json import JsonObject
from helix.core.protocol import (
    Abort,
    Branch,
    Clone,
    Delete,
    GetSession,
    Interrupt,
    ListCheckpoints,
    ListSessions,
    Subscribe,
    Unsubscribe,
)
from helix.core.rows import SessionRow
from helix.engine.admission import in_line
from helix.gateway.backend import Backend, check_root, check_wanted
from helix.gateway.connections import Connection
from helix.gateway.once import minted, own_suffix
from helix.gateway.replay import replay
from helix.runtime.watching import result_of


async def interrupt(backend: Backend, caller: Connection, request: Interrupt) -> JsonObject:
    await backend.owned(caller.principal, request.session_id)
    asked = await backend.executor.interrupt(request.session_id, request.reason, run_id=request.run_id)
    return {"interrupted": asked}


async def abort(backend: Backend, caller: Connection, request: Abort) -> JsonObject:
    row = await backend.owned(caller.principal, request.session_id)
    agent = await backend.agent_of(row, caller.principal)
    await backend.executor.abort(agent, request.session_id, request.reason, run_id=request.run_id)
    return {}


# --- following --------------------------------------------------------------------------------------------------------


async def subscribe(backend: Backend, caller: Connection, request: Subscribe) -> JsonObject:
    row = await _streaming(backend, caller, request)
    await backend.connections.subscribe(caller.connection_id, row.stream_id)
    done = await replay(
        backend.executor.streams,
        backend.connections,
        backend.sockets,
        backend.clock,
        caller.connection_id,
        row.stream_id,
        request.after,
    )
    return {"stream_id": row.stream_id, "caught_up": done.caught_up, "complete": done.complete}


async def unsubscribe(backend: Backend, caller: Connection, request: Unsubscribe) -> JsonObject:
    row = await _streaming(backend, caller, request)
    await backend.connections.unsubscribe(caller.connection_id, row.stream_id)
    return {"stream_id": row.stream_id}


async def _streaming(backend: Backend, caller: Connection, request: Subscribe | Unsubscribe) -> SessionRow:
    """The session whose stream is meant: a stream has the id of its root session."""
    return await backend.owned(caller.principal, request.session_id or request.stream_id or "")


# --- looking ----------------------------------------------------------------------------------------------------------


async def get_session(backend: Backend, caller: Connection, request: GetSession) -> JsonObject:
    row = await backend.owned(caller.principal, request.session_id)
    sessions = backend.executor.sessions
    state = await sessions.get(request.session_id)
    can = await backend.executor.can_resume(request.session_id)
    found: JsonObject = {"session": state.model_dump(mode="json"), "can_resume": can.model_dump(mode="json")}
    if state.status == "running":
        slots = backend.executor.engine.slots
        if (queued := await in_line(slots, backend.history, state.session_id, state.current_run_id)) is not None:
            found["queued"] = queued._asdict()
    if request.run_id is not None:
        found["run"] = await _run(backend, caller, row, request.run_id)
    if request.messages:
        end = min(state.message_count, request.before if request.before is not None else state.message_count)
        start = max(0, end - request.messages)
        page: list[Any] = []
        if end > start:
            page = (await sessions.get_messages(request.session_id, offset=start, limit=end - start)).messages
        found["messages"] = [message.model_dump(mode="json") for message in page]
        found["offset"] = start
    if request.snapshot:
        found["snapshot"] = (await backend.executor.get_snapshot(request.session_id)).model_dump(mode="json")
    return found


async def _run(backend: Backend, caller: Connection, row: SessionRow, run_id: str) -> JsonObject:
    """How the run ended, as `AgentResult`; one that has not is `running`, and has nothing else to tell."""
    run = await backend.executor.sessions.get_run(row.session_id, run_id)
    place: JsonObject = {"turn": run.turn, "start_sequence": run.start_sequence}
    if run.status == "running":
        return {"session_id": row.session_id, "run_id": run_id, "status": "running", **place}
    agent = await backend.agent_of(row, caller.principal)
    result = await result_of(agent, backend.executor.sessions, run)
    return {**result.model_dump(mode="json", by_alias=True), **place}


async def list_sessions(backend: Backend, caller: Connection, request: ListSessions) -> JsonObject:
    page = await backend.executor.sessions.list_sessions(
        user_id=caller.principal, limit=request.limit, after=request.after
    )
    shown: list[Any] = [state.model_dump(mode="json", exclude={"custom_state", "output"}) for state in page.sessions]
    return {"sessions": shown, "cursor": page.cursor}


async def list_checkpoints(backend: Backend, caller: Connection, request: ListCheckpoints) -> JsonObject:
    await backend.owned(caller.principal, request.session_id)
    page = await backend.executor.sessions.list_checkpoints(
        request.session_id, limit=request.limit, after=request.after
    )
    shown: list[Any] = [row.model_dump(mode="json", exclude={"state", "patches", "kind"}) for row in page.items]
    return {"checkpoints": shown, "cursor": page.cursor}


# --- copies and ends --------------------------------------------------------------------------------------------------


async def branch(backend: Backend, caller: Connection, request: Branch) -> JsonObject:
    check_root(await backend.owned(caller.principal, request.session_id))
    target, made = await _target(backend, caller, request)
    if not made:
        await backend.executor.branch(request.session_id, request.checkpoint_id, session_id=target)
    return {"session_id": target}


async def clone(backend: Backend, caller: Connection, request: Clone) -> JsonObject:
    check_root(await backend.owned(caller.principal, request.session_id))
    target, made = await _target(backend, caller, request)
    if not made:
        await backend.executor.clone_session(
            request.session_id,
            target,
            from_checkpoint_id=request.checkpoint_id,
            from_message_index=request.message_index,
        )
    return {"session_id": target}


async def _target(backend: Backend, caller: Connection, request: Branch | Clone) -> tuple[str, bool]:
    """The id of the copy, and whether an earlier delivery of the request has made it."""
    if request.target is not None:
        check_wanted(caller.principal, request.target)
        return request.target, False
    target = await minted(backend, own_suffix(caller, request.action, request.key, request.id))
    return target, await backend.find(caller.principal, target) is not None


async def delete(backend: Backend, caller: Connection, request: Delete) -> JsonObject:
    """One whose deletion died on its way is deleted on. Its followers go too: the id may come to be another's."""
    row = await backend.owned(caller.principal, request.session_id, deleting=True)
    check_root(row)
    await backend.executor.delete(request.session_id)
    await backend.connections.drop_stream(row.stream_id)
    return {"deleted": True}
