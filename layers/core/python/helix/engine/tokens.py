"""Task tokens: a parent's execution that waits for a sub-agent's session (PROTOCOL 9).

Law: who waits writes the token first and then reads the session; who ends the session writes that first and then reads
the tokens: so one of the two sees the other. Answers are wake-ups: they may repeat, or find nobody.
"""

from __future__ import annotations

import hashlib

from helix.core.row_keys import token_sort
from helix.engine.engine import Engine
from helix.engine.history import DELETING, row_key, session_key
from helix.engine.writing import commit
from helix.ports.state_store import Check, Delete, Put, When


async def add_token(engine: Engine, session_id: str, token: str) -> bool:
    """Remember that the execution behind `token` waits until this session no longer runs. False if it was deleted."""
    digest = hashlib.sha256(token.encode()).hexdigest()[:32]  # a token is longer than a key may be
    put = Put(row_key(session_id, token_sort(digest)), {"token": token})
    while True:
        session = await engine.history.session(session_id)
        if session is None or session.status == DELETING:
            return False
        seen = Check(session_key(session_id), When(equal={"version": session.version}))
        if await commit(engine, "add_token", [seen, put], lambda: _is_there(engine, put)):
            return True


async def wake_waiting(engine: Engine, session_id: str) -> None:
    """Let every execution that waits for the session go on."""
    if engine.launcher is None:
        return
    for row in await engine.store.query("sessions", session_id, start="t#", end="t$"):
        await engine.launcher.wake(row.value["token"])
        await commit(engine, "drop_token", [Delete(row.key)], _no)


async def _is_there(engine: Engine, put: Put) -> bool:
    return (await engine.store.get([put.key]))[0] is not None


async def _no() -> bool:
    return False
