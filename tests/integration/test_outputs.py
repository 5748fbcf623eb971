"""Structured output: how a run is made to produce it, and which outputs are accepted or refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field
from tests.support_notes import GOOD, Answer, Notes, note
from tests.support_run import Text, World, a_tool, agent, call, calls, history, of_type, play, results, told, types

from helix import ScriptedModel, ToolContext
from helix.core.prompt import FINISH_NUDGE


async def test_structured_output(world: World) -> None:
    executor = world.executor([calls(call("__finish__", **GOOD))])
    handle, result, chunks = await play(executor, agent(output_schema=Answer))
    assert result.output == Answer(summary="fine", score=7) and result.completion_reason == "output"
    assert [c.output for c in of_type(chunks, "output")] == [GOOD]
    assert types(chunks)[-1] == "output"
    assert told(await history(executor, handle.session_id))[1:] == [
        "assistant: [__finish__]",
        'tool: {"acknowledged":true}',
    ]
    assert not of_type(chunks, "tool_start")  # finish is not a tool here


async def test_an_adapter_that_answers_with_the_output_itself(world: World) -> None:
    executor = world.executor([{"output": GOOD}])
    handle, result, _ = await play(executor, agent(output_schema=Answer))
    assert result.output == Answer(**GOOD)
    assert told(await history(executor, handle.session_id))[1] == "assistant: [__finish__]"


async def test_finish_beside_siblings_runs_them_first(world: World) -> None:
    executor = world.executor([calls(call("__finish__", **GOOD), call("note", text="late"))])
    handle, result, chunks = await play(executor, agent(output_schema=Answer, tools=[note], state_schema=Notes))
    assert result.output == Answer(**GOOD) and result.steps == 1
    assert (await handle.get_state()).custom_state["items"] == ["late"]
    assert types(chunks)[-4:] == ["tool_end", "state_patch", "checkpoint_created", "output"]
    assert results(await history(executor, handle.session_id)) == ['{"acknowledged":true}', "noted late"]


async def test_the_first_valid_finish_counts(world: World) -> None:
    other = {"summary": "second", "score": 1}
    bad = call("__finish__", score=99)
    executor = world.executor([calls(bad, call("__finish__", **GOOD), call("__finish__", **other))])
    handle, result, _ = await play(executor, agent(output_schema=Answer))
    assert result.output == Answer(**GOOD)
    first, second, third = results(await history(executor, handle.session_id))
    assert "summary" in first and "acknowledged" in second and "superseded" in third


async def test_an_invalid_finish_goes_back_then_fails(world: World) -> None:
    bad = calls(call("__finish__", summary="x", score=99))
    model = ScriptedModel([bad, bad, bad, "unreachable"])
    executor = world.executor(model)
    handle, result, chunks = await play(executor, agent(output_schema=Answer))
    assert (result.status, result.error_code, result.steps) == ("failed", "invalid_output", 3)
    assert [r.tool_choice for r in model.requests] == ["auto", "auto", "__finish__"]
    assert all("score" in content for content in results(await history(executor, handle.session_id)))
    assert not of_type(chunks, "output")


async def test_an_invalid_finish_is_corrected(world: World) -> None:
    executor = world.executor([calls(call("__finish__", score=1)), calls(call("__finish__", **GOOD))])
    _, result, _ = await play(executor, agent(output_schema=Answer))
    assert result.output == Answer(**GOOD) and result.steps == 2


async def test_a_text_ending_is_followed_by_a_reminder_to_finish(world: World) -> None:
    model = ScriptedModel(["I think it is fine.", calls(call("__finish__", **GOOD))])
    executor = world.executor(model)
    handle, result, _ = await play(executor, agent(output_schema=Answer))
    assert result.output == Answer(**GOOD)
    reminded = model.requests[1]
    assert (reminded.tool_choice, reminded.messages[-1].content) == ("auto", FINISH_NUDGE)
    assert len(await history(executor, handle.session_id)) == 4  # the nudge is not stored


@pytest.mark.parametrize("unfinished", ["I still think so.", calls(call("echo", text="x"))], ids=["text", "calls"])
async def test_an_output_is_forced_if_the_reminder_did_not_help(world: World, unfinished: Any) -> None:
    model = ScriptedModel(["It is fine.", unfinished, calls(call("__finish__", **GOOD))])
    echo = a_tool("echo", lambda given, _: given.text, input_schema=Text)
    _, result, _ = await play(world.executor(model), agent(tools=[echo], output_schema=Answer))
    assert (result.output, result.steps) == (Answer(**GOOD), 3)
    assert [r.tool_choice for r in model.requests] == ["auto", "auto", "__finish__"]
    assert [r.messages[-1].content == FINISH_NUDGE for r in model.requests] == [False, True, True]


async def test_the_only_retry_is_forced(world: World) -> None:
    model = ScriptedModel(["It is fine.", calls(call("__finish__", **GOOD))])
    await play(world.executor(model), agent(output_schema=Answer, max_completion_retries=1))
    assert [r.tool_choice for r in model.requests] == ["auto", "__finish__"]


async def test_a_text_ending_without_output_fails(world: World) -> None:
    executor = world.executor(["no"] * 3)
    _, result, _ = await play(executor, agent(output_schema=Answer))
    assert (result.status, result.error_code, result.steps) == ("failed", "output_missing", 3)
    executor = world.executor(["no"])
    _, result, _ = await play(executor, agent(output_schema=Answer, max_completion_retries=0))
    assert (result.status, result.error_code, result.steps) == ("failed", "output_missing", 1)


async def test_output_models_with_aliases_and_computed_fields(quick_world: World) -> None:
    from pydantic import ConfigDict, computed_field

    class Odd(BaseModel):
        model_config = ConfigDict(extra="forbid")
        total: int = Field(alias="Total")

        @computed_field  # type: ignore[prop-decorator]
        @property
        def double(self) -> int:
            return self.total * 2

    executor = quick_world.executor([calls(call("__finish__", Total=4))])
    _, result, _ = await play(executor, agent(output_schema=Odd))
    assert result.output is not None and result.output.double == 8


async def test_state_models_with_aliases_and_computed_fields(quick_world: World) -> None:
    from pydantic import ConfigDict, computed_field

    class Odd(BaseModel):
        model_config = ConfigDict(extra="forbid")
        total: int = Field(default=1, alias="Total")

        @computed_field  # type: ignore[prop-decorator]
        @property
        def double(self) -> int:
            return self.total * 2

    def add(given: Any, ctx: ToolContext[Odd]) -> str:
        ctx.update_state(lambda s: setattr(s, "total", s.total + 1))
        return str(ctx.get_state().double)

    model = ScriptedModel([calls(call("add")), "done", "again"])
    executor = quick_world.executor(model)
    who = agent(system_prompt=lambda s: f"total {s.total}", state_schema=Odd, tools=[a_tool("add", add)])
    handle, _, _ = await play(executor, who, {"message": "go", "state": {"total": 4}})
    assert (await handle.get_state()).custom_state == {"total": 5}
    await play(executor, who, {"message": "go", "state": {"Total": 8}}, session_id=handle.session_id)
    assert [m.messages[0].content for m in model.requests] == ["total 4", "total 5", "total 8"]
