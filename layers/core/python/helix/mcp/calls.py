"""Handles MCP clients' tool calls, which start runs and wait for them, with questions, progress and cancellation.

Law: this module has no durable state. A call starts a run. Whatever happens to the call or to this process, the run can be
found by its ids. If the client cancels a call, its run is interrupted. If the server shuts down, its runs continue.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    CancelledNotificationParams,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel
from starlette.requests import Request

from helix.adapters.system import SystemClock, SystemIds
from helix.client import HelixClient
from helix.core.chunks import StreamChunk
from helix.core.errors import CallerError, CallNotPendingError, HelixError, InvalidInputError
from helix.core.json import JsonObject, dumps
from helix.core.refusals import refusal_of
from helix.core.rows import Pending
from helix.mcp import runs, tools
from helix.mcp.progress import step_in_words
from helix.mcp.questions import can_elicit, form, verdict
from helix.mcp.runs import Found, Question, RunRef, ref_of
from helix.mcp.sources import Source
from helix.mcp.tools import Card

logger = logging.getLogger("helix.mcp")
Context = ServerRequestContext[Any, Any]
MAX_KNOWN: Final = 1_000
SHOWN_CHARS: Final = 100
SHORT_S: Final = 0.5
"""The time within which a run counts as short, in seconds. The call of a short run returns its result instead of a task."""
ASK_S: Final = 3_600.0
"""The time that a person may take to fill in a form, in seconds. After that the run stays paused until someone answers
it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request, and the capabilities of its client."""

    context: Context
    """The request, as the `mcp` package passes it."""
    principal: str | None
    """The authenticated principal. None if the server does not tell its callers apart."""
    expires_at: int | None = None
    """The time at which the token expires, in Unix seconds. None if there is no token."""

    def is_expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    @property
    def is_modern(self) -> bool:
        return self.context.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def elicits(self) -> bool:
        return can_elicit(self.context.session.client_capabilities)

    @property
    def can_ask_now(self) -> bool:
        """Whether the server may send a form to the client during this request."""
        return self.elicits and not self.is_modern and self.context.session.can_send_request

    @property
    def has_own_connection(self) -> bool:
        """Whether the request has its own connection. The client cancels such a request by closing it."""
        return self.is_modern and isinstance(self.context.request, Request)

    @property
    def call(self) -> tuple[str | None, str]:
        """The MCP session and request id. A notification that cancels a request identifies it by these."""
        return mcp_session_of(self.context), str(self.context.request_id)


def caller_of(context: Context) -> Caller:
    request = context.request
    user = request.scope.get("user") if isinstance(request, Request) else None
    if not isinstance(user, AuthenticatedUser):
        return Caller(context, None)
    return Caller(context, user.access_token.subject, user.access_token.expires_at)


def mcp_session_of(context: Context) -> str | None:
    request = context.request
    return request.headers.get("mcp-session-id") if isinstance(request, Request) else None


class AgentCalls:
    """The handlers of `tools/list` and `tools/call`. `wait_s`: the number of seconds that a call waits for its run if the
    client does not use tasks."""

    def __init__(self, source: Source, wait_s: float) -> None:
        self.source, self._wait_s, self._ids, self.clock = source, wait_s, SystemIds(), SystemClock()
        self._known: dict[str | None, dict[str, Card]] = {}
        self._calls: OrderedDict[tuple[str | None, str], asyncio.Task[RunRef]] = OrderedDict()

    async def cards(self, client: HelixClient, caller: Caller) -> dict[str, Card]:
        cards, only = await tools.cards_of(client), self.source.only
        found = {card.name: card for card in cards if only is None or card.name in only}
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[caller.principal] = found
        return found

    async def card(self, client: HelixClient, caller: Caller, name: str) -> Card:
        """Return the agent with that name. The list of a caller's agents is cached. Raises `MCPError` for an unknown
        one."""
        card = self._known.get(caller.principal, {}).get(name) or (await self.cards(client, caller)).get(name)
        if card is None:
            raise MCPError(INVALID_PARAMS, f"there is no tool {name[:SHOWN_CHARS]!r}")
        return card

    async def list_tools(self, context: Context, params: PaginatedRequestParams) -> ListToolsResult:
        caller = caller_of(context)
        async with self.open_client(caller) as client:
            cards = await self.cards(client, caller)
        listed = [tools.tool_of(cards[name]) for name in sorted(cards)]
        return ListToolsResult(tools=[*listed, *tools.own_tools(not caller.elicits)])

    @asynccontextmanager
    async def open_client(self, caller: Caller) -> AsyncIterator[HelixClient]:
        """Open a client that acts as the caller. Errors become `MCPError`, with only the details that the caller may
        know."""
        try:
            async with self.source.client(caller.principal) as client:
                yield client
        except TimeoutError as error:
            logger.error("the service does not respond: %s", error)
            raise MCPError(INTERNAL_ERROR, "the service does not answer: try again") from error
        except HelixError as error:
            if not isinstance(error, CallerError):
                logger.error("a request failed: %s", error.code, exc_info=error)
            refused = refusal_of(error)
            number = INVALID_PARAMS if isinstance(error, CallerError) else INTERNAL_ERROR
            raise MCPError(number, str(refused["message"]), {"code": refused["code"]}) from error

    # --- calls --------------------------------------------------------------------------------------------------------

    async def call_tool(self, context: Context, params: CallToolRequestParams) -> BaseModel | dict[str, Any]:
        caller, arguments = caller_of(context), params.arguments or {}
        try:
            async with self.open_client(caller) as client:
                match params.name:
                    case tools.WAIT:
                        return await self._wait_for_end(client, caller, ref_in(arguments))
                    case tools.INTERRUPT:
                        return await self._interrupt(client, arguments)
                    case tools.ANSWER if not caller.elicits:
                        return await self._answer(client, caller, arguments)
                    case _:
                        return await self._agent(client, caller, params)
        except MCPError as error:
            return _correctable(error)

    async def start(self, caller: Caller, params: CallToolRequestParams) -> Found | CallToolResult:
        """Start a call's run, and wait a moment, because it may be short. An error that the model can correct is
        returned as a result."""
        try:
            async with self.open_client(caller) as client:
                card = await self.card(client, caller, params.name)
                ref = await self.begin_run(client, caller, card, params.arguments or {})
                found = await runs.wait(client, ref, SHORT_S, ignore_progress)
                self.forget_request(caller)
                return found
        except MCPError as error:
            return _correctable(error)

    async def _agent(self, client: HelixClient, caller: Caller, params: CallToolRequestParams) -> BaseModel:
        card = await self.card(client, caller, params.name)
        if params.request_state is not None:
            ref = ref_of(params.request_state)
            found = await runs.find(client, ref)
            if found.agent != card.name:
                raise MCPError(INVALID_PARAMS, "requestState is of another tool")
            await self.take_answers(client, found, dict(params.input_responses or {}))
        else:
            ref = await self.begin_run(client, caller, card, params.arguments or {})
        try:
            return await self._wait_for_end(client, caller, ref)
        except asyncio.CancelledError:
            await self._handle_cancel(caller, ref)
            raise
        except Exception:
            self.forget_request(caller)
            raise

    async def begin_run(self, client: HelixClient, caller: Caller, card: Card, arguments: dict[str, Any]) -> RunRef:
        """Start the run of a call. If the call is cancelled while the run starts, wait for the start, so that the run can
        be interrupted."""
        fields = _fields_of(card, arguments)
        key = _key(caller, card, arguments) or self._ids.new("key")  # a repeated request must find the same run
        starting = asyncio.ensure_future(runs.start(client, card.name, fields, key))
        if not caller.has_own_connection:
            self._calls[caller.call] = starting
            while len(self._calls) > MAX_KNOWN:
                self._calls.popitem(last=False)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await asyncio.wait({starting})
            if starting.exception() is None:
                await self._handle_cancel(caller, starting.result())
            raise
        except Exception:
            self.forget_request(caller)
            raise

    def forget_request(self, caller: Caller) -> None:
        """Forget a finished request, so that a late notification does not cancel its run."""
        self._calls.pop(caller.call, None)

    async def take_answers(self, client: HelixClient, found: Found, given: dict[str, Any]) -> None:
        """Record the filled-in forms. Forms for questions that are no longer open are ignored."""
        for question in found.questions:
            filled = given.get(question.key)
            if isinstance(filled, ElicitResult):
                await self._record_form(client, question, filled)

    async def _record_form(self, client: HelixClient, question: Question, filled: ElicitResult) -> bool:
        """Record a filled-in form, and return whether it answers the question."""
        said = verdict(question, filled)
        if said is None:
            return False
        try:
            await runs.answer(client, question.session_id, question.call.call_id, said)
        except CallNotPendingError:
            logger.info("call %s was answered before", question.call.call_id)
        except InvalidInputError as error:  # the edited arguments do not fit the tool's schema
            logger.info("the answer to call %s does not fit: %s", question.call.call_id, error)
            return False
        return True

    async def _wait_for_end(
        self, client: HelixClient, caller: Caller, ref: RunRef
    ) -> CallToolResult | InputRequiredResult:
        """Wait for the task, and ask the person if it is waiting for one."""
        shown = 0

        async def report(chunk: StreamChunk) -> None:
            nonlocal shown
            if (text := step_in_words(chunk)) is not None:
                shown += 1
                await caller.context.session.report_progress(shown, None, text)

        while True:
            found = await runs.wait(client, ref, self._wait_s, report)
            if not (found.questions and caller.can_ask_now and await self.ask(client, caller, found)):
                break
        self.forget_request(caller)
        if found.questions and caller.is_modern and caller.elicits and caller.context.method == "tools/call":
            asked = {question.key: form(question) for question in found.questions}
            return InputRequiredResult(input_requests=asked, request_state=str(ref))
        return tools.outcome(found, not caller.elicits)

    async def ask(self, client: HelixClient, caller: Caller, found: Found, meta: dict[str, Any] | None = None) -> bool:
        """Ask the open questions one after another, on the connection of the call. Return False if one is not answered."""
        context = caller.context
        here = ServerMessageMetadata(related_request_id=context.request_id)
        for question in found.questions:
            try:
                filled = await context.session.send_request(form(question, meta), ElicitResult, ASK_S, here)
            except MCPError as error:
                logger.info("the client did not ask: %s", error)
                return False
            if not await self._record_form(client, question, filled):
                return False
        return True

    async def _answer(self, client: HelixClient, caller: Caller, arguments: dict[str, Any]) -> BaseModel:
        ref, approved = ref_in(arguments), arguments.get("approved")
        if not isinstance(approved, bool):
            raise InvalidInputError("approved must be true or false")
        found = await runs.find(client, ref)
        wanted = (arguments.get("call_session_id", ref.session_id), arguments.get("call_id"))
        question = next((q for q in found.questions if (q.session_id, q.call.call_id) == wanted), None)
        if question is None:
            known = ", ".join(repr(q.call.call_id) for q in found.questions) or "none"
            raise InvalidInputError(f"no call {wanted[1]!r} waits there; waiting are: {known}")
        said = {name: arguments.get(name) for name in ("approved", "data", "reason", "arguments")}
        said["round"] = _round(question.call, arguments.get("round"))
        await runs.answer(client, question.session_id, question.call.call_id, said)
        return await self._wait_for_end(client, caller, ref)

    async def _interrupt(self, client: HelixClient, arguments: dict[str, Any]) -> CallToolResult:
        asked = await runs.interrupt(client, ref_in(arguments))
        text = "The run stops at its next point." if asked else "The run does not run."
        return tools.structured({"interrupted": asked}, text)

    # --- cancellation -------------------------------------------------------------------------------------------------

    async def cancelled(self, context: Context, params: CancelledNotificationParams) -> None:
        """Interrupt the run of a call that the client has cancelled."""
        starting = self._calls.pop((mcp_session_of(context), str(params.request_id)), None)
        if starting is not None:
            await asyncio.wait({starting})
            if starting.exception() is None:
                await self._stop(caller_of(context), starting.result())

    async def _handle_cancel(self, caller: Caller, ref: RunRef) -> None:
        """Handle a call that ends before its result is returned. If its connection is closed, the client has cancelled it,
        and its run is interrupted. If the client is still connected, the server is shutting down, and the run continues."""
        request = caller.context.request
        with anyio.CancelScope(shield=True):
            if caller.has_own_connection and isinstance(request, Request) and await request.is_disconnected():
                await self._stop(caller, ref)

    async def _stop(self, caller: Caller, ref: RunRef) -> None:
        try:
            async with self.open_client(caller) as client:
                await runs.interrupt(client, ref)
        except MCPError as error:  # the client is gone, so only the log can report this
            logger.info("there is no run to interrupt: %s", error)


def _round(call: Pending, given: object) -> int | None:
    """Return the round of the questions that an answer is for; None for other calls. Raises `InvalidInputError` if the
    answer is for another round, or does not say."""
    if given == (call.round or None) and not isinstance(given, bool):
        return call.round or None
    now = f"it asks round {call.round} now" if call.round else "it asks no questions"
    if given is None:
        raise InvalidInputError(f"call {call.call_id!r} asks questions, so round is needed: {now}")
    raise InvalidInputError(f"round {given!r} of call {call.call_id!r} does not wait, and nothing was stored: {now}")


async def ignore_progress(chunk: StreamChunk) -> None:
    return


def _correctable(error: MCPError) -> CallToolResult:
    """Convert an error that the model can correct to a result. Raises any other error."""
    if isinstance(error.__cause__, CallerError):
        return tools.refusal(error.error.message)
    raise error


def ref_in(arguments: dict[str, Any]) -> RunRef:
    session_id, run_id = arguments.get("session_id"), arguments.get("run_id")
    if not isinstance(session_id, str) or not isinstance(run_id, str):
        raise InvalidInputError("session_id and run_id must be texts, as a result of an agent's tool has them")
    return RunRef(session_id, run_id)


def _fields_of(card: Card, arguments: dict[str, Any]) -> JsonObject:
    if card.kind == "function":
        return {"input": arguments}
    unknown = sorted(set(arguments) - {"message", "session_id"})
    if unknown:
        raise InvalidInputError(f"{card.name} takes message and session_id, not {', '.join(map(repr, unknown))}")
    if not isinstance(arguments.get("message"), str):
        raise InvalidInputError("message must be a text")
    return {"message": arguments["message"], "session_id": arguments.get("session_id")}


def _key(caller: Caller, card: Card, arguments: dict[str, Any]) -> str | None:
    """Return an idempotency key that is the same for a repeat of the request. None if there is no MCP session.

    A client must not reuse a request id in an MCP session. Some do, so the key includes the arguments too.
    """
    session = mcp_session_of(caller.context)
    if session is None:
        return None
    request_id: Any = caller.context.request_id
    whole: JsonObject = {"s": session, "r": request_id, "a": card.name, "i": arguments}
    return f"mcp {hashlib.sha256(dumps(whole).encode()).hexdigest()}"
