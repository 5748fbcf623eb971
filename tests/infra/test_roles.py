"""Every role, compared with a table of all its rights and their resources. `*` is allowed only with an explanation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.infra.conftest import PRODUCTION, Synth
from tests.infra.templates import Assembly, Template, listed, text
from tests.support.rights import TABLE, Rights

from helix.infra.verbs import SIZES

pytestmark = pytest.mark.timeout(400)  # the first test waits for the synthesis

MACHINES = "helix-dev-*"


def rights_of(template: Template, role: str) -> Iterator[tuple[str, str]]:
    """Return (what, action) of every statement, with the names that `TABLE` has for the resources."""
    for statement in template.statements(role):
        assert statement["Effect"] == "Allow"
        actions = listed(statement["Action"])
        where = _where(statement.get("Condition"))
        for resource in listed(statement["Resource"]):
            what = named(template, text(resource))
            for action in actions:
                yield (f"{what} {where}" if where else what), action


def _where(condition: Any) -> str:
    """Return the words for a condition: the services through which a key is used, or the keys that may be listed."""
    if condition is None:
        return ""
    if list(condition) == ["StringLike"]:
        (prefix,) = condition["StringLike"].items()
        assert prefix[0] == "s3:prefix"
        return f"under {prefix[1]}"
    assert list(condition) == ["StringEquals"] and list(condition["StringEquals"]) == ["kms:ViaService"]
    names = [text(service) for service in listed(condition["StringEquals"]["kms:ViaService"])]
    services = dict.fromkeys(name.split(".")[0] for name in names)
    ends = [f"{service}.<AWS::Region>.amazonaws.com{end}" for service in services for end in ("", ".cn")]
    assert names == ends, "in China both names are valid"
    return f"through {'+'.join(services)}"


def named(template: Template, arn: str) -> str:
    if (found := re.fullmatch(r"<(\w+)(?:\.(?:Arn|ConsumerARN|Id))?>(.*)", arn)) is not None:
        id_, rest = found.groups()
        resource = template.resources[id_]
        kind, properties = resource["Type"], resource.get("Properties", {})
        match kind:
            case "AWS::DynamoDB::Table":
                return str(properties["TableName"]).rpartition("-")[2]
            case "AWS::Logs::LogGroup":
                return "log"
            case "AWS::Lambda::Alias":
                return f"alias {id_}"
            case _:
                names = {"S3::Bucket": "bucket", "Kinesis::Stream": "chunks", "Kinesis::StreamConsumer": "consumer"}
                names |= {"KMS::Key": "key", "SQS::Queue": "undelivered", "SecretsManager::Secret": "token"}
                if kind == "AWS::SNS::Topic":
                    return str(properties["TopicName"]).rpartition("-")[2]
                return names[kind.removeprefix("AWS::")] + rest
    if (found := re.search(r":states:.*:stateMachine:(.+)", arn)) is not None:
        assert found[1] == MACHINES
        return "machines"
    if (found := re.search(r":states:.*:execution:(.+):\*", arn)) is not None:
        assert found[1] == MACHINES
        return "executions"
    if re.search(r":logs:.*:log-group:/aws/lambda/helix-dev-\*$", arn) is not None:
        return "logs"
    if arn.endswith(":function:helix-dev-*-call_model:live"):
        return "aliases"
    if arn.endswith(":function:helix-dev-sweep:live"):
        return "sweep"
    if (
        found := re.search(r":bedrock:\*:.*:(foundation-model|[a-z-]*inference-profile|guardrail[a-z-]*)/\*$", arn)
    ) is not None:
        return "bedrock guardrails" if found[1].startswith("guardrail") else "bedrock models"
    if ":execute-api:" in arn:
        assert arn.endswith("/dev/POST/@connections/*")
        return "connections"
    return arn


@pytest.mark.parametrize("verb", SIZES)
def test_a_function_may_do_what_the_table_says(deployed: Assembly, verb: str) -> None:
    template = deployed.main
    role = template.role_of(template.function(verb))
    held: Rights = {}
    for what, action in rights_of(template, role):
        held.setdefault(what, set()).add(action)
    assert held == TABLE[verb]


def test_bedrock_is_asked_only_where_the_settings_name_it(synth: Synth) -> None:
    template = synth(PRODUCTION).main
    statements = template.statements(template.role_of(template.function("call_model", "prod")))
    assert not [s for s in statements if "bedrock" in text(s["Action"])]


def test_no_function_writes_another_ones_log(deployed: Assembly) -> None:
    template = deployed.main
    for verb in SIZES:
        function = template.function(verb)
        own = function["LoggingConfig"]["LogGroup"]["Ref"]
        logs = [s for s in template.statements(template.role_of(function)) if "logs:PutLogEvents" in s["Action"]]
        assert [statement["Resource"] for statement in logs] == [{"Fn::GetAtt": [own, "Arn"]}]


def test_every_function_has_a_role_of_its_own_without_managed_policies(deployed: Assembly) -> None:
    for template in deployed.templates:
        roles = [template.role_of(function) for function in template.of("Lambda::Function").values()]
        assert len(roles) == len(set(roles))
        for role in roles:
            properties = template.resources[role]["Properties"]
            assert not {"ManagedPolicyArns", "Policies"} & set(properties)
            (statement,) = properties["AssumeRolePolicyDocument"]["Statement"]
            assert statement["Principal"] == {"Service": "lambda.amazonaws.com"}


def test_a_machine_invokes_five_aliases(deployed: Assembly) -> None:
    template = deployed.main
    machine = template.one("StepFunctions::StateMachine")
    aliases = {
        f"alias {template.alias_of(template.function(verb))}"
        for verb in ("call_model", "call_tool", "start_run", "finish_run", "fail_run")
    }
    rights = set(rights_of(template, machine["RoleArn"]["Fn::GetAtt"][0]))
    assert {right for right in rights if right[0] != "*"} == {(alias, "lambda:InvokeFunction") for alias in aliases}
    assert {action.split(":")[0] for what, action in rights if what == "*"} == {"logs", "xray"}


@pytest.mark.parametrize("profile", ["heavy", "quick"])
def test_an_agent_with_resources_has_the_same_rights(deployed: Assembly, profile: str) -> None:
    """Its stack refers to the shared resources by parameters, so the test compares the actions and the number of their
    resources."""

    def shape(template: Template, verb: str) -> list[tuple[list[str], int]]:
        role = template.role_of(template.function(verb))
        return sorted((sorted(listed(s["Action"])), len(listed(s["Resource"]))) for s in template.statements(role))

    (nested,) = [t for name, t in deployed.nested.items() if profile in name]
    for verb in ("call_model", "call_tool"):
        assert shape(nested, f"{profile}-{verb}") == shape(deployed.main, verb)


def test_stars_are_few_and_explained(deployed: Assembly) -> None:
    """cdk-nag fails the synthesis for those without an explanation. Here they are counted, and the reasons are checked."""
    known = {"states:SendTaskSuccess", "cloudwatch:GetMetricData"}
    for template in deployed.templates:
        for id_, policy in template.of("IAM::Policy").items():
            for statement in policy["PolicyDocument"]["Statement"]:
                actions = listed(statement["Action"])
                assert not [action for action in actions if "*" in action]
                if "*" in listed(statement["Resource"]):
                    assert set(actions) <= known or {a.split(":")[0] for a in actions} == {"logs", "xray"}
                    noted = template.resources[id_]["Metadata"]["cdk_nag"]["rules_to_suppress"]
                    (why,) = [rule["reason"] for rule in noted if rule["id"] == "AwsSolutions-IAM5[Resource::*]"]
                    assert len(why) > 40


def test_the_key_admits_services_for_this_account_only(deployed: Assembly) -> None:
    statements = deployed.main.one("KMS::Key")["KeyPolicy"]["Statement"]
    services = [s for s in statements if "Service" in s["Principal"]]
    assert len(services) == 2
    for statement in services:
        assert statement["Condition"]
    logs, cloudwatch = services
    assert text(logs["Principal"]["Service"]) == "logs.<AWS::Region>.<AWS::URLSuffix>", "in China amazonaws.com.cn"
    assert cloudwatch["Principal"] == {"Service": "cloudwatch.amazonaws.com"}, "else alarms never reach the topic"
