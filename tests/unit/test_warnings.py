"""The warnings of a stage and their conditions."""

from __future__ import annotations

import pytest

from helix.core.llm_metrics import LLMMetrics
from helix.core.measures import Measures
from helix.core.thresholds import Thresholds
from helix.fleet.warnings import LATE_S, find_exceeded, warn_of_failing_checks, warn_of_late_sweep
from helix.services.activity import Beats
from helix.services.warnings import report_failures, warn

CALM = LLMMetrics(
    tokens_per_second=400, p95_latency_ms=10_000, p99_latency_ms=30_000, throttles=2, errors=2, requests=9
)


def names(*calls: LLMMetrics, waiting: float = 0, dollars: float = 0) -> set[str]:
    by_agent = {f"agent-{number}": each for number, each in enumerate(calls)}
    return set(find_exceeded(Thresholds(), by_agent, {None: {"QueueDepth": waiting}}, dollars))


def test_what_is_at_a_threshold_or_below_is_fine() -> None:
    assert names() == set()
    assert names(CALM, CALM, waiting=4, dollars=8) == set()


@pytest.mark.parametrize(
    ("found", "calls", "waiting", "dollars"),
    [
        ({"cost-warning"}, [], 0, 8.01),
        ({"cost-warning", "cost-critical"}, [], 0, 9.51),
        ({"tokens-per-second"}, [CALM, CALM.model_copy(update={"tokens_per_second": 801})], 0, 0),
        ({"queue-depth"}, [], 5, 0),
        ({"latency-p95"}, [CALM, CALM.model_copy(update={"p95_latency_ms": 10_001})], 0, 0),
        ({"latency-p99"}, [CALM.model_copy(update={"p99_latency_ms": 30_001})], 0, 0),
        ({"throttles"}, [CALM, CALM.model_copy(update={"throttles": 3})], 0, 0),
        ({"model-errors"}, [CALM, CALM.model_copy(update={"errors": 3})], 0, 0),
    ],
)
def test_what_is_above_a_threshold_is_a_warning(
    found: set[str], calls: list[LLMMetrics], waiting: float, dollars: float
) -> None:
    assert names(*calls, waiting=waiting, dollars=dollars) == found


@pytest.mark.parametrize(
    ("gauges", "instances"),
    [
        ({"ConcurrencyLimit": 5, "RunsActive": 2}, 5),
        ({"RunsActive": 3}, 3),
        ({"ConcurrencyLimit": 0}, 1),
        ({}, 1),
    ],
)
def test_the_threshold_of_one_instance_is_compared_with_those_of_its_agent(
    gauges: dict[str, float], instances: int
) -> None:
    """Each agent is compared with the threshold multiplied by its number of instances. Agents are not added up."""
    most = CALM.model_copy(update={"tokens_per_second": 800.0 * instances})
    counts = {None: {"QueueDepth": 0.0}, "desk": gauges, "poet": gauges}
    assert find_exceeded(Thresholds(), {"desk": most, "poet": most}, counts, 0) == {}
    more = most.model_copy(update={"tokens_per_second": 800.0 * instances + 1})
    found = find_exceeded(Thresholds(), {"desk": most, "poet": more}, counts, 0)
    assert found == {"tokens-per-second": f"poet: {800 * instances + 1} of {800 * instances}"}


def test_a_sweep_that_is_late_or_never_was_is_a_failure() -> None:
    assert warn_of_late_sweep(Beats(), 9000) == {}, "no run was started yet, and the first minute starts a sweep"
    assert warn_of_late_sweep(Beats(worked_at=1000, since=1000), 1000 + LATE_S) == {}
    assert warn_of_late_sweep(Beats(worked_at=1000, since=1000), 1001 + LATE_S) == {"sweep": "none has run"}
    assert warn_of_late_sweep(Beats(1000, found_at=1000), 1000 + LATE_S) == {}
    assert warn_of_late_sweep(Beats(1000, found_at=1000), 1001 + LATE_S) == {"sweep": "the last one was 301 s ago"}
    assert warn_of_late_sweep(Beats(90_000), 90_001 + LATE_S) == {}, "it is at rest"


def test_checks_that_say_no_are_one_warning() -> None:
    assert warn_of_failing_checks(0) == {} and set(warn_of_failing_checks(3)) == {"health"}


def test_nothing_is_recorded_where_there_is_nothing_to_warn_of() -> None:
    class Recorded(list[Measures]):
        def record(self, measures: Measures) -> None:
            self.append(measures)

    recorded = Recorded()
    warn(recorded, {})
    report_failures(recorded, {})
    assert recorded == []
    warn(recorded, {"queue-depth": "7", "health": "1"})
    report_failures(recorded, {"sweep": "late"})
    assert [(m.values, m.agent, m.details) for m in recorded] == [
        ({"Warnings": 2}, None, {"warnings": "queue-depth, health"}),
        ({"Failures": 1}, None, {"failures": "sweep"}),
    ]
