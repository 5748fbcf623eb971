"""The template without Kinesis, and during the change: the event sources of project_stream, and the rights of each
function."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.infra.conftest import Synth
from tests.infra.templates import Assembly, Template, listed, text

from helix.infra.verbs import PROFILE_VERBS, SHARED_VERBS

pytestmark = pytest.mark.timeout(400)  # the first test waits for the synthesis
WRITERS = {"call_model", "call_tool", "start_run", "finish_run", "fail_run", "sweep", "ws_message", "govern"}
APPEND = {"dynamodb:GetItem", "dynamodb:Query", "dynamodb:PutItem"}
FOLLOW = {"dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"}


@pytest.fixture(scope="session")
def direct(synth: Synth) -> Assembly:
    return synth({"streaming": "direct"})


@pytest.fixture(scope="session")
def both(synth: Synth) -> Assembly:
    return synth({"streaming": "both", "retain": "true"})


def on(template: Template, verb: str, what: Any) -> set[str]:
    """Return the actions of a function on a resource with its full name."""
    statements = template.statements(template.role_of(template.function(verb)))
    return {a for s in statements for a in listed(s["Action"]) if what in listed(s["Resource"])}


def log(template: Template) -> tuple[Any, Any]:
    """Return the ARNs of the log's table and of its stream."""
    id_ = template.id_of("DynamoDB::Table", TableName="helix-dev-streams")
    return {"Fn::GetAtt": [id_, "Arn"]}, {"Fn::GetAtt": [id_, "StreamArn"]}


def mappings(template: Template) -> dict[str, dict[str, Any]]:
    return {text(each["EventSourceArn"]): each for each in template.of("Lambda::EventSourceMapping").values()}


def test_nothing_of_kinesis_is_left(direct: Assembly) -> None:
    template = direct.main
    assert not template.of("Kinesis::Stream") and not template.of("Kinesis::StreamConsumer")
    assert "ChunkStream" not in template.text["Outputs"]
    assert template.text["Outputs"]["StreamingMode"]["Value"] == "direct"
    assert not [s for verb in (*SHARED_VERBS, *PROFILE_VERBS) for s in on(template, verb, "*") if "kinesis" in s]
    variables = template.function("call_model")["Environment"]["Variables"]
    assert variables["HELIX_STREAMING"] == "direct" and "HELIX_CHUNKS" not in variables
    assert "Kinesis" not in text(
        template.one("CloudWatch::Dashboard", DashboardName="helix-dev-plumbing")["DashboardBody"]
    )


def test_the_table_feeds_project_stream_in_its_order(direct: Assembly) -> None:
    template = direct.main
    (source,) = template.of("Lambda::EventSourceMapping").values()
    assert source["EventSourceArn"] == log(template)[1]
    assert source["StartingPosition"] == "TRIM_HORIZON"
    assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert "ParallelizationFactor" not in source, "several lanes keep the order of a row, not that of a partition"
    (pattern,) = [json.loads(each["Pattern"]) for each in source["FilterCriteria"]["Filters"]]
    assert pattern == {"dynamodb": {"NewImage": {"sk": {"S": [{"prefix": "s#"}]}}}}
    table = template.one("DynamoDB::Table", TableName="helix-dev-streams")
    assert table["StreamSpecification"] == {"StreamViewType": "NEW_IMAGE"}
    followed = [t for t in template.of("DynamoDB::Table").values() if "StreamSpecification" in t]
    assert len(followed) == 1
    policy = [id_ for id_ in template.of("IAM::Policy") if "ProjectStream" in id_]
    id_ = template.id_of("Lambda::EventSourceMapping")
    assert set(policy) <= set(template.resources[id_]["DependsOn"]), "Lambda uses the role at once"


def test_writers_append_and_project_stream_posts(direct: Assembly) -> None:
    template = direct.main
    table, stream = log(template)
    for verb in (*SHARED_VERBS, *PROFILE_VERBS):
        held = on(template, verb, table)
        assert (held >= APPEND) is (verb in WRITERS), (verb, held)
    assert on(template, "call_tool", table) == APPEND
    assert on(template, "project_stream", table) == {"dynamodb:Query", "dynamodb:UpdateItem", "dynamodb:DeleteItem"}
    assert on(template, "project_stream", stream) == FOLLOW
    assert on(template, "project_stream", "*") == {"dynamodb:ListStreams"}


def test_the_same_alarms_watch_it(synth: Synth, deployed: Assembly) -> None:
    direct = synth({"streaming": "direct", "alarm_email": "ops@example.com"})

    def alarms(assembly: Assembly) -> dict[str, dict[str, Any]]:
        found = assembly.main.of("CloudWatch::Alarm").values()
        return {text(each["AlarmName"]): each for each in found if "chunks-" in text(each["AlarmName"])}

    mine, theirs = alarms(direct), alarms(deployed)
    assert set(mine) == set(theirs) == {"helix-dev-chunks-behind", "helix-dev-chunks-refused"}
    for name, alarm in mine.items():
        assert (alarm["MetricName"], alarm["Threshold"]) == (theirs[name]["MetricName"], theirs[name]["Threshold"])
    source = direct.main.id_of("Lambda::EventSourceMapping")
    assert {"Ref": source} in [d["Value"] for d in mine["helix-dev-chunks-refused"]["Dimensions"]]


def test_a_stage_that_changes_has_both(both: Assembly, direct: Assembly, deployed: Assembly) -> None:
    """The names are the same as in either mode, so CloudFormation replaces nothing."""
    template = both.main
    found = template.of("Lambda::EventSourceMapping")
    assert set(found) == {
        *direct.main.of("Lambda::EventSourceMapping"),
        *deployed.main.of("Lambda::EventSourceMapping"),
    }
    assert set(template.of("Kinesis::Stream")) == set(deployed.main.of("Kinesis::Stream"))
    assert set(template.of("Kinesis::StreamConsumer")) == set(deployed.main.of("Kinesis::StreamConsumer"))
    table = log(template)[0]
    chunks = {"Fn::GetAtt": [template.id_of("Kinesis::Stream"), "Arn"]}
    for verb in sorted(WRITERS):
        assert on(template, verb, table) >= APPEND and on(template, verb, chunks) == {"kinesis:PutRecord"}, verb
    assert template.function("call_model")["Environment"]["Variables"]["HELIX_STREAMING"] == "both"
    id_ = template.id_of("Kinesis::Stream")
    assert template.resources[id_]["DeletionPolicy"] == "Delete", "it would still be billed after `direct` removes it"
    assert "dynamodb:PutItem" in on(template, "project_stream", table), "it projects the records on Kinesis"
