"""Answers to the questions of a paused run: approvals, refusals, and results of clients. The first answer wins."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from tests.support_resume import Log, writer
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
    history,
    of_type,
    play,
    result_of,
    results,
)

from helix import Agent, Confirmation, ScriptedModel, ToolContext, define_tool
from helix.core.errors import CallNotPendingError, InvalidInputError, SessionNotFoundError
from helix.engine.history import session_key


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


async def test_what_waits_has_the_arguments_of_its_call(world: World) -> None:
    """The result, the session, the chunk, the checkpoints and the snapshot have them, and the session's row stays small."""
    who = approving([])
    executor = world.executor([calls(call("pay", text="rent")), "done", "more"])
    handle, result, chunks = await play(executor, who)
    given = [("call_0", "pay", {"text": "rent"})]

    def shown(pending: Any) -> Any:
        return [(p.call_id, p.tool_name, p.arguments) for p in pending]

    page = await executor.sessions.list_checkpoints(handle.session_id)
    snapshot = await executor.get_snapshot(handle.session_id)
    state = await handle.get_state()
    for pending in (result.pending, state.pending, page.items[0].pending, snapshot.pending):
        assert shown(pending) == given
    latest = await executor.sessions.get_latest_checkpoint(handle.session_id)
    assert shown(latest.pending) == given
    (paused,) = of_type(chunks, "run_paused")
    assert paused.pending[0]["arguments"] == {"text": "rent"}
    (row,) = await executor.store.get([session_key(handle.session_id)])
    assert row is not None and row["pending"] == [{"call_id": "call_0", "tool_name": "pay"}]
    await play(executor, who, "never mind", session_id=handle.session_id)
    assert shown((await result_of(handle)).pending) == given  # also of a run that another run followed


async def test_an_interrupted_session_shows_what_waits_for_an_answer(world: World) -> None:
    gate = Gate()
    ran: list[Any] = []

    async def wait(given: Nothing, ctx: ToolContext[Any]) -> str:
        await gate.wait()
        return "waited"

    pay = a_tool("pay", lambda given, ctx: ran.append(given.text), input_schema=Text, require_approval=True)
    who = agent(tools=[pay, a_tool("wait", wait)])
    executor = world.executor([calls(call("pay", text="rent"), call("wait")), "done"])
    handle = await executor.execute(who, "go")
    await gate.reached()
    assert await handle.interrupt()
    gate.open()
    result = await result_of(handle)
    assert result.status == "interrupted"
    for pending in (result.pending, (await handle.get_state()).pending):
        assert [(p.call_id, p.kind, p.arguments) for p in pending] == [("call_0", "approval", {"text": "rent"})]
    can = await handle.can_resume()
    assert (can.can_resume, can.reason) == (True, "pending_confirmation")
    await executor.answer(who, handle.session_id, Confirmation("call_0"))
    assert (await handle.get_state()).pending == [] and (await handle.can_resume()).reason is None
    assert (await result_of(await handle.resume())).output == "done" and ran == ["rent"]


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


# --- arguments that a person changed --------------------------------------------------------------------------------------


