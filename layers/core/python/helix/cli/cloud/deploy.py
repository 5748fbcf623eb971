"""`helix deploy` and `helix destroy`: the CDK command line in the pinned version, and what comes after it.

Law: CDK deploys and deletes, in the user's terminal and with the user's credentials. A key is made only where there is none
yet, so a second deployment gives nobody access. CloudFormation says what a deletion leaves, and the command names it before
and after. Only buckets that the stack's own template lets go are emptied.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from botocore.exceptions import BotoCoreError, ClientError

from helix.cli.cloud.dev import StageName, pairs
from helix.cli.cloud.shards import check_shards
from helix.cli.options import Context, Profile, Project, Region
from helix.cli.output import COMPLETED, STOPPED, RefusedError, ask, say, write
from helix.cli.stores import aws_client
from helix.cli.view.base import command
from helix.gateway.authoriser import ApiKeys, Principal
from helix.local.project import NODE_NOTICES, find_project
from helix.runtime.system import SystemClock, SystemIds
from helix.runtime.tables import open_tables

NESTED = "AWS::CloudFormation::Stack"
BUCKET = "AWS::S3::Bucket"
KEY = "AWS::KMS::Key"
RETAINED = frozenset({"Retain", "RetainExceptOnCreate", "Snapshot"})


@dataclass(frozen=True, slots=True)
class Resource:
    kind: str
    name: str
    retained: bool

    @property
    def words(self) -> str:
        """`table helix-prod-sessions`."""
        return f"{self.kind.rpartition('::')[2].lower()} {self.name}"


@dataclass(frozen=True, slots=True)
class Deployed:
    """A stage as CloudFormation has it. `protected`: the stack refuses its deletion."""

    account: str
    protected: bool
    resources: tuple[Resource, ...]

    @property
    def retained(self) -> list[Resource]:
        return [resource for resource in self.resources if resource.retained]

    @property
    def buckets(self) -> list[str]:
        """Those that are deleted, which S3 refuses while they hold anything."""
        return [r.name for r in self.resources if r.kind == BUCKET and not r.retained]

    @property
    def key(self) -> str | None:
        """The key that is deleted, which KMS does 30 days later."""
        return next((r.name for r in self.resources if r.kind == KEY and not r.retained), None)


def look(cloudformation: Any, name: str) -> Deployed | None:
    """None: there is no such stack."""
    try:
        stack = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
    except ClientError as error:
        if "does not exist" in str(error):
            return None
        raise
    if stack["StackStatus"] == "DELETE_COMPLETE":
        return None
    protected = bool(stack.get("EnableTerminationProtection"))
    return Deployed(stack["StackId"].split(":")[4], protected, tuple(_resources(cloudformation, stack["StackId"])))


def _resources(cloudformation: Any, stack: str) -> Iterator[Resource]:
    template = cloudformation.get_template(StackName=stack, TemplateStage="Processed")["TemplateBody"]
    known: Mapping[str, Any] = (json.loads(template) if isinstance(template, str) else template)["Resources"]
    for page in cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack):
        for found in page["StackResourceSummaries"]:
            if found["ResourceStatus"] == "DELETE_COMPLETE" or not found.get("PhysicalResourceId"):
                continue
            policy = known.get(found["LogicalResourceId"], {}).get("DeletionPolicy", "Delete")
            yield Resource(found["ResourceType"], found["PhysicalResourceId"], policy in RETAINED)
            if found["ResourceType"] == NESTED:
                yield from _resources(cloudformation, found["PhysicalResourceId"])


def empty(s3: Any, bucket: str) -> int:
    """Delete every object, version and unfinished upload of the bucket. Returns how many objects and versions."""
    count = 0
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        there = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        if there:
            objects = [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in there]
            refused = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True}).get("Errors", [])
            if refused:
                raise ClientError({"Error": refused[0]}, "DeleteObjects")
            count += len(there)
    for page in s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket):
        for upload in page.get("Uploads", []):
            s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    return count


ENDPOINT = "AWS_ENDPOINT_URL"
OFFLINE_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class Deployment:
    """A stage of a project, in the account of the AWS configuration's `profile` and `region`. `context` is CDK's."""

    stage: StageName = "dev"
    profile: Profile = None
    region: Region = None
    context: Context = None
    project: Project = "."


class Target:
    """What a deployment is about."""

    def __init__(self, given: Deployment) -> None:
        self.context = {"stage": given.stage, **pairs(given.context)}
        if self.context.get("offline") == "true" and (endpoint := os.environ.get(ENDPOINT)):
            self.context.setdefault("endpoint", endpoint.rstrip("/"))
        self.root, self.stage, self.profile = find_project(Path(given.project)), self.context["stage"], given.profile
        offline = OFFLINE_REGION if os.environ.get(ENDPOINT) and not os.environ.get("AWS_REGION") else None
        self.region = given.region or self.context.get("region") or offline  # the emulator has no configuration
        self.construct, self.stack = f"Helix-{self.stage}", f"helix-{self.stage}"  # to CDK, and to CloudFormation

    def setting(self, name: str, default: str) -> str:
        """Of context: the command line's, else that of cdk.json."""
        stored = json.loads((self.root / "cdk.json").read_text(encoding="utf-8")).get("context", {})
        return str(self.context.get(name, stored.get(name, default)))

    def client(self, service: str, region: str | None = None) -> Any:
        return aws_client(service, self.profile, region or self.region)

    def cdk(self, verb: str, *words: str) -> None:
        context = [word for name, value in self.context.items() for word in ("-c", f"{name}={value}")]
        profile = ["--profile", self.profile] if self.profile else []
        app = ["--app", f'"{sys.executable}" -m infra.app', "--no-notices"]
        line = [*self._program(), verb, self.construct, *words, *app, *context, *profile]
        region = {"AWS_REGION": self.region, "AWS_DEFAULT_REGION": self.region} if self.region else {}
        done = subprocess.run(line, cwd=self.root, env={**os.environ, **NODE_NOTICES, **region}, check=False)
        if done.returncode:
            more = ". An account and region need `npx cdk bootstrap` once" if verb == "deploy" else ""
            raise RefusedError(f"cdk {verb} failed ({done.returncode}); its output is above{more}")

    def _program(self) -> list[str]:
        """The version in package.json: the one that `npm ci` has installed, or else npx fetches it."""
        installed = self.root / "node_modules" / ".bin" / "cdk"
        if installed.is_file():
            return [str(installed)]
        if shutil.which("npx") is None:
            raise RefusedError(
                "Node is missing: the CDK command line needs it (https://nodejs.org, version 20 or later)"
            )
        package: dict[str, Any] = json.loads((self.root / "package.json").read_text(encoding="utf-8"))
        return ["npx", "--yes", f"aws-cdk@{package['devDependencies']['aws-cdk']}"]


