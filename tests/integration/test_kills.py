"""The deaths of `helix demo --kill`: each happens once, and the report agrees with the rows."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helix.adapters.sqlite import SQLiteStateStore
from helix.cli.cloud.kills import Kills

pytestmark = pytest.mark.slow

SESSION = "killed"
WORKER = """
import asyncio, os, sys
from pathlib import Path
from helix import Agent, LocalExecutor, ScriptedModel, tool
from helix.local.kill_points import KILLS, arm
from helix.testing.clocks import ShiftedClock

on_unknown, begun, last = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "last"
arm(Path(os.environ[KILLS]))

@tool(**({} if on_unknown == "none" else {"on_unknown": on_unknown}))
async def charge() -> str:
    "Charge the card."
    with open("charged", "a") as file:
        file.write(".")
    return "charged"

agent = Agent(name="shop", system_prompt="Sell.", tools=[charge], model="openai/gpt-4o-mini")
answers = ["Sold."] if on_unknown == "none" else [{"tool_calls": [{"name": "charge"}]}, "Sold."]

async def main() -> None:
    model, clock = ScriptedModel(answers, by="position"), ShiftedClock(60 * begun)
    async with LocalExecutor("sessions.db", model=model, clock=clock) as executor:
        if last:
            handle = await executor.get_handle(agent, "killed")
        elif begun:
            handle = await executor.resume(agent, "killed")
        else:
            handle = await executor.execute(agent, "Go.", session_id="killed")
        await handle.result(30)

asyncio.run(main())
"""


def work(folder: Path, kills: Kills, on_unknown: str, begun: int, last: str = "") -> int:
    """Return the exit status of a worker that starts the run or, later, continues it."""
    words = [sys.executable, "-c", WORKER, on_unknown, str(begun), last]
    variables = {**kills.variables, "POWERTOOLS_SERVICE_NAME": f"worker {begun}"}
    return subprocess.run(words, cwd=folder, env=variables, timeout=60, check=False).returncode


@pytest.mark.parametrize(
    ("on_unknown", "charged", "continued"),
    [
        ("retry", "..", 'charge: its on_unknown is "retry"'),
        ("skip", ".", 'nothing: the on_unknown of charge is "skip"'),
        ("ask", ".", 'nothing: the on_unknown of charge is "ask"'),
        ("none", "", ""),
    ],
)
async def test_three_workers_die_and_the_report_tells(
    tmp_path: Path, on_unknown: str, charged: str, continued: str
) -> None:
    planned = tmp_path / "kills"
    planned.mkdir()
    kills = Kills(planned)
    kills.plan(SESSION)
    deaths = 2 if on_unknown == "none" else 3
    for begun in range(deaths):
        assert work(tmp_path, kills, on_unknown, begun) == -signal.SIGKILL
    assert work(tmp_path, kills, on_unknown, deaths, "last") == 0

    store = SQLiteStateStore(tmp_path / "sessions.db")
    told = "\n".join(await kills.report(store, SESSION))
    await store.close()
    assert "1. The worker of worker 0 was killed: it had the model's answer of step 1, and had not stored it." in told
    assert "this model call: the first answer was lost with its worker." in told and "found no fault" in told
    if on_unknown == "none":
        assert "2. Skipped: no worker was killed inside a tool: the agent called none in this run." in told
        assert "1 answer of the model and 0 results" in told
    else:
        assert (tmp_path / "charged").read_text() == charged and continued in told
        assert (
            "2. The worker of worker 1 was killed: it had run the tool charge, and had not stored its result." in told
        )
    status = "paused" if on_unknown == "ask" else "completed"
    assert f"3. The worker of worker {deaths - 1} was killed: it had stored that the run is {status}" in told
