"""`LiteLLMAdapter` over real HTTP on loopback: the error for each failure, retries, fallbacks, and timeouts."""

from __future__ import annotations

import asyncio
import json
from email.utils import formatdate
from typing import Any

import pytest
from tests import support_litellm
from tests.support_litellm import CLAUDE, MODEL, FakeClock, Heard, Serve, openai_event, request

from helix.adapters.models.litellm import LiteLLMAdapter
from helix.core.steps import ErrorStepResult, StopReason, TextStepResult
from helix.core.usage import Usage
from helix.ports.model import LLMStreamCallbacks
from helix.testing.loopback_server import LoopbackServer, RecordedRequest, Responder
from helix.testing.openai_server import CutAfter, HttpFailure, ModelAnswer, ScriptedResponse, StallAfter

serve = support_litellm.serve
clock = support_litellm.clock
heard = support_litellm.heard


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "code", "retryable"),
    [
        (HttpFailure(status=429), "rate_limited", True),
        (HttpFailure(status=408), "timeout", True),
        (HttpFailure(status=409), "server_error", True),
        (HttpFailure(status=500), "server_error", True),
        (HttpFailure(status=503), "server_error", True),
        (HttpFailure(status=529), "server_error", True),
        (HttpFailure(status=400), "bad_request", False),
        (HttpFailure(status=422), "bad_request", False),
        (HttpFailure(status=401, code="invalid_api_key"), "authentication", False),
        (HttpFailure(status=403), "permission_denied", False),
        (HttpFailure(status=404, code="model_not_found"), "model_not_found", False),
        (HttpFailure(status=429, code="insufficient_quota"), "insufficient_quota", False),
        (
            HttpFailure(status=400, code="context_length_exceeded", message="maximum context length is 100 tokens"),
            "context_too_long",
            False,
        ),
        (HttpFailure(status=400, code="content_policy_violation"), "content_filter", False),
        (ModelAnswer(text="so far", fault=CutAfter(1)), "connection_error", True),
        (ModelAnswer(text="so far", fault=CutAfter(0)), "connection_error", True),
        (ModelAnswer(text="so far", fault=CutAfter(1, clean=True)), "connection_error", True),
        (ModelAnswer(text="so far", finish_reason="error"), "server_error", True),
    ],
    ids=str,
)
async def test_every_failure_has_one_code(
    serve: Serve, heard: Heard, failure: ScriptedResponse, code: str, retryable: bool
) -> None:
    server = serve(failure)
    result = await LiteLLMAdapter().generate_step(request(max_retries=0, callbacks=heard.callbacks()))
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable) == (code, retryable)
    assert (result.stop_reason, result.should_stop, result.model) == (StopReason.ERROR, True, MODEL)
    assert repr(MODEL) in result.error
    assert "litellm" not in result.error
    assert len(server.requests) == 1, "litellm and the SDK must not retry by themselves"
    assert [(error.code, error.retryable) for error in heard.errors] == [(code, retryable)]


@pytest.mark.parametrize("shown", [False, True])
async def test_the_providers_own_words_are_in_the_message_if_content_is_shown(
    serve: Serve, heard: Heard, monkeypatch: pytest.MonkeyPatch, shown: bool
) -> None:
    monkeypatch.setenv("HELIX_LOG_CONTENT", "1" if shown else "")
    serve(HttpFailure(status=400, message="temperature must be a number."))
    result = await LiteLLMAdapter().generate_step(request(callbacks=heard.callbacks()))
    assert isinstance(result, ErrorStepResult)
    for text in (result.error, str(heard.errors[0])):
        assert ("bad_request: temperature must be a number;" in text) is shown
        assert ("temperature" in text) is shown and "correct the request" in text


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ({"code": "rate_limit_exceeded", "type": "tokens"}, "rate_limited", True),
        ({"code": None, "type": "invalid_request_error"}, "bad_request", False),
        ({"code": "server_error", "type": "server_error"}, "server_error", True),
    ],
)
async def test_an_error_told_within_the_stream(
    monkeypatch: pytest.MonkeyPatch, error: dict[str, Any], code: str, retryable: bool
) -> None:
    async def answer(request: RecordedRequest, responder: Responder) -> None:
        await responder.start(200, {"content-type": "text/event-stream"})
        await responder.send(f"data: {json.dumps({'error': {'message': 'its words', **error}})}\n\n".encode())
        await responder.end()

    with LoopbackServer(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.origin)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        monkeypatch.setenv("HELIX_LOG_CONTENT", "1")
        result = await LiteLLMAdapter().generate_step(request(max_retries=0))
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable) == (code, retryable)
    assert "its words" in result.error


