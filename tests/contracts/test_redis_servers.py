"""Redis servers that crash, hang, or are configured so that they lose rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from tests.support.redis_server import RedisServer, free_port
from tests.support_run import eventually

from helix.adapters.redis import RedisStateStore, open_redis
from helix.core.errors import ConditionFailedError, InvalidInputError, StoreError
from helix.ports.state_store import Check, Key, Put, Update, When

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


async def test_a_restart_loses_nothing_and_wakes_who_waits(tmp_path: Path) -> None:
    """Verbs raise `StoreError` while the server is down. Afterwards the same store works, with its rows and watches."""
    with RedisServer(tmp_path, appendonly="yes", appendfsync="always") as server:
        store = RedisStateStore(server.url, timeout_s=5)
        await store.transact("put", [Put(KEY, {"n": 1})])
        with store.watch("sessions", "p") as watch:
            await watch.changed(SOON_S)
            await watch.changed(0.1)
            waiting = asyncio.ensure_future(watch.changed(60))
            server.kill()
            for verb in (store.get([KEY]), store.query("sessions", "p"), store.transact("t", [Put(KEY, {"n": 2})])):
                with pytest.raises(StoreError, match=f"127.0.0.1:{server.port}"):
                    await verb
            assert not waiting.done()
            server.start()
            assert await store.get([KEY]) == [{"n": 1}]
            # messages published while it was disconnected are lost, so the watch reports a change
            await asyncio.wait_for(waiting, SOON_S)
            waiting = asyncio.ensure_future(watch.changed(60))
            await store.transact("again", [Update(KEY, add={"n": 1})])
            await asyncio.wait_for(waiting, SOON_S)
        assert await store.get([KEY]) == [{"n": 2}]
        await store.close()


async def test_connections_that_died_in_the_pool_are_replaced(server: RedisServer, store: RedisStateStore) -> None:
    """The store detects dead connections before it sends anything on them, so no outcome is unknown."""
    await asyncio.gather(*(store.transact("put", [Put(Key("sessions", "p", f"{n}"), {})]) for n in range(8)))
    await asyncio.to_thread(server.ask, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await asyncio.gather(*(store.transact("put", [Put(Key("sessions", "p", f"{n}"), {})]) for n in range(8)))


async def stand_still(server: RedisServer, store: RedisStateStore) -> tuple[bool, int]:
    """Pause the server for longer than the store's timeout, then let it execute the pending commands.

    Return whether the transaction succeeded and how often the server executed it.
    """
    await store.transact("put", [Put(KEY, {"n": 0})])
    server.pause()
    asyncio.get_running_loop().call_later(0.45, server.go_on)
    answered = True
    try:
        await store.transact("add", [Update(KEY, add={"n": 1})])
    except StoreError:
        answered = False

    async def executed() -> bool:
        try:
            return await store.get([KEY]) != [{"n": 0}]
        except StoreError:  # the server is still paused
            return False

    await eventually(executed)
    await store.transact("another", [Put(Key("sessions", "p", "other"), {})])
    (found,) = await store.get([KEY])
    await store.close()
    assert found is not None
    return answered, int(found["n"])


async def test_a_lost_answer_is_unknown_and_never_sent_again(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        assert await stand_still(server, RedisStateStore(server.url, timeout_s=0.3)) == (False, 1)


class SendsAgain(RedisStateStore):
    """A store with redis-py's default retries."""

    def _make_pool(self) -> Any:
        pool = super()._make_pool()
        pool.connection_kwargs["retry"] = Retry(NoBackoff(), 2)
        return pool


async def test_sending_again_would_execute_again(tmp_path: Path) -> None:
    """redis-py's default retries execute the transaction twice, so the test above can detect the defect."""
    with RedisServer(tmp_path) as server:
        assert await stand_still(server, SendsAgain(server.url, timeout_s=0.3)) == (True, 2)


async def test_a_cancelled_caller_disturbs_nobody(store: RedisStateStore) -> None:
    """A cancelled call drops its connection, so no later caller reads its response."""
    await store.transact("put", [Put(KEY, {"n": 0})])
    for n in range(30):
        task = asyncio.ensure_future(store.transact("write", [Put(Key("sessions", "p", "b"), {"n": n})]))
        for _ in range(n % 10):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await store.get([KEY]) == [{"n": 0}]


async def test_no_cancellation_is_lost(store: RedisStateStore) -> None:
    """A cancellation works at any time. `asyncio.wait_for` of Python 3.11, which redis-py uses, swallows some that come at
    its end."""
    await store.transact("put", [Put(KEY, {"n": 0})])

    async def work() -> None:
        while True:
            await store.get([KEY])
            await store.transact("add", [Update(KEY, add={"n": 1})])

    for turns in range(60):
        task = asyncio.create_task(work())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task}, timeout=5)
        assert task.cancelled(), f"it goes on after a cancellation at turn {turns} of the event loop"


# --- servers that would lose rows ------------------------------------------------------------------------------------


async def test_a_server_that_evicts_is_refused(tmp_path: Path) -> None:
    with RedisServer(tmp_path, maxmemory="100mb", maxmemory_policy="allkeys-lru") as server:
        store = RedisStateStore(server.url)
        for _ in range(2):  # a retry is refused too
            with pytest.raises(StoreError, match="noeviction"):
                await store.get([KEY])
        await store.close()


async def test_a_cluster_is_refused(tmp_path: Path) -> None:
    with RedisServer(tmp_path, cluster_enabled="yes", cluster_port=str(free_port())) as server:
        store = RedisStateStore(server.url)
        with pytest.raises(StoreError, match="cluster"):
            await store.transact("put", [Put(KEY, {})])
        await store.close()


async def test_a_server_that_forgets_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer(tmp_path) as server:
        store = RedisStateStore(server.url)
        await asyncio.gather(*(store.get([KEY]) for _ in range(5)))
        assert [r.message for r in caplog.records if "appendonly" in r.message] and len(caplog.records) == 1
        await store.close()


async def test_nobody_there() -> None:
    store = RedisStateStore("redis://127.0.0.1:1/0", timeout_s=1)
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1/0"):
        await store.transact("put", [Put(KEY, {})])
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.get([KEY])


def test_what_is_no_url() -> None:
    with pytest.raises(InvalidInputError, match="URL"):
        open_redis("http://example.com")


async def test_enough_replicas_or_a_store_error(tmp_path: Path) -> None:
    """A store with `replicas` acknowledges a transaction once that many replicas have it. Otherwise it raises that the
    outcome is unknown."""
    with RedisServer(tmp_path / "primary", repl_diskless_sync_delay="0") as server:
        store = RedisStateStore(server.url, replicas=1, timeout_s=4)
        with pytest.raises(StoreError, match="0 of 1 replicas"):
            await store.transact("put", [Put(KEY, {"n": 1})])
        with RedisServer(tmp_path / "replica", replicaof=f"127.0.0.1 {server.port}") as replica:

            async def followed() -> bool:
                try:
                    await store.transact("put", [Put(KEY, {"n": 2})])
                    return True
                except StoreError:
                    return False

            await eventually(followed)
            assert replica.ask("EXISTS", "helix:sessions:p:row") == ":1"
            with pytest.raises(ConditionFailedError):
                await store.transact("check", [Check(KEY, When(equal={"n": 3}))])
        await store.close()
