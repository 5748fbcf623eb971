"""`helix fleet --stage` and `helix cost --stage`, over the tables of the deployed app."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cloud_executor import AdminApplication
from tests.support.cloud_agents.cast import talker
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.cloud_agents.tools import noise
from tests.support.command_line import CommandLine, Done
from tests.support.offline_cloud import CloudForTests, until

from helix.local.cloud import REGION
from helix.local.emulator import ADMIN

Json = dict[str, Any]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def helix(fleet: CloudForTests, tmp_path: Path) -> Callable[..., Done]:
    """A command about the stage, as its administrator."""
    credentials = {"AWS_ACCESS_KEY_ID": ADMIN, "AWS_SECRET_ACCESS_KEY": ADMIN, "AWS_DEFAULT_REGION": REGION}
    line = CommandLine(tmp_path, AWS_ENDPOINT_URL=fleet.cloud.emulator.url, **credentials)
    return lambda *arguments: line.process(*arguments, "--stage", fleet.cloud.stage)


def status(helix: Callable[..., Done]) -> Json:
    (told,) = [json.loads(line) for line in helix("fleet", "status", "roomy", "--json").out.splitlines()]
    return dict(told)


async def test_a_deployed_agent_is_stopped_looked_at_and_started_again(
    fleet: CloudForTests, helix: Callable[..., Done], tmp_path: Path
) -> None:
    entered = tmp_path / "gate.entered"
    async with fleet.user("fleet") as client:
        first = await client.run("roomy", plan(use(call("wait", gate=str(tmp_path / "gate"))), say("Never said.")))
        until(entered.exists, "run at work")
        told = status(helix)
        assert (told["status"], told["runs"], told["limit"]) == ("running", 1, 100)
        assert [process["process_id"] for process in told["processes"]] == [first.run_id]

        stopped = helix("fleet", "stop", "roomy")
        assert stopped.code == 0 and "1 run at work is being interrupted" in stopped.err
        (tmp_path / "gate").touch()
        assert (await first.result(60)).status == "interrupted"
        assert status(helix)["status"] == "stopped"

        second = await client.run("roomy", plan(say("It goes on.")))
        until(lambda: status(helix)["queued"] == 1, "run in line")
        assert helix("fleet", "scale", "roomy", "101").code == 2
        assert helix("fleet", "start", "roomy").code == 0
        fleet.cloud.tick()
        assert (await second.result(90)).text == "It goes on."
    history = [json.loads(line) for line in helix("fleet", "history", "roomy", "--json").out.splitlines()]
    assert [(event["decision"]["before"], event["decision"]["after"]) for event in history] == [(100, 0), (0, 100)]

    cost = json.loads(helix("cost", second.session_id, "--json").out)
    lines = json.dumps(cost)
    assert "ransition" in lines and "model" in lines, "what Step Functions and the model cost"


def test_budgets_of_a_stage(helix: Callable[..., Done]) -> None:
    assert helix("fleet", "set-budget", "25", "month", "--tenant", "somebody").code == 0
    (told,) = [
        json.loads(line) for line in helix("fleet", "budgets", "--tenant", "somebody", "--json").out.splitlines()
    ]
    assert (told["scope"], told["budget_limit"], told["unit"]) == ("tenant:somebody", 25.0, "usd")
    assert helix("fleet", "remove-budget", "month", "--tenant", "somebody").code == 0
    assert helix("fleet", "health").code == 0


async def test_a_session_whose_rows_are_partly_in_s3_is_explained(
    fleet: CloudForTests, helix: Callable[..., Done]
) -> None:
    app = AdminApplication(fleet)
    message = plan(say("Short.", ignored=noise(900_000)))
    handle = await app.executor.execute(talker, message, user_id="fleet")
    assert (await handle.result(60)).output == "Short."
    assert "points to S3" not in helix("cost", handle.session_id).err
    cost = json.loads(helix("cost", handle.session_id, "--json").out)
    assert cost["lines"]
