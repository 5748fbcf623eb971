"""A stage in a user's own CDK app: what it takes from the app, what it provides, and what it leaves unchanged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.infra.conftest import MODULES
from tests.infra.templates import Template, listed, text
from tests.support.synthesis import Synthesiser

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]  # its own synthesis

APP = Path(__file__).with_name("own_app.py")


@pytest.fixture(scope="module")
def assembly(python: Synthesiser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, packages = tmp_path_factory.mktemp("own"), tmp_path_factory.mktemp("deps")
    (packages / "python").mkdir()
    (packages / "python" / "somebody_else.py").write_text("")
    done = python(str(APP), str(folder / "out"), str(packages), cwd=folder, path=str(MODULES))
    assert done.returncode == 0, done.stderr[-4000:]
    return folder / "out"


def template(assembly: Path, name: str) -> Template:
    (file,) = assembly.glob(f"{name}*template.json")
    return Template(json.loads(file.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def mine(assembly: Path) -> Template:
    return template(assembly, "Mine.")


@pytest.fixture(scope="module")
def two(assembly: Path) -> Template:
    return template(assembly, "Two.")


def policies(found: Template, role: str) -> Iterator[dict[str, Any]]:
    """Return the statements of the policies that are attached to a role, by the reference to its name."""
    for policy in found.of("IAM::Policy").values():
        if role in map(text, policy["Roles"]):
            yield from policy["PolicyDocument"]["Statement"]


def actions(found: Template, role: str, resource: str) -> set[str]:
    return {
        action
        for statement in policies(found, role)
        if any(resource in text(each) for each in listed(statement["Resource"]))
        for action in listed(statement["Action"])
    }


def test_a_bucket_and_its_key_are_granted_to_the_tools(mine: Template) -> None:
    bucket, key = mine.id_of("S3::Bucket", LifecycleConfiguration=None), mine.id_of("KMS::Key")
    tools, shared = mine.role_of(mine.function("call_tool", "one")), mine.role_of(mine.function("finish_run", "one"))
    assert {"s3:GetObject*", "s3:GetBucket*", "s3:List*"} <= actions(mine, f"<{tools}>", f"<{bucket}.Arn>")
    decrypts = [s for s in policies(mine, f"<{tools}>") if "kms:Decrypt" in s["Action"] and "Condition" not in s]
    assert [text(statement["Resource"]) for statement in decrypts] == [f"<{key}.Arn>"]
    assert not actions(mine, f"<{shared}>", f"<{bucket}.Arn>")


def test_the_tools_of_an_agent_with_resources_have_a_role_of_their_own(mine: Template) -> None:
    bucket = mine.id_of("S3::Bucket", LifecycleConfiguration=None)
    roles = {text(role) for policy in mine.of("IAM::Policy").values() for role in policy["Roles"]}
    (heavy,) = [role for role in roles if "Agentheavy" in role and "CallTool" in role]
    assert "s3:GetObject*" in actions(mine, heavy, f"<{bucket}.Arn>")
    assert not any("Agentquick" in role for role in roles)


def test_inline_tools_have_the_rights_too_and_models_without_have_not(mine: Template, two: Template) -> None:
    for found, stage, wanted in ((mine, "one", False), (two, "two", True)):
        granted = actions(found, f"<{found.role_of(found.function('call_model', stage))}>", ":s3:::handbooks")
        granted |= actions(found, f"<{found.role_of(found.function('call_model', stage))}>", "Documents")
        assert bool(granted) is wanted


def test_tools_are_in_the_apps_network(mine: Template) -> None:
    places = {
        p["FunctionName"]: p.get("VpcConfig") for p in mine.of("Lambda::Function").values() if "FunctionName" in p
    }
    group = mine.id_of("EC2::SecurityGroup", GroupDescription="Functions of Helix that execute tools")
    assert places["helix-one-call_tool"] == {
        "SecurityGroupIds": [{"Fn::GetAtt": [group, "GroupId"]}],
        "SubnetIds": ["subnet-01234567", "subnet-89abcdef"],
    }
    assert [name for name, place in places.items() if place] == ["helix-one-call_tool"]
    assert mine.one("EC2::SecurityGroupIngress")["FromPort"] == 5432


def test_functions_of_the_app_start_runs_and_read_sessions(mine: Template) -> None:
    caller, reader = (
        mine.role_of(mine.one("Lambda::Function", Handler="index.handler")),
        mine.id_of("IAM::Role", Description=None, ManagedPolicyArns=None),
    )
    sessions, streams = (
        mine.id_of("DynamoDB::Table", TableName=f"helix-one-{name}") for name in ("sessions", "streams")
    )
    assert "states:StartExecution" in actions(mine, f"<{caller}>", ":stateMachine:helix-one-*")
    assert "dynamodb:PutItem" in actions(mine, f"<{caller}>", f"<{sessions}.Arn>")
    environment = mine.one("Lambda::Function", Handler="index.handler")["Environment"]["Variables"]
    assert environment["HELIX_STAGE"] == "one" and text(environment["HELIX_SESSIONS_TABLE"]) == f"<{sessions}>"
    read = {"dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"}
    assert actions(mine, f"<{reader}>", f"<{sessions}.Arn>") == read
    assert actions(mine, f"<{reader}>", f"<{streams}.Arn>") == read - {"dynamodb:BatchGetItem"}
    assert not actions(mine, f"<{reader}>", ":stateMachine:")
    assert actions(mine, f"<{reader}>", "/blobs/*") == {"s3:GetObject"}
    assert actions(mine, f"<{caller}>", "/blobs/*") == {"s3:GetObject", "s3:PutObject"}


def test_the_apps_key_encrypts_the_stage(mine: Template, two: Template) -> None:
    (key,) = mine.of("KMS::Key")
    for table in mine.of("DynamoDB::Table").values():
        assert text(table["SSESpecification"]["KMSMasterKeyId"]) == f"<{key}.Arn>"
    services = json.dumps(mine.one("KMS::Key")["KeyPolicy"])
    assert "cloudwatch.amazonaws.com" in services and "logs." in services
    assert not mine.of("KMS::Alias") and len(two.of("KMS::Alias")) == 1


def test_every_role_of_the_stage_has_the_boundary_and_no_other(assembly: Path, mine: Template, two: Template) -> None:
    nested = [template(assembly, f"MineHelixAgent{agent}") for agent in ("heavy", "quick")]
    roles = {id_: role for found in (mine, *nested) for id_, role in found.of("IAM::Role").items()}
    bounded = {id_ for id_, role in roles.items() if "PermissionsBoundary" in role}
    assert {id_ for id_ in roles if id_.startswith("Helix") or id_ not in mine.of("IAM::Role")} == bounded
    assert len(bounded) > 15
    assert not any("PermissionsBoundary" in role for role in two.of("IAM::Role").values())


def test_tags_are_on_what_is_the_stages(mine: Template) -> None:
    wanted = {"team": "ai", "helix:stage": "one", "owner": "me"}
    for role in mine.of("Lambda::Function").values():
        tags = {tag["Key"]: tag["Value"] for tag in role["Tags"]}
        assert tags == (wanted if "FunctionName" in role else {"owner": "me"})


def test_clients_connect_to_the_domain_and_functions_to_the_api(mine: Template) -> None:
    domain = mine.one("ApiGatewayV2::DomainName")
    assert domain["DomainName"] == "agents.example.com"
    assert domain["DomainNameConfigurations"][0]["SecurityPolicy"] == "TLS_1_2"
    mapping = mine.one("ApiGatewayV2::ApiMapping")
    assert mapping["ApiId"] == {"Ref": mine.id_of("ApiGatewayV2::Api", ProtocolType="WEBSOCKET")}
    outputs = {name: text(output["Value"]) for name, output in mine.text["Outputs"].items()}
    assert outputs["Url"].startswith("wss://<") and ".execute-api." not in outputs["Url"]
    assert ".execute-api." in outputs["ManagementUrl"]


def test_two_stages_live_in_one_app(assembly: Path, two: Template) -> None:
    stacks = {
        artifact["properties"].get("stackName", name): artifact
        for name, artifact in json.loads((assembly / "manifest.json").read_text())["artifacts"].items()
        if artifact["type"] == "aws:cloudformation:stack"
    }
    assert set(stacks) == {"Mine", "helix-two"}
    assert stacks["helix-two"]["properties"]["tags"] == {"helix:stage": "two"}
    assert two.function("call_model", "two") and "Url" in two.text["Outputs"]


def test_only_the_stages_own_findings_are_findings(mine: Template) -> None:
    """The bucket of the app has neither enforced TLS nor access logs, and the synthesis succeeded."""
    bucket = mine.resources[mine.id_of("S3::Bucket", LifecycleConfiguration=None)]
    assert "cdk_nag" not in bucket.get("Metadata", {})


WRONG = """
from aws_cdk import App, Stack
from helix.infra import Helix, HelixStack
try:
    {0}
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ('HelixStack(App(), "X", settings={"stgae": "x"})', "SettingsError context key 'stgae' is unknown"),
        (
            'HelixStack(App(), "X", domain_name="a.example")',
            "SettingsError domain_name and certificate belong together",
        ),
        ('HelixStack(App(), "X", project="/")', "NoProjectError there is no Helix project at '/'"),
    ],
)
def test_what_is_wrong_is_named(python: Synthesiser, made: str, told: str) -> None:
    done = python("-c", WRONG.format(made))
    assert done.stdout.startswith(told), done.stderr[-2000:]
