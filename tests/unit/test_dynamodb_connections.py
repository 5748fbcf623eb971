"""A DynamoDB store makes as many concurrent calls as its client has connections, and keeps two of them for heartbeats."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from helix.adapters.aws.dynamodb import HEARTBEATS, DynamoDBStateStore
from helix.adapters.system import SystemClock
from helix.ports.state_store import HEARTBEAT, Key, Update

CONNECTIONS = 5
KEY = Key("sessions", "ses", "session")


class SlowClient:
    """A client that answers reads only when the gate is open."""

    def __init__(self) -> None:
        self.meta = SimpleNamespace(config=SimpleNamespace(max_pool_connections=CONNECTIONS))
        self.gate, self.reading = threading.Event(), 0

    def batch_get_item(self, **_: Any) -> dict[str, Any]:
        self.reading += 1
        assert self.gate.wait(10)
        return {"Responses": {}}

    get_item = batch_get_item

    def update_item(self, **_: Any) -> dict[str, Any]:
        return {}


async def test_heartbeats_wait_for_no_other_call() -> None:
    client = SlowClient()
    store = DynamoDBStateStore(client, {"sessions": "s", "streams": "t", "control": "c"}, clock=SystemClock())
    reads = [asyncio.create_task(store.get([KEY])) for _ in range(3 * CONNECTIONS)]
    async with asyncio.timeout(5):
        while client.reading < CONNECTIONS - HEARTBEATS:
            await asyncio.sleep(0.01)
        await store.transact(HEARTBEAT, [Update(KEY, set={"deadline": 1.0})])
    assert client.reading == CONNECTIONS - HEARTBEATS, "others wait for a connection"
    client.gate.set()
    assert await asyncio.gather(*reads) == [[None]] * len(reads)
