"""Redis with several real processes that are forked, start together and use one fresh database."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.contracts.slots_races import at_rest
from tests.support.redis_server import RedisServer
from tests.support_processes import Worker

from helix.adapters.redis import RedisStateStore, redis_streams
from helix.ports.state_store import Key
from helix.services.row_budgets import RowBudgets
from helix.services.row_slots import RowSlots
from helix.testing.stream_invariants import read_all

PROCESSES = 6


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker("redis_race_worker")
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as made:
        yield made


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStateStore]:
    server.ask("FLUSHALL")
    made = RedisStateStore(server.url)
    yield made
    await made.close()


async def test_increments_and_first_puts(worker: Worker, server: RedisServer, store: RedisStateStore) -> None:
    """No increment is lost, and only one of the processes that put an absent row succeeds."""
    won = worker.race("increment", server.url, PROCESSES)
    assert await store.get([Key("sessions", "p", "n")]) == [{"n": 20 * PROCESSES}]
    rows = await store.query("sessions", "q")
    assert sum(won) == len(rows) == 20
    assert [sum(row.value["by"] == me for row in rows) for me in range(PROCESSES)] == won


async def test_writers_of_one_stream(worker: Worker, server: RedisServer, store: RedisStateStore) -> None:
    """Sequences are dense, each chunk appears once, and each writer's chunks stay in order."""
    worker.race("append", server.url, PROCESSES)
    messages = await read_all(redis_streams(store), "ses")
    assert [message.sequence for message in messages] == list(range(1, 15 * PROCESSES + 1))
    for me in range(PROCESSES):
        mine = [m.chunk["delta"] for m in messages if m.session_id == f"child{me}" and m.chunk]
        assert mine == [f"{me}.{n}" for n in range(15)]


async def test_draws_on_one_budget(worker: Worker, server: RedisServer, store: RedisStateStore) -> None:
    """Draws never exceed the budget, and limit = remaining + drawn."""
    drawn = worker.race("draw", server.url, PROCESSES)
    (state,) = await RowBudgets(store).get(["global/total/micros/total"])
    assert state is not None and 0 <= state.remaining < 7 and state.remaining + sum(drawn) == state.limit == 500


async def test_slots(worker: Worker, server: RedisServer, store: RedisStateStore) -> None:
    """At most two processes hold a slot, every process gets one, and all slots are returned."""
    assert worker.race("slots", server.url, PROCESSES) == [0] * PROCESSES
    assert await at_rest(RowSlots(store))
