"""Authentication: principals, API keys, the token's place in a handshake, and what a token proves about its bearer.

An API key is `helix_<id>_<secret>`. It is created for a user and shown once. The service knows only its hash. A secret has
160 random bits, so one round of SHA-256 is enough, because no dictionary of such secrets exists. In the control table,
`key#<id>` holds the data for a check, and `keys` lists the ids.

Law: closed by default. Unless the service is anonymous, a connection without a valid token is refused, and the response
does not say what is wrong with the token. Read access to the table is not enough to use a key. A key that was revoked
or has expired opens no connection. The connections that it opened earlier end with their proof, at most two hours
later. Different (tenant, user) pairs have different strings, and no principal's prefix is the beginning of another's.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from helix._log import get_logger
from helix.core.errors import InvalidInputError, NotAuthenticatedError
from helix.core.frames import BEARER_SUBPROTOCOL, SUBPROTOCOL
from helix.gateway.connections import MAX_CONNECTION_S, ROW_MARGIN_S
from helix.ports.clock import Clock
from helix.ports.ids import Ids, new_secret
from helix.ports.state_store import ABSENT, Delete, Key, Put, StateStore, Update, Value
from helix.services.committing import refused

if TYPE_CHECKING:
    from helix.gateway.json_web_tokens import TokenVerifier  # services without such tokens do not import it


logger = get_logger("helix.gateway")
MAX_PRINCIPAL_BYTES: Final = 256
_PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.@+-")


@dataclass(frozen=True, slots=True)
class Principal:
    """A user, and their tenant if there is one. `str(principal)` is `user`, or `tenant/user`. Characters other than
    letters, digits and `_.@+-` are written as `=XX`."""

    user_id: str
    """The user, as the issuer or the creator of the key named them."""
    tenant: str | None = None
    """The tenant that the user belongs to. None for users without a tenant."""

    def __post_init__(self) -> None:
        if not self.user_id or self.tenant == "" or len(str(self)) > MAX_PRINCIPAL_BYTES:
            raise NotAuthenticatedError(
                f"a user needs an id; the id and the tenant may have at most {MAX_PRINCIPAL_BYTES} bytes"
            )

    def __str__(self) -> str:
        user = _encode(self.user_id)
        return user if self.tenant is None else f"{_encode(self.tenant)}/{user}"


def prefix_of(principal: str | None) -> str:
    """Return the prefix of the session ids that this principal may choose: `user:` or `:tenant:user:`. Without
    authentication every caller may use every session id, so no prefix is reserved."""
    if principal is None:
        return ""
    tenant, slash, user = principal.rpartition("/")
    return f":{tenant}:{user}:" if slash else f"{user}:"


def _encode(text: str) -> str:
    return "".join(
        char if char in _PLAIN else "".join(f"={byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
        for char in text
    )


def refusal(why: str) -> NotAuthenticatedError:
    """Return the error for a refused token. Only the log says what is wrong with the token. The sender is not told."""
    logger.info("a token was refused: %s", why)
    return NotAuthenticatedError("the token is not valid here, or has expired")


KEY = re.compile(r"helix_([0-9A-Z]{26})_([0-9A-Z]{32})")
DAY_S = 86_400
PAGE = 100


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The public fields of a key. Times are Unix seconds."""

    key_id: str
    """The public part of the key, by which it is listed and revoked."""
    principal: Principal
    """The user for whom the key was created."""
    name: str
    """A name for people. May be empty."""
    created_at: float
    """The time at which the key was created."""
    expires_at: float | None = None
    """The time at which the key expires. None: it does not expire."""
    revoked_at: float | None = None
    """The time at which the key was revoked. None: it was not revoked."""
    operator: bool = False
    """Whether the key may also read the fleet and change budgets."""


