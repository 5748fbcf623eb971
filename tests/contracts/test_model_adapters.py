"""Contract of `LLMAdapter`, with the same cases for every provider, through its own package and through litellm.

It covers callbacks, results, costs, and the error code of each failure.
"""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import replace
from functools import cache

import pytest
from tests import support_litellm
from tests.support import model_ways
from tests.support.model_dialects import (
    ANTHROPIC,
    BEDROCK,
    CUT,
    OPENAI,
    STALL,
    Breaks,
    Entry,
    Fails,
    Packed,
    Says,
)
from tests.support.model_ways import Way, ask
from tests.support.responses_dialect import RESPONSES
from tests.support_litellm import FakeClock, Heard, tool

from helix.adapters.models.adapter import ModelAdapter
from helix.adapters.models.decompression import FREE, PIECE
from helix.core.json import dumps, loads
from helix.core.messages import AssistantMessage, ThinkingContent, ToolCallRequest, ToolResultMessage, UserMessage
from helix.core.steps import ErrorStepResult, StopReason, TextStepResult, ToolCallsStepResult
from helix.ports.model import LLMStreamCallbacks

way = model_ways.way
clock = support_litellm.clock
heard = support_litellm.heard


async def test_text_is_heard_as_it_comes(way: Way, heard: Heard) -> None:
    result = await ask(way, Says("hello wonderful", stop="end_turn", size=6), callbacks=heard.callbacks())
    assert isinstance(result, TextStepResult)
    assert (result.content, result.stop_reason, result.should_stop) == ("hello wonderful", StopReason.END_TURN, True)
    assert result.model == way.dialect.model
    assert heard.events == [("text", "hello "), ("text", "wonder"), ("text", "ful")]


async def test_the_first_piece_is_heard_while_the_rest_is_not_written_yet(way: Way) -> None:
    first = asyncio.Event()
    way.start(Says("one two", stop="end_turn", fault=STALL, after=4))
    asked = way.request(callbacks=LLMStreamCallbacks(on_text_delta=lambda text: first.set()))
    running = asyncio.create_task(ModelAdapter().generate_step(asked))
    await asyncio.wait_for(first.wait(), 30)
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(way.servers[0].requests[0].disconnected.wait, 10), "its connection is closed"


async def test_parallel_calls_come_in_fragments(way: Way, heard: Heard) -> None:
    calls = (
        ("id-1", "add", '{"a": 1, "why": "a rather long text"}'),
        ("id-2", "subagent__writer", '{"topic": "rain"}'),
        ("id-3", "add", ""),
    )
    said = Says("calling", calls=calls, stop="tool_use")
    result = await ask(way, said, tools=[tool(), tool("subagent__writer")], callbacks=heard.callbacks())
    assert isinstance(result, ToolCallsStepResult)
    assert (result.content, result.stop_reason) == ("calling", StopReason.TOOL_USE)
    assert [(call.id, call.name, call.arguments) for call in result.tool_calls] == [
        ("id-1", "add", {"a": 1, "why": "a rather long text"}),
        ("id-3", "add", {}),
    ]
    assert [(c.id, c.agent_type, c.input) for c in result.sub_agent_calls] == [("id-2", "writer", {"topic": "rain"})]
    assert result.order == ["id-1", "id-2", "id-3"]
    assert [event[1].id for event in heard.events if event[0] == "call"] == result.order
    assert heard.kinds == ["text", "call"]


async def test_arguments_that_are_no_json_object_are_malformed(way: Way) -> None:
    calls = (("id-1", "add", '{"a": 1'), ("id-2", "add", '{"a": 2}'))
    result = await ask(way, Says(calls=calls, stop="tool_use"), tools=[tool()])
    assert isinstance(result, ToolCallsStepResult)
    assert [(c.malformed, c.arguments) for c in result.tool_calls] == [('{"a": 1', {}), (None, {"a": 2})]


