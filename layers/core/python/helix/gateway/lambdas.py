"""The functions of the WebSocket API: authorise, connect, disconnect, and handle messages.

Law: closed by default. The authoriser identifies the caller, and `connect` trusts only the authoriser. If identity is
required and the event does not contain it, the handshake is refused. Responses to messages are sent only through the
management API, so the integration's return value is empty.
"""

from __future__ import annotations

import base64
import binascii
import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from helix._log import get_logger
from helix.core.errors import DefinitionError, InvalidInputError, NotAuthenticatedError
from helix.gateway.authoriser import ApiKeys, Authoriser, accepted_subprotocol, token_of
from helix.gateway.connections import MAX_CONNECTION_S, Connections
from helix.runtime.cloud import Application

if TYPE_CHECKING:
    from helix.core.delivery import Delivery
    from helix.gateway.backend import Backend
    from helix.gateway.gateway import Gateway
    from helix.ports.sockets import Posted, Sockets
    from helix.runtime.executor import Executor

Json = dict[str, Any]
logger = get_logger("helix.gateway")


class _Event(BaseModel):
    """An API Gateway event. Fields that these functions do not need are ignored."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True, defer_build=True)


class Claims(_Event):
    """The result of `ws_authorize`. API Gateway passes the values of its context as strings."""

    principal: str | None = None
    """The authenticated principal. None if the authoriser did not name one."""
    expires_at: float | None = None
    """The expiry of the proof, in Unix seconds. None if the authoriser did not return one."""
    operator: bool = False
    """Whether the proof is an operator's key."""


class RequestContext(_Event):
    connection_id: str = Field(alias="connectionId", min_length=1)
    """API Gateway's id for the connection."""
    authorizer: Claims | None = None
    """The result of `ws_authorize`. None if the event does not contain it."""


class AuthorizeEvent(_Event):
    method_arn: str = Field(alias="methodArn", min_length=1)
    """The ARN of `$connect`, to which the policy applies."""
    headers: dict[str, str] | None = None
    """The headers of the handshake."""


class SocketEvent(_Event):
    """A connection event. `$disconnect` has no other fields."""

    request_context: RequestContext = Field(alias="requestContext")
    """The connection that the event is about."""


class ConnectEvent(SocketEvent):
    headers: dict[str, str] | None = None
    """The headers of the handshake, with the offered subprotocols."""


class MessageEvent(_Event):
    """A message from a connection, or an operator's request. For the latter, AWS authorises the caller of the function.
    No API Gateway event has that form."""

    request_context: RequestContext | None = Field(default=None, alias="requestContext")
    """The connection that sent the message. None for an operator's request."""
    operator: str | None = None
    """An operator's request as JSON text. None for a message from a connection."""
    body: str | None = None
    """The message from a connection. None if it is empty."""
    is_base64_encoded: bool = Field(default=False, alias="isBase64Encoded")
    """Whether `body` is in base64, as binary frames are."""

    @model_validator(mode="after")
    def _one_sender(self) -> MessageEvent:
        if (self.request_context is None) == (self.operator is None):
            raise ValueError("requestContext: Field required, or operator, and not both")
        return self


def content_of(body: str | None, is_base64_encoded: bool) -> str | bytes:
    """Return an event's body. A binary body arrives in base64; if that is not valid, the result is empty."""
    if not is_base64_encoded:
        return body or ""
    try:
        return base64.b64decode(body or "", validate=True)
    except binascii.Error:
        return b""


async def authorize(app: Application, event: AuthorizeEvent, delivery: Delivery) -> Json:
    """Return an IAM policy for this API's `$connect`: allow, with the principal and the expiry of its proof; or deny."""
    try:
        proof = await authoriser(app).prove(token_of(event.headers or {}))
    except NotAuthenticatedError:
        log_outcome("$connect", NotAuthenticatedError.code)
        return _policy("anonymous", "Deny", event.method_arn, {})
    context = {"expires_at": repr(proof.expires_at)}
    if proof.principal is not None:
        context["principal"] = proof.principal
    if proof.operator:
        context["operator"] = "true"
    return _policy(proof.principal or "anonymous", "Allow", event.method_arn, context)


def _policy(principal: str, effect: str, resource: str, context: Json) -> Json:
    statement = {"Action": "execute-api:Invoke", "Effect": effect, "Resource": resource}
    policy = {"Version": "2012-10-17", "Statement": [statement]}
    return {"principalId": principal, "policyDocument": policy, "context": context}


