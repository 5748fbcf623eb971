"""Retries of a failed session."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from tests.support_run import (
    Text,
    World,
    a_tool,
    agent,
    call,
    calls,
    chunks_of,
    history,
    of_type,
    play,
    result_of,
    told,
    types,
)

from helix import Agent, FatalToolError, InvalidInputError, ModelError, ScriptedModel, ToolContext
from helix.adapters.models.scripted import Entry
from helix.core.errors import CannotResumeError

DOWN = ModelError("down")


class Log(BaseModel):
    lines: list[str] = []
    mood: str = "calm"


def write(given: Text, ctx: ToolContext[Log]) -> str:
    ctx.update_state(lambda s: s.lines.append(given.text))
    return f"wrote {given.text}"


def scribe(**fields: Any) -> Agent[Any, Any]:
    return agent(tools=[a_tool("write", write, input_schema=Text)], state_schema=Log, **fields)


async def test_from_checkpoint_without_a_message_repeats_nothing(world: World) -> None:
    """The bought and finished step stays, and the failed one is bought again."""
    model = ScriptedModel([calls(call("write", text="a")), DOWN, "done"])
    executor = world.executor(model)
    handle, result, _ = await play(executor, scribe())
    assert result.status == "failed"
    again = await handle.retry()
    result, chunks = await result_of(again), await chunks_of(again)
    assert result.output == "done" and result.steps == 1
    assert told(await history(executor, handle.session_id)) == [
        "user: go",
        "assistant: [write]",
        "tool: wrote a",
        "assistant: done",
    ]
    assert (chunks[0].type, chunks[0].mode, chunks[0].previous_run_id) == ("run_resumed", "retry", handle.run_id)  # type: ignore[union-attr]
    runs = (await executor.sessions.list_runs(handle.session_id)).runs
    assert [(run.status, run.mode) for run in runs] == [("completed", "retry"), ("failed", "execute")]
    assert (await again.get_state()).custom_state["lines"] == ["a"]
    assert (await again.get_state()).error is None


async def test_a_message_replaces_the_unanswered_one(world: World) -> None:
    executor = world.executor(["first", DOWN, "better"])
    who = scribe()
    handle, _, _ = await play(executor, who, "one")
    failed, _, _ = await play(executor, who, "two, badly put", session_id=handle.session_id)
    again = await failed.retry(message="two, well put")
    chunks = await chunks_of(again)
    assert (await result_of(again)).output == "better"
    assert told(await history(executor, handle.session_id)) == [
        "user: one",
        "assistant: first",
        "user: two, well put",
        "assistant: better",
    ]
    assert types(chunks)[:2] == ["run_resumed", "stream_resync"]


async def test_the_same_message_is_not_doubled(world: World) -> None:
    executor = world.executor([DOWN, "ok"])
    handle, _, _ = await play(executor, scribe(), "hello")
    await result_of(await handle.retry(message="hello"))
    assert told(await history(executor, handle.session_id)) == ["user: hello", "assistant: ok"]


async def test_a_message_after_an_answered_one_is_appended(world: World) -> None:
    executor = world.executor([calls(call("write", text="a")), DOWN, "ok"])
    handle, _, _ = await play(executor, scribe())
    await result_of(await handle.retry(message="try harder"))
    assert told(await history(executor, handle.session_id))[2:] == [
        "tool: wrote a",
        "user: try harder",
        "assistant: ok",
    ]
    assert (await handle.get_state()).custom_state["lines"] == ["a"]


async def test_from_start_goes_back_to_the_failed_runs_start(world: World) -> None:
    """The session goes back to the start of the failed run, not to its own start, with the state and the input of the
    run."""
    script: list[Entry] = ["first", calls(call("write", text="lost")), DOWN, calls(call("write", text="kept")), "done"]
    model = ScriptedModel(script)
    executor = world.executor(model)
    who = scribe(system_prompt=lambda s: f"{s.mood} {s.lines}")
    handle, _, _ = await play(executor, who, "one")
    failed, result, _ = await play(
        executor, who, {"message": "two", "state": {"mood": "keen"}}, session_id=handle.session_id
    )
    assert result.status == "failed" and (await failed.get_state()).custom_state["lines"] == ["lost"]
    again = await failed.retry(mode="from_start")
    assert (await result_of(again)).output == "done"
    assert told(await history(executor, handle.session_id)) == [
        "user: one",
        "assistant: first",
        "user: two",
        "assistant: [write]",
        "tool: wrote kept",
        "assistant: done",
    ]
    assert (await again.get_state()).custom_state == {"lines": ["kept"], "mood": "keen"}
    assert model.requests[3].messages[0].content == "keen []"
    assert of_type(await chunks_of(again), "stream_resync")[0].reason == "from_start"


async def test_from_start_with_another_message(world: World) -> None:
    executor = world.executor([calls(call("write", text="lost")), DOWN, "done"])
    handle, _, _ = await play(executor, scribe(), "one")
    again = await handle.retry(mode="from_start", message="uno")
    assert (await result_of(again)).output == "done"
    assert told(await history(executor, handle.session_id)) == ["user: uno", "assistant: done"]
    assert (await again.get_state()).custom_state["lines"] == []


async def test_from_start_of_a_retry(world: World) -> None:
    """A retry without a message began after the user's message, and the session goes back to that place."""
    executor = world.executor([DOWN, calls(call("write", text="x")), DOWN, "done"])
    handle, _, _ = await play(executor, scribe(), "one")
    second = await handle.retry()
    assert (await result_of(second)).status == "failed"
    third = await second.retry(mode="from_start")
    assert (await result_of(third)).output == "done"
    assert told(await history(executor, handle.session_id)) == ["user: one", "assistant: done"]


