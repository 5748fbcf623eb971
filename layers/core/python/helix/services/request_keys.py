"""Request keys, with which a repeated request finds the run that the first one started.

Law: the key is recorded in the transaction that claims the run, on condition that it is absent. So a key has at most
one run, and a recorded key always has a claimed run. It is valid for `HOLDS_S` from the claim, however many runs follow
in the session.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from helix.core.run_row import RunRow
from helix.ports.state_store import ABSENT, Key, Put, StateStore

HOLDS_S: Final = 86_400
"""The number of seconds for which a key is valid. A store may keep a key for longer, but never for less."""


class KeyedRun(NamedTuple):
    """The run under a request key."""

    session_id: str
    """The session of the run. It may have been deleted since."""
    run_id: str
    """The run that the first request started, or the one that its waiting message will have."""
    queued_id: str | None = None
    """The id under which the message of the first request waits, or waited. None if it started its run at once."""


def key_partition(key: str) -> str:
    return f"once#{key}"


def request_key(key: str) -> Key:
    return Key("streams", key_partition(key), "run")


def key_put(key: str, run: RunRow, now: float) -> Put:
    return keyed_put(key, run.session_id, run.run_id, now)


def keyed_put(key: str, session_id: str, run_id: str, now: float, queued_id: str | None = None) -> Put:
    """Record the run that the request started, or the run that a waiting message of the request will have."""
    waited = {} if queued_id is None else {"queued_id": queued_id}
    value = {"session_id": session_id, "run_id": run_id, **waited, "ttl": int(now + HOLDS_S) + 1}
    return Put(request_key(key), value, ABSENT)


async def keyed_run(store: StateStore, key: str) -> KeyedRun | None:
    """Return the run that was started under the key, or None. Its session may have been deleted since."""
    (value,) = await store.get([request_key(key)])
    return None if value is None else KeyedRun(value["session_id"], value["run_id"], value.get("queued_id"))
