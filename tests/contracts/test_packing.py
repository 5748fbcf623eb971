"""Rows packed into the row `session`, on a memory store: the contract, crashes between a transaction's writes, and
costs."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from helix import MemoryStateStore
from helix.adapters.aws import packing
from helix.adapters.aws.packing import PackingStore
from helix.adapters.aws.packs import Pack
from helix.adapters.system import SystemClock
from helix.core.errors import ConditionFailedError
from helix.core.json import dumps
from helix.ports.state_store import ABSENT, Check, Delete, Key, Operation, Put, Row, StateStore, Update, Value, When
from helix.testing.clocks import SetClock
from helix.testing.contracts import StateStoreContract
from helix.testing.crash import Crash, CrashPoints

SES = Key("sessions", "s", "session")
OTHER = Key("control", "c", "n")
SORTS = ("c#0000000001", "c#0000000002", "m#000000#00000000", "m#000000#00000001", "r#run_1", "x#run_1")


class Ticking(SystemClock):
    """A clock that advances by ten seconds at each reading."""

    time = 1e9

    def now(self) -> float:
        Ticking.time += 10
        return Ticking.time


def packed(inner: StateStore) -> PackingStore:
    return PackingStore(inner, lambda value: len(dumps(value)), Ticking())


def key(sort: str) -> Key:
    return Key("sessions", "s", sort)


def session(version: int, when: When | None = None, **more: Any) -> Put:
    return Put(SES, {"version": version, **more}, when or When(equal={"version": version - 1}))


@pytest.fixture
def memory() -> MemoryStateStore:
    return MemoryStateStore()


@pytest.fixture
def store(memory: MemoryStateStore) -> PackingStore:
    return packed(memory)


class TestStore(StateStoreContract):
    """Run the contract without packing: its rows have keys that are not packed."""


class TestStoresOfTwoProcesses(StateStoreContract):
    @pytest.fixture
    def other(self, memory: MemoryStateStore) -> PackingStore:
        return packed(memory)


class Counting(MemoryStateStore):
    """A memory store that records the name of each transaction and how many rows it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[tuple[str, int]] = []

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await super().transact(name, operations)
        self.writes.append((name, len(operations)))


async def test_new_rows_are_one_write_with_their_session() -> None:
    inner = Counting()
    store = packed(inner)
    rows = [Put(key(sort), {"sort": sort}, new=True) for sort in SORTS[:5]]
    await store.transact("claim", [session(1, ABSENT), *rows, Put(OTHER, {"n": 1}, may_precede=True)])
    assert inner.writes == [("claim_early", 1), ("claim", 1)]
    reader = packed(inner)
    assert await reader.get([key(sort) for sort in SORTS]) == [{"sort": sort} for sort in SORTS[:5]] + [None]
    listed = await reader.query("sessions", "s")
    assert [row.key.sort for row in listed] == [*SORTS[:5], "session"] and listed[-1].value == {"version": 1}
    assert [
        row.key.sort for row in await reader.query("sessions", "s", start="c#", end="c$", limit=1, reverse=True)
    ] == [SORTS[1]]


async def test_rows_that_may_precede_are_deleted_one_by_one() -> None:
    """Single deletes cost half of a transaction. The write that drops the packed rows from their session deletes them."""
    inner = Counting()
    store = packed(inner)
    await store.transact("a", [session(1, ABSENT), *(Put(key(s), {"s": s}, new=True) for s in SORTS[:2])])
    await store.transact("b", [Put(key(s), {"s": s}) for s in ("x#1", "x#2")])
    inner.writes.clear()
    gone = [key(sort) for sort in (*SORTS[:2], "x#1", "x#2")]
    await store.transact("delete", [Delete(one, may_precede=True) for one in gone])
    assert inner.writes == [("delete_early", 1)] * 4 + [("delete", 1)]
    assert [row.key.sort for row in await packed(inner).query("sessions", "s")] == ["session"]


