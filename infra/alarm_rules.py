"""The alarms: the rules of the stage and of each agent with resources, and the alarms created from them.

Law: an alarm calls for action by `govern` or by a person, and each metric that it watches costs money even if nothing
happens. Conditions that a function of the stage can detect itself therefore do not have their own alarm. The function
records a warning or a failure instead; one alarm covers all warnings and another all failures
(docs/adr/0057-a-stage-at-rest-costs-cents.md).

Missing data from an idle fleet is not a fault, but missing data from a function that runs every minute is. An agent's cost
is summed over a sliding hour instead of being extrapolated, so a single call cannot set off the alarm. Periods are as short
as the resolution of CloudWatch's metrics allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from constructs import Construct

from helix.core.thresholds import Thresholds
from helix.infra.metrics import HOUR, MINUTE, aws_metric, helix_metric
from helix.infra.names import Names
from helix.infra.schedules import UNDELIVERED
from helix.infra.streaming import Streaming
from helix.infra.topics import Topics
from helix.services.warnings import FAILURES, WARNINGS

BEHIND_MS = 60_000
SLOW_MINUTES = 3
SILENT = Duration.minutes(5)
"""The period of the rules for missing data. It is longer than CloudWatch takes to report an invocation."""

MORE = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
REACHED = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
LESS = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD
MISSING = {False: cloudwatch.TreatMissingData.NOT_BREACHING, True: cloudwatch.TreatMissingData.BREACHING}


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of one alarm. The alarm goes off when the condition holds for `minutes` consecutive periods."""

    name: str
    """The name of the rule. It is unique among the rules of one agent, or of the stage."""
    description: str
    """The alarm's description, which explains the problem to the person who receives it."""
    metric: cloudwatch.IMetric
    """The metric that the alarm watches. Most have a period of one minute."""
    threshold: float = 0
    """The threshold in the unit of `metric`. The alarm goes off above it, unless `reached` or `silent` is set."""
    minutes: int = 1
    """The number of consecutive periods of `metric` for which the condition must hold."""
    reached: bool = False
    """Whether the alarm also goes off at exactly `threshold`."""
    silent: bool = False
    """Whether the alarm goes off below `threshold` instead, and without data."""
    agent: str = ""
    """The agent to which the rule applies. Empty: the whole stage."""

    @property
    def alarm(self) -> str:
        """Return the name of the alarm within the stage."""
        return f"{self.name}-{self.agent}" if self.agent else self.name


def agent_rules(names: Names, thresholds: Thresholds, agent: str, instances: int) -> Iterator[Rule]:
    """Yield the rules of an agent with resources, which `govern` scales up to `instances`. Their alarms start
    `govern`."""
    t = thresholds

    def of(measure: str, statistic: str, period: Duration = MINUTE) -> cloudwatch.Metric:
        return helix_metric(names, measure, statistic, agent=agent, period=period)

    def rule(name: str, known: str, metric: cloudwatch.Metric, threshold: float, **more: Any) -> Rule:
        return Rule(name, f"{known} (agent {agent})", metric, threshold, agent=agent, **more)

    hour = of("CostUsd", "Sum", HOUR)
    yield rule("cost-warning", "The last hour's model calls cost more than planned", hour, t.alarm_cost_warning)
    yield rule("cost-critical", "The last hour's model calls cost too much", hour, t.alarm_cost_critical)
    tokens, seconds = of("TotalTokens", "Sum"), MINUTE.to_seconds()
    known = "More tokens a second than the threshold of all its instances"
    yield rule("tokens-per-second", known, tokens, seconds * t.alarm_tokens_per_second * instances)
    waiting = of("QueueDepth", "Maximum")
    yield rule("queue-depth", "Runs wait for a slot", waiting, t.alarm_queue_depth, reached=True)
    for percentile, limit in (("p95", t.alarm_latency_p95_ms), ("p99", t.alarm_latency_p99_ms)):
        latency = of("ModelLatency", percentile)
        yield rule(f"latency-{percentile}", "Model calls are slow", latency, limit, minutes=SLOW_MINUTES)
    refused, failed = of("ModelThrottles", "Sum"), of("ModelErrors", "Sum")
    yield rule("throttles", "The provider throttles model calls", refused, t.alarm_throttles, reached=True)
    yield rule("model-errors", "Model calls fail for good", failed, t.alarm_model_errors, reached=True)
    yield rule("health", "A health check fails", of("UnhealthyChecks", "Maximum"), 0)


