"""The bearer token for /metrics on a stage that does not have a secret for it. It is created and shown once.
Only its hash is stored.

    control: `metrics token` / `token` -> {hash}

Law: an existing token is never replaced. To rotate it, delete its row and create another.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from helix.fleet.health_pages import bearer
from helix.ports.ids import Ids, new_secret
from helix.ports.state_store import ABSENT, Key, Put, StateStore
from helix.services.committing import refused

TOKEN = Key("control", "metrics token", "token")


async def make_token(store: StateStore, ids: Ids) -> str | None:
    """Create and return a token. Return None if one already exists."""
    token = "metrics_" + new_secret(ids)
    made = await refused(store, "metrics_token", [Put(TOKEN, {"hash": _hash(token)}, ABSENT)]) is None
    return token if made else None


async def is_token(store: StateStore, headers: Mapping[str, str]) -> bool:
    """Return whether the request contains the token. The names in `headers` are in lower case."""
    given = bearer(headers)
    if not given:
        return False
    (row,) = await store.get([TOKEN])
    return row is not None and hmac.compare_digest(str(row["hash"]), _hash(given))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
