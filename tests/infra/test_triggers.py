"""Triggers as resources: a stage has those that it declares, each with the rights that it needs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.infra.conftest import PRODUCTION, Synth
from tests.infra.templates import Assembly, listed, text
from tests.infra.test_roles import rights_of
from tests.support.rights import GET, LINE, PUT, QUERY

from helix.core.triggers import read_starts
from helix.gateway.lambdas_triggers import QueueRecord, occurrence_of
from helix.infra.config import MAX_TRIGGER_BYTES, SettingsError, read_settings

pytestmark = pytest.mark.timeout(400)  # the first test waits for the synthesis

THEIRS = "arn:aws:sqs:eu-central-1:123456789012:their-queue"
SCANS = "arn:<AWS::Partition>:s3:::scans"
SCANNED = "a${*}b/*.pdf"
"""The keys of the objects that the trigger `scans` attaches."""
TRIGGERS: dict[str, Any] = {
    "nightly": {"agent": "desk", "schedule": "cron(0 2 * * ? *)", "prompt": "Night of {time}"},
    "morning": {"agent": "desk", "schedule": "cron(0 8 ? * MON-FRI *)", "timezone": "Europe/Berlin"},
    "orders": {"agent": "desk", "queue": True, "session": "order-{id}", "user": "shop"},
    "theirs": {"agent": "desk", "queue": THEIRS},
    "uploads": {"agent": "desk", "bucket": "incoming", "prefix": "in/", "suffix": ".txt"},
    "scans": {"agent": "desk", "bucket": "scans", "prefix": "a*b/", "suffix": ".pdf", "attach": True},
    "paid": {"agent": "desk", "event": {"source": ["my.shop"]}, "bus": "shop"},
    "api": {"http": True},
    "elsewhere": {"agent": "desk", "schedule": "rate(1 minute)", "stages": ["prod"]},
}


@pytest.fixture(scope="module")
def stage(synth: Synth) -> Assembly:
    return synth({"triggers": json.dumps(TRIGGERS), "alarm_email": "ops@example.com"})


def test_a_stage_without_triggers_has_none_of_their_resources(production: Assembly) -> None:
    assert "triggers" not in PRODUCTION
    names = [p.get("FunctionName", p.get("QueueName", "")) for p in production.main.resources.values()]
    assert not [name for name in names if "trigger" in str(name) or "http" in str(name)]
    assert not [p for p in production.main.of("ApiGatewayV2::Route").values() if "/run" in p["RouteKey"]]
    assert len(production.main.of("SQS::Queue")) == 1 and len(production.main.of("Lambda::EventSourceMapping")) == 1


def test_each_source_leads_to_the_function(stage: Assembly) -> None:
    template = stage.main
    queues = {p["QueueName"]: id_ for id_, p in template.of("SQS::Queue").items()}
    shared, own = queues["helix-dev-triggers"], queues["helix-dev-trigger-orders"]
    rules = {p["Name"]: p for p in template.of("Events::Rule").values() if "trigger" in str(p["Name"])}
    assert set(rules) == {f"helix-dev-trigger-{name}" for name in ("nightly", "uploads", "scans", "paid")}
    for name, rule in rules.items():
        (target,) = rule["Targets"]
        assert text(target["Arn"]) == f"<{shared}.Arn>"
        template_of = target["InputTransformer"]["InputTemplate"]
        said = json.loads(template_of.replace("<aws.events.event.json>", "{}"))
        assert said == {"trigger": name.removeprefix("helix-dev-trigger-"), "event": {}}
    assert rules["helix-dev-trigger-nightly"]["ScheduleExpression"] == "cron(0 2 * * ? *)"
    assert rules["helix-dev-trigger-paid"]["EventBusName"] == "shop"
    assert rules["helix-dev-trigger-uploads"]["EventPattern"] == {
        "source": ["aws.s3"],
        "detail-type": ["Object Created"],
        "detail": {"bucket": {"name": ["incoming"]}, "object": {"key": [{"wildcard": "in/*.txt"}]}},
    }
    alias = template.alias_of(template.function("start_triggered"))
    sources = [p for p in template.of("Lambda::EventSourceMapping").values() if alias in text(p["FunctionName"])]
    assert {text(p["EventSourceArn"]) for p in sources} == {f"<{shared}.Arn>", f"<{own}.Arn>", THEIRS}
    assert all(p["FunctionResponseTypes"] == ["ReportBatchItemFailures"] for p in sources)
    assert all(p["ScalingConfig"] == {"MaximumConcurrency": 10} for p in sources), (
        "a backlog leaves the rest of the concurrency to other functions"
    )


def test_a_schedule_with_a_time_zone_is_one_of_the_scheduler(stage: Assembly) -> None:
    template = stage.main
    made = template.one("Scheduler::Schedule")
    assert (made["ScheduleExpression"], made["ScheduleExpressionTimezone"]) == (
        "cron(0 8 ? * MON-FRI *)",
        "Europe/Berlin",
    )
    target, queues = made["Target"], {p["QueueName"]: id_ for id_, p in template.of("SQS::Queue").items()}
    shared, failed = queues["helix-dev-triggers"], queues["helix-dev-trigger-failures"]
    assert (text(target["Arn"]), text(target["DeadLetterConfig"]["Arn"])) == (f"<{shared}.Arn>", f"<{failed}.Arn>")
    said = json.loads(target["Input"])
    assert said["trigger"] == "morning" and said["event"]["time"] == "<aws.scheduler.scheduled-time>"
    record = QueueRecord(
        message_id="m",
        body=target["Input"].replace("<aws.scheduler.scheduled-time>", "2026-11-23T07:00:05Z"),
        queue="arn:aws:sqs:eu-west-1:123456789012:helix-dev-triggers",
    )
    assert occurrence_of("dev", {}, record).ident == "2026-11-23T07:00", "the same tick twice is one event"
    (role,) = [id_ for id_ in template.of("IAM::Role") if text(target["RoleArn"]) == f"<{id_}.Arn>"]
    (statement,) = template.statements(role)
    assert statement["Action"] == "sqs:SendMessage"
    assert {text(arn) for arn in statement["Resource"]} == {f"<{shared}.Arn>", f"<{failed}.Arn>"}
    (trust,) = template.of("IAM::Role")[role]["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_an_event_waits_a_day_and_then_goes_aside(stage: Assembly) -> None:
    template = stage.main
    timeout = template.function("start_triggered")["Timeout"]
    failed = template.id_of("SQS::Queue", QueueName="helix-dev-trigger-failures")
    for name in ("triggers", "trigger-orders"):
        queue = template.one("SQS::Queue", QueueName=f"helix-dev-{name}")
        redrive = queue["RedrivePolicy"]
        assert text(redrive["deadLetterTargetArn"]) == f"<{failed}.Arn>"
        assert queue["VisibilityTimeout"] >= 6 * timeout
        assert queue["VisibilityTimeout"] * redrive["maxReceiveCount"] >= 86_400
    alarm = template.one("CloudWatch::Alarm", AlarmName="helix-dev-triggers-failed")
    assert alarm["Dimensions"] == [{"Name": "QueueName", "Value": "helix-dev-trigger-failures"}]


def test_only_this_stages_rules_send_to_the_shared_queue(stage: Assembly) -> None:
    policies = [
        statement
        for policy in stage.main.of("SQS::QueuePolicy").values()
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow" and "trigger" in json.dumps(policy["Queues"]).lower()
    ]
    assert len(policies) == 2
    for statement in policies:
        assert statement["Principal"] == {"Service": "events.amazonaws.com"}
        (arns,) = statement["Condition"]["ArnLike"].values()
        assert all(text(arn).endswith("helix-dev-trigger-*") for arn in listed(arns))


def test_functions_may_do_what_a_start_takes(stage: Assembly) -> None:
    template = stage.main
    start = {**LINE, "streams": {GET, QUERY, PUT}}
    consume = {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"}
    queues = {f"undelivered {name}": consume for name in ("triggers", "trigger-orders")}
    for verb, more in (("serve_http", {}), ("start_triggered", queues | {THEIRS: consume})):
        held: dict[str, set[str]] = {}
        for what, action in rights_of(template, template.role_of(template.function(verb))):
            held.setdefault(what, set()).add(action)
        undelivered = held.pop("undelivered", set())
        objects = {what: held.pop(what) for what in [*held] if what.startswith(SCANS)}
        files = {"bucket/blobs/*": {"s3:GetObject", "s3:PutObject"}} if more else {}
        assert {w: a for w, a in held.items() if w != THEIRS} == {**start, **files}
        if more:
            assert objects == {f"{SCANS}/{SCANNED}": {"s3:GetObject"}, f"{SCANS} under {SCANNED}": {"s3:ListBucket"}}, (
                "of the trigger that attaches them, and of no other"
            )
            assert held[THEIRS] == consume and undelivered == consume | {"sqs:SendMessage"}
        else:
            assert not undelivered and not objects


def test_the_function_knows_what_events_start(stage: Assembly) -> None:
    told = stage.main.function("start_triggered")["Environment"]["Variables"]
    starts = read_starts(told["HELIX_TRIGGERS"])
    assert set(starts) == {"nightly", "morning", "orders", "theirs", "uploads", "scans", "paid"}
    assert starts["scans"].attach and not starts["uploads"].attach
    assert (starts["orders"].session, starts["orders"].user, starts["orders"].queue) == ("order-{id}", "shop", True)
    assert starts["nightly"].prompt == "Night of {time}"
    assert "trigger-failures" in stage.main.resources[told["HELIX_DEAD_LETTERS"]["Ref"]]["Properties"]["QueueName"]


def test_http_has_routes_with_a_throttle_of_their_own(stage: Assembly) -> None:
    template = stage.main
    wanted = {"POST /run", "GET /sessions/{session_id}", "GET /sessions/{session_id}/stream"}
    routes = {id_: p["RouteKey"] for id_, p in template.of("ApiGatewayV2::Route").items()}
    assert wanted <= set(routes.values())
    (stage_id,) = [id_ for id_, p in template.of("ApiGatewayV2::Stage").items() if p["StageName"] == "$default"]
    assert set(template.resources[stage_id]["Properties"]["RouteSettings"]) == wanted
    assert {id_ for id_, key in routes.items() if key in wanted} <= set(template.resources[stage_id]["DependsOn"])
    arns = [text(p["SourceArn"]) for p in template.of("Lambda::Permission").values() if "SourceArn" in p]
    for path in ("$default/POST/run", "$default/GET/sessions/*", "$default/GET/sessions/*/stream"):
        assert len([arn for arn in arns if arn.endswith(path)]) == 1


@pytest.mark.parametrize(
    ("trigger", "problem"),
    [
        ({"agent": "a"}, "tool.helix.triggers.x: a trigger has one of schedule, queue, bucket, event, http"),
        ({"agent": "a", "queue": True, "schedule": "rate(1 day)"}, "this one has schedule and queue"),
        ({"schedule": "rate(1 day)"}, "tool.helix.triggers.x: agent is missing"),
        ({"agent": "a", "schedule": "daily"}, "tool.helix.triggers.x.schedule"),
        ({"agent": "a", "queue": "orders"}, "tool.helix.triggers.x.queue"),
        ({"agent": "a", "queue": True, "prefix": "in/"}, "prefix belongs to bucket"),
        ({"agent": "a", "queue": True, "attach": True}, "attach belongs to bucket"),
        ({"agent": "a", "queue": True, "timezone": "UTC"}, "timezone belongs to schedule"),
        ({"agent": "a", "schedule": "rate(1 hour)", "timezone": "UTC"}, "timezone applies to cron only, not to rate"),
        (
            {"agent": "a", "schedule": "cron(0 8 * * ? *)", "timezone": "Berlin"},
            "'Berlin' is not a time zone; use a name such as Europe/Berlin",
        ),
        ({"calls": True, "bucket": "incoming"}, "calls belongs to event and queue"),
        ({"calls": True, "queue": True, "agent": "a"}, "agent does not belong to calls"),
        ({"agent": "a", "http": True, "prompt": "Hi"}, "prompt does not belong to http"),
        ({"agent": "a", "shedule": "rate(1 hour)"}, "a trigger has no such key; did you mean 'schedule'?"),
        ({"agent": "a", "queue": True, "prompt": "Hi {}"}, "'{}' does not name a field of the event"),
        ({"agent": "a", "queue": True, "prompt": "Hi {a"}, "'{' does not name a field of the event"),
        ({"agent": "a", "queue": True, "promt": "Hi"}, "tool.helix.triggers.x.promt"),
        ({"agent": "a", "queue": True, "prompt": "x" * MAX_TRIGGER_BYTES}, "shorten prompts"),
    ],
)
def test_what_is_wrong_is_named(trigger: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings({"triggers": {"x": trigger}})
    assert problem in str(caught.value)


def test_there_is_one_http_api_and_a_name_fits_resources() -> None:
    for wrong in ({"a": {"http": True}, "b": {"http": True}}, {"Nightly": {"http": True}}):
        with pytest.raises(SettingsError, match=r"tool\.helix\.triggers"):
            read_settings({"triggers": wrong})
    assert read_settings({"triggers": "{}"}) == read_settings({})
