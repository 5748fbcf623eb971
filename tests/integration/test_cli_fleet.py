"""`helix fleet` on a fleet that another process serves."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.command_line import CommandLine, Living
from tests.support.offline_cloud import until

from helix.adapters.sqlite import SQLiteStateStore
from helix.fleet.rows import AgentEntry, put_entry
from helix.ports.state_store import ABSENT
from helix.services.row_slots import RowSlots

STORE = "fleet.db"
DESK = "agents.py:desk"


@pytest.fixture
def helix(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, HELIX_DB=STORE)


@pytest.fixture
def served(helix: CommandLine) -> Iterator[Living]:
    with helix.started("fleet", "serve", DESK, "--model", "demo") as living:
        living.until("Ctrl-C stops it")
        yield living


def rows(text: str) -> list[list[str]]:
    """Return the cells of a table's lines, without its heading."""
    return [line.split() for line in text.splitlines()[1:]]


def serving(helix: CommandLine) -> set[int]:
    """Return the running processes."""
    (told,) = [json.loads(line) for line in helix("fleet", "status", "desk", "--json").out.splitlines()]
    return {process["pid"] for process in told["processes"] if process["status"] == "running"}


@pytest.mark.slow
def test_a_fleet_is_served_looked_at_scaled_stopped_started_and_ended(helix: CommandLine, served: Living) -> None:
    done = helix("run", DESK, "What is open?", "--fleet", "--json")
    assert (done.code, done.result["status"]) == (0, "completed")
    (line,) = rows(helix("fleet", "status").out)
    assert line[:7] == ["desk", "running", "1", "0", "of", "1", "0"]
    (told,) = [json.loads(line) for line in helix("fleet", "status", "desk", "--json").out.splitlines()]
    assert (told["limit"], told["runs"], told["queued"], told["instances"]) == (1, 0, 0, 1)
    assert "1 to 1 instances, not 2" in helix("fleet", "scale", "desk", "2").refusal
    assert helix("fleet", "scale", "desk", "1").code == 0

    assert helix("fleet", "stop", "desk").code == 0
    with helix.started("run", DESK, "What is open?", "--fleet", "--session", "waits") as waiting:
        waiting.until("waits for a slot")
        (told,) = [json.loads(line) for line in helix("fleet", "status", "desk", "--json").out.splitlines()]
        assert (told["limit"], told["queued"]) == (0, 1)
        assert json.loads(helix("show", "waits", "--json").out)["queued"]["place"] == 1
        assert "waits for a slot: number 1 in line" in helix("show", "waits").out
        assert helix("fleet", "start", "desk").code == 0
        assert waiting.end() == 0
    assert json.loads(helix("show", "waits", "--json").out)["queued"] is None

    old = serving(helix)
    assert len(old) == 1 and helix("fleet", "restart", "desk").code == 0
    until(lambda: serving(helix) - old, "another process")
    events = [json.loads(line) for line in helix("fleet", "history", "desk", "--json").out.splitlines()]
    assert sum("started" in event["what"] for event in events) >= 1
    changes = [(e["decision"]["before"], e["decision"]["after"]) for e in events if "decision" in e]
    assert changes == [(1, 0), (0, 1)] and "an operator stopped it" in helix("fleet", "history", "desk").out
    health = helix("fleet", "health").out
    assert "healthy" in health and "unhealthy" not in health
    served.signal(signal.SIGINT)
    assert served.end() == 0


def test_status_names_the_budget_that_stopped_an_agent(helix: CommandLine, tmp_path: Path) -> None:
    async def stop(by: str | None) -> None:
        store = SQLiteStateStore(tmp_path / STORE)
        await put_entry(store, AgentEntry(agent_id="desk", wanted=1), ABSENT)
        slots = RowSlots(store)
        await slots.set_limit("desk", 1)
        await slots.change_limit("desk", 1, 0, stopped_by=by)
        await store.close()

    asyncio.run(stop("budget agent:desk/day/micros"))
    assert "stopped by budget agent:desk/day/micros" in helix("fleet", "status").out
    told = json.loads(helix("fleet", "status", "desk", "--json").out)
    assert (told["status"], told["stopped_by"]) == ("stopped", "budget agent:desk/day/micros")
    asyncio.run(stop(None))
    assert json.loads(helix("fleet", "status", "desk", "--json").out)["stopped_by"] is None
    assert "stopped by" not in helix("fleet", "status").out


