"""`python -m helix.infra.app`: its refusals, and that the same files and context give the same templates."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.infra.conftest import OFFLINE, ROOT, run_app
from tests.infra.templates import Assembly
from tests.support.synthesis import Synthesiser

pytestmark = pytest.mark.timeout(400)  # the first test waits for the synthesis

UNEXPLAINED = """
import sys
from aws_cdk import App, Stack, aws_s3 as s3
from constructs import Construct
from helix.infra.nag import check

app = App(outdir=sys.argv[1])
stack = Stack(app, "S")
ours = Construct(stack, "Ours")
s3.Bucket(ours, "Open")
s3.Bucket(stack, "Theirs")
check(ours)
app.synth()
"""


@pytest.mark.parametrize(
    ("context", "told"),
    [
        ({"stgae": "dev"}, "infra: context key 'stgae' is unknown"),
        ({"agents": "nobodys_agents"}, "infra: context key 'agents': 'nobodys_agents' cannot be imported"),
    ],
)
def test_what_is_wrong_is_one_line(python: Synthesiser, tmp_path: Path, context: dict[str, str], told: str) -> None:
    done = run_app(python, context, tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith(told)


def test_a_template_for_aws_is_not_made_for_an_emulator(python: Synthesiser, tmp_path: Path) -> None:
    at = {"AWS_ENDPOINT_URL": "http://127.0.0.1:4598"}
    done = python("-m", "helix.infra.app", "-o", str(tmp_path / "out"), variables=at)
    said = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and said.startswith("infra: AWS_ENDPOINT_URL is 'http://127.0.0.1:4598', an emulator")
    assert "-c offline=true" in said and not (tmp_path / "out" / "manifest.json").exists()


UNWANTED = {
    "@aws-cdk/core:enableAdditionalMetadataCollection": False,  # nothing is reported to AWS, so nothing is collected
    "@aws-cdk/core:target-partitions": ["aws", "aws-cn", "aws-us-gov"],  # a stage may be in GovCloud too
}
"""Feature flags that differ from CDK's recommendation."""


def test_feature_flags_are_those_that_cdk_recommends(deployed: Assembly) -> None:
    artifacts = json.loads((deployed.folder / "manifest.json").read_text())["artifacts"]
    [report] = [each for each in artifacts.values() if each["type"] == "cdk:feature-flag-report"]
    flags = report["properties"]["flags"]
    assert len(flags) > 80
    chosen = {name: flag["userValue"] for name, flag in flags.items() if "userValue" in flag}
    for name, flag in flags.items():
        unset = flag.get("unconfiguredBehavesLike", {}).get("v2", False)
        assert chosen.get(name, unset) == UNWANTED.get(name, flag["recommendedValue"]), name
    given = json.loads((ROOT / "cdk.json").read_text())["context"]
    assert {name: value for name, value in given.items() if name in UNWANTED} == UNWANTED
    assert set(given) <= set(flags), "a stage's setting is in pyproject.toml and not a default of all projects"


def test_a_finding_that_nobody_explained_stops_the_synthesis(python: Synthesiser, tmp_path: Path) -> None:
    done = python("-c", UNEXPLAINED, str(tmp_path / "out"))
    assert done.returncode != 0
    assert "AwsSolutions-S10" in done.stderr and "ValidationFailed" in done.stderr
    assert "S/Ours/Open" in done.stderr and "S/Theirs" not in done.stderr


def test_every_exception_has_a_reason(deployed: Assembly, production: Assembly, offline: Assembly) -> None:
    for assembly in (deployed, production, offline):
        for template in assembly.templates:
            for resource in template.resources.values():
                for rule in resource.get("Metadata", {}).get("cdk_nag", {}).get("rules_to_suppress", []):
                    assert len(rule["reason"].split()) > 5, rule


@pytest.mark.slow
def test_the_same_files_and_context_give_the_same_templates(tmp_path: Path, offline: Assembly) -> None:
    pairs = [word for key, value in OFFLINE.items() for word in ("-c", f"{key}={value}")]
    command = [sys.executable, "-m", "helix.infra.app", *pairs, "-o", str(tmp_path / "again")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "!!" not in done.stderr, "CDK's warning about an old Node is one line"
    again = Assembly.read(tmp_path / "again")
    assert again.main == offline.main
    same = "Helix-dev.assets.json"
    assert json.loads((again.folder / same).read_text()) == json.loads((offline.folder / same).read_text())
