"""Strict tools at each provider: what is sent, what a tool receives, and the error for a schema that is refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import model_ways
from tests.support.model_dialects import ANTHROPIC, BEDROCK, DialectServer, Fails, Says
from tests.support.model_ways import Way
from tests.support_litellm import request, tool

from helix.adapters.models.adapter import ModelAdapter
from helix.adapters.models.strict_tools import plan_strict, strict_form
from helix.core.config import LLMConfig
from helix.core.json import JsonObject
from helix.core.steps import ErrorStepResult, TextStepResult, ToolCallsStepResult
from helix.ports.model import ToolSpec

way = model_ways.way
FINE = Says("fine", stop="end_turn")
FORECAST: JsonObject = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "days": {"type": "integer", "default": 3, "maximum": 9},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["city"],
}
OPEN: JsonObject = {"type": "object", "properties": {"filters": {"type": "object", "additionalProperties": True}}}


def forecast(**options: Any) -> ToolSpec:
    return tool("forecast", FORECAST, **{"strict": None, **options})


def sent_tools(server: DialectServer) -> list[tuple[str, Any, Any]]:
    """Return (name, strict, schema) of each tool in the server's last request."""
    body = server.requests[-1].json
    offered = [tool for tool in body.get("toolConfig", body)["tools"] if "cachePoint" not in tool]
    found = [tool.get("toolSpec", tool) for tool in offered]
    found = [each.get("function", each) for each in found]
    schemas = [each.get("parameters") or each.get("input_schema") or each["inputSchema"]["json"] for each in found]
    return [(each["name"], each.get("strict"), schema) for each, schema in zip(found, schemas, strict=True)]


def constrains(way: Way) -> bool:
    return way.adapter == "native" or way.dialect not in (ANTHROPIC, BEDROCK)


async def test_closed_tools_are_strict_and_open_ones_are_not(way: Way) -> None:
    server = way.start(FINE)
    tools = [tool("search", OPEN, strict=None), forecast()]
    assert isinstance(await ModelAdapter().generate_step(way.request(tools=tools)), TextStepResult)
    (_, search, schema), (_, strict, closed) = sent_tools(server)
    assert not search and schema["properties"]["filters"]["additionalProperties"] is True
    assert bool(strict) is constrains(way)
    if not constrains(way):
        return
    assert closed["additionalProperties"] is False
    assert closed["properties"]["city"]["description"] == "(minLength: 2)"
    claude = way.dialect in (ANTHROPIC, BEDROCK)
    assert closed["required"] == (["city"] if claude else ["city", "days", "note"])


async def test_a_tool_receives_the_arguments_of_its_own_schema(way: Way) -> None:
    claude = way.dialect in (ANTHROPIC, BEDROCK)
    days = "" if claude or not constrains(way) else ', "days": null'
    call = ("call_1", "forecast", '{"city": "Bern", "note": null' + days + "}")
    way.start(Says(calls=(call,), stop="tool_use"))
    result = await ModelAdapter().generate_step(way.request(tools=[forecast()]))
    assert isinstance(result, ToolCallsStepResult)
    assert result.tool_calls[0].arguments == {"city": "Bern", "note": None}


@pytest.mark.parametrize("config", [{}, {"strict_output": False}])
async def test_strict_false_leaves_a_tool_and_the_output_as_they_are(way: Way, config: dict[str, Any]) -> None:
    server = way.start(FINE)
    await ModelAdapter().generate_step(
        way.request(tools=[forecast(strict=False), tool("__finish__", FORECAST, strict=None)], **config)
    )
    (_, strict, schema), (_, output, _) = sent_tools(server)
    assert not strict and schema == FORECAST
    assert bool(output) is (constrains(way) and not config)


REFUSALS = {
    "openai": "Invalid schema for function 'forecast': In context=('properties', 'city'), 'frob' is not permitted.",
    "responses": "Invalid schema for function 'forecast': In context=('properties', 'city'), 'frob' is not permitted.",
    "anthropic": "tools.1.custom: For 'string' type, property 'frob' is not supported",
    "bedrock": "The model returned the following errors: tools.1.custom: For 'string' type, property 'frob' is not",
}


