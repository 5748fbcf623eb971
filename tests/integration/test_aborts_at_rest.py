"""Aborts of a session that is paused or interrupted. It fails for good, once, in one process and through deliveries."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.delivery_stage import Stage
from tests.support.torn_store import Torn
from tests.support_run import Gate, Text, World, a_tool, agent, call, calls, chunks_of, gated, play, result_of
from tests.support_sub_agents import ask, child, finish, only_child, parent

from helix import Agent, Confirmation, LocalExecutor, ScriptedModel, ToolContext
from helix.core.errors import CallNotPendingError, CannotResumeError
from helix.testing.invariants import check_session


def asking(ran: list[str], **fields: Any) -> Agent[Any, Any]:
    def pay(given: Text, ctx: ToolContext[Any]) -> str:
        ran.append(given.text)
        return f"paid {given.text}"

    return agent(tools=[a_tool("pay", pay, input_schema=Text, require_approval=True)], **fields)


async def refused(executor: Any, who: Any, session_id: str) -> None:
    """Check that everything is refused that is also refused after an abort of a running session."""
    with pytest.raises(CallNotPendingError):
        await executor.answer(who, session_id, Confirmation("call_0"))
    with pytest.raises(CannotResumeError):
        await executor.resume(who, session_id)
    with pytest.raises(CannotResumeError) as caught:
        await executor.retry(who, session_id)
    assert caught.value.reason == "aborted"
    assert (await executor.can_resume(session_id)).reason == "aborted"


async def whole(executor: Any, session_id: str) -> None:
    await check_session(executor.store, executor.streams, session_id, at_rest=True)


async def test_a_paused_session_is_aborted_for_good(world: World) -> None:
    ran, ends = list[str](), list[Any]()
    hooks = {"on_agent_fail": lambda payload, context: ends.append(payload["error"].code)}
    executor = world.executor([calls(call("pay", text="rent")), "a new start"], hooks=hooks)
    who = asking(ran)
    handle, result, _ = await play(executor, who)
    assert result.status == "paused"
    await handle.abort("no more")
    await handle.abort("again")
    await executor.abort(who, handle.session_id, "and again")
    result = await result_of(handle)
    assert (result.status, result.error_code, result.error, result.recoverable) == (
        "failed",
        "aborted",
        "no more",
        False,
    )
    state = await handle.get_state()
    assert (state.status, state.aborted, state.abort_reason) == ("failed", True, "no more")
    now = await executor.get_handle(who, handle.session_id)
    last = (await chunks_of(now))[-1]
    assert (last.type, last.code, last.error) == ("error", "aborted", "no more")  # type: ignore[union-attr]
    assert (await result_of(now)).error_code == "aborted" and ends == ["aborted"]
    await refused(executor, who, handle.session_id)
    await whole(executor, handle.session_id)
    _, result, _ = await play(executor, who, "anew", session_id=handle.session_id)
    assert result.output == "a new start" and ran == []
    await whole(executor, handle.session_id)


async def test_an_interrupted_session_is_aborted_for_good(world: World) -> None:
    gate = Gate()
    executor = world.executor([gated(gate, "never said")])
    who = agent()
    handle = await executor.execute(who, "go")
    await gate.reached()
    await handle.interrupt(wait=True)
    await handle.abort("no more")
    assert (await result_of(handle)).error_code == "aborted"
    await refused(executor, who, handle.session_id)
    await whole(executor, handle.session_id)


@pytest.mark.parametrize("ended", ["completed", "failed"])
async def test_a_session_that_has_ended_stays_as_it_is(quick_world: World, ended: str) -> None:
    executor = quick_world.executor(["Done."] if ended == "completed" else [{"error": "no", "code": "boom"}])
    handle, result, _ = await play(executor, agent())
    assert result.status == ended
    await handle.abort()
    state = await handle.get_state()
    assert (state.status, state.aborted, state.current_run_id) == (ended, False, handle.run_id)


async def test_paused_sub_agents_are_aborted_with_their_parent(world: World) -> None:
    ran: list[str] = []

    def pay(given: Text, ctx: ToolContext[Any]) -> str:
        ran.append(given.text)
        return "paid"

    finder = child(tools=[a_tool("pay", pay, input_schema=Text, require_approval=True)])
    script = {"boss": [calls(ask()), "done"], "finder": [calls(call("pay", text="rent")), finish("paid")]}
    executor = world.executor(script)
    boss = parent(finder)
    handle, result, _ = await play(executor, boss)
    ref = await only_child(executor, handle.session_id)
    assert (result.status, ref.status) == ("paused", "paused")
    await handle.abort("enough")
    below = await executor.sessions.get(ref.session_id)
    assert (below.status, below.aborted, below.abort_reason) == ("failed", True, "enough")
    for session_id in (handle.session_id, ref.session_id):
        with pytest.raises(CallNotPendingError):
            await executor.answer(boss, session_id, Confirmation("call_0"))
    assert (await executor.sessions.get(handle.session_id)).status == "failed" and ran == []
    await whole(executor, handle.session_id)


async def test_an_aborted_paused_sub_agent_is_a_failed_result_of_its_parent(world: World) -> None:
    ran: list[str] = []
    finder = child(tools=asking(ran).tools)
    script = {"boss": [calls(ask()), "without it, then"], "finder": [calls(call("pay", text="rent"))]}
    executor = world.executor(script)
    boss = parent(finder)
    handle, _, _ = await play(executor, boss)
    ref = await only_child(executor, handle.session_id)
    await executor.abort(finder, ref.session_id, "not this one")
    result = await result_of(await executor.get_handle(boss, handle.session_id))
    assert result.output == "without it, then" and ran == []
    await whole(executor, handle.session_id)


async def test_an_answer_between_the_abort_of_a_session_and_of_its_sub_agent_is_refused() -> None:
    ran, refusals = list[str](), list[type[Exception]]()
    finder, store = child(tools=asking(ran).tools), Torn()
    boss = parent(finder)
    script = {"boss": [calls(ask())], "finder": [calls(call("pay", text="rent"))]}
    executor = LocalExecutor(store, model=ScriptedModel(script))
    handle, result, _ = await play(executor, boss)
    assert result.status == "paused"

    async def answer() -> None:
        assert (await executor.sessions.get(handle.session_id)).aborted
        try:
            await executor.answer(boss, handle.session_id, Confirmation("call_0"))
        except CallNotPendingError as error:
            refusals.append(type(error))

    store.at, store.then = (await only_child(executor, handle.session_id)).session_id, answer
    await handle.abort("enough")
    assert refusals == [CallNotPendingError] and ran == []
    await whole(executor, handle.session_id)
    await executor.close()


async def test_an_abort_is_the_result_of_the_run_that_it_ended_and_of_no_earlier_one(world: World) -> None:
    executor = world.executor([calls(call("pay", text="rent")), calls(call("pay", text="wine"))])
    who = asking([])
    first, _, _ = await play(executor, who)
    second, _, _ = await play(executor, who, "anew", session_id=first.session_id)
    await second.abort("no more")
    assert ((await result_of(second)).error_code, (await result_of(second)).error) == ("aborted", "no more")
    earlier = await result_of(first)
    assert (earlier.run_id, earlier.error_code, earlier.completion_reason) == (first.run_id, None, "pending")


async def test_an_abort_and_an_answer_at_once(world: World) -> None:
    """Exactly one transaction gets the paused run. The tool runs only if the answer got it."""
    ran: list[str] = []
    one, other = world.executor([calls(call("pay", text="rent")), "done"]), world.executor(["done"])
    who = asking(ran)
    handle, _, _ = await play(one, who)
    answer = other.answer(who, handle.session_id, Confirmation("call_0"))
    (answered, _) = await asyncio.gather(answer, handle.abort("no more"), return_exceptions=True)
    now = await one.get_handle(who, handle.session_id)
    result = await result_of(now)
    if isinstance(answered, CallNotPendingError):
        assert result.error_code == "aborted" and ran == []
    else:
        assert not isinstance(answered, BaseException) and result.output == "done" and ran == ["rent"]
    runs = (await one.sessions.list_runs(handle.session_id)).runs
    assert len(runs) == 2 and [run.run_id for run in runs if run.status == "superseded"] == [handle.run_id]


async def test_deliveries_of_an_aborted_paused_run(quick_world: World) -> None:
    """The effects are applied once in the cloud, and nothing is started. The index of open runs is empty, and slots and
    budgets are free."""
    ran: list[str] = []
    who = asking(ran)
    stage = Stage([calls(call("pay", text="rent")), "Done."], who)
    event = await stage.begin(who)
    told = await stage.follow(event)
    assert told["next"] == "finish"
    await stage.deliver("finish_run", told)
    assert (await stage.session(event)).status == "paused"
    starts = list(stage.held.starts)
    for _ in range(2):
        await stage.executor.abort(who, event["session_id"], "no more")
    session = await stage.session(event)
    assert session.error is not None and (session.status, session.error.code, session.turn) == ("failed", "aborted", 2)
    assert stage.held.starts == starts
    await refused(stage.executor, who, event["session_id"])
    late = {**event, "run_id": session.run_id}
    for verb in ("finish_run", "fail_run", "call_model"):
        await stage.deliver(verb, late)
    await stage.deliver("sweep")
    assert stage.held.starts == starts and ran == []
    assert stage.measured.of("RunsStopped") == [1, 1], "the pause, and the abort"
    await whole(stage.executor, event["session_id"])
