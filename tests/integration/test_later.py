"""Calls that end elsewhere: their results, lost, late, repeated and forged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support_later import GO_ON, Orders, rests, shipping, shop
from tests.support_run import (
    Gate,
    Text,
    World,
    a_tool,
    agent,
    assert_stream,
    call,
    calls,
    eventually,
    history,
    of_type,
    play,
    result_of,
    results,
)

from helix import CallEndedError, InvalidCallTokenError, ToolContext, create_tool_context, tool
from helix.core.elsewhere import CallToken
from helix.core.errors import DefinitionError, InvalidInputError
from helix.core.tools import create_sub_agent_tool


class Receipt(BaseModel):
    number: int
    paid: bool = True


async def test_another_system_ends_a_call(world: World) -> None:
    tokens: list[str] = []
    who, executor = shop(tokens), world.executor(shipping())
    handle, result, chunks = await play(executor, who)
    assert (result.status, result.pending[0].kind, result.pending[0].expires_at) == ("paused", "elsewhere", None)
    assert [chunk.kind for chunk in of_type(chunks, "tool_approval_request")] == ["elsewhere"]
    await executor.complete_call(tokens[0], {"shipped": True})
    state = await rests(executor, handle.session_id)
    assert (state.status, state.turn, state.custom_state) == ("completed", 2, {"sent": ["A7"]})
    assert results(await history(executor, handle.session_id)) == ['{"shipped":true}']


async def test_the_process_that_reports_need_not_be_the_one_that_paused(file_world: World) -> None:
    """A deployment in between: the new process knows the agent, whose tool is gone by now."""
    tokens: list[str] = []
    handle, _, _ = await play(file_world.executor(shipping()), shop(tokens, output_schema=Receipt))
    second = file_world.executor([GO_ON])
    second.agents.know(agent(state_schema=Orders))
    await second.complete_call(tokens[0], "not a receipt")
    assert (await rests(second, handle.session_id)).status == "completed"
    assert results(await history(second, handle.session_id)) == ["not a receipt"]


@pytest.mark.parametrize("error", [None, "the lorry broke down"])
async def test_a_result_may_come_before_the_tool_has_returned(world: World, error: str | None) -> None:
    @tool(later=True)
    async def ship(ctx: ToolContext[Orders]) -> None:
        """Ship."""
        token = await ctx.later(heartbeat_s=60)
        if error is None:
            await executor.complete_call(token, "shipped")
            await executor.complete_call(token, "shipped")
        else:
            await executor.fail_call(token, error)
        with pytest.raises(CallEndedError):
            await executor.complete_call(token, "lost")
        with pytest.raises(CallEndedError):
            await executor.prolong_call(token)
        ctx.update_state(lambda state: state.sent.append("A7"))

    executor = world.executor([calls(call("ship")), GO_ON])
    handle, result, chunks = await play(executor, agent(tools=[ship], state_schema=Orders))
    state = await executor.sessions.get(handle.session_id)
    assert (result.status, state.turn) == ("completed", 1)
    # A failed call keeps no changes of the state.
    assert state.custom_state == {"sent": ["A7"] if error is None else []}
    wanted = "shipped" if error is None else '{"error":"the lorry broke down"}'
    assert results(await history(executor, handle.session_id)) == [wanted]
    assert [chunk.success for chunk in of_type(chunks, "tool_end")] == [error is None]
    assert_stream(chunks)


async def test_a_result_that_came_early_outlives_an_error_of_the_tool(world: World) -> None:
    @tool(later=True)
    async def ship(ctx: ToolContext) -> None:
        """Ship."""
        await executor.complete_call(await ctx.later(), "shipped")
        raise RuntimeError("too late")

    executor = world.executor([calls(call("ship")), GO_ON])
    handle, _, _ = await play(executor, agent(tools=[ship]))
    assert results(await history(executor, handle.session_id)) == ["shipped"]


async def test_a_tool_that_fails_after_it_took_a_token_ends_the_call(world: World) -> None:
    tokens: list[str] = []

    @tool(later=True)
    async def ship(ctx: ToolContext) -> None:
        """Ship."""
        tokens.append(await ctx.later())
        raise RuntimeError("no lorry")

    executor = world.executor([calls(call("ship")), GO_ON])
    handle, result, _ = await play(executor, agent(tools=[ship]))
    assert result.status == "completed"
    with pytest.raises(CallEndedError, match="another result"):
        await executor.complete_call(tokens[0], "shipped")
    assert results(await history(executor, handle.session_id)) == ['{"error":"RuntimeError: no lorry"}']


async def test_attempts_of_one_execution_share_a_token(world: World) -> None:
    tokens: list[str] = []

    @tool(later=True, retries=1)
    async def ship(ctx: ToolContext) -> str:
        """Ship."""
        tokens.extend([await ctx.later(), await ctx.later(timeout_s=60)])
        if len(tokens) < 4:
            raise RuntimeError("once more")
        return "ignored"

    executor = world.executor([calls(call("ship")), GO_ON])
    handle, result, _ = await play(executor, agent(tools=[ship]))
    assert len(set(tokens)) == 1 and result.pending[0].expires_at is not None
    await executor.complete_call(tokens[0])
    await rests(executor, handle.session_id)
    assert results(await history(executor, handle.session_id)) == ["null"]


async def test_the_same_result_is_acknowledged_and_another_one_is_refused(world: World) -> None:
    tokens: list[str] = []
    executor = world.executor(shipping(calls(call("ship", text="B8"))))
    handle, _, _ = await play(executor, shop(tokens))
    for _ in range(2):
        await executor.complete_call(tokens[0], {"a": 1, "b": [2]})
        await rests(executor, handle.session_id, "paused")
    assert len(tokens) == 2
    changed: list[Any] = [{"a": 1, "b": [3]}, None, '{"a":2}']
    for late in changed:
        with pytest.raises(CallEndedError, match="another result"):
            await executor.complete_call(tokens[0], late)
    with pytest.raises(CallEndedError, match="another result"):
        await executor.fail_call(tokens[0], "never mind")
    with pytest.raises(CallEndedError, match="a result already"):
        await executor.prolong_call(tokens[0])
    assert (await executor.sessions.get(handle.session_id)).status == "paused"


async def test_one_of_two_results_at_once_wins(world: World) -> None:
    tokens: list[str] = []
    who, first = shop(tokens), world.executor(shipping())
    second = world.executor([GO_ON])
    second.agents.know(who)
    handle, _, _ = await play(first, who)
    sent = [each.complete_call(tokens[0], number) for number, each in enumerate([first, second] * 4)]
    ended = await asyncio.gather(*sent, return_exceptions=True)
    assert sorted(str(type(each)) for each in ended).count(str(CallEndedError)) == 7
    await rests(first, handle.session_id)
    assert results(await history(first, handle.session_id)) == [str(ended.index(None))]


def forged(token: str) -> list[object]:
    place = CallToken.parse(token)
    other = CallToken(place.session_id, place.lineage, place.index, "0" * 52)
    beside = CallToken(place.session_id, place.lineage, place.index - 1, place.secret)
    beyond = CallToken(place.session_id, place.lineage + 1, place.index, place.secret)
    nowhere = CallToken("ses_nowhere", 0, 2, place.secret)
    made = [str(each) for each in (other, beside, beyond, nowhere)]
    return ["", "call", None, 7, token[:-1], token + "A", token.lower(), "call.####." + place.secret, token * 9, *made]


async def test_a_wrong_token_is_refused_in_one_way(world: World) -> None:
    tokens: list[str] = []
    executor = world.executor(shipping())
    handle, _, _ = await play(executor, shop(tokens))
    texts = set()
    for token in forged(tokens[0]):
        for sent in (executor.complete_call(token, "x"), executor.fail_call(token, "x"), executor.prolong_call(token)):  # type: ignore[arg-type]
            with pytest.raises(InvalidCallTokenError) as caught:
                await sent
            texts.add(str(caught.value))
    await executor.delete(handle.session_id)
    with pytest.raises(InvalidCallTokenError) as caught:
        await executor.complete_call(tokens[0], "shipped")
    assert texts == {str(caught.value)}


async def test_the_store_and_the_log_never_have_the_secret(world: World) -> None:
    tokens: list[str] = []
    executor = world.executor(shipping())
    handle, _, _ = await play(executor, shop(tokens))
    place = CallToken.parse(tokens[0])
    assert place.secret not in repr(place)
    rows = await executor.store.query("sessions", handle.session_id)
    assert any(place.secret_hash in repr(row) for row in rows) and not any(place.secret in repr(row) for row in rows)


async def test_a_result_for_an_interrupted_session_is_kept(world: World) -> None:
    tokens: list[str] = []
    gate = Gate()
    busy = a_tool("busy", lambda given, ctx: gate.wait(), input_schema=Text)
    who = shop(tokens)
    who = agent(tools=[*who.tools, busy], state_schema=Orders)
    executor = world.executor([calls(call("ship", text="A7"), call("busy", text="x")), GO_ON])
    handle = await executor.execute(who, "go")
    await gate.reached()
    await eventually(lambda: asyncio.sleep(0, bool(tokens)))
    await handle.interrupt()
    gate.open()
    assert (await result_of(handle)).status == "interrupted"
    await executor.complete_call(tokens[0], "shipped")
    await executor.complete_call(tokens[0], "shipped")
    again = await executor.resume(who, handle.session_id)
    assert (await result_of(again)).status == "completed"
    assert results(await history(executor, handle.session_id))[0] == "shipped"


async def test_a_result_comes_while_another_call_runs(world: World) -> None:
    tokens: list[str] = []
    gate = Gate()
    busy = a_tool("busy", lambda given, ctx: gate.wait(), input_schema=Text)
    who = agent(tools=[*shop(tokens).tools, busy], state_schema=Orders)
    executor = world.executor([calls(call("ship", text="A7"), call("busy", text="x")), GO_ON])
    handle = await executor.execute(who, "go")
    await gate.reached()
    await eventually(lambda: asyncio.sleep(0, bool(tokens)))
    await executor.complete_call(tokens[0], "shipped")
    gate.open()
    assert (await result_of(handle)).status == "completed"
    state = await executor.sessions.get(handle.session_id)
    assert (state.turn, state.custom_state) == (1, {"sent": ["A7"]})


@pytest.mark.parametrize("end", ["message", "abort", "rewind"])
async def test_a_late_result_changes_nothing(world: World, end: str) -> None:
    tokens: list[str] = []
    who, executor = shop(tokens), world.executor([*shipping(), GO_ON])
    handle, _, _ = await play(executor, who)
    if end == "message":
        await result_of(await executor.resume(who, handle.session_id, message="Never mind."))
        assert '"status":"unknown"' in results(await history(executor, handle.session_id))[0]
    elif end == "abort":
        await executor.abort(who, handle.session_id)
    else:
        points = await executor.sessions.list_checkpoints(handle.session_id)
        first = min(points.items, key=lambda point: point.created_at)
        await result_of(await executor.resume(who, handle.session_id, checkpoint_id=first.id, message="Again."))
    before = await executor.store.query("sessions", handle.session_id)
    for sent in (
        executor.complete_call(tokens[0], "x"),
        executor.fail_call(tokens[0], "x"),
        executor.prolong_call(tokens[0]),
    ):
        with pytest.raises(CallEndedError):
            await sent
    assert await executor.store.query("sessions", handle.session_id) == before


async def test_a_result_that_does_not_fit_leaves_the_call_waiting(world: World) -> None:
    tokens: list[str] = []
    executor = world.executor(shipping())
    handle, _, _ = await play(executor, shop(tokens, output_schema=Receipt))
    for value, problem in [
        ({"number": "x"}, "number"),
        ("text", "output schema"),
        ({"number": 1, "more": "x" * 100_000}, "100000 bytes"),
        (float("nan"), "result"),
        (object(), "result"),
    ]:
        with pytest.raises(InvalidInputError, match=problem):
            await executor.complete_call(tokens[0], value)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="error"):
        await executor.fail_call(tokens[0], "x" * 10_000)
    assert (await executor.sessions.get(handle.session_id)).status == "paused"
    for _ in range(2):
        await executor.complete_call(tokens[0], {"number": 7})
        await rests(executor, handle.session_id)
    assert results(await history(executor, handle.session_id)) == ['{"number":7,"paid":true}']


async def test_a_sub_agents_call_ends_elsewhere(world: World) -> None:
    tokens: list[str] = []
    child = shop(tokens)
    who = agent("boss", tools=[create_sub_agent_tool(child)])
    executor = world.executor([calls(call("subagent__helper", message="ship")), *shipping("Shipped."), "Done."])
    handle, result, _ = await play(executor, who)
    assert result.status == "paused"
    await executor.complete_call(tokens[0], "shipped")
    assert (await rests(executor, handle.session_id)).status == "completed"


async def test_a_worker_that_leaves_hands_the_token_on(file_world: World) -> None:
    """The process stops between the token and the row of the pause: a result that came meanwhile is not lost."""
    tokens: list[str] = []
    gate = Gate()

    @tool(later=True)
    async def ship(ctx: ToolContext) -> None:
        """Ship."""
        tokens.append(await ctx.later())
        await gate.wait()

    who = agent(tools=[ship])
    first = file_world.executor([calls(call("ship"))])
    handle = await first.execute(who, "go")
    await gate.reached()
    await first.close()
    second = file_world.executor([GO_ON])
    second.agents.know(who)
    await second.complete_call(tokens[0], "shipped")

    async def resumed() -> bool:
        try:
            return (await result_of(await second.resume(who, handle.session_id))).status == "completed"
        except Exception:
            return (await second.sessions.get(handle.session_id)).status == "completed"

    await eventually(resumed)
    assert len(tokens) == 1 and gate.times == 1
    assert results(await history(second, handle.session_id)) == ["shipped"]


async def test_a_tool_declares_that_it_ends_elsewhere(quick_world: World) -> None:
    @tool
    async def ship(ctx: ToolContext) -> None:
        """Ship."""
        await ctx.later()

    executor = quick_world.executor([calls(call("ship")), GO_ON])
    handle, _, _ = await play(executor, agent(tools=[ship]))
    assert "@tool(later=True)" in results(await history(executor, handle.session_id))[0]
    with pytest.raises(DefinitionError, match="later"):
        a_tool("client", "client", later=True)


async def test_unit_tests_of_tools_get_a_token() -> None:
    context = create_tool_context(agent_id="ses", agent_type="shop")
    assert CallToken.parse(await context.later(heartbeat_s=3)).session_id == "test"
    mistakes: list[dict[str, Any]] = [{"heartbeat_s": 0}, {"timeout_s": "1"}, {"on_timeout": "default"}]
    for wrong in mistakes:
        with pytest.raises(InvalidInputError, match=f"ctx.later: {next(iter(wrong))}"):
            await context.later(**wrong)
