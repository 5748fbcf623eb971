"""API keys: `helix_<id>_<secret>`, made for a user, shown once, and known to the service by their hash.

A secret has 160 random bits, so one round of SHA-256 keeps it: there is no dictionary of such secrets to try, which is
what slow hashes are for. Rows of the control table: `key#<id>` has what a check needs, `keys` lists the ids.

Law: whoever reads the table can use no key. A key that was revoked or has expired opens no connection; those it has
opened end with their proof, at most two hours later.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass

from helix.core.errors import ConditionFailedError, InvalidInputError
from helix.gateway.principals import Principal
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.ports.state_store import ABSENT, Key, Put, StateStore, Update, Value

KEY = re.compile(r"helix_([0-9A-Z]{26})_([0-9A-Z]{32})")
RANDOM = 16  # characters at the end of an id, 5 random bits each
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What may be shown of a key. Times are Unix seconds."""

    key_id: str
    principal: Principal
    name: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None


class ApiKeys:
    def __init__(self, store: StateStore, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def create(self, ids: Ids, principal: Principal, *, name: str = "", expires_at: float | None = None) -> str:
        """The new key: it cannot be read again. `name` is for people. `expires_at` in Unix seconds, default never."""
        now = self._clock.now()
        if expires_at is not None and expires_at <= now:
            raise InvalidInputError(f"expires_at is {expires_at}, which is past")
        if len(name) > 200:
            raise InvalidInputError(f"name has {len(name)} characters; the limit is 200")
        key_id = ids.new("key").rpartition("_")[2]
        secret = ids.new("secret")[-RANDOM:] + ids.new("secret")[-RANDOM:]
        value: Value = {"hash": _hash(secret), "user_id": principal.user_id, "tenant": principal.tenant}
        value |= {"name": name, "created_at": now, "expires_at": expires_at, "revoked_at": None}
        if expires_at is not None:
            value["ttl"] = int(expires_at) + DAY_S
        listed = {"ttl": value["ttl"]} if "ttl" in value else {}
        rows = [Put(_key(key_id), value, ABSENT), Put(Key("control", "keys", key_id), listed)]
        await self._store.transact("create_key", rows)
        return f"helix_{key_id}_{secret}"

    async def verify(self, token: str) -> ApiKey | None:
        """The key, if it is one, and is neither revoked nor expired."""
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
        """False if there is no such key. A repeat keeps the time of the first."""
        (value,) = await self._store.get([_key(key_id)])
        if value is None:
            return False
        if value["revoked_at"] is None:
            try:
                await self._store.transact("revoke_key", [Update(_key(key_id), set={"revoked_at": self._clock.now()})])
            except ConditionFailedError:
                return False  # expired, and removed just now
        return True

    async def list(self, *, limit: int = 100, after: str | None = None) -> list[ApiKey]:
        """Keys in the order of their making, expired and revoked ones included. `after` is the last page's last id."""
        start = "" if after is None else f"{after}\0"
        rows = await self._store.query("control", "keys", start=start, limit=limit)
        values = await self._store.get([_key(row.key.sort) for row in rows])
        return [_api_key(row.key.sort, value) for row, value in zip(rows, values, strict=True) if value is not None]


def is_api_key(token: str) -> bool:
    """Whether it looks like one: then it is no JSON Web Token."""
    return token.startswith("helix_")


def _key(key_id: str) -> Key:
    return Key("control", f"key#{key_id}", "key")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _api_key(key_id: str, value: Value) -> ApiKey:
    times = {name: None if value[name] is None else float(value[name]) for name in ("expires_at", "revoked_at")}
    principal = Principal(value["user_id"], value["tenant"])
    return ApiKey(
        key_id, principal, value["name"], float(value["created_at"]), times["expires_at"], times["revoked_at"]
    )