async def test_reasoning_keeps_its_signatures(way: Way, heard: Heard) -> None:
    said = Says("so", thoughts=(("first thought", "SIG-1"),), redacted="ENCRYPTED", stop="end_turn", size=7)
    result = await ask(way, said, callbacks=heard.callbacks())
    signed = [ThinkingContent(text="first thought", signature="SIG-1"), _redacted(way, "ENCRYPTED")]
    if way.dialect is RESPONSES:
        signed = [
            ThinkingContent(text="first thought", signature="SIG-1", id="rs_0"),
            ThinkingContent(signature="ENCRYPTED", id="rs_1"),
        ]
    assert result.thinking == (signed if way.dialect.signs else [ThinkingContent(text="first thought")])
    assert heard.events == [
        ("thinking", "first t", False),
        ("thinking", "hought", False),
        ("thinking", "first thought", True),
        ("text", "so"),
    ]


def _redacted(way: Way, data: str) -> ThinkingContent:
    """Return redacted thinking. Bedrock's is binary and is stored as base64."""
    return ThinkingContent(redacted="RU5DUllQVEVE" if way.dialect is BEDROCK else data)


@pytest.mark.parametrize("written", [0, 60])
async def test_usage_and_cost_count_what_the_cache_gave(way: Way, written: int) -> None:
    usage = (await ask(way, Says("ok", stop="end_turn", usage=(20, 100, written, 40)))).usage
    reports_written = way.dialect is not OPENAI  # OpenAI does not bill cache writes
    prompt = 120 + (written if reports_written else 0)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (prompt, 40, 100)
    assert (usage.calls, usage.unknown_calls, usage.priced) == (1, 0, True)
    # dollars per million tokens: uncached input, cache reads, cache writes, output
    fresh, read, write, output = {
        "openai": (0.15, 0.075, 0, 0.6),
        "anthropic": (3, 0.3, 3.75, 15),
        "bedrock": (3.3, 0.33, 4.125, 16.5),
        "responses": (4, 0.4, 5, 20),
    }[way.dialect.name]
    assert usage.cost_micros == round(20 * fresh + 100 * read + written * write + 40 * output)


async def test_usage_that_is_not_reported_is_estimated_and_said_to_be_unknown(way: Way) -> None:
    usage = (await ask(way, Says("some words of an answer", stop="end_turn", usage=None))).usage
    assert (usage.calls, usage.unknown_calls) == (1, 1)
    if (
        way.adapter == "native" or way.dialect is not ANTHROPIC
    ):  # litellm reads it as 0, because Anthropic always reports usage
        assert usage.completion_tokens > 0 and usage.prompt_tokens > 0


@pytest.mark.parametrize(
    ("stop", "code", "reason"),
    [
        ("max_tokens", "max_tokens", StopReason.MAX_TOKENS),
        ("refusal", {"anthropic": "refusal", "responses": "refusal"}, None),
    ],
)
async def test_a_refusal_and_a_cut_answer_are_errors(
    way: Way, stop: str, code: str | dict[str, str], reason: StopReason | None
) -> None:
    result = await ask(way, Says("so", calls=(("id-1", "add", '{"a'),), stop=stop), tools=[tool()])
    wanted = code if isinstance(code, str) else code.get(way.dialect.name, "content_filter")
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable, str(result.stop_reason)) == (wanted, False, wanted)
    assert reason is None or result.stop_reason is reason
    assert result.usage.completion_tokens == 40, "the call is paid"


