"""Tools that fail. A failure is a result that the model reads, and leaves no changes behind."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.delivery_stage import Stage
from tests.support_notes import Answer, Notes, note
from tests.support_run import (
    World,
    a_tool,
    agent,
    assert_stream,
    call,
    calls,
    history,
    of_type,
    play,
    results,
    text_of,
    types,
)

from helix import FatalToolError, ScriptedModel, ToolContext, ToolError


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
    """Unknown tools and wrong or malformed arguments give failed results, and recoverable errors on the stream."""
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
    """A lone surrogate is not Unicode text. It must not end the run."""

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
        contents = results(await history(executor, handle.session_id))
        assert len(contents) == len(script[0]["tool_calls"])  # type: ignore[index]
        assert all("cancelled" in content for content in contents)


@pytest.mark.parametrize(("retry_timeouts", "expected"), [(True, ["quick"]), (False, None)])
async def test_a_timeout_is_repeated_where_the_tool_says_so(
    quick_world: World, retry_timeouts: bool, expected: list[str] | None
) -> None:
    keys: list[str] = []

    async def first_hangs(given: Any, ctx: ToolContext[Any]) -> str:
        keys.append(ctx.idempotency_key)
        if len(keys) == 1:
            await asyncio.Event().wait()
        return "quick"

    options: dict[str, Any] = {"timeout_s": 0.05, "retries": 2, "retry_timeouts": retry_timeouts}
    executor = quick_world.executor([calls(call("hang")), "done"])
    handle, _, chunks = await play(executor, agent(tools=[a_tool("hang", first_hangs, **options)]))
    found = results(await history(executor, handle.session_id))
    if expected is not None:
        assert found == expected and len(keys) == 2 and len(set(keys)) == 1
    else:
        assert "its outcome is unknown" in found[0] and len(keys) == 1
    assert len(of_type(chunks, "tool_start")) == len(of_type(chunks, "tool_end")) == 1


async def test_after_tool_has_the_error(quick_world: World) -> None:
    def refusing(given: Any, ctx: ToolContext[Any]) -> str:
        raise ToolError("not today")

    tools = [a_tool("refusing", refusing), a_tool("fine", lambda given, ctx: "ok")]
    errors: dict[str, Any] = {}
    hooks = {"after_tool": lambda payload, context: errors.update({payload["tool_name"]: payload["error"]})}
    executor = quick_world.executor([calls(call("refusing"), call("fine")), "done"], hooks=hooks)
    await play(executor, agent(tools=tools))
    assert errors == {"refusing": "not today", "fine": None}


async def test_deliveries_repeat_a_timeout_within_the_claim(quick_world: World) -> None:
    tries: list[float | None] = []

    async def first_hangs(given: Any, ctx: ToolContext[Any]) -> str:
        tries.append(None)
        if len(tries) == 1:
            await asyncio.Event().wait()
        return "quick"

    who = agent(tools=[a_tool("hang", first_hangs, timeout_s=0.05, retries=1, retry_timeouts=True)])
    stage = Stage([calls(call("hang")), "Done."], who)
    event = await stage.begin(who)
    assert (await stage.follow(event))["next"] == "finish"
    assert await stage.results(event) == [("quick", True)] and len(tries) == 2


async def test_a_tool_that_exits_ends_its_call_and_not_its_worker(world: World) -> None:
    class Abandon(BaseException):
        pass

    runs: list[str] = []

    def exiting(given: Any, ctx: ToolContext[Any]) -> str:
        runs.append("exiting")
        sys.exit(3)

    async def exiting_later(given: Any, ctx: ToolContext[Any]) -> str:
        runs.append("exiting_later")
        await asyncio.sleep(0)
        raise SystemExit("enough")

    def abandoning(given: Any, ctx: ToolContext[Any]) -> str:
        runs.append("abandoning")
        raise Abandon("gone")

    tools = [a_tool(f.__name__, f) for f in (exiting, exiting_later, abandoning)]
    executor = world.executor([calls(*(call(t.name) for t in tools)), "done"])
    handle, result, _ = await play(executor, agent(tools=tools))
    assert result.status == "completed"
    assert sorted(runs) == ["abandoning", "exiting", "exiting_later"]
    assert results(await history(executor, handle.session_id)) == [
        '{"error":"SystemExit: 3"}',
        '{"error":"SystemExit: enough"}',
        '{"error":"Abandon: gone"}',
    ]


async def test_a_tool_that_exits_in_a_delivery_runs_once() -> None:
    runs: list[int] = []

    def exiting(given: Any, ctx: ToolContext[Any]) -> str:
        runs.append(1)
        sys.exit(3)

    who = agent(tools=[a_tool("exiting", exiting)])
    stage = Stage([calls(call("exiting")), "Done."], who)
    event = await stage.begin(who)
    assert (await stage.follow(event))["next"] == "finish"
    assert await stage.results(event) == [('{"error":"SystemExit: 3"}', False)] and len(runs) == 1
