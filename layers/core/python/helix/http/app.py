"""An ASGI app that starts agent runs and streams them in a front end's encoding.

Law: the run belongs to the executor. A client that leaves does not stop it. The app checks client input against the rows:
the owner of the session, and the waiting calls.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Literal, TypeAlias, get_args

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from helix._log import get_logger
from helix.core.agents import AnyAgent
from helix.core.errors import (
    AgentNotFoundError,
    CallNotPendingError,
    InvalidInputError,
    SessionNotFoundError,
)
from helix.core.file_checks import clean_name
from helix.core.refusals import http_status, refusal_of
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.http.bodies import MAX_BODY_BYTES, MAX_USED_BYTES, Body, check_json, check_origin, read_body, used_part
from helix.http.confirmations import confirmation_of, only_question
from helix.http.downloads import file_response
from helix.http.messages import agui_conversation, ui_conversation
from helix.http.requests import Ask, agui_request, plain_request, ui_request
from helix.http.responses import Encoder, Events, Plain, Position, body, encode, parse_position
from helix.http.run_start import check_state, start
from helix.http.turn_reader import is_at_work, read_turn, replayed_text
from helix.http.turns import Turn, conversation, get_owned, questions, start_state, turn_of
from helix.http.waiting import await_turn, waiting_body
from helix.runtime import call_reports
from helix.runtime.edits import Handle
from helix.runtime.executor import Executor
from helix.services.request_keys import KeyedRun
from helix.stream.agui import AgUiEncoder, pause_id
from helix.stream.agui_open import Joining
from helix.stream.handler import EVENT_STREAM, HEARTBEAT_S
from helix.stream.ui_messages import UIMessageEncoder, Version

logger = get_logger("helix.http")
Encoding: TypeAlias = Literal["chunks", "ai-sdk", "ai-sdk-v6", "ag-ui"]
User: TypeAlias = Callable[[Request], str | Awaitable[str | None] | None]
CLIENT_LEFT = 499
"""The status for logs, as in nginx. The client does not receive it."""
_PARSERS: dict[Encoding, Callable[[Body], Ask]] = {
    "chunks": plain_request,
    "ai-sdk": ui_request,
    "ai-sdk-v6": ui_request,
    "ag-ui": agui_request,
}
UI = ("ai-sdk", "ai-sdk-v6")
CALLS = "calls"
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
    """Return routes for these agents, to be mounted in any ASGI app. `<encoding>` is `chunks`, `ai-sdk`, `ai-sdk-v6` or
    `ag-ui`.

        POST   /<agent>/<encoding>                    a message or answers; the response streams the run. The response to a
                                                      message for a session that works waits for the message's own run
        GET    /<agent>/<encoding>/<session>/stream   the newest run, after `Last-Event-ID` or `?after=`
        GET    /<agent>/<encoding>/<session>/messages all messages of the session, for a page that is loading
        GET    /<agent>/<encoding>/<session>/files/<sha256>  a file of the session, as an attachment called `?name=`
        GET    /<agent>/<encoding>/<session>/inbox    the messages that wait for a run
        DELETE /<agent>/<encoding>/<session>/inbox/<id>  take a waiting message back
        POST   /calls/<token>[/fail|/heartbeat]       a report of a call that ends elsewhere, without a user
        DELETE /<agent>/<encoding>/<session>/stream   interrupt the run; also POST /<agent>/<encoding>/<session>/stop

    user: returns the caller's user id for a request. Users own the sessions they start, and do not see other users'
        sessions. It may raise Starlette's `HTTPException`. Without it, all clients count as one user, whose sessions
        have no owner.
    heartbeat_s: after a silence of this many seconds, the server sends a comment on the stream.
    max_body_bytes: a larger request is refused (413). So is one with more than 4 MB in addition to files in base64 and to
        its history, which `useChat` and `HttpAgent` send along.

    Errors are `{"error": {"code", "message", "recoverable", "details"}}`. The app does not close the executor; its
    caller does.
    """
    if heartbeat_s <= 0:
        raise InvalidInputError(f"heartbeat_s is {heartbeat_s}: it must be more than 0 seconds")
    known = {agent.name: agent for agent in agents}
    if CALLS in known:
        raise InvalidInputError(f"an agent of this app cannot have the name {CALLS!r}, which is part of other paths")
    for agent in agents:
        executor.agents.know(agent)
    service = _Service(executor, known, user, heartbeat_s, max_body_bytes)
    session = "/{agent}/{encoding}/{session_id}"
    return Starlette(
        routes=[
            Route(f"/{CALLS}/{{token}}", service.catch_errors(service.report_call), methods=["POST"]),
            Route(f"/{CALLS}/{{token}}/{{how}}", service.catch_errors(service.report_call), methods=["POST"]),
            Route("/{agent}/{encoding}", service.catch_errors(service.post), methods=["POST"]),
            Route(f"{session}/stream", service.catch_errors(service.get), methods=["GET"]),
            Route(f"{session}/stream", service.catch_errors(service.stop), methods=["DELETE"]),
            Route(f"{session}/messages", service.catch_errors(service.messages), methods=["GET"]),
            Route(f"{session}/inbox", service.catch_errors(service.inbox), methods=["GET"]),
            Route(f"{session}/inbox/{{queued_id}}", service.catch_errors(service.withdraw), methods=["DELETE"]),
            Route(f"{session}/files/{{sha256}}", service.catch_errors(service.file), methods=["GET"]),
            Route(f"{session}/stop", service.catch_errors(service.stop), methods=["POST"]),
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

    def catch_errors(
        self, handle: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            try:
                return await handle(request)
            except HTTPException:
                raise
            except ClientDisconnect:
                logger.debug("a client left before its body was whole")
                return Response(status_code=CLIENT_LEFT)
            except Exception as error:
                status = http_status(error)
                if status >= 500:
                    logger.exception("request failed")
                return JSONResponse({"error": refusal_of(error)}, status)

        return respond

    # --- the three verbs --------------------------------------------------------------------------------------------

    async def post(self, request: Request) -> Response:
        agent, encoding, user = await self._read_target(request)
        check_json(request)
        sent = await read_body(request.stream(), self._max_body_bytes)
        ask = await asyncio.to_thread(_parse, encoding, sent, min(self._max_body_bytes, MAX_USED_BYTES))
        if ask.answers:
            turn = await self._answer(agent, ask, user)
            return _respond(encoding, turn, await self._events(request, encoding, turn, results=ask.results))
        started = await self._execute(agent, ask, user)
        if started.queued_id is not None:
            return self._respond_waiting(request, encoding, agent, started)
        session = await self._session(agent, started.session_id, user)
        turn = await turn_of(self._executor, session, started.run_id, goes_on=True)
        return _respond(encoding, turn, await self._events(request, encoding, turn))

    async def get(self, request: Request) -> Response:
        agent, encoding, user = await self._read_target(request)
        cut = request.headers.get("last-event-id")
        after = parse_position(cut or request.query_params.get("after"))
        try:
            session = await self._session(agent, request.path_params["session_id"], user)
        except SessionNotFoundError:
            if encoding in UI:  # a chat that has no run has nothing to resume
                return Response(status_code=204)
            raise
        run_id, works = request.query_params.get("run"), await is_at_work(self._executor, session)
        turn = await turn_of(self._executor, session, run_id, goes_on=run_id is None)
        if not works:
            info = await self._executor.streams.info(session.stream_id)
            if info is None or info.latest_sequence < (after.sequence if after is not None else 1):
                return Response(status_code=204)  # retention has deleted the stream, or the reader is beyond its end
        whole = encoding in UI and (after is None or after.sequence <= turn.first.start_sequence)
        events = await self._events(request, encoding, turn, whole=whole, after=after, joins=not cut)
        return _respond(encoding, turn, events)

    async def messages(self, request: Request) -> Response:
        agent, encoding, user = await self._read_target(request)
        if encoding == "chunks":
            raise InvalidInputError("the encoding 'chunks' has no messages: use 'ai-sdk', 'ai-sdk-v6' or 'ag-ui'")
        try:
            session = await self._session(agent, request.path_params["session_id"], user)
        except SessionNotFoundError:  # the chat has no run yet
            return JSONResponse({"messages": []})
        if encoding == "ag-ui":
            return JSONResponse({"messages": await agui_conversation(self._executor, session)})
        version: Version = 7 if encoding == "ai-sdk" else 6
        return JSONResponse({"messages": await ui_conversation(self._executor, session, version, _base(request))})

    async def inbox(self, request: Request) -> Response:
        agent, _, user = await self._read_target(request)
        session = await self._session(agent, request.path_params["session_id"], user)
        waiting = await self._executor.sessions.get_inbox(session.session_id)
        return JSONResponse({"inbox": [message.model_dump(mode="json") for message in waiting]})

    async def withdraw(self, request: Request) -> Response:
        agent, _, user = await self._read_target(request)
        session = await self._session(agent, request.path_params["session_id"], user)
        outcome = await self._executor.withdraw(session.session_id, request.path_params["queued_id"])
        return JSONResponse({"withdrawn": outcome})

    async def file(self, request: Request) -> Response:
        agent, _, user = await self._read_target(request)
        session = await get_owned(self._executor, request.path_params["session_id"], user)
        await self._session(agent, session.stream_id, user)  # a sub-agent's files are those of its root session's page
        name = clean_name(request.query_params.get("name"))
        return await file_response(self._executor, session.session_id, request.path_params["sha256"], name)

    async def stop(self, request: Request) -> Response:
        agent, _, user = await self._read_target(request)
        check_origin(request)
        session = await self._session(agent, request.path_params["session_id"], user)
        return JSONResponse({"interrupted": await self._executor.interrupt(session.session_id, "stopped by its user")})

    async def report_call(self, request: Request) -> Response:
        """Report a call that ends elsewhere. A webhook has no login: its token is the credential."""
        sent = await read_body(request.stream(), call_reports.MAX_BODY_BYTES)
        token, how = request.path_params["token"], request.path_params.get("how", "")
        kind = request.headers.get("content-type", "")
        return JSONResponse(await call_reports.report_call(self._executor, token, how, sent, kind))

    # --- the caller and the request ---------------------------------------------------------------------------------

    async def _read_target(self, request: Request) -> tuple[AnyAgent, Encoding, str | None]:
        name, encoding = request.path_params["agent"], request.path_params["encoding"]
        found = self._user(request) if self._user is not None else None
        user = await found if inspect.isawaitable(found) else found
        if name not in self._agents:
            raise AgentNotFoundError(f"there is no agent {name!r} here")
        if encoding not in get_args(Encoding):
            raise InvalidInputError(f"there is no encoding {encoding!r}: use one of {', '.join(get_args(Encoding))}")
        return self._agents[name], encoding, user

    async def _session(self, agent: AnyAgent, session_id: str, user: str | None) -> SessionRow:
        session = await get_owned(self._executor, session_id, user)
        if session.agent_type != agent.name or session.parent is not None:
            raise SessionNotFoundError(session_id)
        return session

    async def _execute(self, agent: AnyAgent, ask: Ask, user: str | None) -> Handle | KeyedRun:
        session = None
        if ask.session_id is not None and await self._executor.engine.history.session(ask.session_id) is not None:
            session = await self._session(agent, ask.session_id, user)
        return await start(self._executor, agent, ask, user, session)

    async def _answer(self, agent: AnyAgent, ask: Ask, user: str | None) -> Turn:
        if ask.session_id is None:
            raise InvalidInputError("session_id is missing: name the session that the answers are for")
        session = await self._session(agent, ask.session_id, user)
        await check_state(self._executor, session, ask.state)
        waiting, acted = await questions(self._executor, session), False
        info = await self._executor.streams.info(session.stream_id)
        for shown, given in ask.answers.items():
            asked = waiting.get(shown) or only_question(waiting, shown, given)
            if asked is not None and asked.kind == "question" and given.answer is not None:
                given = given.answer
            if asked is None or given.result not in (None, asked.kind in ("client", "question")):
                continue
            try:
                await self._executor.answer(agent, asked.session_id, confirmation_of(asked, given, user), user_id=user)
                acted = True
            except CallNotPendingError:
                continue  # another request has answered it
        pause = ask.answers.get(pause_id(session.run_id))
        if not waiting and pause is not None and pause.approved and session.status == "paused":
            await self._executor.resume(agent, session.session_id, user_id=user)
            acted = True
        if waiting and not acted:
            raise InvalidInputError(
                f"none of the answers is for a waiting call; waiting calls: {', '.join(list(waiting)[:20])}"
            )
        if (
            not acted and session.status == "interrupted"
        ):  # a page that received this run again would repeat its answer forever
            raise CallNotPendingError(
                f"no call of session {session.session_id!r} waits for an answer, because its run was interrupted: "
                "send a message, or answer the last one again"
            )
        since = session.turn + (acted and session.status != "running")
        turn = await turn_of(self._executor, await self._session(agent, ask.session_id, user), goes_on=True)
        return replace(turn, since=since, seen=info.latest_sequence if info is not None else 0)

    # --- the stream -------------------------------------------------------------------------------------------------

    def _respond_waiting(
        self, request: Request, encoding: Encoding, agent: AnyAgent, started: Handle | KeyedRun
    ) -> Response:
        """Stream the message's own turn once it has begun."""

        async def show(turn: Turn) -> AsyncGenerator[bytes, None]:
            return body(await self._events(request, encoding, turn, messages=True), b"")

        waiting = await_turn(self._executor, agent, started, self._heartbeat_s)
        content = waiting_body(encoding, waiting, started, show, DONE if encoding in UI else b"")
        return _stream(encoding, content, started)

    async def _events(
        self,
        request: Request,
        encoding: Encoding,
        turn: Turn,
        *,
        whole: bool = False,
        after: Position | None = None,
        joins: bool | None = None,
        results: Mapping[str, str] | None = None,
        messages: bool = False,
    ) -> Events:
        """Return the events of a turn. joins: True if the connection is new, False if it resumes one that was interrupted.
        None for a POST, whose response is new to the client. results: see `AgUiEncoder`. messages: AG-UI begins with the
        conversation. While the message waited, its page received the rest of the conversation in another response."""
        encoder = await self._encoder(request, encoding, turn, results, messages=messages)
        join = None
        if isinstance(encoder, AgUiEncoder) and joins is not None:
            join = Joining(encoder, turn.run.run_id, anew=joins)
        left_out: Set[int] = frozenset()
        if encoding == "ai-sdk-v6" and after is None:
            left_out = await replayed_text(self._executor, turn)
        reading = read_turn(self._executor, turn, self._heartbeat_s, left_out)
        return encode(reading, turn, encoder, whole=whole, after=after, join=join)

    async def _encoder(
        self,
        request: Request,
        encoding: Encoding,
        turn: Turn,
        results: Mapping[str, str] | None,
        *,
        messages: bool,
    ) -> Encoder:
        session_id = turn.session.session_id
        if encoding == "chunks":
            return Plain()
        if encoding in UI:
            return UIMessageEncoder(session_id, version=7 if encoding == "ai-sdk" else 6, base=_base(request))
        before, state = await conversation(self._executor, turn), await start_state(self._executor, turn)
        agui = AgUiEncoder(session_id, messages=before, state=state, results=results)
        agui.announce(run_id=turn.run.run_id, messages=messages)
        return agui


def _respond(encoding: Encoding, turn: Turn, events: Events) -> StreamingResponse:
    return _stream(encoding, body(events, DONE if encoding in UI else b""), turn.run)


def _stream(
    encoding: Encoding, content: AsyncGenerator[bytes, None], shown: RunRow | Handle | KeyedRun
) -> StreamingResponse:
    about = {"x-helix-session": shown.session_id, "x-helix-run": shown.run_id}
    if not isinstance(shown, RunRow) and shown.queued_id is not None:
        about["x-helix-queued"] = shown.queued_id
    return StreamingResponse(content, 200, {**EVENT_STREAM, **(UI_HEADERS if encoding in UI else {}), **about})


def _base(request: Request) -> str:
    """Return the address of the agent in the encoding of a request, as a path on this server."""
    path = request.url.path.rstrip("/")
    return path if "session_id" not in request.path_params else path.rsplit("/", 2)[0]


def _parse(encoding: Encoding, sent: Body, limit: int) -> Ask:
    """Parse the body, and decode and describe its files. This takes long enough for a thread."""
    return _PARSERS[encoding](used_part(sent, limit))
