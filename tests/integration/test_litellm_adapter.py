"""`LiteLLMAdapter` over real HTTP on loopback: how responses are read and priced, and that litellm's own behaviour stays
off."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from tests import support_litellm
from tests.support_litellm import CALL, MODEL, FakeClock, Heard, Serve, request, tool

from helix.adapters.models.litellm import LiteLLMAdapter
from helix.core.messages import SystemMessage, ThinkingContent, UserMessage
from helix.core.steps import ErrorStepResult, ParsedToolCall, StopReason, TextStepResult, ToolCallsStepResult
from helix.core.usage import Usage
from helix.ports.model import LLMStreamCallbacks
from helix.testing.openai_server import (
    HttpFailure,
    ModelAnswer,
    ModelToolCall,
    ModelUsage,
    ScriptedResponse,
    StallAfter,
)

serve = support_litellm.serve
clock = support_litellm.clock
heard = support_litellm.heard


# --- reading responses -----------------------------------------------------------------------------------------------


async def test_text_streams_in_deltas_and_ends_the_turn(serve: Serve, heard: Heard) -> None:
    serve(ModelAnswer(text="hello wonderful world", delta_length=6))
    result = await LiteLLMAdapter().generate_step(request(callbacks=heard.callbacks()))
    assert isinstance(result, TextStepResult)
    assert result.content == "hello wonderful world"
    assert (result.stop_reason, result.should_stop, result.model) == (StopReason.END_TURN, True, MODEL)
    assert heard.events == [("text", "hello "), ("text", "wonder"), ("text", "ful wo"), ("text", "rld")]


async def test_the_first_delta_is_heard_before_the_answer_is_complete(serve: Serve) -> None:
    heard_first = asyncio.Event()
    serve(ModelAnswer(text="one two", delta_length=3, fault=StallAfter(1, 60)))
    callbacks = LLMStreamCallbacks(on_text_delta=lambda delta: heard_first.set())
    running = asyncio.create_task(LiteLLMAdapter().generate_step(request(callbacks=callbacks)))
    await asyncio.wait_for(heard_first.wait(), 30)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_parallel_calls_are_assembled_from_interleaved_fragments(serve: Serve, heard: Heard) -> None:
    serve(
        ModelAnswer(
            text="calling",
            tool_calls=[
                ModelToolCall("add", {"a": 1, "b": 2, "why": "a rather long text"}, id="id-1"),
                ModelToolCall("subagent__writer", {"topic": "rain"}, id="id-2"),
                ModelToolCall("add", {}, id="id-3"),
            ],
            delta_length=4,
        )
    )
    result = await LiteLLMAdapter().generate_step(request(tools=[tool()], callbacks=heard.callbacks()))
    assert isinstance(result, ToolCallsStepResult)
    assert result.content == "calling"
    assert result.stop_reason is StopReason.TOOL_USE
    assert [(c.id, c.name, c.arguments) for c in result.tool_calls] == [
        ("id-1", "add", {"a": 1, "b": 2, "why": "a rather long text"}),
        ("id-3", "add", {}),
    ]
    assert [(c.id, c.agent_type, c.input) for c in result.sub_agent_calls] == [("id-2", "writer", {"topic": "rain"})]
    assert result.order == ["id-1", "id-2", "id-3"]
    announced = [event[1] for event in heard.events if event[0] == "call"]
    assert [(call.id, call.name) for call in announced] == [
        ("id-1", "add"),
        ("id-2", "subagent__writer"),
        ("id-3", "add"),
    ]
    assert heard.kinds == ["text", "call"]


async def test_missing_and_repeated_ids_are_replaced_by_position(serve: Serve) -> None:
    calls = [ModelToolCall("a", id=""), ModelToolCall("b", id="same"), ModelToolCall("c", id="same")]
    serve(ModelAnswer(tool_calls=calls))
    result = await LiteLLMAdapter().generate_step(request(tools=[tool()]))
    assert isinstance(result, ToolCallsStepResult)
    assert result.order == ["call_0", "same", "call_2"]
    assert [call.id for call in result.tool_calls] == result.order


@pytest.mark.parametrize("raw", ['{"a": 1', "[1, 2]", "nonsense", '{"a": NaN}', '{"a": "\\ud800"}', '"text"'])
async def test_arguments_that_are_no_json_object_are_handed_on_as_malformed(serve: Serve, raw: str) -> None:
    serve(ModelAnswer(tool_calls=[ModelToolCall("add", raw), ModelToolCall("subagent__w", raw), CALL.tool_calls[0]]))
    result = await LiteLLMAdapter().generate_step(request(tools=[tool()]))
    assert isinstance(result, ToolCallsStepResult)
    assert (result.tool_calls[0].malformed, result.tool_calls[0].arguments) == (raw, {})
    assert (result.sub_agent_calls[0].malformed, result.sub_agent_calls[0].input) == (raw, {})
    assert result.tool_calls[1] == ParsedToolCall(id="call_3", name="add", arguments={"a": 1, "b": 2})


async def test_empty_arguments_are_the_empty_object(serve: Serve) -> None:
    serve(ModelAnswer(tool_calls=[ModelToolCall("now", "")]))
    result = await LiteLLMAdapter().generate_step(request(tools=[tool("now")]))
    assert isinstance(result, ToolCallsStepResult)
    assert (result.tool_calls[0].arguments, result.tool_calls[0].malformed) == ({}, None)


async def test_reasoning_streams_and_is_complete_once(serve: Serve, heard: Heard) -> None:
    serve(ModelAnswer(reasoning="let me think", text="done", delta_length=7))
    result = await LiteLLMAdapter().generate_step(request(callbacks=heard.callbacks()))
    assert isinstance(result, TextStepResult)
    assert result.thinking == [ThinkingContent(text="let me think")]
    assert heard.events == [
        ("thinking", "let me ", False),
        ("thinking", "think", False),
        ("thinking", "let me think", True),
        ("text", "done"),
    ]


async def test_reasoning_alone_is_complete_at_the_end(serve: Serve, heard: Heard) -> None:
    serve(ModelAnswer(reasoning="hm"))
    await LiteLLMAdapter().generate_step(request(callbacks=heard.callbacks()))
    assert heard.events == [("thinking", "hm", False), ("thinking", "hm", True)]


async def test_a_half_character_in_the_stream_does_not_break_the_answer(serve: Serve) -> None:
    serve(ModelAnswer(text="ok \ud83d"))
    result = await LiteLLMAdapter().generate_step(request())
    assert isinstance(result, TextStepResult)
    assert result.content == "ok \ufffd"


async def test_callbacks_that_raise_are_dropped(serve: Serve, clock: FakeClock) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the stream store is down")

    async def broken_later(*_: object) -> None:
        raise RuntimeError("the stream store is down")

    serve(HttpFailure(status=500), ModelAnswer(reasoning="r", text="t", tool_calls=CALL.tool_calls))
    callbacks = LLMStreamCallbacks(
        on_text_delta=broken_later, on_thinking=broken, on_tool_call=broken_later, on_error=broken
    )
    result = await LiteLLMAdapter(clock=clock).generate_step(request(tools=[tool()], callbacks=callbacks))
    assert isinstance(result, ToolCallsStepResult)
    assert result.content == "t"


async def test_an_answer_cut_at_its_token_limit_is_an_error_and_never_a_call(serve: Serve, heard: Heard) -> None:
    serve(ModelAnswer(tool_calls=[ModelToolCall("delete", '{"path": "/tmp')], finish_reason="length"))
    result = await LiteLLMAdapter().generate_step(request(tools=[tool("delete")], callbacks=heard.callbacks()))
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.stop_reason, result.retryable) == ("max_tokens", StopReason.MAX_TOKENS, False)
    assert "max_output_tokens" in result.error
    assert result.usage.completion_tokens == 5
    assert heard.events == []


async def test_a_refusal_is_an_error_with_the_models_words(serve: Serve) -> None:
    serve(ModelAnswer(refusal="I cannot help with that"))
    result = await LiteLLMAdapter().generate_step(request())
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.stop_reason, result.retryable) == ("refusal", StopReason.REFUSAL, False)
    assert "I cannot help with that" in result.error
    assert result.usage.calls == 1


async def test_a_filtered_answer_is_an_error(serve: Serve) -> None:
    serve(ModelAnswer(text="so", finish_reason="content_filter"))
    result = await LiteLLMAdapter().generate_step(request())
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.stop_reason) == ("content_filter", StopReason.CONTENT_FILTER)


async def test_an_unknown_stop_reason_is_judged_by_the_content(serve: Serve) -> None:
    serve(ModelAnswer(text="so", finish_reason="novel"), ModelAnswer(tool_calls=CALL.tool_calls, finish_reason="novel"))
    adapter = LiteLLMAdapter()
    text, calls = await adapter.generate_step(request()), await adapter.generate_step(request(tools=[tool()]))
    assert isinstance(text, TextStepResult)
    assert (text.stop_reason, text.should_stop) == (StopReason.UNKNOWN, True)
    assert isinstance(calls, ToolCallsStepResult)
    assert (calls.stop_reason, len(calls.tool_calls)) == (StopReason.UNKNOWN, 1)


# --- usage and cost --------------------------------------------------------------------------------------------------


async def test_usage_and_cost_in_whole_micro_dollars(serve: Serve) -> None:
    serve(ModelAnswer(text="x", usage=ModelUsage(1000, 500, reasoning_tokens=200, cached_tokens=400)))
    result = await LiteLLMAdapter().generate_step(request())
    # gpt-4o-mini: 0.15 and 0.60 dollars a million, cached input 0.075: 600*.15 + 400*.075 + 500*.6 = 420 micros
    assert result.usage == Usage(
        prompt_tokens=1000, completion_tokens=500, reasoning_tokens=200, cached_tokens=400, cost_micros=420, calls=1
    )


async def test_a_model_without_a_price_is_unpriced_and_a_given_price_wins(serve: Serve) -> None:
    answer = ModelAnswer(text="x", usage=ModelUsage(1000, 500))
    serve(answer, answer, answer)
    unknown = await LiteLLMAdapter().generate_step(request(model="openai/my-own"))
    assert (unknown.usage.priced, unknown.usage.cost_micros, unknown.usage.prompt_tokens) == (False, 0, 1000)
    adapter = LiteLLMAdapter(prices={"openai/my-own": (1e-6, 2e-6), MODEL: (1e-5, 0.0)})
    assert (await adapter.generate_step(request(model="openai/my-own"))).usage.cost_micros == 2000
    known = await adapter.generate_step(request())
    assert (known.usage.cost_micros, known.usage.priced) == (10_000, True)


async def test_usage_the_provider_keeps_to_itself_is_estimated(serve: Serve) -> None:
    serve(ModelAnswer(text="some words of an answer", usage=None))
    usage = (await LiteLLMAdapter().generate_step(request())).usage
    assert usage.prompt_tokens > 0
    assert usage.completion_tokens > 0
    assert usage.calls == 1


# --- litellm itself --------------------------------------------------------------------------------------------------


def test_importing_helix_and_making_an_adapter_does_not_import_litellm() -> None:
    code = (
        "import sys, helix\n"
        "from helix.adapters.models.litellm import LiteLLMAdapter\n"
        "import helix.testing.openai_server\n"
        "LiteLLMAdapter(prices={'m': (1.0, 2.0)})\n"
        "heavy = {'litellm', 'openai', 'tiktoken', 'starlette', 'uvicorn', 'h11', 'httpx', 'aiohttp'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_litellm_the_error_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "sys.modules['litellm'] = None\n"
        "from helix.adapters.models.litellm import load_litellm\n"
        "from helix.core.errors import DefinitionError\n"
        "try:\n"
        "    load_litellm()\n"
        "except DefinitionError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "pip install 'helix-agents[models]'" in done.stdout


@pytest.mark.slow
def test_litellms_warnings_break_no_call_where_warnings_are_errors() -> None:
    code = (
        "import asyncio, os, warnings\n"
        "from helix.adapters.models.litellm import LiteLLMAdapter, load_litellm\n"
        "from helix.testing.openai_server import OpenAIServer\n"
        "from tests.support_litellm import request\n"
        "load_litellm()\n"
        "warnings.resetwarnings()\n"
        "warnings.simplefilter('error')\n"
        "with OpenAIServer(['fine']) as server:\n"
        "    os.environ.update(server.environment())\n"
        "    print(asyncio.run(LiteLLMAdapter().generate_step(request(max_retries=0))).content)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=110)
    assert done.stdout == "fine\n", done.stderr


async def test_calls_run_side_by_side(serve: Serve) -> None:
    """Each call keeps its own text, calls and usage."""

    def model(body: dict[str, Any]) -> ScriptedResponse:
        word = body["messages"][-1]["content"]
        return ModelAnswer(text=word * 20, usage=ModelUsage(int(word), 1), delta_length=3, delay_s=0.001)

    serve(*[model] * 8)
    adapter = LiteLLMAdapter()
    requests = [request([SystemMessage(content="s"), UserMessage(content=str(n))]) for n in range(1, 9)]
    results = await asyncio.gather(*(adapter.generate_step(each) for each in requests))
    assert [(r.content, r.usage.prompt_tokens) for r in results if isinstance(r, TextStepResult)] == [
        (str(n) * 20, n) for n in range(1, 9)
    ]


@pytest.mark.slow
def test_a_call_prints_nothing_and_warns_of_nothing() -> None:
    """It runs in its own process and event loop, as in a Lambda: failures, an unusual stop reason, then a clean
    shutdown."""
    code = (
        "import asyncio, os\n"
        "from helix.adapters.models.litellm import LiteLLMAdapter\n"
        "from helix.core.config import LLMConfig\n"
        "from helix.core.messages import UserMessage\n"
        "from helix.ports.model import LLMGenerateInput\n"
        "from helix.testing.openai_server import CutAfter, HttpFailure, ModelAnswer, OpenAIServer\n"
        "async def main():\n"
        "    script = [HttpFailure(status=500), ModelAnswer(text='x', fault=CutAfter(0)), "
        "ModelAnswer(text='x', finish_reason='odd')]\n"
        "    async with OpenAIServer(script) as server:\n"
        "        os.environ.update(server.environment())\n"
        "        config = LLMConfig(model='openai/gpt-4o-mini', max_retries=0)\n"
        "        for _ in range(3):\n"
        "            message = UserMessage(content='hi')\n"
        "            request = LLMGenerateInput([message], [], config, agent_id='a', agent_type='t')\n"
        "            await LiteLLMAdapter().generate_step(request)\n"
        "for _ in range(2):\n"
        "    asyncio.run(main())\n"
        "import litellm\n"
        "from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler\n"
        "assert not AsyncHTTPHandler.should_use_aiohttp_transport(), 'its C parser runs'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
