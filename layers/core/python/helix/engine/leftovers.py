"""What a copy that died left behind: messages in a partition without a session (see `engine.copies`).

Law: a session is made on a clean partition only; a leftover message would pass for a result of its first calls.
"""

from __future__ import annotations

from helix.core.errors import ConditionFailedError, SessionExistsError
from helix.engine.engine import Engine
from helix.engine.history import row_key, session_key
from helix.ports.state_store import ABSENT, Check, Delete, Key, Operation, Put, When

PAGE = 50
CLEARING_S = 60


def marker_key(session_id: str) -> Key:
    """Where a copy at work says so: owner and deadline."""
    return row_key(session_id, "copying")


async def clear_leftovers(engine: Engine, session_id: str) -> None:
    """Remove what a dead copy left. Raises `SessionExistsError` while a live one works."""
    marker = marker_key(session_id)
    (held,) = await engine.store.get([marker])
    if held is None:
        return
    now = engine.clock.now()
    taken = SessionExistsError(f"session {session_id!r} is being copied: choose another id, or wait for it")
    if held["deadline"] >= now:
        raise taken
    owner = engine.ids.new("clear")
    absent, mine = Check(session_key(session_id), ABSENT), When(equal={"owner": owner})
    value = {"owner": owner, "deadline": now + CLEARING_S}
    try:
        await engine.store.transact("begin_clear", [absent, Put(marker, value, When(equal={"owner": held["owner"]}))])
        while rows := await engine.store.query("sessions", session_id, start="m#", end="m$", limit=PAGE):
            pages: list[Operation] = [absent, Check(marker, mine), *(Delete(row.key) for row in rows)]
            await engine.store.transact("clear_messages", pages)
        await engine.store.transact("finish_clear", [absent, Delete(marker, mine)])
    except ConditionFailedError:
        raise taken from None
