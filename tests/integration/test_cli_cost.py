"""`helix cost` on this machine: a table whose lines add up, JSON, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from tests.support.command_line import CommandLine
from tests.support_run import Text, World, a_tool, agent, call, calls, play

from helix import create_sub_agent_tool


@pytest.fixture
def helix(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture
def session(tmp_path: Path) -> str:
    """A run with a tool that tells what it used, and a sub-agent."""
    inner = agent("inner", output_schema=Text)
    outer = agent("outer", tools=[create_sub_agent_tool(inner), a_tool("echo", lambda a, c: a.text, input_schema=Text)])

    def paid(entry: object, micros: int) -> object:
        return {**entry, "usage": {"cost_micros": micros, "prompt_tokens": 1000, "calls": 1}}  # type: ignore[dict-item]

    script = {
        "outer": [paid(calls(call("subagent__inner", message="find")), 1500), paid({"content": "done"}, 250)],
        "inner": [paid(calls(call("__finish__", text="x")), 1)],
    }

    async def made() -> str:
        world = World("sqlite", tmp_path)
        handle, _, _ = await play(world.executor(script), outer)
        await world.close()
        return handle.session_id

    return asyncio.run(made())


def test_the_lines_that_are_shown_add_up(helix: CommandLine, session: str) -> None:
    done = helix("cost", session)
    assert done.code == 0
    amounts = [float(amount) for amount in re.findall(r"\$([0-9.]+[0-9])", done.out)]
    total = next(float(m[1]) for m in [re.search(r"\$([0-9.]+) in all: Model", done.out)] if m)
    assert total == pytest.approx(0.001751)
    assert sum(amounts) == pytest.approx(3 * total), "the lines, the total, and the services"
    assert "$0.000001" in done.out and "1,000 tokens" in done.out
    assert "Step Functions" not in done.out and "list prices" not in done.out


def test_as_json_it_is_one_object(helix: CommandLine, session: str) -> None:
    book = json.loads(helix("cost", session, "--json").out)
    assert book["session_id"] == session and book["agrees"] is True
    assert book["usd"] == pytest.approx(0.001751)
    assert [(line["what"], line["step"], line["attempt"], line["basis"]) for line in book["lines"]] == [
        ("scripted", 1, 1, "measured"),
        ("scripted", 2, 1, "measured"),
        ("scripted", 1, 1, "measured"),
    ]


def test_what_is_not_there_is_refused(helix: CommandLine, session: str) -> None:
    assert "no session 'nobody'" in helix("cost", "nobody").refusal
    assert "no store 'elsewhere.db'" in helix("cost", session, "--db", "elsewhere.db").refusal
    assert (
        "--stage reads"
        in helix("cost", session, "--url", "wss://abc.execute-api.eu-central-1.amazonaws.com/dev").refusal
    )
    assert "there is no stage 'dev' at 127.0.0.1:9" in helix("cost", session, "--url", "ws://127.0.0.1:9/x").refusal
