"""The requests to OpenAI's Responses API: what they contain, and what they leave out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.support.model_dialects import DialectServer, Fails, Says
from tests.support.responses_dialect import RESPONSES
from tests.support_litellm import request, tool

from helix.adapters.models.adapter import ModelAdapter
from helix.adapters.models.litellm import load_litellm
from helix.adapters.models.litellm_responses import LiteLLMResponses
from helix.core.steps import AnyStepResult, ErrorStepResult, TextStepResult
from helix.testing.loopback_server import RecordedRequest

FINE = Says("Fine.", stop="end_turn")


@pytest.fixture
def server() -> Iterator[DialectServer]:
    with DialectServer(RESPONSES, [FINE, FINE]) as made:
        yield made


async def ask(server: DialectServer, **given: Any) -> AnyStepResult:
    options = RESPONSES.options(server.origin) | given.pop("provider_options", {})
    asked = request(
        **{"model": RESPONSES.model, "api": "responses", "max_retries": 0, **given}, provider_options=options
    )
    return await ModelAdapter().generate_step(asked)


async def test_a_request_as_a_whole(server: DialectServer) -> None:
    given = {
        "reasoning": "high",
        "verbosity": "low",
        "max_output_tokens": 900,
        "temperature": 0.5,
        "strict_output": True,
        "cache": False,
    }
    assert isinstance(await ask(server, tools=[tool(), tool("exact", strict=True)], **given), TextStepResult)
    body = server.requests[0].json
    tools = body.pop("tools")
    assert body == {
        "model": "gpt-5.6",
        "instructions": "be brief",
        "input": [{"role": "user", "content": "hello"}],
        "max_output_tokens": 900,
        "reasoning": {"effort": "high", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "text": {"verbosity": "low"},
        "tool_choice": "auto",
        "store": False,
        "stream": True,
    }
    assert [(made["name"], made["strict"]) for made in tools] == [("add", False), ("exact", True)]
    assert tools[1]["parameters"]["additionalProperties"] is False


async def test_a_model_that_does_not_reason_is_asked_for_no_reasoning(server: DialectServer) -> None:
    await ask(server, model="openai/gpt-4o-mini", reasoning="high", verbosity="low", temperature=0.5)
    body = server.requests[0].json
    assert body["temperature"] == 0.5 and not {"reasoning", "include", "text"} & body.keys()


async def test_options_in_the_words_of_chat_completions_are_translated(server: DialectServer) -> None:
    schema = {"name": "answer", "schema": {"type": "object"}, "strict": True}
    options = {"reasoning_effort": "low", "response_format": {"type": "json_schema", "json_schema": schema}}
    await ask(server, provider_options={**options, "max_tokens": 300, "service_tier": "flex"})
    body = server.requests[0].json
    assert (body["reasoning"]["effort"], body["max_output_tokens"], body["service_tier"]) == ("low", 300, "flex")
    assert body["text"] == {"format": {"type": "json_schema", **schema}}


@pytest.mark.parametrize(
    ("option", "advice"), [("seed", "leave it out, or set api='chat';"), ("previous_response_id", "leave it out;")]
)
async def test_an_option_that_it_does_not_have_is_refused_by_name(
    server: DialectServer, option: str, advice: str
) -> None:
    result = await ask(server, provider_options={option: 7})
    assert isinstance(result, ErrorStepResult)
    assert result.code == "bad_request" and repr(option) in result.error and advice in result.error
    assert server.requests == [], "and nothing was asked"


def unverified(request: RecordedRequest) -> Fails | None:
    """Refuse summaries of some models, as OpenAI does to unverified organizations."""
    if "summary" in request.json.get("reasoning", {}):
        words = "Your organization must be verified to generate reasoning summaries."
        return Fails(400, "invalid_request_error", "", words, param="reasoning.summary")
    return RESPONSES.refuses(request)


@pytest.mark.parametrize("adapter", ["native", "litellm"])
async def test_who_may_not_see_summaries_gets_answers_without(adapter: str) -> None:
    """The process asks for summaries once."""
    with DialectServer(replace(RESPONSES, refuses=unverified), [FINE, FINE]) as strict:
        for _ in range(2):
            assert isinstance(await ask(strict, reasoning="low", adapter=adapter), TextStepResult)
        assert [request.json["reasoning"] for request in strict.requests] == [
            {"effort": "low", "summary": "auto"},
            {"effort": "low"},
            {"effort": "low"},
        ]


async def test_the_deployment_at_azure(server: DialectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.origin)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "of-azure")
    asked = request(model="azure/prod", api="responses", reasoning="low", max_retries=0)
    assert isinstance(await ModelAdapter().generate_step(asked), TextStepResult)
    (seen,) = server.requests
    assert (seen.path, seen.json["model"]) == ("/openai/v1/responses", "prod")
    assert seen.json["reasoning"] == {"effort": "low", "summary": "auto"}
    assert seen.headers["authorization"] == "Bearer of-azure"


async def test_an_option_of_the_provider_wins_over_the_setting(server: DialectServer) -> None:
    await ask(
        server, reasoning="high", verbosity="high", provider_options={"reasoning_effort": "low", "verbosity": "low"}
    )
    body = server.requests[0].json
    assert (body["reasoning"]["effort"], body["text"]["verbosity"]) == ("low", "low")


def test_a_login_of_entra_goes_to_litellm_and_not_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_AD_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    login = {"tenant_id": "t", "client_id": "c", "client_secret": "s", "api_version": "2025-04-01-preview"}
    asked = request(model="azure/prod", api="responses", provider_options={**login, "service_tier": "flex"})
    exchange = LiteLLMResponses(load_litellm(), {}, asked, "azure/prod")
    options = exchange.options
    assert (exchange.connect(options), options) == (login, {"service_tier": "flex"})
