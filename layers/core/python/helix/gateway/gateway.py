"""Gateway: a client's message in, exactly one answer out, whatever carries both.

Law: who asks is looked up anew for every message, and is nobody once the connection's proof has expired. Nothing that a
client sends makes `handle` raise; what a client is told of a failure is what `core.refusals` lets it know.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, assert_never

from helix.core.errors import CallerError, HelixError, InvalidInputError, NotAuthenticatedError
from helix.core.frames import split
from helix.core.json import JsonObject
from helix.core.protocol import (
    Abort,
    Answer,
    AnyRequest,
    Authenticate,
    Branch,
    Clone,
    Delete,
    GetSession,
    Interrupt,
    ListCheckpoints,
    ListSessions,
    Ping,
    Resume,
    Retry,
    Run,
    Subscribe,
    Unsubscribe,
    error_reply,
    parse_request,
    reply,
    request_tags,
)
from helix.core.refusals import refusal_of
from helix.gateway import runs, sessions
from helix.gateway.backend import Backend
from helix.gateway.connections import Connection
from helix.gateway.principals import prefix_of
from helix.gateway.replay import ConnectionGoneError

logger = logging.getLogger("helix.gateway")
SLOW_TRIES: Final = 3
Count = Callable[[str, str], None]


class Gateway:
    """`count(action, code)` is told of every message: `ok`, or the error's code."""

    def __init__(self, backend: Backend, *, count: Count | None = None) -> None:
        self.backend = backend
        self._count = count or (lambda action, code: None)

    # --- connections --------------------------------------------------------------------------------------------------

    async def connect(self, connection_id: str, principal: str | None, expires_at: float) -> None:
        await self.backend.connections.open(connection_id, principal, expires_at)

    async def disconnect(self, connection_id: str) -> None:
        await self.backend.connections.close(connection_id)

    # --- messages -----------------------------------------------------------------------------------------------------

    async def handle(self, connection_id: str, body: str | bytes) -> None:
        """Do what the message asks, and post the answer to its connection."""
        ident, action = request_tags(body)
        code = "ok"
        try:
            request = parse_request(body)
            result = await self._act(await self._caller(connection_id, request), request)
            text = reply(request.id, request.action, result)
        except ConnectionGoneError:
            await self.disconnect(connection_id)
            return
        except Exception as error:
            self._log(error, connection_id, ident, action)
            refusal = refusal_of(error)
            code, text = str(refusal["code"]), error_reply(ident, action, refusal)
        self._count(action or "none", code)
        await self.post(connection_id, text)

    async def post(self, connection_id: str, text: str) -> bool:
        """False if the client did not get it: it is gone, and its connection closed, or too slow, and will ask again."""
        backend = self.backend
        for frame in split(text, backend.ids.new("part")):
            for _ in range(SLOW_TRIES):
                posted = await backend.sockets.post(connection_id, frame)
                if posted != "slow":
                    break
            if posted == "gone":
                await self.disconnect(connection_id)
            if posted != "sent":
                return False
        return True

    async def _caller(self, connection_id: str, request: AnyRequest) -> Connection:
        connection = await self.backend.connections.get(connection_id)
        if connection is None:
            raise NotAuthenticatedError("this connection is not open: open a new one")
        if connection.expires_at <= self.backend.clock.now() and not isinstance(request, Authenticate):
            raise NotAuthenticatedError("the proof of who you are has expired: authenticate with a new one")
        return connection

    async def _act(self, caller: Connection, request: AnyRequest) -> JsonObject:
        backend = self.backend
        match request:
            case Authenticate():
                return await self._authenticate(caller, request)
            case Run():
                return await runs.run(backend, caller, request)
            case Resume():
                return await runs.resume(backend, caller, request)
            case Retry():
                return await runs.retry(backend, caller, request)
            case Answer():
                return await runs.answer(backend, caller, request)
            case Interrupt():
                return await sessions.interrupt(backend, caller, request)
            case Abort():
                return await sessions.abort(backend, caller, request)
            case Subscribe():
                return await sessions.subscribe(backend, caller, request)
            case Unsubscribe():
                return await sessions.unsubscribe(backend, caller, request)
            case GetSession():
                return await sessions.get_session(backend, caller, request)
            case ListSessions():
                return await sessions.list_sessions(backend, caller, request)
            case ListCheckpoints():
                return await sessions.list_checkpoints(backend, caller, request)
            case Branch():
                return await sessions.branch(backend, caller, request)
            case Clone():
                return await sessions.clone(backend, caller, request)
            case Delete():
                return await sessions.delete(backend, caller, request)
            case Ping():
                return {"now": backend.clock.now()}
            case _:
                assert_never(request)

    async def _authenticate(self, caller: Connection, request: Authenticate) -> JsonObject:
        """Renewing is for the same principal: another one's subscriptions are not inherited."""
        expires_at = caller.expires_at
        if request.token is not None:
            proof = await self.backend.authoriser.prove(request.token)
            if proof.principal != caller.principal:
                raise InvalidInputError("this connection belongs to somebody else: open one of your own")
            await self.backend.connections.renew(caller.connection_id, proof.principal, proof.expires_at)
            expires_at = proof.expires_at
        elif expires_at <= self.backend.clock.now():
            raise NotAuthenticatedError("the proof of who you are has expired: authenticate with a new one")
        return {"principal": caller.principal, "expires_at": expires_at, "prefix": prefix_of(caller.principal)}

    def _log(self, error: Exception, connection_id: str, ident: str | None, action: str | None) -> None:
        """Ids only: a message's content is its sender's. What is not the caller's fault is logged with its trace."""
        code = error.code if isinstance(error, HelixError) else "internal_error"
        extra = {"connection_id": connection_id, "message_id": ident, "action": action, "code": code}
        if isinstance(error, CallerError):
            logger.info("%s refused: %s", action, code, extra=extra)
        else:
            logger.error("%s failed: %s (request %s)", action, code, ident, extra=extra, exc_info=error)
