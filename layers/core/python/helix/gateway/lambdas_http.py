"""The function of the HTTP API for runs. It starts a run, shows its session, and pages through its stream. It also takes
reports of calls that end elsewhere.

Law: the token of each request authenticates the caller, as in the socket's handshake. Callers may see and start only
what the socket's messages allow (`helix.gateway.actions`). API Gateway sends nothing to the client before the function
has ended. So a response waits for at most `LONGEST_WAIT_S`, and a stream is served in pages.
"""

from __future__ import annotations

from contextlib import aclosing
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from helix._log import get_logger
from helix.core.errors import (
    InvalidInputError,
)
from helix.core.json import JsonObject, dumps, load_object, text_size
from helix.core.protocol import VERSION, parse_request
from helix.core.refusals import http_status, refusal_of
from helix.core.request_fields import PAGE
from helix.core.run_requests import Run
from helix.core.session_requests import GetSession
from helix.core.triggers import read_starts
from helix.gateway import actions, reads
from helix.gateway.authoriser import token_of
from helix.gateway.connections import Connection
from helix.gateway.lambdas import authoriser, content_of, log_outcome
from helix.gateway.lambdas import backend as backend_of
from helix.runtime import call_reports
from helix.runtime.cloud import Application
from helix.services.claim_input import check_run_id, check_session_id
from helix.stream.reader import read_with_idle

if TYPE_CHECKING:
    from helix.core.delivery import Delivery
    from helix.gateway.backend import Backend

logger = get_logger("helix.gateway")
LONGEST_WAIT_S: Final = 25
"""The longest time that a request waits for its run, in seconds. API Gateway waits 30 s for an integration."""
STREAM_PAGE: Final = 200
PAGE_BYTES: Final = 4_000_000
"""The maximum size of a stream page, in bytes. Lambda's limit on a response is 6 MB."""
SPARE_S: Final = 3.0
OURS: Final = frozenset({"v", "id", "action", "subscribe", "key"})
HTTP: Final = "http"


class HttpEvent(BaseModel):
    """An HTTP API's event, payload 2.0. Other fields that API Gateway sends are ignored."""

    model_config = ConfigDict(extra="ignore", defer_build=True, populate_by_name=True)

    route: str = Field(default="", alias="routeKey")
    """The route, such as `POST /run`."""
    headers: dict[str, str] = Field(default_factory=dict)
    """The request's headers, by name."""
    path: dict[str, str] | None = Field(default=None, alias="pathParameters")
    """The values of the route's path parameters. None if there are none."""
    query: dict[str, str] | None = Field(default=None, alias="queryStringParameters")
    """The values of the query string. None if there are none."""
    body: str | None = None
    """The body as text, or in base64 (`is_base64_encoded`). None if there is no body."""
    is_base64_encoded: bool = Field(default=False, alias="isBase64Encoded")
    """Whether `body` is in base64."""

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers.items() if key.lower() == name), None)

    def number(self, name: str, most: int | None = None) -> int:
        """Return a number from the query, or 0 if it is missing. Raises `InvalidInputError`."""
        text = (self.query or {}).get(name, "0")
        if not (text.isascii() and text.isdecimal() and len(text) < 16) or (most is not None and int(text) > most):
            raise InvalidInputError(f"{name} must be a whole number from 0" + (f" to {most}" if most else ""))
        return int(text)


class HttpResponse(NamedTuple):
    status: int
    """The HTTP status."""
    body: JsonObject
    """The body, which is sent as JSON."""


async def serve_http(app: Application, event: HttpEvent, delivery: Delivery) -> dict[str, Any]:
    """Handle an HTTP API request. Return a status, headers and a body."""
    backend = backend_of(app)
    try:
        caller = await _caller(app, event)
        left_s = delivery.deadline - app.clock.now() - SPARE_S
        response = await _ROUTES[event.route](HttpRequest(app, backend, caller, event, max(0.0, left_s)))
        code = "ok"
    except Exception as error:
        refusal: Any = refusal_of(error)
        code = str(refusal["code"])
        response = HttpResponse(http_status(error), {"error": refusal})
        if response.status == 500:
            logger.error("%s failed: %s", event.route, code, extra={"code": code}, exc_info=error)
    log_outcome(event.route, code)
    headers = {"content-type": "application/json", "cache-control": "no-store"}
    return {"statusCode": response.status, "headers": headers, "body": dumps(response.body)}


async def _caller(app: Application, event: HttpEvent) -> Connection:
    """Authenticate the request. A report of a call has a token of its own instead."""
    if event.route in CALL_ROUTES:
        return Connection(HTTP, None, 0.0, app.clock.now())
    proof = await authoriser(app).prove(token_of(event.headers))
    return Connection(HTTP, proof.principal, proof.expires_at, app.clock.now())


class HttpRequest(NamedTuple):
    """A request of an authenticated caller."""

    app: Application
    """The application of this process."""
    backend: Backend
    """The backend on which the actions work."""
    caller: Connection
    """The caller, in the form of a connection."""
    event: HttpEvent
    """The event with the request."""
    left_s: float
    """The seconds for which the response may wait, within the function's remaining time."""

    @property
    def session_id(self) -> str:
        """The session id in the path. Raises `InvalidInputError` if it is not a valid session id."""
        check_session_id(given := (self.event.path or {}).get("session_id", ""))
        return given

    @property
    def run_id(self) -> str | None:
        """The run id in the query. Raises `InvalidInputError` if it is not a valid run id."""
        if given := (self.event.query or {}).get("run_id"):
            check_run_id(given)
        return given or None

    @property
    def wait_s(self) -> float:
        return min(self.event.number("wait", LONGEST_WAIT_S), self.left_s)


