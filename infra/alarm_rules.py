"""Which alarms there are: of the fleet, for the stage and again for each agent with resources; and of the plumbing.

Law: an alarm stands for something to be done, by `govern` or by a person. A fleet that rests is silent, which is no fault;
what runs by the minute is never silent, and its silence is one. The fleet's alarms look at what Helix measures; cost is the
sum of a sliding hour, which a single call cannot trip and which no projection exaggerates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from helix.core.resources import DEFAULT_PROFILE
from helix.infra.metrics import HOUR, MINUTE, aws_metric, helix_metric
from helix.infra.names import Names
from helix.infra.schedules import UNDELIVERED
from helix.infra.streaming import Streaming
from helix.infra.thresholds import Thresholds

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


def fleet_rules(names: Names, thresholds: Thresholds, agent: str = "") -> Iterator[Rule]:
    """Of one agent, or of the whole stage."""
    t, who = thresholds, f"agent {agent}" if agent else "all agents"

    def of(measure: str, statistic: str, period: Duration = MINUTE) -> cloudwatch.Metric:
        return helix_metric(names, measure, statistic, agent=agent or None, period=period)

    def rule(name: str, known: str, metric: cloudwatch.Metric, threshold: float, **more: Any) -> Rule:
        return Rule(name, f"{known} ({who})", metric, threshold, agent=agent, **more)

    hour = of("CostUsd", "Sum", HOUR)
    yield rule("cost-warning", "The last hour's model calls cost more than planned", hour, t.alarm_cost_warning)
    yield rule("cost-critical", "The last hour's model calls cost too much", hour, t.alarm_cost_critical)
    tokens, seconds = of("TotalTokens", "Sum"), MINUTE.to_seconds()
    known = "More tokens a second than one instance is meant for"
    yield rule("tokens-per-second", known, tokens, seconds * t.alarm_tokens_per_second)
    waiting = of("QueueDepth", "Maximum")
    yield rule("queue-depth", "Runs wait for a slot", waiting, t.alarm_queue_depth, reached=True)
    for percentile, limit in (("p95", t.alarm_latency_p95_ms), ("p99", t.alarm_latency_p99_ms)):
        latency = of("ModelLatency", percentile)
        yield rule(f"latency-{percentile}", "Model calls are slow", latency, limit, minutes=SLOW_MINUTES)
    refused, failed = of("ModelThrottles", "Sum"), of("ModelErrors", "Sum")
    yield rule("throttles", "The provider refuses calls for their rate", refused, t.alarm_throttles, reached=True)
    yield rule("model-errors", "Model calls fail for good", failed, t.alarm_model_errors, reached=True)
    yield rule("health", "A health check says no", of("UnhealthyChecks", "Maximum"), 0)


def execution_rules(scope: Construct, names: Names, profile: str = DEFAULT_PROFILE) -> Iterator[Rule]:
    """Of one state machine. A run that fails ends its execution in order; what fails here is the machinery."""
    arn, machine = names.machine_arn(Stack.of(scope), profile), names.machine(profile)
    known = {
        "executions-failed": ("ExecutionsFailed", "Executions failed: nothing could be done for their runs in time"),
        "executions-timed-out": ("ExecutionsTimedOut", "Executions have lasted longer than any run may"),
    }
    for name, (metric, description) in known.items():
        counted = aws_metric("States", metric, "Sum", StateMachineArn=arn)
        agent = "" if profile == DEFAULT_PROFILE else profile
        yield Rule(name, f"{description} (state machine {machine})", counted, agent=agent)


def plumbing_rules(names: Names, streaming: Streaming) -> Iterator[Rule]:
    """What does not recover by itself."""

    def of_function(verb: str, metric: str, statistic: str, period: Duration = MINUTE) -> cloudwatch.Metric:
        return aws_metric("Lambda", metric, statistic, period=period, FunctionName=names.function(verb))

    yield Rule(
        "chunks-behind",
        "Clients see chunks late: project_stream does not keep up, or fails again and again.",
        of_function("project_stream", "IteratorAge", "Maximum"),
        threshold=BEHIND_MS,
        minutes=5,
    )
    assert streaming.source is not None, "the stream feeds nothing yet"
    given_up = "OnFailureDestinationDeliveredEventCount"
    yield Rule(
        "chunks-given-up",
        "Records were put aside under aws/lambda/ in the bucket: their streams have a gap.",
        aws_metric("Lambda", given_up, "Sum", EventSourceMappingUUID=streaming.source.ref),
    )
    waiting = "ApproximateNumberOfMessagesVisible"
    yield Rule(
        "events-undelivered",
        "Events about ended executions are in the dead-letter queue; sweep does their work, later.",
        aws_metric("SQS", waiting, "Maximum", QueueName=names.of(UNDELIVERED)),
    )
    yield Rule(
        "sweep-fails",
        "Nothing finds what crashes leave: queued runs wait, dead ones stay open.",
        of_function("sweep", "Errors", "Sum"),
        minutes=3,
    )
    yield Rule(
        "govern-fails",
        "Limits stay as they are, whatever the fleet does; gauges and budget notices are missing.",
        of_function("govern", "Errors", "Sum"),
        minutes=3,
    )
    # A throttled or dropped invocation does not count as one, and emits no error.
    for verb, loss in (("sweep", "Nothing finds what crashes leave"), ("govern", "Limits stay as they are")):
        yield Rule(
            f"{verb}-silent",
            f"{verb} did not run: its schedule is off, or Lambda throttles or drops it. {loss}.",
            of_function(verb, "Invocations", "Sum", SILENT),
            threshold=1,
            minutes=2,
            silent=True,
        )
    # What Lambda gives up on without running it emits no error either. A minute later the schedule invokes it again.
    for verb in ("sweep", "govern"):
        yield Rule(
            f"{verb}-dropped",
            f"Lambda dropped invocations of {verb}, most often for want of concurrency.",
            of_function(verb, "AsyncEventsDropped", "Sum"),
            minutes=3,
        )
    yield Rule(
        "messages-throttled",
        "Lambda refuses messages of clients for want of concurrency.",
        of_function("ws_message", "Throttles", "Sum"),
        minutes=3,
    )
    # IteratorAge comes from invocations: a function that Lambda cannot invoke has no age.
    yield Rule(
        "chunks-refused",
        "Lambda cannot give project_stream its chunks: it is throttled, or the right to invoke it is gone.",
        aws_metric("Lambda", "FailedInvokeEventCount", "Sum", EventSourceMappingUUID=streaming.source.ref),
        minutes=5,
    )
