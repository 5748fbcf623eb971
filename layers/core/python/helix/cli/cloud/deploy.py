"""`helix deploy`: check the stage, run the pinned version of the CDK CLI, and create the first keys.

Law: CDK deploys in the user's terminal with the user's credentials. Only the first deployment of a stage creates
keys, so a second one does not grant access to anyone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from botocore.exceptions import BotoCoreError, ClientError

from helix.adapters.system import SystemClock, SystemIds
from helix.cli.cloud.check import run_checks
from helix.cli.cloud.deploy_checks import check_secrets, check_shards, check_streaming, keep_key
from helix.cli.cloud.dev import StageName, parse_context
from helix.cli.cloud.images import check_builder
from helix.cli.cloud.stack import protect_tables, read_stage, release_failed
from helix.cli.cloud.stopping import schedules_on
from helix.cli.options import Context, Profile, Project, Region
from helix.cli.output import COMPLETED, RefusedError, write
from helix.cli.stores import aws_client
from helix.cli.view.base import command
from helix.fleet.metrics_token import make_token
from helix.gateway.authoriser import ApiKeys, Principal
from helix.infra.regions import console_problem
from helix.local.endpoint import emulator_problem, given_endpoint
from helix.local.node import NODE_NOTICES, node_problem
from helix.local.project import QUICK_SYNTH, app_command, read_assembly
from helix.ports.state_store import StateStore
from helix.runtime.project import find_project, read_project, shipped
from helix.runtime.tables import open_tables

OFFLINE_REGION = "us-east-1"
IN_PLACE = "--no-staging"
"""The option that makes CDK upload layers from the folder they were built in. By default it copies them first, all 170
MB."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Options for the commands that deploy or destroy a stage."""

    stage: StageName = "dev"
    """The name of the stage. A `stage` in `context` overrides it."""
    profile: Profile = None
    """The AWS configuration profile. None: the default profile."""
    region: Region = None
    """The AWS region. None: the region from `context` or the AWS configuration."""
    context: Context = None
    """Deployment settings as `KEY=VALUE`, which are passed to CDK as context."""
    project: Project = "."
    """The project's folder, or one of its subfolders."""


