"""The client requests that read: sessions, their runs, messages, checkpoints, streams and stored rows.

Law: nothing here writes, except that a list completes the index of sessions (`helix.sessions.search`). The backend
decides which sessions a caller sees (`helix.gateway.backend`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from helix._log import get_logger
from helix._version import __version__
from helix.core.agents import AnyAgent
from helix.core.comparison import compare_sides
from helix.core.errors import AgentNotFoundError
from helix.core.fleet_requests import GetFleet, ListAgents
from helix.core.handles import with_parameters
from helix.core.inbox import WaitingMessage
from helix.core.json import JsonObject, size
from helix.core.requests import ReadStream
from helix.core.row_keys import head_sort
from helix.core.session_requests import (
    Compare,
    DiffCheckpoints,
    GetCheckpoint,
    GetContext,
    GetSession,
    ListCheckpoints,
    ListSessions,
    ReadRows,
)
from helix.core.session_row import SessionRow
from helix.core.signatures import parameters_of
from helix.engine.runs.admission import in_line
from helix.gateway.backend import Backend
from helix.gateway.connections import Connection
from helix.ports.state_store import Key, Row, StateStore
from helix.runtime.handle import ended_by, find_run, result_of
from helix.services.request_heads import head_value, shared_heads
from helix.sessions.comparing import read_side
from helix.sessions.diffs import diff_points
from helix.sessions.export_files import named_files
from helix.sessions.exports import KINDS, children_of, head_line, row_line
from helix.sessions.search import find_sessions
from helix.stream.reader import read_page

logger = get_logger("helix.gateway")
PAGE_BYTES: Final = 1_000_000


async def get_session(backend: Backend, caller: Connection, request: GetSession) -> JsonObject:
    row = await backend.get_owned(caller.principal, request.session_id)
    sessions = backend.executor.sessions
    state = await sessions.get(request.session_id)
    if state.pending:
        with suppress(AgentNotFoundError):  # a caller who only reads may not have the agents
            agent = await backend.agent_of(row, caller.principal)
            active = backend.executor.engine.find_agent(agent, row.active_agent)
            state.pending = with_parameters(active, state.pending)
    can = await backend.executor.can_resume(request.session_id)
    found: JsonObject = {"session": state.model_dump(mode="json"), "can_resume": can.model_dump(mode="json")}
    if state.status == "running":
        slots = backend.slots
        if (queued := await in_line(slots, backend.history, state.session_id, state.current_run_id)) is not None:
            found["queued"] = queued._asdict()
    if request.run_id is not None:
        found["run"] = await _run(backend, caller, row, request.run_id)
    if request.messages:
        end = min(state.message_count, state.message_count if request.before is None else request.before)
        start = max(0, end - request.messages)
        page = await sessions.get_messages(request.session_id, offset=start, limit=max(1, end - start))
        found["messages"] = [message.model_dump(mode="json") for message in page.messages[: end - start]]
        found["offset"] = start
    if request.runs:
        listed = await sessions.list_runs(request.session_id, limit=request.runs, before=request.runs_before)
        found["runs"] = [run.model_dump(mode="json") for run in listed.runs]
        found["more_runs"] = listed.has_more
    if request.sub_sessions:
        found["sub_sessions"] = [
            ref.model_dump(mode="json") for ref in await sessions.list_sub_sessions(request.session_id)
        ]
    if request.snapshot:
        found["snapshot"] = (await backend.executor.get_snapshot(request.session_id, newest=request.newest)).model_dump(
            mode="json"
        )
    return found


async def _run(backend: Backend, caller: Connection, row: SessionRow, run_id: str) -> JsonObject:
    """Return the run's outcome, as `AgentResult`. A run in progress has the status `running` and no results yet."""
    run = await find_run(backend.executor.sessions, row.session_id, run_id)
    place: JsonObject
    if isinstance(run, WaitingMessage):  # turn 0: it has not begun
        info = await backend.executor.streams.info(row.stream_id)
        start = info.latest_sequence if info is not None else 0
        place = {"turn": 0, "start_sequence": start}
        return {"session_id": row.session_id, "run_id": run_id, "status": "running", **place}
    place = {"turn": run.turn, "start_sequence": run.start_sequence}
    if run.status == "running":
        return {"session_id": row.session_id, "run_id": run_id, "status": "running", **place}
    agent = await backend.agent_of(row, caller.principal)
    result = await result_of(ended_by(backend.executor.engine, agent, run), backend.executor.sessions, run)
    return {**result.model_dump(mode="json", by_alias=True), **place}


