"""Random runs that people steer while workers die. No function has time for the guards of its tool's result, so the next
one asks them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.properties.people import play

from helix.core.entries import CallRow
from helix.engine.calls import tool
from helix.engine.calls.outcome import unjudged_row
from helix.engine.context import RunContext


@pytest.mark.timeout(0)
def test_people_and_deaths_when_results_wait_for_their_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []

    def counted(row: CallRow, *given: Any) -> CallRow:
        waited.append(row.call_id)
        return unjudged_row(row, *given)

    def has_time(run: RunContext, *_: Any) -> bool:
        return math.isinf(run.delivery.deadline)

    monkeypatch.setattr(tool, "unjudged_row", counted)
    monkeypatch.setattr(tool, "has_time", has_time)
    for seed in range(3003, 3007):
        play(seed)
    assert waited
