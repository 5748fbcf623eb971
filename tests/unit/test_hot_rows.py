"""No item exceeds half of DynamoDB's limit at 1,000 ends of runs per second (`bench/hot_rows.py`)."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCH))
    yield importlib.import_module("hot_rows")


def test_the_counters_of_usage_are_not_hot(bench: ModuleType) -> None:
    """A new hour begins meanwhile."""
    assert bench.usage(1_000, 1_600).sound


def test_one_row_of_usage_would_be_hot(bench: ModuleType) -> None:
    measured = bench.usage(1_000, 200, shards=1)
    assert measured.hottest > bench.LIMIT and measured.store.conflicts > 200


@pytest.mark.slow
@pytest.mark.parametrize("account", [False, True])
def test_the_counters_of_slots_are_not_hot(bench: ModuleType, account: bool) -> None:
    """No run was admitted before, so the counters do not have shards yet."""
    measured = bench.admissions(3_000, 600, most=6_000, account=account)
    assert measured.sound and measured.shards == "192"


def test_one_row_of_slots_would_be_hot(bench: ModuleType) -> None:
    measured = bench.admissions(3_000, 150, most=6_000, account=False, each=10_000)
    assert measured.shards == "1" and measured.hottest > bench.LIMIT


def test_a_low_limit_has_one_row(bench: ModuleType) -> None:
    measured = bench.admissions(10, 30, most=10, account=True)
    assert measured.shards == "1" and not any("#shards#" in key.partition for key in measured.store.writes)


def test_one_budget_of_all_runs_is_not_hot(bench: ModuleType) -> None:
    """The measurement starts at the first draw, when the window is not divided yet."""
    measured = bench.budgets(1_000, 1_200, calls=100_000)
    assert measured.sound and measured.shards == "48"


def test_one_row_of_a_budget_would_be_hot(bench: ModuleType) -> None:
    measured = bench.budgets(1_000, 300, calls=100_000, shards=1)
    assert measured.hottest > bench.LIMIT and measured.store.conflicts > 200


def test_no_run_fails_for_contention_where_a_budget_runs_out(bench: ModuleType) -> None:
    """Draws of such a run wait or are refused."""
    measured = bench.budgets(3_000, 400, calls=1_300)
    assert not measured.failed and measured.store.conflicts > 1_000
