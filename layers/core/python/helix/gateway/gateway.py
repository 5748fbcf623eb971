"""Takes a client's request and sends exactly one response, over any transport.

Law: the caller is looked up again for every message, and is not authenticated once the connection's proof has expired.
No message from a client makes `handle` raise. A client learns only those details of a failure that `core.refusals`
allows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, assert_never

from helix._log import get_logger
from helix.core.errors import CallerError, HelixError, InvalidInputError, NotAuthenticatedError
from helix.core.file_requests import FinishUpload, GetFile, Upload
from helix.core.fleet_requests import ChangeBudget, GetBudgets, GetFleet, GetUsage, ListAgents
from helix.core.frames import split
from helix.core.json import JsonObject, clean_text
from helix.core.protocol import error_reply, parse_part, parse_request, reply, request_tags
from helix.core.refusals import refusal_of
from helix.core.requests import AnyRequest, Authenticate, Ping, ReadStream, Subscribe, Unsubscribe
from helix.core.run_requests import Abort, AnswerAction, Interrupt, ReportCall, Resume, Retry, Run, Withdraw
from helix.core.session_requests import (
    Branch,
    ChangeTags,
    Clone,
    Compact,
    Compare,
    Delete,
    DiffCheckpoints,
    GetCheckpoint,
    GetContext,
    GetCost,
    GetExecutions,
    GetLogs,
    GetSession,
    GetStep,
    ListCheckpoints,
    ListSessions,
    ReadRows,
    Rename,
)
from helix.gateway import actions, executions, files, money, reads, run_logs, steps
from helix.gateway.actions import ConnectionGoneError
from helix.gateway.authoriser import prefix_of
from helix.gateway.backend import OPERATOR, Backend
from helix.gateway.connections import Connection
from helix.gateway.parts import add_part

logger = get_logger("helix.gateway")
SLOW_TRIES: Final = 3
Count = Callable[[str, str], None]
Act = Callable[[Backend, Connection, Any], Awaitable[JsonObject]]


class Gateway:
    """The gateway of a process. `count(action, code)` is called for every message, with `ok` or the error's code."""

    def __init__(self, backend: Backend, *, count: Count | None = None) -> None:
        self.backend = backend
        self._count = count or (lambda action, code: None)

    # --- connections --------------------------------------------------------------------------------------------------

    async def connect(
        self, connection_id: str, principal: str | None, expires_at: float, *, operator: bool = False
    ) -> None:
        await self.backend.connections.open(connection_id, principal, expires_at, operator=operator)

    async def disconnect(self, connection_id: str) -> None:
        await self.backend.connections.close(connection_id)

    # --- messages -----------------------------------------------------------------------------------------------------

    async def handle(self, connection_id: str, body: str | bytes) -> None:
        """Execute the request in the message, and post the response to its connection. A request in parts is handled
        once it is complete."""
        ident, action = request_tags(body)
        code = "ok"
        try:
            if (part := parse_part(body)) is not None:
                whole = await add_part(self.backend.executor.store, self.backend.clock, connection_id, part)
                if whole is None:
                    self._count("part", code)
                    return
                body, (ident, action) = whole, request_tags(whole)
            request = parse_request(body)
            caller = await self._caller(connection_id, request)
            text = reply(request.id, request.action, await act(self.backend, caller, request))
        except ConnectionGoneError:
            await self.disconnect(connection_id)
            return
        except Exception as error:
            self._log(error, connection_id, ident, action)
            refusal = refusal_of(error)
            code, text = str(refusal["code"]), error_reply(ident, action, refusal)
        self._count(action or "none", code)
        await self.post(connection_id, text)

    async def respond(self, body: str) -> str:
        """Return the reply to an operator's request, or the error with its full message."""
        ident, action = request_tags(body)
        code = "ok"
        try:
            request = parse_request(body)
            text = reply(request.id, request.action, await act(self.backend, OPERATOR, request))
        except Exception as error:
            self._log(error, OPERATOR.connection_id, ident, action)
            refusal = refusal_of(error)
            code, text = (
                str(refusal["code"]),
                error_reply(ident, action, refusal | {"message": clean_text(str(error))}),
            )
        self._count(action or "none", code)
        return text

    async def post(self, connection_id: str, text: str) -> bool:
        """Post a string. Return False if the client did not get it. Either the client is gone and its connection is
        closed, or the client is too slow and will ask again."""
        backend = self.backend
        for frame in split(text, backend.ids.new("part")):
            for _ in range(SLOW_TRIES):
                if (posted := await backend.sockets.post(connection_id, frame)) != "slow":
                    break
            match posted:
                case "sent":
                    continue
                case "gone":
                    await self.disconnect(connection_id)
                case "slow":
                    pass
                case _:
                    assert_never(posted)
            return False
        return True

    async def _caller(self, connection_id: str, request: AnyRequest) -> Connection:
        connection = await self.backend.connections.get(connection_id)
        if connection is None:
            raise NotAuthenticatedError("this connection is not open: open a new one")
        if connection.expires_at <= self.backend.clock.now() and not isinstance(request, Authenticate):
            raise _expired_error()
        return connection

    def _log(self, error: Exception, connection_id: str, ident: str | None, action: str | None) -> None:
        """Log the error with ids only, because a message's content belongs to its sender. Errors that are not the
        caller's fault are logged with their trace."""
        code = error.code if isinstance(error, HelixError) else "internal_error"
        extra = {"connection_id": connection_id, "message_id": ident, "action": action, "code": code}
        if isinstance(error, CallerError):
            logger.info("%s refused: %s", action, code, extra=extra)
        else:
            logger.error("%s failed: %s (request %s)", action, code, ident, extra=extra, exc_info=error)


