"""The rules of `StateStore` that only concurrent readers and writers can break."""

from __future__ import annotations

import asyncio
import time

import pytest

from helix.core.errors import ConditionFailedError
from helix.ports.state_store import ABSENT, Check, Delete, Key, Operation, Put, StateStore, Update, When

P = "race"
SOON_S = 5.0  # long enough for a busy machine, and far shorter than a wait with a lost wake-up
LONG_S = 60.0


def key(sort: str) -> Key:
    return Key("sessions", P, sort)


async def won(store: StateStore, *operations: Operation) -> bool:
    try:
        await store.transact("race", operations)
        return True
    except ConditionFailedError:
        return False


class StateStoreRaces:
    """Tests that alternate between `store` and `other`, like two tasks or processes on the same rows."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def other(self, store: StateStore) -> StateStore:
        return store

    async def test_reads_see_what_was_answered(self, store: StateStore, other: StateStore) -> None:
        """Once a transaction has returned, every later get and query sees it, from any process."""
        for n in range(10):
            writer, reader = (store, other) if n % 2 else (other, store)
            await writer.transact("write", [Put(key("a"), {"n": n}), Put(key(f"b{n}"), {"n": n})])
            for asked in (reader, writer):
                assert await asked.get([key("a"), key(f"b{n}")]) == [{"n": n}, {"n": n}]
                rows = await asked.query("sessions", P, start="b")
                assert [row.value["n"] for row in rows] == list(range(n + 1))

    async def test_increments_by_compare_and_set_are_not_lost(self, store: StateStore, other: StateStore) -> None:
        """Compare-and-set increments (read, add one, write if unchanged, otherwise retry) are never lost."""
        await store.transact("begin", [Put(key("n"), {"n": 0})])

        async def increment(mine: StateStore) -> None:
            while True:
                (value,) = await mine.get([key("n")])
                assert value is not None
                if await won(mine, Put(key("n"), {"n": value["n"] + 1}, When(equal={"n": value["n"]}))):
                    return

        await asyncio.gather(*(increment((store, other)[n % 2]) for n in range(24)))
        assert await store.get([key("n")]) == [{"n": 24}]

    async def test_additions_are_not_lost(self, store: StateStore, other: StateStore) -> None:
        """`add` does not need a condition, because it adds to the value at the moment of the write."""
        await store.transact("begin", [Put(key("n"), {"n": 0})])
        adding = [(store, other)[n % 2].transact("add", [Update(key("n"), add={"n": n})]) for n in range(30)]
        await asyncio.gather(*adding)
        assert await store.get([key("n")]) == [{"n": sum(range(30))}]

    async def test_one_winner_for_an_absent_row(self, store: StateStore, other: StateStore) -> None:
        """If many writers put the same row with `absent`, exactly one wins, and the row is that writer's."""
        for round_ in range(3):
            row = key(f"row{round_}")
            tries = [won((store, other)[n % 2], Put(row, {"by": n}, ABSENT)) for n in range(16)]
            outcomes = await asyncio.gather(*tries)
            assert outcomes.count(True) == 1
            assert await other.get([row]) == [{"by": outcomes.index(True)}]

    async def test_two_rows_move_together(self, store: StateStore, other: StateStore) -> None:
        """Transfers between rows preserve the sum, and a condition prevents each row from going below zero."""
        await store.transact("begin", [Put(key("a"), {"n": 10}), Put(key("b"), {"n": 10})])

        async def transfer(mine: StateStore, n: int) -> bool:
            source, target = ("a", "b") if n % 3 else ("b", "a")
            amount = n % 5 + 1
            take = Update(key(source), add={"n": -amount}, when=When(at_least={"n": amount}))
            return await won(mine, take, Update(key(target), add={"n": amount}))

        await asyncio.gather(*(transfer((store, other)[n % 2], n) for n in range(40)))
        a, b = await store.get([key("a"), key("b")])
        assert a is not None and b is not None
        assert a["n"] + b["n"] == 20 and min(a["n"], b["n"]) >= 0

    async def test_a_check_guards_until_the_write(self, store: StateStore, other: StateStore) -> None:
        """No write skew: if two transactions each write one row and check the other's, exactly one succeeds."""
        for n in range(12):
            a, b = key(f"a{n}"), key(f"b{n}")
            await store.transact("begin", [Put(a, {"on": True}), Put(b, {"on": True})])
            on = When(equal={"on": True})
            outcomes = await asyncio.gather(
                won(store, Check(b, on), Update(a, set={"on": False})),
                won(other, Check(a, on), Update(b, set={"on": False})),
            )
            left = [value["on"] for value in await store.get([a, b]) if value is not None]
            assert sorted(outcomes) == [False, True] and sorted(left) == [False, True]

    async def test_many_at_once(self, store: StateStore, other: StateStore) -> None:
        """Readers and writers of different rows do not affect each other."""

        async def work(mine: StateStore, n: int) -> None:
            for step in range(3):
                await mine.transact("write", [Put(key(f"{n}#{step}"), {"n": n})])
                assert await mine.get([key(f"{n}#{step}")]) == [{"n": n}]
                assert len(await mine.query("sessions", P, start=f"{n}#", end=f"{n}$")) == step + 1

        await asyncio.gather(*(work((store, other)[n % 2], n) for n in range(20)))

    async def test_a_watch_does_not_miss_what_came_before_the_wait(self, store: StateStore, other: StateStore) -> None:
        """A change between `watch` and `changed` ends the wait, whichever process made it."""
        for n, writer in enumerate((store, other)):
            with store.watch("sessions", P) as watch:
                await store.get([key("a")])
                await writer.transact("write", [Put(key("a"), {"n": n})])
                began = time.monotonic()
                await asyncio.wait_for(watch.changed(LONG_S), SOON_S)
                assert time.monotonic() - began < SOON_S, "the change was missed"

    async def test_a_watch_wakes_who_waits(self, store: StateStore, other: StateStore) -> None:
        """A change during `changed` ends the wait, whichever process made it."""
        for n, writer in enumerate((store, other)):
            with store.watch("sessions", P) as watch:
                waiting = asyncio.ensure_future(watch.changed(LONG_S))
                await asyncio.sleep(0.05)
                await writer.transact("write", [Put(key("a"), {"n": n})])
                await asyncio.wait_for(waiting, SOON_S)

    async def test_a_deletion_wakes_who_waits(self, store: StateStore, other: StateStore) -> None:
        """A deletion ends the wait like any other change."""
        for writer in (store, other):
            await store.transact("write", [Put(key("a"), {"n": 0})])
            with store.watch("sessions", P) as watch:
                waiting = asyncio.ensure_future(watch.changed(LONG_S))
                await asyncio.sleep(0.05)
                await writer.transact("delete", [Delete(key("a"))])
                await asyncio.wait_for(waiting, SOON_S)

    async def test_a_watch_sees_the_last_of_many_changes(self, store: StateStore, other: StateStore) -> None:
        """A reader that alternates between reading and waiting ends up with the last value, without ever running into the
        timeout."""

        async def write() -> None:
            for n in range(30):
                await (store, other)[n % 2].transact("write", [Put(key("n"), {"n": n})])
                if n % 4 == 0:
                    await asyncio.sleep(0.002)

        async def read() -> None:
            with other.watch("sessions", P) as watch:
                while (await other.get([key("n")]))[0] != {"n": 29}:
                    await watch.changed(LONG_S)

        await asyncio.wait_for(asyncio.gather(read(), write()), 2 * SOON_S)

    async def test_a_watch_returns_when_its_time_is_over(self, store: StateStore) -> None:
        """Without a change, `changed` returns after its timeout."""
        with store.watch("sessions", "nobody writes here") as watch:
            await asyncio.wait_for(watch.changed(0.05), SOON_S)
