"""Many sockets follow one run. Each reader receives the exact log, and a slow one delays no other."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.support_gateway import WORDS, executor_of
from tests.support_run import Gate, a_tool, agent, call, calls, gated

from helix import ScriptedModel
from helix.adapters.models.scripted import Entry
from helix.client import ClientSettings, HelixClient
from helix.gateway.loopback import LoopbackGateway, LoopbackSockets
from helix.ports.sockets import Posted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
READERS, EACH = 200, 20
"""Every `EACH`-th connection is congested, and every `EACH`-th reader does not read before the run has ended."""
PATIENT = ClientSettings(request_s=60, reorder_s=0.2, quiet_s=5)
HASTY = ClientSettings(request_s=60, reorder_s=0.05, quiet_s=5, buffer=100)


class Congested(LoopbackSockets):
    """Sockets of which some are too slow for every 5th frame with messages."""

    def __init__(self) -> None:
        super().__init__()
        self.frames, self.refused = Counter[str](), Counter[str]()

    async def post(self, connection_id: str, data: bytes) -> Posted:
        if b'"type":"messages"' in data and list(self.open).index(connection_id) % EACH == 1:
            self.frames[connection_id] += 1
            if self.frames[connection_id] % 5 == 0:
                self.refused[connection_id] += 1
                return "slow"
        return await super().post(connection_id, data)


async def test_200_sockets_on_one_run_have_the_exact_log() -> None:
    gate, over, sockets = Gate(), asyncio.Event(), Congested()
    look = a_tool("look", lambda args, ctx: "It rains.")
    script: list[Entry] = [
        gated(gate, calls(call("look"))),
        *[calls(call("look"), content=WORDS) for _ in range(15)],
        WORDS,
    ]
    executor = executor_of(ScriptedModel(script, delta_chars=16), agent("helper", tools=[look]))

    async def read(client: HelixClient, session_id: str, late: bool) -> list[dict[str, Any]]:
        messages = await (await client.handle(session_id)).messages()
        first = await anext(messages)
        if late:
            await over.wait()
        return [message.model_dump() for message in [first, *[message async for message in messages]]]

    async with executor, LoopbackGateway(executor, sockets=sockets) as gateway, AsyncExitStack() as stack:
        lates = [n % EACH == 2 for n in range(READERS)]
        clients = [
            await stack.enter_async_context(HelixClient(gateway.url, settings=HASTY if late else PATIENT))
            for late in lates
        ]
        handle = await clients[0].run("helper", "go")
        await gate.reached()
        readers = [
            asyncio.create_task(read(client, handle.session_id, late))
            for client, late in zip(clients, lates, strict=True)
        ]
        while len(await gateway.connections.subscribers(handle.stream_id)) < READERS:
            await asyncio.sleep(0.01)
        gate.open()
        quick = [reader for reader, late in zip(readers, lates, strict=True) if not late]
        await asyncio.gather(*quick)
        over.set()
        found = await asyncio.gather(*readers)
        log = [message.model_dump() for message in await executor.streams.read(handle.stream_id, 0, 10_000)]
        assert len(log) > 300
        assert [n for n, seen in enumerate(found) if seen != log] == []
        assert len(sockets.refused) == READERS // EACH, "the congested ones were refused frames, and asked again"
        assert {client.connections for client in clients} == {1}
