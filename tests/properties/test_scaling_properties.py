"""Limits that the policies never exceed, under any course of load."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from helix.core.cost_status import Spending
from helix.core.llm_metrics import LLMMetrics
from helix.core.llm_scaling import CostAwareScalingPolicy, TokenAwareScalingPolicy
from helix.core.scaling import Pace, ScalingDecision, ScalingMetrics, ScalingPolicy, ScalingState

PAUSES = st.integers(4, 1600).map(lambda quarters: quarters / 4)
"""Times in seconds. Quarters add up exactly, so a pause is never a fraction less than its cooldown."""
FLOOR, TOP = 2, 8
POLICY = TokenAwareScalingPolicy(min_instances=FLOOR, max_instances=TOP)
CPU = ScalingPolicy(min_instances=FLOOR, max_instances=TOP)
COST = CostAwareScalingPolicy(min_instances=FLOOR, max_instances=TOP, max_cost_per_hour=10, base_scaling_policy=POLICY)

cpu_metrics = st.builds(
    ScalingMetrics, cpu_percent=st.sampled_from([0, 50, 95]), memory_percent=st.sampled_from([0, 90])
)
llm_metrics = st.builds(
    LLMMetrics,
    tokens_per_second=st.sampled_from([0, 2000, 9000]),
    queue_depth=st.sampled_from([0, 0, 0, 1, 5, 30]),
    p95_latency_ms=st.sampled_from([0, 0, 9000]),
    throttles=st.sampled_from([0, 0, 0, 3]),
    concurrent_llm_calls=st.integers(0, 8),
    cost_per_hour=st.sampled_from([0, 5, 12]),
)
spending = st.builds(Spending, hour=st.sampled_from([0, 5, 8.5, 9.7, 10]))


@dataclass(frozen=True)
class Applied:
    at: float
    decision: ScalingDecision


def alternates_within(moves: list[Applied], seconds: float) -> bool:
    """Return whether three consecutive moves go up, down and up, or down, up and down, within this time."""
    turns = [(a, b) for a, b in pairwise(moves) if a.decision.action != b.decision.action]
    return any(second[1].at - first[0].at < seconds for first, second in pairwise(turns))


def keep_cooldowns(moves: list[Applied], pace: Pace) -> None:
    """Check that each move respects its cooldown: a move up since the last move up, and a move down since any move."""
    ups = [move.at for move in moves if move.decision.action == "up"]
    assert all(after - before >= pace.scale_up_cooldown for before, after in pairwise(ups))
    downs = [b.at - a.at for a, b in pairwise(moves) if b.decision.action == "down"]
    assert all(pause >= pace.scale_down_cooldown for pause in downs)


@given(st.lists(st.tuples(PAUSES, cpu_metrics), max_size=60))
def test_the_processor_policy_keeps_its_pace(course: list[tuple[float, ScalingMetrics]]) -> None:
    state, instances, now, moves = ScalingState(), 3, 0.0, list[Applied]()
    for pause, metrics in course:
        now += pause
        decision = CPU.evaluate_scaling(metrics, instances, state, now=now)
        assert decision == CPU.evaluate_scaling(metrics, instances, state, now=now), "pure"
        assert FLOOR <= decision.after <= TOP and abs(decision.after - instances) <= 1
        state, instances = state.applied(decision, now), decision.after
        if decision.action != "hold":
            moves.append(Applied(now, decision))
    keep_cooldowns(moves, CPU)
    assert not alternates_within(moves, CPU.oscillation_lock)
    turns = [b.at for a, b in pairwise(moves) if a.decision.action != b.decision.action]
    assert all(after - before >= CPU.oscillation_lock for before, after in pairwise(turns))


@given(st.lists(st.tuples(PAUSES, llm_metrics), max_size=60))
def test_the_token_policy_keeps_its_pace(course: list[tuple[float, LLMMetrics]]) -> None:
    state, instances, now, moves = ScalingState(), 3, 0.0, list[Applied]()
    for pause, metrics in course:
        now += pause
        decision = POLICY.evaluate_scaling(metrics, instances, state, now=now)
        assert FLOOR <= decision.after <= TOP and abs(decision.after - instances) <= 2
        if decision.action == "up":
            assert metrics.throttles == 0
        if decision.action == "down":
            assert metrics.queue_depth == 0 and metrics.p95_latency_ms == 0
        if decision.blocked_by is not None:
            assert decision.action == "hold" and decision.wanted != instances
        state, instances = state.applied(decision, now), decision.after
        if decision.action != "hold":
            moves.append(Applied(now, decision))
    assert not alternates_within(moves, POLICY.oscillation_lock)
    keep_cooldowns(moves, POLICY)
    turns_down = [b.at - a.at for a, b in pairwise(moves) if (a.decision.action, b.decision.action) == ("up", "down")]
    assert all(pause >= POLICY.oscillation_lock for pause in turns_down)


@given(st.lists(st.tuples(PAUSES, llm_metrics, spending), max_size=60))
def test_the_cost_policy_puts_money_first(course: list[tuple[float, LLMMetrics, Spending]]) -> None:
    state, instances, now = ScalingState(), 3, 0.0
    for pause, metrics, spent in course:
        now += pause
        decision = COST.evaluate_scaling(metrics, instances, state, now=now, spent=spent)
        assert spent.hour is not None
        if spent.hour >= 10:
            assert decision.after == 0
        elif state.stopped:
            assert decision.after == (0 if spent.hour >= 9.5 or metrics.throttles else FLOOR)
        else:
            assert FLOOR <= decision.after <= TOP, "only spent money closes an agent"
        if decision.action == "up":
            assert metrics.throttles == 0
            assert decision.rule == "budget reset" or spent.hour < 8
        if 9.5 <= spent.hour < 10 and instances > 0:
            assert decision.after == max(instances - 1, FLOOR)
        state, instances = state.applied(decision, now), decision.after
        assert state.stopped == (instances == 0)