async def test_a_refused_schema_is_an_error_that_names_the_tool_and_is_not_repeated(way: Way) -> None:
    if not constrains(way):
        pytest.skip("litellm does not send strict tools there")
    refused = Fails(400, "invalid_request_error", "ValidationException", REFUSALS[way.dialect.name])
    server = way.start(refused, FINE)
    tools = [tool("search", OPEN, strict=None), forecast()]
    result = await ModelAdapter().generate_step(way.request(tools=tools, max_retries=3))
    assert isinstance(result, ErrorStepResult) and result.code == "bad_request"
    assert "refused the strict schema of 'forecast': set strict=False for the tool 'forecast'" in result.error
    assert REFUSALS[way.dialect.name] not in result.error, "the provider's words stay hidden"
    assert len(server.requests) == 1


async def test_a_grammar_that_is_too_large_names_all_strict_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIX_LOG_CONTENT", "1")
    words = "The compiled grammar is too large, which would cause performance issues."
    with DialectServer(ANTHROPIC, [Fails(400, "invalid_request_error", "", words)]) as server:
        options = ANTHROPIC.options(server.origin)
        tools = [tool("search", OPEN, strict=None), forecast(), tool("__finish__", FORECAST)]
        asked = request(model=ANTHROPIC.model, adapter="native", provider_options=options, tools=tools)
        result = await ModelAdapter().generate_step(asked)
    assert isinstance(result, ErrorStepResult) and words.rstrip(".") in result.error
    assert "strict=False for the tool 'forecast' or strict_output=False in LLMConfig, the largest first" in result.error


async def test_another_bad_request_is_not_blamed_on_a_schema(way: Way) -> None:
    way.start(Fails(400, "invalid_request_error", "ValidationException", "Invalid value for temperature"))
    result = await ModelAdapter().generate_step(way.request(tools=[forecast()], max_retries=0))
    assert isinstance(result, ErrorStepResult) and "strict" not in result.error


async def test_the_limits_of_claude_are_kept_and_tools_that_ask_go_first() -> None:
    tools = [forecast(strict=True if n == 29 else None) for n in range(30)]
    tools = [ToolSpec(f"t{n}", "t", each.parameters, each.strict) for n, each in enumerate(tools)]
    plan = plan_strict(tools, LLMConfig(model="anthropic/claude-sonnet-4-5"), "claude")
    assert list(plan.schemas) == ["t29", *(f"t{n}" for n in range(11))], "24 optional properties"
    assert plan.reasons["t11"] == "Claude takes at most 24 optional properties in the strict tools of one request"
    plain = [ToolSpec(f"t{n}", "t", {"type": "object", "properties": {}}) for n in range(21)]
    plan = plan_strict(plain, LLMConfig(model="anthropic/claude-sonnet-4-5"), "claude")
    assert plan.reasons == {"t20": "Claude takes at most 20 strict tools in one request"}
    with DialectServer(ANTHROPIC, [FINE]) as server:
        options = ANTHROPIC.options(server.origin)
        asked = request(model=ANTHROPIC.model, adapter="native", provider_options=options, tools=tools)
        assert isinstance(await ModelAdapter().generate_step(asked), TextStepResult)


@pytest.mark.parametrize(
    ("model", "package", "form"),
    [
        ("openai/gpt-4o-mini", "openai", "openai"),
        ("openai/gpt-4o-mini", "litellm", "openai"),
        ("openai/gpt-3.5-turbo", "openai", None),
        ("openai/some-local-model", "openai", None),
        ("azure/gpt-4o-in-eu", "openai", "openai"),
        ("anthropic/claude-sonnet-4-5", "anthropic", "claude"),
        ("anthropic/claude-later", "anthropic", "claude"),
        ("anthropic/claude-sonnet-4-5", "litellm", None),
        ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", "boto3", "claude"),
        ("bedrock/us.anthropic.claude-sonnet-4-20250514-v1:0", "boto3", None),
        ("bedrock/us.anthropic.claude-opus-4-8", "boto3", None),
        ("bedrock/us.amazon.nova-pro-v1:0", "boto3", None),
        ("gemini/gemini-2.5-pro", "litellm", None),
    ],
)
def test_the_form_that_each_model_takes(model: str, package: str, form: str | None) -> None:
    assert strict_form(model, package) == form