async def test_from_start_of_a_run_that_closed_a_step(world: World) -> None:
    """The work of the previous run stays."""
    script = [calls(call("write", text="a"), call("ask")), DOWN, "done"]
    executor = world.executor(script)
    who = agent(tools=[a_tool("write", write, input_schema=Text), a_tool("ask", "client")], state_schema=Log)
    handle, result, _ = await play(executor, who)
    assert result.status == "paused"
    failed, result, _ = await play(executor, who, "leave it", session_id=handle.session_id)
    assert result.status == "failed"
    again = await failed.retry(mode="from_start")
    assert (await result_of(again)).output == "done"
    lines = told(await history(executor, handle.session_id))
    assert lines[2] == "tool: wrote a" and lines[-2:] == ["user: leave it", "assistant: done"]
    assert (await again.get_state()).custom_state["lines"] == ["a"]


async def test_the_step_budget_is_fresh(world: World) -> None:
    executor = world.executor([calls(call("write", text=str(i))) for i in range(3)] + ["done"])
    who = scribe(max_steps=2)
    handle, result, _ = await play(executor, who)
    assert result.error_code == "max_steps"
    again = await handle.retry()
    result = await result_of(again)
    assert (result.output, result.steps) == ("done", 2)
    assert (await again.get_state()).custom_state["lines"] == ["0", "1", "2"]
    assert (await again.get_state()).step_count == 4


async def test_retry_after_a_fatal_tool_goes_on_from_its_result(world: World) -> None:
    def fatal(given: Any, ctx: ToolContext[Any]) -> str:
        raise FatalToolError("gone")

    executor = world.executor([calls(call("fatal")), "worked around"])
    handle, result, _ = await play(executor, agent(tools=[a_tool("fatal", fatal)]))
    assert result.status == "failed"
    assert (await result_of(await handle.retry())).output == "worked around"


async def test_retry_may_fail_again_and_again(world: World) -> None:
    executor = world.executor([DOWN, DOWN, DOWN, "at last"])
    handle, _, _ = await play(executor, scribe(), "hi")
    for expected in ("failed", "failed", "completed"):
        handle = await handle.retry()
        assert (await result_of(handle)).status == expected
    assert told(await history(executor, handle.session_id)) == ["user: hi", "assistant: at last"]
    assert [r.turn for r in (await executor.sessions.list_runs(handle.session_id)).runs] == [4, 3, 2, 1]


async def test_retry_is_for_failed_sessions(world: World) -> None:
    executor = world.executor(["fine", DOWN])
    who = scribe()
    handle, _, _ = await play(executor, who)
    for mode in ("from_checkpoint", "from_start"):
        with pytest.raises(CannotResumeError) as caught:
            await handle.retry(mode=mode)
        assert caught.value.reason == "completed"
    failed, _, _ = await play(executor, who, session_id="ses_failed")
    with pytest.raises(InvalidInputError):
        await failed.retry(message="  ")
    with pytest.raises(InvalidInputError, match="mode"):
        await failed.retry(mode="sideways")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="mode"):
        await failed.resume(mode="sideways")  # type: ignore[arg-type]
    assert (await failed.get_state()).status == "failed"


async def test_retry_in_another_process(file_world: World) -> None:
    first = file_world.executor([calls(call("write", text="a")), DOWN])
    handle, _, _ = await play(first, scribe())
    second = file_world.executor(["done"])
    again = await second.retry(scribe(), handle.session_id)
    assert (await result_of(again)).output == "done"
    assert (await again.get_state()).custom_state["lines"] == ["a"]
