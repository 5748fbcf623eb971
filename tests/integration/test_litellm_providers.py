"""`LiteLLMAdapter` and the peculiarities of single providers: signed thinking, cache marks, their own stop reasons."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests import support_litellm
from tests.support_litellm import (
    CLAUDE,
    REDACTED,
    TOOL_USE,
    Anthropic,
    FakeClock,
    Heard,
    Serve,
    anthropic_events,
    openai_event,
    request,
    text_block,
    thinking_block,
    tool,
)

from helix.adapters.models.adapter import ModelAdapter
from helix.adapters.models.litellm import LiteLLMAdapter
from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    SystemMessage,
    ThinkingContent,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
)
from helix.core.steps import ErrorStepResult, StopReason, TextStepResult, ToolCallsStepResult
from helix.core.usage import Usage
from helix.ports.model import LLMStreamCallbacks
from helix.testing.loopback_server import LoopbackServer, RecordedRequest, Responder

serve = support_litellm.serve
each_adapter = support_litellm.each_adapter
pytestmark = pytest.mark.usefixtures("each_adapter")
clock = support_litellm.clock
heard = support_litellm.heard
anthropic = support_litellm.anthropic


# --- Anthropic: signed thinking, cache marks, its own stop reasons ---------------------------------------------------

THINK = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


async def test_signed_and_redacted_thinking_is_read_and_sent_back_losslessly(
    anthropic: Anthropic, heard: Heard
) -> None:
    server = anthropic(
        anthropic_events(
            thinking_block("SIG-1", "first ", "thought"),
            REDACTED,
            thinking_block("SIG-2", "second"),
            text_block("so ", "I add"),
            TOOL_USE,
            stop="tool_use",
        ),
        anthropic_events(text_block("1"), stop="end_turn"),
    )
    adapter = LiteLLMAdapter()
    question = request(model=CLAUDE, tools=[tool()], callbacks=heard.callbacks(), provider_options=THINK)
    result = await adapter.generate_step(question)
    assert isinstance(result, ToolCallsStepResult)
    assert result.thinking == [
        ThinkingContent(text="first thought", signature="SIG-1"),
        ThinkingContent(redacted="ENCRYPTED"),
        ThinkingContent(text="second", signature="SIG-2"),
    ]
    assert (result.content, result.tool_calls[0].arguments) == ("so I add", {"a": 1})
    assert [e for e in heard.events if e[0] == "thinking"] == [
        ("thinking", "first ", False),
        ("thinking", "thought", False),
        ("thinking", "first thought", True),
        ("thinking", "second", False),
        ("thinking", "second", True),
    ]
    history = [
        *question.messages,
        AssistantMessage(
            content=result.content,
            thinking=result.thinking,
            tool_calls=[ToolCallRequest(id="toolu_1", name="add", arguments={"a": 1})],
        ),
        ToolResultMessage(tool_call_id="toolu_1", tool_name="add", content="1"),
    ]
    await adapter.generate_step(request(history, model=CLAUDE, tools=[tool()], provider_options=THINK))
    assistant = server.requests[1].json["messages"][1]
    assert assistant["role"] == "assistant"
    assert assistant["content"] == [
        {"type": "thinking", "thinking": "first thought", "signature": "SIG-1"},
        {"type": "redacted_thinking", "data": "ENCRYPTED"},
        {"type": "thinking", "thinking": "second", "signature": "SIG-2"},
        {"type": "text", "text": "so I add"},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}},
    ]


async def test_cache_marks_system_last_tool_and_the_tail(anthropic: Anthropic) -> None:
    server = anthropic(anthropic_events(text_block("ok"), stop="end_turn"))
    await LiteLLMAdapter().generate_step(request(model=CLAUDE, tools=[tool("a"), tool("b")], cache=True))
    body = server.requests[0].json
    mark = {"type": "ephemeral"}
    assert [t.get("cache_control") for t in body["tools"]] == [None, mark]
    assert body["system"][0]["cache_control"] == mark
    assert body["messages"][-1]["content"][-1]["cache_control"] == mark


async def test_without_cache_there_are_no_marks(anthropic: Anthropic) -> None:
    server = anthropic(anthropic_events(text_block("ok"), stop="end_turn"))
    await LiteLLMAdapter().generate_step(request(model=CLAUDE, tools=[tool("a")], cache=False))
    assert "cache_control" not in server.requests[0].body.decode()


async def test_cached_tokens_are_part_of_the_prompt_and_cheaper(anthropic: Anthropic) -> None:
    anthropic(anthropic_events(text_block("ok"), stop="end_turn"))
    usage = (await LiteLLMAdapter().generate_step(request(model=CLAUDE))).usage
    # claude-sonnet-4-5: 3 and 15 dollars a million, cache reads 0.30: 20*3 + 100*.3 + 40*15 = 690
    assert usage == Usage(prompt_tokens=120, completion_tokens=40, cached_tokens=100, cost_micros=690, calls=1)


@pytest.mark.parametrize(
    ("stop", "code", "reason"),
    [
        ("refusal", "refusal", StopReason.REFUSAL),
        ("max_tokens", "max_tokens", StopReason.MAX_TOKENS),
        ("model_context_window_exceeded", "max_tokens", StopReason.MAX_TOKENS),
    ],
)
async def test_anthropics_own_stop_reasons_survive_litellm(
    anthropic: Anthropic, stop: str, code: str, reason: StopReason
) -> None:
    anthropic(anthropic_events(text_block("so"), TOOL_USE, stop=stop))
    result = await LiteLLMAdapter().generate_step(request(model=CLAUDE, tools=[tool()]))
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.stop_reason) == (code, reason)


async def test_a_paused_turn_is_to_be_continued_and_a_stop_sequence_ends(anthropic: Anthropic) -> None:
    anthropic(
        anthropic_events(text_block("so"), stop="pause_turn"), anthropic_events(text_block("so"), stop="stop_sequence")
    )
    adapter = LiteLLMAdapter()
    results = [await adapter.generate_step(request(model=CLAUDE)) for _ in range(2)]
    assert [(r.stop_reason, r.should_stop) for r in results if isinstance(r, TextStepResult)] == [
        (StopReason.UNKNOWN, False),
        (StopReason.STOP_SEQUENCE, True),
    ]


@pytest.mark.parametrize("tail", [[{"type": "test_cut"}], []])
async def test_usage_of_a_failed_attempt_is_added(anthropic: Anthropic, clock: FakeClock, tail: list[Any]) -> None:
    """Anthropic reports the prompt's tokens first, so a stream that breaks later has a known part of its price."""
    anthropic(
        [*anthropic_events(text_block("so"), stop=None), *tail], anthropic_events(text_block("fine"), stop="end_turn")
    )
    result = await LiteLLMAdapter(clock=clock).generate_step(request(model=CLAUDE))
    assert isinstance(result, TextStepResult)
    assert (result.content, len(clock.slept)) == ("fine", 1)
    assert (result.usage.prompt_tokens, result.usage.completion_tokens, result.usage.calls) == (240, 41, 2)


