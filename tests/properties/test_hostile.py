"""A sample of the hostile values. `tests/properties/hostile.py` sends any number of them."""

from __future__ import annotations

import pytest
from tests.properties.hostile import EDGES, play


@pytest.mark.parametrize(("seed", "every"), [(1_000_000, 1), (2_000_000, 10)])
async def test_whatever_comes_in_the_session_runs_stops_and_is_deleted(seed: int, every: int) -> None:
    outcomes = await play(200, seed, every=every)
    assert {name.partition(":")[0] for name in outcomes} == {edge.__name__ for edge in EDGES}
    assert {name.partition(": ")[2] for name in outcomes} >= {"taken", "invalid_input"}
