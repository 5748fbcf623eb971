"""`helix check --live` against the emulator as an account. It plays every scene, and leaves nothing of its stage."""

from __future__ import annotations

import json
import sys

import pytest
from tests.e2e.test_deploy import Account, account

from helix.cli.cloud.live.script import PLAYED

__all__ = ["account"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_every_scene_is_played_and_nothing_stays(account: Account) -> None:
    words = ("check", "--live", "--stage", "live", "-c", "offline=true")
    asked = account.run(sys.executable, "-m", "helix.cli", *words)
    assert asked.returncode == 2 and "a deployment needs confirmation" in asked.stderr
    left = {"Name": "helix-live-live-check", "SecretString": "{}"}  # what a killed check left
    account.client("secretsmanager").create_secret(**left)
    done = account.run(sys.executable, "-m", "helix.cli", *words, "--yes", "--json", patience_s=800)
    head, *scenes, end = [json.loads(line) for line in done.stdout.splitlines()]
    assert {scene["check"]: scene["detail"] for scene in scenes if scene["result"] != "ok"} == {}
    assert len(scenes) == end["scenes"] == PLAYED >= 30 and end["failed"] == done.returncode == 0
    assert head["stage"] == "live" and 0 < end["usd at most"] < 0.5
    assert "000000000000" not in done.stdout and "helix_" not in done.stdout, "neither account nor key"
    assert account.stacks() == ["CDKToolkit"] and account.tables() == []
    assert account.client("secretsmanager").list_secrets()["SecretList"] == []


def test_what_the_check_sets_itself_is_refused(account: Account) -> None:
    words = ("check", "--stage", "live", "-c", "offline=true", "-c", "streaming=direct", "-c", "retain=true")
    asked = account.run(sys.executable, "-m", "helix.cli", *words, "--live", "--yes")
    assert asked.returncode == 2 and "--live sets retain, streaming itself" in asked.stderr
    asked = account.run(sys.executable, "-m", "helix.cli", *words)
    assert asked.returncode == 2 and "--context needs --live" in asked.stderr


def test_a_stage_that_exists_is_not_touched_and_money_bounds_it(account: Account) -> None:
    words = ("check", "--live", "--stage", "live", "--yes", "-c", "offline=true")
    poor = account.run(sys.executable, "-m", "helix.cli", *words, "--most", "0.01")
    assert poor.returncode == 2 and "--most leaves less than that" in poor.stderr and account.stacks() == ["CDKToolkit"]
    account.client("cloudformation").create_stack(StackName="helix-live", TemplateBody='{"Resources": {}}')
    refused = account.run(sys.executable, "-m", "helix.cli", *words)
    assert refused.returncode == 2 and "stage 'live' already exists" in refused.stderr
    assert account.stacks() == ["CDKToolkit", "helix-live"]