async def run(request: HttpRequest) -> HttpResponse:
    """Start a run. Return 202 with the ids of the run, which a repeat under the same Idempotency-Key also gets. Return
    200 with the result if the run has ended, because the request waited for it or is a repeat."""
    app, backend, caller, event, _ = request
    wait_s = request.wait_s
    asked = parse_request(dumps(_read_run_message(app, event)))
    assert isinstance(asked, Run)
    reply = await actions.run(backend, caller, asked)
    ids = {name: reply[name] for name in ("session_id", "run_id", "turn", "stream_id", "after")}
    if wait_s or asked.key is not None:
        await _wait_for_run(request, str(reply["session_id"]), str(reply["run_id"]), wait_s)
        looked = await _read_run(request, str(reply["session_id"]), str(reply["run_id"]))
        if looked["status"] != "running":
            return HttpResponse(200, {**ids, **looked})
    return HttpResponse(202, {**ids, "status": "running"})


def _read_run_message(app: Application, event: HttpEvent) -> JsonObject:
    """Return the body in the form of the socket's `run` message."""
    body = load_object(content_of(event.body, event.is_base64_encoded))
    if body is None:
        raise InvalidInputError("the body must be a JSON object")
    if own := sorted(OURS & body.keys()):
        hint = ": send the header Idempotency-Key" if own[0] == "key" else ""
        raise InvalidInputError(f"the body has no field {own[0]!r}{hint}")
    key = event.header("idempotency-key")
    given: JsonObject = {"agent": default_agent(app), **body} if default_agent(app) else body
    given = {**given, "v": VERSION, "id": app.ids.new("req"), "action": "run", "subscribe": False}
    return given if key is None else {**given, "key": key}


@lru_cache(maxsize=1)
def default_agent(app: Application) -> str:
    found = read_starts(app.settings.triggers)
    return next((start.agent for start in found.values() if start.agent), "")


async def session(request: HttpRequest) -> HttpResponse:
    """Return the session, and the progress or result of its current run or of `run_id`."""
    asked_run = request.run_id
    row = await request.backend.get_owned(request.caller.principal, request.session_id)
    run_id = asked_run or row.run_id
    if run_id is not None:
        await _wait_for_run(request, row.session_id, run_id, request.wait_s)
    messages = request.event.number("messages", PAGE)
    asked = GetSession(v=1, id=HTTP, action="get_session", session_id=row.session_id, run_id=run_id, messages=messages)
    return HttpResponse(200, await reads.get_session(request.backend, request.caller, asked))


async def stream(request: HttpRequest) -> HttpResponse:
    """Return messages after the sequence `after`. `next` is the `after` of the next page. `status` is the session's: if
    it is not running, an empty page is the last one."""
    backend = request.backend
    row = await backend.get_owned(request.caller.principal, request.session_id)
    after, streams = request.event.number("after"), backend.executor.streams
    if wait_s := request.wait_s:
        info = await streams.info(row.stream_id)
        if row.status == "running" and info is not None and info.latest_sequence <= after:
            await streams.wait(row.stream_id, after, wait_s)
    page: list[Any] = []
    held, last = 0, after
    reading = read_with_idle(streams, row.stream_id, from_sequence=after, follow=True, idle_s=0)
    async with aclosing(reading) as messages:
        async for message in messages:
            if message is None or held > PAGE_BYTES or len(page) == STREAM_PAGE:
                break
            shown = message.model_dump(mode="json", exclude_defaults=True, exclude={"stream_id"})
            page.append(shown)
            held, last = held + text_size(dumps(shown)), message.sequence
    return HttpResponse(200, {"stream_id": row.stream_id, "status": row.status, "messages": page, "next": last})


async def _read_run(request: HttpRequest, session_id: str, run_id: str) -> JsonObject:
    asked = GetSession(v=1, id=HTTP, action="get_session", session_id=session_id, run_id=run_id)
    found = await reads.get_session(request.backend, request.caller, asked)
    looked: Any = found["run"]
    return dict(looked)


async def _wait_for_run(request: HttpRequest, session_id: str, run_id: str, wait_s: float) -> None:
    """Return once the run has ended, or after `wait_s`."""
    if wait_s <= 0:
        return
    executor = request.backend.executor
    row = await request.backend.get_owned(request.caller.principal, session_id)
    agent = await request.backend.agent_of(row, request.caller.principal)
    try:
        await executor.wait_result(agent, session_id, run_id, wait_s)
    except TimeoutError:
        return


async def report_call(request: HttpRequest) -> HttpResponse:
    """Report a call that ends elsewhere. Its token is the credential."""
    event, path = request.event, request.event.path or {}
    body = content_of(event.body, event.is_base64_encoded)
    body = body.encode() if isinstance(body, str) else body
    kind = event.header("content-type") or ""
    executor = request.backend.executor
    reported = await call_reports.report_call(executor, path.get("token", ""), path.get("how", ""), body, kind)
    return HttpResponse(200, reported)


CALL_ROUTES: Final = ("POST /calls/{token}", "POST /calls/{token}/{how}")
_RUN_ROUTES: Final = {
    "POST /run": run,
    "GET /sessions/{session_id}": session,
    "GET /sessions/{session_id}/stream": stream,
}
_ROUTES: Final = {**_RUN_ROUTES, **dict.fromkeys(CALL_ROUTES, report_call)}
ROUTES: Final = tuple(_RUN_ROUTES)