def of_function(names: Names, verb: str, metric: str, statistic: str, period: Duration = MINUTE) -> cloudwatch.Metric:
    return aws_metric("Lambda", metric, statistic, period=period, FunctionName=names.function(verb))


def chunk_rules(names: Names, streaming: Streaming) -> Iterator[Rule]:
    """Yield the rules for a projector that has fallen behind. `helix deploy` checks both alarms before a stage leaves
    `streaming=both`."""
    yield Rule(
        "chunks-behind",
        "Clients see chunks late: project_stream does not keep up, or fails repeatedly.",
        of_function(names, "project_stream", "IteratorAge", "Maximum"),
        threshold=BEHIND_MS,
        minutes=5,
    )
    # Only invocations emit IteratorAge, so it is missing if Lambda cannot invoke the function. In both cases Lambda gives
    # up on records only after 23 hours.
    assert streaming.source is not None, "the stream feeds nothing yet"
    yield Rule(
        "chunks-refused",
        "project_stream fails on its chunks, is throttled, or Lambda has no right to invoke it.",
        aws_metric("Lambda", "FailedInvokeEventCount", "Sum", EventSourceMappingUUID=streaming.source.ref),
        minutes=5,
    )


def stage_rules(names: Names, streaming: Streaming) -> Iterator[Rule]:
    """Yield the rules for faults that do not recover by themselves, and for the reports of govern, fail_run and sweep. A
    person receives these alarms. They also start `govern`, which ignores them."""
    yield from chunk_rules(names, streaming)
    waiting = "ApproximateNumberOfMessagesVisible"
    yield Rule(
        "events-undelivered",
        "Events about ended executions are in the dead-letter queue. sweep does their work later.",
        aws_metric("SQS", waiting, "Maximum", QueueName=names.of(UNDELIVERED)),
    )
    yield Rule(
        "failures",
        "Executions or sweeps fail: lines that begin with 'failure:' in the logs of fail_run, sweep and govern name them.",
        helix_metric(names, FAILURES, "Sum"),
    )
    yield Rule(
        "warnings",
        "A threshold is exceeded, or a health check fails: lines that begin with 'warning:' in the log of govern name it.",
        helix_metric(names, WARNINGS, "Sum"),
    )
    # govern watches sweep, and CloudWatch watches govern.
    yield Rule(
        "govern-fails",
        "Limits are not adjusted to the load, and warnings, gauges and budget notices are missing.",
        of_function(names, "govern", "Errors", "Sum"),
        minutes=3,
    )
    # A call that is throttled, dropped or not scheduled is not an invocation and emits no error.
    yield Rule(
        "govern-silent",
        "govern did not run: its schedule is off, or Lambda throttles or drops it. There are no other warnings meanwhile.",
        of_function(names, "govern", "Invocations", "Sum", SILENT),
        threshold=1,
        minutes=2,
        silent=True,
    )
    yield Rule(
        "messages-throttled",
        "Lambda throttles client messages: the account's concurrency limit is reached.",
        of_function(names, "ws_message", "Throttles", "Sum"),
        minutes=3,
    )


class Alarms(Construct):
    """The alarms for a set of rules. Each notifies the alarm topic when it goes off and when it returns to OK."""

    def __init__(
        self, scope: Construct, construct_id: str, *, names: Names, topics: Topics, rules: Iterable[Rule]
    ) -> None:
        super().__init__(scope, construct_id)
        report = actions.SnsAction(topics.alarms)
        for rule in rules:
            alarm = cloudwatch.Alarm(
                self,
                "".join(word.capitalize() for word in rule.name.split("-")),
                alarm_name=names.of(rule.alarm),
                alarm_description=rule.description,
                metric=rule.metric,
                threshold=rule.threshold,
                comparison_operator=LESS if rule.silent else REACHED if rule.reached else MORE,
                evaluation_periods=rule.minutes,
                datapoints_to_alarm=rule.minutes,
                treat_missing_data=MISSING[rule.silent],
            )
            alarm.add_alarm_action(report)
            alarm.add_ok_action(report)
