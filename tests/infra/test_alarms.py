"""Alarms, topics and dashboards: their metrics exist, their notifications have receivers, and only the allowed services
publish."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from tests.infra.aws_metrics import PERCENTILES, STATISTICS, documented
from tests.infra.conftest import DEPLOYED, Synth
from tests.infra.observed import alarms, dashboards, of_alarms, of_dashboards, of_everything
from tests.infra.templates import Assembly, Template, text

from helix.core.measures import AGENT, NAMESPACE, STAGE, UNITS

pytestmark = pytest.mark.timeout(400)  # the first test waits for the synthesis

FLEET: dict[str, tuple[Any, ...]] = {
    "cost-warning": ("CostUsd", "Sum", 3600, "GreaterThanThreshold", 8.0, 1),
    "cost-critical": ("CostUsd", "Sum", 3600, "GreaterThanThreshold", 20.0, 1),
    "tokens-per-second": ("TotalTokens", "Sum", 60, "GreaterThanThreshold", {"heavy": 240_000, "quick": 144_000}, 1),
    "queue-depth": ("QueueDepth", "Maximum", 60, "GreaterThanOrEqualToThreshold", 7, 1),
    "latency-p95": ("ModelLatency", "p95", 60, "GreaterThanThreshold", 10_000, 3),
    "latency-p99": ("ModelLatency", "p99", 60, "GreaterThanThreshold", 30_000, 3),
    "throttles": ("ModelThrottles", "Sum", 60, "GreaterThanOrEqualToThreshold", 5, 1),
    "model-errors": ("ModelErrors", "Sum", 60, "GreaterThanOrEqualToThreshold", 5, 1),
    "health": ("UnhealthyChecks", "Maximum", 60, "GreaterThanThreshold", 0, 1),
}
STAGE_ALARMS = {
    "failures": "Failures",
    "warnings": "Warnings",
    "chunks-behind": "IteratorAge",
    "chunks-refused": "FailedInvokeEventCount",
    "events-undelivered": "ApproximateNumberOfMessagesVisible",
    "govern-fails": "Errors",
    "messages-throttled": "Throttles",
}
SILENT = {"govern-silent": "govern"}
"""Alarms about a lack of invocations, with the function of each."""
GOVERNED = ("heavy", "quick")
"""Agents with their own resources."""
AGENTS = {"boss", "heavy", "modest", "quick"}
"""All agents of the deployment."""
AXES = {"Count": "count", "Milliseconds": "ms", "None": "USD", "Percent": "%"}


# --- alarms --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_there_is_an_alarm_for_everything_that_somebody_must_look_at(deployed: Assembly) -> None:
    """The stage has its alarms, and each agent with resources has those of the fleet. Everything else is a warning."""
    for_all = {*STAGE_ALARMS, *SILENT}
    for_each = {f"{name}-{agent}" for name in FLEET for agent in GOVERNED}
    assert set(alarms(deployed)) == {f"helix-dev-{name}" for name in for_all | for_each}
    for name, metric in STAGE_ALARMS.items():
        assert alarms(deployed)[f"helix-dev-{name}"][1]["MetricName"] == metric


@pytest.mark.slow
def test_without_an_address_only_alarms_that_govern_acts_on_are_paid_for(synth: Synth, offline: Assembly) -> None:
    """Agents with resources keep their alarms. A stage that changes its streaming keeps the two that `helix deploy`
    reads."""
    assert not alarms(offline) and not [
        widget for body in dashboards(offline.main).values() for widget in body["widgets"] if widget["type"] == "alarm"
    ], "CloudWatch refuses a list of alarms without an alarm"
    agents = synth({"streaming": "both", "agents": "resourceful_agents"})
    for_each = {f"{name}-{agent}" for name in FLEET for agent in GOVERNED}
    assert set(alarms(agents)) == {f"helix-dev-{name}" for name in for_each | {"chunks-behind", "chunks-refused"}}


@pytest.mark.parametrize("agent", GOVERNED)
@pytest.mark.parametrize("name", FLEET)
def test_a_fleet_alarm_sounds_at_its_threshold(deployed: Assembly, name: str, agent: str) -> None:
    """The threshold is the one of the context, or the default."""
    _, alarm = alarms(deployed)[f"helix-dev-{name}-{agent}"]
    statistic = alarm.get("Statistic") or alarm["ExtendedStatistic"]
    told = (alarm["MetricName"], statistic, alarm["Period"], alarm["ComparisonOperator"], alarm["Threshold"])
    *wanted, threshold, minutes = FLEET[name]
    least = threshold[agent] if isinstance(threshold, dict) else threshold
    assert (*told, alarm["EvaluationPeriods"]) == (*wanted, least, minutes)
    assert alarm["DatapointsToAlarm"] == alarm["EvaluationPeriods"]
    assert {d["Name"]: d["Value"] for d in alarm["Dimensions"]} == {STAGE: "dev", AGENT: agent}
    assert "Unit" not in alarm, "CloudWatch uses the unit of the metric"


@pytest.mark.parametrize("name", SILENT)
def test_what_runs_by_the_minute_is_missed_when_it_does_not(deployed: Assembly, name: str) -> None:
    """The schedule may be switched off, throttled or dropped. None of these is an error, and none counts as an invocation.
    The schedule runs five times in each period."""
    _, alarm = alarms(deployed)[f"helix-dev-{name}"]
    assert alarm["MetricName"] == "Invocations" and alarm["TreatMissingData"] == "breaching"
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 1)
    assert (alarm["Period"], alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"]) == (300, 2, 2)
    assert {d["Name"]: d["Value"] for d in alarm["Dimensions"]} == {"FunctionName": f"helix-dev-{SILENT[name]}"}


def test_every_alarm_tells_the_topic_and_rests_without_data(deployed: Assembly) -> None:
    topic = deployed.main.id_of("SNS::Topic", TopicName="helix-dev-alarms")
    for template, alarm in alarms(deployed).values():
        for (action,) in (alarm["AlarmActions"], alarm["OKActions"]):  # it also notifies of the end
            assert deployed.meant(template, action) == {"Ref": topic}
        silent = alarm["AlarmName"].removeprefix("helix-dev-") in SILENT
        assert alarm["TreatMissingData"] == ("breaching" if silent else "notBreaching")
        assert len(alarm["AlarmDescription"]) > 15


@pytest.mark.parametrize("name", ["failures", "warnings"])
def test_a_warning_and_a_failure_of_the_stage_are_alarms_at_once(deployed: Assembly, name: str) -> None:
    """They are two alarms, because an alarm that stays in the alarm state, as for a threshold under steady load, sends no
    new notification."""
    _, alarm = alarms(deployed)[f"helix-dev-{name}"]
    told = (alarm["Namespace"], alarm["Statistic"], alarm["Period"], alarm["Threshold"], alarm["EvaluationPeriods"])
    assert told == (NAMESPACE, "Sum", 60, 0, 1) and alarm["ComparisonOperator"] == "GreaterThanThreshold"
    assert alarm["Dimensions"] == [{"Name": STAGE, "Value": "dev"}]


# --- topics --------------------------------------------------------------------------------------------------------------


def statements(template: Template, topic: str) -> list[dict[str, Any]]:
    found = [p for p in template.of("SNS::TopicPolicy").values() if {"Ref": topic} in p["Topics"]]
    return [statement for policy in found for statement in policy["PolicyDocument"]["Statement"]]


def test_alarms_reach_the_encrypted_topic(deployed: Assembly) -> None:
    """CloudWatch needs a statement in the topic's policy, since it replaces the default one, and in the key's. It reports
    nowhere that one of them is missing."""
    template = deployed.main
    topic = template.id_of("SNS::Topic", TopicName="helix-dev-alarms")
    cloudwatch = {"Service": "cloudwatch.amazonaws.com"}
    (allowed,) = [s for s in statements(template, topic) if s["Effect"] == "Allow"]
    assert (allowed["Principal"], allowed["Action"], allowed["Resource"]) == (cloudwatch, "sns:Publish", {"Ref": topic})
    (key,) = [s for s in template.one("KMS::Key")["KeyPolicy"]["Statement"] if s["Principal"] == cloudwatch]
    assert set(key["Action"]) == {"kms:Decrypt", "kms:GenerateDataKey*"}
    for statement in (allowed, key):
        condition = statement["Condition"]
        assert condition["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
        assert text(condition["ArnLike"]["aws:SourceArn"]).endswith(":alarm:helix-dev-*")
        assert set(condition) == {"StringEquals", "ArnLike"}, "as Amazon SNS documents them, and nothing else"


def test_topics_are_encrypted_and_closed_to_plain_connections(deployed: Assembly) -> None:
    template = deployed.main
    topics = template.of("SNS::Topic")
    assert {properties["TopicName"] for properties in topics.values()} == {"helix-dev-alarms", "helix-dev-notices"}
    for id_, properties in topics.items():
        assert text(properties["KmsMasterKeyId"]) == f"<{template.id_of('KMS::Key')}.Arn>"
        (denied,) = [s for s in statements(template, id_) if s["Effect"] == "Deny"]
        assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_govern_hears_alarms_and_not_itself(deployed: Assembly) -> None:
    template = deployed.main
    govern = {"Ref": template.alias_of(template.function("govern"))}
    told = [s for s in template.of("SNS::Subscription").values() if s["Protocol"] == "lambda"]
    topic = {"Ref": template.id_of("SNS::Topic", TopicName="helix-dev-alarms")}
    assert [(s["TopicArn"], s["Endpoint"]) for s in told] == [(topic, govern)]
    (invoke,) = [p for p in template.of("Lambda::Permission").values() if p["Principal"] == "sns.amazonaws.com"]
    assert (invoke["FunctionName"], invoke["SourceArn"]) == (govern, topic)
    minute = template.one("Events::Rule", Name="helix-dev-govern")
    assert (minute["ScheduleExpression"], minute["State"]) == ("rate(1 minute)", "ENABLED"), (
        "an alarm notifies only when its state changes"
    )
    assert minute["Targets"][0]["Arn"] == govern


def test_somebody_may_be_told_by_mail(deployed: Assembly, offline: Assembly) -> None:
    told = [s for s in deployed.main.of("SNS::Subscription").values() if s["Protocol"] == "email"]
    assert {s["Endpoint"] for s in told} == {"ops@example.com"}
    assert {text(s["TopicArn"]) for s in told} == {f"<{id_}>" for id_ in deployed.main.of("SNS::Topic")}
    assert "email" not in json.dumps(offline.main.of("SNS::Subscription"))


# --- dashboards ----------------------------------------------------------------------------------------------------------


def test_there_are_two_dashboards(deployed: Assembly, production: Assembly) -> None:
    assert set(dashboards(deployed.main)) == {"helix-dev-agents", "helix-dev-plumbing"}
    assert not dashboards(production.main), "a setting leaves them out"


def test_a_dashboard_has_50_lines_at_most(deployed: Assembly) -> None:
    lines = Counter(o.where.partition(":")[0] for o in of_dashboards(deployed.main))
    assert set(lines) == set(dashboards(deployed.main)) and max(lines.values()) <= 50


def test_everything_that_is_measured_is_shown_of_the_stage_and_of_each_agent(deployed: Assembly) -> None:
    """It may be shown for the stage alone, if other graphs separate the agents."""
    shown = [o for o in of_dashboards(deployed.main) if o.namespace == NAMESPACE]
    assert {o.name for o in shown if o.dimensions == {(STAGE, "dev")}} == set(UNITS)
    of_each = {o.name for o in shown if o.dimensions == {(STAGE, "dev"), (AGENT, "*")}}
    assert {"CostUsd", "TotalTokens", "ModelLatency", "QueueDepth", "ConcurrencyLimit", "RunsActive"} <= of_each
    assert {"ModelThrottles", "ModelErrors", "BudgetUtilization", "CacheSavedUsd", "QueueWait"} <= of_each
    assert "UnhealthyChecks" in of_each


def test_a_metric_of_helix_is_one_that_code_records(deployed: Assembly, production: Assembly) -> None:
    """The name, the dimensions and the statistic must be useful ones that code records. tests/e2e shows that real runs emit
    them."""
    for assembly, stage in ((deployed, "dev"), (production, "prod")):
        ours = [o for o in of_everything(assembly) if o.namespace == NAMESPACE]
        assert ours
        for o in ours:
            assert o.name in UNITS, o
            assert o.dimension_names in ({STAGE}, {STAGE, AGENT}) and dict(o.dimensions)[STAGE] == stage, o
            assert (
                dict(o.dimensions).get(AGENT, "modest") in AGENTS | {"assistant", "librarian", "*"} or stage == "prod"
            ), o
            timed = UNITS[o.name] == "Milliseconds"
            assert o.statistic in (PERCENTILES if timed else ("Sum", "Maximum")), o
            assert o.period in (60, 3600), o
            assert o.axis in ("", AXES[UNITS[o.name]]), "a graph has the unit of its metric"


def test_a_metric_of_aws_is_one_that_aws_documents(deployed: Assembly, production: Assembly) -> None:
    for assembly in (deployed, production):
        for o in of_everything(assembly):
            if o.namespace != NAMESPACE:
                assert o.name in documented(o.namespace, o.dimension_names), o
                assert o.statistic in STATISTICS, o


@pytest.mark.parametrize("fan_out", [True, False])
def test_the_age_of_chunks_is_of_calls_that_are_made(synth: Synth, fan_out: bool) -> None:
    """A consumer with enhanced fan-out makes no `GetRecords` calls, so that metric would have no data:
    https://docs.aws.amazon.com/streams/latest/dev/monitoring-with-cloudwatch.html"""
    made = synth(DEPLOYED if fan_out else {**DEPLOYED, "enhanced_fan_out": "false"})
    shown = {o.name for o in of_dashboards(made.main) if o.where.endswith("Age of chunks at projection")}
    assert shown == {"IteratorAge"} | (set() if fan_out else {"GetRecords.IteratorAgeMilliseconds"})


