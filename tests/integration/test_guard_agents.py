"""An agent as a guard: its verdicts, its cost, and what a budget reserves for it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.usage_invariants import find_usage_problems
from tests.support_budgets import WORST, bounded_executor, cost, left, manager
from tests.support_guards import ASKED, DONE, call, pay, send
from tests.support_run import World, a_tool, agent

from helix import Agent, DefinitionError, Guard, LLMConfig, LocalExecutor, MemoryStateStore, ScriptedModel
from helix.adapters.models.scripted import Entry
from helix.core.periods import TokenPeriod
from helix.engine.guards.judge_agent import MAX_CALLS, MAX_JUDGED
from helix.infra.model_packages import with_judges

COST = {"prompt_tokens": 100, "completion_tokens": 10, "calls": 1, "cost_micros": 50, "priced": True}


def judge(**fields: Any) -> Agent[Any, Any]:
    fields.setdefault("llm_config", LLMConfig(model="scripted"))
    return Agent(name="judge", system_prompt="Block whatever names eve.", **fields)


def says(verdict: str, reason: str = "") -> dict[str, Any]:
    return {"tool_calls": [call("__finish__", verdict=verdict, reason=reason)], "usage": COST}


@pytest.fixture(autouse=True)
def fresh() -> None:
    DONE.clear()
    ASKED.clear()


async def run(main: list[Entry], judged: list[Entry], guard: Guard) -> Any:
    model = ScriptedModel({"helper": main, "judge": judged})
    workers = LocalExecutor(MemoryStateStore(), model=model)
    who = agent(tools=[send, pay], guards=[guard])
    result = await (await workers.execute(who, "begin", session_id="s")).result(timeout_s=20)
    assert not await find_usage_problems(workers.store, "s")
    return workers, model, result


def letter(*names: str) -> dict[str, Any]:
    return {"tool_calls": [call("send", f"c{n}", to=name) for n, name in enumerate(names)]}


async def test_an_agent_judges_with_one_call_that_is_billed_with_the_step() -> None:
    guard = Guard(call=judge())
    workers, model, result = await run(
        [letter("eve", "bob"), "Done."], [says("block", "it names eve"), says("allow")], guard
    )
    assert result.text == "Done." and DONE == ["sent to bob"]
    asked = [request for request in model.requests if request.agent_type == "judge"]
    assert [request.messages[-1].content for request in asked] == [
        '{"on":"call","tool":"send","value":{"to":"eve"}}',
        '{"on":"call","tool":"send","value":{"to":"bob"}}',
    ]
    assert all(
        request.tool_choice == "__finish__" and "Never follow" in str(request.messages[0].content) for request in asked
    )
    state = await workers.sessions.get("s")
    assert (state.usage.cost_micros, state.usage.prompt_tokens) == (100, 200)


@pytest.mark.parametrize("bad", ["I allow it.", ValueError("down"), says("perhaps")])
async def test_a_judge_without_a_verdict_blocks(bad: Any) -> None:
    _, _, result = await run([letter("bob"), "Done."], [bad] * 9, Guard(call=judge()))
    assert result.text == "Done." and DONE == []


async def test_what_is_too_long_for_a_judge_is_blocked_without_a_call() -> None:
    _, model, _ = await run([letter("x" * MAX_JUDGED), "Done."], [], Guard(call=judge()))
    assert DONE == [] and {request.agent_type for request in model.requests} == {"helper"}


async def test_a_judge_reads_a_limited_number_of_calls() -> None:
    names = [f"n{n}" for n in range(MAX_CALLS + 2)]
    _, model, result = await run([letter(*names), "Done."], [says("allow")] * MAX_CALLS, Guard(call=judge()))
    assert result.text == "Done." and len(DONE) == MAX_CALLS
    assert sum(request.agent_type == "judge" for request in model.requests) == MAX_CALLS


async def test_a_judged_output() -> None:
    _, _, result = await run(
        ["I saw eve.", "Nobody."], [says("block", "it names eve"), says("allow")], Guard(output=judge())
    )
    assert result.text == "Nobody."


@pytest.mark.parametrize(("limit", "status"), [(2 * WORST, "failed"), (3 * WORST, "completed")])
async def test_a_step_reserves_the_worst_case_of_its_judges(quick_world: World, limit: int, status: str) -> None:
    """An output judge may be asked about a text and an output, so the step reserves three calls. What it used is spent."""
    model = ScriptedModel({"helper": [{"content": "Fine.", "usage": cost(20)}], "judge": [says("allow")]})
    executor = bounded_executor(quick_world, model)
    budget = await manager(executor).set_budget(limit, TokenPeriod.TOTAL)
    result = await (await executor.execute(agent(guards=[Guard(output=judge())]), "go")).result(timeout_s=20)
    assert result.status == status
    if status == "completed":
        assert await left(executor, budget) == (limit, limit - 20 - 110)
    else:
        assert result.error_code == "budget_exceeded" and model.requests == []


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"result": judge()}, "must be a function: only"),
        ({"call": judge(tools=[send])}, "no tools, guards or output_schema"),
        ({"call": judge(llm_config=lambda state: LLMConfig(model="m"))}, "must name one model"),
    ],
)
def test_an_agent_that_cannot_judge_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        Guard(**fields)


def test_a_judge_cannot_judge_the_output_of_a_tool() -> None:
    last = a_tool("last", lambda given, ctx: {}, finish_with=True)
    with pytest.raises(DefinitionError, match="finish_with"):
        agent(tools=[last], guards=[Guard(output=judge())])


def test_a_stage_has_the_packages_of_the_judges_model() -> None:
    judging = judge()
    who = agent(guards=[Guard(call=judging, output=judging)])
    assert [one.name for one in with_judges([who])] == ["helper", "judge", "judge"]
