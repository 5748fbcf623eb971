"""An ASGI app that starts runs of agents and streams them, in the encoding that a front end reads.

Law: the run is the executor's. A client that is gone does not stop it, and what a client sends is asked of the rows before
it is believed: whose session it is, and which calls wait.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import replace
from hashlib import sha256
from typing import Any, Literal, TypeAlias, get_args

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from helix._log import get_logger
from helix.core.agents import AnyAgent
from helix.core.errors import (
    AgentNotFoundError,
    BodyTooLargeError,
    CallNotPendingError,
    InvalidInputError,
    SessionNotFoundError,
)
from helix.core.handles import Confirmation
from helix.core.json import JsonObject, dumps
from helix.core.refusals import http_status, refusal_of
from helix.core.rows import SessionRow
from helix.http.messages import agui_conversation, ui_conversation
from helix.http.reading import at_work, read_turn, replayed_text
from helix.http.requests import Ask, Given, agui_request, plain_request, ui_request
from helix.http.responses import Encoder, Plain, Position, body, encode, parse_position
from helix.http.turns import Turn, conversation, owned, questions, start_state, turn_of
from helix.runtime.executor import Executor
from helix.stream.agui import AgUiEncoder, pause_id
from helix.stream.agui_open import Joining
from helix.stream.handler import EVENT_STREAM, HEARTBEAT_S
from helix.stream.ui_messages import UIMessageEncoder, Version

logger = get_logger("helix.http")
Encoding: TypeAlias = Literal["chunks", "ai-sdk", "ai-sdk-v6", "ag-ui"]
User: TypeAlias = Callable[[Request], str | Awaitable[str | None] | None]
MAX_BODY_BYTES = 4_000_000
_PARSERS: dict[Encoding, Callable[[bytes], Ask]] = {
    "chunks": plain_request,
    "ai-sdk": ui_request,
    "ai-sdk-v6": ui_request,
    "ag-ui": agui_request,
}
UI = ("ai-sdk", "ai-sdk-v6")
DONE = b"data: [DONE]\n\n"
UI_HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}


def app(
    executor: Executor,
    agents: Sequence[AnyAgent],
    *,
    user: User | None = None,
    heartbeat_s: float = HEARTBEAT_S,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> Starlette:
    """Routes for these agents, to be mounted in any ASGI app. `<encoding>` is `chunks`, `ai-sdk`, `ai-sdk-v6` or `ag-ui`:

        POST   /<agent>/<encoding>                    a message or answers; the response streams the run
        GET    /<agent>/<encoding>/<session>/stream   the newest run, after `Last-Event-ID` or `?after=`
        GET    /<agent>/<encoding>/<session>/messages all messages of the session, for a page that loads
        DELETE /<agent>/<encoding>/<session>/stream   interrupt the run; also POST /<agent>/<encoding>/<session>/stop

    user: who asks, from the request: the owner of the sessions they start; anybody else's do not exist for them. It may
        raise Starlette's `HTTPException`. Without it all clients are one user, whose sessions have no owner.
    heartbeat_s: a silence of that long is broken by a comment. max_body_bytes: a larger request is refused (413).
    Errors are `{"error": {"code", "message", "recoverable", "details"}}`. The executor is the caller's to close.
    """
    if heartbeat_s <= 0:
        raise InvalidInputError(f"heartbeat_s is {heartbeat_s}: it must be more than 0 seconds")
    known = {agent.name: agent for agent in agents}
    for agent in agents:
        executor.agents.know(agent)
    service = _Service(executor, known, user, heartbeat_s, max_body_bytes)
    session = "/{agent}/{encoding}/{session_id}"
    return Starlette(
        routes=[
            Route("/{agent}/{encoding}", service.guarded(service.post), methods=["POST"]),
            Route(f"{session}/stream", service.guarded(service.get), methods=["GET"]),
            Route(f"{session}/stream", service.guarded(service.stop), methods=["DELETE"]),
            Route(f"{session}/messages", service.guarded(service.messages), methods=["GET"]),
            Route(f"{session}/stop", service.guarded(service.stop), methods=["POST"]),
        ]
    )


class _Service:
    def __init__(
        self,
        executor: Executor,
        agents: dict[str, AnyAgent],
        user: User | None,
        heartbeat_s: float,
        max_body_bytes: int,
    ) -> None:
        self._executor, self._agents, self._user = executor, agents, user
        self._heartbeat_s, self._max_body_bytes = heartbeat_s, max_body_bytes

    def guarded(self, handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except HTTPException:
                raise
            except Exception as error:
                status = http_status(error)
                if status >= 500:
                    logger.exception("request failed")
                return JSONResponse({"error": refusal_of(error)}, status)

        return answer

    # --- the three verbs --------------------------------------------------------------------------------------------

    async def post(self, request: Request) -> Response:
        agent, encoding, user = await self._asked(request)
        _check_json(request)
        ask = _PARSERS[encoding](await self._body(request))
        if ask.answers:
            return await self._respond(encoding, await self._answer(agent, ask, user))
        return await self._respond(encoding, await self._execute(agent, ask, user))

    async def get(self, request: Request) -> Response:
        agent, encoding, user = await self._asked(request)
        cut = request.headers.get("last-event-id")
        after = parse_position(cut or request.query_params.get("after"))
        try:
            session = await self._session(agent, request.path_params["session_id"], user)
        except SessionNotFoundError:
            if encoding in UI:  # a chat that has no run yet: there is nothing to resume
                return Response(status_code=204)
            raise
        run_id, works = request.query_params.get("run"), await at_work(self._executor, session)
        turn = await turn_of(self._executor, session, run_id, goes_on=run_id is None)
        if not works:
            info = await self._executor.streams.info(session.stream_id)
            if info is None or info.latest_sequence < (after.sequence if after is not None else 1):
                return Response(status_code=204)  # retention has deleted the stream, or the reader is beyond its end
        whole = encoding in UI and (after is None or after.sequence <= turn.first.start_sequence)
        return await self._respond(encoding, turn, whole=whole, after=after, joins=not cut)

    async def messages(self, request: Request) -> Response:
        agent, encoding, user = await self._asked(request)
        if encoding == "chunks":
            raise InvalidInputError("the encoding 'chunks' has no messages: use 'ai-sdk', 'ai-sdk-v6' or 'ag-ui'")
        try:
            session = await self._session(agent, request.path_params["session_id"], user)
        except SessionNotFoundError:  # a chat that has no run yet
            return JSONResponse({"messages": []})
        if encoding == "ag-ui":
            return JSONResponse({"messages": await agui_conversation(self._executor, session)})
        version: Version = 7 if encoding == "ai-sdk" else 6
        return JSONResponse({"messages": await ui_conversation(self._executor, session, version)})

    async def stop(self, request: Request) -> Response:
        agent, _, user = await self._asked(request)
        session = await self._session(agent, request.path_params["session_id"], user)
        return JSONResponse({"interrupted": await self._executor.interrupt(session.session_id, "stopped by its user")})

    # --- who asks for what ------------------------------------------------------------------------------------------

    async def _asked(self, request: Request) -> tuple[AnyAgent, Encoding, str | None]:
        name, encoding = request.path_params["agent"], request.path_params["encoding"]
        found = self._user(request) if self._user is not None else None
        user = await found if inspect.isawaitable(found) else found
        if name not in self._agents:
            raise AgentNotFoundError(f"there is no agent {name!r} here")
        if encoding not in get_args(Encoding):
            raise InvalidInputError(f"there is no encoding {encoding!r}: use one of {', '.join(get_args(Encoding))}")
        return self._agents[name], encoding, user

    async def _session(self, agent: AnyAgent, session_id: str, user: str | None) -> SessionRow:
        session = await owned(self._executor, session_id, user)
        if session.agent_type != agent.name or session.parent is not None:
            raise SessionNotFoundError(session_id)
        return session

    async def _body(self, request: Request) -> bytes:
        found = bytearray()
        async for part in request.stream():
            found += part
            if len(found) > self._max_body_bytes:
                raise BodyTooLargeError(f"the body is larger than {self._max_body_bytes} bytes")
        return bytes(found)

    async def _execute(self, agent: AnyAgent, ask: Ask, user: str | None) -> Turn:
        if ask.session_id is not None and await self._executor.engine.history.session(ask.session_id) is not None:
            session = await self._session(agent, ask.session_id, user)
            if ask.again and session.status == "failed":
                key = _key(agent, ask, user, session.run_id)
                handle: Any = await self._executor.retry(
                    agent, ask.session_id, mode="from_start", user_id=user, key=key
                )
                return await turn_of(self._executor, session, handle.run_id, goes_on=True)
        given: Any = ask.message
        if ask.message_id is not None:
            given = {"message": ask.message, "metadata": {"id": ask.message_id}}
        handle = await self._executor.execute(
            agent, given, session_id=ask.session_id, user_id=user, key=_key(agent, ask, user)
        )
        session = await self._session(agent, handle.session_id, user)
        present = await self._executor.sessions.get_current_run(session.session_id)
        repeated = ask.again and present.previous_run_id == handle.run_id and present.mode == "from_start"
        return await turn_of(self._executor, session, present.run_id if repeated else handle.run_id, goes_on=True)

    async def _answer(self, agent: AnyAgent, ask: Ask, user: str | None) -> Turn:
        if ask.session_id is None:
            raise InvalidInputError("session_id is missing: answers are for a session")
        session = await self._session(agent, ask.session_id, user)
        waiting, acted = await questions(self._executor, session), False
        info = await self._executor.streams.info(session.stream_id)
        for shown, given in ask.answers.items():
            asked = waiting.get(shown)
            if asked is None or given.result not in (None, asked.kind == "client"):
                continue
            try:
                await self._executor.answer(
                    agent, asked.session_id, _confirmation(asked.call_id, given, user), user_id=user
                )
                acted = True
            except CallNotPendingError:
                continue  # another request was quicker
        pause = ask.answers.get(pause_id(session.run_id))
        if not waiting and pause is not None and pause.approved and session.status == "paused":
            await self._executor.resume(agent, session.session_id, user_id=user)
            acted = True
        if waiting and not acted:
            raise InvalidInputError(f"no answer fits a call that waits: {', '.join(list(waiting)[:20])}")
        since = session.turn + (acted and session.status != "running")
        turn = await turn_of(self._executor, await self._session(agent, ask.session_id, user), goes_on=True)
        return replace(turn, since=since, seen=info.latest_sequence if info is not None else 0)

    # --- the stream -------------------------------------------------------------------------------------------------

    async def _respond(
        self,
        encoding: Encoding,
        turn: Turn,
        *,
        whole: bool = False,
        after: Position | None = None,
        joins: bool | None = None,
    ) -> Response:
        """joins: whether the connection begins now, or goes on with one that was cut; None of a request that has an answer
        of its own."""
        encoder = await self._encoder(encoding, turn)
        join = None
        if isinstance(encoder, AgUiEncoder) and joins is not None:
            join = Joining(encoder, turn.run.run_id, anew=joins)
        left_out: Set[int] = frozenset()
        if encoding == "ai-sdk-v6" and after is None:
            left_out = await replayed_text(self._executor, turn)
        reading = read_turn(self._executor, turn, self._heartbeat_s, left_out)
        events = encode(reading, turn, encoder, whole=whole, after=after, join=join)
        end = DONE if encoding in UI else b""
        session = {"x-helix-session": turn.session.session_id, "x-helix-run": turn.run.run_id}
        return StreamingResponse(
            body(events, end), 200, {**EVENT_STREAM, **(UI_HEADERS if encoding in UI else {}), **session}
        )

    async def _encoder(self, encoding: Encoding, turn: Turn) -> Encoder:
        session_id = turn.session.session_id
        if encoding == "chunks":
            return Plain()
        if encoding in UI:
            return UIMessageEncoder(session_id, version=7 if encoding == "ai-sdk" else 6)
        agui = AgUiEncoder(
            session_id, messages=await conversation(self._executor, turn), state=await start_state(self._executor, turn)
        )
        agui.announce(run_id=turn.run.run_id)
        return agui


def _confirmation(call_id: str, given: Given, user: str | None) -> Confirmation:
    by = user if given.arguments is not None else None
    return Confirmation(call_id, given.approved, given.data, given.reason, given.arguments, by)


def _check_json(request: Request) -> None:
    """A page of another site can send any other type with a user's cookies: the browser sends no preflight for it."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise InvalidInputError(f"the content type is {kind[:80]!r}: send application/json")


def _key(agent: AnyAgent, ask: Ask, user: str | None, failed: str | None = None) -> str | None:
    """A request that comes twice starts one run. A client's own names are its own: they are named with its user.
    failed: the run that is to be repeated."""
    own = ask.key or ask.message_id
    if own is None:
        return None
    about: JsonObject = {"agent": agent.name, "user": user, "session": ask.session_id, "key": own}
    if failed is not None:
        about["failed"] = failed
    return f"http:{sha256(dumps(about).encode()).hexdigest()}"