@pytest.mark.parametrize(
    ("failure", "code", "retryable"),
    [
        (Fails(429, "rate_limit_error", "ThrottlingException"), "rate_limited", True),
        (Fails(500, "api_error", "InternalServerException"), "server_error", True),
        (Fails(503, "api_error", "ServiceUnavailableException"), "server_error", True),
        (Fails(408, "timeout_error", "ModelTimeoutException"), "timeout", True),
        (Fails(400, "invalid_request_error", "ValidationException"), "bad_request", False),
        (Fails(403, "permission_error", "AccessDeniedException"), "permission_denied", False),
        (Fails(404, "not_found_error", "ResourceNotFoundException"), "model_not_found", False),
        (Says("so far", stop="end_turn", size=3, fault=CUT, after=3), "connection_error", True),
        (Says("so far", fault=CUT, after=0), "connection_error", True),
        (Says("so far", stop=None), "connection_error", True),
    ],
    ids=str,
)
async def test_every_failure_has_one_code(way: Way, heard: Heard, failure: Entry, code: str, retryable: bool) -> None:
    result = await ask(way, failure, max_retries=0, callbacks=heard.callbacks())
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable, result.stop_reason) == (code, retryable, StopReason.ERROR)
    assert way.dialect.model in result.error and "litellm" not in result.error
    assert len(way.servers[0].requests) == 1, "no package retries by itself"
    assert [(error.code, error.retryable) for error in heard.errors] == [(code, retryable)]


async def test_a_connection_lost_after_the_answer_was_complete_loses_only_its_usage(way: Way) -> None:
    """The answer is complete, and another attempt would pay for it twice."""
    said = Says("all of it", stop="end_turn", fault=CUT)
    events = [*way.dialect.say(said)]
    ends = (b'end_turn"', b'"stop"', b"response.completed")
    stop = next(number for number, event in enumerate(events) if any(end in event for end in ends))
    result = await ask(way, replace(said, after=stop + 1), max_retries=1)
    assert isinstance(result, TextStepResult)
    assert (result.content, result.stop_reason) == ("all of it", StopReason.END_TURN)
    assert len(way.servers[0].requests) == 1


OF_EVENTS = (OPENAI, RESPONSES, ANTHROPIC)
BROKEN = {
    "cut JSON": b'event: content_block_delta\ndata: {"type": "content_block_delta", "choices": [{"del\n\n',
    "no JSON": b"event: content_block_delta\ndata: <html>\n\n",
    "no text": b"event: content_block_delta\ndata: \xff\xfe\n\n",
}
MISSHAPEN = {
    "no object": b"event: content_block_delta\ndata: 5\n\n",
    "empty parts": b"event: content_block_delta\n"
    b'data: {"type": "content_block_delta", "delta": null, "choices": [null]}\n\n',
}


@pytest.mark.parametrize("noise", [*BROKEN, *MISSHAPEN])
async def test_an_event_that_cannot_be_read_breaks_the_stream_off(way: Way, clock: FakeClock, noise: str) -> None:
    """The attempt is repeated as after a lost connection."""
    litellms = way.dialect in (RESPONSES, ANTHROPIC) or noise in MISSHAPEN  # litellm skips events that it cannot read
    if way.dialect not in OF_EVENTS or (way.adapter == "litellm" and litellms):
        pytest.skip("of server-sent events that this adapter reads itself")
    event = (BROKEN | MISSHAPEN)[noise]
    if way.dialect is RESPONSES:
        event = event.replace(b"content_block_delta", b"response.output_text.delta").replace(b'"delta": null, ', b"")
    broken = Says("so far", stop="end_turn", noise=event, after=3)
    result = await ask(way, broken, Says("fine", stop="end_turn"), clock=clock)
    assert isinstance(result, TextStepResult), result
    assert result.content == "fine" and [0 <= pause <= 1 for pause in clock.slept] == [True]  # full jitter
    result = await ask(way, broken, max_retries=0)
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable) == ("connection_error", True)


@pytest.mark.parametrize("noise", [b"event: ping\n\n", b"id: 7\n\n", b"retry: 3\n\n", b"data:\n\n", b": hi\n\n"])
async def test_an_event_without_data_is_skipped(way: Way, noise: bytes) -> None:
    if way.dialect not in OF_EVENTS or way.adapter == "litellm":
        pytest.skip("of server-sent events that this adapter reads itself")
    result = await ask(way, Says("all of it", stop="end_turn", noise=noise, after=2), max_retries=0)
    assert isinstance(result, TextStepResult), result
    assert (result.content, result.usage.calls) == ("all of it", 1)


