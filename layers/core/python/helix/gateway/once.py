"""Once: what a repeated request is recognised by.

A message may come twice: its sender saw no answer, or a network repeated it. Law: what a request makes is named after the
request, or noted under its name before it is made; so the repeat finds it.
"""

from __future__ import annotations

import hashlib
from typing import Final

from helix.core.errors import ConditionFailedError
from helix.core.json import dumps
from helix.gateway.backend import Backend
from helix.gateway.connections import Connection
from helix.ports.state_store import ABSENT, Key, Put

REMEMBERED_S: Final = 86_400
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def own_suffix(caller: Connection, action: str, key: str | None, request_id: str, *session_id: str) -> str:
    """26 characters that this request and its repeats have, and no other: of one principal for a key, of one connection
    without. With `session_id`: on that session, so that runs of two sessions are never named alike."""
    scope = ["key", caller.principal, key] if key is not None else ["id", caller.connection_id, request_id]
    number = int.from_bytes(hashlib.sha256(dumps([action, *scope, *session_id]).encode()).digest()[:17])
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


async def minted(backend: Backend, suffix: str) -> str:
    """The id of the new session that this request makes, the same for its repeats within a day. Ids are minted, not
    derived: sessions are listed by them, and they sort by time."""
    key, minted = Key("streams", f"once#{suffix}", "session"), backend.ids.new("ses")
    value = {"session_id": minted, "ttl": int(backend.clock.now() + REMEMBERED_S)}
    try:
        await backend.executor.store.transact("mint_session", [Put(key, value, ABSENT)])
        return minted
    except ConditionFailedError:
        (known,) = await backend.executor.store.get([key])
        return str(known["session_id"]) if known is not None else minted