async def connect(app: Application, event: ConnectEvent, delivery: Delivery) -> Json:
    """Write the connection, and accept the subprotocol."""
    claims, now = event.request_context.authorizer or Claims(), app.clock.now()
    if "none" in app.settings.auth:
        claims = Claims(expires_at=now + MAX_CONNECTION_S)
    elif claims.principal is None or claims.expires_at is None or claims.expires_at <= now:
        return {"statusCode": 401}
    connections = Connections(app.store, app.clock)
    await connections.open(
        event.request_context.connection_id, claims.principal, claims.expires_at or now, operator=claims.operator
    )
    log_outcome("$connect", "ok")
    chosen = accepted_subprotocol(event.headers or {})
    return {"statusCode": 200, "headers": {"Sec-WebSocket-Protocol": chosen}} if chosen else {"statusCode": 200}


async def disconnect(app: Application, event: SocketEvent, delivery: Delivery) -> Json:
    """Remove the connection with its subscriptions. If this event is lost, `ttl` or the next post removes them."""
    await Connections(app.store, app.clock).close(event.request_context.connection_id)
    log_outcome("$disconnect", "ok")
    return {"statusCode": 200}


async def message(app: Application, event: MessageEvent, delivery: Delivery) -> Json:
    """Execute the request in the message and post the response. An operator's response is returned instead. If the
    agents cannot be imported, every message gets that error.
    """
    if event.request_context is None:
        return {"statusCode": 200, "body": await operator_gateway(app).respond(event.operator or "")}
    connection_id = event.request_context.connection_id
    body = content_of(event.body, event.is_base64_encoded)
    try:
        served = gateway(app)
    except DefinitionError as error:
        from helix.core.protocol import error_reply, request_tags
        from helix.core.refusals import refusal_of

        logger.error("%s", error)
        await app.sockets.post(connection_id, error_reply(*request_tags(body), refusal_of(error)).encode())
        return {"statusCode": 200}
    await served.handle(connection_id, body)
    return {"statusCode": 200}


@lru_cache(maxsize=1)
def authoriser(app: Application) -> Authoriser:
    """Return the authoriser that the settings specify: keys, tokens, both, or no check at all."""
    settings = app.settings
    tokens = None
    if "jwt" in settings.auth:
        if not settings.jwks_url:
            raise InvalidInputError("HELIX_AUTH has jwt, and HELIX_JWKS_URL is not set")
        from helix.gateway.json_web_tokens import TokenRules, TokenVerifier

        rules = TokenRules(
            settings.jwt_issuer, settings.jwt_audience, settings.jwks_url, user_claim=settings.jwt_user_claim
        )
        tokens = TokenVerifier(rules, app.clock)
    keys = ApiKeys(app.store, app.clock) if "keys" in settings.auth else None
    return Authoriser(app.clock, keys=keys, tokens=tokens, anonymous="none" in settings.auth)


@lru_cache(maxsize=1)
def gateway(app: Application) -> Gateway:
    from helix.gateway.backend import Backend
    from helix.gateway.gateway import Gateway

    return Gateway(Backend(*_service(app), **_stage(app)), count=log_outcome)


@lru_cache(maxsize=1)
def operator_gateway(app: Application) -> Gateway:
    from helix.gateway.backend import OperatorBackend
    from helix.gateway.gateway import Gateway

    return Gateway(OperatorBackend(*_service(app), **_stage(app)), count=log_outcome)


def _service(app: Application) -> tuple[Executor, Sockets, Authoriser]:
    return app.executor, app.sockets, authoriser(app)


def _stage(app: Application) -> dict[str, Any]:
    """Return what a backend knows of its stage."""
    settings = app.settings
    return {
        "clock": app.clock,
        "streaming": settings.streaming,
        "stage": settings.stage,
        "machine": settings.machine,
        "logs": app.logs,
    }


class NoSockets:
    """Sockets for functions that respond in other ways. Every connection is reported as gone."""

    async def post(self, connection_id: str, data: bytes) -> Posted:
        return "gone"

    async def drop(self, connection_id: str) -> None:
        return


@lru_cache(maxsize=1)
def backend(app: Application) -> Backend:
    """Return the backend of a function without sockets."""
    from helix.gateway.backend import Backend

    return Backend(app.executor, NoSockets(), authoriser(app), clock=app.clock)


def log_outcome(action: str, code: str) -> None:
    """Log the outcome of a message: `ok`, or the error's code."""
    logger.log(logging.INFO if code == "ok" else logging.WARNING, "%s: %s", action, code)
