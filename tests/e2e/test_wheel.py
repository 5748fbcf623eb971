"""The package as a user has it: the wheel, installed, and the user's own project in its own folder.

The third-party packages are those of the environment that runs the test, because installing 1.4 GB again proves nothing
more. The new environment has only the wheel of Helix, and no command runs in this repository.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from tests.e2e.test_dev import dev
from tests.support.offline_cloud import PRIVATE, ROOT, until

PATIENCE_S = 300
ASK = "What about the warranty?"
AUDITOR = """
import hashlib

import boto3
from botocore.exceptions import ClientError

from helix import Agent, LLMConfig, ToolContext, default_registry, tool


@tool
def look(query: str, ctx: ToolContext) -> str:
    "Look at what there is."
    found = [hashlib.sha256(ctx.secret("CRM_KEY").encode()).hexdigest()[:8]]
    for bucket in ("declared-papers", "granted-papers", "denied-papers"):
        try:
            found.append(boto3.client("s3").get_object(Bucket=bucket, Key="a")["Body"].read().decode())
        except ClientError as error:
            found.append(error.response["Error"]["Code"])
    return " ".join(found)


default_registry.register(
    Agent(name="auditor", system_prompt="Look.", tools=[look], llm_config=LLMConfig(model="openai/gpt-4o-mini"))
)
"""
APP = """
from aws_cdk import App, Stack, aws_s3 as s3
from helix.infra import HelixStack


class Shop(HelixStack):
    def __init__(self, scope, construct_id, *, granted):
        super().__init__(scope, construct_id)
        granted.grant_read(self.helix.tool_role())


app = App()
around = Stack(app, "Around")
declared, granted, denied = (
    s3.Bucket(around, name.title(), bucket_name=f"{name}-papers") for name in ("declared", "granted", "denied")
)
Shop(app, "Shop", granted=granted)
app.synth()
"""
DECLARED = """
[tool.helix.secrets]
CRM_KEY = "secretsmanager:prod/crm-key"

[tool.helix.rights]
read_buckets = ["declared-papers"]

[tool.helix.triggers.often]
agent = "auditor"
schedule = "rate(1 minute)"
session = "tick"
prompt = "Look at papers."

[tool.helix.triggers.orders]
agent = "auditor"
queue = true
session = "order-{id}"
prompt = "Look at {about}."

