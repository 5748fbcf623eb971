"""Stopping and going on: interrupts, answers, time travel, and who may do what when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support_run import (
    Gate,
    Nothing,
    Text,
    World,
    a_tool,
    agent,
    assert_stream,
    call,
    calls,
    chunks_of,
    eventually,
    gated,
    history,
    of_type,
    play,
    result_of,
    results,
    told,
    types,
)

from helix import Agent, Confirmation, FatalToolError, LocalExecutor, ModelError, ScriptedModel, ToolContext
from helix.core.errors import (
    AgentAlreadyRunningError,
    CallNotPendingError,
    CannotResumeError,
    CheckpointNotFoundError,
    InvalidInputError,
    RunNotFoundError,
    SessionNotFoundError,
)
from helix.runtime.handle import AgentExecutionHandle


class Log(BaseModel):
    lines: list[str] = []


def writer(name: str = "write", **fields: Any) -> Any:
    def write(given: Text, ctx: ToolContext[Log]) -> str:
        ctx.update_state(lambda s: s.lines.append(given.text))
        return f"wrote {given.text}"

    return a_tool(name, write, input_schema=Text, **fields)


def waiting(name: str, gate: Gate, result: str = "ok", **fields: Any) -> Any:
    async def wait(given: Nothing, ctx: ToolContext[Any]) -> str:
        await gate.wait()
        return result

    return a_tool(name, wait, **fields)


async def interrupted_in_model(
    executor: LocalExecutor, who: Agent[Any, Any], gate: Gate, **options: Any
) -> AgentExecutionHandle[Any]:
    handle = await executor.execute(who, "go", **options)
    await gate.reached()
    assert await handle.interrupt("enough", wait=True)
    gate.open()
    return handle


# --- interrupts ---------------------------------------------------------------------------------------------------


async def test_interrupt_during_the_model_call(world: World) -> None:
    gate = Gate()
    executor = world.executor([calls(call("write", text="a")), gated(gate, "never said"), "said later"])
    who = agent(tools=[writer()], state_schema=Log)
    handle = await interrupted_in_model(executor, who, gate)
    result, chunks = await result_of(handle), await chunks_of(handle)
    assert (result.status, result.error) == ("interrupted", None)
    last = chunks[-1]
    assert last.type == "run_interrupted" and last.reason == "enough"  # type: ignore[union-attr]
    assert last.checkpoint_id == (await handle.get_state()).checkpoint_id  # type: ignore[union-attr]
    assert told(await history(executor, handle.session_id)) == ["user: go", "assistant: [write]", "tool: wrote a"]
    assert (await handle.can_resume()).can_resume

    again = await handle.resume()
    result, chunks = await result_of(again), await chunks_of(again)
    assert result.output == "said later" and again.run_id != handle.run_id
    resumed = chunks[0]
    assert resumed.type == "run_resumed" and resumed.previous_run_id == handle.run_id  # type: ignore[union-attr]
    assert resumed.mode == "continue"  # type: ignore[union-attr]
    assert (await executor.sessions.get_run(handle.session_id, handle.run_id)).status == "superseded"
    assert (await result_of(handle)).status == "interrupted"
    assert (await handle.get_state()).custom_state == {"lines": ["a"]}


async def test_text_of_an_interrupted_step_is_discarded(world: World) -> None:
    gate = Gate()

    class Slow(ScriptedModel):
        async def generate_step(self, request: Any) -> Any:
            if not self.requests:
                self.requests.append(request)
                request.callbacks.on_text_delta("half a sen")
                await gate.wait()
            return await super().generate_step(request)

    executor = world.executor(Slow(["a whole sentence"]))
    handle = await interrupted_in_model(executor, agent(), gate)
    chunks = await chunks_of(handle)
    assert types(chunks)[-2:] == ["step_discarded", "run_interrupted"]
    again = await handle.resume()
    assert (await result_of(again)).output == "a whole sentence"


async def test_interrupt_during_tools_lets_them_finish(world: World) -> None:
    gate = Gate()
    executor = world.executor([calls(call("wait"), call("write", text="b")), "done"])
    who = agent(tools=[waiting("wait", gate), writer()], state_schema=Log)
    handle = await executor.execute(who, "go")
    await gate.reached()
    assert await handle.interrupt()
    gate.open()
    assert (await result_of(handle)).status == "interrupted"
    assert results(await history(executor, handle.session_id)) == ["ok", "wrote b"]  # committed, not lost
    again = await handle.resume()
    assert (await result_of(again)).output == "done" and gate.times == 1


async def test_a_long_tool_sees_the_interrupt(world: World) -> None:
    started = asyncio.Event()

    async def patient(given: Nothing, ctx: ToolContext[Any]) -> str:
        started.set()
        while not ctx.cancelled():
            await asyncio.sleep(0.005)
        return "stopped early"

    executor = world.executor([calls(call("patient")), "done"])
    handle = await executor.execute(agent(tools=[a_tool("patient", patient)]), "go")
    await started.wait()
    await handle.interrupt(wait=True)
    assert results(await history(executor, handle.session_id)) == ["stopped early"]


async def test_a_stop_before_the_tools_leaves_them_unstarted(world: World) -> None:
    """Also those that must not run twice: never started is not an unknown outcome."""
    ran: list[str] = []

    async def stop(payload: Any, context: Any) -> None:
        if context.step_count == 0:
            await executor.interrupt(context.session_id)

    def work(given: Nothing, ctx: ToolContext[Any]) -> str:
        ran.append(ctx.tool_call_id)
        return "worked"

    tools = [a_tool("once", work, on_unknown="skip"), a_tool("asks", work, on_unknown="ask"), a_tool("any", work)]
    script = [calls(call("once"), call("asks"), call("any")), "done"]
    executor = world.executor(script, hooks={"after_llm_call": stop})
    who = agent(tools=tools)
    handle = await executor.execute(who, "go")
    assert (await result_of(handle)).status == "interrupted" and ran == []
    assert told(await history(executor, handle.session_id)) == ["user: go"]
    assert [c.type for c in await chunks_of(handle)].count("tool_start") == 0
    again = await handle.resume()
    assert (await result_of(again)).output == "done" and sorted(ran) == ["call_0", "call_1", "call_2"]
    assert_stream(await chunks_of(again))


async def test_unstarted_calls_are_closed_as_not_executed(world: World) -> None:
    async def stop(payload: Any, context: Any) -> None:
        if context.step_count == 0:
            await executor.interrupt(context.session_id)

    executor = world.executor([calls(call("write", text="x")), "fine"], hooks={"after_llm_call": stop})
    who = agent(tools=[writer()], state_schema=Log)
    handle = await executor.execute(who, "go")
    await result_of(handle)
    again = await handle.resume(mode="with_message", message="do something else")
    assert (await result_of(again)).output == "fine"
    lines = told(await history(executor, handle.session_id))
    assert lines[2].startswith('tool: {"status":"not_executed"') and lines[3] == "user: do something else"


async def test_interrupt_from_another_process(file_world: World) -> None:
    gate = Gate()
    executor, other = file_world.executor([gated(gate, "x")]), file_world.executor(["resumed there"])
    who = agent()
    handle = await executor.execute(who, "go")
    await gate.reached()
    seen = await other.get_handle(who, handle.session_id)
    assert seen.run_id == handle.run_id
    assert await seen.interrupt("from afar", wait=True)
    assert (await result_of(handle)).status == "interrupted"
    again = await seen.resume()
    assert (await result_of(again)).output == "resumed there"


async def test_interrupt_never_hits_the_next_run(world: World) -> None:
    executor = world.executor(["one", "two"])
    who = agent()
    handle, _, _ = await play(executor, who)
    assert await handle.interrupt() is False
    second = await executor.execute(who, "more", session_id=handle.session_id)
    assert await handle.interrupt() is False
    await handle.abort()
    assert (await result_of(second)).status == "completed"
    assert await executor.interrupt(handle.session_id) is False
    with pytest.raises(SessionNotFoundError):
        await executor.interrupt("ses_nowhere")


async def test_interrupt_twice_is_once(world: World) -> None:
    gate = Gate()
    executor = world.executor([gated(gate, "x")])
    handle = await executor.execute(agent(), "go")
    await gate.reached()
    assert await handle.interrupt("first") and await handle.interrupt("second")
    assert (await result_of(handle)).status == "interrupted"
    assert (await chunks_of(handle))[-1].reason == "first"  # type: ignore[union-attr]


async def test_abort(world: World) -> None:
    gate = Gate()
    executor = world.executor([gated(gate, "x"), "a new start"])
    who = agent()
    handle = await executor.execute(who, "go")
    await gate.reached()
    await handle.abort("no more")
    await handle.abort("again")
    result = await result_of(handle)
    assert (result.status, result.error_code, result.error, result.recoverable) == (
        "failed",
        "aborted",
        "no more",
        False,
    )
    state = await handle.get_state()
    assert state.aborted and state.abort_reason == "no more"
    assert (await handle.can_resume()).reason == "aborted"
    with pytest.raises(CannotResumeError) as caught:
        await handle.retry()
    assert caught.value.reason == "aborted"
    with pytest.raises(CannotResumeError):
        await handle.resume()
    again = await executor.execute(who, "start over", session_id=handle.session_id)
    assert (await result_of(again)).output == "a new start"
    assert not (await again.get_state()).aborted


async def test_a_reason_has_a_size(quick_world: World) -> None:
    gate = Gate()
    handle = await quick_world.executor([gated(gate, "x")]).execute(agent(), "go")
    await gate.reached()
    for reason in ("x" * 8_001, "bad \udc80"):
        with pytest.raises(InvalidInputError):
            await handle.interrupt(reason)
        with pytest.raises(InvalidInputError):
            await handle.abort(reason)
    await handle.interrupt("x" * 8_000, wait=True)


# --- resume: modes ------------------------------------------------------------------------------------------------


async def test_with_message_closes_what_is_pending(world: World) -> None:
    executor = world.executor([calls(call("write", text="a"), call("ask"), content="One moment"), "fine"])
    who = agent(tools=[writer(), a_tool("ask", "client")], state_schema=Log)
    handle, result, _ = await play(executor, who)
    assert result.status == "paused"
    again = await handle.resume(message="never mind")
    chunks = await chunks_of(again)
    assert (await result_of(again)).output == "fine"
    assert told(await history(executor, handle.session_id)) == [
        "user: go",
        "assistant: One moment[write, ask]",
        "tool: wrote a",
        'tool: {"status":"not_executed","reason":"the run ended before this call was started"}',
        "user: never mind",
        "assistant: fine",
    ]
    assert (await handle.get_state()).custom_state == {"lines": ["a"]}  # what was done stays done
    assert types(chunks)[:2] == ["run_resumed", "run_superseded"]
    assert of_type(chunks, "tool_end")[0].success is False
    with pytest.raises(CallNotPendingError):
        await executor.answer(who, handle.session_id, Confirmation("call_1", data="late"))


async def test_execute_after_a_pause_is_with_message(world: World) -> None:
    executor = world.executor([calls(call("ask")), "fine"])
    who = agent(tools=[a_tool("ask", "client")])
    handle, _, _ = await play(executor, who)
    _, result, _ = await play(executor, who, "never mind", session_id=handle.session_id)
    assert result.output == "fine"
    assert "not_executed" in results(await history(executor, handle.session_id))[0]
    assert (await executor.sessions.get_run(handle.session_id, handle.run_id)).status == "superseded"


async def test_continue_is_refused_while_a_question_is_open(world: World) -> None:
    executor = world.executor([calls(call("ask")), "fine"])
    who = agent(tools=[a_tool("ask", "client")])
    handle, _, _ = await play(executor, who)
    assert (await handle.can_resume()).reason == "pending_confirmation"
    with pytest.raises(CannotResumeError) as caught:
        await handle.resume()
    assert caught.value.reason == "pending_confirmation" and "call_0" in str(caught.value)


async def test_nothing_is_added_by_continue(world: World) -> None:
    gate = Gate()
    executor = world.executor([gated(gate, "x"), "said"])
    handle = await interrupted_in_model(executor, agent(), gate)
    await result_of(await handle.resume())
    assert told(await history(executor, handle.session_id)) == ["user: go", "assistant: said"]


# --- answers ------------------------------------------------------------------------------------------------------


def approving(ran: list[Any]) -> Agent[Any, Any]:
    def pay(given: Text, ctx: ToolContext[Any]) -> str:
        ran.append((given.text, ctx.confirmation))
        return f"paid {given.text}"

    def big(given: Text) -> bool:
        return given.text != "small"

    return agent(tools=[a_tool("pay", pay, input_schema=Text, require_approval=big), writer()], state_schema=Log)


async def test_approve(world: World) -> None:
    ran: list[Any] = []
    who = approving(ran)
    script = [calls(call("pay", text="rent"), call("pay", text="small"), call("write", text="w")), "done"]
    executor = world.executor(script)
    handle, result, chunks = await play(executor, who)
    assert result.status == "paused" and ran == [("small", None)]
    assert [(p.call_id, p.kind) for p in result.pending] == [("call_0", "approval")]
    assert [(c.tool_call_id, c.kind, c.input) for c in of_type(chunks, "tool_approval_request")] == [
        ("call_0", "approval", {"text": "rent"})
    ]
    paused = chunks[-1]
    assert paused.type == "run_paused" and paused.pending[0]["call_id"] == "call_0"  # type: ignore[union-attr]
    state = await handle.get_state()
    assert state.message_count == 1 and state.custom_state == {"lines": []}  # whole steps only

    again = await executor.resume(
        who, handle.session_id, mode="with_confirmation", confirmation=Confirmation("call_0", data={"by": "Ada"})
    )
    result, chunks = await result_of(again), await chunks_of(again)
    assert result.output == "done" and ran[1:] == [("rent", {"by": "Ada"})]
    assert results(await history(executor, handle.session_id)) == ["paid rent", "paid small", "wrote w"]
    assert (await handle.get_state()).custom_state == {"lines": ["w"]}
    assert chunks[0].mode == "with_confirmation"  # type: ignore[union-attr]
    assert len(of_type(chunks, "tool_start")) == 1 and len(of_type(chunks, "tool_end")) == 1
    assert_stream(chunks)


async def test_deny(world: World) -> None:
    ran: list[Any] = []
    executor = world.executor([calls(call("pay", text="rent")), "as you wish"])
    who = approving(ran)
    handle, _, _ = await play(executor, who)
    again = await executor.resume(
        who, handle.session_id, confirmation=Confirmation("call_0", approved=False, reason="too dear")
    )
    chunks = await chunks_of(again)
    assert (await result_of(again)).output == "as you wish" and ran == []
    assert results(await history(executor, handle.session_id)) == ['{"error":"denied: too dear"}']
    (end,) = of_type(chunks, "tool_end")
    assert not end.success and end.error == "denied: too dear"


async def test_first_answer_wins(world: World) -> None:
    ran: list[Any] = []
    executor = world.executor([calls(call("pay", text="a")), "done"])
    who = approving(ran)
    handle, _, _ = await play(executor, who)
    asked = [executor.answer(who, handle.session_id, Confirmation("call_0", approved=i % 2 == 0)) for i in range(4)]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(o, CallNotPendingError) for o in outcomes) == 3, outcomes
    current = await executor.get_handle(who, handle.session_id)
    assert (await result_of(current)).output == "done"
    with pytest.raises(CallNotPendingError):
        await executor.answer(who, handle.session_id, Confirmation("call_0"))
    assert len(ran) <= 1 and len(results(await history(executor, handle.session_id))) == 1


async def test_two_questions_one_answer_at_a_time(world: World) -> None:
    ran: list[Any] = []
    executor = world.executor([calls(call("pay", text="a"), call("pay", text="b")), "done"])
    who = approving(ran)
    handle, result, _ = await play(executor, who)
    assert len(result.pending) == 2
    second = await executor.resume(who, handle.session_id, confirmation=Confirmation("call_1"))
    result = await result_of(second)
    assert (result.status, [p.call_id for p in result.pending]) == ("paused", ["call_0"])
    assert [item[0] for item in ran] == ["b"]
    third = await executor.resume(who, handle.session_id, confirmation=Confirmation("call_0"))
    assert (await result_of(third)).output == "done"
    assert results(await history(executor, handle.session_id)) == ["paid a", "paid b"]


async def test_both_answers_at_once(world: World) -> None:
    ran: list[Any] = []
    executor = world.executor([calls(call("pay", text="a"), call("pay", text="b")), "done"])
    who = approving(ran)
    handle, _, _ = await play(executor, who)
    await asyncio.gather(*(executor.answer(who, handle.session_id, Confirmation(f"call_{i}")) for i in range(2)))

    async def completed() -> bool:
        return (await handle.get_state()).status == "completed"

    await eventually(completed)
    assert sorted(item[0] for item in ran) == ["a", "b"]


async def test_answered_from_another_process(file_world: World) -> None:
    ran: list[Any] = []
    first, second = file_world.executor([calls(call("pay", text="rent"))]), file_world.executor(["done"])
    handle, _, _ = await play(first, approving(ran))
    await first.close()
    who = approving(ran)  # the same definition, loaded again
    again = await second.resume(who, handle.session_id, confirmation=Confirmation("call_0"))
    assert (await result_of(again)).output == "done" and ran == [("rent", None)]


async def test_an_answer_is_checked(quick_world: World) -> None:
    executor = quick_world.executor([calls(call("pay", text="rent")), "done"])
    who = approving([])
    handle, _, _ = await play(executor, who)
    with pytest.raises(InvalidInputError, match="JSON object"):
        await executor.answer(who, handle.session_id, Confirmation("call_0", data="yes"))
    with pytest.raises(InvalidInputError, match="which call"):
        await executor.resume(who, handle.session_id, mode="with_confirmation")
    with pytest.raises(CallNotPendingError):
        await executor.answer(who, handle.session_id, Confirmation("call_9"))
    with pytest.raises(SessionNotFoundError):
        await executor.answer(who, "ses_nowhere", Confirmation("call_0"))
    assert (await handle.get_state()).status == "paused"


async def test_a_client_result_that_is_a_text_or_a_refusal(world: World) -> None:
    executor = world.executor([calls(call("ask"), call("ask")), "done"])
    who = agent(tools=[a_tool("ask", "client")])
    handle, _, _ = await play(executor, who)
    await executor.answer(who, handle.session_id, Confirmation("call_0", data="7"))
    current = await executor.get_handle(who, handle.session_id)
    assert (await result_of(current)).status == "paused"
    again = await executor.resume(who, handle.session_id, confirmation=Confirmation("call_1", approved=False))
    assert (await result_of(again)).output == "done"
    assert results(await history(executor, handle.session_id)) == ["7", '{"error":"denied: no reason given"}']
    ends = of_type([*await chunks_of(current), *await chunks_of(again)], "tool_end")
    assert [end.result for end in ends if end.success] == ["7"]


async def test_an_approval_rule_that_breaks_asks(quick_world: World) -> None:
    def rule(given: Any) -> bool:
        raise RuntimeError("no idea")

    pay = a_tool("pay", lambda given, ctx: "paid", require_approval=rule)
    _, result, _ = await play(quick_world.executor([calls(call("pay"))]), agent(tools=[pay]))
    assert result.status == "paused"


# --- time travel --------------------------------------------------------------------------------------------------


async def three_turns(executor: LocalExecutor, who: Agent[Any, Any]) -> tuple[str, list[str]]:
    """A session of three turns; the checkpoint at the end of each."""
    points = []
    session_id = "ses_travel"
    for turn in range(1, 4):
        handle, result, _ = await play(executor, who, f"turn {turn}", session_id=session_id)
        assert result.status == "completed"
        points.append((await handle.get_state()).checkpoint_id)
    return session_id, points


def turn_script(*names: str) -> list[Any]:
    return [item for name in names for item in (calls(call("write", text=name)), f"said {name}")]


async def test_from_checkpoint_of_a_completed_session(world: World) -> None:
    who = agent(tools=[writer()], state_schema=Log)
    executor = world.executor([*turn_script("one", "two", "three"), *turn_script("other")])
    session_id, points = await three_turns(executor, who)
    before = {point: told(await executor.sessions.get_checkpoint_messages(session_id, point)) for point in points}
    ids = [m.id for m in await history(executor, session_id) if m.role != "system"]

    handle = await executor.resume(who, session_id, checkpoint_id=points[0], mode="from_checkpoint", message="instead")
    chunks = await chunks_of(handle)
    assert (await result_of(handle)).output == "said other"
    assert types(chunks)[:2] == ["run_resumed", "stream_resync"]
    assert of_type(chunks, "stream_resync")[0].checkpoint_id
    lines = told(await history(executor, session_id))
    assert lines[:4] == before[points[0]] and lines[4] == "user: instead" and len(lines) == 8
    after = [m.id for m in await history(executor, session_id) if m.role != "system"]
    assert after[:4] == ids[:4] and not set(after[4:]) & set(ids)  # a message keeps its id, and no other gets it
    conversation = await executor.sessions.load_conversation_messages(session_id)
    assert [m.id for m in conversation if m.role != "system"] == after
    state = await handle.get_state()
    assert state.custom_state == {"lines": ["one", "other"]} and state.step_count == 4 and state.turn == 4
    for point in points:  # old checkpoints keep their messages
        assert told(await executor.sessions.get_checkpoint_messages(session_id, point)) == before[point]
    assert (await executor.sessions.get_checkpoint(session_id, points[2])).state == {"lines": ["one", "two", "three"]}
    runs = (await executor.sessions.list_runs(session_id)).runs
    assert [run.status for run in runs] == ["completed"] * 4


async def test_forward_again_to_a_checkpoint_of_an_older_lineage(world: World) -> None:
    who = agent(tools=[writer()], state_schema=Log)
    executor = world.executor([*turn_script("one", "two", "three"), *turn_script("other"), *turn_script("four")])
    session_id, points = await three_turns(executor, who)
    await result_of(await executor.resume(who, session_id, checkpoint_id=points[0], message="instead"))
    handle = await executor.resume(who, session_id, checkpoint_id=points[2], message="back")
    assert (await result_of(handle)).output == "said four"
    assert (await handle.get_state()).custom_state == {"lines": ["one", "two", "three", "four"]}
    lines = told(await history(executor, session_id))
    assert [line for line in lines if line.startswith("user")] == [
        "user: turn 1",
        "user: turn 2",
        "user: turn 3",
        "user: back",
    ]


async def test_from_a_checkpoint_in_mid_run(world: World) -> None:
    who = agent(tools=[writer()], state_schema=Log)
    executor = world.executor([*turn_script("one"), "said otherwise"])
    handle, _, chunks = await play(executor, who)
    points = of_type(chunks, "checkpoint_created")
    assert [(p.step_count, p.message_count) for p in points] == [(0, 1), (1, 3), (2, 4)]
    again = await handle.resume(mode="from_checkpoint", checkpoint_id=points[1].checkpoint_id)
    assert (await result_of(again)).output == "said otherwise"
    assert told(await history(executor, handle.session_id))[-2:] == ["tool: wrote one", "assistant: said otherwise"]


async def test_from_checkpoint_of_failed_interrupted_and_paused(world: World) -> None:
    gate = Gate()
    who = agent(tools=[writer(), a_tool("ask", "client")], state_schema=Log)
    executor = world.executor(
        [
            "one",
            ModelError("down"),
            "after failure",
            gated(gate, "x"),
            "after interrupt",
            calls(call("ask")),
            "after pause",
        ]
    )
    handle, _, _ = await play(executor, who)
    point = (await handle.get_state()).checkpoint_id
    sid = handle.session_id

    async def back(expected: str) -> None:
        again = await executor.resume(who, sid, checkpoint_id=point, message="again")
        assert (await result_of(again)).output == expected
        assert told(await history(executor, sid)) == [
            "user: go",
            "assistant: one",
            "user: again",
            f"assistant: {expected}",
        ]

    _, result, _ = await play(executor, who, "fails", session_id=sid)
    assert result.status == "failed"
    await back("after failure")
    await interrupted_in_model(executor, who, gate, session_id=sid)
    await back("after interrupt")
    _, result, _ = await play(executor, who, "asks", session_id=sid)
    assert result.status == "paused"
    await back("after pause")
    with pytest.raises(CallNotPendingError):
        await executor.answer(who, sid, Confirmation("call_0"))


async def test_checkpoints_of_others_are_refused(world: World) -> None:
    executor = world.executor(["a", "b"])
    who = agent()
    one, _, _ = await play(executor, who, session_id="ses_a")
    two, _, _ = await play(executor, who, session_id="ses_a-s1")
    foreign = (await two.get_state()).checkpoint_id
    for wrong in (foreign, "nonsense", "", "cpv1-ses_a-s1-t5-000001", "cpv1-ses_a-s1-t5-zzzzzz"):
        with pytest.raises(CheckpointNotFoundError):
            await executor.resume(who, "ses_a", mode="from_checkpoint", checkpoint_id=wrong)
        with pytest.raises(CheckpointNotFoundError):
            await executor.sessions.get_checkpoint("ses_a", wrong)
    with pytest.raises(InvalidInputError, match="checkpoint_id"):
        await executor.resume(who, "ses_a", mode="from_checkpoint")
    assert (await one.get_state()).status == "completed"


# --- who may do what when -----------------------------------------------------------------------------------------


async def test_illegal_moves_raise_the_right_error(world: World) -> None:
    gate = Gate()
    who = agent(tools=[a_tool("ask", "client")])
    executor = world.executor(["done", ModelError("down"), calls(call("ask")), gated(gate, "x"), gated(gate, "y")])

    async def reasons(session_id: str, *, resume: str | None, retry: str | None) -> None:
        for verb, wanted in ((executor.resume, resume), (executor.retry, retry)):
            if wanted is not None:
                with pytest.raises(CannotResumeError) as caught:
                    await verb(who, session_id)
                assert caught.value.reason == wanted and session_id in str(caught.value)

    await play(executor, who, session_id="ses_completed")
    await reasons("ses_completed", resume="completed", retry="completed")
    await play(executor, who, session_id="ses_failed")
    await reasons("ses_failed", resume="failed_use_retry", retry=None)
    with pytest.raises(CannotResumeError):
        await executor.resume(who, "ses_failed", message="and now?")
    await play(executor, who, session_id="ses_paused")
    await reasons("ses_paused", resume="pending_confirmation", retry="paused")
    await interrupted_in_model(executor, who, gate, session_id="ses_interrupted")
    await reasons("ses_interrupted", resume=None, retry="interrupted")
    gate.entered.clear()
    gate.opened.clear()
    running = await executor.execute(who, "go", session_id="ses_running")
    await gate.reached()
    for verb in (executor.resume, executor.retry):
        with pytest.raises(AgentAlreadyRunningError):
            await verb(who, "ses_running")
    with pytest.raises(AgentAlreadyRunningError):
        await executor.delete("ses_running")
    gate.open()
    assert (await result_of(running)).status == "completed"
    for verb in (executor.resume, executor.retry):
        with pytest.raises(SessionNotFoundError):
            await verb(who, "ses_nowhere")
    with pytest.raises(RunNotFoundError):
        await executor.get_handle(who, "ses_completed", "run_nowhere")


async def test_can_resume_gives_its_reasons(world: World) -> None:
    gate = Gate()
    who = agent(tools=[a_tool("ask", "client")])
    executor = world.executor(["done", ModelError("down"), calls(call("ask")), gated(gate, "x")])
    told_reasons = {}
    for name in ("completed", "failed", "paused"):
        await play(executor, who, session_id=f"ses_{name}")
    await interrupted_in_model(executor, who, gate, session_id="ses_interrupted")
    for name in ("completed", "failed", "paused", "interrupted", "nowhere"):
        answer = await executor.can_resume(f"ses_{name}")
        told_reasons[name] = (answer.can_resume, answer.reason)
    assert told_reasons == {
        "completed": (False, "completed"),
        "failed": (False, "failed_use_retry"),
        "paused": (True, "pending_confirmation"),
        "interrupted": (True, None),
        "nowhere": (False, "not_found"),
    }
    stranger = world.executor()
    assert (await stranger.can_resume("ses_interrupted")).reason == "agent_not_registered"


async def test_a_fatal_failure_can_be_followed_by_a_message(world: World) -> None:
    def fatal(given: Any, ctx: ToolContext[Any]) -> str:
        raise FatalToolError("gone")

    executor = world.executor([calls(call("fatal")), "fine again"])
    who = agent(tools=[a_tool("fatal", fatal)])
    handle, result, _ = await play(executor, who)
    assert result.status == "failed"
    _, result, _ = await play(executor, who, "go on", session_id=handle.session_id)
    assert result.output == "fine again"
    state = await handle.get_state()
    assert state.error is None and state.output is None
