"""The bearer token for /metrics of a stage that has no secret for it: made once, shown once, known by its hash.

    control: `metrics token` / `token` -> {hash}

Law: a token that exists is never replaced. To renew it, delete its row and make another.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from helix.fleet.health_pages import bearer
from helix.ports.ids import Ids
from helix.ports.state_store import ABSENT, Key, Put, StateStore
from helix.services.committing import refused

TOKEN = Key("control", "metrics token", "token")
RANDOM = 16
"""Characters at the end of an id, 5 random bits each."""


async def make_token(store: StateStore, ids: Ids) -> str | None:
    """The new token; None where there is one already."""
    token = "metrics_" + ids.new("token")[-RANDOM:] + ids.new("token")[-RANDOM:]
    made = await refused(store, "metrics_token", [Put(TOKEN, {"hash": _hash(token)}, ABSENT)]) is None
    return token if made else None


async def is_token(store: StateStore, headers: Mapping[str, str]) -> bool:
    """Whether the request carries the token. Names of `headers` are in lower case."""
    given = bearer(headers)
    if not given:
        return False
    (row,) = await store.get([TOKEN])
    return row is not None and hmac.compare_digest(str(row["hash"]), _hash(given))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