async def test_a_provider_error_within_the_stream_is_retryable(
    anthropic: Anthropic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELIX_LOG_CONTENT", "1")
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    anthropic([*anthropic_events(text_block("so"), stop=None), overloaded])
    result = await LiteLLMAdapter().generate_step(request(model=CLAUDE, max_retries=0))
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable) == ("server_error", True)
    assert "Overloaded" in result.error


@pytest.mark.parametrize("busy_s", [0, 60])
async def test_cancelling_closes_an_anthropic_connection_too(anthropic: Anthropic, busy_s: float) -> None:
    """It is cancelled while the stream is read, and while a callback is busy."""
    server = anthropic([*anthropic_events(text_block("so"), stop=None), {"type": "test_stall"}])
    arrived = asyncio.Event()

    async def on_text(delta: str) -> None:
        arrived.set()
        await asyncio.sleep(busy_s)

    question = request(model=CLAUDE, callbacks=LLMStreamCallbacks(on_text_delta=on_text))
    task = asyncio.create_task(LiteLLMAdapter().generate_step(question))
    await asyncio.wait_for(arrived.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert await asyncio.to_thread(server.requests[0].disconnected.wait, 10), caught


async def test_signed_thinking_of_one_provider_does_not_go_to_another(serve: Serve) -> None:
    server = serve("fine")
    thinking = [ThinkingContent(text="private", signature="SIG"), ThinkingContent(redacted="ENCRYPTED")]
    history: list[AnyMessage] = [
        SystemMessage(content="s"),
        UserMessage(content="u"),
        AssistantMessage(content="a", thinking=thinking),
        UserMessage(content="v"),
    ]
    await LiteLLMAdapter().generate_step(request(history))
    assert server.requests[0].json["messages"][2] == {"role": "assistant", "content": "a"}


# --- Gemini and DeepSeek: their peculiarities -------------------------------------------------------------------------


@pytest.mark.parametrize("max_retries", [0, 1])
async def test_a_malformed_function_call_of_gemini_is_a_failed_attempt_not_an_empty_answer(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, max_retries: int
) -> None:
    parts: list[list[dict[str, Any]]] = [[], [{"text": "fine"}]]

    async def answer(request: RecordedRequest, responder: Responder) -> None:
        await responder.start(200, {"content-type": "text/event-stream"})
        content = parts.pop(0)
        reason = "STOP" if content else "MALFORMED_FUNCTION_CALL"
        candidate = {"content": {"role": "model", "parts": content}, "finishReason": reason, "index": 0}
        usage = {"promptTokenCount": 7, "totalTokenCount": 7}
        event = json.dumps({"candidates": [candidate], "usageMetadata": usage})
        await responder.send(f"data: {event}\r\n\r\n".encode())
        await responder.end()

    with LoopbackServer(answer) as server:
        monkeypatch.setenv("GEMINI_API_KEY", "test")
        options = {"api_base": server.origin}
        result = await LiteLLMAdapter(clock=clock).generate_step(
            request(model="gemini/gemini-2.5-flash", max_retries=max_retries, provider_options=options)
        )
    if max_retries:
        assert isinstance(result, TextStepResult)
        assert (result.content, result.stop_reason) == ("fine", StopReason.END_TURN)
        assert (result.usage.prompt_tokens, result.usage.calls, len(clock.slept)) == (14, 2, 1)
    else:
        assert isinstance(result, ErrorStepResult)
        assert (result.code, result.retryable, result.usage.prompt_tokens) == ("server_error", True, 7)
        assert "MALFORMED_FUNCTION_CALL" in result.error


async def test_plain_reasoning_goes_back_to_a_provider_that_wants_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve("fine")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "test")
    history: list[AnyMessage] = [
        SystemMessage(content="s"),
        UserMessage(content="u"),
        AssistantMessage(
            thinking=[ThinkingContent(text="because")], tool_calls=[ToolCallRequest(id="c", name="add", arguments={})]
        ),
        ToolResultMessage(tool_call_id="c", tool_name="add", content="1"),
    ]
    options = {"api_base": server.base_url}
    await LiteLLMAdapter().generate_step(
        request(history, model="deepseek/deepseek-reasoner", tools=[tool()], provider_options=options)
    )
    assert server.requests[0].json["messages"][2]["reasoning_content"] == "because"


