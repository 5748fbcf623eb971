"""The actions that start runs: run, resume, retry, answer.

Law: the subscription comes before the claim, so that the connection misses nothing of the run; and a repeat of a request
finds the run that the first one started: the run's id is made of the request's key, so a run that has it is that run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from helix.core.agents import AnyAgent
from helix.core.errors import AgentAlreadyRunningError
from helix.core.initial import AgentInput
from helix.core.json import JsonObject, dumps
from helix.core.protocol import Answer, Resume, Retry, Run
from helix.core.row_keys import make_run_id
from helix.core.rows import SessionRow
from helix.engine.answers import Confirmation
from helix.gateway.backend import Backend, check_root, check_wanted
from helix.gateway.connections import Connection
from helix.gateway.once import minted, own_suffix
from helix.runtime.handle import AgentExecutionHandle

LOOKED_AT: Final = 20
"""Runs of a session that a repeat looks through for its own."""

Start = Callable[[AnyAgent, str], Awaitable[AgentExecutionHandle[Any]]]


async def run(backend: Backend, caller: Connection, request: Run) -> JsonObject:
    asked = (caller, request.action, request.key, request.id)
    session_id = request.session_id or await minted(backend, own_suffix(*asked))
    suffix = own_suffix(*asked, session_id)
    row = await backend.find(caller.principal, session_id)
    if row is None and request.session_id is not None:
        check_wanted(caller.principal, session_id)
        await backend.check_free(session_id)
    elif row is not None:
        check_root(row)
    agent = backend.agent(request.agent, caller.principal, session_id)
    message = request.message if request.message is not None else _parameters(agent, request.input or {})
    given = AgentInput(message=message, state=request.state or {})

    async def start(agent: AnyAgent, run_id: str) -> AgentExecutionHandle[Any]:
        return await backend.executor.execute(
            agent,
            given,
            session_id=session_id,
            user_id=caller.principal,
            tags=request.tags,
            metadata=request.metadata,
            run_id=run_id,
            priority=request.priority,
        )

    return await _started(backend, caller, session_id, row, agent, suffix, request.subscribe, start)


async def resume(backend: Backend, caller: Connection, request: Resume) -> JsonObject:
    row = await backend.owned(caller.principal, request.session_id)
    suffix = own_suffix(caller, request.action, request.key, request.id, request.session_id)

    async def start(agent: AnyAgent, run_id: str) -> AgentExecutionHandle[Any]:
        return await backend.executor.resume(
            agent,
            request.session_id,
            mode=request.mode,
            message=request.message,
            checkpoint_id=request.checkpoint_id,
            run_id=run_id,
        )

    agent = await backend.agent_of(row, caller.principal)
    return await _started(backend, caller, request.session_id, row, agent, suffix, request.subscribe, start)


async def retry(backend: Backend, caller: Connection, request: Retry) -> JsonObject:
    row = await backend.owned(caller.principal, request.session_id)
    suffix = own_suffix(caller, request.action, request.key, request.id, request.session_id)

    async def start(agent: AnyAgent, run_id: str) -> AgentExecutionHandle[Any]:
        return await backend.executor.retry(
            agent, request.session_id, mode=request.mode, message=request.message, run_id=run_id
        )

    agent = await backend.agent_of(row, caller.principal)
    return await _started(backend, caller, request.session_id, row, agent, suffix, request.subscribe, start)


async def answer(backend: Backend, caller: Connection, request: Answer) -> JsonObject:
    row = await backend.owned(caller.principal, request.session_id)
    agent = await backend.agent_of(row, caller.principal)
    after = await subscribed(backend, caller, row.stream_id, request.subscribe)
    verdict = Confirmation(request.tool_call_id, request.approved, request.data, request.reason)
    answered = await backend.executor.answer(agent, request.session_id, verdict)
    now = await backend.history.existing(request.session_id)
    resumed = answered.claimed is not None
    reply = await _reply(backend, request.session_id, now.run_id, row.stream_id, after)
    return {**reply, "resumed": resumed}


async def _started(
    backend: Backend,
    caller: Connection,
    session_id: str,
    row: SessionRow | None,
    agent: AnyAgent,
    suffix: str,
    subscribe: bool,
    start: Start,
) -> JsonObject:
    """Subscribe, claim and answer; or answer for the run that this request started before."""
    stream_id = row.stream_id if row is not None else session_id
    run_id = await _own_run(backend, row, suffix)
    after = await subscribed(backend, caller, stream_id, subscribe)
    if run_id is None:
        run_id = make_run_id((row.turn if row is not None else 0) + 1, suffix)
        try:
            await start(agent, run_id)
        except AgentAlreadyRunningError as error:
            if error.run_id is None or not error.run_id.endswith(suffix):
                raise
            run_id = error.run_id  # another delivery of this request was quicker
        except Exception:
            if row is None and subscribe:
                await backend.connections.unsubscribe(caller.connection_id, stream_id)
            raise
    return await _reply(backend, session_id, run_id, stream_id, after)


async def _own_run(backend: Backend, row: SessionRow | None, suffix: str) -> str | None:
    """The run that an earlier delivery of this request started, perhaps long ago."""
    if row is None or row.run_id.endswith(suffix):
        return None if row is None else row.run_id
    page = await backend.executor.sessions.list_runs(row.session_id, limit=LOOKED_AT)
    return next((run.run_id for run in page.runs if run.run_id.endswith(suffix)), None)


async def subscribed(backend: Backend, caller: Connection, stream_id: str, subscribe: bool) -> int:
    """Where the stream is, once the connection is sent what follows (if it wants to `subscribe`)."""
    if subscribe:
        await backend.connections.subscribe(caller.connection_id, stream_id)
    info = await backend.executor.streams.info(stream_id)
    return info.latest_sequence if info is not None else 0


def _parameters(agent: AnyAgent, parameters: JsonObject) -> str:
    """What `execute` makes of a mapping: a function agent reads its parameters from the message."""
    return dumps(parameters) if agent.function is not None else str(parameters.get("message", ""))


async def _reply(backend: Backend, session_id: str, run_id: str, stream_id: str, after: int) -> JsonObject:
    run = await backend.executor.sessions.get_run(session_id, run_id)
    begin = min(after, run.start_sequence)  # of a run that an earlier delivery started, there may be messages already
    reply: JsonObject = {"session_id": session_id, "run_id": run_id, "turn": run.turn, "stream_id": stream_id}
    return {**reply, "after": begin, "replay": begin < after}
