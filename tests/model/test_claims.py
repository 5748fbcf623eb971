"""The model of claims has no violation within its bounds, and removing any rule causes one."""

from __future__ import annotations

import pytest
from tests.model.claims import RULES, Model, Violation


@pytest.mark.parametrize("apart", [0, 1, -1])
def test_claims_hold_in_every_order_of_events(apart: int) -> None:
    assert Model((0, apart), faults=1, steps=1).explore() > 20_000


@pytest.mark.slow
@pytest.mark.parametrize("apart", [0, 1, -1])
def test_claims_hold_over_two_steps(apart: int) -> None:
    assert Model((0, apart), faults=1, steps=2).explore() > 50_000


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_is_taken_away_is_missed(rule: str) -> None:
    with pytest.raises(Violation):
        Model((0, 1), faults=1, steps=1, off=rule).explore()
