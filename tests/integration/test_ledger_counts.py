"""The ledger's counts, computed from rows, agree with the deployed state machine, whose definition these tests execute."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.delivery_stage import Json, Stage
from tests.support.state_machine import Machines, StateMachine
from tests.support_run import Text, a_tool, agent, call, calls

from helix import Confirmation, create_sub_agent_tool
from helix.core.agents import AnyAgent
from helix.core.steps import ErrorStepResult
from helix.sessions.ledger_counts import count_run
from helix.sessions.ledger_rows import read_rows

ECHO = a_tool("echo", lambda given, context: given.text, input_schema=Text)
QUICK = a_tool("quick", lambda given, context: "quick", inline=True)
RISKY = a_tool("risky", lambda given, context: "done it", require_approval=True)


class Answer(BaseModel):
    text: str


class Played:
    """A stage whose launcher executes the definition."""

    def __init__(self, script: Any, *agents: AnyAgent, **settings: Any) -> None:
        self.stage = Stage(script, *agents, **settings)

        async def invoke(verb: str, payload: Json) -> Json:
            return await self.stage.deliver(verb, payload, left_s=900)

        async def pause(error: str) -> None:
            self.stage.clock.ahead_s += 1000  # until every deadline has passed

        self.machine = StateMachine(invoke, pause=pause)
        self.machines = Machines(self.machine)
        self.stage.engine.launcher = self.machines

    async def execute(self, who: AnyAgent) -> str:
        handle = await self.stage.executor.execute(who, "go")
        await self.machines.ended()
        return handle.session_id

    async def check(self, session_id: str) -> Counter[str]:
        """Compare the counts with the executions. Return the states."""
        rows = await read_rows(self.stage.store, session_id)
        assert rows is not None
        counts = [count_run(rows, run) for run in rows.runs]
        played = [e for e in self.machines.executions.values() if e.input["session_id"] == session_id]
        states = Counter(state for e in played for state in e.states if not state.endswith(" again"))
        again = Counter(state for e in played for state in e.states if state.endswith(" again"))
        invoked = Counter(verb for e in played for verb, _ in e.invoked)
        assert sum((c.states for c in counts), Counter()) == states
        assert sum((c.invocations for c in counts), Counter()) == invoked
        assert sum(c.repeated.total() for c in counts) == again.total()
        assert sum(c.transitions for c in counts) == sum(len(e.states) for e in played)
        for child in rows.children:
            states += await self.check(child)
        return states


async def test_an_answer_without_tools() -> None:
    played = Played(["done"], who := agent())
    assert await played.check(await played.execute(who)) == {"CallModel": 1, "Route": 1, "FinishRun": 1}


async def test_one_tool_several_tools_and_an_inline_tool() -> None:
    script = [
        calls(call("echo", text="a")),
        calls(call("echo", text="b"), call("echo", text="c"), call("echo", text="d")),
        calls(call("quick")),
        calls(call("quick"), call("echo", text="e")),
        "done",
    ]
    played = Played(script, who := agent(tools=[ECHO, QUICK]))
    states = await played.check(await played.execute(who))
    assert states["CallTool"] == 2 and states["Calls"] == 1 and states["CallOneTool"] == 3


async def test_steps_whose_calls_are_inline_are_one_invocation() -> None:
    script = [*[calls(call("quick"), call("quick"))] * 8, calls(call("nothing")), "done"]
    played = Played(script, who := agent(tools=[QUICK]))
    assert await played.check(await played.execute(who)) == {"CallModel": 1, "Route": 1, "FinishRun": 1}


async def test_inline_steps_up_to_the_bound_of_an_invocation() -> None:
    script = [*[calls(call("quick"))] * 4, calls(call("echo", text="a")), *[calls(call("quick"))] * 3, "done"]
    played = Played(script, who := agent(tools=[QUICK, ECHO]), steps_per_invocation=2)
    states = await played.check(await played.execute(who))
    assert states["CallModel"] == 5


async def test_inline_steps_that_end_in_a_model_error_a_bound_or_a_structured_answer() -> None:
    script = [calls(call("quick")), ErrorStepResult(error="no", code="down"), calls(call("quick")), "done"]
    played = Played(script, who := agent(tools=[QUICK]))
    session_id = await played.execute(who)
    await played.check(session_id)
    await played.stage.executor.retry(who, session_id)
    await played.machines.ended()
    assert (await played.check(session_id))["CallModel"] == 2
    played = Played([calls(call("quick"))] * 3, who := agent(tools=[QUICK], max_steps=2))
    await played.check(await played.execute(who))
    script = [calls(call("quick")), calls(call("__finish__", text="x"))]
    played = Played(script, who := agent(tools=[QUICK], output_schema=Answer))
    await played.check(await played.execute(who))


async def test_an_approved_inline_call_is_executed_by_the_next_run_that_goes_on() -> None:
    careful = a_tool("careful", lambda given, context: "done it", require_approval=True, inline=True)
    script = [calls(call("quick")), calls(call("careful"), call("quick")), calls(call("quick")), "done"]
    played = Played(script, who := agent(tools=[careful, QUICK]))
    session_id = await played.execute(who)
    assert (await played.check(session_id))["CallModel"] == 1
    (pending,) = (await played.stage.executor.sessions.get(session_id)).pending
    await played.stage.executor.answer(who, session_id, Confirmation(pending.call_id, approved=True))
    await played.machines.ended()
    assert (await played.check(session_id))["CallModel"] == 2


async def test_inline_steps_of_a_run_that_rolled_over() -> None:
    options = {"roll_over_events": 40, "steps_per_invocation": 1}
    played = Played([*[calls(call("quick"))] * 8, "done"], who := agent(tools=[QUICK]), **options)
    states = await played.check(await played.execute(who))
    assert states["Rolled"] >= 1


async def test_an_interrupt_in_an_inline_call_and_the_run_that_goes_on() -> None:
    played: Played

    async def stops(given: Any, context: Any) -> str:
        await played.stage.executor.interrupt(context.session_id)
        return "stopped"

    inline = a_tool("stops", stops, inline=True)
    script = [calls(call("quick")), calls(call("stops")), calls(call("quick")), "done"]
    played = Played(script, who := agent(tools=[inline, QUICK]))
    session_id = await played.execute(who)
    assert (await played.stage.executor.sessions.get(session_id)).status == "interrupted"
    assert (await played.check(session_id))["CallModel"] == 1
    await played.stage.executor.resume(who, session_id)
    await played.machines.ended()
    await played.check(session_id)


async def test_calls_that_are_refused_are_no_deliveries() -> None:
    script = [calls(call("nothing")), calls(call("echo", wrong=1), call("echo", text="a")), "done"]
    played = Played(script, who := agent(tools=[ECHO]))
    await played.check(await played.execute(who))


async def test_a_structured_end_and_steps_that_run_out() -> None:
    script = [calls(call("echo", text="a")), calls(call("__finish__", text="x"))]
    played = Played(script, who := agent(tools=[ECHO], output_schema=Answer))
    await played.check(await played.execute(who))
    played = Played([calls(call("echo", text="a"))] * 3, who := agent(tools=[ECHO], max_steps=2))
    await played.check(await played.execute(who))


async def test_a_model_that_fails_and_the_retry() -> None:
    script = [calls(call("echo", text="a")), ErrorStepResult(error="no", code="down"), "done"]
    played = Played(script, who := agent(tools=[ECHO]))
    session_id = await played.execute(who)
    await played.check(session_id)
    await played.stage.executor.retry(who, session_id)
    await played.machines.ended()
    await played.check(session_id)


@pytest.mark.parametrize("approved", [True, False])
async def test_a_run_that_waits_for_a_person_and_the_one_that_goes_on(approved: bool) -> None:
    script = [calls(call("risky"), call("echo", text="a")), "done"]
    played = Played(script, who := agent(tools=[RISKY, ECHO]))
    session_id = await played.execute(who)
    await played.check(session_id)
    (pending,) = (await played.stage.executor.sessions.get(session_id)).pending
    await played.stage.executor.answer(who, session_id, Confirmation(pending.call_id, approved=approved))
    await played.machines.ended()
    await played.check(session_id)


async def test_sub_agents_one_and_several() -> None:
    inner = agent("inner", tools=[ECHO], output_schema=Answer)
    outer = agent("outer", tools=[create_sub_agent_tool(inner), ECHO])
    ask = call("subagent__inner", message="find")
    found = [calls(call("echo", text="x")), calls(call("__finish__", text="x"))]
    script = {"outer": [calls(ask), calls(ask, ask, call("echo", text="y")), "done"], "inner": found * 3}
    played = Played(script, inner, outer)
    states = await played.check(await played.execute(outer))
    assert states["StartRun"] == 1 and states["StartOneRun"] == 2 and states["CallOneTool"] == 1


async def test_a_run_that_rolled_over() -> None:
    played = Played([*[calls(call("echo", text="a"))] * 6, "done"], who := agent(tools=[ECHO]), roll_over_events=40)
    states = await played.check(await played.execute(who))
    assert states["Rolled"] >= 1


async def test_a_client_tool_and_an_interrupt() -> None:
    form = a_tool("form", "client")
    played = Played([calls(call("form")), "done"], who := agent(tools=[form]))
    session_id = await played.execute(who)
    await played.check(session_id)
    (pending,) = (await played.stage.executor.sessions.get(session_id)).pending
    await played.stage.executor.answer(who, session_id, Confirmation(pending.call_id, data={"name": "Ann"}))
    await played.machines.ended()
    await played.check(session_id)


async def test_an_interrupt_between_steps_and_the_run_that_goes_on() -> None:
    played: Played

    async def stops(given: Any, context: Any) -> str:
        await played.stage.executor.interrupt(context.session_id)
        return "stopped"

    played = Played([calls(call("stops")), "done"], who := agent(tools=[a_tool("stops", stops)]))
    session_id = await played.execute(who)
    assert (await played.stage.executor.sessions.get(session_id)).status == "interrupted"
    await played.check(session_id)
    await played.stage.executor.resume(who, session_id)
    await played.machines.ended()
    await played.check(session_id)


async def test_a_delivery_that_died_with_its_answer_is_a_repeated_task() -> None:
    played = Played(["never told", "done"], who := agent())
    transact, left = played.stage.store.transact, [True]

    async def dies_once(name: str, operations: Any) -> None:
        if name == "commit" and left:
            left.clear()
            raise ExitError
        await transact(name, operations)

    played.stage.store.transact = dies_once  # type: ignore[method-assign]
    await played.check(await played.execute(who))


@pytest.mark.parametrize(("name", "write"), [("claim_step", 4), ("call_result", 2)])
@pytest.mark.parametrize("policy", ["retry", "skip"])
async def test_a_delivery_that_died_between_inline_steps_came_again(name: str, write: int, policy: str) -> None:
    """It died in the model call of its fourth step, or in its second tool. The same task runs once more, and no other state
    is added."""
    quick = a_tool("quick", lambda given, context: "quick", inline=True, on_unknown=policy)
    played = Played([*[calls(call("quick"))] * 4, *["done"] * 2], who := agent(tools=[quick]))
    transact, seen = played.stage.store.transact, Counter[str]()

    async def dies_once(written: str, operations: Any) -> None:
        seen[written] += 1
        dies = (written, seen[written]) == (name, write)
        if written == "call_result" and dies:
            raise ExitError
        await transact(written, operations)
        if dies:
            raise ExitError

    played.stage.store.transact = dies_once  # type: ignore[assignment, method-assign]
    session_id = await played.execute(who)
    assert await played.check(session_id) == {"CallModel": 1, "Route": 1, "FinishRun": 1}


class ExitError(Exception):
    """An error of the platform."""


ExitError.__name__ = "Runtime.ExitError"
