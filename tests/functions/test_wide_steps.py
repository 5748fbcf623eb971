"""The deployed functions with steps of 300 calls: the state machine's input stays within its quota
(docs/protocol.md#wide)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.functions.conftest import Functions
from tests.support_run import a_tool, agent, call, calls

from helix.core.agents import AnyAgent
from helix.engine.verbs import CALL_EVENTS, MAP_CALLS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
MANY = 300
STATE = 256 * 1024
"""Quota of Step Functions for the bytes that pass between two states."""


@pytest.fixture
def looked() -> list[str]:
    return []


@pytest.fixture
def helper(looked: list[str]) -> AnyAgent:
    def look(arguments: Any, context: Any) -> str:
        looked.append(context.tool_call_id)
        return "seen"

    tools = [a_tool("look", look), a_tool("peek", look, inline=True), a_tool("gated", look, require_approval=True)]
    return agent("helper", tools=tools)


def begun(functions: Functions, helper: AnyAgent, *script: Any) -> Any:
    functions.play(list(script), helper)
    event = {**functions.sample("call_model"), "events": 0}
    functions.app.engine.settings = functions.app.engine.settings.__class__(roll_over_events=100_000)
    functions.claim(helper, event)
    return event


def finished(functions: Functions, told: Any) -> list[Any]:
    assert told["next"] == "finish"
    functions.invoke("finish_run", told)
    run = functions.run(told["session_id"], told["run_id"])
    assert (run.status, run.effects) == ("completed", "done")
    session = functions.session(told["session_id"])
    history = functions.app.engine.history
    lineage = functions.app.run(history.lineage(session.session_id, 0))
    return functions.app.run(history.read_messages(session.session_id, lineage, 0, session.count))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_map_takes_what_fits_and_the_next_one_the_others(
    functions: Functions, helper: AnyAgent, looked: list[str]
) -> None:
    told = begun(functions, helper, calls(*(call("look") for _ in range(MANY))), "Done.")
    sizes = []
    told = functions.invoke("call_model", told)
    while told["next"] == "map":
        sizes.append(len(told["calls"]))
        assert len(json.dumps(told)) < STATE
        place = {name: told[name] for name in ("session_id", "run_id", "part")}
        for one in told["calls"]:
            assert functions.invoke("call_tool", {**place, "call": one}) == {"call": "done"}
        told = functions.invoke("call_model", told)
    assert sizes == [MAP_CALLS] * (MANY // MAP_CALLS)
    assert told["events"] >= MANY * CALL_EVENTS
    assert [m.content for m in finished(functions, told) if m.role == "tool"] == ["seen"] * MANY
    assert len(looked) == len(set(looked)) == MANY


@pytest.mark.slow
def test_inline_calls_take_one_invocation(functions: Functions, helper: AnyAgent, looked: list[str]) -> None:
    told = begun(functions, helper, calls(*(call("peek") for _ in range(MANY))), "Done.")
    told = functions.invoke("call_model", told)
    assert len(looked) == MANY and told["next"] == "call_model"
    assert len(finished(functions, functions.invoke("call_model", told))) == MANY + 3


def test_approvals_and_refusals_take_no_invocation_of_their_own(functions: Functions, helper: AnyAgent) -> None:
    names = ["gated", "nothing"] * (MANY // 2)
    told = begun(functions, helper, calls(*(call(name) for name in names)), "Done.")
    told = functions.invoke("call_model", told)
    assert told["next"] == "call_model"
    assert functions.invoke("call_model", told)["next"] == "finish"
    session = functions.session(told["session_id"])
    assert session.status == "paused" and len(session.pending) == MANY // 2


def test_long_ids_shorten_a_map(functions: Functions, helper: AnyAgent) -> None:
    asked = {"tool_calls": [{"id": f"{i}" + "x" * 20_000, "name": "look", "arguments": {}} for i in range(20)]}
    told = begun(functions, helper, asked)
    told = functions.invoke("call_model", told)
    assert 1 < len(told["calls"]) < 20 and len(json.dumps(told)) < STATE
