"""Comparing two runs or sessions: through the gateway, and with `helix compare`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.command_line import CommandLine
from tests.support_gateway import ADA, Desk, desk_of, started
from tests.support_run import a_tool, agent, call, calls

from helix import LocalExecutor, ScriptedModel, ToolContext
from helix.adapters.models.scripted import Entry


class Amount(BaseModel):
    amount: int


async def refund(given: Amount, ctx: ToolContext[Any]) -> str:
    return f"refunded {given.amount}"


def refunder(**options: Any) -> Any:
    return agent("helper", tools=[a_tool("refund", refund, input_schema=Amount, **options)])


async def test_a_run_is_compared_with_the_runs_that_it_continues() -> None:
    """A run that was resumed after an approval begins with its message, and has the edit."""
    script = [calls(call("refund", amount=3)), "Refunded 3.", calls(call("refund", amount=4)), "Refunded 4."]
    desk = desk_of(script, refunder(require_approval=True))
    async with desk.executor:
        await desk.connect("ada", ADA)
        place = await started(desk)
        session_id = place["session_id"]
        await desk.result("ada", "answer", session_id=session_id, tool_call_id="call_0", approved=True)
        await desk.ended(session_id)
        again = await desk.result("ada", "run", agent="helper", message="Again", session_id=session_id)
        await desk.ended(session_id)
        answered = {"tool_call_id": "call_1", "approved": True, "arguments": {"amount": 2}}
        await desk.result("ada", "answer", session_id=session_id, **answered)
        await desk.ended(session_id)
        runs = (await desk.result("ada", "get_session", session_id=session_id, runs=10))["runs"][::-1]
        assert [run["mode"] for run in runs][0::2] == ["execute", "execute"] and again["run_id"] == runs[2]["run_id"]
        sides = {"run_id": runs[1]["run_id"], "other_session_id": session_id, "other_run_id": runs[3]["run_id"]}
        found = await desk.result("ada", "compare", session_id=session_id, **sides)
        assert (found["left"]["run_id"], found["left"]["steps"], found["right"]["steps"]) == (sides["run_id"], 2, 2)
        first, last = found["steps"]
        assert (first["left"]["calls"][0]["arguments"], first["right"]["calls"][0]["arguments"]) == (
            '{"amount":3}',
            '{"amount":2}',
        )
        assert first["differs"] == ["message", "calls", "results"] and last["differs"] == ["text"]
        assert first["right"]["calls"][0]["edited"] and not first["left"]["calls"][0]["edited"]
        assert found["first_difference"] == 0

        paused = {**sides, "run_id": runs[0]["run_id"]}
        found = await desk.result("ada", "compare", session_id=session_id, **paused)
        assert (found["left"]["status"], found["left"]["steps"]) == ("superseded", 0), "its step was still open"
        whole = await desk.result("ada", "compare", session_id=session_id, other_session_id=session_id)
        assert whole["left"]["steps"] == 4 and whole["first_difference"] is None


async def test_foreign_sessions_and_unknown_runs_are_refused(desk: Desk) -> None:
    hers = (await started(desk))["session_id"]
    his = (await started(desk, "bob"))["session_id"]
    refused = await desk.error("bob", "compare", session_id=his, other_session_id=hers)
    nothing = await desk.error("bob", "compare", session_id=his, other_session_id="ses_nothing")
    assert refused["code"] == "session_not_found"
    assert json.dumps(refused).replace(hers, "ses_nothing") == json.dumps(nothing)
    no_run = {"session_id": hers, "other_session_id": hers, "other_run_id": "run_none"}
    assert (await desk.error("ada", "compare", **no_run))["code"] == "run_not_found"


async def test_too_long_sessions_are_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helix.sessions.comparing.MOST_MESSAGES", 1)
    session_id = (await started(desk))["session_id"]
    error = await desk.error("ada", "compare", session_id=session_id, other_session_id=session_id)
    assert error["code"] == "invalid_input" and "name one of its runs" in error["message"]


async def test_the_command_shows_the_same_facts(tmp_path: Path) -> None:
    helix = CommandLine(tmp_path)
    db = str(tmp_path / "a.db")
    script: list[Entry] = [
        calls(call("refund", amount=3)),
        "Refunded 3 now.",
        calls(call("refund", amount=5)),
        "Refunded 5 now.",
    ]
    async with LocalExecutor(db, model=ScriptedModel(script)) as executor:
        for name in ("a", "b"):
            await (await executor.execute(refunder(), "Refund, please.", session_id=name)).result()
    shown = await asyncio.to_thread(helix, "compare", "a", "b", "--db", db)
    for line in (
        "the same: Refund, please.",
        "Refunded [-3-]{+5+} now.",
        "~ step 1 and 1 differ: calls, results",
        'refund({"amount":3}) → refunded 3',
        'refund({"amount":5}) → refunded 5',
        "~ step 2 and 2 differ: text",
        "both have the same state",
    ):
        assert line in shown.out, shown
    found = json.loads((await asyncio.to_thread(helix, "compare", "a", "b", "--db", db, "--json")).out)
    assert found["first_difference"] == 0 and found["steps"][0]["differs"] == ["calls", "results"]
    assert "'zzz'" in (await asyncio.to_thread(helix, "compare", "a", "zzz", "--db", db)).refusal
