"""A structured output while it arrives: its chunks, partial objects, and the elements of its lists."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, Field
from tests.support_gateway import executor_of, served
from tests.support_gateway import told as collect
from tests.support_run import Gate, World, agent, call, calls, chunks_of, of_type, play

from helix import AgentExecutionHandle, InvalidInputError, ModelError, OutputDiscarded, OutputItem, ScriptedModel
from helix.adapters.models.playback import notify
from helix.core.partial_output import GROWTH, GrowingText, read_partial
from helix.core.steps import AnyStepResult, StructuredOutputStepResult, ToolCallsStepResult
from helix.ports.model import LLMGenerateInput
from helix.testing.invariants import check_session


class Dish(BaseModel):
    name: str
    minutes: int = Field(gt=0)


class Menu(BaseModel):
    title: str = Field(alias="Title")
    dishes: list[Dish]
    note: str | None = None


TEA, SOUP = {"name": "tea", "minutes": 4}, {"name": "soup", "minutes": 25}
MENU = {"Title": "For today", "dishes": [TEA, SOUP]}
BAD = {"Title": "For today", "dishes": [TEA, {"name": "air", "minutes": 0}]}


def finish(arguments: dict[str, Any]) -> dict[str, Any]:
    return calls({"name": "__finish__", "arguments": arguments})


def cook(**fields: Any) -> Any:
    return agent(output_schema=Menu, **fields)


async def partials(handle: AgentExecutionHandle[Any]) -> list[dict[str, Any]]:
    return await collect(await handle.partial_outputs())


async def items(handle: AgentExecutionHandle[Any]) -> list[Any]:
    return await collect(await handle.output_items("dishes"))


async def test_the_chunks_are_the_text_of_the_output(world: World) -> None:
    executor = world.executor(ScriptedModel([finish(MENU)], delta_chars=5))
    handle, result, chunks = await play(executor, cook())
    pieces = of_type(chunks, "output_delta")
    assert len(pieces) > 10 and {(c.step, c.attempt) for c in pieces} == {(1, 1)}
    assert json.loads("".join(c.delta for c in pieces)) == MENU
    assert result.output == Menu(**MENU)
    await check_session(executor.store, executor.streams, handle.session_id, at_rest=True)


async def test_partial_objects_have_the_types_of_the_schema(world: World) -> None:
    executor = world.executor(ScriptedModel([finish(MENU)], delta_chars=5))
    handle, _, _ = await play(executor, cook())
    found = await partials(handle)
    assert found[:2] == [{"title": ""}, {"title": "For t"}], "a string grows; `Title` is an alias"
    assert {"title": "For today", "dishes": [Dish(**TEA)]} in found, "a nested model appears when it is valid"
    assert found[-1] == {"title": "For today", "dishes": [Dish(**TEA), Dish(**SOUP)], "note": None}
    assert not any("minutes" not in dish.model_fields_set for one in found for dish in one.get("dishes", []))


async def test_each_element_comes_once_and_before_the_end(world: World) -> None:
    gate = Gate()

    async def slowly(request: LLMGenerateInput) -> Any:
        text = json.dumps(MENU)
        await notify(request.callbacks.on_output_delta, text[:80])
        await gate.wait()
        await notify(request.callbacks.on_output_delta, text[80:])
        return finish(MENU)

    executor = world.executor([slowly])
    handle = await executor.execute(cook(), "What is there to eat?")
    stream = await handle.output_items("dishes")
    assert await anext(stream) == OutputItem(0, Dish(**TEA)), "it is complete while the model still writes"
    gate.open()
    assert await collect(stream) == [OutputItem(1, Dish(**SOUP))]
    assert await items(handle) == [OutputItem(0, Dish(**TEA)), OutputItem(1, Dish(**SOUP))], "a later reader"


async def test_an_output_that_the_schema_refuses_is_taken_back(world: World) -> None:
    executor = world.executor(ScriptedModel([finish(BAD), finish(MENU)], delta_chars=5))
    handle, _, _ = await play(executor, cook())
    tea, soup = OutputItem(0, Dish(**TEA)), OutputItem(1, Dish(**SOUP))
    assert await items(handle) == [tea, OutputDiscarded("the answer was refused"), tea, soup]
    found = await partials(handle)
    assert {} in found and found[-1]["dishes"] == [Dish(**TEA), Dish(**SOUP)]


async def test_a_failed_call_takes_its_output_back(world: World) -> None:
    async def stumbles(request: LLMGenerateInput) -> Any:
        await notify(request.callbacks.on_output_delta, json.dumps(MENU)[:80])
        await notify(request.callbacks.on_error, ModelError("overloaded", retryable=True))
        await notify(request.callbacks.on_output_delta, json.dumps(MENU))
        return finish(MENU)

    handle, _, chunks = await play(world.executor([stumbles]), cook())
    [discarded] = of_type(chunks, "step_discarded")
    tea, soup = OutputItem(0, Dish(**TEA)), OutputItem(1, Dish(**SOUP))
    assert await items(handle) == [tea, OutputDiscarded(discarded.reason), tea, soup]


async def test_a_run_that_fails_takes_its_output_back(world: World) -> None:
    executor = world.executor([finish(BAD)])
    handle, result, _ = await play(executor, cook(max_completion_retries=0))
    assert result.error_code == "invalid_output"
    assert await items(handle) == [OutputItem(0, Dish(**TEA)), OutputDiscarded("the run ended without an output")]
    assert (await partials(handle))[-1] == {}


async def test_an_adapter_that_does_not_stream_the_output(world: World) -> None:
    """Each answer with an output has its chunks: the engine adds them where the adapter has none."""

    class Silent(ScriptedModel):
        def __init__(self, result: AnyStepResult) -> None:
            super().__init__([])
            self.result = result

        async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
            return self.result

    by_call = ToolCallsStepResult.model_validate({"tool_calls": [{"id": "f", "name": "__finish__", "arguments": MENU}]})
    for result in (by_call, StructuredOutputStepResult(output=MENU)):
        handle, _, chunks = await play(world.executor(Silent(result)), cook())
        [piece] = of_type(chunks, "output_delta")
        assert json.loads(piece.delta) == MENU
        assert await items(handle) == [OutputItem(0, Dish(**TEA)), OutputItem(1, Dish(**SOUP))]


async def test_only_the_first_finish_is_shown_and_only_with_a_schema(world: World) -> None:
    two = calls(call("__finish__", **BAD), {"name": "__finish__", "arguments": MENU})
    handle, _, chunks = await play(world.executor([two]), cook())
    assert json.loads("".join(c.delta for c in of_type(chunks, "output_delta"))) == BAD
    tea, soup = OutputItem(0, Dish(**TEA)), OutputItem(1, Dish(**SOUP))
    assert await items(handle) == [tea, soup], "the run's output is the second one, and begins with the same element"
    _, _, chunks = await play(world.executor([finish(MENU), "No such tool."]), agent())
    assert of_type(chunks, "output_delta") == []


async def test_other_elements_in_the_end_take_the_first_ones_back(world: World) -> None:
    other = {"Title": "Other", "dishes": [SOUP]}
    two = calls({"name": "__finish__", "arguments": BAD}, {"name": "__finish__", "arguments": other})
    handle, result, _ = await play(world.executor([two]), cook())
    assert result.output == Menu(**other)
    void = OutputDiscarded("the output differs from its text")
    assert await items(handle) == [OutputItem(0, Dish(**TEA)), void, OutputItem(0, Dish(**SOUP))]


async def test_a_list_that_the_schema_does_not_have(world: World) -> None:
    handle, _, _ = await play(world.executor([finish(MENU)]), cook())
    for field in ("meals", "title"):
        with pytest.raises(InvalidInputError, match=f"Menu has no list '{field}'"):
            await collect(await handle.output_items(field))


async def test_a_client_reads_the_same(world: World) -> None:
    model = ScriptedModel([finish(MENU)], delta_chars=5)
    async with served(executor_of(model, cook())) as (_, client):
        handle = await client.run("helper", "What is there to eat?")
        near = [OutputItem(0, TEA), OutputItem(1, SOUP)]
        assert await items(handle) == near, "without the schema, elements are JSON"
        typed = await collect(await handle.output_items("dishes", Menu))
        assert typed == [OutputItem(0, Dish(**TEA)), OutputItem(1, Dish(**SOUP))]
        found = await partials(handle)
        assert {"Title": "For today", "dishes": [{"name": "tea"}]} in found
        assert (await collect(await handle.partial_outputs(Menu)))[-1]["dishes"] == [Dish(**TEA), Dish(**SOUP)]


async def test_sub_agents_outputs_are_not_those_of_the_run(world: World) -> None:
    from helix import create_sub_agent_tool

    script = {"boss": [calls(call("subagent__helper", message="eat")), finish({"Title": "B", "dishes": [SOUP]})]}
    child, boss = cook(), agent("boss", output_schema=Menu, tools=[create_sub_agent_tool(cook())])
    handle, _, _ = await play(world.executor({**script, child.name: [finish(MENU)]}), boss)
    assert {c.agent_type for c in of_type(await chunks_of(handle), "output_delta")} == {"boss", "helper"}
    assert await items(handle) == [OutputItem(0, Dish(**SOUP))]


def test_a_long_text_is_read_a_bounded_number_of_times() -> None:
    text = json.dumps({"text": "x" * 100_000})
    growing, read = GrowingText(), 0
    for piece in text:
        if growing.add(piece):
            read += len(growing.text)
    assert read < 2 * GROWTH * len(text)
    assert read_partial("nonsense") is None and read_partial('{"a": "b') == {"a": "b"}
