"""The rules of health: thresholds, results of checks, the worst status of all, and an agent's metrics."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from helix.core.health import (
    CheckType,
    HealthCheck,
    HealthResult,
    HealthStatus,
    LLMHealthRule,
    combine_results,
    judge,
    overall,
    verdict_of,
    worst_status,
)
from helix.core.llm_metrics import LLMMetrics

H, U, D, X = HealthStatus.HEALTHY, HealthStatus.UNHEALTHY, HealthStatus.DEGRADED, HealthStatus.UNKNOWN
OK, BAD = (True, ""), (False, "down")


def play(check: HealthCheck, *verdicts: tuple[bool, str]) -> list[HealthStatus]:
    """Return the status after each result of the check."""
    result: HealthResult | None = None
    told = []
    for n, verdict in enumerate(verdicts):
        result = judge(check, result, verdict, at=float(n), took_ms=1.5)
        told.append(result.status)
    return told


def test_the_defaults_are_the_sources() -> None:
    check = HealthCheck(name="database-check")
    assert (check.check_type, check.check_fn) == (CheckType.READINESS, None)
    assert (check.interval, check.timeout, check.initial_delay) == (30, 10, 0)
    assert (check.failure_threshold, check.success_threshold) == (3, 1)
    assert [status.value for status in HealthStatus] == ["healthy", "unhealthy", "degraded", "unknown"]
    assert [kind.value for kind in CheckType] == ["readiness", "liveness", "custom"]


@pytest.mark.parametrize(
    "wrong",
    [{"interval": 4.9}, {"timeout": 0}, {"failure_threshold": 0}, {"success_threshold": 0}, {"initial_delay": -1}],
)
def test_limits_are_checked_where_a_check_is_defined(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        HealthCheck(name="it", **wrong)


def test_failures_below_the_threshold_degrade_and_at_it_make_unhealthy() -> None:
    assert play(HealthCheck(name="it"), OK, BAD, BAD, BAD, BAD) == [H, D, D, U, U]
    assert play(HealthCheck(name="it"), BAD, OK, BAD, BAD, OK) == [D, H, D, D, H], "the failures must be consecutive"
    assert play(HealthCheck(name="it", failure_threshold=1), BAD) == [U]


def test_recovery_needs_its_successes_in_a_row_and_until_then_nothing_changes() -> None:
    check = HealthCheck(name="it", failure_threshold=2, success_threshold=2)
    assert play(check, BAD, BAD, OK, OK) == [D, U, U, H]
    assert play(check, OK, OK) == [X, H], "one success is not yet health"
    assert play(check, OK, OK, BAD, OK, OK) == [X, H, D, D, H]


def test_a_failure_during_recovery_does_not_make_it_look_better() -> None:
    check = HealthCheck(name="it", failure_threshold=2, success_threshold=3)
    assert play(check, BAD, BAD, OK, BAD) == [D, U, U, U]


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (True, (True, "")),
        (False, (False, "")),
        ((True, "fine"), (True, "fine")),
        ((False, "down"), (False, "down")),  # a non-empty pair would be true
        ((False, "down", {"since": 9}), (False, "down")),
        ((False,), (False, "")),
        ((False, None), (False, "")),
        (None, (False, "")),
        (1, (True, "")),
    ],
)
def test_a_check_answers_a_bool_or_a_bool_with_a_message(answer: Any, verdict: tuple[bool, str]) -> None:
    assert verdict_of(answer) == verdict


def test_a_result_counts_and_says_when() -> None:
    check = HealthCheck(name="it", check_type=CheckType.LIVENESS)
    first = judge(check, None, BAD, at=10.0, took_ms=2.0)
    assert first.model_dump(mode="json") == {
        "status": "degraded",
        "message": "down",
        "check": "it",
        "check_type": "liveness",
        "checked_at": 10.0,
        "response_time_ms": 2.0,
        "consecutive_failures": 1,
        "consecutive_successes": 0,
    }
    second = judge(check, first, OK, at=20.0, took_ms=1.0)
    assert (second.consecutive_failures, second.consecutive_successes, second.message) == (0, 1, "")


@pytest.mark.parametrize(
    ("several", "together"),
    [([H, D, U, X], U), ([H, D, X], D), ([H, X], H), ([X], X), ([], X)],
)
def test_the_whole_is_the_worst_of_its_parts(several: list[HealthStatus], together: HealthStatus) -> None:
    assert worst_status(several) is together


def test_a_target_with_several_checks_is_its_worst_and_names_it() -> None:
    fine = HealthResult(status=H, check="disk", checked_at=5.0, response_time_ms=3.0, consecutive_successes=4)
    poor = HealthResult(status=D, check="queue", message="long", checked_at=3.0, consecutive_failures=1)
    both = combine_results([fine, poor])
    assert (both.status, both.message, both.checked_at) == (D, "queue: long", 3.0)
    assert (both.response_time_ms, both.consecutive_failures, both.consecutive_successes) == (3.0, 1, 0)
    assert combine_results([]).status is X


def test_overall_health_counts_targets_by_status() -> None:
    found = overall({"a": HealthResult(status=H), "b": HealthResult(status=H), "c": HealthResult(status=D)})
    assert found.status is D
    assert found.counts == {H: 2, U: 0, D: 1, X: 0}


BUSY = {"requests": 10, "tokens_per_second": 5.0}


@pytest.mark.parametrize(
    ("metrics", "status"),
    [
        ({}, H),
        ({"requests": 3, "tokens_per_second": 0.0}, U),
        (BUSY | {"queue_depth": 51}, U),
        (BUSY | {"queue_depth": 50}, D),
        (BUSY | {"queue_depth": 21}, D),
        (BUSY | {"queue_depth": 20}, H),
        (BUSY | {"p95_latency_ms": 30_001}, U),
        (BUSY | {"p95_latency_ms": 30_000}, D),
        (BUSY | {"p95_latency_ms": 10_000}, H),
        (BUSY | {"avg_wait_time_ms": 10_001}, U),
        (BUSY | {"avg_wait_time_ms": 10_000}, D),
        (BUSY | {"avg_wait_time_ms": 5_000}, H),
        (BUSY | {"cost_per_hour": 10.01}, D),
        (BUSY | {"cost_per_hour": 10.0}, H),
        (BUSY | {"cost_per_hour": 10_000.0}, D),  # a high cost is limited by the budget and is not a matter of health
        (BUSY | {"concurrent_llm_calls": 96, "max_concurrent_calls": 100}, D),
        (BUSY | {"concurrent_llm_calls": 95, "max_concurrent_calls": 100}, H),
    ],
)
def test_an_agents_figures_have_the_limits_of_the_sources(metrics: dict[str, Any], status: HealthStatus) -> None:
    found, reasons = LLMHealthRule().judge(LLMMetrics(**metrics), cost_budget=10.0)
    assert found is status
    assert bool(reasons) is (status is not H)


def test_the_limits_can_be_set_and_no_budget_is_no_limit() -> None:
    metrics = LLMMetrics(**BUSY, queue_depth=3, cost_per_hour=99.0)
    assert LLMHealthRule(unhealthy_queue=2).judge(metrics) == (U, ["3 wait, more than 2"])
    assert LLMHealthRule().judge(metrics) == (H, [])
