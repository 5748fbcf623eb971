"""The stage's two dashboards: one for agents and their cost, and one for the resources that they use.

Law: every metric on them is recorded by Helix, or documented by AWS for the resource. Each measure of `helix.core.measures`
is on a dashboard, for the whole stage or for each agent. A dashboard has at most 50 metric lines, regardless of the number
of agents, because search expressions find the agents' metrics.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import CfnOutput, Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from helix.infra.alarm_rules import Rule
from helix.infra.endpoints import Endpoints
from helix.infra.names import Names
from helix.infra.resource_widgets import resource_rows
from helix.infra.sockets import Sockets
from helix.infra.streaming import Streaming
from helix.infra.widgets import HEIGHT, Lines, heading

SHOWN = Duration.hours(3)
MAX_ALARMS = 100
"""The maximum number of alarms in one widget:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html."""


class Dashboards(Construct):
    """The two dashboards of a stage. `rules`: the rules of all alarms, the stage's own first."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        names: Names,
        rules: Sequence[Rule],
        streaming: Streaming,
        sockets: Sockets,
        endpoints: Endpoints,
    ) -> None:
        super().__init__(scope, construct_id)
        self._dashboard("Agents", "Runs, tokens, cost, latency, limits", names, agent_rows(Lines(names)))
        alarms = [
            cloudwatch.Alarm.from_alarm_name(self, rule.alarm, names.of(rule.alarm)) for rule in rules[:MAX_ALARMS]
        ]
        rows = resource_rows(names=names, streaming=streaming, sockets=sockets, endpoints=endpoints)
        if alarms:
            rows.insert(0, [cloudwatch.AlarmStatusWidget(title="Alarms", alarms=alarms, width=24, height=HEIGHT)])
        self._dashboard("Plumbing", "Functions, machines, streams, tables", names, rows)

    def _dashboard(self, name: str, shows: str, names: Names, rows: list[list[cloudwatch.IWidget]]) -> None:
        made = cloudwatch.Dashboard(
            self, name, dashboard_name=names.of(name.lower()), default_interval=SHOWN, widgets=rows
        )
        output = CfnOutput(self, f"{name}Name", value=made.dashboard_name, description=shows)
        output.override_logical_id(f"{name}Dashboard")


def agent_rows(lines: Lines) -> list[list[cloudwatch.IWidget]]:
    total, by_agent = lines.total, lines.by_agent
    return [
        [heading("Runs")],
        [
            total(
                "Runs",
                *((f"Runs{what}", "Sum") for what in ("Started", "Completed", "Failed", "Stopped")),
            ),
            by_agent("Runs at work", "RunsActive", "Maximum"),
            total("How long runs take", ("RunDuration", "p50"), ("RunDuration", "p95")),
        ],
        [by_agent("Failing health checks", "UnhealthyChecks", "Maximum")],
        [heading("Queues and limits")],
        [
            by_agent("Runs that wait", "QueueDepth", "Maximum"),
            by_agent("How long they wait, p95", "QueueWait", "p95"),
            by_agent("Limits", "ConcurrencyLimit", "Maximum"),
        ],
        [total("Limits changed", ("ScalingDecisions", "Sum"))],
        [heading("Tokens and money")],
        [
            total("Tokens", ("InputTokens", "Sum"), ("OutputTokens", "Sum"), ("CachedTokens", "Sum")),
            by_agent("Tokens by agent", "TotalTokens", "Sum"),
            by_agent("Cost by agent", "CostUsd", "Sum"),
        ],
        [total("Prompt caches lost", ("PromptCacheLosses", "Sum"))],
        [
            by_agent("Budgets used", "BudgetUtilization", "Maximum"),
            by_agent("Calls refused by budgets", "BudgetRefusals", "Sum"),
            by_agent("Saved by the response cache", "CacheSavedUsd", "Sum"),
        ],
        [heading("Models")],
        [
            total("Latency of model calls", *(("ModelLatency", p) for p in ("p50", "p95", "p99"))),
            by_agent("Latency by agent, p95", "ModelLatency", "p95"),
            total("Time to the first token", *(("TimeToFirstToken", p) for p in ("p50", "p95"))),
        ],
        [
            by_agent("Model calls", "ModelCalls", "Sum"),
            by_agent("Calls that failed for good", "ModelErrors", "Sum"),
            by_agent("Calls throttled by the provider", "ModelThrottles", "Sum"),
        ],
        [
            total("Response cache", ("CacheHits", "Sum"), ("CacheMisses", "Sum")),
            total("Tools", ("ToolCalls", "Sum"), ("ToolErrors", "Sum")),
            total("Latency of tools", ("ToolLatency", "p50"), ("ToolLatency", "p95")),
        ],
    ]