class Target:
    """The stage that a command deploys or destroys, with its project and its AWS clients."""

    def __init__(self, given: Deployment) -> None:
        self.context = {"stage": given.stage, **parse_context(given.context)}
        self.root, self.stage, self.profile = find_project(Path(given.project)), self.context["stage"], given.profile
        project = read_project(self.root)
        self.app, self.settings = project.app, {**project.settings(self.stage), **self.context}
        if (problem := emulator_problem(offline=self.setting("offline", "") == "true")) is not None:
            raise RefusedError(problem)
        offline = OFFLINE_REGION if given_endpoint() and not os.environ.get("AWS_REGION") else None
        self.region = given.region or self.context.get("region") or offline  # the emulator needs no AWS configuration
        self.out: TextIO | None = None
        """The file that CDK writes to. None: standard output."""
        self.construct, self.stack = f"Helix-{self.stage}", f"helix-{self.stage}"  # the names in CDK and CloudFormation

    def setting(self, name: str, default: str) -> str:
        """Return a setting from the command line, or else from the project, as a string."""
        found = self.context.get(name, self.settings.get(name, default))
        return found if isinstance(found, str) else json.dumps(found)

    def client(self, service: str, region: str | None = None) -> Any:
        return aws_client(service, self.profile, region or self.region)

    def cdk(self, verb: str, *words: str) -> None:
        """Deploy or destroy the stage.

        If the project has its own CDK app, synthesise it first, because only its manifest lists its stacks. A deployment
        then skips the stacks of other stages. A deletion covers the stage's stack and those that depend on it.
        """
        context = [word for name, value in self.context.items() for word in ("-c", f"{name}={value}")]
        variables = {} if verb == "deploy" else QUICK_SYNTH
        if not self.app:
            app = f'"{sys.executable}" -m helix.infra.app'
            self._cdk(verb, self.construct, *words, IN_PLACE, "--app", app, *context, **variables)
            return
        with tempfile.TemporaryDirectory() as folder:
            app = app_command(self.app)
            self._cdk("synth", "--quiet", IN_PLACE, "--output", folder, "--app", app, *context, **variables)
            stacks = read_assembly(Path(folder)).of_stage(self.stage).stacks
            chosen = [stack.id for stack in stacks if verb == "deploy" or stack.stage]
            self._cdk(verb, *chosen, *words, "--app", folder)

    def _cdk(self, verb: str, *words: str, **variables: str) -> None:
        profile = ["--profile", self.profile] if self.profile else []
        line = [*self._find_cdk(), verb, *words, "--no-notices", *profile]
        region = {"AWS_REGION": self.region, "AWS_DEFAULT_REGION": self.region} if self.region else {}
        environment = {**os.environ, **NODE_NOTICES, **region, **variables}
        done = subprocess.run(line, cwd=self.root, env=environment, stdout=self.out, check=False)
        if done.returncode:
            more = ". An account and region need `npx cdk bootstrap` once" if verb == "deploy" else ""
            raise RefusedError(f"cdk {verb} failed ({done.returncode}); its output is above{more}")

    def _find_cdk(self) -> list[str]:
        """Return the command that runs the CDK version that Helix requires: the project's own installation if it has that
        version, otherwise npx, which downloads it."""
        wanted = json.loads(shipped("package.json").read_text(encoding="utf-8"))["devDependencies"]["aws-cdk"]
        modules = self.root / "node_modules"
        with contextlib.suppress(OSError, ValueError, KeyError):
            if json.loads((modules / "aws-cdk" / "package.json").read_text(encoding="utf-8"))["version"] == wanted:
                return [str(modules / ".bin" / "cdk")]
        if (problem := node_problem()) is not None:
            raise RefusedError(problem)
        return ["npx", "--yes", f"aws-cdk@{wanted}"]


@contextlib.contextmanager
def aws_errors() -> Iterator[None]:
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise RefusedError(f"AWS refuses: {error}") from error


def deploy(
    given: Deployment,
    user: Annotated[str, typer.Option("--user", help="User of the first API key")] = "admin",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before rights are widened")] = False,
    checked: Annotated[bool, typer.Option("--check/--no-check", help="Check the stage afterwards")] = True,
) -> int:
    target = Target(given)
    outputs = deploy_stage(target, yes=yes)
    shown = (("url", "Url"), ("http", "HttpUrl"), ("calls", "CallsUrl"), ("console", "ConsoleUrl"))
    rows = [(name, outputs[output]) for name, output in shown if output in outputs]
    if "keys" in target.setting("auth", "keys"):
        with aws_errors():
            key = create_first_key(target, outputs, user)
        rows.append(("key", key or "the first one was shown when it was made"))
        rows += [("", f"of user {user!r}; it is shown only now")] if key else []
    if "MetricsSecretArn" not in outputs:
        with aws_errors():
            token = create_metrics_token(target, outputs)
        rows += [("token", token), ("", "for /metrics; it is shown only now")] if token else []
    if int(target.setting("concurrency", "0")):
        rows.append(("limit", outputs["Concurrency"]))
    rows.append(("talk", f"HELIX_KEY=... {command('chat', 'AGENT', '--url', outputs['Url'])}"))
    write(f"\nHelix, stage {target.stage}, in {outputs['Region']}\n")
    width = max(6, *(len(name) + 1 for name, _ in rows))
    for name, value in rows:
        write(f"  {name:<{width}}{value}")
    if not checked:
        return COMPLETED
    write()
    return run_checks(target.client, target.stage)


