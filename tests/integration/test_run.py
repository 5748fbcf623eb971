"""One run from beginning to end: what an agent does with what its model says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel, Field
from tests.support_run import (
    Gate,
    Text,
    World,
    a_tool,
    agent,
    assert_stream,
    call,
    calls,
    history,
    of_type,
    play,
    result_of,
    results,
    text_of,
    told,
    types,
)

from helix import AgentClient, FatalToolError, LLMConfig, ModelError, ScriptedModel, ToolContext, ToolError, Usage, tool
from helix.core.errors import AgentAlreadyRunningError, InvalidInputError
from helix.core.registry import AgentRegistry
from helix.core.steps import ToolCallsStepResult


class Notes(BaseModel):
    items: list[str] = []
    last: str = ""
    counts: dict[str, int] = {}


class Answer(BaseModel):
    summary: str
    score: int = Field(ge=0, le=10)


@tool
def note(text: str, ctx: ToolContext[Notes]) -> str:
    """Note something."""

    def change(state: Notes) -> None:
        state.items.append(text)
        state.last = text
        state.counts[text] = len(text)

    ctx.update_state(change)
    return f"noted {text}"


# --- text and tools -----------------------------------------------------------------------------------------------


async def test_plain_text(world: World) -> None:
    executor = world.executor(["Good morning to you."])
    handle, result, chunks = await play(executor, agent(), "hi")
    assert (result.status, result.output, result.text) == ("completed", "Good morning to you.", "Good morning to you.")
    assert (result.completion_reason, result.steps, result.error) == ("text", 1, None)
    assert text_of(chunks) == "Good morning to you."
    assert types(chunks) == ["checkpoint_created", "step_committed", "checkpoint_created"]
    assert [c.sequence for c in chunks] == list(range(1, len(chunks) + 1))
    assert {c.agent_id for c in chunks} == {handle.session_id} and {c.run_id for c in chunks} == {handle.run_id}
    assert told(await history(executor, handle.session_id)) == ["user: hi", "assistant: Good morning to you."]
    state = await handle.get_state()
    assert (state.status, state.step_count, state.message_count, state.turn) == ("completed", 1, 2, 1)


async def test_a_tool_and_its_state(world: World) -> None:
    executor = world.executor([calls(call("note", text="tea"), content="Let me see."), "done"])
    handle, result, chunks = await play(executor, agent(tools=[note], state_schema=Notes))
    assert result.output == "done" and result.steps == 2
    assert types(chunks) == [
        "state_patch",
        "checkpoint_created",
        "step_committed",
        "tool_start",
        "tool_end",
        "state_patch",
        "checkpoint_created",
        "step_committed",
        "checkpoint_created",
    ]
    (start,), (end,) = of_type(chunks, "tool_start"), of_type(chunks, "tool_end")
    assert (start.tool_name, start.arguments) == ("note", {"text": "tea"})
    assert (end.tool_call_id, end.success, end.result) == (start.tool_call_id, True, "noted tea")
    first, patch = of_type(chunks, "state_patch")
    assert {"op": "add", "path": "/last", "value": ""} in first.patches  # the initial state, from nothing
    assert {"op": "add", "path": "/items/-", "value": "tea"} in patch.patches
    assert (await handle.get_state()).custom_state == {"items": ["tea"], "last": "tea", "counts": {"tea": 3}}
    assert told(await history(executor, handle.session_id)) == [
        "user: go",
        "assistant: Let me see.[note]",
        "tool: noted tea",
        "assistant: done",
    ]
    assert_stream(chunks)


async def test_parallel_tools_merge_their_changes_in_call_order(world: World) -> None:
    """The second call finishes first; the result does not show it."""
    first_waits = Gate()

    async def slow(given: Text, ctx: ToolContext[Notes]) -> str:
        await first_waits.wait()
        return _write(given, ctx)

    def quick(given: Text, ctx: ToolContext[Notes]) -> str:
        assert ctx.get_state().items == ["old"]  # siblings are not visible
        first_waits.open()
        return _write(given, ctx)

    def _write(given: Text, ctx: ToolContext[Notes]) -> str:
        with ctx.draft() as state:
            state.items.append(given.text)
            state.last = given.text
            state.counts[given.text] = 1
        return given.text

    tools = [a_tool("slow", slow, input_schema=Text), a_tool("quick", quick, input_schema=Text)]
    executor = world.executor([calls(call("slow", text="a"), call("quick", text="b")), "done"])
    handle, _, chunks = await play(
        executor, agent(tools=tools, state_schema=Notes), {"message": "go", "state": {"items": ["old"]}}
    )
    state = (await handle.get_state()).custom_state
    assert state == {"items": ["old", "a", "b"], "last": "b", "counts": {"a": 1, "b": 1}}
    patch = of_type(chunks, "state_patch")[-1]
    assert len(patch.warnings) == 1 and patch.warnings[0].startswith("/last")
    assert results(await history(executor, handle.session_id)) == ["a", "b"]
    checkpoint = await executor.sessions.get_latest_checkpoint(handle.session_id)
    assert checkpoint.state == state


async def test_a_tool_emits_and_records_usage(world: World) -> None:
    def work(given: Any, ctx: ToolContext[Any]) -> dict[str, Any]:
        ctx.emit("progress", {"percent": 50})
        ctx.record_usage(Usage(prompt_tokens=7, cost_micros=11))
        return {"key": ctx.idempotency_key, "agent": ctx.agent_id, "step": ctx.step, "type": ctx.agent_type}

    async def awaited(given: Any, ctx: ToolContext[Any]) -> str:
        ctx.emit("progress", {"percent": 100})
        return "ok"

    script = [calls(call("work"), call("awaited")), {"content": "done", "usage": {"prompt_tokens": 5, "calls": 1}}]
    executor = world.executor(script)
    handle, result, chunks = await play(executor, agent(tools=[a_tool("work", work), a_tool("awaited", awaited)]))
    assert sorted(c.data["percent"] for c in of_type(chunks, "custom")) == [50, 100]
    by_call = {c.tool_call_id: c for c in of_type(chunks, "tool_end")}
    assert by_call["call_0"].result["agent"] == handle.session_id and by_call["call_0"].result["step"] == 1
    assert result.usage.prompt_tokens == 12 and result.usage.cost_micros == 11
    assert (await handle.get_state()).usage == result.usage


@pytest.mark.parametrize("value", ["42", "null", '{"a": 1}', "", "true"])
async def test_a_text_result_stays_a_text(quick_world: World, value: str) -> None:
    """A string is stored verbatim and told as a string, also where it looks like JSON."""
    executor = quick_world.executor([calls(call("say")), "done"])
    handle, _, chunks = await play(executor, agent(tools=[a_tool("say", lambda given, ctx: value)]))
    assert of_type(chunks, "tool_end")[0].result == value
    assert results(await history(executor, handle.session_id)) == [value]


# --- tools that do not work ---------------------------------------------------------------------------------------


async def test_failing_tools_are_results_that_the_model_sees(world: World) -> None:
    class Sum(BaseModel):
        total: int

    def broken(given: Any, ctx: ToolContext[Any]) -> str:
        raise KeyError("where")

    def refusing(given: Any, ctx: ToolContext[Any]) -> str:
        raise ToolError("not today")

    def nonsense(given: Any, ctx: ToolContext[Any]) -> object:
        return object()

    def misfit(given: Any, ctx: ToolContext[Any]) -> object:
        return {"total": "many"}

    def late(given: Any, ctx: ToolContext[Any]) -> object:
        raise TimeoutError("the far side")

    tools = [
        a_tool("broken", broken),
        a_tool("refusing", refusing),
        a_tool("nonsense", nonsense),
        a_tool("misfit", misfit, output_schema=Sum),
        a_tool("late", late),
    ]
    executor = world.executor([calls(*(call(t.name) for t in tools)), "done"])
    handle, result, chunks = await play(executor, agent(tools=tools))
    assert result.status == "completed"
    contents = results(await history(executor, handle.session_id))
    assert contents[0] == '{"error":"KeyError: \'where\'"}'
    assert contents[1] == '{"error":"not today"}'
    assert "not JSON" in contents[2]
    assert "total" in contents[3] and "output schema" in contents[3]
    assert "the far side" in contents[4] and "longer than" not in contents[4]
    ends = of_type(chunks, "tool_end")
    assert len(ends) == 5 and not any(end.success for end in ends) and all(end.error for end in ends)
    assert_stream(chunks)


async def test_a_failed_tool_leaves_no_state(world: World) -> None:
    def half(given: Any, ctx: ToolContext[Notes]) -> str:
        ctx.update_state(lambda s: s.items.append("half"))
        raise RuntimeError("no")

    def wrong(given: Any, ctx: ToolContext[Notes]) -> str:
        ctx.update_state(lambda s: setattr(s, "last", 5))
        return "unreachable"

    executor = world.executor([calls(call("half"), call("wrong")), "done"])
    handle, _, chunks = await play(
        executor, agent(tools=[a_tool("half", half), a_tool("wrong", wrong)], state_schema=Notes)
    )
    assert (await handle.get_state()).custom_state == Notes().model_dump()
    assert "last" in results(await history(executor, handle.session_id))[1]
    assert len(of_type(chunks, "state_patch")) == 1  # the initial state


@pytest.mark.parametrize("sync", [True, False])
async def test_a_tool_that_takes_too_long(quick_world: World, sync: bool) -> None:
    import threading

    release = threading.Event()

    def stuck(given: Any, ctx: ToolContext[Any]) -> str:
        release.wait(10)
        return "late"

    async def asleep(given: Any, ctx: ToolContext[Any]) -> str:
        await asyncio.Event().wait()
        return "never"

    executor = quick_world.executor([calls(call("slow")), "done"])
    slow = a_tool("slow", stuck if sync else asleep, timeout_s=0.05)
    handle, result, _ = await play(executor, agent(tools=[slow]))
    release.set()
    assert result.status == "completed"
    (content,) = results(await history(executor, handle.session_id))
    assert "longer than 0.05 s" in content and "unknown" in content


async def test_retries_of_a_tool_start_from_the_base_state(quick_world: World) -> None:
    tries = 0

    def flaky(given: Any, ctx: ToolContext[Notes]) -> str:
        nonlocal tries
        tries += 1
        ctx.update_state(lambda s: s.items.append(f"try {tries}"))
        if tries < 2:
            raise ConnectionError("again")
        return "ok"

    executor = quick_world.executor([calls(call("flaky")), "done"])
    handle, _, chunks = await play(executor, agent(tools=[a_tool("flaky", flaky, retries=2)], state_schema=Notes))
    assert (await handle.get_state()).custom_state["items"] == ["try 2"]
    assert len(of_type(chunks, "tool_start")) == 1


async def test_calls_that_cannot_be_executed(world: World) -> None:
    """Unknown tools, wrong and malformed arguments: failed results, and recoverable errors on the stream."""
    malformed = {"name": "note", "malformed": '{"text": "half'}
    script = [calls(call("missing"), call("note", wrong=1), malformed, call("note", text="fine")), "done"]
    executor = world.executor(script)
    handle, result, chunks = await play(executor, agent(tools=[note], state_schema=Notes))
    assert result.status == "completed"
    unknown, invalid, broken, fine = results(await history(executor, handle.session_id))
    assert (
        "no tool 'missing'" in unknown and "text" in invalid and "not a JSON object" in broken and fine == "noted fine"
    )
    errors = of_type(chunks, "error")
    assert [(e.code, e.recoverable) for e in errors] == [("invalid_tool_call", True)] * 3
    assert "missing" in errors[0].error
    assert [e.tool_call_id for e in of_type(chunks, "tool_start")] == ["call_3"]
    order = types(chunks)
    assert order.index("error") < order.index("step_committed")
    assert_stream(chunks)


async def test_only_refused_calls_go_back_to_the_model(world: World) -> None:
    executor = world.executor([calls(call("missing")), "sorry"])
    _, result, _ = await play(executor, agent())
    assert result.output == "sorry" and result.steps == 2


async def test_a_fatal_tool_fails_the_run_after_its_siblings(world: World) -> None:
    def fatal(given: Any, ctx: ToolContext[Any]) -> str:
        raise FatalToolError("the disk is gone")

    executor = world.executor([calls(call("fatal"), call("note", text="x")), "unreachable"])
    who = agent(tools=[a_tool("fatal", fatal), note], state_schema=Notes)
    handle, result, chunks = await play(executor, who)
    assert (result.status, result.error_code) == ("failed", "fatal_tool_error")
    assert "the disk is gone" in (result.error or "")
    assert (await handle.get_state()).custom_state["items"] == ["x"]
    fatal_errors = [e for e in of_type(chunks, "error") if not e.recoverable]
    assert len(fatal_errors) == 1 and chunks[-1] == fatal_errors[0]
    assert len(results(await history(executor, handle.session_id))) == 2


async def test_a_fatal_tool_with_a_huge_message(quick_world: World) -> None:
    def fatal(given: Any, ctx: ToolContext[Any]) -> str:
        raise FatalToolError("x" * 200_000)

    _, result, _ = await play(quick_world.executor([calls(call("fatal"))]), agent(tools=[a_tool("fatal", fatal)]))
    assert (result.status, result.error_code) == ("failed", "fatal_tool_error")


async def test_texts_that_cannot_be_stored_are_results_too(quick_world: World) -> None:
    """A lone surrogate is no Unicode text: it must not kill the run."""

    def raising(given: Any, ctx: ToolContext[Any]) -> str:
        raise RuntimeError("bad \udc80 text")

    def returning(given: Any, ctx: ToolContext[Any]) -> str:
        return "bad \udc80 text"

    tools = [a_tool("raising", raising), a_tool("returning", returning)]
    executor = quick_world.executor([calls(*(call(t.name) for t in tools)), "done"])
    handle, result, _ = await play(executor, agent(tools=tools))
    assert result.status == "completed"
    assert all(
        "bad" in content or "surrogate" in content for content in results(await history(executor, handle.session_id))
    )


async def test_answers_that_cannot_be_stored_as_they_are(world: World) -> None:
    """Providers split emoji over two deltas, and JSON parsers accept NaN."""
    nan = float("nan")
    script = [
        calls(call("note", text=nan), call("note", text="x"), content="half \ud83d"),
        {"output": {"summary": "s", "score": nan}},
        calls(call("__finish__", summary="joined \ud83d\ude00", score=1)),
    ]
    executor = world.executor(script)
    handle, result, chunks = await play(executor, agent(output_schema=Answer, tools=[note], state_schema=Notes))
    assert result.output == Answer(summary="joined \U0001f600", score=1)
    assert "half \ufffd" in text_of(chunks)
    contents = results(await history(executor, handle.session_id))
    assert "NaN" in contents[0] and contents[1] == "noted x" and "score" in contents[2]


async def test_an_infinite_number_is_no_output(quick_world: World) -> None:
    class Measure(BaseModel):
        value: float

    executor = quick_world.executor([calls(call("__finish__", value="inf")), calls(call("__finish__", value=2))])
    handle, result, _ = await play(executor, agent(output_schema=Measure))
    assert result.output == Measure(value=2)
    assert "not JSON" in results(await history(executor, handle.session_id))[0]


async def test_finish_without_an_output_schema_is_an_unknown_tool(quick_world: World) -> None:
    model = ScriptedModel([calls(call("__finish__", a=1)), "done"])
    _, result, _ = await play(quick_world.executor(model), agent())
    assert result.output == "done" and model.requests[1].messages[-1].role == "tool"
    _, result, _ = await play(quick_world.executor([calls(call("__finish__"))] * 5), agent(max_steps=3))
    assert (result.error_code, result.steps) == ("max_steps", 3)


async def test_a_tool_that_cancels_itself_is_a_failed_result(quick_world: World) -> None:
    async def odd(given: Any, ctx: ToolContext[Any]) -> str:
        raise asyncio.CancelledError

    for script in ([calls(call("odd")), "done"], [calls(call("odd"), call("odd")), "done"]):
        executor = quick_world.executor(script)
        handle, result, _ = await play(executor, agent(tools=[a_tool("odd", odd)]))
        assert result.output == "done"
        assert all("cancelled" in content for content in results(await history(executor, handle.session_id)))


# --- output -------------------------------------------------------------------------------------------------------

GOOD = {"summary": "fine", "score": 7}


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
    assert [r.tool_choice for r in model.requests] == ["auto", "__finish__", "__finish__"]
    assert all("score" in content for content in results(await history(executor, handle.session_id)))
    assert not of_type(chunks, "output")


async def test_an_invalid_finish_is_corrected(world: World) -> None:
    executor = world.executor([calls(call("__finish__", score=1)), calls(call("__finish__", **GOOD))])
    _, result, _ = await play(executor, agent(output_schema=Answer))
    assert result.output == Answer(**GOOD) and result.steps == 2


async def test_a_text_ending_is_forced_into_an_output(world: World) -> None:
    model = ScriptedModel(["I think it is fine.", calls(call("__finish__", **GOOD))])
    executor = world.executor(model)
    handle, result, _ = await play(executor, agent(output_schema=Answer))
    assert result.output == Answer(**GOOD)
    forced = model.requests[1]
    assert forced.tool_choice == "__finish__" and forced.messages[-1].role == "user"
    assert len(await history(executor, handle.session_id)) == 4  # the nudge is not stored


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
    assert result.output.double == 8


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


# --- ends ---------------------------------------------------------------------------------------------------------


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
    stubborn = world.executor([calls(call("note", text="x"))] * 3)
    _, result, _ = await play(stubborn, who)
    assert (result.status, result.error_code, result.steps) == ("failed", "max_steps", 2)


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
    """Half an answer is shown, taken back, and not executed."""
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
    """`pause_turn`: the provider wants to be asked again."""
    model = ScriptedModel([{"content": "part one", "should_stop": False, "stop_reason": "unknown"}, "part two"])
    executor = quick_world.executor(model)
    _, result, _ = await play(executor, agent())
    assert (result.status, result.output, result.steps) == ("completed", "part two", 2)
    assert model.requests[1].messages[-1].content == "part one"
    endless = {"content": "more", "should_stop": False}
    _, result, _ = await play(quick_world.executor([endless] * 5), agent(max_steps=3))
    assert (result.error_code, result.steps) == ("max_steps", 3)


# --- functions of the state ---------------------------------------------------------------------------------------


async def test_prompt_and_settings_follow_the_state(world: World) -> None:
    model = ScriptedModel([calls(call("note", text="x")), "done"])
    who = agent(
        tools=[note],
        state_schema=Notes,
        system_prompt=lambda state: f"seen {len(state.items)}",
        llm_config=lambda state: LLMConfig(model=f"m{len(state.items)}", temperature=0.5),
    )
    handle, _, _ = await play(world.executor(model), who)
    assert [r.messages[0].content for r in model.requests] == ["seen 0", "seen 1"]
    assert [r.config.model for r in model.requests] == ["m0", "m1"]
    messages = await history(world.executor(), handle.session_id)
    assert all(m.role != "system" for m in messages)


@pytest.mark.parametrize("field", ["system_prompt", "llm_config"])
async def test_a_function_of_the_state_that_raises_fails_the_run(quick_world: World, field: str) -> None:
    def wrong(state: Any) -> Any:
        raise ValueError("cannot say")

    _, result, _ = await play(quick_world.executor(["unreachable"]), agent(**{field: wrong}))
    assert result.status == "failed" and "cannot say" in (result.error or "")


# --- client tools and function agents -----------------------------------------------------------------------------


async def test_a_client_tool_pauses_for_its_result(world: World) -> None:
    ask = a_tool("ask_user", "client", input_schema=Text)
    executor = world.executor([calls(call("ask_user", text="name?"), call("note", text="x")), "Hello Ada"])
    who = agent(tools=[ask, note], state_schema=Notes)
    handle, result, chunks = await play(executor, who)
    assert result.status == "paused" and [(p.tool_name, p.kind) for p in result.pending] == [("ask_user", "client")]
    (request,) = of_type(chunks, "tool_approval_request")
    assert (request.kind, request.input) == ("client", {"text": "name?"})
    from helix import Confirmation

    again = await executor.resume(who, handle.session_id, confirmation=Confirmation("call_0", data={"name": "Ada"}))
    assert (await result_of(again)).output == "Hello Ada"
    assert results(await history(executor, handle.session_id)) == ['{"name":"Ada"}', "noted x"]


async def test_function_agents(world: World) -> None:
    client = AgentClient(registry=AgentRegistry())

    class Totals(BaseModel):
        total: int

    @client.agent(name="adder")
    async def adder(a: int, b: int, ctx: ToolContext[Any]) -> Totals:
        """Adds."""
        ctx.emit("adding", a)
        return Totals(total=a + b)

    @client.agent(name="echo")
    async def echo(text: str) -> str:
        """Says it again."""
        if text == "bad":
            raise ValueError("will not say it")
        return text

    executor = world.executor()
    _, result, chunks = await play(executor, adder, {"a": 2, "b": 3})
    assert result.output == Totals(total=5) and result.steps == 1
    assert of_type(chunks, "custom")[0].data == 2 and of_type(chunks, "output")[0].output == {"total": 5}
    _, result, _ = await play(executor, echo, "12")
    assert result.output == "12"
    _, result, _ = await play(executor, echo, "bad")
    assert (result.status, result.error_code) == ("failed", "function_failed") and "will not say it" in (
        result.error or ""
    )
    _, result, _ = await play(executor, adder, "seven")
    assert (result.status, result.error_code) == ("failed", "invalid_input")


# --- refusals -----------------------------------------------------------------------------------------------------


async def test_a_running_session_takes_no_second_run(world: World) -> None:
    gate = Gate()

    async def wait(given: Any, ctx: ToolContext[Any]) -> str:
        await gate.wait()
        return "ok"

    who = agent(tools=[a_tool("wait", wait)])
    executor = world.executor([calls(call("wait")), "done"])
    handle = await executor.execute(who, "go")
    await gate.reached()
    for other in (executor, world.executor(["x"])):
        with pytest.raises(AgentAlreadyRunningError) as caught:
            await other.execute(who, "me too", session_id=handle.session_id)
        assert caught.value.run_id == handle.run_id
    assert (await executor.can_resume(handle.session_id)).reason == "running"
    gate.open()
    assert (await result_of(handle)).status == "completed"


async def test_sixteen_at_once_on_one_session(world: World) -> None:
    executors = [world.executor(["done"]) for _ in range(4)]
    who = agent()
    asked = [executors[i % 4].execute(who, f"message {i}", session_id="ses_shared") for i in range(16)]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    won = [o for o in outcomes if not isinstance(o, BaseException)]
    assert len(won) >= 1 and all(isinstance(o, AgentAlreadyRunningError) for o in outcomes if isinstance(o, Exception))
    for handle in won:
        assert (await result_of(handle)).status in ("completed", "failed")
    messages = await history(executors[0], "ses_shared")
    assert sum(m.role == "user" for m in messages) == len(won)


async def test_input_is_checked(quick_world: World) -> None:
    executor = quick_world.executor(["x"])
    who = agent(state_schema=Notes)
    for wrong in (
        "",
        "  \n",
        {"message": ""},
        {"text": "x"},
        {"message": "x", "more": 1},
        5,
        None,
        {"message": "bad \udc80"},
    ):
        with pytest.raises(InvalidInputError):
            await executor.execute(who, wrong)  # type: ignore[arg-type]
    for state in ({"items": 5}, {"items": [float("nan")]}, {"last": "\udc80"}):
        with pytest.raises(InvalidInputError, match=r"items|last|state"):
            await executor.execute(who, {"message": "x", "state": state})
    with pytest.raises(InvalidInputError):
        await executor.execute(agent(), {"message": "x", "state": {"a": "\udc80"}})
    with pytest.raises(InvalidInputError, match="Agent"):
        await executor.execute("helper", "x")  # type: ignore[arg-type]
    handle, _, _ = await play(executor, who)
    with pytest.raises(InvalidInputError, match="belongs to agent"):
        await executor.execute(agent("other"), "x", session_id=handle.session_id)
