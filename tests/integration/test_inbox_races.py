"""A message is left in a session that another caller uses while its sender looks at it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.support_run import Gate, agent, gated, history, result_of, told

from helix import LocalExecutor, MemoryStateStore, ScriptedModel
from helix.ports.state_store import Key, Row, Value

S = "ses"


class Between(MemoryStateStore):
    """A store in which something happens after the sender's last look: at the session, or at its inbox."""

    happens: Callable[[], Awaitable[None]] | None = None
    look = ""

    async def _happen(self, look: str) -> None:
        if look == self.look and (happens := self.happens) is not None:
            self.happens = None
            await happens()

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        found = await super().get(keys)
        await self._happen(keys[0].sort)
        return found

    async def query(self, table: Any, partition: str, **given: Any) -> list[Row]:
        found = await super().query(table, partition, **given)
        await self._happen(given.get("start", ""))
        return found


@pytest.mark.parametrize("look", ["session", "i#"])
async def test_a_message_waits_behind_one_that_came_after_its_sender_looked(look: str) -> None:
    store, gate, who = Between(), Gate(), agent()
    script = ["one"] if look == "i#" else []
    executor = LocalExecutor(store, model=ScriptedModel([*script, gated(gate, "never"), "three", "four"]))
    if script:
        await result_of(await executor.execute(who, "1", session_id=S))

    async def happens() -> None:
        handle = await executor.execute(who, "2", session_id=S)
        await gate.reached()
        await executor.execute(who, "3", session_id=S, when_running="queue")
        await handle.interrupt(wait=True)

    store.happens, store.look = happens, look
    last = await executor.execute(who, "4", session_id=S, when_running="queue")
    assert store.happens is None
    assert (await result_of(last)).text == "four"
    users = [line for line in told(await history(executor, S)) if line.startswith("user")]
    assert users[-3:] == ["user: 2", "user: 3", "user: 4"]
