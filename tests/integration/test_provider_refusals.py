"""Helix does not send what providers refuse. If only the caller can fix the request, the error says how."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import model_ways
from tests.support.model_dialects import ANTHROPIC, BEDROCK, OPENAI, DialectServer, Says
from tests.support.model_ways import Way
from tests.support_litellm import request, tool

from helix.adapters.models.adapter import ModelAdapter
from helix.core.json import JsonObject
from helix.core.messages import SystemMessage, UserMessage
from helix.core.steps import ErrorStepResult, TextStepResult

way = model_ways.way


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let errors show the provider's words."""
    monkeypatch.setenv("HELIX_LOG_CONTENT", "1")


HOUR: JsonObject = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
MESSAGES = [SystemMessage(content="Be brief."), UserMessage(content="Hello")]


async def test_every_mark_of_the_cache_lasts_as_long_as_the_option_says(way: Way) -> None:
    server = way.start(Says("fine", stop="end_turn"))
    asked = way.request(messages=MESSAGES, tools=[tool()], cache=True)
    asked.config.provider_options.update(HOUR)
    assert isinstance(await ModelAdapter().generate_step(asked), TextStepResult)
    claudes = way.dialect in (ANTHROPIC, BEDROCK)
    assert server.requests[0].body.decode().count('"1h"') == (3 if claudes else 0)


async def test_an_hour_after_five_minutes_is_what_anthropic_refuses(shown: None) -> None:
    """Without `cache`, the caller decides about the whole request."""
    marked = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    with DialectServer(ANTHROPIC, [Says("fine", stop="end_turn")]) as server:
        options = {**ANTHROPIC.options(server.origin), **HOUR, "extra_body": {"system": [marked]}}
        asked = request(model=ANTHROPIC.model, adapter="native", provider_options=options)
        result = await ModelAdapter().generate_step(asked)
    assert isinstance(result, ErrorStepResult) and result.code == "bad_request"
    assert "a ttl='1h' cache_control block must not come after a ttl='5m'" in result.error


async def test_an_option_that_the_provider_does_not_know_is_named(way: Way, shown: None) -> None:
    if way.dialect is BEDROCK:
        pytest.skip("what goes into a model's own fields is checked by the model")
    if (way.dialect.name, way.adapter) == ("responses", "litellm"):
        pytest.skip("litellm drops what it does not know")
    way.start(Says("fine", stop="end_turn"))
    asked = way.request(max_retries=0)
    asked.config.provider_options["frobnicate"] = 1
    result = await ModelAdapter().generate_step(asked)
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.retryable) == ("bad_request", False)
    assert "frobnicate" in result.error


async def test_tools_of_a_new_model_on_the_older_interface_are_refused_with_advice() -> None:
    with DialectServer(OPENAI, [Says("fine", stop="end_turn")] * 2) as server:
        given: dict[str, Any] = {
            "model": "openai/gpt-5.6",
            "adapter": "native",
            "provider_options": OPENAI.options(server.origin),
        }
        refused = await ModelAdapter().generate_step(request(tools=[tool()], **given))
        assert isinstance(refused, ErrorStepResult) and refused.code == "bad_request"
        assert "set api='responses'" in refused.error
        taken = await ModelAdapter().generate_step(request(tools=[tool()], reasoning="none", **given))
        assert isinstance(taken, TextStepResult)
