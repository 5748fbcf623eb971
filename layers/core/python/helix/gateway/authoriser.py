"""Who may open a connection: the token's place in a handshake, and what it proves.

Law: closed by default. Unless the service is anonymous, a connection without a valid token is nobody's and is
refused; what was wrong with it is not said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from helix.core.errors import InvalidInputError
from helix.core.frames import BEARER_SUBPROTOCOL, SUBPROTOCOL
from helix.gateway.connections import MAX_CONNECTION_S, ROW_MARGIN_S
from helix.gateway.keys import ApiKeys, is_api_key
from helix.gateway.principals import refused
from helix.ports.clock import Clock

if TYPE_CHECKING:
    from helix.gateway.tokens import TokenVerifier  # which a service without such tokens does without

MAX_TOKEN: Final = 8192


@dataclass(frozen=True, slots=True)
class Proof:
    """`principal` is None where nobody is asked. `expires_at` in Unix seconds."""

    principal: str | None
    expires_at: float


class Authoriser:
    """`keys` and `tokens` are the kinds of proof that are accepted; with neither, and `anonymous`, anybody may connect."""

    def __init__(
        self,
        clock: Clock,
        *,
        keys: ApiKeys | None = None,
        tokens: TokenVerifier | None = None,
        anonymous: bool = False,
    ) -> None:
        if anonymous == (keys is not None or tokens is not None):
            raise InvalidInputError("a service asks for keys or tokens, or is anonymous: one of these, and not both")
        self._clock, self._keys, self._tokens, self.anonymous = clock, keys, tokens, anonymous

    async def prove(self, token: str | None) -> Proof:
        """Raises `NotAuthenticatedError`; `StoreError` where it could not be found out."""
        longest = self._clock.now() + MAX_CONNECTION_S + ROW_MARGIN_S
        if self.anonymous:
            return Proof(None, longest)
        if token is None or len(token) > MAX_TOKEN:
            raise refused("there is none" if token is None else "it is too long")
        if is_api_key(token):
            key = await self._keys.verify(token) if self._keys is not None else None
            if key is None:
                raise refused("no such key, or it was revoked or has expired")
            return Proof(str(key.principal), min(longest, key.expires_at or longest))
        if self._tokens is None:
            raise refused("it is no key")
        principal, expires_at = await self._tokens.verify(token)
        return Proof(str(principal), min(longest, expires_at))


def token_of(headers: Mapping[str, str]) -> str | None:
    """The token in a handshake's headers: `Authorization: Bearer TOKEN`, or from browsers, which cannot set that, among
    the offered subprotocols as `bearer.TOKEN`. None if there is none; never in the URL, which is logged everywhere."""
    given = {name.lower(): value for name, value in headers.items()}
    scheme, _, token = given.get("authorization", "").strip().partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    for offered in subprotocols_of(given):
        if offered.startswith(BEARER_SUBPROTOCOL) and len(offered) > len(BEARER_SUBPROTOCOL):
            return offered.removeprefix(BEARER_SUBPROTOCOL)
    return None


def subprotocols_of(headers: Mapping[str, str]) -> list[str]:
    """What the client offers, in its order."""
    given = {name.lower(): value for name, value in headers.items()}
    return [part.strip() for part in given.get("sec-websocket-protocol", "").split(",") if part.strip()]


def accepted_subprotocol(headers: Mapping[str, str]) -> str | None:
    """`helix.v1`, where it was offered: a browser closes a connection whose server names none of its offers. The token
    is never echoed."""
    return SUBPROTOCOL if SUBPROTOCOL in subprotocols_of(headers) else None
