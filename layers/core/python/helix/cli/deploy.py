"""`helix deploy` and `helix destroy`: the CDK command line, in the pinned version, and what comes after it.

Law: CDK deploys and deletes, in the user's terminal and with the user's credentials; nothing here knows how. A key is
made only where there is none yet, so deploying again gives nobody access. What a deletion leaves is named before and after.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix.cli.dev import pairs
from helix.cli.hints import program
from helix.cli.refusal import COMPLETED, STOPPED, RefusedError
from helix.cli.views import say

if TYPE_CHECKING:
    from helix.cli.removal import Deployed

ENDPOINT = "AWS_ENDPOINT_URL"
OFFLINE_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class DeployOptions:
    """`context` is CDK's; `profile` and `region` are the AWS configuration's."""

    project: Path
    stage: str
    profile: str | None = None
    region: str | None = None
    context: Mapping[str, str] = field(default_factory=dict)

    @property
    def construct(self) -> str:
        """What CDK calls the stack."""
        return f"Helix-{self.stage}"

    @property
    def stack(self) -> str:
        """What CloudFormation calls it."""
        return f"helix-{self.stage}"

    def setting(self, name: str, default: str) -> str:
        """Of context: the command line's, else that of cdk.json."""
        kept = json.loads((self.project / "cdk.json").read_text(encoding="utf-8")).get("context", {})
        return str(self.context.get(name, kept.get(name, default)))

    def client(self, service: str, region: str | None = None) -> Any:
        """boto3's. Raises `RefusedError` without a region or with an unknown profile."""
        import boto3
        from botocore.exceptions import BotoCoreError

        region = region or self.region or self.context.get("region") or _offline_region()
        try:
            return boto3.Session(profile_name=self.profile, region_name=region).client(service)
        except BotoCoreError as error:
            raise RefusedError(f"{error} (--profile and --region choose)") from error


def options(
    stage: str, profile: str | None, region: str | None, context: Sequence[str] | None, project: str
) -> DeployOptions:
    from helix.local.project import find_project

    given = {"stage": stage, **pairs(context)}
    if given.get("offline") == "true" and (endpoint := os.environ.get(ENDPOINT)):
        given.setdefault("endpoint", endpoint.rstrip("/"))
    return DeployOptions(find_project(Path(project)), given["stage"], profile, region, given)


def deploy(given: DeployOptions, user: str, yes: bool) -> int:
    """`yes`: rights may be widened without a question. Raises `RefusedError` when CDK fails; it has said why."""
    with tempfile.TemporaryDirectory() as place:
        outputs = Path(place) / "outputs.json"
        approval = "never" if yes else "broadening"
        _cdk(given, "deploy", "--require-approval", approval, "--outputs-file", str(outputs))
        told: dict[str, str] = json.loads(outputs.read_text(encoding="utf-8"))[given.stack]
    rows = [("url", told["Url"])]
    if "keys" in given.setting("auth", "keys"):
        key = first_key(given, told, user)
        rows.append(("key", key or "the first one was shown when it was made"))
        rows += [("", f"of user {user!r}; it is shown only now")] if key else []
    rows.append(("talk", f"HELIX_KEY=... {program()} chat AGENT --url {told['Url']}"))
    print(f"\nHelix, stage {given.stage}, in {told['Region']}\n")
    for name, value in rows:
        print(f"  {name:<6}{value}")
    return COMPLETED


