"""The limits of JSON at every boundary. Input beyond them is refused with a name and a limit, and nothing is left
running."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, Field, JsonValue
from tests.support_gateway import Desk, started
from tests.support_run import World, a_tool, agent, call, calls, history, of_type, play, results

from helix import Confirmation, ToolContext, create_sub_agent_tool
from helix.core.errors import DefinitionError, InvalidInputError
from helix.core.json import MAX_BYTES, MAX_DEPTH
from helix.core.usage import Usage


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def finish_with(value: Any) -> dict[str, Any]:
    return calls(call("__finish__", value=value))


class Anything(BaseModel):
    value: Any = None


BAD: dict[str, Any] = {
    "a level too deep": nested(MAX_DEPTH + 1),
    "254 levels deep": nested(254),
    "300 levels deep": nested(300),
    "100,000 levels deep": nested(100_000),
    "a long number": {"n": 10**40},
    "a number that is no text": {"n": 10**5000},
    "NaN": {"n": float("nan")},
    "infinite": {"n": [float("-inf")]},
    "a half character": {"text": "\ud800"},
    "a half character as key": {"\ud800": 1},
    "too large": {"text": "x" * (MAX_BYTES + 1)},
    "no JSON": {"x": object()},
    "a key that is no text": {1: 2, None: 3},
}
# from a model some of these are accepted: half a character is replaced, and a key becomes a text
TAKEN = [BAD["a half character"], BAD["a half character as key"], BAD["a key that is no text"]]


@pytest.fixture(params=BAD)
def bad(request: pytest.FixtureRequest) -> Any:
    return BAD[request.param]


async def test_what_a_caller_gives_is_refused_and_claims_nothing(quick_world: World, bad: Any) -> None:
    executor = quick_world.executor(["ok"])
    for options in (
        {"input": {"message": "go", "state": bad}},
        {"input": {"message": "go", "metadata": bad}},
        {"input": "go", "metadata": bad},
    ):
        with pytest.raises(InvalidInputError, match=r"state|metadata"):
            await executor.execute(agent(), session_id="s", **options)
        assert not await executor.sessions.exists("s")
    _, result, _ = await play(executor, agent(), {"message": "go", "state": nested(MAX_DEPTH - 1)}, session_id="s")
    assert result.status == "completed" and await executor.delete("s")


async def test_the_state_after_many_messages_has_the_same_depth(quick_world: World) -> None:
    executor = quick_world.executor(["ok"] * 2)
    await play(executor, agent(), {"message": "go", "state": nested(MAX_DEPTH)}, session_id="s")
    with pytest.raises(InvalidInputError, match="levels deep"):
        await executor.execute(agent(), {"message": "go", "state": {"a": nested(MAX_DEPTH)}}, session_id="s")
    _, result, _ = await play(executor, agent(), session_id="s")
    assert result.status == "completed"


async def test_a_models_arguments_become_a_failed_call_that_costs_once(quick_world: World, bad: Any) -> None:
    used = Usage(prompt_tokens=5, calls=1)
    ran: list[Any] = []
    take = a_tool("take", lambda given, ctx: ran.append(given) or "took it", input_schema=Anything)
    script = [{**calls(call("take", value=bad), call("take", value=1)), "usage": used}, "done"]
    executor = quick_world.executor(script)
    handle, result, _ = await play(executor, agent(tools=[take]))
    first, second = results(await history(executor, handle.session_id))
    assert result.output == "done" and second == "took it"
    if bad in TAKEN:
        assert first == "took it" and len(ran) == 2
    else:
        assert "not a JSON object" in first and [given.value for given in ran] == [1]
    assert (result.usage.prompt_tokens, result.usage.calls, result.usage.unknown_calls) == (5, 2, 0)
    assert await executor.delete(handle.session_id)


async def test_a_models_output_is_asked_for_again(quick_world: World, bad: Any) -> None:
    executor = quick_world.executor([{"output": {"value": bad}}, {"output": {"value": 2}}])
    handle, result, _ = await play(executor, agent(output_schema=Anything))
    assert isinstance(result.output, Anything) and (result.output.value == 2) == (bad not in TAKEN)
    assert result.status == "completed" and await executor.delete(handle.session_id)


async def test_a_tools_result_becomes_a_failed_call(quick_world: World, bad: Any) -> None:
    executor = quick_world.executor([calls(call("give")), "done"])
    handle, result, _ = await play(executor, agent(tools=[a_tool("give", lambda given, ctx: bad)]))
    (content,) = results(await history(executor, handle.session_id))
    assert result.output == "done" and any(word in content for word in ("error", "truncated", '{"1":2'))
    assert await executor.delete(handle.session_id)


async def test_a_tool_may_return_a_text_that_reads_like_deep_json(quick_world: World) -> None:
    text = "[" * 90_000
    executor = quick_world.executor([calls(call("give")), "done"])
    handle, result, chunks = await play(executor, agent(tools=[a_tool("give", lambda given, ctx: text)]))
    assert result.output == "done" and of_type(chunks, "tool_end")[0].result == text
    assert results(await history(executor, handle.session_id)) == [text]


async def test_events_and_state_of_a_tool_are_refused_where_they_are_made(quick_world: World, bad: Any) -> None:
    refused: list[str] = []

    def work(given: Any, ctx: ToolContext[Any]) -> str:
        tries = (
            lambda: ctx.emit("event", bad),
            lambda: ctx.emit("\ud800", 1),
            lambda: ctx.update_state(lambda state: state.update(x=[bad] * 5)),
        )
        for attempt in tries:
            try:
                attempt()
            except InvalidInputError as error:
                refused.append(str(error))
        return "ok"

    executor = quick_world.executor([calls(call("work")), "done"])
    handle, result, chunks = await play(executor, agent(tools=[a_tool("work", work)]))
    assert result.output == "done" and len(refused) == 3 and not of_type(chunks, "custom")
    assert (await handle.get_state()).custom_state == {}


class Holder(BaseModel):
    value: Any = None
    typed: dict[str, JsonValue] = {}
    node: Holder | None = None


def chain(levels: int) -> Holder:
    """Return nested models that no validation has checked."""
    holder = Holder()
    for _ in range(levels):
        holder = Holder.model_construct(node=holder)
    return holder


IN_ITSELF: list[Any] = []
IN_ITSELF.append(IN_ITSELF)
STRANGE = {
    "a list in itself": IN_ITSELF,
    "a deep chain of models": chain(300),
    "models too deep": chain(100),
    "a deep model": Holder(value=nested(300)),
    "bytes": b"\xff",
}
FIELDS = ("value", "typed", "node")
CONVERTED = ("a key that is no text", "NaN", "infinite")
"""The values that pydantic converts to JSON, in a field of any type."""


@pytest.mark.parametrize("bad", [*BAD.items(), *STRANGE.items()], ids=lambda item: item[0])
async def test_the_state_of_a_schema_is_refused_where_it_is_changed(quick_world: World, bad: tuple[str, Any]) -> None:
    refused: list[str] = []
    name, value = bad

    def by_draft(ctx: ToolContext[Holder], field: str) -> None:
        with ctx.draft() as state:
            setattr(state, field, value)

    def by_update(field: str, state: Holder) -> None:
        setattr(state, field, value)

    def work(given: Any, ctx: ToolContext[Holder]) -> str:
        for field in FIELDS:
            tries: tuple[Callable[[], Any], ...] = (
                partial(ctx.update_state, partial(by_update, field)),
                partial(by_draft, ctx, field),
            )
            for attempt in tries:
                try:
                    attempt()
                except InvalidInputError as error:
                    refused.append(str(error))
        return "ok"

    executor = quick_world.executor([calls(call("work")), "done"])
    handle, result, chunks = await play(executor, agent(tools=[a_tool("work", work)], state_schema=Holder))
    assert of_type(chunks, "tool_end")[0].result == "ok" and result.output == "done"
    state = (await handle.get_state()).custom_state
    assert len(refused) % 2 == 0 and (name in (*CONVERTED, "too large") or len(refused) > 0)
    if len(refused) == 2 * len(FIELDS):
        assert state == Holder().model_dump()


@pytest.mark.parametrize("bad", [*BAD.items(), *STRANGE.items()], ids=lambda item: item[0])
async def test_a_result_that_is_the_runs_output_becomes_a_failed_call(quick_world: World, bad: tuple[str, Any]) -> None:
    give = a_tool("give", lambda given, ctx: Anything(value=bad[1]), finish_with=True)
    executor = quick_world.executor([calls(call("give")), finish_with(1)])
    handle, result, _ = await play(executor, agent(tools=[give], output_schema=Anything))
    if bad[0] in CONVERTED:
        assert result.status == "completed"
    else:
        (content,) = results(await history(executor, handle.session_id))[:1]
        assert result.output == Anything(value=1) and "error" in content and "tool 'give'" in content
    assert await executor.delete(handle.session_id)


async def test_events_of_a_hook_are_refused_where_they_are_made(quick_world: World, bad: Any) -> None:
    refused: list[str] = []

    def before(payload: Any, ctx: Any) -> None:
        try:
            ctx.emit_custom("event", bad)
        except InvalidInputError as error:
            refused.append(str(error))

    executor = quick_world.executor(["done"], hooks={"before_llm_call": before})
    _, result, chunks = await play(executor, agent())
    assert result.output == "done" and len(refused) == 1 and not of_type(chunks, "custom")


async def test_an_answers_data_is_refused_and_can_be_given_again(quick_world: World, bad: Any) -> None:
    ask = a_tool("ask", lambda given, ctx: "asked", require_approval=True)
    who = agent(tools=[ask])
    executor = quick_world.executor([calls(call("ask")), "done"])
    handle, result, _ = await play(executor, who)
    (pending,) = result.pending
    with pytest.raises(InvalidInputError, match="data"):
        await executor.answer(who, handle.session_id, Confirmation(pending.call_id, data=bad))
    with pytest.raises(InvalidInputError, match="reason"):
        await executor.answer(who, handle.session_id, Confirmation(pending.call_id, False, reason="x" * 9_000))
    resumed = await executor.resume(who, handle.session_id, confirmation=Confirmation(pending.call_id))
    assert (await resumed.result(timeout_s=10)).output == "done"


async def test_a_sub_agents_input_that_is_no_message_is_a_failed_call(quick_world: World) -> None:
    child = agent("child", output_schema=Anything)
    script = {
        "helper": [calls(call("subagent__child", message=" "), call("subagent__child", message="go")), "done"],
        "child": [{"output": {"value": 1}}],
    }
    executor = quick_world.executor(script)
    handle, result, _ = await play(executor, agent(tools=[create_sub_agent_tool(child)]))
    assert result.output == "done"
    empty, done = results(await history(executor, handle.session_id))
    assert "message is empty" in empty and "value" in done


@pytest.mark.parametrize("bad", [*BAD.items(), *STRANGE.items()], ids=lambda item: item[0])
def test_an_agents_default_state_has_the_limits_too(bad: tuple[str, Any]) -> None:
    class Deep(BaseModel):
        value: Any = Field(default_factory=lambda: bad[1])

    if bad[0] in (*CONVERTED, "too large"):
        agent(state_schema=Deep)
    else:
        with pytest.raises(DefinitionError, match="state_schema"):
            agent(state_schema=Deep)


@pytest.mark.parametrize("field", ["state", "metadata", "input"])
@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 254, 255, 900, 5_000])
async def test_the_gateway_names_the_field(desk: Desk, field: str, levels: int) -> None:
    message = {} if field == "input" else {"message": "go"}
    text = '{"a":' * (levels - 1) + "{}" + "}" * (levels - 1)
    fields = {"v": 1, "id": "r1", "action": "run", "agent": "helper", **message}
    body = "{" + ",".join(f'"{k}":{v!r}'.replace("'", '"') for k, v in fields.items()) + f',"{field}":{text}}}'
    (answer,) = [frame for frame in await desk.say("ada", body) if frame["type"] == "error"]
    error = answer["error"]
    if levels < 900:
        assert error["details"] == {"field": field} and "64 levels" in error["message"]
    assert error["code"] == "invalid_message"
    place = await started(desk)
    await desk.ended(place["session_id"])
    assert (await desk.result("ada", "delete", session_id=place["session_id"])) == {"deleted": True}