[tool.helix.triggers.api]
http = true
agent = "auditor"
"""
SECRET = "what-the-crm-wants"
SEEN = f"{sha256(SECRET.encode()).hexdigest()[:8]} a paper a paper AccessDenied"

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Installed:
    """An environment in `folder` with the wheel installed."""

    folder: Path

    @property
    def binaries(self) -> Path:
        return self.folder / "env" / "bin"

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not PRIVATE.match(name) and name != "PYTHONPATH"}
        path = os.pathsep.join([str(self.binaries), os.environ["PATH"]])
        # CDK's own check of the template is off: it takes long, and no assertion here depends on it.
        return {**own, "PATH": path, "CDK_VALIDATION": "false", "CI": "1", **more}

    def run(self, place: Path, *words: str, code: int = 0, **variables: str) -> str:
        program = [str(self.binaries / words[0]), *words[1:]]
        environment = self.environment(variables)
        done = subprocess.run(
            program, cwd=place, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    env = folder / "env"
    pip = [sys.executable, "-m", "pip"]
    quiet = ["--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", *quiet, "--wheel-dir", str(folder), str(ROOT)], check=True, timeout=PATIENCE_S)
    venv.create(env, with_pip=False)
    (site,) = env.glob("lib/python*/site-packages")
    (site / "third_party.pth").write_text(sysconfig.get_path("purelib") + "\n")  # its .pth files are not read
    (wheel,) = folder.glob("*.whl")
    python = str(env / "bin" / "python")
    subprocess.run([*pip, "--python", python, "install", *quiet, str(wheel)], check=True, timeout=PATIENCE_S)
    return Installed(folder)


def test_nothing_of_this_repository_is_visible(installed: Installed, tmp_path: Path) -> None:
    program = "import helix.infra, sys; print(helix.__file__, helix.infra.__file__, *sys.path, sep='\\n')"
    helix, infra, *path = installed.run(tmp_path, "python", "-c", program).split()
    assert Path(helix).is_relative_to(installed.folder) and Path(infra).is_relative_to(installed.folder)
    third_party = sysconfig.get_path("purelib")
    assert not [place for place in path if Path(place).is_relative_to(ROOT) and place != third_party]
    assert ".github/workflows/ci.yml" in installed.run(tmp_path, "helix", "init", "--template", "research")


def test_from_init_to_destroy(installed: Installed, tmp_path: Path) -> None:
    refused = installed.run(tmp_path, "helix", "dev", code=2)
    assert "`helix init` makes one" in refused
    installed.run(tmp_path, "helix", "init", "shop")
    shop = tmp_path / "shop"
    agents = shop / "agents" / "__init__.py"
    agents.write_text(agents.read_text().replace("warranty of two years", "warranty of ten years"))
    assert "2 passed" in installed.run(shop, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider")

    words = ["--port", "0", "--model", "demo"]
    program = [str(installed.binaries / "helix")]
    with dev(shop, *words, program=program, PATH=installed.environment({})["PATH"]) as served:
        url, key = served.told("url"), served.told("key")
        told = installed.run(shop, "helix", "run", "desk", ASK, "--url", url, "--key", key)
        assert "Every device has a warranty of ten years." in told and "completed" in told
        agents.write_text(agents.read_text().replace("warranty of ten years", "warranty of three years"))
        served.until(r"^helix: reloaded agents/__init__\.py$")
        assert "warranty of three years" in installed.run(shop, "helix", "run", "desk", ASK, "--url", url, "--key", key)

        aws = account(shop)
        stage = ["--stage", "trial", "-c", "offline=true", "--yes"]
        deployed = installed.run(shop, "helix", "deploy", *stage, "--no-check", **aws)
        assert "Helix, stage trial, in us-east-1" in deployed
        trial = dict(line.split(None, 1) for line in deployed.splitlines() if line.startswith(("  url ", "  key ")))
        told = installed.run(shop, "helix", "run", "desk", ASK, "--url", trial["url"], "--key", trial["key"])
        assert "warranty of three years" in told
        assert "Stage 'trial' is deleted." in installed.run(shop, "helix", "destroy", *stage, **aws)
    assert {path.name for path in shop.iterdir() if path.is_dir()} <= {
        *(".github", ".helix", "__pycache__", "agents", "cdk.out", "tests")
    }


def account(project: Path) -> dict[str, Any]:
    """Return the address and the credentials of its offline account."""
    lines = (project / ".helix" / "env").read_text().splitlines()
    told = dict(line.removeprefix("export ").split("=", 1) for line in lines if "=AWS" not in line)
    return {name: value.strip("'\"") for name, value in told.items()}


def test_what_a_project_declares(installed: Installed, tmp_path: Path) -> None:
    """Its own CDK app declares a secret, rights, and each way to start a run. Through each, the tool may do what is
    declared, and nothing else."""
    installed.run(tmp_path, "helix", "init", "shop", "--template", "minimal")
    shop = tmp_path / "shop"
    (shop / "auditor.py").write_text(AUDITOR)
    (shop / "app.py").write_text(APP)
    (shop / ".env").write_text(f"CRM_KEY={SECRET}\n")
    settings = (shop / "pyproject.toml").read_text()
    modules, own = 'agents = ["agents"]', 'app = "python app.py"\nagents = ["agents", "auditor"]'
    assert modules in settings
    (shop / "pyproject.toml").write_text(settings.replace(modules, own) + DECLARED)
    program = [str(installed.binaries / "helix")]
    words = ["--port", "0", "--model", "demo", "--no-watch"]
    with dev(shop, *words, program=program, PATH=installed.environment({})["PATH"]) as served:
        url, key = served.told("url"), served.told("key")
        aws = account(shop)
        place = {"endpoint_url": aws["AWS_ENDPOINT_URL"], "region_name": aws["AWS_REGION"]}
        place |= {f"aws_{name}": aws[f"AWS_{name.upper()}"] for name in ("access_key_id", "secret_access_key")}
        for bucket in ("declared-papers", "granted-papers", "denied-papers"):
            boto3.client("s3", **place).put_object(Bucket=bucket, Key="a", Body=b"a paper")
        queue = boto3.client("sqs", **place)
        orders = queue.get_queue_url(QueueName="helix-dev-trigger-orders")["QueueUrl"]
        queue.send_message(QueueUrl=orders, MessageBody='{"id": 7, "about": "papers"}')
        assert SEEN in installed.run(shop, "helix", "run", "auditor", "Look at papers.", "--url", url, "--key", key)

        (stack,) = boto3.client("cloudformation", **place).describe_stacks(StackName="helix-dev")["Stacks"]
        http = next(one["OutputValue"] for one in stack["Outputs"] if one["OutputKey"] == "HttpUrl")
        asked: dict[str, Any] = {"headers": {"Authorization": f"Bearer {key}"}, "json": {"message": "Look at papers."}}
        answered = httpx.post(f"{http}/run?wait=25", **asked, timeout=40, trust_env=False)
        assert (answered.status_code, SEEN in answered.text) == (200, True), answered.text

        def saw(session: str) -> bool:
            return SEEN in show(installed, shop, session, aws)

        for session in ("order-7", "tick"):
            until(partial(saw, session), f"a run of {session}", patience_s=PATIENCE_S)
    assert SECRET not in served.text


def show(installed: Installed, project: Path, session: str, aws: Mapping[str, Any]) -> str:
    """Return the session, once it exists."""
    listed = installed.run(project, "helix", "sessions", "--stage", "dev", **aws)
    return installed.run(project, "helix", "show", session, "--stage", "dev", **aws) if session in listed else ""