@contextlib.contextmanager
def _aws() -> Iterator[None]:
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise RefusedError(f"AWS refuses: {error}") from error


def deploy(
    given: Deployment,
    user: Annotated[str, typer.Option("--user", help="User of the first API key")] = "admin",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before rights are widened")] = False,
) -> None:
    target = Target(given)
    with _aws():
        keep_log_role(target)
        check_shards(target.client("kinesis"), f"{target.stack}-chunks", int(target.setting("shards", "1")))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outputs.json"
        approval = "never" if yes else "broadening"
        target.cdk("deploy", "--require-approval", approval, "--outputs-file", str(file))
        outputs: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))[target.stack]
    rows = [("url", outputs["Url"])]
    if "keys" in target.setting("auth", "keys"):
        with _aws():
            key = first_key(target, outputs, user)
        rows.append(("key", key or "the first one was shown when it was made"))
        rows += [("", f"of user {user!r}; it is shown only now")] if key else []
    rows.append(("talk", f"HELIX_KEY=... {command('chat', 'AGENT', '--url', outputs['Url'])}"))
    write(f"\nHelix, stage {target.stage}, in {outputs['Region']}\n")
    for name, value in rows:
        write(f"  {name:<6}{value}")


def keep_log_role(target: Target) -> None:
    """API Gateway writes the logs of all APIs of an account and region by one role. The stack sets it where there is none.
    It replaces an existing one only where the setting `api_log_role` says so."""
    if target.setting("api_log_role", "") == "" and target.setting("offline", "") != "true":
        known = target.client("apigateway").get_account().get("cloudwatchRoleArn")
        target.context["api_log_role"] = "false" if known else "true"


def first_key(target: Target, outputs: Mapping[str, str], user: str) -> str | None:
    """A key for `user`, unless the stage has keys already."""
    client = target.client("dynamodb", outputs["Region"])
    keys = ApiKeys(open_tables(client, {"control": outputs["ControlTable"]}), SystemClock())

    async def make() -> str | None:
        if await keys.list(limit=1):
            return None
        return await keys.create(SystemIds(), Principal(user), name="helix deploy")

    return asyncio.run(make())


def destroy(given: Deployment, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False) -> int:
    target = Target(given)
    with _aws():
        deployed = look(target.client("cloudformation"), target.stack)
        if deployed is None:
            raise RefusedError(
                f"there is no stage {target.stage!r} here: no stack {target.stack!r} in this account and region"
            )
        if deployed.protected:
            raise RefusedError(
                f"stage {target.stage!r} is protected against its deletion, because it retains its data. To delete the "
                "data too, deploy it with -c retain=false first; to keep the data, disable the stack's termination "
                "protection"
            )
        write(f"Stage {target.stage!r} in account {deployed.account} has {len(deployed.resources)} resources.")
        _show_retained(deployed, "will stay", "None of its data will stay.")
        if not (yes or _agreed(target.stage)):
            say("nothing was deleted")
            return STOPPED
        _delete(target, deployed)
    write(f"\nStage {target.stage!r} is deleted.")
    _show_retained(deployed, "stayed", "Nothing of its data stayed.")
    return COMPLETED


def _agreed(stage: str) -> bool:
    if not sys.stdin.isatty():
        raise RefusedError(f"deleting stage {stage!r} needs your consent: answer at a terminal, or add --yes")
    return ask("This deletes it, sessions and all. Type its name to continue: ") == stage


def _show_retained(deployed: Deployed, words: str, otherwise: str) -> None:
    for resource in deployed.retained:
        write(f"  {words}: {resource.words}")
    if not deployed.retained:
        write(f"  {otherwise}")
    if deployed.key:
        write(f"  KMS deletes key {deployed.key} after 30 days; until then it can be restored.")


def _delete(target: Target, deployed: Deployed) -> None:
    """Runs in progress may fill the bucket again before their functions are gone: then once more, without them."""
    _empty(target, deployed)
    try:
        target.cdk("destroy", "--force")
    except RefusedError:
        if not _empty(target, deployed):
            raise
        target.cdk("destroy", "--force")


def _empty(target: Target, deployed: Deployed) -> int:
    """How many objects there were."""
    storage, count = target.client("s3"), 0
    for bucket in deployed.buckets:
        count += (found := empty(storage, bucket))
        write(f"  emptied bucket {bucket}: {found} objects")
    return count
