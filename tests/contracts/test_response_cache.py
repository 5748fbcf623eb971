"""The response cache on every store, and guarantees of its rows beyond the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.cache import MakeCache, ResponseCacheContract, Steps, T, asked, directions, given, known
from tests.support.aws_resources import fresh, make_store, make_tables, moto
from tests.support.redis_server import RedisServer

from helix import MemoryStateStore, SQLiteStateStore
from helix.adapters.redis import RedisStateStore
from helix.adapters.system import SystemClock
from helix.core.errors import InvalidInputError
from helix.ports.state_store import Delete, StateStore
from helix.services.row_cache import RowCache
from helix.testing.clocks import SetClock

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def on(*stores: StateStore) -> MakeCache:
    """Return a factory whose caches use the stores in turn."""
    made = 0

    def make(**options: Any) -> RowCache:
        nonlocal made
        made += 1
        return RowCache(stores[made % len(stores)], **{"clock": SystemClock(), **options})

    return make


class TestMemory(ResponseCacheContract):
    @pytest.fixture
    def make_cache(self) -> MakeCache:
        return on(MemoryStateStore())


class TestSQLite(ResponseCacheContract):
    """Run the contract on two stores on one file, as two processes would."""

    @pytest.fixture
    async def make_cache(self, tmp_path: Path) -> AsyncIterator[MakeCache]:
        stores = [SQLiteStateStore(tmp_path / "helix.db", synchronous="NORMAL") for _ in range(2)]
        yield on(*stores)
        for store in stores:
            await store.close()


class TestDynamoDB(ResponseCacheContract):
    @pytest.fixture(scope="class")
    def aws(self) -> Iterator[dict[str, Any]]:
        with moto() as made:
            yield made

    @pytest.fixture
    def make_cache(self, aws: dict[str, Any]) -> MakeCache:
        prefix = fresh()
        make_tables(aws["dynamodb"], prefix)
        return on(*(make_store(aws["dynamodb"], aws["s3"], prefix) for _ in range(2)))


class TestRedis(ResponseCacheContract):
    @pytest.fixture(scope="class")
    def server(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
        with RedisServer(tmp_path_factory.mktemp("redis")) as made:
            yield made

    @pytest.fixture
    async def make_cache(self, server: RedisServer) -> AsyncIterator[MakeCache]:
        server.ask("FLUSHALL")
        stores = [RedisStateStore(server.url) for _ in range(2)]
        yield on(*stores)
        for store in stores:
            await store.close()


class Counting(MemoryStateStore):
    """A memory store that counts the rows read and written."""

    def __init__(self) -> None:
        super().__init__()
        self.read = self.written = 0

    async def get(self, keys: Any) -> Any:
        self.read += len(keys)
        return await super().get(keys)

    async def query(self, *arguments: Any, **options: Any) -> Any:
        rows = await super().query(*arguments, **options)
        self.read += len(rows)
        return rows

    async def transact(self, name: str, operations: Any) -> None:
        self.written += len(operations)
        await super().transact(name, operations)


@pytest.mark.parametrize("size", [10, 300])
async def test_no_verb_reads_or_writes_more_where_there_is_more(size: int) -> None:
    """A lookup reads one row, a hit writes 3, and a put into a full cache reads at most 6 rows and writes at most 8."""
    store = Counting()
    cache = RowCache(store, max_size=size, clock=Steps())
    for n in range(size):
        await cache.put(T, asked(f"q{n}"), known("a"), 1e6)
    store.read = store.written = 0
    assert await given(cache, "unknown") is None
    assert (store.read, store.written) == (1, 0)
    assert await given(cache, "q5") == "a"
    assert (store.read, store.written) == (2, 3)
    store.read = store.written = 0
    await cache.put(T, asked("new"), known("a"), 1e6)
    assert store.read <= 6 and store.written <= 8


async def test_entries_that_the_table_removed_leave_their_places() -> None:
    """DynamoDB's TTL deletes entries but not their index rows. The cache still fills up to its size, and its count matches
    the index."""
    store, clock = MemoryStateStore(), Steps()
    cache = RowCache(store, max_size=4, clock=clock)
    for n in range(4):
        await cache.put(T, asked(f"q{n}"), known("a"), 10)
    clock.at += 200_000
    rows = await store.query("control", f"cache#{T}", start="e#", end="e$")
    assert len(rows) == 4 and all(row.value["ttl"] < clock.at for row in rows)
    await store.transact("ttl", [Delete(row.key) for row in rows])
    for n in range(4):
        await cache.put(T, asked(f"q{n}"), known(f"b{n}"), 10_000)
    assert [await given(cache, f"q{n}") for n in range(4)] == ["b0", "b1", "b2", "b3"]
    index = await store.query("control", f"cache#{T}", start="i#", end="i$")
    (count,) = await store.query("control", f"cache#{T}", start="count", end="counu")
    assert len(index) == count.value["entries"] == 4


async def test_a_count_without_rows_is_counted_again() -> None:
    """Rows that were removed by hand do not block the cache."""
    store = MemoryStateStore()
    cache = RowCache(store, max_size=2, clock=Steps())
    for name in "ab":
        await cache.put(T, asked(name), known(name), None)
    rows = await store.query("control", f"cache#{T}", end="count")
    rows += await store.query("control", f"cache#{T}", start="e#")
    await store.transact("by hand", [Delete(row.key) for row in rows])
    await cache.put(T, asked("c"), known("c"), None)
    assert await given(cache, "c") == "c"


def test_a_cache_holds_at_least_one() -> None:
    with pytest.raises(InvalidInputError, match="max_size is 0"):
        RowCache(MemoryStateStore(), max_size=0, clock=SystemClock())


async def test_an_entry_that_lost_its_place_in_the_order_does_not_hold_up_a_put() -> None:
    """An index row was removed by hand. The put that finds its entry without an index row is refused and given up."""
    store, clock = MemoryStateStore(), SetClock(1_000.0)
    cache = RowCache(store, clock=clock)
    await cache.put(T, asked("a"), known("old"), None)
    (index,) = await store.query("control", f"cache#{T}", start="i#", end="i$")
    await store.transact("by hand", [Delete(index.key)])
    clock.advance(1)
    await cache.put(T, asked("a"), known("new"), None)
    assert await given(cache, "a") == "old"


async def test_a_vector_goes_with_its_entry_where_the_embedding_failed_later() -> None:
    """Otherwise the old vector would always be the nearest and hide entries that exist."""

    async def broken(texts: Sequence[str]) -> list[list[float]]:
        raise OSError("no network")

    store, clock = MemoryStateStore(), Steps()
    cache = RowCache(store, max_size=1, embed=directions, clock=clock)
    await cache.put(T, asked("", 0.9, text="0"), known("old"), None)
    await RowCache(store, max_size=1, embed=broken, clock=clock).put(T, asked("", 0.9, text="0"), known("new"), None)
    await cache.put(T, asked("", 0.9, text="10"), known("other"), None)
    found = await cache.get(T, asked("", 0.9, text="1"))
    assert found is not None and found.known.answer == {"text": "other"}
