"""`helix fleet --stage` and `helix cost --stage`, which read the tables of the deployed app."""

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

from helix.adapters.system import SystemClock
from helix.core.errors import ProtocolError, QueueFullError
from helix.local.cloud import REGION
from helix.services.row_slots import RowSlots

Json = dict[str, Any]

pytestmark = pytest.mark.timeout(300)


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
        assert (told["status"], told["runs"]) == ("running", 1)
        assert 95 <= told["limit"] <= 100, "each quiet minute lowers it by one"
        assert [process["process_id"] for process in told["processes"]] == [first.run_id]

        stopped = helix("fleet", "stop", "roomy")
        assert stopped.code == 0 and "1 running run is being interrupted" in stopped.err
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
    mine = [event["decision"] for event in history if event["decision"]["rule"] == "operator"]
    assert [decision["after"] for decision in mine] == [0, 100] and mine[1]["before"] == 0

    cost = json.loads(helix("cost", second.session_id, "--json").out)
    lines = json.dumps(cost)
    assert "ransition" in lines and "model" in lines, "the costs of Step Functions and of the model"


async def test_each_minute_says_how_an_agents_model_calls_do(fleet: CloudForTests, helix: Callable[..., Done]) -> None:
    """The agent has no limit, and its run ended before the minute."""
    begun = SystemClock().now()
    async with fleet.user("patient") as client:
        assert (await (await client.run("thrifty", plan(say("Well.")))).result(60)).status == "completed"
    of_agent = [{"Name": "agent", "Value": "thrifty"}]
    until(
        lambda: fleet.aws("cloudwatch").list_metrics(MetricName="ModelCalls", Dimensions=of_agent)["Metrics"], "metric"
    )

    def judged() -> Json | None:
        fleet.cloud.tick()
        told = [json.loads(line) for line in helix("fleet", "health", "--json").out.splitlines()]
        found = [one for one in told if (one["target"], one["check"]) == ("thrifty", "llm")]
        return found[0] if found and found[0]["checked_at"] > begun else None

    result = until(judged, "judgement")
    assert result is not None and (result["status"], result["message"]) == ("healthy", "")


async def test_a_line_goes_by_priority_and_a_full_one_refuses(fleet: CloudForTests, tmp_path: Path) -> None:
    """The client connects over the socket, where it may let other runs go first."""
    slots, gate = RowSlots(AdminApplication(fleet).store), str(tmp_path / "gate")
    await slots.set_limit("changing", 1)
    await slots.set_queue("changing", max_queue=3)
    async with fleet.user("polite") as client:
        first = await client.run("changing", plan(use(call("wait", gate=gate)), say("Done.")))
        waiting = {
            priority: await client.run("changing", plan(say("Done.")), priority=priority) for priority in (-5, 0, -1)
        }
        with pytest.raises(QueueFullError, match="3 runs wait"):
            await client.run("changing", plan(say("Never said.")))
        with pytest.raises(ProtocolError, match="a client's priority is -999 to 0"):
            await client.run("changing", plan(say("Never said.")), priority=1)
        (tmp_path / "gate").touch()
        for handle in (first, *waiting.values()):
            assert (await handle.result(60)).status == "completed"
        ended = {p: (await client.get_session(handle.session_id)).updated_at for p, handle in waiting.items()}
    await slots.set_queue("changing")
    await slots.set_limit("changing", None)
    assert sorted(ended, key=lambda priority: ended[priority]) == [0, -1, -5]


async def test_a_run_that_a_budget_pauses_goes_on_after_a_raise(
    fleet: CloudForTests, helix: Callable[..., Done]
) -> None:
    """The run's result says what it waits for, so a client need not read the stream."""
    scope = ("total", "--tenant", "frugal", "--unit", "tokens")
    assert helix("fleet", "set-budget", "5", *scope, "--on-exceeded", "pause").code == 0
    async with fleet.user("frugal") as client:
        handle = await client.run("thrifty", plan(say("Paid later.")))
        paused = await handle.result(60)
        assert (paused.status, paused.completion_reason, paused.pending) == ("paused", "budget_exceeded", [])
        assert (await (await handle.resume()).result(60)).status == "paused", "the budget was not raised yet"
        assert helix("fleet", "set-budget", "100000", *scope, "--on-exceeded", "pause").code == 0
        assert (await (await handle.resume()).result(60)).text == "Paid later."
    assert helix("fleet", "remove-budget", *scope).code == 0


def test_who_is_not_known_and_what_cannot_be_read_is_said_in_one_line(
    fleet: CloudForTests, helix: Callable[..., Done], tmp_path: Path
) -> None:
    for words in (("status", "nobody"), ("scale", "nobody", "1"), ("stop", "nobody")):
        assert "known once it has run" in helix("fleet", *words).refusal
    assert "no health check of 'nobody' has run" in helix("fleet", "health", "nobody").refusal
    assert "no session 'none' in stage 'test'" in helix("cost", "none").refusal
    at = {"AWS_ENDPOINT_URL": fleet.cloud.emulator.url, "AWS_DEFAULT_REGION": REGION}
    nobody = CommandLine(tmp_path, HOME=str(tmp_path), AWS_EC2_METADATA_DISABLED="true", **at)
    stranger = CommandLine(tmp_path, AWS_ACCESS_KEY_ID="stranger", AWS_SECRET_ACCESS_KEY="stranger", **at)
    admin = CommandLine(tmp_path, **fleet.cloud.emulator.credentials.variables, **at)
    look = ("fleet", "budgets", "--stage")
    assert "Unable to locate credentials" in nobody.process(*look, "test").refusal
    assert "security token" in stranger.process(*look, "test").refusal
    assert "helix-other does not exist" in admin.process(*look, "other").refusal


def test_budgets_of_a_stage(helix: Callable[..., Done]) -> None:
    assert helix("fleet", "set-budget", "25", "month", "--tenant", "somebody").code == 0
    (told,) = [
        json.loads(line) for line in helix("fleet", "budgets", "--tenant", "somebody", "--json").out.splitlines()
    ]
    assert (told["scope"], told["budget_limit"], told["unit"]) == ("tenant:somebody", 25.0, "usd")
    assert helix("fleet", "remove-budget", "month", "--tenant", "somebody").code == 0
    assert helix("fleet", "budgets", "--tenant", "somebody", "--json").out == ""


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
