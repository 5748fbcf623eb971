"""Guarantees of the Redis store alone: names, pages, expiry, subscriptions and event loops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.support.redis_server import RedisServer
from tests.support_run import eventually

import helix.adapters.redis.store as redis_store
from helix.adapters.redis import RedisStateStore, open_redis, redis_streams
from helix.adapters.redis.texts import row_of
from helix.core.errors import DamagedRowError, InvalidInputError, StoreError
from helix.ports.state_store import Delete, Key, Put, Update, When
from helix.testing.contracts.streams import started, text

SOON_S = 10.0
KEY = Key("sessions", "p", "row")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis"), appendonly="yes", appendfsync="always") as made:
        yield made


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStateStore]:
    server.ask("FLUSHALL")
    made = RedisStateStore(server.url, timeout_s=5)
    yield made
    await made.close()


# --- rows ------------------------------------------------------------------------------------------------------------


async def test_rows_of_a_megabyte(store: RedisStateStore) -> None:
    big = {"text": "0123456789é" * 100_000, "n": 1}
    keys = [Key("sessions", "p", f"{n}") for n in range(6)]
    await store.transact("put", [Put(key, big) for key in keys])
    await store.transact("touch", [Update(keys[0], add={"n": 1}, when=When(equal={"n": 1}))])
    assert await store.get(keys[:2]) == [big | {"n": 2}, big]
    rows = await store.query("sessions", "p", reverse=True)
    assert [row.key for row in rows] == keys[::-1] and rows[0].value == big


async def test_pages_of_a_query(store: RedisStateStore) -> None:
    """A partition with more rows than a page is queried with every combination of limit and direction."""
    names = [f"{n:04d}" for n in range(redis_store.PAGE_ROWS * 2)]
    for start in range(0, len(names), 64):
        await store.transact("put", [Put(Key("control", "p", name), {}) for name in names[start : start + 64]])
    for limit in (None, 1, redis_store.PAGE_ROWS, redis_store.PAGE_ROWS + 1, 2000):
        for reverse in (False, True):
            wanted = (names[::-1] if reverse else names)[:limit]
            rows = await store.query("control", "p", limit=limit, reverse=reverse)
            assert [row.key.sort for row in rows] == wanted
            assert all(row.value == {} for row in rows)
    rows = await store.query("control", "p", start="0100", end="0400", reverse=True, limit=290)
    assert [row.key.sort for row in rows] == names[100:400][::-1][:290]


async def test_names_do_not_run_into_each_other(store: RedisStateStore) -> None:
    """Colons and percent signs may be part of partitions and sorts."""
    keys = [
        Key("sessions", p, s) for p in ("a", "a:b", "a%3Ab", "a:", ":", "%") for s in (":", "b", "b:c", "b%3Ac", "%3A")
    ]
    await store.transact("put", [Put(key, {"at": [*key]}) for key in keys])
    assert await store.get(keys) == [{"at": [*key]} for key in keys]
    for partition in {key.partition for key in keys}:
        assert len(await store.query("sessions", partition)) == 5


async def test_a_field_that_cannot_be_read(store: RedisStateStore, server: RedisServer) -> None:
    await store.transact("put", [Put(KEY, {"n": 1})])
    server.ask("HSET", row_of(store._prefix, KEY), "n", "{")
    (value,) = await store.get([KEY])
    (row,) = await store.query("sessions", "p")
    for damaged in (value, row.value):
        assert damaged is not None
        with pytest.raises(DamagedRowError, match="'row' of 'p'"):
            damaged["n"]
    await store.transact("delete", [Delete(KEY)])
    assert await store.get([KEY]) == [None]


async def test_deleted_rows_leave_nothing(store: RedisStateStore, server: RedisServer) -> None:
    keys = [Key("sessions", "p", f"{n}") for n in range(5)]
    await store.transact("put", [Put(key, {"ttl": 2**40, "n": 1} if n % 2 else {}) for n, key in enumerate(keys)])
    await store.transact("delete", [Delete(key) for key in keys])
    assert server.ask("DBSIZE") == ":0"


async def test_prefixes_are_apart(store: RedisStateStore, server: RedisServer) -> None:
    other = RedisStateStore(server.url, prefix="other")
    await store.transact("put", [Put(KEY, {"n": 1})])
    assert await other.get([KEY]) == [None] and await other.query("sessions", "p") == []
    await other.close()
    for wrong in ("", "a:b"):
        with pytest.raises(InvalidInputError):
            RedisStateStore(server.url, prefix=wrong)


async def test_rows_past_their_ttl_go_with_later_transactions(store: RedisStateStore) -> None:
    """Expiry follows Redis's clock. Rows that were renewed stay, and so do rows whose `ttl` is not a number of seconds."""
    now = time.time()
    values: dict[str, dict[str, Any]] = {
        "past": {"ttl": int(now) - 5},
        "past too": {"ttl": now - 5.5},
        "future": {"ttl": int(now) + 600},
        "renewed": {"ttl": int(now) - 5},
        "endless": {"ttl": int(now) - 5},
        "text": {"ttl": "yesterday"},
        "null": {"ttl": None},
        "inside": {"state": {"ttl": 1}},
    }
    keys = {name: Key("streams", "p:q", name) for name in values}
    first = [Put(keys[name], value if name not in ("renewed", "endless") else {}) for name, value in values.items()]
    last = [Put(keys["renewed"], {"ttl": int(now) + 600}), Put(keys["endless"], {"n": 1})]
    await store.transact("put", [*first])
    await store.transact("renew", [*last])
    left = {row.key.sort for row in await store.query("streams", "p:q")}
    assert left == set(values) - {"past", "past too"}
    assert await store.get([keys["past"]]) == [None]