async def test_an_approval_may_change_the_arguments(world: World) -> None:
    """The call is executed with the changed arguments. The model's answer stays as it was, and the result names the user
    and the changes."""
    ran: list[Any] = []
    who = approving(ran)
    model = ScriptedModel([calls(call("pay", text="rent")), "done", "and on"], record=True)
    executor = world.executor(model)
    handle, _, _ = await play(executor, who)
    answered = await executor.answer(
        who, handle.session_id, Confirmation("call_0", data={"ok": 1}, arguments={"text": "half"}, by="ada")
    )
    assert answered.claimed is not None
    again = await executor.get_handle(who, handle.session_id)
    assert (await result_of(again)).output == "done" and ran == [("half", {"ok": 1})]
    chunks = await chunks_of(again)
    (start,) = of_type(chunks, "tool_start")
    assert (start.arguments, start.edited.by) == ({"text": "half"}, "ada") and start.edited.at > 0
    assert_stream(chunks)
    messages = await history(executor, handle.session_id)
    (asked,) = [call for message in messages if message.role == "assistant" for call in message.tool_calls]
    assert asked.arguments == {"text": "rent"}
    (result,) = [message for message in messages if message.role == "tool"]
    assert result.content == "paid half"
    at = start.edited.at
    assert result.metadata == {
        "edited": {"by": "ada", "at": at, "arguments": {"text": "half"}},
        "responses": [{"kind": "approval", "approved": True, "by": "ada", "at": at}],
    }
    noted = 'paid half\n[A person changed the arguments of this call before it was executed: {"text":"half"}]'
    assert model.requests[1].messages[-1].content == noted
    reread = ScriptedModel(["and on"], record=True)
    for asked_next, next_executor in ((model, executor), (reread, world.executor(reread))):
        await play(next_executor, who, "next", session_id=handle.session_id)
        assert noted in [message.content for message in asked_next.requests[-1].messages], "in each later turn too"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"arguments": {"text": 5}}, "invalid arguments for 'pay': text"),
        ({"arguments": {}}, "text: Field required"),
        ({"arguments": [1]}, "arguments must be a JSON object"),
        ({"arguments": {"text": "x"}, "approved": False}, "arguments need an approval"),
        ({"arguments": {"text": "\ud800"}}, "arguments"),
    ],
)
async def test_arguments_that_the_tool_does_not_take_answer_nothing(world: World, given: Any, problem: str) -> None:
    ran: list[Any] = []
    executor = world.executor([calls(call("pay", text="rent")), "done"])
    who = approving(ran)
    handle, _, _ = await play(executor, who)
    with pytest.raises(InvalidInputError, match=re.escape(problem)):
        await executor.answer(who, handle.session_id, Confirmation("call_0", **given))
    assert [p.call_id for p in (await handle.get_state()).pending] == ["call_0"] and ran == []
    again = await executor.resume(who, handle.session_id, confirmation=Confirmation("call_0"))
    assert (await result_of(again)).output == "done" and ran == [("rent", None)]


async def test_the_first_of_two_edits_counts(world: World) -> None:
    ran: list[Any] = []
    executor = world.executor([calls(call("pay", text="rent")), "done"])
    who = approving(ran)
    handle, _, _ = await play(executor, who)
    said = [Confirmation("call_0", arguments={"text": text}, by=text) for text in ("a", "b", "c")]
    outcomes = await asyncio.gather(
        *(executor.answer(who, handle.session_id, one) for one in said), return_exceptions=True
    )
    (won,) = [one.by for one, outcome in zip(said, outcomes, strict=True) if not isinstance(outcome, Exception)]
    assert (await result_of(await executor.get_handle(who, handle.session_id))).output == "done"
    assert ran == [(won, None)]


async def test_a_client_result_takes_no_arguments(world: World) -> None:
    ask = define_tool(name="ask", description="Ask.", input_schema=Text, execute="client")
    executor = world.executor([calls(call("ask", text="who?")), "done"])
    who = agent(tools=[ask])
    handle, _, _ = await play(executor, who)
    with pytest.raises(InvalidInputError, match="does not wait for approval"):
        await executor.answer(who, handle.session_id, Confirmation("call_0", data="me", arguments={"text": "you?"}))
    assert (await handle.get_state()).status == "paused"


async def test_who_is_asked_reads_the_schema_and_the_reason(world: World) -> None:
    """Both are in the chunk, the result and the session. The error of a rule that fails counts as a reason."""

    def dear(given: Text) -> bool | str:
        if given.text == "broken":
            raise ValueError("no")
        return f"{given.text} is dear" if given.text != "cheap" else ""

    pay = a_tool("pay", lambda given, ctx: "paid", input_schema=Text, require_approval=dear)
    who = agent(tools=[pay])
    script = [calls(call("pay", text="rent"), call("pay", text="cheap"), call("pay", text="broken")), "done"]
    executor = world.executor(script)
    handle, result, chunks = await play(executor, who)
    reasons = ["rent is dear", "the tool's rule for approvals failed: ValueError"]
    assert [(p.reason, p.parameters) for p in result.pending] == [(reason, pay.parameters) for reason in reasons]
    assert [p.reason for p in (await handle.get_state()).pending] == reasons
    asked = of_type(chunks, "tool_approval_request")
    assert [(chunk.reason, chunk.parameters) for chunk in asked] == [(reason, pay.parameters) for reason in reasons]
    (paused,) = of_type(chunks, "run_paused")
    shown = [(call["reason"], call["parameters"]) for call in paused.pending]
    assert shown == [(reason, pay.parameters) for reason in reasons]
