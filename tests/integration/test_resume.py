"""The modes of resume, and the statuses in which each verb is valid."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support_resume import Log, interrupted_in_model, writer
from tests.support_run import (
    Gate,
    World,
    a_tool,
    agent,
    call,
    calls,
    chunks_of,
    gated,
    history,
    of_type,
    play,
    result_of,
    results,
    told,
    types,
)

from helix import Confirmation, FatalToolError, LLMConfig, ModelError, ToolContext
from helix.core.errors import (
    AgentAlreadyRunningError,
    CallNotPendingError,
    CannotResumeError,
    RunNotFoundError,
    SessionNotFoundError,
)

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
    assert (await handle.get_state()).custom_state == {"lines": ["a"]}  # finished calls stay finished
    assert types(chunks)[:2] == ["run_resumed", "run_superseded"]
    assert of_type(chunks, "tool_end")[0].success is False
    with pytest.raises(CallNotPendingError):
        await executor.answer(who, handle.session_id, Confirmation("call_1", data="late"))


async def test_execute_after_a_pause_is_with_message(world: World) -> None:
    executor = world.executor([calls(call("ask")), "fine"])
    who = agent(tools=[a_tool("ask", "client")])
    handle, _, _ = await play(executor, who)
    again, result, chunks = await play(executor, who, "never mind", session_id=handle.session_id)
    assert result.output == "fine"
    first = chunks[0]
    assert (first.type, first.superseded_run_id, first.by_run_id) == (  # type: ignore[union-attr]
        "run_superseded",
        handle.run_id,
        again.run_id,
    )
    assert "not_executed" in results(await history(executor, handle.session_id))[0]
    assert (await executor.sessions.get_run(handle.session_id, handle.run_id)).status == "superseded"


async def test_execute_supersedes_an_interrupted_run_and_nothing_else(world: World) -> None:
    gate = Gate()
    executor = world.executor([gated(gate, "never"), "fine", ModelError("down"), "better"])
    who = agent(llm_config=LLMConfig(model="scripted", max_retries=0))
    handle = await interrupted_in_model(executor, who, gate)
    for text, superseded in [("fine", [handle.run_id]), (None, []), ("better", [])]:
        _, result, chunks = await play(executor, who, "next", session_id=handle.session_id)
        assert result.text == text
        assert [chunk.superseded_run_id for chunk in of_type(chunks, "run_superseded")] == superseded


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


# --- valid verbs by status -----------------------------------------------------------------------------------------


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
