"""Concurrent Redis commands share one round trip, and heartbeats do not wait for other commands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.exceptions import ResponseError

from helix.adapters.redis.batches import COMMANDS, Batches


class Server:
    """A client whose pipelines echo their commands after a delay. It records them in `batches`."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[Any, ...]]] = []
        self.takes_s = 0.02
        self.broken = False

    def pipeline(self, *, transaction: bool) -> Server.Pipe:
        assert not transaction
        return Server.Pipe(self)

    class Pipe:
        def __init__(self, server: Server) -> None:
            self._server, self._commands = server, list[tuple[Any, ...]]()

        async def __aenter__(self) -> Server.Pipe:
            return self

        async def __aexit__(self, *_: object) -> None:
            return

        def execute_command(self, *command: Any) -> None:
            self._commands.append(command)

        async def execute(self, *, raise_on_error: bool) -> list[Any]:
            assert not raise_on_error
            self._server.batches.append(self._commands)
            await asyncio.sleep(self._server.takes_s)
            if self._server.broken:
                raise ConnectionError("gone")
            return [ResponseError("no") if one[0] == "BAD" else one for one in self._commands]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def batches(server: Server) -> AsyncIterator[Batches]:
    made = Batches(server, 2)
    yield made
    await made.close()


async def test_callers_at_one_moment_share_a_batch(server: Server, batches: Batches) -> None:
    answers = await asyncio.gather(*(batches.send_commands(("GET", n), ("TTL", n)) for n in range(20)))
    assert answers == [[("GET", n), ("TTL", n)] for n in range(20)]
    assert len(server.batches) == 1


async def test_a_batch_has_a_bound_and_others_go_beside_it(server: Server, batches: Batches) -> None:
    begun = time.monotonic()
    await asyncio.gather(*(batches.send_commands(("GET", n)) for n in range(2 * COMMANDS + 1)))
    assert [len(batch) for batch in server.batches] == [COMMANDS, COMMANDS, 1]
    assert time.monotonic() - begun >= 2 * server.takes_s, "two batches are in flight at a time"


async def test_what_the_server_refuses_is_its_callers_alone(batches: Batches) -> None:
    found = await asyncio.gather(
        batches.send_commands(("GET", 1)), batches.send_commands(("BAD",)), return_exceptions=True
    )
    assert found[0] == [("GET", 1)] and isinstance(found[1], ResponseError)


async def test_a_lost_connection_is_everybodys(server: Server, batches: Batches) -> None:
    server.broken = True
    found = await asyncio.gather(*(batches.send_commands(("GET", n)) for n in range(3)), return_exceptions=True)
    assert all(isinstance(each, ConnectionError) for each in found)
    server.broken = False
    assert await batches.send_commands(("GET", 1)) == [("GET", 1)]


async def test_who_is_cancelled_holds_up_nobody(server: Server, batches: Batches) -> None:
    tasks = [asyncio.create_task(batches.send_commands(("GET", n))) for n in range(3)]
    await asyncio.sleep(server.takes_s / 2)
    tasks[1].cancel()
    first, second, third = await asyncio.gather(*tasks, return_exceptions=True)
    assert (first, third) == ([("GET", 0)], [("GET", 2)]) and isinstance(second, asyncio.CancelledError)