def packed(text: bytes, bits: int = zlib.MAX_WBITS | 16) -> bytes:
    packer = zlib.compressobj(wbits=bits)
    return packer.compress(text) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "bits"),
    [("gzip", zlib.MAX_WBITS | 16), ("deflate", zlib.MAX_WBITS), ("deflate", -zlib.MAX_WBITS), ("identity", None)],
)
async def test_a_compressed_answer_is_read(way: Way, encoding: str, bits: int | None) -> None:
    if way.dialect not in OF_EVENTS:
        pytest.skip("boto3 does not unpack")
    body = b"".join(way.dialect.say(Says("all of it, " * 500, stop="end_turn")))
    result = await ask(way, Packed(body if bits is None else packed(body, bits), encoding), max_retries=0)
    assert isinstance(result, TextStepResult), result
    assert result.content == "all of it, " * 500


@cache
def a_hundred_megabytes() -> bytes:
    packer, block = zlib.compressobj(wbits=zlib.MAX_WBITS | 16), bytes(2**20)
    return b"".join([*(packer.compress(block) for _ in range(100)), packer.flush()])


@pytest.mark.parametrize("status", [200, 400])
async def test_an_answer_that_is_compressed_too_far_is_refused_and_others_go_on(way: Way, status: int) -> None:
    """A body of 100 KB unpacks to 100 MB, as one event or as an error's body. Unpacking once blocked the event loop for
    seconds."""
    if way.dialect not in OF_EVENTS or way.adapter == "litellm":
        pytest.skip("of a package whose connections are Helix's")
    ticks, ended = 0, asyncio.Event()

    async def tick() -> None:
        nonlocal ticks
        while not ended.is_set():
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.create_task(tick())
    result = await ask(way, Packed(a_hundred_megabytes(), status=status), max_retries=0)
    ended.set()
    await ticking
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable) == ("model_error", False)
    assert "compressed more than 100 times" in result.error
    assert ticks > FREE // PIECE, "other tasks run between the pieces"


@pytest.mark.parametrize("shown", [False, True])
async def test_the_providers_words_are_shown_if_content_is(
    way: Way, monkeypatch: pytest.MonkeyPatch, shown: bool
) -> None:
    monkeypatch.setenv("HELIX_LOG_CONTENT", "1" if shown else "")
    result = await ask(way, Fails(400, "invalid_request_error", "ValidationException", "temperature must be a number."))
    assert isinstance(result, ErrorStepResult)
    assert ("temperature must be a number" in result.error) is shown


async def test_a_prompt_that_is_too_long_is_told_apart(way: Way) -> None:
    words = "prompt is too long: 208310 tokens > 200000 maximum"
    result = await ask(way, Fails(400, "too_long", "ValidationException", words))
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable) == ("context_too_long", False)


async def test_an_error_within_the_stream_may_pass(way: Way, clock: FakeClock, heard: Heard) -> None:
    broken = Breaks("overloaded_error", "serviceUnavailableException")
    result = await ask(way, broken, Says("fine", stop="end_turn"), clock=clock, callbacks=heard.callbacks())
    assert isinstance(result, TextStepResult)
    assert (result.content, [error.code for error in heard.errors]) == ("fine", ["server_error"])
    assert [0 <= pause <= 1 for pause in clock.slept] == [True]
    assert (result.usage.calls, result.usage.unknown_calls) == (2, 1)


async def test_throttling_waits_as_long_as_it_is_told(way: Way, clock: FakeClock) -> None:
    busy = Fails(429, "rate_limit_error", "ThrottlingException", headers={"retry-after": "7"})
    result = await ask(way, busy, Says("fine", stop="end_turn"), clock=clock)
    assert isinstance(result, TextStepResult)
    assert [7 <= pause <= 8 for pause in clock.slept] == [True]  # Retry-After, and a part of a second
    assert result.usage.unknown_calls == 0, "a refused request is not billed"


