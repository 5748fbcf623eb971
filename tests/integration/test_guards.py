"""Guards of calls, results and outputs: each verdict has exactly its effect, and is stored with what it judged."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support_guards import ASKED, DONE, Report, call, play, says, send
from tests.support_run import agent, chunks_of, of_type, text_of

from helix import (
    Allow,
    Ask,
    Block,
    Confirmation,
    Context,
    DefinitionError,
    Guard,
    KeepLast,
    LocalExecutor,
    MemoryStateStore,
    Question,
    Replace,
    Retry,
    ScriptedModel,
    ToolContext,
    create_sub_agent_tool,
    tool,
)
from helix.adapters.models.scripted import Entry
from helix.core.guards import GuardContext
from helix.core.rows import AttemptRow
from helix.core.verdicts import hash_of


@pytest.fixture(autouse=True)
def fresh() -> None:
    DONE.clear()
    ASKED.clear()


@tool
def note(text: str) -> str:
    """Note a text."""
    DONE.append(f"noted {text}")
    return f"noted {text}"


def letter(to: str = "eve", ident: str = "c1") -> dict[str, Any]:
    return {"tool_calls": [call("send", ident, to=to)]}


# --- calls ------------------------------------------------------------------------------------------------------------


async def test_a_blocked_call_is_not_executed_and_the_model_is_told() -> None:
    played = await play([letter(), "I cannot."], [Guard(name="mail", call=says(Block("not to eve"), "eve"))])
    assert played.result.status == "completed" and played.result.text == "I cannot."
    assert DONE == []
    (row,) = await played.calls()
    assert row.success is False and row.by == "plan"
    assert row.content == '{"error":"guard \'mail\' blocked the call: not to eve","code":"guard_blocked"}'
    (verdict,) = (await played.answers())[0].verdicts
    assert (verdict.guard, verdict.on, verdict.of, verdict.verdict) == ("mail", "call", "c1", "block")
    assert verdict.hash == hash_of({"to": "eve"})
    (error,) = of_type(played.chunks, "error")
    assert error.code == "guard_blocked"


async def test_an_allowed_verdict_is_stored_with_its_hash() -> None:
    played = await play([letter("bob"), "Done."], [Guard(name="mail", call=says(Allow()), result=says(Allow()))])
    assert DONE == ["sent to bob"]
    (verdict,) = (await played.answers())[0].verdicts
    assert (verdict.verdict, verdict.hash) == ("allow", hash_of({"to": "bob"}))
    (row,) = await played.calls()
    assert [(v.on, v.verdict, v.hash) for v in row.verdicts] == [("result", "allow", hash_of("sent to bob"))]


async def test_replaced_arguments_are_executed_and_both_are_stored() -> None:
    played = await play([letter(), "Done."], [Guard(name="mail", call=says(Replace({"to": "bob"}), "eve"))])
    assert DONE == ["sent to bob"]
    first = (await played.answers())[0]
    assert first.tool_calls[0].arguments == {"to": "eve"}
    (row,) = await played.calls()
    assert row.edited is not None and (row.edited.by, row.edited.arguments) == ("guard:mail", {"to": "bob"})
    assert "A guard changed the arguments" in str(played.model.requests[1].messages[-1].content)
    (start,) = of_type(played.chunks, "tool_start")
    assert start.arguments == {"to": "bob"} and start.edited.by == "guard:mail"


async def test_replaced_arguments_that_the_tool_does_not_take_block() -> None:
    await play([letter(), "Done."], [Guard(call=says(Replace({"nobody": 1})))])
    assert DONE == []


@pytest.mark.parametrize("approve", [True, False])
async def test_ask_is_an_approval_with_the_guards_reason(approve: bool) -> None:
    guards = [Guard(name="a", call=says(Ask("eve is new"), name="a")), Guard(name="b", call=says(Allow(), name="b"))]
    played = await play([letter(), "Done."], guards)
    assert played.result.status == "paused" and DONE == []
    (asked,) = of_type(played.chunks, "tool_approval_request")
    assert asked.reason == "eve is new" and asked.kind == "approval"
    answer = Confirmation("c1", approved=approve)
    handle = await played.workers.resume(played.agent, "s", mode="with_confirmation", confirmation=answer)
    assert (await handle.result(timeout_s=20)).status == "completed"
    assert (["sent to eve"] if approve else []) == DONE
    assert ASKED == {("a", "c1"): 1, ("b", "c1"): 1}


async def test_a_block_after_ask_wins() -> None:
    guards = [Guard(name="a", call=says(Ask("new"))), Guard(name="b", call=says(Block("never")))]
    played = await play([letter(), "Done."], guards)
    assert played.result.status == "completed" and DONE == []


async def test_a_tools_own_approval_sees_the_replaced_arguments() -> None:
    script: list[Entry] = [{"tool_calls": [call("pay", amount=1000)]}, "Done."]
    played = await play(script, [Guard(name="cap", call=says(Replace({"amount": 10})))])
    assert played.result.status == "paused"
    assert of_type(played.chunks, "tool_approval_request")[0].input == {"amount": 10}
    answer = Confirmation("c1", approved=True)
    handle = await played.workers.resume(played.agent, "s", mode="with_confirmation", confirmation=answer)
    await handle.result(timeout_s=20)
    assert DONE == ["paid 10"]


async def test_two_guards_compose_in_order() -> None:
    """The second guard judges what the first put in place, and both verdicts are stored."""
    guards = [
        Guard(name="a", call=says(Replace({"to": "bob"}), "eve", "a")),
        Guard(name="b", call=says(Block("bob is away"), "bob", "b")),
        Guard(name="c", call=says(Allow(), name="c")),
    ]
    played = await play([letter(), "Done."], guards)
    assert DONE == []
    verdicts = (await played.answers())[0].verdicts
    assert [(v.guard, v.verdict, v.hash) for v in verdicts] == [
        ("a", "replace", hash_of({"to": "eve"})),
        ("b", "block", hash_of({"to": "bob"})),
    ]
    assert ("c", "c1") not in ASKED


async def test_a_block_to_the_user_ends_the_run_and_nothing_of_the_answer_starts() -> None:
    script: list[Entry] = [{"tool_calls": [call("send", "c1", to="bob"), call("send", "c2", to="eve")]}, "Later."]
    played = await play(script, [Guard(name="mail", call=says(Block("not to eve", to="user"), "eve"))])
    assert played.result.status == "failed" and DONE == []
    assert played.result.error_code == "guard_blocked"
    assert "not to eve" in str(played.result.error)
    assert await played.answers() == []
    rows = await played.workers.store.query("sessions", "s", start="u#", end="u$")
    (attempt,) = [AttemptRow.read("s", row.key.sort, row.value) for row in rows]
    assert [(v.of, v.verdict) for v in attempt.verdicts] == [("c1", "allow"), ("c2", "block")]
    assert (await played.more("go on")).text == "Later."


async def test_a_call_of_a_sub_agent_is_judged_and_the_sub_agent_has_its_own_guards() -> None:
    child = agent("child", output_schema=Report, guards=[Guard(name="inner", output=says(Replace({"text": "inner"})))])
    guards = [Guard(name="outer", call=says(Replace({"message": "changed"}), "original"))]
    script: list[Entry] = [
        {"tool_calls": [call("subagent__child", message="original")]},
        {"tool_calls": [call("__finish__", text="child")]},
        "parent words",
    ]
    played = await play(script, guards, tools=[create_sub_agent_tool(child)])
    assert played.result.text == "parent words"
    (row,) = await played.calls()
    assert row.content == '{"text":"inner"}'
    assert any(m.content == "changed" for m in played.model.requests[1].messages)


async def test_a_guard_of_one_tool_judges_its_calls_and_results_only() -> None:
    script: list[Entry] = [
        {"tool_calls": [call("send", to="eve")]},
        {"tool_calls": [call("note", "c2", text="eve")]},
        "Done.",
    ]
    guard = Guard(
        name="notes", call=says(Allow(), name="notes"), result=says(Block("no"), "noted", "r"), tools=["note"]
    )
    played = await play(script, [guard], tools=[send, note])
    assert DONE == ["sent to eve", "noted eve"]
    assert [(row.tool_name, row.success) for row in await played.calls()] == [("send", True), ("note", False)]
    assert ASKED == {("notes", "c2"): 1, ("r", "c2"): 1}


def test_a_guard_names_tools_that_the_agent_has() -> None:
    with pytest.raises(DefinitionError, match="'mial', which it does not have"):
        agent(tools=[send], guards=[Guard(name="mail", call=says(Allow()), tools=["send", "mial"])])
    with pytest.raises(DefinitionError, match="limits `call` and `result`"):
        Guard(output=says(Allow()), tools=["send"])
    with pytest.raises(DefinitionError, match="a list of names"):
        Guard(call=says(Allow()), tools="send")


async def test_guards_of_calls_and_outputs_know_what_the_user_said() -> None:
    """Also messages that a summary hides, and not what a guard of inputs replaced. Notes of Helix are not among them."""
    seen: list[tuple[str, tuple[str, ...]]] = []

    def look(value: Any, context: GuardContext) -> Allow:
        seen.append((context.on, tuple(context.user_messages)))
        return Allow()

    def clean(text: str, context: GuardContext) -> Allow | Replace:
        return Replace("to bob, safely") if "secretly" in text else Allow()

    refuse_once = says(Retry("too short"), "short", "o")
    guards = [
        Guard(name="in", input=clean),
        Guard(name="o", output=refuse_once),
        Guard(name="look", call=look, output=look),
    ]
    script: list[Entry] = [letter("bob"), "short", "A long answer.", letter("eve", "c2"), "Done."]
    played = await play(script, guards, "to bob, secretly", context=Context(policies=[KeepLast(1)]))
    await played.more("and to eve")
    assert "to bob" not in str(played.model.requests[-1].messages)
    first, both = ("to bob, safely",), ("to bob, safely", "and to eve")
    assert seen == [("call", first), ("output", first), ("call", both), ("output", both)]


# --- results ----------------------------------------------------------------------------------------------------------


async def test_a_replaced_result_keeps_what_the_tool_returned() -> None:
    played = await play([letter(), "Done."], [Guard(name="clean", result=says(Replace("sent to someone")))])
    (row,) = await played.calls()
    assert row.content == "sent to someone" and row.success and row.plain
    assert row.verdicts[0].before == "sent to eve"
    assert played.model.requests[1].messages[-1].content == "sent to someone"
    assert "eve" not in str(of_type(played.chunks, "tool_end"))


async def test_a_question_is_not_judged_as_a_result() -> None:
    @tool
    async def book(ctx: ToolContext[Any]) -> str:
        """Book a seat."""
        return f"seat {await ctx.ask(Question('Which seat?'))}"

    workers = LocalExecutor(MemoryStateStore(), model=ScriptedModel([{"tool_calls": [call("book")]}, "Booked."]))
    who = agent(tools=[book], guards=[Guard(name="g", result=says(Block("nothing may pass"), name="g"))])
    handle = await workers.execute(who, "go", session_id="s")
    assert (await handle.result(timeout_s=20)).status == "paused"
    assert ASKED == {}
    handle = await handle.answer("c1", data="window")
    assert (await handle.result(timeout_s=20)).status == "completed"
    assert ASKED == {("g", "c1"): 1}


async def test_a_blocked_result_is_withheld_from_the_model_and_the_reader() -> None:
    played = await play([letter(), "Done."], [Guard(name="clean", result=says(Block("it names eve")))])
    assert DONE == ["sent to eve"]
    (row,) = await played.calls()
    assert row.success is False and "guard_blocked" in (row.content or "")
    assert "sent to eve" not in str(played.model.requests[1].messages) + str(of_type(played.chunks, "tool_end"))
    assert row.verdicts[0].before == "sent to eve"


async def test_a_result_that_is_blocked_for_the_user_ends_the_run() -> None:
    played = await play([letter(), "Never."], [Guard(name="clean", result=says(Block("it names eve", to="user")))])
    assert played.result.status == "failed"
    assert played.result.error_code == "guard_blocked"
    assert str(played.result.error) == "guard 'clean' blocked the result: it names eve"


# --- outputs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hold", ["step", None])
async def test_a_replaced_text_is_what_readers_and_history_have(hold: Any) -> None:
    played = await play(["The key is 42."], [Guard(name="keys", output=says(Replace("No key."), "42"), hold=hold)])
    assert played.result.text == "No key."
    (row,) = await played.answers()
    assert row.content == "No key." and row.verdicts[0].before == "The key is 42."
    final = played.chunks
    for n, chunk in enumerate(played.chunks):
        if chunk.type == "step_discarded":
            assert hold is None
            final = played.chunks[n + 1 :]
    assert text_of(final) == "No key."
    assert (hold is None) == ("42" in text_of(played.chunks))


@pytest.mark.parametrize("verdict", [Retry("no numbers"), Block("no numbers")])
async def test_a_refused_text_is_asked_for_again_and_is_in_no_message(verdict: Any) -> None:
    guards = [Guard(name="keys", output=says(verdict, "42"), hold="step")]
    played = await play(["The key is 42.", "No key."], guards)
    assert played.result.status == "completed" and played.result.text == "No key."
    assert "42" not in text_of(played.chunks)
    messages = (await played.workers.sessions.get_messages("s")).messages
    assert "is 42" not in str(messages)
    again = played.model.requests[1].messages[-1]
    assert again.role == "user" and again.content == "[guard 'keys' blocked the answer: no numbers. Answer again.]"
    assert (await played.answers())[0].verdicts[0].before == "The key is 42."
    assert "step_discarded" not in [chunk.type for chunk in played.chunks]


async def test_a_model_that_is_always_refused_fails_the_run() -> None:
    played = await play(["42"] * 5, [Guard(name="keys", output=says(Retry("no numbers")))], max_completion_retries=2)
    assert played.result.status == "failed" and len(played.model.requests) == 3
    assert played.result.error_code == "guard_blocked"


async def test_an_output_that_is_blocked_for_the_user_ends_the_run_and_is_not_in_history() -> None:
    guards = [Guard(name="keys", output=says(Block("a key", to="user"), "42"))]
    played = await play(["The key is 42.", "Hello."], guards)
    assert played.result.status == "failed"
    assert played.result.error_code == "guard_blocked"
    assert await played.answers() == []
    assert "step_discarded" in [chunk.type for chunk in played.chunks]
    assert (await played.more("hello")).text == "Hello."


async def test_a_structured_output_is_judged_as_json() -> None:
    finish = {"tool_calls": [call("__finish__", text="42")]}
    good = {"tool_calls": [call("__finish__", "c2", text="none")]}
    guards = [Guard(name="keys", output=says(Retry("no numbers"), "42"))]
    played = await play([finish, good], guards, output_schema=Report)
    assert played.result.status == "completed" and played.result.output == Report(text="none")
    first, _ = await played.answers()
    assert first.finish is None and first.tool_calls[0].arguments == {}
    assert first.verdicts[0].before == {"text": "42"} and first.verdicts[0].hash == hash_of({"text": "42"})
    assert "'42'" not in str((await played.workers.sessions.get_messages("s")).messages)
    assert "no numbers" in str(played.model.requests[1].messages[-2].content)  # before the request to finish


async def test_a_replaced_structured_output_is_the_runs_output() -> None:
    finish = {"tool_calls": [call("__finish__", text="42")]}
    played = await play([finish], [Guard(output=says(Replace({"text": "none"})))], output_schema=Report)
    assert played.result.output == Report(text="none")
    assert (await played.answers())[0].tool_calls[0].arguments == {"text": "none"}


async def test_a_structured_output_that_is_always_refused_fails_with_the_guards_code() -> None:
    script: list[Entry] = [{"tool_calls": [call("__finish__", f"c{n}", text="42")]} for n in range(4)]
    guards = [Guard(output=says(Retry("no numbers")))]
    played = await play(script, guards, output_schema=Report, max_completion_retries=1)
    assert played.result.error_code == "guard_blocked"


async def test_text_beside_calls_is_judged_too() -> None:
    script: list[Entry] = [{"content": "The key is 42.", **letter("bob")}, "Done."]
    played = await play(script, [Guard(output=says(Block("a key"), "42"), hold="step")])
    assert played.result.text == "Done." and DONE == ["sent to bob"]
    assert (await played.answers())[0].content is None
    assert "42" not in text_of(played.chunks)


async def test_held_text_that_is_allowed_is_shown_with_its_reasoning() -> None:
    script: list[Entry] = [{"content": "Fine.", "thinking": "Hm."}]
    played = await play(script, [Guard(output=says(Allow()), hold="step")])
    assert text_of(played.chunks) == "Fine."
    assert [chunk.content for chunk in of_type(played.chunks, "thinking")] == ["Hm."]


# --- what readers see -------------------------------------------------------------------------------------------------


async def test_each_verdict_but_allow_is_on_the_stream_once() -> None:
    guards = [
        Guard(name="a", input=says(Replace("start"), "begin"), call=says(Ask("new"), "eve")),
        Guard(name="b", result=says(Replace("sent")), output=says(Retry("no numbers"), "42"), hold="step"),
    ]
    played = await play([letter(), "42", "Done."], guards)
    answer = Confirmation("c1", approved=True)
    handle = await played.workers.resume(played.agent, "s", mode="with_confirmation", confirmation=answer)
    chunks = [*played.chunks, *await chunks_of(handle)]
    events = [chunk.data for chunk in of_type(chunks, "custom") if chunk.event_name == "guard_verdict"]
    assert [(e["guard"], e["on"], e["verdict"]) for e in events] == [
        ("a", "input", "replace"),
        ("a", "call", "ask"),
        ("b", "result", "replace"),
        ("b", "output", "retry"),
    ]
    errors = [(chunk.code, chunk.error) for chunk in of_type(chunks, "error")]
    assert errors == [("guard_blocked", "guard 'b' blocked the answer: no numbers")]
    assert "42" not in str(
        [chunk.model_dump(exclude={"timestamp", "created_at", "run_id"}) for chunk in of_type(chunks, "custom")]
    )
