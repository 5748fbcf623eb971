"""Commands about runs that a fleet executes or should execute. A command that waits says why."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.support.command_line import CommandLine
from tests.support.offline_cloud import until

STORE = "fleet.db"
DESK, GUARD, TALKER = "agents.py:desk", "agents.py:guard", "agents.py:talker"


@pytest.fixture
def helix(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, HELIX_DB=STORE)


def status_of(helix: CommandLine) -> str:
    """Return the status of the only session."""
    return str(json.loads(helix("sessions", "--json").out)["status"])


def test_a_run_that_nobody_serves_says_so_and_ctrl_c_ends_it(helix: CommandLine) -> None:
    with helix.started("run", TALKER, "Hello", "--fleet", "--session", "alone") as alone:
        alone.until("no process serves 'talker' from this store now")
        alone.signal(signal.SIGINT)
        assert alone.end() == 4
    assert status_of(helix) == "interrupted"
    assert alone.lines[0] == "talker · the fleet's model · fleet.db"
    assert any(" resume agents.py:talker alone --fleet" in line for line in alone.lines)


def test_what_a_fleet_runs_is_interrupted_and_resumed_from_another_terminal(helix: CommandLine) -> None:
    with helix.started("fleet", "serve", GUARD, "--model", "demo") as served:
        served.until("Ctrl-C stops it")
        with helix.started("run", GUARD, "Watch the gate", "--fleet", "--session", "watching") as watching:
            watching.until("watch_gate")
            assert helix("interrupt", "watching").code == 0
            (helix.folder / "open").touch()
            assert watching.end() == 4
        done = helix("resume", GUARD, "watching", "--fleet", "--json")
        assert (done.code, done.result["status"]) == (0, "completed")
        served.signal(signal.SIGINT)
        assert served.end() == 0
        assert any("shutting down" in line for line in served.lines), "the command says why its end takes time"


def test_the_fleet_and_not_the_command_says_which_model_plays(helix: CommandLine) -> None:
    for command in (("run", DESK, "Hello"), ("resume", DESK, "s"), ("retry", DESK, "s")):
        assert "helix fleet serve --model" in helix(*command, "--fleet", "--model", "demo").refusal


def test_serving_without_a_key_says_that_model_calls_will_fail(helix: CommandLine) -> None:
    with helix.started("fleet", "serve", TALKER) as served:
        served.until("OPENAI_API_KEY is not set: its calls will fail")


def test_ctrl_c_ends_a_module_whose_import_does_not_end(helix: CommandLine) -> None:
    (helix.folder / "endless.py").write_text("print('importing', flush=True)\nwhile True:\n    pass\n")
    with helix.started("fleet", "serve", "endless.py:agent") as endless:
        endless.until("importing")
        endless.signal(signal.SIGINT)
        assert endless.end() == 130


@pytest.mark.slow
def test_history_has_each_death_of_a_process_and_why(helix: CommandLine) -> None:
    with helix.started("fleet", "serve", TALKER, "--model", "demo") as served:
        served.until("Ctrl-C stops it")
        for lives in (1, 2):

            def running(lives: int = lives) -> int:
                told = json.loads(helix("fleet", "status", "--json").out)["processes"][0]
                return int(told["pid"]) if (told["status"], told["restart_count"]) == ("running", lives - 1) else 0

            os.kill(until(running, "a process that runs"), signal.SIGKILL)
        until(lambda: "start 3" in helix("fleet", "history", "talker").out, "another start")
        events = [json.loads(line) for line in helix("fleet", "history", "talker", "--json").out.splitlines()]
    told = [(event["what"].split(" ", 2)[2], "SIGKILL" in event["why"]) for event in events]
    life = [("started", False), ("crashed", True), ("started, start 2", False), ("crashed", True)]
    assert told == [*life, ("started, start 3", False)]


def test_a_fleet_that_was_killed_is_not_shown_as_running(helix: CommandLine) -> None:
    with helix.started("fleet", "serve", TALKER, "--model", "demo") as served:
        served.until("Ctrl-C stops it")
        (told,) = [json.loads(line) for line in helix("fleet", "status", "--json").out.splitlines()]
        (pid,) = [process["pid"] for process in told["processes"]]
        served.signal(signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        served.end()

    def shown() -> list[str]:
        return helix("fleet", "status").out.splitlines()[1].split()

    until(lambda: shown()[1:3] == ["stopped", "0"], "the end of the fleet", patience_s=10)
    assert len(shown()) == 8  # without another process
