"""The templates: functions, machines, streams and schedules, and their connections."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.infra.templates import PROFILES, Assembly, Template, listed, text

from helix.core.resources import ResourceConfig
from helix.infra.agent_profiles import Profile
from helix.infra.definition import VERBS
from helix.infra.verbs import CONSOLE_SIZES, SIZES, TRIGGER_SIZES
from helix.runtime.cloud_settings import read_cloud_settings

pytestmark = pytest.mark.timeout(400)  # the first test waits for the synthesis


def environment_of(function: dict[str, Any]) -> dict[str, str]:
    return {name: text(value) for name, value in function["Environment"]["Variables"].items()}


# --- functions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", SIZES)
def test_a_function_is_sized_named_and_reads_its_environment(deployed: Assembly, verb: str) -> None:
    function = deployed.main.function(verb)
    memory = 512 if verb == "call_model" else SIZES[verb].memory_mb
    assert (function["Timeout"], function["MemorySize"]) == (SIZES[verb].timeout_s, memory)
    assert (function["Runtime"], function["Architectures"]) == ("python3.13", ["arm64"])
    assert function["Handler"] == "handler.handler" and len(function["Layers"]) == 3
    told = environment_of(function)
    assert (told["POWERTOOLS_SERVICE_NAME"], told["POWERTOOLS_METRICS_NAMESPACE"]) == (verb, "Helix")
    settings = read_cloud_settings(told)
    assert settings.stage == "dev" and settings.auth == {"keys", "jwt"}
    assert (settings.model, settings.agents) == ("openai/gpt-4o-mini", ("resourceful_agents",))
    assert (settings.jwt_issuer, settings.jwt_audience) == ("https://issuer.example", "helix")
    assert settings.jwks_url == "https://issuer.example/keys.json"
    assert settings.machine.endswith(":stateMachine:helix-dev-{profile}")
    assert settings.sockets.startswith("https://<") and settings.sockets.endswith("/dev")
    tables = [settings.sessions_table, settings.streams_table, settings.control_table]
    names = [deployed.main.resources[table.strip("<>")]["Properties"]["TableName"] for table in tables]
    assert names == ["helix-dev-sessions", "helix-dev-streams", "helix-dev-control"]
    assert deployed.main.resources[settings.chunks.strip("<>")]["Properties"]["Name"] == "helix-dev-chunks"
    assert deployed.main.resources[settings.bucket.strip("<>")]["Type"] == "AWS::S3::Bucket"
    assert not [name for name, value in told.items() if not value], "empty values are left out"
    assert "AWS_ENDPOINT_URL" not in told, "only `sam local` has an emulator for AWS: tests/sam"
    assert json.loads(settings.budgets) == {"user": {"day": 2.0}}, "as the functions' engine and gateway read it"
    assert (settings.max_runs, told["HELIX_TRACE_CONTENT"]) == (40, "true")
    assert told["OTEL_EXPORTER_OTLP_ENDPOINT"] == "https://traces.example:4318"


def test_some_are_told_what_others_are_not(deployed: Assembly) -> None:
    """A function that has a right on a resource gets its address, and no other function does."""
    own = {
        "HELIX_MODEL_SECRETS": {"call_model"},
        "HELIX_NOTICES": {"govern"},
        "HELIX_PROVISION_AGENTS": {"govern"},
        "HELIX_METRICS_SECRET": {"health"},
    }
    for name, verbs in own.items():
        assert {v for v in SIZES if name in environment_of(deployed.main.function(v))} == verbs
    notices = deployed.main.id_of("SNS::Topic", TopicName="helix-dev-notices")
    assert environment_of(deployed.main.function("govern"))["HELIX_NOTICES"] == f"<{notices}>"
    token = deployed.main.id_of("SecretsManager::Secret")
    told = environment_of(deployed.main.function("health"))["HELIX_METRICS_SECRET"]
    assert told == f"<{token}.Id>", "its ARN, in AWS and in the emulator"


def test_a_variable_is_left_out_where_nothing_was_chosen(production: Assembly) -> None:
    told = environment_of(production.main.function("call_model", "prod"))
    assert not {"HELIX_TRACE_CONTENT", "OTEL_EXPORTER_OTLP_ENDPOINT"} & set(told)


def test_call_model_has_the_packages_that_the_agents_need(production: Assembly, deployed: Assembly) -> None:
    """Their model is one of OpenAI, so litellm, which takes more memory, is not needed."""
    assert production.main.function("call_model", "prod")["MemorySize"] == 512
    assert deployed.main.function("call_model")["MemorySize"] == 512


def test_there_is_a_folder_for_every_function_and_a_function_for_every_folder() -> None:
    from tests.infra.conftest import ROOT

    assert {file.parent.name for file in ROOT.glob("functions/*/handler.py")} == {
        *SIZES,
        *TRIGGER_SIZES,
        *CONSOLE_SIZES,
    }


def test_everybody_calls_the_alias(deployed: Assembly) -> None:
    for template in deployed.templates:
        functions = template.of("Lambda::Function")
        aliases = template.of("Lambda::Alias")
        assert {alias["FunctionName"]["Ref"] for alias in aliases.values()} == set(functions)
        assert {alias["Name"] for alias in aliases.values()} == {"live"}
        for permission in template.of("Lambda::Permission").values():
            assert permission["FunctionName"]["Ref"] in aliases
            assert permission["SourceArn"], "a service may invoke it for one source only"
    source = deployed.main.one("Lambda::EventSourceMapping")
    assert source["FunctionName"]["Ref"] == deployed.main.alias_of(deployed.main.function("project_stream"))


def test_snap_start_is_for_call_model_and_never_beside_provisioned_concurrency(
    production: Assembly, deployed: Assembly
) -> None:
    snapped = [f["FunctionName"] for f in production.main.of("Lambda::Function").values() if "SnapStart" in f]
    assert snapped == ["helix-prod-call_model"]
    assert production.main.function("call_model", "prod")["SnapStart"] == {"ApplyOn": "PublishedVersions"}
    for template in [*production.templates, *deployed.templates]:
        provisioned = [a for a in template.of("Lambda::Alias").values() if "ProvisionedConcurrencyConfig" in a]
        starts = [f for f in template.of("Lambda::Function").values() if "SnapStart" in f]
        assert not (provisioned and starts)


def test_provisioned_concurrency_lies_on_call_model(deployed: Assembly) -> None:
    found = {}
    for template in deployed.templates:
        for alias in template.of("Lambda::Alias").values():
            if "ProvisionedConcurrencyConfig" in alias:
                name = template.resources[alias["FunctionName"]["Ref"]]["Properties"]["FunctionName"]
                found[name] = alias["ProvisionedConcurrencyConfig"]["ProvisionedConcurrentExecutions"]
    assert found == {"helix-dev-call_model": 3, "helix-dev-heavy-call_model": 2}, "the minimum of quick is 0"


# --- agents with resources ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "memory"),
    [
        ({}, 0),
        ({"memory_limit_mb": 512}, 512),
        ({"memory_limit_mb": 64}, 128),
        ({"cpu_limit": 2.0}, 2 * 1769),
        ({"cpu_limit": 2.0, "memory_limit_mb": 512}, 2 * 1769),
        ({"cpu_limit": 0.5, "memory_limit_mb": 2048}, 2048),
        ({"cpu_limit": 32}, 10_240),
    ],
    ids=str,
)
def test_processors_come_with_memory_and_the_larger_wish_counts(asked: dict[str, Any], memory: int) -> None:
    assert Profile.of("a", ResourceConfig(**asked), provision=False).memory_mb == memory


def test_an_agent_with_resources_has_a_nested_stack(deployed: Assembly) -> None:
    assert len(deployed.main.of("CloudFormation::Stack")) == len(deployed.nested) == 2
    for profile, memory in (("heavy", 3008), ("quick", 2 * 1769)):
        (nested,) = [template for name, template in deployed.nested.items() if profile in name]
        names = {f["FunctionName"]: f["MemorySize"] for f in nested.of("Lambda::Function").values()}
        assert names == {f"helix-dev-{profile}-{verb}": memory for verb in ("call_model", "call_tool")}
        machine = nested.one("StepFunctions::StateMachine", StateMachineName=f"helix-dev-{profile}")
        own: list[str] = []
        shared: list[str] = []
        for place in (machine["DefinitionSubstitutions"][name] for name in VERBS):
            (own if place["Ref"] in nested.resources else shared).append(place["Ref"])
        assert (len(own), len(shared)) == (2, 3), "its own call_model and call_tool; the rest are the stage's"
        assert set(shared) <= set(nested.text["Parameters"])


def test_without_such_agents_there_is_one_stack(production: Assembly) -> None:
    assert production.nested == {}
    names = [m["StateMachineName"] for m in production.main.of("StepFunctions::StateMachine").values()]
    assert names == ["helix-prod-default"]


# --- machines, streams, schedules -----------------------------------------------------------------------------------


def machines(assembly: Assembly) -> list[tuple[Template, dict[str, Any]]]:
    return [(t, m) for t in assembly.templates for m in t.of("StepFunctions::StateMachine").values()]


def test_machines_log_errors_without_data_trace_and_end(deployed: Assembly) -> None:
    found = machines(deployed)
    assert {m["StateMachineName"] for _, m in found} == {f"helix-dev-{profile}" for profile in PROFILES}
    for _, machine in found:
        assert machine["StateMachineType"] == "STANDARD"
        logging = machine["LoggingConfiguration"]
        assert (logging["Level"], logging["IncludeExecutionData"]) == ("ERROR", False)
        assert machine["TracingConfiguration"] == {"Enabled": True}
        asl = json.loads(machine["DefinitionString"])
        assert asl["TimeoutSeconds"] == 30 * 24 * 3600
        assert set(machine["DefinitionSubstitutions"]) == {*VERBS, "Partition"}
        assert machine["DefinitionSubstitutions"]["Partition"] == {"Ref": "AWS::Partition"}


def test_the_chunk_stream_feeds_project_stream_and_loses_nothing(deployed: Assembly) -> None:
    template = deployed.main
    source = template.one("Lambda::EventSourceMapping")
    assert source["StartingPosition"] == "TRIM_HORIZON"
    assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert source["BisectBatchOnFunctionError"] is True
    kept = template.one("Kinesis::Stream")["RetentionPeriodHours"]
    assert source["MaximumRecordAgeInSeconds"] == (kept - 1) * 3600, (
        "retries end just before Kinesis deletes the record"
    )
    assert source["MaximumRetryAttempts"] == -1, "and not after a number of attempts"
    bucket = template.id_of("S3::Bucket")
    assert source["DestinationConfig"]["OnFailure"]["Destination"] == {"Fn::GetAtt": [bucket, "Arn"]}
    policy = [id_ for id_ in template.of("IAM::Policy") if "ProjectStream" in id_]
    id_ = template.id_of("Lambda::EventSourceMapping")
    assert set(policy) <= set(template.resources[id_]["DependsOn"]), "Lambda uses the role at once"


def test_records_are_pushed_unless_a_setting_says_otherwise(deployed: Assembly, production: Assembly) -> None:
    consumer = deployed.main.id_of("Kinesis::StreamConsumer")
    mapping = deployed.main.one("Lambda::EventSourceMapping")
    assert mapping["EventSourceArn"] == {"Fn::GetAtt": [consumer, "ConsumerARN"]}
    assert deployed.main.one("Kinesis::Stream")["ShardCount"] == 1
    assert production.main.of("Kinesis::StreamConsumer") == {}
    polling = production.main.one("Lambda::EventSourceMapping")
    assert polling["EventSourceArn"] == {"Fn::GetAtt": [production.main.id_of("Kinesis::Stream"), "Arn"]}
    logical = {each.main.id_of("Lambda::EventSourceMapping") for each in (deployed, production)}
    assert len(logical) == 1, "CloudFormation makes the new mapping before it deletes the old one"
    assert production.main.one("Kinesis::Stream")["StreamModeDetails"] == {"StreamMode": "ON_DEMAND"}


def test_the_minute_sweeps_and_bad_ends_reach_fail_run(deployed: Assembly) -> None:
    template = deployed.main
    minute = template.one("Events::Rule", Name="helix-dev-govern")
    assert (minute["ScheduleExpression"], minute["State"]) == ("rate(1 minute)", "ENABLED")
    assert minute["Targets"][0]["Arn"]["Ref"] == template.alias_of(template.function("govern")), "it starts the sweep"
    scheduled = [rule for rule in template.of("Events::Rule").values() if "ScheduleExpression" in rule]
    assert scheduled == [minute]
    ended = template.one("Events::Rule", Name="helix-dev-ended")
    detail = ended["EventPattern"]["detail"]
    assert detail["status"] == ["FAILED", "TIMED_OUT", "ABORTED"]
    (machines_,) = detail["stateMachineArn"]
    assert text(machines_["prefix"]).endswith(":stateMachine:helix-dev-")
    (target,) = ended["Targets"]
    assert target["Arn"]["Ref"] == template.alias_of(template.function("fail_run"))
    queue = {"Fn::GetAtt": [template.id_of("SQS::Queue"), "Arn"]}
    assert target["DeadLetterConfig"] == {"Arn": queue}
    (tries,) = [c for c in template.of("Lambda::EventInvokeConfig").values() if "DestinationConfig" in c]
    assert tries["DestinationConfig"]["OnFailure"]["Destination"] == queue


# --- offline -------------------------------------------------------------------------------------------------------


def test_offline_is_the_same_app_without_packages_and_bootstrap(offline: Assembly, production: Assembly) -> None:
    template = offline.main
    assert template.text["Parameters"]["Endpoint"]["Default"] == "http://127.0.0.1:4999", (
        "and no parameter of the bootstrap stack"
    )
    told = environment_of(template.function("ws_message"))
    assert told["HELIX_SOCKETS"].startswith("<Endpoint>/_aws/execute-api/<")
    assert (told["HELIX_MODEL"], told["HELIX_AGENTS"]) == ("demo", "agents")
    assert len(template.function("call_model")["Layers"]) == 2

    def kinds(assembly: Assembly) -> dict[str, int]:
        found: dict[str, int] = {}
        for resource in assembly.main.resources.values():
            found[resource["Type"]] = found.get(resource["Type"], 0) + 1
        return found

    expected = {**kinds(offline), "AWS::Lambda::LayerVersion": 3}
    del expected["AWS::CloudWatch::Dashboard"]  # a setting of this production stage
    expected |= {"AWS::CloudWatch::Alarm": 8, "AWS::SNS::Subscription": 3}  # its alarm_email
    assert kinds(production) == expected


def test_every_type_is_one_that_the_emulator_has(offline: Assembly) -> None:
    from ministack.services.cloudformation import provisioners

    types = {resource["Type"] for resource in offline.main.resources.values()}
    assert types <= set(provisioners._RESOURCE_HANDLERS)


def test_code_lies_beside_the_template(offline: Assembly) -> None:
    for function in offline.main.of("Lambda::Function"):
        path = offline.main.resources[function]["Metadata"]["aws:asset:path"]
        assert [file.name for file in (offline.folder / path).iterdir()] == ["handler.py"]


def test_statements_have_no_duplicates(deployed: Assembly) -> None:
    for template in deployed.templates:
        for policy in template.of("IAM::Policy").values():
            statements = [json.dumps(s, sort_keys=True) for s in policy["PolicyDocument"]["Statement"]]
            assert len(statements) == len(set(statements))
            assert len(json.dumps(policy["PolicyDocument"])) < 6000, "a role's inline policies hold 10,240 characters"
            for statement in policy["PolicyDocument"]["Statement"]:
                assert listed(statement["Action"])
