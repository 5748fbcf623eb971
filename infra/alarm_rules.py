"""Which alarms there are: of the stage, and of each agent with resources.

Law: an alarm stands for something to be done, by `govern` or by a person, and each metric that it looks at is paid for,
used or not. So what a function of the stage can see itself has no alarm of its own: it records a warning or a failure, and
one alarm stands for all of each (docs/adr/0057-a-stage-at-rest-costs-cents.md). A fleet that rests is silent, which is no
fault; what runs by the minute is never silent, and its silence is one. An agent's cost is the sum of a sliding hour, which
a single call cannot trip and which no projection exaggerates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from helix.core.thresholds import Thresholds
from helix.infra.metrics import HOUR, MINUTE, aws_metric, helix_metric
from helix.infra.names import Names
from helix.infra.schedules import UNDELIVERED
from helix.infra.streaming import Streaming
from helix.services.warnings import FAILURES, WARNINGS

BEHIND_MS = 60_000
SLOW_MINUTES = 3
SILENT = Duration.minutes(5)
"""Longer than CloudWatch takes to show what was invoked."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Sounds when `metric` is more than `threshold`, or, if `reached`, has reached it, `minutes` times in a row. `silent`:
    sounds when it is less, or when there is no data. `agent`: whose it is."""

    name: str
    description: str
    metric: cloudwatch.IMetric
    threshold: float = 0
    minutes: int = 1
    reached: bool = False
    silent: bool = False
    agent: str = ""

    @property
    def alarm(self) -> str:
        """Its alarm's name, within the stage."""
        return f"{self.name}-{self.agent}" if self.agent else self.name


def agent_rules(names: Names, thresholds: Thresholds, agent: str, instances: int) -> Iterator[Rule]:
    """Of an agent with resources, which `govern` scales up to `instances`: these start it."""
    t = thresholds

    def of(measure: str, statistic: str, period: Duration = MINUTE) -> cloudwatch.Metric:
        return helix_metric(names, measure, statistic, agent=agent, period=period)

    def rule(name: str, known: str, metric: cloudwatch.Metric, threshold: float, **more: Any) -> Rule:
        return Rule(name, f"{known} (agent {agent})", metric, threshold, agent=agent, **more)

    hour = of("CostUsd", "Sum", HOUR)
    yield rule("cost-warning", "The last hour's model calls cost more than planned", hour, t.alarm_cost_warning)
    yield rule("cost-critical", "The last hour's model calls cost too much", hour, t.alarm_cost_critical)
    tokens, seconds = of("TotalTokens", "Sum"), MINUTE.to_seconds()
    known = "More tokens a second than all its instances are meant for"
    yield rule("tokens-per-second", known, tokens, seconds * t.alarm_tokens_per_second * instances)
    waiting = of("QueueDepth", "Maximum")
    yield rule("queue-depth", "Runs wait for a slot", waiting, t.alarm_queue_depth, reached=True)
    for percentile, limit in (("p95", t.alarm_latency_p95_ms), ("p99", t.alarm_latency_p99_ms)):
        latency = of("ModelLatency", percentile)
        yield rule(f"latency-{percentile}", "Model calls are slow", latency, limit, minutes=SLOW_MINUTES)
    refused, failed = of("ModelThrottles", "Sum"), of("ModelErrors", "Sum")
    yield rule("throttles", "The provider refuses calls for their rate", refused, t.alarm_throttles, reached=True)
    yield rule("model-errors", "Model calls fail for good", failed, t.alarm_model_errors, reached=True)
    yield rule("health", "A health check says no", of("UnhealthyChecks", "Maximum"), 0)


def of_function(names: Names, verb: str, metric: str, statistic: str, period: Duration = MINUTE) -> cloudwatch.Metric:
    return aws_metric("Lambda", metric, statistic, period=period, FunctionName=names.function(verb))


def chunk_rules(names: Names, streaming: Streaming) -> Iterator[Rule]:
    """A projector that is behind. `helix deploy` looks at these two before a stage leaves `streaming=both`."""
    yield Rule(
        "chunks-behind",
        "Clients see chunks late: project_stream does not keep up, or fails again and again.",
        of_function(names, "project_stream", "IteratorAge", "Maximum"),
        threshold=BEHIND_MS,
        minutes=5,
    )
    # IteratorAge comes from invocations: a function that Lambda cannot invoke has no age. Lambda gives up on records after
    # 23 hours of either, and not before.
    assert streaming.source is not None, "the stream feeds nothing yet"
    yield Rule(
        "chunks-refused",
        "project_stream fails on its chunks, is throttled, or Lambda has no right to invoke it.",
        aws_metric("Lambda", "FailedInvokeEventCount", "Sum", EventSourceMappingUUID=streaming.source.ref),
        minutes=5,
    )


def stage_rules(names: Names, streaming: Streaming) -> Iterator[Rule]:
    """What does not recover by itself, and what govern, fail_run and sweep report. A person receives these; they start
    `govern`, and it has nothing to do for them."""
    yield from chunk_rules(names, streaming)
    waiting = "ApproximateNumberOfMessagesVisible"
    yield Rule(
        "events-undelivered",
        "Events about ended executions are in the dead-letter queue; sweep does their work, later.",
        aws_metric("SQS", waiting, "Maximum", QueueName=names.of(UNDELIVERED)),
    )
    yield Rule(
        "failures",
        "Executions or sweeps fail: lines that begin with 'failure:' in the logs of fail_run, sweep and govern name them.",
        helix_metric(names, FAILURES, "Sum"),
    )
    yield Rule(
        "warnings",
        "A threshold is passed, or a health check says no: lines that begin with 'warning:' in the log of govern name it.",
        helix_metric(names, WARNINGS, "Sum"),
    )
    # govern looks after sweep, and CloudWatch after govern.
    yield Rule(
        "govern-fails",
        "Limits stay as they are, whatever the fleet does; warnings, gauges and budget notices are missing.",
        of_function(names, "govern", "Errors", "Sum"),
        minutes=3,
    )
    # What is throttled, dropped, or not scheduled does not count as an invocation, and emits no error.
    yield Rule(
        "govern-silent",
        "govern did not run: its schedule is off, or Lambda throttles or drops it. Nothing warns of anything else.",
        of_function(names, "govern", "Invocations", "Sum", SILENT),
        threshold=1,
        minutes=2,
        silent=True,
    )
    yield Rule(
        "messages-throttled",
        "Lambda refuses messages of clients for want of concurrency.",
        of_function(names, "ws_message", "Throttles", "Sum"),
        minutes=3,
    )