async def test_an_expiry_that_is_taken_back(store: RedisStateStore, server: RedisServer) -> None:
    """Both an update and a put may change or remove the expiry."""
    a, b, c = (Key("control", "p", name) for name in "abc")
    soon = int(time.time()) + 60
    await store.transact("put", [Put(a, {"ttl": soon}), Put(b, {"ttl": soon}), Put(c, {"ttl": soon})])
    assert server.ask("ZCOUNT", "helix:expiries", "-inf", f"{soon}") == ":3"
    await store.transact("renew", [Update(a, set={"ttl": soon + 60}), Put(b, {"n": 1}), Update(c, set={"ttl": None})])
    assert server.ask("ZCOUNT", "helix:expiries", "-inf", f"{soon}") == ":0"
    assert server.ask("ZCARD", "helix:expiries") == ":1"


# --- wake-ups --------------------------------------------------------------------------------------------------------


async def test_a_reader_that_comes_back_is_not_told_of_nothing(store: RedisStateStore) -> None:
    """Only the first watch of a partition reports that its subscription began. Later ones wait for changes."""
    await store.transact("put", [Put(KEY, {})])
    with store.watch("sessions", "p") as watch:
        await asyncio.wait_for(watch.changed(60), SOON_S)  # the subscription
    for _ in range(3):
        with store.watch("sessions", "p") as watch:
            began = time.monotonic()
            await watch.changed(0.1)
            assert time.monotonic() - began >= 0.09


async def test_more_partitions_than_stay_subscribed(store: RedisStateStore, server: RedisServer) -> None:
    """Subscriptions without a watch are dropped, and those with a watch stay."""
    with store.watch("sessions", "kept") as watch:
        await watch.changed(SOON_S)
        for n in range(300):
            with store.watch("streams", f"{n}"):
                pass

        async def settled() -> bool:
            return int(server.ask("EVAL", "\"return#redis.call('PUBSUB','CHANNELS','*')\"", "0")[1:]) == 257

        await eventually(settled)
        waiting = asyncio.ensure_future(watch.changed(60))
        await store.transact("put", [Put(Key("sessions", "kept", "a"), {})])
        await asyncio.wait_for(waiting, SOON_S)


async def test_a_stream_reader_is_woken_by_another_process(store: RedisStateStore, server: RedisServer) -> None:
    other = open_redis(server.url)
    reader, writer = redis_streams(store), redis_streams(other)
    for n in range(3):
        waiting = asyncio.ensure_future(_next(reader, n))
        await asyncio.sleep(0.02)
        await writer.append("s", [started(session="s"), text(n, f"{n}", session="s")])
        assert await asyncio.wait_for(waiting, SOON_S) == n + 1
    await other.close()


async def _next(streams: Any, after: int) -> int:
    while not (found := await streams.read("s", after)):
        await streams.wait("s", after, 60)
    return int(found[-1].sequence)


# --- event loops -----------------------------------------------------------------------------------------------------


def test_one_event_loop_after_another(server: RedisServer) -> None:
    store = RedisStateStore(server.url, prefix="loops")

    async def write(n: int) -> Any:
        await store.transact("put", [Put(KEY, {"n": n})])
        found = await store.get([KEY])
        await store._redis.aclose()
        return found

    for n in range(3):
        assert asyncio.run(write(n)) == [{"n": n}]


async def test_not_two_event_loops_at_once(store: RedisStateStore) -> None:
    await store.get([KEY])

    def elsewhere() -> None:
        asyncio.run(store.get([KEY]))

    with pytest.raises(StoreError, match="another event loop"):
        await asyncio.to_thread(elsewhere)
