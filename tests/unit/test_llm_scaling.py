"""Scaling by tokens, queue and latency (docs/appendix/semantics.md#scaling-llm)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from helix.core.llm_metrics import LLMMetrics
from helix.core.llm_scaling import TokenAwareScalingPolicy
from helix.core.scaling import ScalingDecision, ScalingState

POLICY = TokenAwareScalingPolicy()
STEADY = LLMMetrics(tokens_per_second=1500, p95_latency_ms=1000, p99_latency_ms=2000)


def decide(current: int = 3, state: ScalingState | None = None, now: float = 0, **signals: float) -> ScalingDecision:
    metrics = STEADY.model_copy(update=signals)
    return POLICY.evaluate_scaling(metrics, current, state or ScalingState(), now=now)


def test_names_and_defaults_are_the_sources() -> None:
    assert POLICY.model_dump() == {
        "min_instances": 1,
        "max_instances": 10,
        "target_tokens_per_second": 1000,
        "tokens_per_second_buffer": 0.2,
        "max_queue_depth": 10,
        "queue_depth_threshold": 5,
        "target_p95_latency_ms": 2000,
        "target_p99_latency_ms": 5000,
        "scale_up_cooldown": 60,
        "scale_down_cooldown": 300,
        "scale_up_step": 1,
        "scale_down_step": 1,
        "oscillation_lock": 600,
    }


def test_a_minimum_above_the_maximum_is_refused() -> None:
    with pytest.raises(ValidationError, match="min_instances 3 is more than max_instances 2"):
        TokenAwareScalingPolicy(min_instances=3, max_instances=2)


@pytest.mark.parametrize(
    ("signals", "after"),
    [
        ({"tokens_per_second": 2401}, 4),  # 800 per instance: the target minus its buffer
        ({"tokens_per_second": 2400}, 3),
        ({"queue_depth": 5}, 4),
        ({"queue_depth": 4}, 3),
        ({"p95_latency_ms": 2001}, 4),
        ({"p99_latency_ms": 5001}, 4),
        ({"p95_latency_ms": 2000, "p99_latency_ms": 5000}, 3),
        ({"tokens_per_second": 1199}, 2),  # below half of 800 per instance
        ({"tokens_per_second": 1200}, 3),
        ({"tokens_per_second": 0, "p95_latency_ms": 2001}, 4),
    ],
)
def test_one_signal_scales_up_and_all_must_be_low_to_scale_down(signals: dict[str, Any], after: int) -> None:
    assert decide(**signals).after == after


def test_one_instance_has_the_same_target_as_each_of_many() -> None:
    assert [decide(1, tokens_per_second=rate).after for rate in (800, 801)] == [1, 2]


@pytest.mark.parametrize("depth", [1, 3, 4])
def test_nobody_who_waits_is_scaled_down_on(depth: int) -> None:
    """The sources scaled down although a queue of 3, below the threshold, was waiting."""
    decision = decide(tokens_per_second=0, queue_depth=depth)
    assert (decision.action, decision.blocked_by) == ("hold", None)


@pytest.mark.parametrize(("depth", "after"), [(9, 4), (10, 5), (50, 5)])
def test_a_queue_that_is_full_takes_two_steps(depth: int, after: int) -> None:
    """The sources did not use `max_queue_depth`."""
    assert decide(queue_depth=depth).after == after


def test_two_steps_still_end_at_the_maximum() -> None:
    assert decide(current=9, queue_depth=10).after == 10
    assert decide(current=10, queue_depth=10).action == "hold"


@pytest.mark.parametrize(
    "signals",
    [
        {"p95_latency_ms": 9000},
        {"p99_latency_ms": 9000},
        {"tokens_per_second": 9000},
        {"queue_depth": 20},
    ],
)
def test_nothing_scales_up_into_provider_throttling(signals: dict[str, Any]) -> None:
    decision = decide(throttles=1, **signals)
    assert (decision.action, decision.blocked_by) == ("hold", "throttling")
    assert decision.wanted is not None and decision.wanted > decision.before
    assert decision.reason.endswith("the provider throttled 1 calls")


def test_throttling_does_not_keep_from_scaling_down() -> None:
    assert decide(throttles=3, tokens_per_second=0).after == 2


@pytest.mark.parametrize(("depth", "throttles", "after"), [(0, 0, 0), (1, 0, 1), (50, 0, 1), (1, 2, 0)])
def test_at_nought_a_queue_wakes_one(depth: int, throttles: int, after: int) -> None:
    policy = TokenAwareScalingPolicy(min_instances=0)
    metrics = LLMMetrics(queue_depth=depth, throttles=throttles)
    just_now = ScalingState(up_at=0, down_at=0, direction="down", turned_at=0)
    assert policy.evaluate_scaling(metrics, 0, just_now, now=1).after == after


def test_the_last_instance_sleeps_only_when_nothing_runs() -> None:
    policy = TokenAwareScalingPolicy(min_instances=0)
    assert policy.evaluate_scaling(LLMMetrics(concurrent_llm_calls=1), 1, now=0).after == 1
    assert policy.evaluate_scaling(LLMMetrics(), 1, now=0).after == 0


@pytest.mark.parametrize(("running", "after"), [(0, 4), (2, 4), (3, 5), (5, 5)])
def test_what_runs_has_room_after_a_step_down(running: int, after: int) -> None:
    """Slow calls produce few tokens. By throughput alone, a limit that is fully used would be lowered."""
    assert decide(current=5, tokens_per_second=0, concurrent_llm_calls=running).after == after


@pytest.mark.parametrize(("running", "after"), [(0, 3), (2, 3), (3, 4)])
def test_latency_adds_nothing_while_instances_are_free(running: int, after: int) -> None:
    told: dict[str, Any] = {"max_concurrent_calls": 3, "concurrent_llm_calls": running}
    assert decide(p95_latency_ms=9000, **told).after == after


def test_cooldowns_are_per_direction() -> None:
    state = ScalingState(up_at=0, direction="up")
    assert decide(state=state, now=59, queue_depth=5).blocked_by == "cooldown"
    assert decide(state=state, now=60, queue_depth=5).after == 4
    state = ScalingState(down_at=0, direction="down")
    assert decide(state=state, now=1, queue_depth=5).after == 4
    assert decide(state=state, now=299, tokens_per_second=0).blocked_by == "cooldown"
    assert decide(state=state, now=300, tokens_per_second=0).after == 2


def test_the_oscillation_lock_holds_the_first_down_after_an_up_and_ends() -> None:
    went_up = ScalingState(up_at=300, down_at=200, direction="up", turned_at=300)
    assert decide(state=went_up, now=899, tokens_per_second=0).blocked_by == "oscillation"
    assert decide(state=went_up, now=900, tokens_per_second=0).after == 2
    assert decide(state=went_up, now=360, queue_depth=5).after == 4


def test_who_waits_does_not_wait_for_the_lock() -> None:
    went_down = ScalingState(up_at=0, down_at=600, direction="down", turned_at=600)
    assert decide(state=went_down, now=601, queue_depth=5).after == 4


def test_a_decision_names_its_signals() -> None:
    decision = decide(queue_depth=6)
    assert decision.reason == "6 runs wait, and the threshold is 5"
    assert decision.signals["queue_depth"] == 6
    assert decision.signals["tokens_per_second_per_instance"] == 500
    assert decision.because_of("queue-depth").trigger == "queue-depth"


def test_one_call_of_a_window_is_no_flood() -> None:
    """The sources counted one call as a rate over one second."""
    from helix.core.llm_metrics import CallSample, Tally, metrics_of

    tally = Tally()
    tally.count(CallSample(at=0, input_tokens=1000, output_tokens=500, latency_ms=900, cost=0.0045))
    metrics = metrics_of(tally, 300, 300)
    assert metrics.cost_per_hour == pytest.approx(0.054)
    assert POLICY.evaluate_scaling(metrics, 1, now=0).action == "hold"
