"""The models of a fallback list share their settings. Each is asked without the settings that it does not support, as with
litellm."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.model_dialects import ANTHROPIC, BEDROCK, OPENAI, Dialect, DialectServer, Says
from tests.support_litellm import request

from helix.adapters.models.adapter import ModelAdapter
from helix.core.steps import TextStepResult

SHARED: dict[str, Any] = {
    "thinking": {"type": "enabled", "budget_tokens": 2000},
    "verbosity": "low",
    "organization": "org-1",
    "prompt_cache_key": "k",
    "vertex_project": "p",
    "aws_region_name": "us-east-1",
}


async def sent(dialect: Dialect, model: str, options: dict[str, Any]) -> dict[str, Any]:
    with DialectServer(dialect, [Says("fine", stop="end_turn")]) as server:
        given = {**options, **dialect.options(server.origin)}
        result = await ModelAdapter().generate_step(request(model=model, adapter="native", provider_options=given))
        assert isinstance(result, TextStepResult)
        body: dict[str, Any] = server.requests[0].json
    return body


@pytest.mark.parametrize(
    ("dialect", "model", "has"),
    [
        (OPENAI, OPENAI.model, {"verbosity", "prompt_cache_key"}),
        (ANTHROPIC, ANTHROPIC.model, {"thinking"}),
        (BEDROCK, BEDROCK.model, {"additionalModelRequestFields"}),
        (BEDROCK, "bedrock/us.amazon.nova-pro-v1:0", set[str]()),
    ],
)
async def test_an_option_goes_to_the_models_that_have_it(dialect: Dialect, model: str, has: set[str]) -> None:
    plain, body = await sent(dialect, model, {}), await sent(dialect, model, SHARED)
    assert body.keys() - plain.keys() == has | (
        {"inferenceConfig"} if has == {"additionalModelRequestFields"} else set()
    )
    if "additionalModelRequestFields" in body:
        assert body["additionalModelRequestFields"] == {"thinking": SHARED["thinking"]}


@pytest.mark.parametrize(("model", "has"), [("openai/o4-mini", True), ("openai/gpt-4o", False), ("openai/qwen3", True)])
async def test_an_effort_is_for_models_that_reason_and_for_unknown_ones(model: str, has: bool) -> None:
    body = await sent(OPENAI, model, {"reasoning_effort": "low"})
    assert (body.get("reasoning_effort") == "low") is has


async def test_a_server_of_ones_own_gets_what_is_given() -> None:
    body = await sent(OPENAI, "openai/glm-5", {"thinking": {"type": "disabled"}, "top_k": 5})
    assert (body["thinking"], body["top_k"]) == ({"type": "disabled"}, 5)


async def test_claude_behind_a_gateway_of_openais_language_gets_its_marks() -> None:
    with DialectServer(OPENAI, [Says("fine", stop="end_turn")]) as server:
        asked = request(model="openai/claude-sonnet-4-5", adapter="native", cache=True)
        asked.config.provider_options.update(OPENAI.options(server.origin))
        assert isinstance(await ModelAdapter().generate_step(asked), TextStepResult)
        assert server.requests[0].body.decode().count('"cache_control"') == 2
