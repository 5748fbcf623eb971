"""A tool ends its process again and again. The processes are real, and each is forked from a warm one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = """
import asyncio, os, signal, sys
from helix import Agent, LocalExecutor, ScriptedModel, tool
from helix.core.messages import ToolResultMessage
from helix.testing.clocks import ShiftedClock

on_unknown, how = sys.argv[1:]

@tool(on_unknown=on_unknown)
def act() -> str:
    "Act."
    with open("acts", "a") as file:
        file.write(".")
    if how == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(7)

agent = Agent(name="actor", system_prompt="Act.", tools=[act], model="openai/gpt-4o-mini")

async def main(number: int) -> None:
    model = ScriptedModel([{"tool_calls": [{"name": "act"}]}, "Done."], by="position")
    async with LocalExecutor("sessions.db", model=model, clock=ShiftedClock(60 * number)) as executor:
        if number:
            handle = await executor.resume(agent, "s")
        else:
            handle = await executor.execute(agent, "Go.", session_id="s")
        result = await handle.result(30)
        messages = (await executor.sessions.get_messages("s")).messages
        (told,) = [m.content for m in messages if isinstance(m, ToolResultMessage)] or [None]
        with open("ended", "w") as file:
            file.write(f"{result.status} {told}")

for number in range(5):
    process = os.fork()
    if process == 0:
        try:
            asyncio.run(main(number))
        finally:
            os._exit(1)
    _, status = os.waitpid(process, 0)
    if os.path.exists("ended"):
        break
"""


@pytest.mark.parametrize(
    ("on_unknown", "how", "acts", "said"),
    [("retry", "SIGKILL", 3, ("code", "tool_crashed")), ("skip", "_exit", 1, ("status", "unknown"))],
)
def test_a_tool_that_ends_its_process_is_started_three_times_at_most(
    on_unknown: str, how: str, acts: int, said: tuple[str, str], tmp_path: Path
) -> None:
    """Each start in process is a run that a user resumed. A tool that must not be repeated is started once."""
    subprocess.run([sys.executable, "-c", WORKER, on_unknown, how], cwd=tmp_path, timeout=60, check=True)
    ended, _, told = (tmp_path / "ended").read_text().partition(" ")
    assert ((tmp_path / "acts").read_text(), ended) == ("." * acts, "completed")
    assert said in json.loads(told).items()
