"""The SQLite store: one store, and two stores on one file as two processes would have."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.budget_shards import SHARDS, BudgetShardsContract
from tests.contracts.budgets import BudgetsContract
from tests.contracts.model_limits import ModelLimitsContract
from tests.contracts.slots import SlotsContract
from tests.support.stored_rows import rewrite

from helix import SQLiteStateStore
from helix.ports.state_store import Key, Put
from helix.services.row_budgets import RowBudgets
from helix.services.row_slots import RowSlots
from helix.services.segments import SegmentStreams
from helix.testing.contracts import StateStoreContract, StreamManagerContract


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStateStore]:
    made = SQLiteStateStore(tmp_path / "helix.db", synchronous="NORMAL")
    yield made
    await made.close()


@pytest.fixture
async def second(tmp_path: Path) -> AsyncIterator[SQLiteStateStore]:
    made = SQLiteStateStore(tmp_path / "helix.db", synchronous="NORMAL")
    yield made
    await made.close()


class TestStore(StateStoreContract):
    pass


class TestTwoStores(StateStoreContract):
    @pytest.fixture
    def other(self, second: SQLiteStateStore) -> SQLiteStateStore:
        return second


async def test_a_damaged_row_does_not_stop_the_purge(store: SQLiteStateStore) -> None:
    await store.transact("rows", [Put(Key("control", "p", sort), {"ttl": 1}) for sort in ("damaged", "expired")])
    assert rewrite(store.path, "control", "p", "damaged", '{"ttl":1') == 1
    assert await store.purge(100.0) == 1


async def test_who_looks_for_expired_rows_holds_up_no_writer(store: SQLiteStateStore) -> None:
    """The search takes a tenth of a second for 100,000 rows and must not block other processes that write."""
    await store.transact("row", [Put(Key("control", "p", "young"), {"ttl": 101})])
    with sqlite3.connect(store.path, isolation_level=None) as writer:
        writer.execute("BEGIN IMMEDIATE")  # another process writes now
        async with asyncio.timeout(5):
            assert await store.purge(100.0) == 0
        writer.execute("ROLLBACK")
    writer.close()


async def test_a_row_that_is_renewed_while_its_deletion_waits_stays(store: SQLiteStateStore) -> None:
    """The search finds the row expired. Before the deletion begins, another process writes the row again."""
    renew = [lambda: rewrite(store.path, "control", "p", "renewed", '{"ttl":101}')]

    class Late(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql == "BEGIN IMMEDIATE" and renew:
                assert renew.pop()() == 1
            return super().execute(sql, *values)

    await store.transact("rows", [Put(Key("control", "p", sort), {"ttl": 1}) for sort in ("expired", "renewed")])
    late = SQLiteStateStore(store.path)
    late._open = lambda timeout_s: sqlite3.connect(  # type: ignore[method-assign]
        store.path, timeout=timeout_s, isolation_level=None, check_same_thread=False, factory=Late
    )
    assert await late.purge(100.0) == 1
    await late.close()
    assert [row.key.sort for row in await store.query("control", "p")] == ["renewed"]


class TestStreamsOfTwoProcesses(StreamManagerContract):
    @pytest.fixture
    def streams(self, store: SQLiteStateStore) -> SegmentStreams:
        return SegmentStreams(store)

    @pytest.fixture
    def other(self, second: SQLiteStateStore) -> SegmentStreams:
        return SegmentStreams(second)


class TestBudgetsOfTwoProcesses(BudgetsContract):
    @pytest.fixture
    def budgets(self, store: SQLiteStateStore) -> RowBudgets:
        return RowBudgets(store)

    @pytest.fixture
    def other(self, second: SQLiteStateStore) -> RowBudgets:
        return RowBudgets(second)


class TestBudgetShardsOfTwoProcesses(BudgetShardsContract):
    @pytest.fixture
    def budgets(self, store: SQLiteStateStore) -> RowBudgets:
        return RowBudgets(store, shards=SHARDS)

    @pytest.fixture
    def other(self, second: SQLiteStateStore) -> RowBudgets:
        return RowBudgets(second, shards=SHARDS)


class TestSlotsOfTwoProcesses(SlotsContract):
    @pytest.fixture
    def slots(self, store: SQLiteStateStore) -> RowSlots:
        return RowSlots(store)

    @pytest.fixture
    def other(self, second: SQLiteStateStore) -> RowSlots:
        return RowSlots(second)


class TestModelLimits(ModelLimitsContract):
    pass
