"""`LiteLLMAdapter` over real HTTP on loopback: the requests that it sends."""

from __future__ import annotations

import pytest
from tests import support_litellm
from tests.support_litellm import EMPTY, MODEL, Serve, request, tool

from helix.adapters.models.litellm import LiteLLMAdapter
from helix.core.json import JsonObject
from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    SystemMessage,
    ThinkingContent,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
)
from helix.core.steps import StopReason, TextStepResult, ToolCallsStepResult
from helix.testing.openai_server import ModelAnswer, ModelToolCall

serve = support_litellm.serve
each_adapter = support_litellm.each_adapter
pytestmark = pytest.mark.usefixtures("each_adapter")


async def test_the_request_carries_messages_tools_and_settings(serve: Serve) -> None:
    server = serve("fine")
    history: list[AnyMessage] = [
        SystemMessage(content="be brief"),
        UserMessage(content="add"),
        AssistantMessage(
            content="adding",
            tool_calls=[ToolCallRequest(id="c1", name="add", arguments={"a": 1, "ü": "ß"})],
            thinking=[ThinkingContent(text="hm", signature="sig")],
        ),
        ToolResultMessage(tool_call_id="c1", tool_name="add", content="3"),
        AssistantMessage(content=None),
        AssistantMessage(tool_calls=[ToolCallRequest(id="c2", name="add", malformed="{oops")]),
        ToolResultMessage(tool_call_id="c2", tool_name="add", content='{"error":"bad"}', success=False),
    ]
    await LiteLLMAdapter().generate_step(
        request(
            history,
            tools=[tool("add", {"type": "object", "properties": {"a": {"type": "integer"}}})],
            temperature=0.5,
            max_output_tokens=77,
            stop=["END"],
            provider_options={"top_p": 0.9, "seed": 4, "my_server_option": {"x": [1]}},
        )
    )
    body = server.requests[0].json
    assert body["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "add"},
        {
            "role": "assistant",
            "content": "adding",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "ü": "ß"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c2", "type": "function", "function": {"name": "add", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c2", "content": '{"error":"bad"}'},
    ]
    assert body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "add",
                "description": "the tool add",
                "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
            },
        }
    ]
    assert body["model"] == "gpt-4o-mini"
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert (body["temperature"], body["max_tokens"], body["stop"]) == (0.5, 77, ["END"])
    assert (body["top_p"], body["seed"], body["my_server_option"]) == (0.9, 4, {"x": [1]})
    assert server.requests[0].headers["authorization"] == "Bearer test"


@pytest.mark.parametrize("choice", ["auto", "required", "none"])
async def test_tool_choice_by_word(serve: Serve, choice: str) -> None:
    server = serve("fine")
    await LiteLLMAdapter().generate_step(request(tools=[tool()], tool_choice=choice))
    assert server.requests[0].json["tool_choice"] == choice


async def test_tool_choice_by_name_and_its_answer_that_stops_with_stop(serve: Serve) -> None:
    """OpenAI ends a forced call with finish_reason "stop"."""
    server = serve(ModelAnswer(tool_calls=[ModelToolCall("add", {"a": 1})], finish_reason="stop"))
    result = await LiteLLMAdapter().generate_step(request(tools=[tool()], tool_choice="add"))
    assert server.requests[0].json["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert isinstance(result, ToolCallsStepResult)
    assert result.stop_reason is StopReason.TOOL_USE


async def test_no_tools_means_no_tool_choice(serve: Serve) -> None:
    server = serve("fine")
    await LiteLLMAdapter().generate_step(request(tool_choice="required"))
    assert not {"tools", "tool_choice"} & server.requests[0].json.keys()


async def test_provider_options_may_name_key_and_address(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve("fine")
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:9/v1")
    options = {"api_base": server.base_url, "api_key": "given-key"}
    result = await LiteLLMAdapter().generate_step(request(provider_options=options))
    assert isinstance(result, TextStepResult)
    assert server.requests[0].headers["authorization"] == "Bearer given-key"


async def test_cache_marks_are_not_sent_to_a_provider_without_them(serve: Serve) -> None:
    server = serve("fine")
    await LiteLLMAdapter().generate_step(request(tools=[tool()], cache=True))
    assert "cache_control" not in server.requests[0].body.decode()


STRICT_ME: JsonObject = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "title": "City"},
        "days": {"type": "integer", "default": 3},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "place": {"$ref": "#/$defs/Place"},
    },
    "required": ["city", "place"],
    "$defs": {"Place": {"type": "object", "properties": {"lat": {"type": "number"}, "name": {"type": "string"}}}},
}


async def test_strict_tools_are_closed_and_their_nulls_taken_out_again(serve: Serve) -> None:
    server = serve(
        ModelAnswer(
            tool_calls=[
                ModelToolCall(
                    "forecast", {"city": "Bern", "days": None, "note": None, "place": {"lat": 1.5, "name": None}}
                )
            ]
        )
    )
    result = await LiteLLMAdapter().generate_step(request(tools=[tool("forecast", STRICT_ME, strict=True)]))
    function = server.requests[0].json["tools"][0]["function"]
    assert function["strict"] is True
    assert function["parameters"] == {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"anyOf": [{"type": "integer", "description": "(default: 3)"}, {"type": "null"}]},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "place": {"$ref": "#/$defs/Place"},
        },
        "required": ["city", "days", "note", "place"],
        "additionalProperties": False,
        "$defs": {
            "Place": {
                "type": "object",
                "properties": {
                    "lat": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                    "name": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
                "required": ["lat", "name"],
                "additionalProperties": False,
            }
        },
    }
    assert isinstance(result, ToolCallsStepResult)
    # `days` and `place.name` were null only because strict asks for every field; `note` may be null by its own schema.
    assert result.tool_calls[0].arguments == {"city": "Bern", "note": None, "place": {"lat": 1.5}}


async def test_strict_output_makes_the_finish_tool_strict_and_no_other(serve: Serve) -> None:
    server = serve("fine")
    tools = [tool("add"), tool("__finish__")]
    await LiteLLMAdapter().generate_step(request(tools=tools, strict_output=True))
    assert [t["function"].get("strict") for t in server.requests[0].json["tools"]] == [None, True]


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("openai/some-local-model", EMPTY),
        (MODEL, {"type": "object", "properties": {"free": {"type": "object", "additionalProperties": True}}}),
        (MODEL, {"type": "object", "properties": {"any": {}}}),
    ],
)
async def test_strict_is_a_no_op_where_it_cannot_be(serve: Serve, model: str, parameters: JsonObject) -> None:
    server = serve("fine")
    result = await LiteLLMAdapter().generate_step(request(tools=[tool("t", parameters, strict=True)], model=model))
    assert isinstance(result, TextStepResult)
    function = server.requests[0].json["tools"][0]["function"]
    assert "strict" not in function
    assert function["parameters"] == parameters
