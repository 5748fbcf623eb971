"""Exact DynamoDB costs of short runs: deployed functions with an inline tool on moto, each call in a new process.

A run lasts from the caller's `execute` to its `result`. The bench prints the same counts beside those of other frameworks
(`bench/beside_peers.py`). The first step of a session looks for the agent's request head, and the first
step of a store writes it. A change that makes a run cheaper or more expensive changes the numbers here.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from helix.core.registry import default_registry

BENCH = Path(__file__).parents[2] / "bench"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.syspath_prepend(str(BENCH / "peers"))
    made = importlib.import_module("helix_aws")
    for agent in (made.bench.PLAIN, made.bench.INLINE):
        default_registry.replace(agent)
    yield made
    default_registry.clear()


def run(counting: ModuleType, steps: int) -> dict[str, float]:
    """Play a session's first turn."""
    with counting.cloud("aws_calls") as made:
        counting.bench.MODEL.steps = steps
        return whole(counting.counts(counting.turn(made)))


def whole(found: dict[str, float]) -> dict[str, float]:
    return {name: found[name] for name in ("units", "reads", "before")}


def test_a_run_without_tools(counting: ModuleType) -> None:
    assert run(counting, 0) == {"units": 22, "reads": 19, "before": 8}


def test_a_run_with_one_tool(counting: ModuleType) -> None:
    assert run(counting, 1) == {"units": 31, "reads": 21, "before": 8}


def test_a_cold_turn_reads_the_same_whatever_came_before(counting: ModuleType) -> None:
    found = []
    for steps in (3, 30):
        with counting.cloud("aws_calls") as made:
            counting.bench.MODEL.steps = steps
            counting.turn(made)
            counts = counting.counts(counting.turn(made, steps + 2))
            found.append((counts["reads"], counts["before"]))
    assert found == 2 * [(17, 6)]
