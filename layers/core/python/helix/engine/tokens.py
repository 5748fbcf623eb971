"""Task tokens: a parent's execution that waits for a sub-agent's session (PROTOCOL 9).

Law: who waits writes the token first and then reads the session; who ends the session writes that first and then reads
the tokens: so one of the two sees the other. Answers are wake-ups: they may repeat, or find nobody.
"""

from __future__ import annotations

import hashlib

from helix.core.rows import token_sort
from helix.engine.engine import Engine
from helix.engine.history import row_key
from helix.engine.writing import commit
from helix.ports.state_store import Delete, Put


async def add_token(engine: Engine, session_id: str, token: str) -> None:
    """Remember that the execution behind `token` waits until this session no longer runs."""
    digest = hashlib.sha256(token.encode()).hexdigest()[:32]  # a token is longer than a key may be
    await commit(engine, "add_token", [Put(row_key(session_id, token_sort(digest)), {"token": token})], _no)


async def wake_waiting(engine: Engine, session_id: str) -> None:
    """Let every execution that waits for the session go on."""
    if engine.launcher is None:
        return
    for row in await engine.store.query("sessions", session_id, start="t#", end="t$"):
        await engine.launcher.wake(row.value["token"])
        await commit(engine, "drop_token", [Delete(row.key)], _no)


async def _no() -> bool:
    return False