def destroy(given: DeployOptions, yes: bool) -> int:
    """Raises `RefusedError` for a stage that is protected or not there, and when CDK or AWS refuses."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return _destroy(given, yes)
    except (BotoCoreError, ClientError) as error:
        raise RefusedError(f"AWS refuses: {error}") from error


def _destroy(given: DeployOptions, yes: bool) -> int:
    from helix.cli.removal import look

    deployed = look(given.client("cloudformation"), given.stack)
    if deployed is None:
        raise RefusedError(
            f"there is no stage {given.stage!r} here: no stack {given.stack!r} in this account and region"
        )
    if deployed.protected:
        raise RefusedError(
            f"stage {given.stage!r} is protected against its deletion, because it retains its data. To give the data up "
            "too, deploy it with -c retain=false first; to keep the data, lift the stack's termination protection"
        )
    print(f"Stage {given.stage!r} in account {deployed.account} has {len(deployed.resources)} resources.")
    _tell_what_stays(deployed, "will stay")
    if not (yes or _agreed(given.stage)):
        say("nothing was deleted")
        return STOPPED
    _delete(given, deployed)
    print(f"\nStage {given.stage!r} is deleted.")
    _tell_what_stays(deployed, "stayed")
    return COMPLETED


def _agreed(stage: str) -> bool:
    if not sys.stdin.isatty():
        raise RefusedError(f"deleting stage {stage!r} wants your word: answer at a terminal, or add --yes")
    return input("This deletes it, sessions and all. Type its name to go on: ").strip() == stage


def _tell_what_stays(deployed: Deployed, words: str) -> None:
    for resource in deployed.retained:
        print(f"  {words}: {resource.words}")
    if not deployed.retained:
        print(f"  Nothing of its data {words}." if words == "stayed" else "  None of its data will stay.")
    if deployed.key:
        print(f"  KMS deletes key {deployed.key} after 30 days; until then it can be restored.")


def _delete(given: DeployOptions, deployed: Deployed) -> None:
    """Runs that are under way may fill the bucket again before their functions are gone: then once more, without them."""
    _empty(given, deployed)
    try:
        _cdk(given, "destroy", "--force")
    except RefusedError:
        if not _empty(given, deployed):
            raise
        _cdk(given, "destroy", "--force")


def _empty(given: DeployOptions, deployed: Deployed) -> int:
    """How many objects there were."""
    from helix.cli.removal import empty

    storage, count = given.client("s3"), 0
    for bucket in deployed.buckets:
        count += (found := empty(storage, bucket))
        print(f"  emptied bucket {bucket}: {found} objects")
    return count


def first_key(given: DeployOptions, outputs: Mapping[str, str], user: str) -> str | None:
    """A key for `user`, unless the stage has keys already."""
    from helix.adapters.aws.dynamodb import DynamoDBStateStore
    from helix.adapters.system import SystemClock, SystemIds
    from helix.gateway.keys import ApiKeys
    from helix.gateway.principals import Principal

    client = given.client("dynamodb", outputs["Region"])
    store = DynamoDBStateStore(client, {"control": outputs["ControlTable"]}, clock=SystemClock())
    keys = ApiKeys(store, SystemClock())

    async def make() -> str | None:
        if await keys.list(limit=1):
            return None
        return await keys.create(SystemIds(), Principal(user), name="helix deploy")

    return asyncio.run(make())


def _cdk(given: DeployOptions, verb: str, *words: str) -> None:
    pairs_given = [word for name, value in given.context.items() for word in ("-c", f"{name}={value}")]
    profile = ["--profile", given.profile] if given.profile else []
    app = ["--app", f'"{sys.executable}" -m infra.app', "--no-notices"]
    command = [*_command(given.project), verb, given.construct, *words, *app, *pairs_given, *profile]
    done = subprocess.run(command, cwd=given.project, env=_environment(given), check=False)
    if done.returncode:
        more = ". An account and region need `npx cdk bootstrap` once" if verb == "deploy" else ""
        raise RefusedError(f"cdk {verb} failed ({done.returncode}); what it said is above{more}")


def _command(root: Path) -> list[str]:
    """The version in package.json: the one that `npm ci` has installed, or else npx fetches it."""
    installed = root / "node_modules" / ".bin" / "cdk"
    if installed.is_file():
        return [str(installed)]
    if shutil.which("npx") is None:
        raise RefusedError("Node is missing: the CDK command line needs it (https://nodejs.org, version 22 or later)")
    package: dict[str, Any] = json.loads((root / "package.json").read_text(encoding="utf-8"))
    return ["npx", "--yes", f"aws-cdk@{package['devDependencies']['aws-cdk']}"]


def _environment(given: DeployOptions) -> dict[str, str]:
    from helix.local.project import NODE_NOTICES

    region = given.region or given.context.get("region") or _offline_region()
    more = {"AWS_REGION": region, "AWS_DEFAULT_REGION": region} if region else {}
    return {**os.environ, **NODE_NOTICES, **more}


def _offline_region() -> str | None:
    """The emulator has no configuration to look a region up in."""
    return OFFLINE_REGION if os.environ.get(ENDPOINT) and not os.environ.get("AWS_REGION") else None