def test_a_metric_of_aws_is_of_something_that_is_there(deployed: Assembly) -> None:
    """The functions, machines, tables, streams, queues and topics exist in the stage's own stack or in a nested one."""
    named = {
        str(value)
        for template in deployed.templates
        for resource in template.resources.values()
        for key, value in resource.get("Properties", {}).items()
        if key in ("FunctionName", "TableName", "QueueName", "TopicName", "Name", "StateMachineName")
    }
    for o in of_everything(deployed):
        if o.namespace != NAMESPACE:
            for _, value in o.dimensions:
                if value.startswith("<"):
                    id_ = value.strip("<>").partition(">")[0].partition(".")[0]
                    assert id_ in deployed.main.resources, o
                elif " " in value:  # a search by words
                    assert any(name.startswith(f"{value.replace(' ', '-')}-") for name in named), o
                else:
                    assert value.rpartition(":")[2] in named, o


def test_the_plumbing_shows_every_alarm_and_every_function(deployed: Assembly) -> None:
    body = dashboards(deployed.main)["helix-dev-plumbing"]
    (status,) = [w["properties"]["alarms"] for w in body["widgets"] if w["type"] == "alarm"]
    assert {arn.rpartition(":alarm:")[2] for arn in status} == set(alarms(deployed))
    assert any(o.dimensions == {("FunctionName", "helix dev")} for o in of_dashboards(deployed.main))
    functions = {f["FunctionName"] for t in deployed.templates for f in t.of("Lambda::Function").values()}
    assert {name[:10] for name in functions} == {"helix-dev-"}


def test_alarms_and_dashboards_look_at_the_same_numbers(deployed: Assembly) -> None:
    """Every metric of an alarm is also on a dashboard, for the same agent."""
    shown = {(o.namespace, o.name, o.dimensions) for o in of_dashboards(deployed.main)}
    searches = {AGENT: "*", "FunctionName": "helix dev", "StateMachineArn": "helix dev"}
    for o in of_alarms(deployed):
        found = frozenset((name, searches.get(name, value)) for name, value in o.dimensions)
        assert {(o.namespace, o.name, o.dimensions), (o.namespace, o.name, found)} & shown, o
