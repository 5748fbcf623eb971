"""`OpenAIServer` as its users see it: a script, a reactive model, and its end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests import support_litellm
from tests.support_litellm import CALL, Serve, request, tool

from helix.adapters.models.adapter import ModelAdapter
from helix.adapters.models.litellm import LiteLLMAdapter
from helix.core.steps import ErrorStepResult, ToolCallsStepResult
from helix.testing.openai_server import CutAfter, ModelAnswer, ModelToolCall, OpenAIServer, ScriptedResponse

serve = support_litellm.serve


# --- the server itself -----------------------------------------------------------------------------------------------


async def test_an_exhausted_script_says_so(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIX_LOG_CONTENT", "1")
    serve("one")
    adapter = LiteLLMAdapter()
    await adapter.generate_step(request())
    result = await adapter.generate_step(request(max_retries=0))
    assert isinstance(result, ErrorStepResult)
    assert "script exhausted after 1 responses" in result.error


def _post(server: OpenAIServer, body: dict[str, Any]) -> dict[str, Any]:
    import httpx

    response = httpx.post(f"{server.base_url}/chat/completions", json=body, trust_env=False)
    return {"status": response.status_code, **response.json()}


def test_the_server_answers_without_streaming_and_reacts_to_requests() -> None:
    def model(body: dict[str, Any]) -> ScriptedResponse:
        if body["messages"][-1]["content"] == "fail":
            raise ValueError("my test is wrong")
        return ModelAnswer(text="echo " + body["messages"][-1]["content"], tool_calls=CALL.tool_calls)

    with OpenAIServer(model) as server:
        said = _post(server, {"model": "m", "messages": [{"role": "user", "content": "hi"}]})
        failed = _post(server, {"model": "m", "messages": [{"role": "user", "content": "fail"}]})
    message = said["choices"][0]["message"]
    assert (said["status"], message["content"], said["choices"][0]["finish_reason"]) == (200, "echo hi", "tool_calls")
    assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1, "b": 2}'}
    assert said["usage"]["total_tokens"] == 15
    assert failed["status"] == 500
    assert "my test is wrong" in failed["error"]["message"]
    assert [r.path for r in server.requests] == ["/v1/chat/completions"] * 2


def test_a_script_entry_may_be_a_callable_and_may_be_added_while_running() -> None:
    with OpenAIServer() as server:
        server.add("first", lambda body: f"second, asked {len(body['messages'])} messages")
        texts = [
            _post(server, {"messages": [{"role": "user", "content": "x"}]})["choices"][0]["message"]["content"]
            for _ in range(2)
        ]
    assert texts == ["first", "second, asked 1 messages"]


def test_fragments_of_parallel_calls_interleave() -> None:
    answer = ModelAnswer(tool_calls=[ModelToolCall("a", '{"x": 1}'), ModelToolCall("b", '{"y": 2}')], delta_length=4)
    indexes = [delta["tool_calls"][0]["index"] for delta in answer.deltas()]
    assert indexes == [0, 1, 0, 1, 0, 1]
    assert all(one != two for one, two in pairwise(indexes))


def test_a_server_outside_its_context_has_no_address() -> None:
    server = OpenAIServer(["x"])
    with pytest.raises(RuntimeError, match="context manager"):
        _ = server.base_url
    with server:
        assert server.base_url.startswith("http://127.0.0.1:")
    with pytest.raises(RuntimeError):
        _ = server.environment()


# --- Responses -------------------------------------------------------------------------------------------------------


async def test_it_plays_the_same_script_through_responses() -> None:
    answer = ModelAnswer(reasoning="thinking it over", text="I add.", tool_calls=CALL.tool_calls)
    with OpenAIServer([answer]) as server:
        options = {"api_base": server.base_url, "api_key": "test"}
        asked = request(model="openai/gpt-5.6", api="responses", tools=[tool()], provider_options=options)
        result = await ModelAdapter().generate_step(asked)
    assert isinstance(result, ToolCallsStepResult), result
    assert [block.text for block in result.thinking] == ["thinking it over"]
    assert (result.content, [call.arguments for call in result.tool_calls]) == ("I add.", [{"a": 1, "b": 2}])
    assert (result.usage.total_tokens, result.usage.calls) == (15, 1)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ModelAnswer(text="cut here", finish_reason="length"), "max_tokens"),
        (ModelAnswer(refusal="I will not"), "refusal"),
        (ModelAnswer(text="all of it", fault=CutAfter(1)), "connection_error"),
        (ModelAnswer(text="all of it", fault=CutAfter(1, clean=True)), "connection_error"),
    ],
)
async def test_what_goes_wrong_through_responses(answer: ModelAnswer, code: str) -> None:
    with OpenAIServer([answer]) as server:
        options = {"api_base": server.base_url, "api_key": "test"}
        asked = request(model="openai/gpt-5.6", api="responses", max_retries=0, provider_options=options)
        result = await ModelAdapter().generate_step(asked)
    assert isinstance(result, ErrorStepResult)
    assert result.code == code