async def list_sessions(backend: Backend, caller: Connection, request: ListSessions) -> JsonObject:
    users = await backend.users(caller.principal, request.user)
    found = await find_sessions(backend.executor.sessions, users, request)
    shown: list[Any] = [
        {**state.model_dump(mode="json", exclude={"custom_state", "output", "inbox"}), "title": title}
        for state, title in found.sessions
    ]
    damaged: list[Any] = [*found.damaged]
    page: JsonObject = {"sessions": shown, "cursor": found.cursor, "damaged": damaged}
    return page if found.facets is None else {**page, "facets": found.facets.model_dump(mode="json")}


async def list_checkpoints(backend: Backend, caller: Connection, request: ListCheckpoints) -> JsonObject:
    await backend.get_owned(caller.principal, request.session_id)
    page = await backend.executor.sessions.list_checkpoints(
        request.session_id, limit=request.limit, after=request.after
    )
    shown: list[Any] = [
        row.model_dump(mode="json", exclude={"state", "patches", "kind", "frontend_tools"}) for row in page.items
    ]
    return {"checkpoints": shown, "cursor": page.cursor}


async def get_checkpoint(backend: Backend, caller: Connection, request: GetCheckpoint) -> JsonObject:
    row = await backend.get_owned(caller.principal, request.session_id)
    point = await backend.executor.sessions.get_checkpoint(row.session_id, request.checkpoint_id or row.checkpoint)
    shown = point.model_dump(mode="json", exclude={"state", "patches", "kind", "frontend_tools"})
    return {"checkpoint": {**shown, "custom_state": point.state or {}}}


async def diff_checkpoints(backend: Backend, caller: Connection, request: DiffCheckpoints) -> JsonObject:
    row = await backend.get_owned(caller.principal, request.session_id)
    after = request.checkpoint_id or row.checkpoint
    found = await diff_points(backend.history, row, request.before, after, request.offset, request.limit)
    messages: list[Any] = [message.model_dump(mode="json") for message in found.messages]
    patches: list[Any] = [*found.patches]
    counts: JsonObject = {"offset": request.offset, "added": found.added, "removed": found.removed}
    return {"before": request.before, "after": after, "patches": patches, "messages": messages, **counts}


async def compare(backend: Backend, caller: Connection, request: Compare) -> JsonObject:
    row = await backend.get_owned(caller.principal, request.session_id)
    other = await backend.get_owned(caller.principal, request.other_session_id)
    left = await read_side(backend.history, row, request.run_id)
    right = await read_side(backend.history, other, request.other_run_id)
    return (await asyncio.to_thread(compare_sides, left, right)).model_dump(mode="json")


async def get_context(backend: Backend, caller: Connection, request: GetContext) -> JsonObject:
    row = await backend.get_owned(caller.principal, request.session_id)
    agent: AnyAgent | None = None
    with suppress(AgentNotFoundError):  # a caller who only reads may not have the agents
        agent = await backend.agent_of(row, caller.principal)
        agent = backend.executor.engine.find_agent(agent, row.active_agent)
    found = await backend.executor.sessions.get_context(
        row.session_id, request.step, run_id=request.run_id, agent=agent
    )
    return found.model_dump(mode="json")


async def list_agents(backend: Backend, caller: Connection, request: ListAgents) -> JsonObject:
    """List agents. An agent whose factory fails is omitted, because it cannot run; the log says why."""
    names = [name for name in backend.registry.registered_types() if name > (request.after or "")]
    page = names[: request.limit]
    shown: list[Any] = []
    for name in page:
        try:
            shown.append(card(backend.agent(name, caller.principal)))
        except Exception:
            logger.exception("agent %r cannot be made", name)
    first = backend.registry.first_root()
    return {"first": first, "agents": shown, "cursor": page[-1] if len(names) > len(page) else None}