class ApiKeys:
    def __init__(self, store: StateStore, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def create(
        self,
        ids: Ids,
        principal: Principal,
        *,
        name: str = "",
        expires_at: float | None = None,
        operator: bool = False,
    ) -> str:
        """Return the new key, which cannot be read again. `name` is a label for people. `expires_at` is in Unix
        seconds; by default the key does not expire. For `operator` see `ApiKey`."""
        now = self._clock.now()
        if expires_at is not None and expires_at <= now:
            raise InvalidInputError(f"expires_at is {expires_at}, which is past")
        if len(name) > 200:
            raise InvalidInputError(f"name has {len(name)} characters; the limit is 200")
        key_id = ids.new("key").rpartition("_")[2]
        secret = new_secret(ids)
        value: Value = {"hash": _hash(secret), "user_id": principal.user_id, "tenant": principal.tenant}
        value |= {"name": name, "created_at": now, "expires_at": expires_at, "revoked_at": None}
        if operator:
            value["operator"] = True
        if expires_at is not None:
            value["ttl"] = int(expires_at) + DAY_S
        listed = {"ttl": value["ttl"]} if "ttl" in value else {}
        rows = [Put(_key(key_id), value, ABSENT), Put(Key("control", "keys", key_id), listed)]
        await self._store.transact("create_key", rows)
        return f"helix_{key_id}_{secret}"

    async def verify(self, token: str) -> ApiKey | None:
        """Return the key if the token is a key that is neither revoked nor expired, and None otherwise."""
        match = KEY.fullmatch(token)
        if match is None:
            return None
        (value,) = await self._store.get([_key(match[1])])
        if value is None or not hmac.compare_digest(value["hash"], _hash(match[2])):
            return None
        found = _api_key(match[1], value)
        expired = found.expires_at is not None and found.expires_at <= self._clock.now()
        return None if expired or found.revoked_at is not None else found

    async def revoke(self, key_id: str) -> bool:
        """Revoke the key. Return False if it does not exist. A repeated call keeps the original time."""
        (value,) = await self._store.get([_key(key_id)])
        if value is None:
            return False
        if value["revoked_at"] is not None:
            return True
        revoked = Update(_key(key_id), set={"revoked_at": self._clock.now()})
        return await refused(self._store, "revoke_key", [revoked]) is None  # refused if it has just expired

    async def delete(self, key_id: str) -> None:
        """Delete the key and every trace of its user. Idempotent."""
        await self._store.transact("delete_key", [Delete(_key(key_id)), Delete(Key("control", "keys", key_id))])

    async def list_ids_of(self, principal: str) -> Sequence[str]:
        """Return the ids of this principal's keys, including expired and revoked ones."""
        found: list[str] = []
        after: str | None = None
        while rows := await self._store.query(
            "control", "keys", start="" if after is None else f"{after}\0", limit=PAGE
        ):
            values = await self._store.get([_key(row.key.sort) for row in rows])
            known = [_api_key(row.key.sort, v) for row, v in zip(rows, values, strict=True) if v is not None]
            found += [key.key_id for key in known if str(key.principal) == principal]
            after = rows[-1].key.sort
        return found

    async def list(self, *, limit: int = 100, after: str | None = None) -> list[ApiKey]:
        """Return keys in the order of their creation, including expired and revoked ones. `after` is the last id of the
        previous page."""
        start = "" if after is None else f"{after}\0"
        rows = await self._store.query("control", "keys", start=start, limit=limit)
        values = await self._store.get([_key(row.key.sort) for row in rows])
        return [_api_key(row.key.sort, value) for row, value in zip(rows, values, strict=True) if value is not None]


def is_api_key(token: str) -> bool:
    """Whether the token looks like an API key. In that case it is not a JSON Web Token."""
    return token.startswith("helix_")


def _key(key_id: str) -> Key:
    return Key("control", f"key#{key_id}", "key")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _api_key(key_id: str, value: Value) -> ApiKey:
    created, expires, revoked = (
        None if value[name] is None else float(value[name]) for name in ("created_at", "expires_at", "revoked_at")
    )
    principal, operator = Principal(value["user_id"], value["tenant"]), bool(value.get("operator"))
    return ApiKey(key_id, principal, value["name"], created or 0.0, expires, revoked, operator)


MAX_TOKEN: Final = 8192


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of checking a token."""

    principal: str | None
    """The authenticated principal, as a string. None if the service is anonymous."""
    expires_at: float
    """The end of the proof, in Unix seconds: the token's expiry, or an earlier time if a connection cannot last that
    long."""
    operator: bool = False
    """Whether the token is an operator's key."""


class Authoriser:
    """A verifier of tokens. `keys` and `tokens` are the accepted kinds of proof. With `anonymous` and neither of them,
    every client may connect."""

    def __init__(
        self, clock: Clock, *, keys: ApiKeys | None = None, tokens: TokenVerifier | None = None, anonymous: bool = False
    ) -> None:
        if anonymous == (keys is not None or tokens is not None):
            raise InvalidInputError(
                "a service accepts keys or tokens, or is anonymous: give keys or tokens, or anonymous=True, and not both"
            )
        self._clock, self._keys, self._tokens, self.anonymous = clock, keys, tokens, anonymous

    async def prove(self, token: str | None) -> Proof:
        """Check the token. Raises `NotAuthenticatedError`, and `StoreError` if the token could not be checked."""
        longest = self._clock.now() + MAX_CONNECTION_S + ROW_MARGIN_S
        if self.anonymous:
            return Proof(None, longest)
        if token is None or len(token) > MAX_TOKEN:
            raise refusal("it is missing" if token is None else "it is too long")
        if is_api_key(token):
            key = await self._keys.verify(token) if self._keys is not None else None
            if key is None:
                raise refusal("the key does not exist, was revoked, or has expired")
            return Proof(str(key.principal), min(longest, key.expires_at or longest), key.operator)
        if self._tokens is None:
            raise refusal("it is not an API key")
        principal, expires_at = await self._tokens.verify(token)
        return Proof(str(principal), min(longest, expires_at))


def token_of(headers: Mapping[str, str]) -> str | None:
    """Return the bearer token of a handshake, or None without a token. It is in the `Authorization` header. Browsers
    cannot set that header, so they offer the subprotocol `bearer.TOKEN`. It is never in the URL, because URLs are logged
    everywhere."""
    given = {name.lower(): value for name, value in headers.items()}
    scheme, _, token = given.get("authorization", "").strip().partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    for offered in subprotocols_of(given):
        if offered.startswith(BEARER_SUBPROTOCOL) and len(offered) > len(BEARER_SUBPROTOCOL):
            return offered.removeprefix(BEARER_SUBPROTOCOL)
    return None


def subprotocols_of(headers: Mapping[str, str]) -> list[str]:
    """Return the subprotocols that the client offers, in its order."""
    given = {name.lower(): value for name, value in headers.items()}
    return [part.strip() for part in given.get("sec-websocket-protocol", "").split(",") if part.strip()]


def accepted_subprotocol(headers: Mapping[str, str]) -> str | None:
    """Return `helix.v1` if it was offered, because a browser closes a connection whose server accepts none of its
    offers. The token is never echoed."""
    return SUBPROTOCOL if SUBPROTOCOL in subprotocols_of(headers) else None
