"""`helix deploy` and `helix destroy`: the CDK command line, in the pinned version, and what comes after it.

Law: CDK deploys, in the user's terminal and with the user's credentials; nothing here knows how. A key is made only
where there is none yet, so deploying again gives nobody access.
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
from typing import Any

from helix.cli.dev import pairs
from helix.cli.refusal import COMPLETED, STOPPED, RefusedError
from helix.cli.views import say

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
    def stack(self) -> str:
        return f"Helix-{self.stage}"


def options(
    stage: str, profile: str | None, region: str | None, context: Sequence[str] | None, project: str
) -> DeployOptions:
    from helix.local.project import find_project

    return DeployOptions(find_project(Path(project)), stage, profile, region, {"stage": stage, **pairs(context)})


def deploy(given: DeployOptions, user: str, yes: bool) -> int:
    """`yes`: rights may be widened without a question. Raises `RefusedError` when CDK fails; it has said why."""
    with tempfile.TemporaryDirectory() as place:
        outputs = Path(place) / "outputs.json"
        approval = "never" if yes or not sys.stdin.isatty() else "broadening"
        _cdk(given, "deploy", given.stack, "--require-approval", approval, "--outputs-file", str(outputs))
        told: dict[str, str] = next(iter(json.loads(outputs.read_text(encoding="utf-8")).values()))
    print(f"\nHelix, stage {given.stage}\n\n  url     {told['Url']}")
    if "keys" in given.context.get("auth", "keys"):
        key = first_key(given, told["ControlTable"], user)
        if key is None:
            print("  key     the first one was shown when it was made")
        else:
            print(f"  key     {key}\n          of user {user!r}; it is shown only now")
    print(f"  talk    HELIX_KEY=... helix chat AGENT --url {told['Url']}")
    return COMPLETED


def destroy(given: DeployOptions, yes: bool) -> int:
    if not yes:
        if not sys.stdin.isatty():
            raise RefusedError(f"deleting stage {given.stage!r} wants your word: answer at a terminal, or add --yes")
        word = input(f"This deletes stage {given.stage!r} with all of its sessions. Type its name to go on: ")
        if word.strip() != given.stage:
            say("nothing was deleted")
            return STOPPED
    _cdk(given, "destroy", given.stack, "--force")
    return COMPLETED


def first_key(given: DeployOptions, table: str, user: str) -> str | None:
    """A key for `user`, unless the table has keys already."""
    import boto3

    from helix.adapters.aws.dynamodb import DynamoDBStateStore
    from helix.adapters.system import SystemClock, SystemIds
    from helix.gateway.keys import ApiKeys
    from helix.gateway.principals import Principal

    session = boto3.Session(profile_name=given.profile, region_name=given.region or _offline_region())
    store = DynamoDBStateStore(session.client("dynamodb"), {"control": table}, clock=SystemClock())
    keys = ApiKeys(store, SystemClock())

    async def make() -> str | None:
        if await keys.list(limit=1):
            return None
        return await keys.create(SystemIds(), Principal(user), name="helix deploy")

    return asyncio.run(make())


def _cdk(given: DeployOptions, *words: str) -> None:
    pairs_given = [word for name, value in given.context.items() for word in ("-c", f"{name}={value}")]
    profile = ["--profile", given.profile] if given.profile else []
    app = f'"{sys.executable}" -m infra.app'
    command = [*_command(given.project), *words, "--app", app, *pairs_given, *profile]
    done = subprocess.run(command, cwd=given.project, env=_environment(given), check=False)
    if done.returncode:
        raise RefusedError(f"cdk {words[0]} failed ({done.returncode}); what it said is above")


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

    region = given.region or _offline_region()
    more = {"AWS_REGION": region, "AWS_DEFAULT_REGION": region} if region else {}
    return {**os.environ, **dict.fromkeys(NODE_NOTICES, "1"), **more}


def _offline_region() -> str | None:
    """The emulator has no configuration to look a region up in."""
    return OFFLINE_REGION if os.environ.get("AWS_ENDPOINT_URL") and not os.environ.get("AWS_REGION") else None
