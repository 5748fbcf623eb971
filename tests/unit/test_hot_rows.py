"""No item takes more than half of what DynamoDB allows, at 1,000 ends of runs a second (`bench/hot_rows.py`)."""

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
