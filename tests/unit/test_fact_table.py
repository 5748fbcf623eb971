"""The table of `helix.engine.facts` lists the observers of each fact, and the observers handle exactly those."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from helix.engine import facts
from helix.engine.observers import chunks, hooks, telemetry

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (facts.__doc__ or "").splitlines()
    if line.startswith("| `")
]
FACTS = {name for row in ROWS for name in re.findall(r"`(\w+)`", row[0])}
OBSERVERS: dict[str, tuple[int, tuple[Callable[..., Any], ...]]] = {
    "stream": (1, (chunks.put_chunks, chunks._put_call_chunks)),
    "hooks": (2, (hooks.call_hooks, hooks._call_about_call)),
    "metrics": (3, (telemetry.record_metrics,)),
    "spans": (4, (telemetry.record_spans,)),
}


def taken(observer: Callable[..., Any]) -> set[str]:
    """Return the classes in the cases of the observer's `match`."""
    patterns = (node for node in ast.walk(ast.parse(inspect.getsource(observer))) if isinstance(node, ast.MatchClass))
    return {pattern.cls.attr for pattern in patterns if isinstance(pattern.cls, ast.Attribute)}


def test_the_table_has_each_fact_once() -> None:
    named = [name for row in ROWS for name in re.findall(r"`(\w+)`", row[0])]
    assert len(named) == len(set(named)) and all(len(row) == 5 for row in ROWS)
    assert {kind.__name__ for kind in facts.Fact.__args__} == FACTS


@pytest.mark.parametrize("name", OBSERVERS)
def test_an_observer_takes_what_the_table_says(name: str) -> None:
    column, observers = OBSERVERS[name]
    promised = {fact for row in ROWS if row[column] for fact in re.findall(r"`(\w+)`", row[0])}
    assert promised == set().union(*map(taken, observers))
