"""One trace for each run, in one process: its tree, the content of its spans, and what they must not contain."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.support_run import Gate, Text, World, a_tool, agent, call, calls, gated, play, result_of
from tests.support_traces import Traces

from helix import LLMConfig, create_sub_agent_tool
from helix.core.caching import ResponseCacheConfig
from helix.core.context import ToolContext
from helix.core.errors import ModelError
from helix.core.spans import run_ref, trace_id
from helix.core.steps import ErrorStepResult, TextStepResult
from helix.ports.model import LLMGenerateInput

SECRET = "the launch code is 0000"


@pytest.fixture
def traces() -> Traces:
    return Traces()


def echo() -> Any:
    return a_tool("echo", lambda given, context: given.text, input_schema=Text)


def answer(content: str, **usage: int) -> dict[str, Any]:
    return {"content": content, "usage": {"calls": 1, **usage}}


async def test_a_run_with_parallel_tools_is_one_tree(world: World, traces: Traces) -> None:
    script = [calls(call("echo", text="a"), call("echo", text="b")), "done"]
    executor = world.executor(script, tracer=traces.tracer)
    handle, result, _ = await play(executor, agent(tools=[echo()]))
    assert result.status == "completed"
    assert traces.trees() == [
        [
            "run helper",
            "  invoke_agent helper",
            "    chat scripted",
            "    execute_tool echo",
            "    execute_tool echo",
            "    chat scripted",
        ]
    ]
    root = traces.named("run helper")
    assert f"{root.context.trace_id:032x}" == trace_id(handle.run_id), "the trace id is derived from the run's id"
    first, second = traces.all("chat scripted")
    tools = traces.all("execute_tool echo")
    assert root.start_time <= first.start_time <= first.end_time <= tools[0].start_time
    assert max(tool.end_time for tool in tools) <= second.start_time <= second.end_time <= root.end_time


async def test_spans_speak_the_conventions(world: World, traces: Traces) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "cached_tokens": 60, "cost_micros": 1500}
    config = LLMConfig(model="openai/gpt-4o", temperature=0.5, max_output_tokens=200)
    script = [calls(call("echo", text="a")), answer("done", **usage)]
    executor = world.executor(script, tracer=traces.tracer)
    handle, _, _ = await play(executor, agent(tools=[echo()], llm_config=config))
    chat = traces.all("chat openai/gpt-4o")[1]
    told = dict(chat.attributes or {})
    assert chat.kind.name == "CLIENT"
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "openai/gpt-4o",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 200,
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.conversation.id": handle.session_id,
        "gen_ai.agent.name": "helper",
        "helix.run.id": handle.run_id,
        "helix.step": 2,
        "helix.attempt": 1,
        "helix.cost_usd": 0.0015,
    }
    assert {name: told.get(name) for name in expected} == expected
    assert "gen_ai.response.time_to_first_chunk" in told
    tool = dict(traces.named("execute_tool echo").attributes or {})
    assert (tool["gen_ai.operation.name"], tool["gen_ai.tool.name"]) == ("execute_tool", "echo")
    assert (tool["gen_ai.tool.type"], tool["gen_ai.tool.call.id"]) == ("function", "call_0")
    invoked = dict(traces.named("invoke_agent helper").attributes or {})
    assert invoked["gen_ai.operation.name"] == "invoke_agent"
    assert invoked["gen_ai.provider.name"] == "openai"
    assert invoked["gen_ai.usage.input_tokens"] == 100
    run = dict(traces.named("run helper").attributes or {})
    assert (run["helix.run.mode"], run["helix.run.status"], run["helix.run.steps"]) == ("execute", "completed", 2)


@pytest.mark.parametrize("content", [False, True])
async def test_what_was_said_is_told_only_where_it_is_asked_for(world: World, content: bool) -> None:
    traces = Traces(content=content)
    script = [calls(call("echo", text=SECRET), content=SECRET), f"I said {SECRET}"]
    executor = world.executor(script, tracer=traces.tracer)
    await play(executor, agent(tools=[echo()], system_prompt=SECRET), SECRET)
    everything = [span.to_json() for span in traces.spans]
    assert any(SECRET in text for text in everything) is content
    if content:
        chat = traces.all("chat scripted")[1]
        assert json.loads(chat.attributes["gen_ai.system_instructions"]) == [{"type": "text", "content": SECRET}]
        sent = json.loads(chat.attributes["gen_ai.input.messages"])
        assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
        assert sent[1]["parts"][1]["arguments"] == {"text": SECRET}
        said = json.loads(chat.attributes["gen_ai.output.messages"])
        assert said[0]["parts"] == [{"type": "text", "content": f"I said {SECRET}"}]
        tool = traces.named("execute_tool echo").attributes
        assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"text": SECRET}
        assert tool["gen_ai.tool.call.result"] == SECRET


async def test_a_sub_agents_run_is_below_its_parents_call(world: World, traces: Traces) -> None:
    inner = agent("inner", tools=[echo()], output_schema=Text)
    outer = agent("outer", tools=[create_sub_agent_tool(inner)])
    script = {
        "outer": [calls(call("subagent__inner", message="do it")), "done"],
        "inner": [calls(call("echo", text="x")), calls(call("__finish__", text="found"))],
    }
    executor = world.executor(script, tracer=traces.tracer)
    handle, result, _ = await play(executor, outer)
    assert result.status == "completed"
    assert traces.trees() == [
        [
            "run outer",
            "  invoke_agent outer",
            "    chat scripted",
            "    execute_tool inner",
            "      run inner",
            "        invoke_agent inner",
            "          chat scripted",
            "          execute_tool echo",
            "          chat scripted",
            "    chat scripted",
        ]
    ]
    call_span = traces.named("execute_tool inner").attributes
    assert (call_span["gen_ai.tool.type"], call_span["gen_ai.tool.call.id"]) == ("agent", "call_0")
    assert call_span["gen_ai.conversation.id"] == handle.session_id


async def test_a_failed_model_call_and_its_retry(world: World, traces: Traces) -> None:
    script = [ErrorStepResult(error=SECRET, code="rate_limited", retryable=True), "done"]
    executor = world.executor(script, tracer=traces.tracer)
    who = agent(llm_config=LLMConfig(model="scripted", max_retries=0))
    handle, failed, _ = await play(executor, who)
    assert failed.status == "failed"
    retried = await executor.retry(who, handle.session_id)
    assert (await result_of(retried)).status == "completed"
    assert traces.trees() == [["run helper", "  invoke_agent helper", "    chat scripted"]] * 2
    first, second = traces.all("run helper")
    assert first.attributes["error.type"] == "rate_limited" and first.status.status_code.name == "ERROR"
    assert second.status.status_code.name == "UNSET"
    assert (second.attributes["helix.run.mode"], second.attributes["helix.run.continues"]) == ("retry", handle.run_id)
    (link,) = second.links
    assert link.context.span_id == first.context.span_id and link.context.trace_id == first.context.trace_id
    assert not any(SECRET in span.to_json() for span in traces.spans), "an error's text may quote anything"


async def test_tries_inside_of_the_adapter_are_events_of_the_attempt(world: World, traces: Traces) -> None:
    class Stumbles:
        async def generate_step(self, request: LLMGenerateInput) -> Any:
            assert request.callbacks.on_error is not None
            request.callbacks.on_error(ModelError("overloaded", retryable=True))
            return TextStepResult(content="done", model="other/model")

    executor = world.executor(Stumbles(), tracer=traces.tracer)
    await play(executor, agent())
    chat = traces.named("chat scripted")
    assert [(event.name, dict(event.attributes or {})) for event in chat.events] == [
        ("helix.model_retry", {"error.type": "model_error"})
    ]
    assert (chat.attributes["gen_ai.response.model"], chat.attributes["gen_ai.provider.name"]) == (
        "other/model",
        "other",
    )


async def test_an_interrupt_ends_the_attempt_and_resume_is_linked(world: World, traces: Traces) -> None:
    gate = Gate()
    executor = world.executor([gated(gate, "never"), "done"], tracer=traces.tracer)
    handle = await executor.execute(who := agent(), "go")
    await gate.reached()
    await executor.interrupt(handle.session_id)
    assert (await result_of(handle)).status == "interrupted"
    assert (await result_of(await executor.resume(who, handle.session_id))).status == "completed"
    first, second = traces.all("chat scripted")
    assert first.attributes["error.type"] == "cancelled"
    assert "error.type" not in second.attributes
    runs = traces.all("run helper")
    assert [run.attributes["helix.run.status"] for run in runs] == ["interrupted", "completed"]
    assert runs[0].status.status_code.name == "UNSET", "a stop request is not a failure"
    assert runs[1].links[0].context.trace_id == runs[0].context.trace_id


async def test_a_takeover_tells_the_dead_run_and_links_the_next(world: World, traces: Traces) -> None:
    gate = Gate()

    async def dies(request: LLMGenerateInput) -> Any:
        gate.entered.set()
        await asyncio.Event().wait()

    dead = world.executor([dies], tracer=Traces().tracer)  # its spans are lost with it
    handle = await dead.execute(who := agent(), "go")
    await gate.reached()
    await dead.close()
    heir = world.executor(["done"], tracer=traces.tracer)
    taken = await heir.resume(who, handle.session_id)
    assert (await result_of(taken)).status == "completed"
    first, second = traces.all("run helper")
    assert (first.attributes["helix.run.id"], first.attributes["error.type"]) == (handle.run_id, "runtime_crash")
    lost = next(s for s in traces.all("invoke_agent helper") if s.attributes["helix.run.id"] == handle.run_id)
    assert [(event.name, event.attributes["helix.step"]) for event in lost.events] == [("helix.attempt_abandoned", 1)]
    assert second.attributes["helix.run.mode"] == "takeover"
    assert second.links[0].context.span_id == int(run_ref(handle.run_id, None).span_id, 16)


async def test_spans_of_a_tools_own_code_are_below_its_span(world: World, traces: Traces) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(traces.exporter))
    own = provider.get_tracer("of-the-tool")

    async def work(arguments: Any, context: ToolContext[Any]) -> str:
        with own.start_as_current_span("ask the database"):
            return "3 rows"

    executor = world.executor([calls(call("work")), "done"], tracer=traces.tracer)
    await play(executor, agent(tools=[a_tool("work", work)]))
    assert "      ask the database" in traces.trees()[0]
    assert trace.get_current_span().get_span_context().span_id == 0, "no span is left behind"


async def test_a_share_of_the_traces_is_kept_whole(world: World) -> None:
    traces = Traces(ratio=0.5)
    executor = world.executor(["done"] * 20, tracer=traces.tracer)
    runs = [(await play(executor, agent()))[0].run_id for _ in range(20)]
    kept = {run_id for run_id in runs if int(trace_id(run_id)[16:], 16) < 1 << 63}
    assert {span.attributes["helix.run.id"] for span in traces.spans} == kept
    assert len(traces.spans) == 3 * len(kept)


async def test_an_answer_that_is_remembered_is_an_attempt_without_a_price(world: World, traces: Traces) -> None:
    config = LLMConfig(model="scripted", temperature=0, response_cache=ResponseCacheConfig())
    executor = world.executor([answer("done", cost_micros=900, prompt_tokens=5)], tracer=traces.tracer)
    for _ in range(2):
        await play(executor, agent(llm_config=config), "the same question")
    asked, remembered = traces.all("chat scripted")
    assert "helix.cached" not in asked.attributes and remembered.attributes["helix.cached"] is True
    assert remembered.attributes["helix.cost_usd"] == 0
    assert traces.trees() == [["run helper", "  invoke_agent helper", "    chat scripted"]] * 2
