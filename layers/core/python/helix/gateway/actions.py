"""The client requests that act: starting runs, and stopping, copying, deleting and following sessions. The requests
that read are in `gateway.reads`.

Law: the subscription comes before the claim, so that the connection does not miss any of the run's messages. A message
may arrive twice, because its sender got no response or a network repeated it. Everything that a request creates is
named after the request, or recorded under its name first. So the repeat finds it (`services.request_keys`). A
subscriber is registered before the log is read, so nothing is lost between replay and live messages. A stream message
that is posted twice has the same sequence, so the client drops it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, assert_never

from helix.core.agents import AnyAgent
from helix.core.errors import DamagedRowError, InvalidInputError
from helix.core.frames import lagging_frame, message_frames
from helix.core.handles import AgentExecutionHandle, Confirmation
from helix.core.inbox import WaitingMessage
from helix.core.initial import AgentInput
from helix.core.json import JsonObject, dumps
from helix.core.requests import Subscribe, Unsubscribe
from helix.core.run_requests import Abort, AnswerAction, Interrupt, ReportCall, Resume, Retry, Run, Withdraw
from helix.core.session_requests import Branch, ChangeTags, Clone, Compact, Delete, Rename
from helix.core.session_row import SessionRow
from helix.core.wire import StreamMessage
from helix.gateway.backend import Backend, check_root
from helix.gateway.connections import Connection
from helix.ports.state_store import ABSENT, Key, Put
from helix.runtime.edits import edit
from helix.runtime.handle import find_run
from helix.services.committing import refused
from helix.services.file_inputs import ReadContent, ReadFile
from helix.services.request_keys import HOLDS_S, key_partition, keyed_run
from helix.stream.reader import read_with_idle

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def request_key(caller: Connection, request: Run | Resume | Retry | Branch | Clone, *session_id: str) -> str:
    """Return a 26-character key that only this request and its repeats share. If the client sent a key, the result is
    unique for the principal, and otherwise for the connection. With `session_id`, it is also unique for the session, so
    runs in different sessions never share a key."""
    own = ["id", caller.connection_id, request.id] if request.key is None else ["key", caller.principal, request.key]
    number = int.from_bytes(hashlib.sha256(dumps([request.action, *own, *session_id]).encode()).digest()[:17])
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


async def create_session_id(backend: Backend, key: str) -> str:
    """Return the id of the new session of this request. Its repeats get the same id while the key is valid. The id is
    not derived from the key, because sessions are listed by id and must sort by time."""
    place, fresh = Key("streams", key_partition(key), "session"), backend.ids.new("ses")
    # Valid for an hour longer than the run's key, which is recorded later. So a repeat never finds a run without its
    # session.
    value = {"session_id": fresh, "ttl": int(backend.clock.now() + HOLDS_S + 3600)}
    if await refused(backend.executor.store, "mint_session", [Put(place, value, ABSENT)]) is None:
        return fresh
    (known,) = await backend.executor.store.get([place])
    return str(known["session_id"]) if known is not None else fresh


REPLAY_S: Final = 15.0
"""The time for which one request may replay messages, in seconds. It is well below the 29 s after which API Gateway
gives up on the function."""
BATCH: Final = 200


class ConnectionGoneError(Exception):
    """Raised if a connection closes before it gets its response."""


async def replay(backend: Backend, connection_id: str, stream_id: str, after: int) -> tuple[int, bool]:
    """Post the stored messages after `after`, for at most `REPLAY_S`. A connection that is too slow is marked as
    lagging. Return the last sequence that was posted, and whether nothing is stored after it.

    If the log's beginning has expired, the gap is reported as `stream_resync`. Raises `ConnectionGoneError`, and
    `StreamNotFoundError` if the stream once had messages and no longer exists.
    """
    until = backend.clock.now() + REPLAY_S
    position, batch = after, list[StreamMessage]()

    async def flush() -> bool:
        nonlocal position
        for frame in message_frames(stream_id, batch):
            match await backend.sockets.post(connection_id, frame):
                case "gone":
                    raise ConnectionGoneError(connection_id)
                case "slow":
                    await backend.connections.mark_lagging(stream_id, connection_id)
                    await backend.sockets.post(connection_id, lagging_frame(stream_id, position))
                    return False
        position = batch[-1].sequence if batch else position
        batch.clear()
        return True

    reading = read_with_idle(backend.executor.streams, stream_id, from_sequence=after, follow=True, idle_s=0)
    async with aclosing(reading) as messages:
        async for message in messages:
            if message is None:
                complete = await flush()
                return position, complete
            batch.append(message)
            if len(batch) >= BATCH and (not await flush() or backend.clock.now() > until):
                return position, False
    raise AssertionError("a followed stream ends with its reader only")


Start = Callable[..., Awaitable[AgentExecutionHandle[Any]]]
ReadFiles = Callable[[], Awaitable[Sequence[ReadFile]]]


async def run(backend: Backend, caller: Connection, request: Run, read_files: ReadFiles | None = None) -> JsonObject:
    """Start the run. `read_files` reads the files of a trigger's message. It is not called for a repeated request."""
    session_id = request.session_id or await create_session_id(backend, request_key(caller, request))
    row = await backend.find(caller.principal, session_id)
    if row is None and request.session_id is not None:
        backend.check_prefix(caller.principal, session_id)
        await backend.check_free(session_id)
    steered = row is not None and row.status == "running" and request.when_running == "steer"
    if row is not None and not steered:
        check_root(row)
    if row is not None and row.parent is not None:
        agent = await backend.agent_of(row, caller.principal)
    else:
        agent = backend.agent(request.agent, caller.principal, session_id)
    message = _parameters(agent, request.input) if request.input is not None else request.message or ""
    named = {"id": request.message_id} if request.message_id else {}
    given = AgentInput(message=message, files=request.files, state=request.state or {}, metadata=named)
    start: Start = partial(
        edit,
        backend.executor,
        agent,
        session_id,
        given,
        user_id=caller.principal,
        when_running=request.when_running,
        tools=request.tools,
        settings=request.settings,
    )
    if not request.edits or row is None:
        start = partial(
            backend.executor.execute,
            agent,
            await _with_files(backend, given, request_key(caller, request, session_id), read_files),
            session_id=session_id,
            user_id=caller.principal,
            tags=request.tags,
            metadata=request.metadata,
            priority=request.priority,
            when_running=request.when_running,
            tools=request.tools,
            settings=request.settings,
        )
    return await _start_run(backend, caller, request, session_id, row, start)


