"""A worker does what the deployed state machine does: it plays runs of every shape and each call once, beside other
workers."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.fleet.conftest import MakeYard
from tests.support_fleet import PATIENCE_S
from tests.support_run import Gate, Text, a_tool, agent, call, calls, eventually, gated

from helix import Confirmation, Question, create_sub_agent_tool


async def test_text_and_tools_side_by_side(make: MakeYard) -> None:
    done: list[str] = []

    async def note(given: Text, ctx: Any) -> str:
        done.append(given.text)
        return given.text

    tool = a_tool("note", note, input_schema=Text)
    who = agent(tools=[tool])
    script = [calls(call("note", text="a"), call("note", text="b")), calls(call("note", text="c")), "Done."]
    yard = make(who, script=script)
    yard.serve(yard.worker("w1"))
    handle = await yard.executor.execute(who, "go")
    result = await handle.result(PATIENCE_S)
    assert (result.status, result.output, sorted(done)) == ("completed", "Done.", ["a", "b", "c"])
    await yard.check(handle.session_id)


async def test_calls_of_a_step_run_at_the_same_time(make: MakeYard) -> None:
    both = asyncio.Barrier(2)

    async def meet(given: Any, ctx: Any) -> str:
        await asyncio.wait_for(both.wait(), PATIENCE_S)
        return "met"

    who = agent(tools=[a_tool("meet", meet)])
    yard = make(who, script=[calls(call("meet"), call("meet")), "Done."])
    yard.serve(yard.worker("w1"))
    assert (await (await yard.executor.execute(who, "go")).result(PATIENCE_S)).status == "completed"


async def test_a_tree_does_not_wait_for_itself(make: MakeYard) -> None:
    """One worker plays an agent with two parallel sub-agents, one of which has a sub-agent of its own."""
    leaf = agent("leaf", output_schema=Text)
    branch = agent("branch", output_schema=Text, tools=[create_sub_agent_tool(leaf)])
    root = agent("root", tools=[create_sub_agent_tool(branch), create_sub_agent_tool(leaf)])
    script = {
        "root": [calls(call("subagent__branch", message="x"), call("subagent__leaf", message="y")), "Root."],
        "branch": [calls(call("subagent__leaf", message="z")), calls(call("__finish__", text="branch"))],
        "leaf": [calls(call("__finish__", text="leaf"))] * 2,
    }
    yard = make(root, script=script)
    yard.serve(yard.worker("w1", "root"))
    handle = await yard.executor.execute(root, "go")
    result = await handle.result(PATIENCE_S)
    assert (result.status, result.output) == ("completed", "Root.")
    await yard.check(handle.session_id)


async def test_a_long_run_keeps_no_tokens_of_what_it_waited_for(make: MakeYard) -> None:
    """Each wake-up reads the tokens received so far. In a run with many sub-agents they would pile up if they were not
    deleted."""
    gate, leaf = Gate(), agent("leaf", output_schema=Text)
    root = agent("root", tools=[create_sub_agent_tool(leaf)])
    both = calls(call("subagent__leaf", message="x"), call("subagent__leaf", message="y"))
    script = {"root": [both, both, gated(gate, "Root.")], "leaf": [calls(call("__finish__", text="leaf"))] * 4}
    yard = make(root, script=script)
    yard.serve(yard.worker("w1"))
    handle = await yard.executor.execute(root, "go")
    await gate.reached()
    rows = await yard.queue.store.query("control", f"execution#{handle.run_id}")
    assert [row.key.sort for row in rows] == ["execution"]
    gate.open()
    assert (await handle.result(PATIENCE_S)).output == "Root."
    await yard.check(handle.session_id)


async def test_an_approval_pauses_the_run_and_an_answer_goes_on(make: MakeYard) -> None:
    ran: list[str] = []

    async def act(given: Any, ctx: Any) -> str:
        ran.append("act")
        return "acted"

    who = agent(tools=[a_tool("act", act, require_approval=True)])
    yard = make(who, script=[calls(call("act")), "Done."])
    yard.serve(yard.worker("w1"))
    handle = await yard.executor.execute(who, "go")
    paused = await handle.result(PATIENCE_S)
    assert (paused.status, [p.call_id for p in paused.pending], ran) == ("paused", ["call_0"], [])
    again = await handle.resume(confirmation=Confirmation(tool_call_id="call_0", approved=True))
    assert ((await again.result(PATIENCE_S)).output, ran) == ("Done.", ["act"])


async def test_a_question_and_its_answer_are_of_two_workers(make: MakeYard) -> None:
    entered: list[str] = []

    async def ask(given: Any, ctx: Any) -> str:
        entered.append("ask")
        first = await ctx.ask(Question("First?"))
        return f"{first} {await ctx.ask(Question('Second?', timeout_s=0.3, on_timeout='default', default='two'))}"

    who = agent(tools=[a_tool("ask", ask)])
    yard = make(who, script=[calls(call("ask")), "Done."])
    first = yard.serve(yard.worker("w1"))
    handle = await yard.executor.execute(who, "go")
    (pending,) = (await handle.result(PATIENCE_S)).pending
    await yard.rested()
    first.cancel()
    yard.serve(yard.worker("w2"))
    again = await handle.answer("call_0", data="one", round=pending.round)
    assert (await again.result(PATIENCE_S)).status == "paused"

    async def ended() -> bool:
        await yard.sweep()
        return (await yard.executor.sessions.get(handle.session_id)).status == "completed"

    await eventually(ended)
    messages = (await yard.executor.sessions.get_messages(handle.session_id)).messages
    assert ([m.content for m in messages if m.role == "tool"], entered) == (["one two"], ["ask"] * 3)
    await yard.check(handle.session_id)


async def test_a_long_run_rolls_over_to_its_next_part(make: MakeYard) -> None:
    """The limit is the history of an execution, which grows with each invocation."""

    async def work(given: Any, ctx: Any) -> str:
        return "worked"

    who = agent(tools=[a_tool("work", work)])
    script = [*(calls(call("work")) for _ in range(6)), "Done."]
    yard = make(who, script=script, roll_over_events=30, steps_per_invocation=1)
    yard.serve(yard.worker("w1"))
    handle = await yard.executor.execute(who, "go")
    result = await handle.result(PATIENCE_S)
    run = await yard.engine.history.run(handle.session_id, handle.run_id)
    assert (result.status, run.part > 1) == ("completed", True)
    await yard.check(handle.session_id)


async def test_a_worker_has_one_run_at_a_time(make: MakeYard) -> None:
    """An instance is one unit of concurrency. A second run waits until the first ends or another worker is free."""
    first, second = Gate(), Gate()
    who = agent()
    yard = make(who, script=[gated(first, "One."), gated(second, "Two.")])
    yard.serve(yard.worker("w1"))
    one = await yard.executor.execute(who, "go")
    await first.reached()
    two = await yard.executor.execute(who, "go")
    rows = {row.value["run_id"]: row.value["owner"] for row in await yard.queue.open_work()}
    assert rows == {one.run_id: "w1", two.run_id: None}
    yard.serve(yard.worker("w2"))
    await second.reached()
    first.open()
    second.open()
    assert [(await handle.result(PATIENCE_S)).status for handle in (one, two)] == ["completed", "completed"]


async def test_interrupt_and_abort_of_a_run_at_work(make: MakeYard) -> None:
    gate = Gate()
    who = agent()
    yard = make(who, script=[gated(gate, "Never."), gated(gate, "Never."), "Done."])
    yard.serve(yard.worker("w1"))
    handle = await yard.executor.execute(who, "go", session_id="s1")
    await gate.reached()
    assert await handle.interrupt("enough")
    assert (await handle.result(PATIENCE_S)).status == "interrupted"
    gate.entered.clear()
    again = await handle.resume()
    await gate.reached()
    await again.abort("no")
    result = await again.result(PATIENCE_S)
    assert (result.status, result.error_code) == ("failed", "aborted")
    third = await yard.executor.execute(who, "go", session_id="s1")
    assert (await third.result(PATIENCE_S)).output == "Done."


async def test_the_rows_of_an_ended_execution_go_with_its_run(make: MakeYard) -> None:
    who = agent()
    yard = make(who, script=["Done."])
    worker = yard.worker("w1")
    serving = yard.serve(worker)
    handle = await yard.executor.execute(who, "go")
    await handle.result(PATIENCE_S)
    worker.drain()
    await asyncio.wait_for(serving, PATIENCE_S)
    assert await yard.queue.open_work() == []
    assert await yard.queue.trim() == 0  # it ended just now, and a repeated start must find it
    yard.queue.clock = Later(yard.engine.clock)
    assert await yard.queue.trim() == 1
    assert await yard.engine.store.query("control", f"execution#{handle.run_id}") == []


class Later:
    """The given clock, an hour ahead."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock

    def now(self) -> float:
        return float(self._clock.now()) + 3600

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