@pytest.mark.parametrize("encode", [json.dumps, dict], ids=["text", "object"])
async def test_calls_that_all_claim_index_zero_are_told_apart_by_their_ids(encode: Callable[[Any], Any]) -> None:
    """Some OpenAI-compatible servers number every call 0 and send each in one piece, even with its arguments as an
    object."""
    if encode is dict and LiteLLMAdapter is not ModelAdapter:
        pytest.skip("litellm drops such a call")

    async def answer(request: RecordedRequest, responder: Responder) -> None:
        await responder.start(200, {"content-type": "text/event-stream"})
        for number in (1, 2):
            function = {"name": "add", "arguments": encode({"n": number})}
            delta = {"tool_calls": [{"index": 0, "id": f"id-{number}", "type": "function", "function": function}]}
            await responder.send(openai_event(delta))
        await responder.send(openai_event({}, "tool_calls"))
        await responder.end()

    with LoopbackServer(answer) as server:
        options = {"api_base": server.origin, "api_key": "test"}
        result = await LiteLLMAdapter().generate_step(request(tools=[tool()], provider_options=options))
    assert isinstance(result, ToolCallsStepResult)
    assert [(call.id, call.arguments) for call in result.tool_calls] == [("id-1", {"n": 1}), ("id-2", {"n": 2})]
