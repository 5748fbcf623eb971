"""`helix check --live`: deploy a temporary stage, play every scene on it, destroy it, and report the results.

Law: the command creates the stage itself, so it cannot touch existing data, and always destroys it. The report goes to
standard output, without account numbers or keys. Everything else goes to standard error. Once the cost limit is
reached, no further scene is played.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from helix.adapters.system import SystemClock
from helix.cli.cloud.check import fields_of, show, versions
from helix.cli.cloud.checks import AS_DEPLOYED, Finding, NotRunError, Probe, StageClients
from helix.cli.cloud.deploy import Deployment, Target, aws_errors, deploy_stage
from helix.cli.cloud.destroy import delete_stage
from helix.cli.cloud.dev import parse_context
from helix.cli.cloud.live.scenes import NEW, OLD, Scene, key_text, run_across_upgrade, secret_name
from helix.cli.cloud.live.script import FIRST, PLAYED, SECOND, Group
from helix.cli.cloud.stack import describe_stack, read_stage, read_templates
from helix.cli.output import COMPLETED, FAILED, STOPPED, RefusedError, ask, say
from helix.core.ledger import NANOS, total
from helix.fleet.idle import idle_lines

PROJECT = Path(__file__).parent / "project"
AT_ONCE = 6
SCENE_USD = 0.005
"""The assumed maximum cost of a scene in US dollars, for 100 invocations and 1,000 requests. Most scenes cost a tenth of
that."""
DEPLOYED_USD = 0.02
"""The cost in US dollars of deploying and deleting a stage: requests to CloudFormation, S3 and CloudWatch Logs."""
MONTH_HOURS = 730
CONTEXT = {"key": "aws", "retain": "false", "console": "http", "dashboards": "false", "auth": "keys"}


class Money:
    """An upper bound on the cost so far, in US dollars: the hourly cost of the stage, plus the assumed maximum for each
    scene."""

    def __init__(self, most: float) -> None:
        self.most, self.spent = most, 0.0
        self._hourly, self._since = 0.0, 0.0

    def set_hourly_cost(self, hourly: float, now: float) -> None:
        """Set the hourly cost of the deployed stage from now on. 0 means that the stage no longer exists."""
        self.spent += self._hourly * (now - self._since) / 3600
        self._hourly, self._since = hourly, now

    def can_afford(self, cost: float, now: float) -> bool:
        self.set_hourly_cost(self._hourly, now)
        if self.spent + cost > self.most:
            return False
        self.spent += cost
        return True


class LiveCheck:
    def __init__(self, given: Deployment, most: float, as_json: bool) -> None:
        self._given, self._as_json = given, as_json
        self._clock, self._money, self._findings = SystemClock(), Money(most), list[Finding]()

    def run(self) -> int:
        """Play all scenes. Return the exit code `FAILED` if a scene failed, otherwise `COMPLETED`."""
        with tempfile.TemporaryDirectory(prefix="helix-live-") as folder:
            project = Path(shutil.copytree(PROJECT, Path(folder) / "project"))
            first = self._target(project, streaming="kinesis")
            if describe_stack(first.client("cloudformation"), first.stack) is not None:
                raise RefusedError(
                    f"stage {first.stage!r} already exists: choose another name, because the check deletes its stage at "
                    "the end"
                )
            begun = self._clock.now()
            with self._secret(first):
                self._play(first, FIRST, upgrade=project / "live_agents.py")
                self._play(self._target(project, streaming="direct"), SECOND)
        failed = [finding.name for finding in self._findings if finding.result == "failed"]
        show(
            {
                "report": "end",
                "scenes": len(self._findings),
                "failed": len(failed),
                "minutes": round((self._clock.now() - begun) / 60, 1),
                "usd at most": round(self._money.spent, 3),
            },
            self._as_json,
        )
        return FAILED if failed else COMPLETED

    def _target(self, project: Path, **context: str) -> Target:
        given = [*(self._given.context or ()), *(f"{name}={value}" for name, value in {**CONTEXT, **context}.items())]
        secret = f"model_secrets={secret_name(self._given.stage)}"
        target = Target(replace(self._given, context=[*given, secret], project=str(project)))
        target.out = sys.stderr
        return target

    @contextlib.contextmanager
    def _secret(self, target: Target) -> Iterator[None]:
        """Keep a model's API key in a secret for the duration of the block. One scene rotates it."""
        secrets, name = target.client("secretsmanager"), secret_name(target.stage)
        with aws_errors():
            try:
                secrets.create_secret(Name=name, SecretString=key_text("one"))
            except secrets.exceptions.ResourceExistsException:  # left by an earlier check that was killed
                secrets.put_secret_value(SecretId=name, SecretString=key_text("one"))
        try:
            yield
        finally:
            secrets.delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True)

    def _play(self, target: Target, scenes: Sequence[Group], upgrade: Path | None = None) -> None:
        now = self._clock.now()
        if not self._money.can_afford(DEPLOYED_USD, now):
            raise RefusedError(f"a deployment costs up to ${DEPLOYED_USD}, but --most leaves less than that")
        try:
            self._deploy(target)
            asyncio.run(self._scenes(target, scenes, upgrade))
        finally:
            self._destroy(target)

    def _deploy(self, target: Target) -> StageClients:
        with contextlib.redirect_stdout(sys.stderr):
            deploy_stage(target, yes=True)
        with aws_errors():
            clients = StageClients.of(target.client, target.stage)
            lines = idle_lines(list(read_templates(target.client("cloudformation"), target.stack)))
        self._money.set_hourly_cost(total(lines) / NANOS / MONTH_HOURS, self._clock.now())
        if not self._findings:
            show({"report": "helix check --live", **versions(clients)}, self._as_json)
        return clients

    async def _scenes(self, target: Target, scenes: Sequence[Group], upgrade: Path | None) -> None:
        clients = StageClients.of(target.client, target.stage)
        async with Probe(clients, AS_DEPLOYED) as probe:
            turns = asyncio.Semaphore(AT_ONCE)

            async def play(name: str, scene: Scene) -> None:
                async with turns:
                    self._report_finding(await probe.run_check(name, self._within_limit(scene)))

            for group in scenes:
                await asyncio.gather(*(play(name, scene) for name, scene in group.items()))
            if upgrade is not None:
                async with run_across_upgrade(probe) as upgraded:
                    upgrade.write_text(upgrade.read_text().replace(f'EDITION = "{OLD}"', f'EDITION = "{NEW}"'))
                    await asyncio.to_thread(self._deploy, target)
                    self._report_finding(await probe.run_check("a run across an upgrade", upgraded))

    def _within_limit(self, scene: Scene) -> Scene:
        async def played(probe: Probe) -> str:
            if not self._money.can_afford(SCENE_USD, self._clock.now()):
                raise NotRunError(f"spent ${self._money.spent:.3f} of ${self._money.most:.2f}")
            return await scene(probe)

        return played

    def _destroy(self, target: Target) -> None:
        """Destroy the stage. As the last scene, check that none of its resources are left."""
        began, detail = self._clock.now(), ""
        try:
            with contextlib.redirect_stdout(sys.stderr):
                if (deployed := read_stage(target.client("cloudformation"), target.stack)) is None:
                    return
                delete_stage(target, deployed)
            result: Any = "ok"
            if left := _remaining_resources(target):
                result, detail = "failed", f"left: {', '.join(left)}"
        except Exception as error:
            result, detail = "failed", f"{type(error).__name__}: {error}"
            say(f"stage {target.stage!r} may still exist: run `helix destroy --stage {target.stage}`")
        self._money.set_hourly_cost(0.0, self._clock.now())
        self._report_finding(Finding("the stage is destroyed", result, self._clock.now() - began, detail))

    def _report_finding(self, finding: Finding) -> None:
        self._findings.append(finding)
        show(fields_of(finding), self._as_json)