async def test_silence_within_the_stream_is_a_stall(way: Way) -> None:
    result = await ask(
        way, Says("so far", stop="end_turn", size=3, fault=STALL, after=3), max_retries=0, stall_timeout_s=0.3
    )
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable) == ("stalled", True)
    assert await asyncio.to_thread(way.servers[0].requests[0].disconnected.wait, 10)


async def test_an_attempt_and_the_whole_have_a_deadline(way: Way) -> None:
    """The provider accepts the request but sends nothing."""
    slow = Says("so far", fault=STALL, after=0)
    server, adapter = way.start(Says("fine", stop="end_turn"), slow, slow), ModelAdapter()
    await adapter.generate_step(way.request())  # imports the package and makes its client before times are measured
    late = await adapter.generate_step(way.request(max_retries=0, timeout_s=0.5))
    assert isinstance(late, ErrorStepResult)
    assert (late.code, late.retryable) == ("timeout", True)
    ended = await adapter.generate_step(way.request(deadline_s=0.5))
    assert isinstance(ended, ErrorStepResult)
    assert (ended.code, ended.retryable) == ("deadline_exceeded", True)
    for asked in server.requests[1:]:
        assert await asyncio.to_thread(asked.disconnected.wait, 10)


async def test_cancelling_while_a_callback_is_busy_closes_the_connection(way: Way) -> None:
    arrived = asyncio.Event()

    async def busy(text: str) -> None:
        arrived.set()
        await asyncio.sleep(60)

    way.start(Says("half an answer", stop="end_turn", fault=STALL, after=4))
    asked = way.request(callbacks=LLMStreamCallbacks(on_text_delta=busy))
    running = asyncio.create_task(ModelAdapter().generate_step(asked))
    await asyncio.wait_for(arrived.wait(), 30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(way.servers[0].requests[0].disconnected.wait, 10)


async def test_nobody_listening_is_a_connection_error(way: Way) -> None:
    way.start()
    asked = way.request(max_retries=0)
    way.servers[0].stop()
    result = await ModelAdapter().generate_step(asked)
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable, result.usage.unknown_calls) == ("connection_error", True, 0)


async def test_calls_run_side_by_side(way: Way) -> None:
    way.start(*[Says(f"answer {n}", stop="end_turn", size=3) for n in range(12)])
    adapter, asked = ModelAdapter(), way.request()
    results = await asyncio.gather(*(adapter.generate_step(asked) for _ in range(12)))
    texts = {result.content for result in results if isinstance(result, TextStepResult)}
    assert texts == {f"answer {n}" for n in range(12)}


async def test_a_history_with_calls_is_taken_without_tools(way: Way) -> None:
    """After a handoff, an agent without tools continues a conversation with calls. Claude and Bedrock require tools."""
    used = ToolCallRequest(id="c1", name="transfer_to_billing", arguments={})
    asked = AssistantMessage(content="", tool_calls=[used])
    result = ToolResultMessage(tool_call_id="c1", tool_name=used.name, content="done")
    way.start(Says("fine", stop="end_turn"))
    request = replace(way.request(), messages=[UserMessage(content="hello"), asked, result])
    answer = await ModelAdapter().generate_step(request)
    assert isinstance(answer, TextStepResult) and answer.content == "fine", answer
    body = loads(way.servers[0].requests[0].body.decode())
    requires = way.dialect in (ANTHROPIC, BEDROCK)
    assert ("transfer_to_billing" in dumps(body.get("tools") or body.get("toolConfig"))) is requires


@pytest.mark.parametrize(("verbosity", "words"), [("low", "Keep your answers short"), ("high", "Answer at length")])
async def test_how_long_answers_are_is_a_setting_or_a_sentence(way: Way, verbosity: str, words: str) -> None:
    await ask(way, Says("fine", stop="end_turn"), verbosity=verbosity)
    body = way.servers[0].requests[0].body.decode()
    assert (words in body) is (way.dialect is not RESPONSES)
    assert ("verbosity" in body) is (way.dialect is RESPONSES)