async def _with_files(
    backend: Backend, given: AgentInput, key: str, read_files: ReadFiles | None
) -> AgentInput | JsonObject:
    if read_files is None or await keyed_run(backend.executor.store, key) is not None:
        return given
    content: Any = ReadContent(given.message, [*await read_files()])
    return {**given.model_dump(exclude={"files"}), "message": content}


async def resume_or_retry(backend: Backend, caller: Connection, request: Resume | Retry) -> JsonObject:
    row = await backend.get_owned(caller.principal, request.session_id)
    agent = await backend.agent_of(row, caller.principal)
    start: Start
    match request:
        case Resume():
            start = partial(backend.executor.resume, mode=request.mode, checkpoint_id=request.checkpoint_id)
        case Retry():
            start = partial(backend.executor.retry, mode=request.mode)
        case _:
            assert_never(request)
    message = AgentInput(message=request.message or "", files=request.files) if request.files else request.message
    start = partial(start, agent, row.session_id, message=message, tools=request.tools, settings=request.settings)
    return await _start_run(backend, caller, request, row.session_id, row, start)


async def answer(backend: Backend, caller: Connection, request: AnswerAction) -> JsonObject:
    row = await backend.get_owned(caller.principal, request.session_id)
    agent = await backend.agent_of(row, caller.principal)
    after = await subscribe_if_asked(backend, caller, row.stream_id, request.subscribe)
    said = (request.tool_call_id, request.approved, request.data, request.reason, request.arguments)
    verdict = Confirmation(*said, by=caller.principal, round=request.round)
    answered = await backend.executor.answer(agent, request.session_id, verdict)
    now = await backend.history.existing(request.session_id)
    resumed = answered.claimed is not None
    reply = await _reply(backend, request.session_id, now.run_id, row.stream_id, after)
    return {**reply, "resumed": resumed}


async def _start_run(
    backend: Backend,
    caller: Connection,
    request: Run | Resume | Retry,
    session_id: str,
    row: SessionRow | None,
    start: Start,
) -> JsonObject:
    """Subscribe, claim and reply. The reply to a repeated request names the run that the original request started."""
    stream_id = row.stream_id if row is not None else session_id
    after = await subscribe_if_asked(backend, caller, stream_id, request.subscribe)
    try:
        handle = await start(key=request_key(caller, request, session_id))
    except Exception:
        if row is None and request.subscribe:
            await backend.connections.unsubscribe(caller.connection_id, stream_id)
        raise
    reply = await _reply(backend, session_id, handle.run_id, stream_id, after)
    return reply if handle.queued_id is None else {**reply, "queued_id": handle.queued_id}


async def subscribe_if_asked(backend: Backend, caller: Connection, stream_id: str, subscribe: bool) -> int:
    """Subscribe the connection if `subscribe` is set. Return the stream's last sequence."""
    if subscribe:
        await backend.connections.subscribe(caller.connection_id, stream_id)
    info = await backend.executor.streams.info(stream_id)
    return info.latest_sequence if info is not None else 0


def _parameters(agent: AnyAgent, parameters: JsonObject) -> str:
    """Return the message that `execute` makes from a mapping. A function agent reads its parameters from the
    message. Raises `InvalidInputError` for what another agent cannot receive."""
    if agent.function is not None:
        return dumps(parameters)
    unknown = [repr(name) for name in parameters if name != "message"]
    if unknown:
        raise InvalidInputError(
            f"the input of agent {agent.name!r} has only the key 'message', not {', '.join(unknown)}: send files and "
            "state beside the message"
        )
    return str(parameters.get("message", ""))


