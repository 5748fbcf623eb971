"""Scaling by cost (docs/appendix/semantics.md#scaling-llm): the most used budget of hour, day and month decides."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from helix.core.cost_status import Spending
from helix.core.llm_metrics import LLMMetrics
from helix.core.llm_scaling import CostAwareScalingPolicy, TokenAwareScalingPolicy
from helix.core.scaling import ScalingDecision, ScalingState

BASE = TokenAwareScalingPolicy(min_instances=2)
POLICY = CostAwareScalingPolicy(
    min_instances=2, max_cost_per_hour=10, max_cost_per_day=100, max_cost_per_month=1000, base_scaling_policy=BASE
)
JUST_NOW = ScalingState(up_at=99, down_at=99, direction="up", turned_at=99)


def decide(
    current: int = 5,
    rate: float = 0,
    *,
    state: ScalingState | None = None,
    queue: int = 0,
    throttles: int = 0,
    policy: CostAwareScalingPolicy = POLICY,
    **spent: float,
) -> ScalingDecision:
    metrics = LLMMetrics(tokens_per_second=600.0 * current, cost_per_hour=rate, queue_depth=queue, throttles=throttles)
    return policy.evaluate_scaling(metrics, current, state or ScalingState(), now=100, spent=Spending(**spent))


def test_names_and_defaults_are_the_sources() -> None:
    assert CostAwareScalingPolicy().model_dump() == {
        "min_instances": 1,
        "max_instances": 10,
        "max_cost_per_hour": None,
        "max_cost_per_day": None,
        "max_cost_per_month": None,
        "cost_warning_threshold": 0.8,
        "cost_critical_threshold": 0.95,
        "base_scaling_policy": None,
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_instances": 3, "max_instances": 2},
        {"cost_warning_threshold": 0.96},
        {"max_cost_per_day": 0},
        {"max_cost_per_week": 1},
    ],
)
def test_a_policy_that_contradicts_itself_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        CostAwareScalingPolicy(**wrong)


def test_within_the_budget_the_base_policy_decides() -> None:
    assert decide(queue=5).after == 6
    assert decide().action == "hold"
    assert decide(policy=CostAwareScalingPolicy(max_cost_per_hour=10), queue=50).action == "hold"


@pytest.mark.parametrize(
    "spent",
    [
        {"rate": 9.6},
        {"hour": 9.6},
        {"hour": 0, "day": 96},  # the sources never checked days and months
        {"hour": 0, "month": 960},
    ],
)
def test_critical_takes_one_away_whatever_the_cooldown(spent: dict[str, Any]) -> None:
    decision = decide(state=JUST_NOW, **spent)
    assert (decision.after, decision.rule) == (4, "budget critical")
    assert decide(current=2, **spent).after == 2


@pytest.mark.parametrize(
    "spent",
    [
        {"rate": 8.1},
        {"hour": 8.1},
        {"hour": 0, "day": 81},
        {"hour": 0, "day": 0, "month": 810},
        {"rate": 8.4, "hour": 0},  # $8.17 of $10 are expected
    ],
)
def test_a_warning_lets_nothing_up_and_does_let_down(spent: dict[str, Any]) -> None:
    up = decide(queue=5, **spent)
    assert (up.action, up.blocked_by, up.wanted) == ("hold", "budget", 6)
    quiet = LLMMetrics(cost_per_hour=spent.pop("rate", 0.0))
    assert POLICY.evaluate_scaling(quiet, 5, now=100, spent=Spending(**spent)).after == 4


@pytest.mark.parametrize(
    "spent",
    [
        {"hour": 10},
        {"hour": 0, "day": 100},
        {"hour": 0, "month": 1200},
        {"rate": 10},  # the cost of the hour was not counted, so the rate is used
    ],
)
def test_spent_money_stops_the_intake(spent: dict[str, Any]) -> None:
    decision = decide(state=JUST_NOW, **spent)
    assert (decision.after, decision.rule) == (0, "budget stop")
    stopped = JUST_NOW.applied(decision, 100)
    assert stopped.stopped
    again = decide(current=0, state=stopped, queue=20, **spent)
    assert (again.after, again.blocked_by) == (0, "budget")


def test_a_rate_alone_stops_nothing_that_was_counted() -> None:
    """The rate predicts the hour's cost. It prevents more instances but does not remove any."""
    decision = decide(rate=40, hour=2, queue=5)
    assert (decision.after, decision.blocked_by, decision.wanted) == (5, "budget", 6)
    assert decision.reason.endswith("the hour's budget, at the present cost: 409% used")
    late = LLMMetrics(tokens_per_second=3000, queue_depth=5, cost_per_hour=40)
    assert POLICY.evaluate_scaling(late, 5, now=3300, spent=Spending(hour=2)).after == 6, "five minutes are left"


