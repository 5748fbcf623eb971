"""A project with a CDK app of its own: the command that makes it, and the stacks and resources that belong to the stage."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from helix.cli.cloud.deploy import Deployment, Target
from helix.cli.cloud.stack import BUCKET, MACHINE, RULE, TABLE, read_stage
from helix.local.project import SynthError, app_command, read_assembly
from helix.runtime.project import read_project


def project(folder: Path, table: str = "", cdk: Mapping[str, Any] | None = None) -> Path:
    (folder / "pyproject.toml").write_text(f"[tool.helix]\n{table}\n")
    if cdk is not None:
        (folder / "cdk.json").write_text(json.dumps(cdk))
    return folder


@pytest.mark.parametrize(
    ("table", "cdk", "app"),
    [
        ("", None, ""),
        ("", {"app": "python -m helix.infra.app"}, ""),
        ("", {"app": "python infra/app.py"}, "python infra/app.py"),
        ('app = "uv run app.py"', {"app": "python infra/app.py"}, "uv run app.py"),
    ],
)
def test_the_settings_name_the_app_or_cdk_json_does(
    tmp_path: Path, table: str, cdk: Mapping[str, Any] | None, app: str
) -> None:
    assert read_project(project(tmp_path, table, cdk)).app == app


def test_python_is_this_interpreter() -> None:
    assert app_command("python infra/app.py").endswith("/python infra/app.py")
    assert app_command("uv run app.py") == "uv run app.py"


def write_assembly(folder: Path, **stages: str | None) -> None:
    """Write a stack for each name, with the tables of the given stage."""
    folder.mkdir(exist_ok=True)
    artifacts = {}
    for name, stage in stages.items():
        table = {"Type": "AWS::DynamoDB::Table", "Properties": {"TableName": f"helix-{stage}-sessions"}}
        other = {"Type": "AWS::DynamoDB::Table", "Properties": {"TableName": {"Ref": "Name"}}}
        (folder / f"{name}.json").write_text(json.dumps({"Resources": {"T": table if stage else other}}))
        properties = {"templateFile": f"{name}.json", "stackName": f"helix-{stage}" if stage else name}
        artifacts[name] = {"type": "aws:cloudformation:stack", "properties": properties, "displayName": f"App/{name}"}
    (folder / "manifest.json").write_text(json.dumps({"artifacts": artifacts}))


def test_stacks_of_other_stages_are_left_out(tmp_path: Path) -> None:
    write_assembly(tmp_path, One="dev", Two="prod", Around=None)
    assert [stack.name for stack in read_assembly(tmp_path).of_stage("dev").stacks] == ["helix-dev", "Around"]
    with pytest.raises(SynthError, match=r"no stack 'helix-test' with stage 'test'.*'helix-dev' has stage 'dev'"):
        read_assembly(tmp_path).of_stage("test")


@pytest.mark.parametrize(("verb", "stacks"), [("deploy", ["App/One", "App/Around"]), ("destroy", ["App/One"])])
def test_the_app_is_synthesised_once_and_its_stacks_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, stacks: list[str]
) -> None:
    lines: list[list[str]] = []
    validated: list[bool] = []

    def run(line: list[str], env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
        lines.append(line)
        validated.append(env.get("CDK_VALIDATION") != "false")
        if "synth" in line:
            write_assembly(Path(line[line.index("--output") + 1]), One="dev", Two="prod", Around=None)
        return subprocess.CompletedProcess(line, 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.delenv("CDK_VALIDATION", raising=False)
    monkeypatch.setattr(Target, "_find_cdk", lambda _: ["cdk"])  # the real method asks Node for its version
    Target(Deployment(project=str(project(tmp_path, 'app = "python app.py"')), context=["auth=none"])).cdk(verb, "--x")
    synth, done = lines
    app = synth[synth.index("--app") + 1]
    assert app.endswith("/python app.py") and "auth=none" in synth and "stage=dev" in synth
    assert "--no-staging" in synth and validated[0] == (verb == "deploy")
    at = done.index(verb)
    assert done[at + 1 : at + len(stacks) + 2] == [*stacks, "--x"]
    assert done[done.index("--app") + 1] == synth[synth.index("--output") + 1]


class CloudFormation:
    """A client of CloudFormation with a stack that contains a stage and other resources of its app."""

    RESOURCES: ClassVar = {
        "helix-dev-sessions": TABLE,
        "helix-dev-Orders-1X2Y": TABLE,
        "helix-dev-storagebucket-1x2y": BUCKET,
        "helix-dev-invoices-1x2y": BUCKET,
        "helix-dev-sweep": RULE,
        "nightly": RULE,
        "arn:aws:states:eu-west-1:1:stateMachine:helix-dev-default": MACHINE,
        "arn:aws:states:eu-west-1:1:stateMachine:billing": MACHINE,
    }

    def describe_stacks(self, **_: Any) -> Any:
        outputs = [{"OutputKey": "BucketName", "OutputValue": "helix-dev-storagebucket-1x2y"}]
        stack = {"StackId": "arn:aws:cloudformation:eu-west-1:1:stack/x", "StackStatus": "CREATE_COMPLETE"}
        return {"Stacks": [{**stack, "Outputs": outputs}]}

    def get_template(self, **_: Any) -> Any:
        return {"TemplateBody": {"Resources": {}}}

    def get_paginator(self, _: str) -> Any:
        return self

    def paginate(self, **_: Any) -> Any:
        common = {"LogicalResourceId": "X", "ResourceStatus": "CREATE_COMPLETE"}
        found = [{**common, "PhysicalResourceId": name, "ResourceType": kind} for name, kind in self.RESOURCES.items()]
        return [{"StackResourceSummaries": found}]


def test_resources_of_the_app_are_neither_emptied_nor_unprotected_nor_stopped() -> None:
    deployed = read_stage(CloudFormation(), "helix-dev")
    assert deployed is not None and len(deployed.resources) == 8
    assert deployed.tables(retained=False) == ["helix-dev-sessions"]
    assert deployed.buckets == ["helix-dev-storagebucket-1x2y"]
    assert deployed.rules == ["helix-dev-sweep"]
    assert deployed.machines == ["arn:aws:states:eu-west-1:1:stateMachine:helix-dev-default"]
