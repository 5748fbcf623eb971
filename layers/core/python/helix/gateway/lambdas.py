"""The functions of the WebSocket API: authorise, connect, disconnect, and answer messages.

Law: closed by default. The authoriser says who somebody is, and `connect` believes only it: where identity is asked for
and the event has none, the handshake is refused. Answers to messages travel by the management API alone, so what the
integration returns says nothing.
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
    from helix.ports.sockets import Posted

Json = dict[str, Any]
logger = get_logger("helix.gateway")


class _Event(BaseModel):
    """What API Gateway sends has much more, which no function here needs."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True, defer_build=True)


class Claims(_Event):
    """What `ws_authorize` found out; context values are texts."""

    principal: str | None = None
    expires_at: float | None = None
    operator: bool = False


class RequestContext(_Event):
    connection_id: str = Field(alias="connectionId", min_length=1)
    authorizer: Claims | None = None


class AuthorizeEvent(_Event):
    method_arn: str = Field(alias="methodArn", min_length=1)
    headers: dict[str, str] | None = None


class SocketEvent(_Event):
    """Of a connection: all that `$disconnect` says."""

    request_context: RequestContext = Field(alias="requestContext")


class ConnectEvent(SocketEvent):
    headers: dict[str, str] | None = None


class MessageEvent(_Event):
    """A message of a connection, or an `operator`'s request: the function's caller is then AWS's to authorise, and no event
    of API Gateway is one."""

    request_context: RequestContext | None = Field(default=None, alias="requestContext")
    operator: str | None = None
    body: str | None = None
    is_base64_encoded: bool = Field(default=False, alias="isBase64Encoded")

    @model_validator(mode="after")
    def _one_sender(self) -> MessageEvent:
        if (self.request_context is None) == (self.operator is None):
            raise ValueError("requestContext: Field required, or operator, and not both")
        return self

    def message(self) -> str | bytes:
        """What was sent. A binary frame comes in base 64; one that is not even that is no message."""
        if not self.is_base64_encoded:
            return self.body or ""
        try:
            return base64.b64decode(self.body or "", validate=True)
        except binascii.Error:
            return b""


async def authorize(app: Application, event: AuthorizeEvent, delivery: Delivery) -> Json:
    """An IAM policy for this API's `$connect`: allow, with the principal and when its proof expires; or deny."""
    try:
        proof = await authoriser(app).prove(token_of(event.headers or {}))
    except NotAuthenticatedError:
        note("$connect", NotAuthenticatedError.code)
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
    note("$connect", "ok")
    chosen = accepted_subprotocol(event.headers or {})
    return {"statusCode": 200, "headers": {"Sec-WebSocket-Protocol": chosen}} if chosen else {"statusCode": 200}


async def disconnect(app: Application, event: SocketEvent, delivery: Delivery) -> Json:
    """Remove the connection with its subscriptions. What this event misses, `ttl` and the next post find."""
    await Connections(app.store, app.clock).close(event.request_context.connection_id)
    note("$disconnect", "ok")
    return {"statusCode": 200}


async def message(app: Application, event: MessageEvent, delivery: Delivery) -> Json:
    """Do what the message asks and post the answer, which is an error for all if the agents cannot be imported; return an
    operator's.
    """
    if event.request_context is None:
        return {"statusCode": 200, "body": await operator_gateway(app).answer(event.operator or "")}
    connection_id, body = event.request_context.connection_id, event.message()
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
    """As the settings say: keys, tokens, both, or nobody is asked."""
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

    backend = Backend(app.executor, app.sockets, authoriser(app), clock=app.clock, streaming=app.settings.streaming)
    return Gateway(backend, count=note)


@lru_cache(maxsize=1)
def operator_gateway(app: Application) -> Gateway:
    from helix.gateway.backend import OperatorBackend
    from helix.gateway.gateway import Gateway

    backend = OperatorBackend(
        app.executor, app.sockets, authoriser(app), clock=app.clock, streaming=app.settings.streaming
    )
    return Gateway(backend, count=note)


class NoSockets:
    """For functions that answer in other ways: everybody is gone."""

    async def post(self, connection_id: str, data: bytes) -> Posted:
        return "gone"

    async def drop(self, connection_id: str) -> None:
        return


@lru_cache(maxsize=1)
def backend(app: Application) -> Backend:
    """Of a function without sockets."""
    from helix.gateway.backend import Backend

    return Backend(app.executor, NoSockets(), authoriser(app), clock=app.clock)


def note(action: str, code: str) -> None:
    """Log what became of a message: `ok`, or the error's code."""
    logger.log(logging.INFO if code == "ok" else logging.WARNING, "%s: %s", action, code)
