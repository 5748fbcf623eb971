"""`helix check --stage`: a smoke test of a deployed stage, with a report that is safe to share. `helix check AGENT`: which
tools of an agent are strict.

Law: it makes no permanent changes. Its sessions belong to a dedicated user and are deleted. Its key is revoked, and would
expire anyway. The alarm that it sets returns to its real state within a minute. The report does not contain secrets,
account numbers, or other users' data.
"""

from __future__ import annotations

import asyncio
import platform
import re
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from botocore.exceptions import BotoCoreError, ClientError

from helix._version import __version__
from helix.adapters.system import SystemClock
from helix.cli.agent_lookup import load_agent
from helix.cli.cloud.checks import AS_DEPLOYED, CHECKS, Finding, Probe, SocketAccess, StageClients
from helix.cli.cloud.dev import StageName
from helix.cli.options import Context, Json, Profile, Region
from helix.cli.output import COMPLETED, FAILED, RefusedError, write, write_json
from helix.cli.stores import aws_client
from helix.core.json import JsonObject
from helix.runtime.models import strict_tools_of

PRIVATE = re.compile(r"\b\d{12}\b|helix_[0-9A-Z]{26}_[0-9A-Z]{32}")
"""The pattern of account numbers and keys, which the report masks."""


def check(
    agent: Annotated[
        str | None,
        typer.Argument(metavar="[AGENT]", help="Check the tools and settings of an agent instead of a stage"),
    ] = None,
    stage: StageName = "dev",
    url: Annotated[
        str | None, typer.Option("--url", metavar="WSS", help="URL that clients connect to [default: as deployed]")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="API key or token [default: a new key, which is revoked afterwards]")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Deploy a stage of this name, play every scene on it, and destroy it")
    ] = False,
    most: Annotated[float, typer.Option("--most", min=0, help="With --live: what it may cost, in US dollars")] = 1.0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --live: do not ask")] = False,
    context: Context = None,
    profile: Profile = None,
    region: Region = None,
    as_json: Json = False,
) -> int:
    if agent is not None:
        return check_agent(agent, as_json=as_json)
    if live:
        from helix.cli.cloud.live.command import check_live

        if url or key:
            raise RefusedError("--live creates its own stage and key: leave out --url and --key")
        return check_live(stage, profile, region, context, most, yes=yes, as_json=as_json)
    if context:
        raise RefusedError("--context needs --live, which deploys a stage")
    return run_checks(
        lambda service: aws_client(service, profile, region), stage, SocketAccess(url, key), as_json=as_json
    )


def check_agent(spec: str, *, as_json: bool = False) -> int:
    """Print which tools of the agent and its sub-agents are strict, and why the others are not. Raises `DefinitionError`
    for a setting that a model refuses."""
    found = list(strict_tools_of(load_agent(spec)))
    for name in dict.fromkeys(each.agent for each in found):
        own = [each for each in found if each.agent == name]
        if not as_json:
            write(f"{name} · {own[0].model}")
        for each in own:
            if as_json:
                write_json(asdict(each))
            else:
                write(
                    f"  {'strict' if each.strict else 'not strict':<10}  {each.tool}{each.reason and f': {each.reason}'}"
                )
    return COMPLETED


def run_checks(client: Any, stage: str, access: SocketAccess = AS_DEPLOYED, *, as_json: bool = False) -> int:
    """Check a stage and print the report. Return the exit code `FAILED` if a check failed, otherwise `COMPLETED`."""
    try:
        clients = StageClients.of(client, stage)
    except (BotoCoreError, ClientError) as error:
        raise RefusedError(f"there is no stage {stage!r} that can be checked here: {error}") from error
    show({"report": "helix check", **versions(clients)}, as_json)
    return asyncio.run(_report(clients, access, as_json))


async def _report(clients: StageClients, access: SocketAccess, as_json: bool) -> int:
    failed = False
    async with Probe(clients, access) as probe:
        for name, look in CHECKS.items():
            finding = await probe.run_check(name, look)
            failed = failed or finding.result == "failed"
            show(fields_of(finding), as_json)
    return FAILED if failed else COMPLETED


def versions(clients: StageClients) -> JsonObject:
    import boto3

    at = datetime.fromtimestamp(SystemClock().now(), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    found: JsonObject = {"stage": clients.stage, "region": clients.region, "at": at, "helix": __version__}
    return {**found, "functions": clients.runtime, "python": platform.python_version(), "boto3": boto3.__version__}


def fields_of(finding: Finding) -> JsonObject:
    seconds = round(finding.seconds, 1)
    return {"check": finding.name, "result": finding.result, "seconds": seconds, "detail": finding.detail}


def show(line: JsonObject, as_json: bool) -> None:
    masked: JsonObject = {name: PRIVATE.sub("...", v) if isinstance(v, str) else v for name, v in line.items()}
    if as_json:
        write_json(masked)
    elif "report" in masked:
        write(" · ".join(str(value) if name == "report" else f"{name} {value}" for name, value in masked.items()))
    else:
        detail = f"  {masked['detail']}" if masked["detail"] else ""
        write(f"  {masked['result']:<8} {masked['seconds']:>6} s  {masked['check']}{detail}")
