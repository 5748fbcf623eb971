"""The ends of a run: by its step limit, by its author's stop condition, by a tool, or by a failure of its model."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support_notes import GOOD, Answer, Notes, note
from tests.support_run import Text, World, a_tool, agent, call, calls, history, of_type, play, told, types

from helix import ModelError, ScriptedModel, ToolContext, ToolError
from helix.core.prompt import FINISH_NUDGE
from helix.core.steps import ToolCallsStepResult


async def test_max_steps_without_output(world: World) -> None:
    executor = world.executor([calls(call("note", text="x"))] * 3)
    who = agent(tools=[note], state_schema=Notes, max_steps=2)
    handle, result, _ = await play(executor, who)
    assert (result.status, result.error_code, result.steps) == ("failed", "max_steps", 2)
    assert (await handle.get_state()).custom_state["items"] == ["x", "x"]  # the last step's tools ran


async def test_max_steps_with_output_forces_it_once(world: World) -> None:
    model = ScriptedModel([calls(call("note", text="x")), calls(call("__finish__", **GOOD))])
    who = agent(tools=[note], state_schema=Notes, max_steps=1, output_schema=Answer)
    _, result, _ = await play(world.executor(model), who)
    assert result.output == Answer(**GOOD) and [r.tool_choice for r in model.requests] == ["auto", "__finish__"]
    assert model.requests[0].messages[-1].content == "go", "a question is not followed by a request to finish"
    stubborn = world.executor([calls(call("note", text="x"))] * 3)
    _, result, _ = await play(stubborn, who)
    assert (result.status, result.error_code, result.steps) == ("failed", "max_steps", 2)


async def test_the_last_step_reminds_the_model_to_finish(world: World) -> None:
    """The output is forced only if the reminder did not help. No run takes more steps than max_steps and one."""
    who = agent(tools=[note], state_schema=Notes, max_steps=3, output_schema=Answer)
    noted, done = calls(call("note", text="x")), calls(call("__finish__", **GOOD))
    obedient, stubborn = ScriptedModel([noted, noted, done]), ScriptedModel([noted, noted, noted, done])
    for model, choices in ((obedient, ["auto"] * 3), (stubborn, ["auto"] * 3 + ["__finish__"])):
        _, result, _ = await play(world.executor(model), who)
        assert (result.output, result.steps) == (Answer(**GOOD), len(choices))
        assert [r.tool_choice for r in model.requests] == choices
        nudged = [r.messages[-1].content == FINISH_NUDGE for r in model.requests]
        assert nudged == [False, False, True, True][: len(choices)]
    _, result, _ = await play(world.executor([noted] * 9), who)
    assert (result.status, result.error_code, result.steps) == ("failed", "max_steps", 4)


async def test_text_in_the_last_step_is_an_end(world: World) -> None:
    _, result, _ = await play(world.executor(["bye"]), agent(max_steps=1))
    assert result.status == "completed"


async def test_stop_when(world: World) -> None:
    seen = []

    def enough(step: Any) -> bool:
        seen.append(step)
        return isinstance(step, ToolCallsStepResult) and step.tool_calls[0].arguments == {"text": "stop"}

    executor = world.executor([calls(call("note", text="go")), calls(call("note", text="stop"), content="Halt.")])
    who = agent(tools=[note], state_schema=Notes, stop_when=enough, max_steps=2)
    handle, result, _ = await play(executor, who)
    assert (result.status, result.completion_reason, result.steps) == ("completed", "stop_when", 2)
    assert result.output == "Halt." and len(seen) == 2
    assert (await handle.get_state()).custom_state["items"] == ["go", "stop"]


async def test_a_stop_when_that_raises_fails_the_run(world: World) -> None:
    def wrong(step: Any) -> bool:
        raise ValueError("oops")

    executor = world.executor([calls(call("note", text="x"))])
    _, result, _ = await play(executor, agent(tools=[note], state_schema=Notes, stop_when=wrong))
    assert (result.status, result.error_code) == ("failed", "stop_when_failed") and "oops" in (result.error or "")


async def test_finish_with(world: World) -> None:
    def deliver(given: Text, ctx: ToolContext[Any]) -> Any:
        if given.text == "fail":
            raise ToolError("lost")
        return {"summary": given.text, "score": 3}

    deliverer = a_tool("deliver", deliver, input_schema=Text, finish_with=True)
    executor = world.executor([calls(call("deliver", text="fail")), calls(call("deliver", text="sent"))])
    _, result, chunks = await play(executor, agent(tools=[deliverer], output_schema=Answer))
    assert result.output == Answer(summary="sent", score=3)
    assert (result.completion_reason, result.steps) == ("finish_with", 2)
    assert of_type(chunks, "output")[0].output == {"summary": "sent", "score": 3}
    executor = world.executor([calls(call("deliver", text="loose"))])
    _, result, _ = await play(executor, agent(tools=[deliverer]))
    assert result.output == {"summary": "loose", "score": 3}


async def test_finish_with_a_text(quick_world: World) -> None:
    say = a_tool("say", lambda given, ctx: "007", finish_with=True)
    _, result, chunks = await play(quick_world.executor([calls(call("say"))]), agent(tools=[say]))
    assert result.output == "007" and of_type(chunks, "output")[0].output == "007"


async def test_a_model_error_fails_the_run(world: World) -> None:
    executor = world.executor([ModelError("the provider is down")])
    handle, result, chunks = await play(executor, agent())
    assert (result.status, result.error, result.error_code) == ("failed", "the provider is down", "model_error")
    assert result.recoverable
    assert types(chunks)[-1] == "error" and not chunks[-1].recoverable  # type: ignore[union-attr]
    assert told(await history(executor, handle.session_id)) == ["user: go"]
    assert (await handle.get_state()).error is not None


async def test_an_adapter_that_breaks_fails_the_run(world: World) -> None:
    _, result, _ = await play(world.executor([RuntimeError("a bug")]), agent())
    assert (result.status, result.error_code) == ("failed", "adapter_failed")


@pytest.mark.parametrize("reason", ["max_tokens", "content_filter", "refusal", "error"])
async def test_error_stop_reasons(quick_world: World, reason: str) -> None:
    """An incomplete answer is streamed and taken back, and its calls are not executed."""
    entry = calls(call("note", text="half"), content="I was about") | {"stop_reason": reason}
    executor = quick_world.executor([entry])
    handle, result, chunks = await play(executor, agent(tools=[note], state_schema=Notes))
    assert (result.status, result.error_code) == ("failed", reason)
    assert len(of_type(chunks, "step_discarded")) == 1 and not of_type(chunks, "tool_start")
    assert told(await history(executor, handle.session_id)) == ["user: go"]


async def test_an_unknown_stop_reason_is_read_from_the_content(quick_world: World) -> None:
    script = [calls(call("note", text="x")) | {"stop_reason": "unknown"}, {"content": "ok", "stop_reason": "unknown"}]
    _, result, _ = await play(quick_world.executor(script), agent(tools=[note], state_schema=Notes))
    assert result.output == "ok"


async def test_a_text_that_is_to_be_continued(quick_world: World) -> None:
    """With `pause_turn` the provider wants to be asked again."""
    model = ScriptedModel([{"content": "part one", "should_stop": False, "stop_reason": "unknown"}, "part two"])
    executor = quick_world.executor(model)
    _, result, _ = await play(executor, agent())
    assert (result.status, result.output, result.steps) == ("completed", "part two", 2)
    assert model.requests[1].messages[-1].content == "part one"
    endless = {"content": "more", "should_stop": False}
    _, result, _ = await play(quick_world.executor([endless] * 5), agent(max_steps=3))
    assert (result.error_code, result.steps) == ("max_steps", 3)
