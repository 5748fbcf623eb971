"""The filter in front of all services that the offline cloud serves on loopback. It checks each request before a service
receives it.

Law: a request for another host, or from a web page on another origin, is always refused. Clients of the deployed API need a
token, as on AWS. Everything else needs a signature with this start's credentials. MiniStack's own admin endpoints are
closed. A refused request changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from helix.gateway.origins import why_foreign
from helix.local.signatures import Request, SecretOf, SignatureError, claim_of, is_signed, verify

FOREIGN = "ForeignRequest"
_API = re.compile(r"/_aws/execute-api/\w+(/.*)?")
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_STACK_RESPONSES = re.compile(rf"/_ministack/cfn-(response|signal)/{_UUID}")
"""The paths to which custom resources send their responses. Each contains a random id and is used once, like the presigned
URL on AWS."""
_CLOSED = re.compile(r"/(_ministack|_localstack)(/|$)|/health$")

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
FormatFailure = Callable[[SignatureError, dict[str, str]], tuple[int, dict[str, str], bytes]]
"""A function that returns the response to a request without a valid signature, in the service's own protocol."""


class RequestFilter:
    """ASGI middleware in front of `app`. `secret_of`: returns issued secrets. `format_failure`: returns the response to a
    refused request. `hosts`: the allowed values of the `Host` header."""

    def __init__(
        self,
        app: App,
        hosts: Collection[str],
        secret_of: SecretOf,
        format_failure: FormatFailure,
        now: Callable[[], float],
    ) -> None:
        self._app, self._hosts, self._secret_of, self._failure, self._now = app, hosts, secret_of, format_failure, now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        path = scope["path"]
        headers = [(name.decode("latin-1").lower(), _text(value)) for name, value in scope["headers"]]
        api = _API.fullmatch(path) is not None and not {".", ".."} & set(path.split("/"))
        checked = (
            [pair for pair in headers if pair[0] != "sec-fetch-site"]
            if api and _is_navigation(scope, headers)
            else headers
        )
        why = why_foreign(checked, self._hosts, any_port=api)
        if why is not None:
            return await _refuse(scope, send, _json_error(FOREIGN, f"This request is refused: {why}."))
        is_stack_response = scope.get("method") == "PUT" and _STACK_RESPONSES.fullmatch(path) is not None
        if (_CLOSED.match(path) and not is_stack_response) or (scope["type"] == "websocket" and not api):
            return await _refuse(scope, send, _json_error("AccessDeniedException", "This is closed to clients."))
        raw_path, query = _ascii(scope["raw_path"]), _ascii(scope["query_string"])
        request = Request(scope.get("method", "GET"), raw_path, query, headers)
        if is_signed(request) or not (api or is_stack_response) or "@connections" in path:
            try:
                receive = await self._verify_signature(scope, request, receive)
            except SignatureError as error:
                return await _refuse(scope, send, self._failure(error, dict(headers)))
            except ConnectionError:
                return None
        return await self._app(scope, receive, send if api else _without_cors(send))

    async def _verify_signature(self, scope: Scope, request: Request, receive: Receive) -> Receive:
        """Verify the signature, and return a `receive` that passes the verified body to the app. Raises `SignatureError`,
        and `ConnectionError` if the client has disconnected."""
        claim = claim_of(request, self._now())
        try:
            secret = self._secret_of(claim.access_key, claim.token)
        except SignatureError as error:
            error.service = claim.service
            raise
        body = await _read_body(receive) if scope["type"] == "http" else b""
        verify(request, claim, secret, body)
        if scope["type"] != "http":
            return receive
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def received() -> Any:
            return messages.pop() if messages else await receive()

        return received


def _is_navigation(scope: Scope, headers: Collection[tuple[str, str]]) -> bool:
    """Return whether the request is a navigation: a followed link, or a redirect from an identity provider after a sign-in.
    Other pages cannot read its result."""
    return (
        scope.get("method") == "GET"
        and ("sec-fetch-mode", "navigate") in headers
        and ("sec-fetch-dest", "document") in headers
    )


async def _read_body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ConnectionError("the client has gone")
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _without_cors(send: Send) -> Send:
    """Remove the headers that would let pages on other origins read the response."""

    async def sent(message: Any) -> None:
        if message["type"] == "http.response.start":
            allowed = [pair for pair in message["headers"] if not bytes(pair[0]).lower().startswith(b"access-control-")]
            message = {**message, "headers": allowed}
        await send(message)

    return sent


def _json_error(code: str, message: str) -> tuple[int, dict[str, str], bytes]:
    body = json.dumps({"__type": code, "message": message}).encode()
    return 403, {"content-type": "application/json", "x-amzn-errortype": code}, body


async def _refuse(scope: Scope, send: Send, response: tuple[int, dict[str, str], bytes]) -> None:
    status, headers, body = response
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    sent = {name: value for name, value in headers.items() if not name.lower().startswith("access-control-")}
    lines = [(name.lower().encode(), str(value).encode()) for name, value in sent.items()]
    lines = [line for line in lines if line[0] != b"content-length"] + [(b"content-length", str(len(body)).encode())]
    await send({"type": f"{kind}.start", "status": status, "headers": lines})
    await send({"type": f"{kind}.body", "body": b"" if scope.get("method") == "HEAD" else body, "more_body": False})


def _text(value: bytes) -> str:
    """Decode bytes to a string in the same way as SDKs encode it for signing."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _ascii(value: bytes) -> str:
    return value.decode("ascii", "replace")
