"""The guide's table of limits matches what `bench/scale_model.py` computes from the latest measured counts."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCH))
    yield importlib.import_module("scale_model")


def test_the_guide_has_the_table(model: ModuleType) -> None:
    guide = model.GUIDE.read_text()
    assert model.in_guide(guide, model.table()) == guide, "run python bench/scale_model.py"
    assert model.table() in model.RESULTS.read_text()


def test_a_limit_of_ours_is_above_those_of_the_account(model: ModuleType) -> None:
    calls, short = (BENCH / "results" / name for name in ("aws_calls.md", "aws_short.md"))
    limits = model.limits(model.measured(calls.read_text(), short.read_text()))
    assert min(limit.runs for limit in limits if limit.ours) >= 10_000
    assert min(limit.runs for limit in limits if not limit.ours) >= 100


def test_the_first_limits_are_those_that_the_guide_names(model: ModuleType) -> None:
    calls, short = (BENCH / "results" / name for name in ("aws_calls.md", "aws_short.md"))
    limits = model.limits(model.measured(calls.read_text(), short.read_text()))
    first = sorted(limits, key=lambda limit: limit.runs)[:5]
    assert [limit.what for limit in first[:2]] == ["Kinesis, one shard", "DynamoDB, a new table"]
    assert [model._runs(limit.runs) for limit in first] == ["230", "510", "1,000", "1,000", "2,300"]
    (messages,) = [limit for limit in limits if limit.what == "API Gateway, messages of clients"]
    assert messages.runs == 6_800


def test_what_is_measured_is_read_from_the_results(model: ModuleType) -> None:
    """If a step takes one more transition, fewer runs fit into the limit."""
    calls, short = ((BENCH / "results" / name).read_text() for name in ("aws_calls.md", "aws_short.md"))
    counts = model.measured(calls, short)
    assert counts.transitions == 3 and counts.writes > 0 and counts.messages > 1
    row = next(line for line in calls.splitlines() if line.startswith("| 1000 |"))
    more = model.measured(calls.replace(row, row.replace("| 3 | 2 |", "| 4 | 2 |", 1)), short)
    assert more.transitions == 4
    quotas = [{limit.what: limit.runs for limit in model.limits(one)} for one in (counts, more)]
    name = "Step Functions, transitions"
    assert quotas[1][name] == pytest.approx(quotas[0][name] * 3 / 4, rel=0.01)