async def _reply(backend: Backend, session_id: str, run_id: str, stream_id: str, after: int) -> JsonObject:
    run = await find_run(backend.executor.sessions, session_id, run_id)
    if isinstance(run, WaitingMessage):
        return {
            "session_id": session_id,
            "run_id": run_id,
            "turn": 0,
            "stream_id": stream_id,
            "after": after,
            "replay": False,
        }
    begin = min(after, run.start_sequence)  # a run that an earlier delivery started may already have messages
    reply: JsonObject = {"session_id": session_id, "run_id": run_id, "turn": run.turn, "stream_id": stream_id}
    return {**reply, "after": begin, "replay": begin < after}


logger = logging.getLogger("helix.gateway")


async def report_call(backend: Backend, caller: Connection | None, request: ReportCall) -> JsonObject:
    """End or prolong the call that has the token. Whoever has the token may do so."""
    if request.heartbeat:
        return {"expires_at": await backend.executor.prolong_call(request.token)}
    if request.error is not None:
        await backend.executor.fail_call(request.token, request.error)
    else:
        await backend.executor.complete_call(request.token, request.data)
    return {"expires_at": None}


async def interrupt(backend: Backend, caller: Connection, request: Interrupt) -> JsonObject:
    await backend.get_owned(caller.principal, request.session_id)
    asked = await backend.executor.interrupt(request.session_id, request.reason, run_id=request.run_id)
    return {"interrupted": asked}


async def withdraw(backend: Backend, caller: Connection, request: Withdraw) -> JsonObject:
    await backend.get_owned(caller.principal, request.session_id)
    return {"withdrawn": await backend.executor.withdraw(request.session_id, request.queued_id)}


async def abort(backend: Backend, caller: Connection, request: Abort) -> JsonObject:
    try:
        row = await backend.get_owned(caller.principal, request.session_id)
        agent = await backend.agent_of(row, caller.principal)
    except DamagedRowError:
        entry = await backend.get_entry(caller.principal, request.session_id)
        if entry is None:
            raise
        agent = backend.agent(str(entry["agent_type"]), caller.principal, request.session_id)
    await backend.executor.abort(agent, request.session_id, request.reason, run_id=request.run_id)
    return {}


async def compact(backend: Backend, caller: Connection, request: Compact) -> JsonObject:
    await backend.get_owned(caller.principal, request.session_id)
    await backend.executor.compact(request.session_id, request.focus)
    return {}


async def rename(backend: Backend, caller: Connection, request: Rename) -> JsonObject:
    check_root(await backend.get_owned(caller.principal, request.session_id))
    return {"title": await backend.executor.rename(request.session_id, request.title)}


async def change_tags(backend: Backend, caller: Connection, request: ChangeTags) -> JsonObject:
    check_root(await backend.get_owned(caller.principal, request.session_id))
    return {"tags": [*await backend.executor.change_tags(request.session_id, add=request.add, remove=request.remove)]}


# --- following --------------------------------------------------------------------------------------------------------


async def subscribe(backend: Backend, caller: Connection, request: Subscribe) -> JsonObject:
    row = await _find_root(backend, caller, request)
    await backend.connections.subscribe(caller.connection_id, row.stream_id)
    caught_up, complete = await replay(backend, caller.connection_id, row.stream_id, request.after)
    return {"stream_id": row.stream_id, "caught_up": caught_up, "complete": complete}


async def unsubscribe(backend: Backend, caller: Connection, request: Unsubscribe) -> JsonObject:
    row = await _find_root(backend, caller, request)
    await backend.connections.unsubscribe(caller.connection_id, row.stream_id)
    return {"stream_id": row.stream_id}


async def _find_root(backend: Backend, caller: Connection, request: Subscribe | Unsubscribe) -> SessionRow:
    """Return the session of the stream that the request names. A stream has the id of its root session."""
    return await backend.get_owned(caller.principal, request.session_id or request.stream_id or "")


# --- copies and ends --------------------------------------------------------------------------------------------------


async def copy(backend: Backend, caller: Connection, request: Branch | Clone) -> JsonObject:
    """Copy a session. A repeated request without `target` finds the copy that an earlier delivery made."""
    check_root(await backend.get_owned(caller.principal, request.session_id))
    if request.target is not None:
        backend.check_prefix(caller.principal, request.target)
    target = request.target or await create_session_id(backend, request_key(caller, request))
    if request.target is not None or await backend.find(caller.principal, target) is None:
        upto = {"from_message_index": request.message_index} if isinstance(request, Clone) else {}
        await backend.executor.clone_session(
            request.session_id, target, from_checkpoint_id=request.checkpoint_id, **upto
        )
    return {"session_id": target}


async def delete(backend: Backend, caller: Connection, request: Delete) -> JsonObject:
    """Delete a session, or continue a deletion that stopped halfway. Its subscriptions are removed too, because another
    user may later get its id."""
    try:
        check_root(await backend.get_owned(caller.principal, request.session_id, deleting=True))
    except DamagedRowError:
        logger.warning("the row of session %s cannot be read; its owner deletes the session", request.session_id)
    await backend.executor.delete(request.session_id)
    await backend.connections.drop_stream(request.session_id)
    return {"deleted": True}