async def test_what_finds_no_room_moves_to_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "ROOM", 230)
    inner = Counting()
    store = packed(inner)
    await store.transact("a", [session(1, ABSENT), *(Put(key(s), {"s": s}, new=True) for s in SORTS[:2])])
    await store.transact("b", [session(2), *(Put(key(s), {"s": s}, new=True) for s in SORTS[2:4])])
    assert inner.writes == [("a", 1), ("unpack", 1), ("b", 1)]
    await store.transact("c", [session(3), Put(key(SORTS[4]), {"s": SORTS[4]}, new=True)])
    assert inner.writes[3:] == [("c", 2)], "one row alone is put at its place at once"
    assert [row.key.sort for row in await store.query("sessions", "s")] == [*SORTS[:5], "session"]
    places = [row.key.sort for row in await inner.query("sessions", "s")]
    assert places == [SORTS[0], SORTS[4], "session"], "the oldest goes first"
    assert await store.get([key(SORTS[0])]) == [{"s": SORTS[0]}], "the row is unchanged"


async def test_a_move_that_comes_late_replaces_nothing_newer(memory: MemoryStateStore) -> None:
    """A process paused between reading the pack and moving a row out of it. Meanwhile others moved and changed the row."""
    slow, quick = packed(memory), packed(memory)
    await quick.transact("a", [session(1, ABSENT), Put(key(SORTS[4]), {"effects": "open"}, new=True)])
    held = (await slow._read_pack("s")).rows[SORTS[4]]
    await quick._unpack_row(key(SORTS[4]), held)  # this process crashed before it wrote the session
    await packed(memory).transact("b", [Update(key(SORTS[4]), set={"effects": "done"})])
    assert await packed(memory).get([key(SORTS[4])]) == [{"effects": "done"}], "the packed row counts, not its copy"
    after = packed(memory)
    changed = (await after._read_pack("s")).rows[SORTS[4]]
    await after._unpack_row(key(SORTS[4]), changed)
    await slow._unpack_row(key(SORTS[4]), held)
    (value,) = await memory.get([key(SORTS[4])])
    assert value is not None and value["effects"] == "done"


async def test_a_row_that_another_process_has_moved_is_read_at_its_place(memory: MemoryStateStore) -> None:
    """The row moves between the two reads of one `get`, so neither read finds it."""

    class Torn(MemoryStateStore):
        async def get(self, keys: Sequence[Key]) -> list[Value | None]:
            places = [value for at in keys if at != SES for value in await memory.get([at])]
            if len(keys) == 2:
                held = (await mover._read_pack("s")).rows[SORTS[4]]
                await mover._unpack_row(key(SORTS[4]), held)
                await memory.transact("drop", [Update(SES, set={"packed": {}, "pack": 2})])
            return [*places, *(await memory.get([SES]) if SES in keys else [])]

    mover = packed(memory)
    await mover.transact("a", [session(1, ABSENT), Put(key(SORTS[4]), {"n": 1}, new=True)])
    assert await packed(Torn()).get([key(SORTS[4])]) == [{"n": 1}]