async def test_nobody_listening_is_a_connection_error(serve: Serve) -> None:
    serve().stop()
    result = await LiteLLMAdapter().generate_step(request(max_retries=0))
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable) == ("connection_error", True)


@pytest.mark.parametrize("model", [MODEL, CLAUDE])
async def test_a_missing_key_is_final(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    result = await LiteLLMAdapter().generate_step(request(model=model))
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable) == ("authentication", False)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("nobody-sells-this", "does not name a provider; write <provider>/<model>, such as openai/gpt-4o-mini"),
        ("opnai/gpt-4o", "'opnai' is not a provider that Helix or litellm knows; did you mean 'openai/gpt-4o'?"),
    ],
)
@pytest.mark.parametrize("shown", ["0", "1"])
async def test_an_unknown_provider_is_final(
    model: str, problem: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is in Helix's words with every setting, because litellm's error is about its own functions."""
    monkeypatch.setenv("HELIX_LOG_CONTENT", shown)
    result = await LiteLLMAdapter().generate_step(request(model=model))
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable) == ("model_not_found", False)
    assert repr(model) in result.error and problem in result.error and "litellm.ai" not in result.error


async def test_messages_never_hold_a_key(serve: Serve, monkeypatch: pytest.MonkeyPatch, heard: Heard) -> None:
    leaks = "env-key-12345678 hunter2-hunter2 sk-proj-abcdefghijkl Bearer abc.def.ghi"
    serve(HttpFailure(status=401, message=f"Incorrect API key provided: {leaks}"))
    monkeypatch.setenv("OPENAI_API_KEY", "env-key-12345678")
    monkeypatch.setenv("HELIX_LOG_CONTENT", "1")
    options = {"api_key": "hunter2-hunter2"}
    result = await LiteLLMAdapter().generate_step(request(provider_options=options, callbacks=heard.callbacks()))
    assert isinstance(result, ErrorStepResult)
    for text in (result.error, str(heard.errors[0])):
        assert "Incorrect API key provided" in text
        for leak in ("env-key", "hunter2", "abcdefghijkl", "abc.def"):
            assert leak not in text


# --- retries, fallbacks, time ----------------------------------------------------------------------------------------


async def test_retries_wait_longer_each_time_and_tell_before_each_repeat(
    serve: Serve, clock: FakeClock, heard: Heard
) -> None:
    cut = ModelAnswer(text="half an answer", delta_length=4, fault=CutAfter(1))
    server = serve(HttpFailure(status=500), cut, HttpFailure(status=429), "whole")
    result = await LiteLLMAdapter(clock=clock).generate_step(request(callbacks=heard.callbacks()))
    assert isinstance(result, TextStepResult)
    assert result.content == "whole"
    assert all(0 < slept <= most for slept, most in zip(clock.slept, [1, 2, 4], strict=True))
    assert len(server.requests) == 4
    # an error takes back the partial text of the second attempt before the next text comes
    assert heard.kinds == ["error", "text", "error", "text"]
    assert [error.code for error in heard.errors] == ["server_error", "connection_error", "rate_limited"]


async def test_max_retries_counts_repeats(serve: Serve, clock: FakeClock, heard: Heard) -> None:
    server = serve(*[HttpFailure(status=500)] * 5)
    result = await LiteLLMAdapter(clock=clock).generate_step(request(max_retries=2, callbacks=heard.callbacks()))
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable) == ("server_error", True)
    assert len(server.requests) == 3
    assert len(heard.errors) == 3


async def test_a_final_failure_is_not_repeated(serve: Serve, clock: FakeClock) -> None:
    server = serve(HttpFailure(status=400), "never asked for")
    await LiteLLMAdapter(clock=clock).generate_step(request())
    assert (len(server.requests), clock.slept) == (1, [])


async def test_retry_after_is_honoured(serve: Serve, clock: FakeClock) -> None:
    serve(HttpFailure(status=429, retry_after_s=17), HttpFailure(status=503, retry_after_s=0.5), "fine")
    result = await LiteLLMAdapter(clock=clock).generate_step(request())
    assert isinstance(result, TextStepResult)
    assert all(0 < slept - asked <= most for slept, asked, most in zip(clock.slept, [17, 0.5], [1, 2], strict=True))


async def test_retry_after_may_be_a_date(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    answers = [{"retry-after": formatdate(clock.now() + 9, usegmt=True)}, {"retry-after-ms": "1500"}, {}]

    async def refuse(request: RecordedRequest, responder: Responder) -> None:
        await responder.send_json(429, {"error": {"message": "slow down"}}, answers.pop(0))

    with LoopbackServer(refuse) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.origin)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        await LiteLLMAdapter(clock=clock).generate_step(request(max_retries=2))
    assert all(0 < slept - asked <= most for slept, asked, most in zip(clock.slept, [9, 1.5], [1, 2], strict=True))


async def test_a_retry_after_that_is_too_long_is_left_to_the_caller(serve: Serve, clock: FakeClock) -> None:
    server = serve(HttpFailure(status=429, retry_after_s=3600))
    result = await LiteLLMAdapter(clock=clock).generate_step(request())
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable, result.retry_after_s) == ("rate_limited", True, 3600)
    assert (len(server.requests), clock.slept) == (1, [])


async def test_a_pause_beyond_the_deadline_is_not_begun(serve: Serve, clock: FakeClock) -> None:
    serve(HttpFailure(status=429, retry_after_s=30))
    result = await LiteLLMAdapter(clock=clock).generate_step(request(deadline_s=20))
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable, result.retry_after_s) == ("rate_limited", True, 30)
    assert clock.slept == []


async def test_fallbacks_answer_in_order(serve: Serve, clock: FakeClock, heard: Heard) -> None:
    server = serve(HttpFailure(status=401), HttpFailure(status=500), HttpFailure(status=500), "third time lucky")
    result = await LiteLLMAdapter(clock=clock).generate_step(
        request(fallbacks=["openai/gpt-4o", "openai/gpt-4.1"], max_retries=1, callbacks=heard.callbacks())
    )
    assert isinstance(result, TextStepResult)
    assert result.model == "openai/gpt-4.1"
    assert [r.json["model"] for r in server.requests] == ["gpt-4o-mini", "gpt-4o", "gpt-4o", "gpt-4.1"]
    assert [error.code for error in heard.errors] == ["authentication", "server_error", "server_error"]


async def test_when_all_models_fail_the_one_that_may_recover_speaks(serve: Serve, clock: FakeClock) -> None:
    serve(HttpFailure(status=401), HttpFailure(status=429), HttpFailure(status=404))
    models = ["openai/gpt-4o", "openai/gpt-4.1"]
    result = await LiteLLMAdapter(clock=clock).generate_step(request(fallbacks=models, max_retries=0))
    assert isinstance(result, ErrorStepResult)
    assert (result.model, result.code, result.retryable) == ("openai/gpt-4o", "rate_limited", True)
    assert "'openai/gpt-4o-mini' (authentication), 'openai/gpt-4.1' (model_not_found)" in result.error


async def test_a_refusal_or_a_cut_answer_is_an_answer_and_asks_no_fallback(serve: Serve) -> None:
    server = serve(ModelAnswer(refusal="no"), "never asked for")
    result = await LiteLLMAdapter().generate_step(request(fallbacks=["openai/gpt-4o"]))
    assert isinstance(result, ErrorStepResult)
    assert (result.code, len(server.requests)) == ("refusal", 1)


async def test_a_stall_between_chunks_ends_the_attempt(serve: Serve, clock: FakeClock, heard: Heard) -> None:
    server = serve(ModelAnswer(text="half an answer", fault=StallAfter(1, 60)), "whole")
    result = await LiteLLMAdapter(clock=clock).generate_step(request(stall_timeout_s=0.2, callbacks=heard.callbacks()))
    assert isinstance(result, TextStepResult)
    assert result.content == "whole"
    assert [error.code for error in heard.errors] == ["stalled"]
    assert "stall_timeout_s" in str(heard.errors[0])
    assert await asyncio.to_thread(server.requests[0].disconnected.wait, 10)


async def test_a_stall_after_the_finish_loses_only_the_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never_done(request: RecordedRequest, responder: Responder) -> None:
        await responder.start(200, {"content-type": "text/event-stream"})
        await responder.send(openai_event({"content": "all of it"}))
        await responder.send(openai_event({}, "stop"))
        await asyncio.sleep(60)

    with LoopbackServer(never_done) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.origin)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        result = await LiteLLMAdapter().generate_step(request(stall_timeout_s=0.2))
    assert isinstance(result, TextStepResult)
    assert (result.content, result.usage) == ("all of it", Usage(calls=1, unknown_calls=1, priced=False))


async def test_the_time_before_the_first_chunk_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(request: RecordedRequest, responder: Responder) -> None:
        await responder.start(200, {"content-type": "text/event-stream"})
        await asyncio.sleep(0.4)
        await responder.send(openai_event({"content": "thought about it"}))
        await responder.send(openai_event({}, "stop"))
        await responder.end()

    with LoopbackServer(slow) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.origin)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        result = await LiteLLMAdapter().generate_step(request(stall_timeout_s=0.1, max_retries=0))
    assert isinstance(result, TextStepResult)


SLOW_DRIP = ModelAnswer(text="x" * 400, delta_length=1, delay_s=0.05)


@pytest.mark.parametrize("slow", [None, ModelAnswer(text="abc", fault=StallAfter(1, 60)), SLOW_DRIP])
async def test_an_attempt_has_a_time_limit(
    serve: Serve, clock: FakeClock, heard: Heard, slow: ModelAnswer | None
) -> None:
    """The limit also ends a stream that never stalls and never ends."""

    async def never(body: dict[str, Any]) -> str:
        await asyncio.sleep(60)
        return "too late"

    server = serve(slow or never, "whole")
    result = await LiteLLMAdapter(clock=clock).generate_step(request(timeout_s=0.5, callbacks=heard.callbacks()))
    assert isinstance(result, TextStepResult)
    assert result.content == "whole"
    assert [error.code for error in heard.errors] == ["timeout"]
    assert await asyncio.to_thread(server.requests[0].disconnected.wait, 10)


async def test_the_deadline_ends_everything_with_a_retryable_error(serve: Serve, heard: Heard) -> None:
    server = serve(ModelAnswer(text="half an answer", fault=StallAfter(1, 60)))
    result = await LiteLLMAdapter().generate_step(request(deadline_s=0.5, callbacks=heard.callbacks()))
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable, result.model) == ("deadline_exceeded", True, MODEL)
    assert [error.code for error in heard.errors] == ["deadline_exceeded"]
    assert await asyncio.to_thread(server.requests[0].disconnected.wait, 10)


@pytest.mark.parametrize("deltas", [None, 1])
async def test_cancelling_the_task_closes_the_connection(serve: Serve, deltas: int | None) -> None:
    arrived = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def never(body: dict[str, Any]) -> ScriptedResponse:
        if deltas is None:
            loop.call_soon_threadsafe(arrived.set)
            await asyncio.sleep(60)
        return ModelAnswer(text="half an answer", fault=StallAfter(1, 60))

    server = serve(never)
    callbacks = LLMStreamCallbacks(on_text_delta=lambda delta: arrived.set())
    task = asyncio.create_task(LiteLLMAdapter().generate_step(request(callbacks=callbacks)))
    await asyncio.wait_for(arrived.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(server.requests[0].disconnected.wait, 10)


async def test_cancelling_while_a_callback_is_busy_closes_the_connection(serve: Serve) -> None:
    """The stream is not being read at that time, so only the adapter can close it."""
    server = serve(ModelAnswer(text="half an answer", fault=StallAfter(1, 60)))
    arrived = asyncio.Event()

    async def busy(delta: str) -> None:
        arrived.set()
        await asyncio.sleep(60)

    adapter = LiteLLMAdapter()
    task = asyncio.create_task(adapter.generate_step(request(callbacks=LLMStreamCallbacks(on_text_delta=busy))))
    await asyncio.wait_for(arrived.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert await asyncio.to_thread(server.requests[0].disconnected.wait, 10), caught
