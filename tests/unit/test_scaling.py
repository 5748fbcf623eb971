"""The CPU and memory policy, cooldowns and the oscillation lock. Times are in seconds.

The rules: docs/appendix/semantics.md#scaling.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pydantic import ValidationError

from helix.core.scaling import Pace, ScalingDecision, ScalingMetrics, ScalingPolicy, ScalingState

POLICY = ScalingPolicy()
BUSY = ScalingMetrics(cpu_percent=90, memory_percent=50)
IDLE = ScalingMetrics(cpu_percent=5, memory_percent=5)


def play(policy: ScalingPolicy, looks: Sequence[tuple[float, ScalingMetrics]], instances: int = 3) -> list[str]:
    """Apply the decisions at these times. Return `3>4` for a change, what blocked it, or `-`."""
    state, told = ScalingState(), []
    for now, metrics in looks:
        decision = policy.evaluate_scaling(metrics, instances, state, now=now)
        state = state.applied(decision, now)
        moved = f"{decision.before}>{decision.after}"
        told.append(decision.blocked_by or "-" if decision.action == "hold" else moved)
        instances = decision.after
    return told


def test_names_and_defaults_are_the_sources() -> None:
    assert POLICY.model_dump() == {
        "min_instances": 1,
        "max_instances": 10,
        "target_cpu_percent": 70,
        "target_memory_percent": 80,
        "scale_up_cooldown": 60,
        "scale_down_cooldown": 300,
        "scale_up_step": 1,
        "scale_down_step": 1,
        "oscillation_lock": 600,
    }
    assert ScalingMetrics().model_dump() == {
        "cpu_percent": 0,
        "memory_percent": 0,
        "request_rate": 0,
        "timestamp": 0,
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_instances": 3, "max_instances": 2},
        {"scale_up_cooldown": 9},
        {"scale_down_cooldown": 29},
        {"scale_up_step": 0},
        {"max_instances": 0},
        {"target_cpu_percent": 101},
        {"targets": 1},
        {"scale_up_cooldown": float("inf")},
    ],
)
def test_a_policy_that_contradicts_itself_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        ScalingPolicy(**wrong)


@pytest.mark.parametrize(
    ("cpu", "memory", "after"),
    [
        (70.1, 10, 4),  # above one target is enough to scale up
        (10, 80.1, 4),
        (70, 80, 3),  # at the target is not above it
        (34.9, 39.9, 2),  # both are below half of their targets
        (34.9, 40, 3),
        (35, 39.9, 3),
    ],
)
def test_up_by_one_signal_and_down_only_by_all(cpu: float, memory: float, after: int) -> None:
    metrics = ScalingMetrics(cpu_percent=cpu, memory_percent=memory)
    decision = POLICY.evaluate_scaling(metrics, 3, now=0)
    assert decision.after == after
    assert decision.signals == {"cpu_percent": cpu, "memory_percent": memory, "request_rate": 0}


def test_low_memory_alone_does_not_scale_down_a_busy_processor() -> None:
    """The sources scaled down at 65 % CPU if memory was below half of its target."""
    decision = POLICY.evaluate_scaling(ScalingMetrics(cpu_percent=65, memory_percent=1), 3, now=0)
    assert (decision.action, decision.reason) == ("hold", "within the targets")


def test_steps_are_cut_at_the_bounds() -> None:
    policy = ScalingPolicy(min_instances=2, max_instances=5, scale_up_step=4, scale_down_step=4)
    assert policy.evaluate_scaling(BUSY, 3, now=0).after == 5
    assert policy.evaluate_scaling(IDLE, 3, now=0).after == 2
    at_most = policy.evaluate_scaling(BUSY, 5, now=0)
    assert (at_most.action, at_most.blocked_by) == ("hold", None)
    assert "the bounds keep it at 5" in at_most.reason


def test_what_is_outside_of_the_bounds_comes_back_at_once() -> None:
    just_now = ScalingState(up_at=0, down_at=0, direction="up", turned_at=0)
    policy = ScalingPolicy(min_instances=2, max_instances=5)
    assert policy.evaluate_scaling(IDLE, 8, just_now, now=1).after == 5
    assert policy.evaluate_scaling(BUSY, 0, just_now, now=1).after == 2


def test_each_direction_has_its_own_cooldown() -> None:
    told = play(POLICY, [(0, BUSY), (59, BUSY), (60, BUSY), (359, IDLE), (360, IDLE), (659, IDLE), (660, IDLE)])
    assert told == ["3>4", "cooldown", "4>5", "cooldown", "5>4", "cooldown", "4>3"]


def test_a_down_does_not_keep_a_first_up_waiting() -> None:
    assert play(POLICY, [(0, IDLE), (1, BUSY)]) == ["3>2", "2>3"]


def test_a_cooldown_counts_from_what_was_applied() -> None:
    """The sources' cooldown counted from the last recorded action, but no action was recorded, so two looks in a row both
    scaled. Here only `applied` changes the state, and a decision that is not applied starts no cooldown."""
    nothing = ScalingState()
    first, again = (POLICY.evaluate_scaling(BUSY, 3, nothing, now=at) for at in (0, 1))
    assert first.after == again.after == 4
    after = nothing.applied(first, 0)
    assert POLICY.evaluate_scaling(BUSY, 4, after, now=1).blocked_by == "cooldown"


def test_the_oscillation_lock_ends() -> None:
    """The sources suppressed scaling forever after two opposite actions."""
    looks = [(0, BUSY), (300, IDLE), (360, BUSY), (899, BUSY), (900, BUSY)]
    assert play(POLICY, looks) == ["3>4", "4>3", "oscillation", "oscillation", "3>4"]


def test_the_lock_holds_turns_and_not_the_way_on() -> None:
    looks = [(0, BUSY), (300, IDLE), (600, IDLE), (601, BUSY), (900, BUSY)]
    assert play(POLICY, looks) == ["3>4", "4>3", "3>2", "oscillation", "2>3"]


def test_a_blocked_decision_says_what_it_wanted_and_why_not() -> None:
    state = ScalingState(up_at=100, direction="up")
    decision = POLICY.evaluate_scaling(BUSY, 3, state, now=120)
    assert (decision.before, decision.after, decision.wanted) == (3, 3, 4)
    assert decision.reason == "CPU 90 % is above its target, 70 %; cooldown for another 40 s"


def test_the_last_instance_stays_while_requests_come() -> None:
    policy = ScalingPolicy(min_instances=0)
    served = IDLE.model_copy(update={"request_rate": 0.1})
    assert policy.evaluate_scaling(served, 1, now=0).after == 1
    assert policy.evaluate_scaling(IDLE, 1, now=0).after == 0
    assert policy.evaluate_scaling(served, 0, now=0).after == 1
    assert policy.evaluate_scaling(IDLE, 0, now=0).after == 0


def test_values_that_are_no_numbers_hold() -> None:
    unknown = ScalingMetrics(cpu_percent=float("nan"), memory_percent=1)
    assert POLICY.evaluate_scaling(unknown, 3, now=0).action == "hold"


def test_a_hold_leaves_the_state_alone_and_an_action_turns_it() -> None:
    state = ScalingState(up_at=10, direction="up")
    assert state.applied(ScalingDecision(before=2, after=2, reason=""), 20) is state
    down = state.applied(ScalingDecision(before=2, after=1, reason=""), 20)
    assert (down.up_at, down.down_at, down.direction, down.turned_at) == (10, 20, "down", 20)
    assert down.applied(ScalingDecision(before=1, after=0, reason=""), 30).turned_at == 20


def test_all_policies_share_their_pace() -> None:
    assert issubclass(ScalingPolicy, Pace)