class Counted(MemoryStateStore):
    """A store that reads a query row by row, as DynamoDB does, and calls `between` after the first row."""

    def __init__(self, memory: MemoryStateStore, between: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self.memory, self.between, self.calls = memory, between, 0

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        self.calls += 1
        return await self.memory.get(keys)

    async def query(self, *where: Any, **options: Any) -> list[Row]:
        self.calls += 1
        first = await self.memory.query(*where, **{**options, "limit": 1})
        await self.between()
        rest = await self.memory.query(*where, **options)
        return [*first, *(row for row in rest if row.key != first[0].key)]


@pytest.mark.parametrize("limit", [None, 1, 2, 3])
async def test_a_reversed_query_that_holds_the_session_is_one_read(memory: MemoryStateStore, limit: int | None) -> None:
    """The one read returns the packed rows, including those that another process moves meanwhile."""

    async def move() -> None:
        held = (await mover._read_pack("s")).rows["r#1"]
        await mover._unpack_row(key("r#1"), held)
        await memory.transact("drop", [Update(SES, set={"packed": {}, "pack": 3})])

    mover, reader = packed(memory), Counted(memory, move)
    await mover.transact("a", [session(1, ABSENT), Put(key("r#0"), {"n": 0}), Put(key("r#1"), {"n": 1}, new=True)])
    bounds: dict[str, Any] = {"start": "r#", "end": "session\x00", "reverse": True}
    rows = await packed(reader).query("sessions", "s", **bounds, limit=limit)
    assert [row.key.sort for row in rows] == ["session", "r#1", "r#0"][:limit] and reader.calls == 1
    assert [row.value.get("n") for row in rows] == [None, 1, 0][:limit] and "packed" not in rows[0].value


async def test_a_reversed_query_whose_page_ends_before_the_session_has_the_packed_rows(
    memory: MemoryStateStore,
) -> None:
    store = packed(memory)
    await store.transact("a", [session(1, ABSENT), Put(key("r#1"), {"n": 1}, new=True), Put(key("x#1"), {})])
    rows = await packed(memory).query("sessions", "s", start="r#", limit=1, reverse=True)
    assert [row.key.sort for row in rows] == ["x#1"]
    rows = await packed(memory).query("sessions", "s", start="r#", reverse=True)
    assert [row.key.sort for row in rows] == ["x#1", "session", "r#1"]


async def test_damage_of_the_session_is_its_own(memory: MemoryStateStore) -> None:
    """A session's unreadable row can be replaced, as a row without a pack can."""
    store = packed(memory)
    await store.transact("a", [session(1, ABSENT), Put(key(SORTS[4]), {"n": 1}, new=True)])
    assert store._packs["s"].rows
    store._packs["s"] = Pack(0, known=True, damaged=True)
    await store.transact("rebuild", [Put(SES, {"version": 5}), Put(key(SORTS[0]), {"n": 2}, new=True)])
    assert await packed(memory).get([SES, key(SORTS[0])]) == [{"version": 5}, {"n": 2}]


async def test_a_write_beside_the_pack_does_not_make_what_is_remembered_of_it_newer(
    memory: MemoryStateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, rows that another process deleted long ago would be moved to items of their own and stay there."""
    monkeypatch.setattr(packing, "ROOM", 150)
    clock = SetClock(1e9)
    slow, other = (PackingStore(memory, lambda value: len(dumps(value)), clock) for _ in range(2))
    point, message, call = key(SORTS[0]), key(SORTS[2]), Put(key(SORTS[3]), {"n": 2}, ABSENT)
    await slow.transact("a", [session(1, ABSENT), *(Put(at, {"n": 1}, new=True) for at in (point, message))])
    await other.transact("prune", [Check(SES, When(equal={"version": 1})), Delete(point)])
    clock.advance(60)
    await slow.transact("tool", [Check(SES, When(equal={"version": 1})), call])
    with pytest.raises(ConditionFailedError):
        await slow.transact("late", [session(1, text="x" * 150)])
    assert await memory.get([point]) == [None]


async def test_a_slow_read_does_not_hide_rows_that_were_packed_meanwhile(memory: MemoryStateStore) -> None:
    """One of two tasks of a process read the row `session` first but gets its response last."""
    store = packed(memory)
    await store.transact("a", [session(1, ABSENT), Put(key(SORTS[2]), {"n": 1}, new=True)])
    (early,) = await memory.get([SES])
    new = [session(2), *(Put(key(sort), {"n": 2}, new=True) for sort in SORTS[3:5])]
    await packed(memory).transact("b", new)
    assert await store.get([SES]) == [{"version": 2}]
    store._extract_pack(SES, early)
    found = await store.query("sessions", "s", start="m#", end="m$", known_head=True)
    assert [row.value["n"] for row in found] == [1, 2]


# --- crashes and several writers --------------------------------------------------------------------------------------


class Play:
    """Random transactions by several stores on one memory store. Some stores crash halfway.

    A plain store executes the same transactions atomically for comparison.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.memory, self.model = MemoryStateStore(), MemoryStateStore()
        self.stores = [packed(self.memory) for _ in range(3)]
        self.created = 0

    async def rows(self, store: StateStore) -> dict[str, Value]:
        found = {row.key.sort: row.value for row in await store.query("sessions", "s")}
        return found | {"other": (await store.get([OTHER]))[0] or {}}

    async def operations(self) -> list[Operation]:
        """Return random operations that a caller may submit: new rows come with a put of the session that creates them."""
        choose, now = self.random, await self.rows(self.model)
        there = [sort for sort in now if sort not in ("session", "other")]
        version = now["session"]["version"] if "session" in now else 0
        if version == 0 or choose.random() < 0.5:
            put = session(version + 1, ABSENT if version == 0 else None, text="x" * choose.randrange(60))
            more: list[Operation] = [put]
            for _ in range(choose.randrange(4)):
                self.created += 1
                sort = f"{choose.choice('cmr')}#{self.created:010d}"
                more.append(Put(key(sort), {"n": self.created, "text": "y" * choose.randrange(40)}, new=True))
        else:
            more = choose.choice(
                [[], [Check(SES, When(equal={"version": version}))], [Update(SES, set={"lease": choose.random()})]]
            )
            more = list(more)
        for sort in choose.sample(there, min(len(there), choose.randrange(3))):
            when = choose.choice([None, When(equal={"n": now[sort].get("n")}), When(equal={"n": -1})])
            some: list[Operation] = [
                Update(key(sort), set={"u": choose.random()}, when=when),
                Put(key(sort), {"n": now[sort].get("n"), "again": choose.random()}, when),
                Check(key(sort), when or When()),
            ]
            if sort.startswith("m#"):
                some = some[2:]
            more.append(choose.choice([*some, Delete(key(sort), when)]) if when is None else choose.choice(some))
        if choose.random() < 0.3 or not more:
            more.append(Put(OTHER, {"n": choose.random()}))
        if choose.random() < 0.04 and version:
            return [
                Delete(operation.key) for operation in [session(1), *(session(1).__class__(key(s), {}) for s in there)]
            ]
        return more

    async def step(self) -> None:
        operations, before = await self.operations(), await self.rows(self.model)
        refused = None
        try:
            await self.model.transact("t", operations)
        except ConditionFailedError as error:
            refused = error.index
        store = self.random.choice(self.stores)
        if self.random.random() < 0.3:
            points = CrashPoints(self.random.randrange(8))
            dying = packed(points.store(self.memory))
            with suppress(Crash, ConditionFailedError):
                await dying.transact("t", operations)
            found = await self.rows(packed(self.memory))
            after = await self.rows(self.model)
            assert found in (before, after), (operations, before, found)
            self.model = MemoryStateStore()
            for sort, value in found.items():
                await self.model.transact("copy", [Put(OTHER if sort == "other" else key(sort), value)])
            return
        index = None
        try:
            await store.transact("t", operations)
        except ConditionFailedError as error:
            index = error.index
        assert index == refused, (operations, before)
        reader = self.random.choice(self.stores)
        assert await self.rows(reader) == await self.rows(self.model), operations
        sorts = [*self.random.sample(sorted(before), min(3, len(before))), "r#none"]
        keys = [key(sort) for sort in sorts]
        assert await reader.get(keys) == await self.model.get(keys)
        options: dict[str, Any] = {"start": "c#", "end": "m$", "limit": 3, "reverse": self.random.random() < 0.5}
        assert await reader.query("sessions", "s", **options) == await self.model.query("sessions", "s", **options)


@pytest.mark.parametrize("seed", range(int(os.environ.get("HELIX_EXAMPLES") or 20)))
async def test_it_is_a_store_whoever_dies(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "ROOM", 250)
    monkeypatch.setattr(packing, "CACHED", random.Random(seed).choice((1, 256)))
    play = Play(seed)
    for _ in range(60):
        await play.step()


async def test_many_writers_of_one_session_lose_nothing(
    memory: MemoryStateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several processes add rows by compare-and-set, and the session's version equals the number of rows."""
    monkeypatch.setattr(packing, "ROOM", 250)
    stores = [packed(memory) for _ in range(4)]
    await stores[0].transact("a", [session(1, ABSENT)])

    async def add(store: PackingStore) -> None:
        while True:
            (value,) = await store.get([SES])
            assert value is not None
            version = value["version"] + 1
            with suppress(ConditionFailedError):
                await store.transact("add", [session(version), Put(key(f"m#{version:08d}"), {"n": version}, new=True)])
                return

    await asyncio.gather(*(add(stores[n % 4]) for n in range(40)))
    rows = await packed(memory).query("sessions", "s", start="m#", end="m$")
    assert [row.value["n"] for row in rows] == list(range(2, 42))