def test_a_waiting_run_is_ended_by_ctrl_c(helix: CommandLine, served: Living) -> None:
    assert helix("fleet", "stop", "desk").code == 0
    with helix.started("run", DESK, "What is open?", "--fleet", "--session", "waits") as waiting:
        waiting.until("waits for a slot")
        waiting.signal(signal.SIGINT)
        assert waiting.end() == 4
    (told,) = [json.loads(line) for line in helix("fleet", "status", "desk", "--json").out.splitlines()]
    assert told["queued"] == 0


def test_budgets_are_set_shown_enforced_alerted_and_removed(helix: CommandLine) -> None:
    assert helix("run", DESK, "What is open?", "--model", "demo").code == 0  # the store exists now
    assert "set-budget" in helix("fleet", "budgets").err
    assert helix("fleet", "set-budget", "10", "day").code == 0
    assert helix("fleet", "set-budget", "5", "hour", "--agent", "desk", "--unit", "tokens").code == 0
    found = {}
    for line in helix("fleet", "budgets", "--json").out.splitlines():
        status = json.loads(line)
        found[status["name"]] = status
    assert found["global_daily_usd"]["budget_limit"] == 10 and found["desk_hourly"]["unit"] == "tokens"
    assert [line[0] for line in rows(helix("fleet", "budgets").out)] == ["agent:desk", "global"]
    failed = helix("run", DESK, "What is open?", "--model", "demo", "--session", "over", "--json")
    assert failed.code == 3 and "budget" in failed.result["error"]
    (alert,) = [json.loads(line) for line in helix("fleet", "alerts", "--json").out.splitlines()]
    assert (alert["level"], alert["scope"]) == ("exceeded", "agent:desk")
    assert helix("fleet", "remove-budget", "hour", "--agent", "desk", "--unit", "tokens").code == 0
    assert helix("retry", DESK, "over", "--model", "demo").code == 0
    assert "no such budget" in helix("fleet", "remove-budget", "hour", "--agent", "desk", "--unit", "tokens").refusal


def test_a_run_that_a_budget_pauses_says_so_and_goes_on_after_a_raise(helix: CommandLine) -> None:
    assert helix("run", DESK, "What is open?", "--model", "demo").code == 0
    scope = ("--agent", "desk", "--unit", "tokens")
    done = helix("fleet", "set-budget", "5", "total", *scope, "--on-exceeded", "pause")
    assert "at most 5 tokens in all" in done.err
    paused = helix("run", DESK, "What is open?", "--model", "demo", "--session", "short")
    assert paused.code == 4 and "budget_exceeded: a budget has no room" in paused.out and "resume" in paused.out
    helix("fleet", "set-budget", "500000", "total", *scope)
    assert helix("resume", DESK, "short", "--model", "demo").code == 0
    assert "no longer limited in all in tokens" in helix("fleet", "remove-budget", "total", *scope).err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["status"], "there is no store"),
        (["budgets"], "there is no store"),
        (["status", "--stage", "no", "--region", "eu-west-1"], "stage 'no', stack 'helix-no', cannot be read"),
        (["alerts", "--level", "loud"], "warning, critical or exceeded"),
        (["set-budget", "10", "fortnight"], "there is no store"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(helix: CommandLine, arguments: list[str], words: str) -> None:
    assert words in helix.process("fleet", *arguments).refusal


def test_wrong_figures_and_unknown_names_are_refused(helix: CommandLine) -> None:
    assert helix("run", DESK, "What is open?", "--model", "demo").code == 0
    assert "must be one of hourly" in helix("fleet", "set-budget", "10", "fortnight").refusal
    assert "at least" in helix("fleet", "set-budget", "0", "day").refusal
    assert "one scope" in helix("fleet", "set-budget", "1", "day", "--agent", "a", "--tenant", "t").refusal
    assert "no agent 'nobody'" in helix("fleet", "status", "nobody").refusal
    assert "no agent 'nobody'" in helix("fleet", "scale", "nobody", "1").refusal
    assert "no health check of" in helix("fleet", "health", "nobody").refusal