def _expired_error() -> NotAuthenticatedError:
    return NotAuthenticatedError("your token has expired: authenticate with a new one")


async def authenticate(backend: Backend, caller: Connection, request: Authenticate) -> JsonObject:
    """Renew the connection's proof. The new proof must name the same principal, because subscriptions are not passed on
    to another principal."""
    expires_at, operator = caller.expires_at, backend.is_operator(caller)
    if request.token is not None:
        proof = await backend.authoriser.prove(request.token)
        if proof.principal != caller.principal:
            raise InvalidInputError("this connection belongs to another user: open one of your own")
        await backend.connections.renew(
            caller.connection_id, proof.principal, proof.expires_at, operator=proof.operator
        )
        expires_at, operator = proof.expires_at, backend.operates or proof.operator
    elif expires_at <= backend.clock.now():
        raise _expired_error()
    known: JsonObject = {"principal": caller.principal, "expires_at": expires_at, "operator": operator}
    return {**known, "prefix": prefix_of(caller.principal)}


async def ping(backend: Backend, caller: Connection, request: Ping) -> JsonObject:
    return {"now": backend.clock.now()}


ACTS: Final[dict[type[AnyRequest], Act]] = {
    Authenticate: authenticate,
    Run: actions.run,
    Resume: actions.resume_or_retry,
    Retry: actions.resume_or_retry,
    AnswerAction: actions.answer,
    ReportCall: actions.report_call,
    Interrupt: actions.interrupt,
    Withdraw: actions.withdraw,
    Abort: actions.abort,
    Subscribe: actions.subscribe,
    Unsubscribe: actions.unsubscribe,
    GetSession: reads.get_session,
    ListSessions: reads.list_sessions,
    ListCheckpoints: reads.list_checkpoints,
    GetCheckpoint: reads.get_checkpoint,
    DiffCheckpoints: reads.diff_checkpoints,
    Compare: reads.compare,
    GetStep: steps.get_step,
    GetContext: reads.get_context,
    GetCost: money.get_cost,
    GetExecutions: executions.get_executions,
    GetLogs: run_logs.get_logs,
    GetBudgets: money.get_budgets,
    ChangeBudget: money.change_budget,
    GetUsage: money.get_usage,
    GetFleet: reads.get_fleet,
    ListAgents: reads.list_agents,
    Upload: files.upload,
    FinishUpload: files.finish_upload,
    GetFile: files.get_file,
    ReadStream: reads.read_stream,
    ReadRows: reads.read_rows,
    Compact: actions.compact,
    Rename: actions.rename,
    ChangeTags: actions.change_tags,
    Branch: actions.copy,
    Clone: actions.copy,
    Delete: actions.delete,
    Ping: ping,
}
"""The function for each request. The table contains every kind of request."""


async def act(backend: Backend, caller: Connection, request: AnyRequest) -> JsonObject:
    """Return the result of this caller's request. Raises the error with which the request is refused."""
    return await ACTS[type(request)](backend, caller, request)