def card(agent: AnyAgent) -> JsonObject:
    """Return the facts that a client needs about an agent (`helix.core.agent_reports.AgentFound`)."""
    schema: Any = agent.output_schema
    output: JsonObject = parameters_of(schema) if schema is not None else {}
    if agent.function is not None:
        kind, takes = "function", agent.function.parameters
        given: JsonObject = {"type": "object", "properties": {"input": takes}, "required": ["input"]}
    else:
        kind, output = "chat", output or {"type": "string"}
        state: JsonObject = parameters_of(agent.state_schema) if agent.state_schema is not None else {"type": "object"}
        properties: JsonObject = {"message": {"type": "string", "minLength": 1}, "state": state}
        given = {"type": "object", "properties": properties, "required": ["message"]}
    about: JsonObject = {"name": agent.name, "description": agent.description, "examples": list(agent.examples)}
    return {**about, "kind": kind, "input": given, "output": output}


async def get_fleet(backend: Backend, caller: Connection, request: GetFleet) -> JsonObject:
    from helix.fleet.overview import Overview  # only operators need it

    backend.check_operator(caller)
    executor = backend.executor

    def resources(name: str) -> JsonObject:
        try:
            return backend.agent(name, caller.principal).resources
        except Exception:
            logger.exception("agent %r cannot be made", name)
            return {}

    names = backend.registry.registered_types()
    overview = Overview(executor.store, backend.clock, backend.ids, backend.slots, names, resources)
    return (await overview.read(request)).model_dump(mode="json")


async def read_stream(backend: Backend, caller: Connection, request: ReadStream) -> JsonObject:
    row = await backend.get_owned(caller.principal, request.session_id)
    messages = await read_page(backend.executor.streams, row.stream_id, request.after, request.limit)
    shown: list[Any] = [message.model_dump(mode="json", exclude={"stream_id"}) for message in messages]
    return {"stream_id": row.stream_id, "messages": shown}


async def _with_shared_heads(store: StateStore, shown: list[Any]) -> list[Any]:
    """Return the page with the shared request heads that its rows name, as if the session had them."""
    own = {sort for sort, _ in shown}
    heads = {head_sort(row.id): row for row in await shared_heads(store, [value for _, value in shown])}
    more = [[sort, head_value(row)] for sort, row in heads.items() if sort not in own]
    return sorted([*shown, *more], key=lambda row: str(row[0]))


async def read_rows(backend: Backend, caller: Connection, request: ReadRows) -> JsonObject:
    row = await backend.get_owned(caller.principal, request.session_id)
    table: Any = "streams" if request.stream else "sessions"
    partition = row.stream_id if request.stream else row.session_id
    start = "" if request.after is None else f"{request.after}\0"
    rows = await backend.executor.store.query(table, partition, start=start, limit=request.limit)
    shown: list[Any] = []
    total, last = 0, None
    for found in rows:
        if total > PAGE_BYTES:
            break
        last = found.key.sort
        if request.stream or last.startswith(KINDS):
            shown.append([last, dict(found.value.items())])
            total += size(found.value)
    if not request.stream:
        shown = await _with_shared_heads(backend.executor.store, shown)
    more = last is not None and (len(rows) == request.limit or last != rows[-1].key.sort)
    page: JsonObject = {"rows": shown, "cursor": last if more else None}
    if not request.lines:
        return page
    exported = [Row(Key(table, partition, sort), value) for sort, value in shown]
    about = {"helix": __version__, "session_id": row.session_id, "agent_type": row.agent_type, "user_id": row.user_id}
    export: JsonObject = {
        "head": head_line({**about, "exported_at": backend.clock.now()}),
        "lines": [{"sort": key.sort, "line": row_line(key, value)} for key, value in exported],
        "children": [*children_of(exported)],
        "files": [*named_files(exported)],
    }
    return {**page, "rows": [], "export": export}
