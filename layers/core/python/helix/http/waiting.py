"""Responses for messages that wait in a session's inbox.

Law: a response shows the message's own turn. It never shows the turn that the message waits for or joins, because another
response shows that to the same page. It waits only while the message will be delivered without another request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from helix.core.agents import AnyAgent
from helix.core.entries import UserRow
from helix.core.errors import RunNotFoundError, SessionNotFoundError
from helix.core.inbox import InboxRow, next_turn
from helix.core.inbox_chunks import MessageQueuedChunk
from helix.core.json import JsonObject
from helix.core.run_row import RunRow
from helix.engine.history import DELETING
from helix.engine.inbox import find_delivered, read_inbox
from helix.http.responses import HEARTBEAT, data_line
from helix.http.turn_reader import is_at_work, take_over
from helix.http.turns import Turn, turn_of
from helix.runtime.edits import Handle
from helix.runtime.executor import Executor
from helix.services.request_keys import KeyedRun
from helix.stream.agui import PROTOCOL_VERSION

LOOK_S = 1.0


async def await_turn(
    executor: Executor, agent: AnyAgent, started: Handle | KeyedRun, idle_s: float
) -> AsyncGenerator[MessageQueuedChunk | Turn | None, None]:
    """Yield a chunk that says that the message waits, None after each `idle_s` seconds, and finally the message's own turn.
    Without such a turn, the last item is the message's last known state: it joined another run, it was withdrawn, or it
    waits until someone continues the session."""
    session_id, queued_id = started.session_id, str(started.queued_id)
    clock, waiting = executor.engine.clock, None
    since = clock.now()
    with executor.store.watch("sessions", session_id) as watch:
        while True:
            session = await executor.engine.history.session(session_id)
            if session is None or session.status == DELETING:
                return
            works = await is_at_work(executor, session)
            rows = await read_inbox(executor.store, session_id)
            message = next((row for row in rows if row.id == queued_id), None)
            if message is None:
                break
            if waiting is None:
                waiting = message
                yield _chunk(message)
            if not works and next_turn(session, rows) is None:
                return
            await watch.changed(min(LOOK_S, idle_s))
            if clock.now() - since >= idle_s:
                since = clock.now()
                yield None
                await _recover(executor, agent, session_id)
    try:
        run = await _find_turn(executor, session_id, queued_id, waiting)
        if isinstance(run, MessageQueuedChunk):
            yield run
            return
        session = await executor.engine.history.existing(session_id)
        yield await turn_of(executor, session, run.run_id, goes_on=True)
    except (SessionNotFoundError, RunNotFoundError):  # it was deleted in the meantime
        return


async def _recover(executor: Executor, agent: AnyAgent, session_id: str) -> None:
    """Take over what dead processes left: a run, or the effects of its end."""
    try:
        await take_over(executor, session_id)
        await executor.get_handle(agent, session_id)
    except SessionNotFoundError:
        return


async def _find_turn(
    executor: Executor, session_id: str, queued_id: str, waiting: InboxRow | None
) -> RunRow | MessageQueuedChunk:
    """Return the message's own run. If it has none, return what happened to it."""
    history = executor.engine.history
    if waiting is not None:
        try:
            return await history.run(session_id, waiting.run_id)
        except RunNotFoundError:
            pass  # it joined another run, or was withdrawn
    message = await find_delivered(history, session_id, queued_id)
    if message is None:
        return MessageQueuedChunk(queued_id=queued_id, state="withdrawn")
    run = await history.run(session_id, str(message.run_id))
    lineage = await history.lineage(session_id, run.start_lineage)
    first = await history.entries(session_id, lineage, run.start_count, run.start_count + 1)
    if [entry.queued for entry in first if isinstance(entry, UserRow)] == [queued_id]:
        return run
    fields = {"content": message.content, "files": message.files, "message_id": message.metadata.get("id")}
    return MessageQueuedChunk.model_validate({"queued_id": queued_id, "state": "delivered", "mode": "steer", **fields})


def _chunk(row: InboxRow) -> MessageQueuedChunk:
    fields = {"content": row.content, "files": row.files, "message_id": row.metadata.get("id")}
    return MessageQueuedChunk.model_validate({"queued_id": row.id, "state": "waiting", "mode": row.mode, **fields})


async def waiting_body(
    encoding: str,
    waiting: AsyncGenerator[MessageQueuedChunk | Turn | None, None],
    started: Handle | KeyedRun,
    show: Callable[[Turn], Awaitable[AsyncGenerator[bytes, None]]],
    end: bytes,
) -> AsyncGenerator[bytes, None]:
    """Yield the response to a message that waits. A response of AG-UI consists of runs. If the message has no run of its
    own, the response has one that only says what happened to the message."""
    state: MessageQueuedChunk | None = None
    async with aclosing(waiting):
        async for item in waiting:
            if item is None:
                yield HEARTBEAT
            elif isinstance(item, MessageQueuedChunk):
                state = item
                if encoding != "ag-ui":
                    yield _notice(encoding, item)
            else:
                state = None
                async with aclosing(await show(item)) as parts:
                    async for part in parts:
                        yield part
    if encoding == "ag-ui" and state is not None:
        about: JsonObject = {"threadId": started.session_id, "runId": started.run_id}
        outcome: JsonObject = {"type": "cancelled" if state.state == "withdrawn" else "success"}
        yield _event("RUN_STARTED", {**about, "protocolVersion": PROTOCOL_VERSION})
        yield _event("CUSTOM", {"name": "helix.message_queued", "value": _fields(state)})
        yield _event("RUN_FINISHED", {**about, "outcome": outcome})
    yield end


def _notice(encoding: str, chunk: MessageQueuedChunk) -> bytes:
    if encoding == "chunks":  # an event of its own type, because it is not on the stream
        return b"event: message_queued\n" + data_line(_fields(chunk))
    return _event("data-message-queued", {"data": _fields(chunk), "transient": True})


def _fields(chunk: MessageQueuedChunk) -> JsonObject:
    sent = chunk.model_dump(mode="json", exclude_none=True)
    return {name: sent[name] for name in chunk.ui_fields if name in sent}


def _event(kind: str, fields: JsonObject) -> bytes:
    return data_line({"type": kind, **fields})