def _remaining_resources(target: Target) -> list[str]:
    """Return the resources that still carry the stage's name: its stack, tables, functions, state machines and log
    groups."""
    prefix, client = f"{target.stack}-", target.client
    found = [target.stack] if describe_stack(client("cloudformation"), target.stack) is not None else []
    asked = (
        ("dynamodb", "list_tables", "TableNames", None),
        ("lambda", "list_functions", "Functions", "FunctionName"),
        ("stepfunctions", "list_state_machines", "stateMachines", "name"),
        ("logs", "describe_log_groups", "logGroups", "logGroupName"),
    )
    for service, verb, listed, field in asked:
        for page in client(service).get_paginator(verb).paginate():
            names = (str(one if field is None else one[field]) for one in page[listed])
            found += [name for name in names if name.rpartition("/")[2].startswith(prefix)]
    return found


def check_live(
    stage: str,
    profile: str | None,
    region: str | None,
    context: list[str] | None,
    most: float,
    *,
    yes: bool,
    as_json: bool,
) -> int:
    if taken := sorted(parse_context(context).keys() & {*CONTEXT, "stage", "streaming", "model_secrets"}):
        raise RefusedError(f"--live sets {', '.join(taken)} itself: leave it out of --context")
    given = Deployment(stage=stage, profile=profile, region=region, context=context)
    say(
        f"this deploys stage {stage!r} twice, plays {PLAYED} scenes on it and destroys it; it takes half an hour and costs "
        f"at most ${most}"
    )
    if not yes and not _confirm(stage):
        say("nothing was deployed")
        return STOPPED
    return LiveCheck(given, most, as_json).run()


def _confirm(stage: str) -> bool:
    if not sys.stdin.isatty():
        raise RefusedError("a deployment needs confirmation: answer at a terminal, or add --yes")
    return ask("Type the name of the stage to continue: ") == stage