def deploy_stage(target: Target, *, yes: bool) -> dict[str, str]:
    """Deploy the stage, unless its current state does not allow it. Return the outputs of its stack."""
    tools = read_project(target.root).tools
    if target.setting("offline", "") != "true":
        check_builder(tools.images(target.stage))
    with aws_errors():
        check_console(target)
        check_secrets(target.client, tools.places(target.stage))
        release_failed(target.client("cloudformation"), target.stack)
        keep_log_role(target)
        read_concurrency(target)
        living = read_stage(target.client("cloudformation"), target.stack)
        keep_key(living, target.setting("key", ""), target.context)
        wanted = target.setting("streaming", "kinesis")
        clients = (target.client("cloudformation"), target.client("cloudwatch"))
        check_streaming(*clients, SystemClock(), target.stack, wanted)
        if (shards := target.setting("shards", "1")).isdecimal():  # otherwise the synthesis reports the error
            check_shards(target.client("kinesis"), f"{target.stack}-chunks", int(shards))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outputs.json"
        approval = "never" if yes else "broadening"
        target.cdk("deploy", "--require-approval", approval, "--outputs-file", str(file))
        outputs: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))[target.stack]
    with aws_errors():
        deployed = read_stage(target.client("cloudformation"), target.stack)
        assert deployed is not None, "it was deployed just now"
        protect_tables(target.client("dynamodb"), deployed)
        schedules_on(target.client("events"), deployed)
    return outputs


def check_console(target: Target) -> None:
    """Raise `RefusedError` if the console needs CloudFront and the region does not support it. The synthesis cannot check
    this, because most templates are region-agnostic."""
    console = target.setting("console", "off") if target.setting("offline", "") != "true" else "off"
    problem = console_problem(console, str(target.client("cloudformation").meta.region_name))
    if problem is not None:
        raise RefusedError(problem)


def keep_log_role(target: Target) -> None:
    """Keep an existing role that API Gateway uses to write the logs of all of the account's APIs in this region.

    The stack sets the role if it is missing. It replaces an existing role only if the setting `api_log_role` says so.
    """
    if target.setting("api_log_role", "") == "" and target.setting("offline", "") != "true":
        known = target.client("apigateway").get_account().get("cloudwatchRoleArn")
        target.context["api_log_role"] = "false" if known else "true"


def read_concurrency(target: Target) -> None:
    """Set `concurrency` in the context to the concurrency that is available to the stage. This is the account's unreserved
    concurrency in the region plus the concurrency that the stage's own functions already reserve."""
    if target.setting("concurrency", "") != "" or target.setting("offline", "") == "true":
        return
    client = target.client("lambda")
    limit: int = client.get_account_settings()["AccountLimit"]["UnreservedConcurrentExecutions"]
    for verb in sorted(path.parent.name for path in shipped("functions").glob("*/handler.py")):
        try:
            known = client.get_function_concurrency(FunctionName=f"{target.stack}-{verb}")
        except client.exceptions.ResourceNotFoundException:
            continue
        limit += known.get("ReservedConcurrentExecutions", 0)
    target.context["concurrency"] = str(limit)


def create_first_key(target: Target, outputs: Mapping[str, str], user: str) -> str | None:
    """Create a key for `user`. Return None if the stage already has keys."""
    keys = ApiKeys(_open_control(target, outputs), SystemClock())

    async def make() -> str | None:
        if await keys.list(limit=1):
            return None
        return await keys.create(SystemIds(), Principal(user), name="helix deploy")

    return asyncio.run(make())


def create_metrics_token(target: Target, outputs: Mapping[str, str]) -> str | None:
    """Create the bearer token for /metrics. Return None if the stage already has one."""
    return asyncio.run(make_token(_open_control(target, outputs), SystemIds()))


def _open_control(target: Target, outputs: Mapping[str, str]) -> StateStore:
    client = target.client("dynamodb", outputs["Region"])
    return open_tables(client, {"control": outputs["ControlTable"]})