def test_other_budgets_count_by_their_share() -> None:
    spent = Spending(hour=0, shares={"everybody's week": 1.0})
    stop = POLICY.evaluate_scaling(LLMMetrics(), 5, now=0, spent=spent)
    assert (stop.after, stop.reason) == (0, "everybody's week: 100% used: no more runs are admitted")


def test_a_new_window_reopens_at_the_minimum_and_then_load_decides() -> None:
    stopped = ScalingState(down_at=99, direction="down", turned_at=99, stopped=True)
    reopened = decide(current=0, state=stopped, hour=0, queue=20)
    assert (reopened.after, reopened.rule) == (2, "budget reset")
    state = stopped.applied(reopened, 100)
    assert not state.stopped
    metrics = LLMMetrics(queue_depth=20)
    assert POLICY.evaluate_scaling(metrics, 2, state, now=160, spent=Spending(hour=0)).after == 4


def test_it_reopens_only_below_critical_and_not_into_throttling() -> None:
    stopped = ScalingState(stopped=True)
    assert decide(current=0, state=stopped, hour=9.6, queue=1).blocked_by == "budget"
    assert decide(current=0, state=stopped, hour=9.4, queue=1).after == 2
    assert decide(current=0, state=stopped, hour=0, queue=1, throttles=1).blocked_by == "throttling"


def test_what_sleeps_reopens_with_one() -> None:
    base = TokenAwareScalingPolicy(min_instances=0)
    policy = CostAwareScalingPolicy(min_instances=0, max_cost_per_hour=10, base_scaling_policy=base)
    assert decide(current=0, state=ScalingState(stopped=True), hour=0, policy=policy).after == 1
    assert decide(current=0, hour=9.6, queue=1, policy=policy).after == 1  # only spent money closes an agent


@pytest.mark.parametrize(
    ("rate", "queue", "after"),
    [
        (7.5, 10, 6),  # at $1.50 each, $10 an hour affords 6 of the 7 wanted
        (7.9, 5, 6),
        (1.0, 10, 7),
    ],
)
def test_a_step_up_is_cut_to_what_the_hour_affords(rate: float, queue: int, after: int) -> None:
    assert decide(rate=rate, queue=queue, hour=0).after == after


def test_a_step_that_affords_nothing_holds() -> None:
    """The sources could afford fewer instances than were running, which made a step up a step down."""
    decision = decide(current=2, rate=7.9, hour=0, queue=5)
    assert (decision.after, decision.blocked_by) == (2, "budget")
    assert decision.reason.endswith("$10.00 for 58 minutes affords 2 at $3.95 an hour each")


def test_only_an_hours_budget_cuts_a_step() -> None:
    policy = CostAwareScalingPolicy(max_cost_per_day=100, base_scaling_policy=BASE)
    assert decide(rate=3, queue=20, policy=policy).after == 7


def test_at_nought_there_is_no_cost_per_instance() -> None:
    """The sources' projection divided by the current count."""
    base = TokenAwareScalingPolicy(min_instances=0)
    policy = CostAwareScalingPolicy(min_instances=0, max_cost_per_hour=10, base_scaling_policy=base)
    assert decide(current=0, rate=5, hour=0, queue=1, policy=policy).after == 1


def test_the_status_tells_every_budget() -> None:
    status = POLICY.get_budget_status(LLMMetrics(cost_per_hour=4), Spending(hour=8.5, day=20, month=960), now=7200)
    assert status.level == "critical"
    assert (status.spent, status.expected) == (0.96, 1.25)
    assert status.budgets["hourly"].model_dump() == {
        "limit": 10,
        "current": 8.5,
        "utilization": 0.85,
        "remaining": 1.5,
    }
    assert sorted(status.budgets) == ["daily", "hourly", "monthly"]
    assert status.warnings == [
        "the hour's budget, at the present cost: 125% used",
        "the month's budget: 96% used",
        "the hour's budget: 85% used",
    ]
    assert POLICY.get_budget_status(LLMMetrics()).level == "ok"
