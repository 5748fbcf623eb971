"""Plain async functions as agents."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from helix.adapters.models.function import FunctionModel
from helix.compat import teleon
from helix.core.agents import Agent
from helix.core.config import LLMConfig
from helix.core.context import ToolContext
from helix.core.errors import DefinitionError, InvalidInputError
from helix.core.functions import AgentClient, plan_function_call
from helix.core.messages import AnyMessage, AssistantMessage, ToolCallRequest, ToolResultMessage, UserMessage
from helix.core.registry import AgentRegistry, default_registry
from helix.core.steps import ErrorStepResult, ParsedToolCall, StopReason, ToolCallsStepResult
from helix.core.usage import Usage
from helix.ports.model import LLMGenerateInput, LLMStreamCallbacks


class Reply(BaseModel):
    text: str


class Order(BaseModel):
    id: int


@pytest.fixture
def client() -> AgentClient:
    return AgentClient(api_key="ignored", registry=AgentRegistry())


def test_a_function_becomes_a_registered_agent(client: AgentClient) -> None:
    @client.agent(name="support-agent", helix={"min": 2, "max": 10, "cpu": 2.0})
    async def support_agent(question: str) -> Reply:
        """Answers questions."""
        return Reply(text=question)

    assert isinstance(support_agent, Agent)
    assert client.registry.resolve("support-agent") is support_agent
    assert support_agent.description == "Answers questions."
    assert support_agent.output_schema is Reply and support_agent.finish_tool is None
    assert support_agent.resources["max_instances"] == 10 and support_agent.resources["cpu_limit"] == 2.0
    function = support_agent.function
    assert function is not None and function.finish_with and function.name == "support-agent"
    assert support_agent.find_tool("support-agent") is function


async def test_the_decorated_function_can_still_be_called(client: AgentClient) -> None:
    @client.agent(name="echo")
    async def echo(text: str) -> str:
        return text

    assert await echo("x") == "x"
    assert await echo(text="y") == "y"
    plain = Agent(name="a", system_prompt="p", llm_config=LLMConfig(model="m"))
    with pytest.raises(TypeError, match="not a function agent"):
        plain("x")


def test_teleons_name_and_the_default_registry() -> None:
    assert teleon.TeleonClient is AgentClient
    assert AgentClient("key").registry is default_registry


def test_wrong_definitions_name_the_field(client: AgentClient) -> None:
    async def good(x: str) -> str:
        return x

    def sync(x: str) -> str:
        return x

    cases: list[tuple[Any, dict[str, Any], str]] = [
        (sync, {"name": "a"}, "function"),
        (good, {"name": "no spaces"}, "name"),
        (good, {"name": "double__underscore"}, "name"),
        (good, {"name": "a", "helix": {"min": 3, "max": 2}}, "helix.min"),
        (good, {"name": "a", "helix": {"gpu": 1}}, "helix.gpu"),
        (good, {"name": "a", "helix": {"cpu": 1, "cpu_limit": 1}}, "helix.cpu_limit"),
        (good, {"name": "a", "timeout_s": 0}, "timeout_s"),
        (good, {"name": "a", "retries": 99}, "retries"),
    ]
    for function, options, field in cases:
        with pytest.raises(DefinitionError) as caught:
            client.agent(**options)(function)
        assert caught.value.field == field
    assert client.registry.registered_types() == []
    client.agent(name="a")(good)
    with pytest.raises(DefinitionError, match="name: is registered already"):
        client.agent(name="a")(good)


def agents(client: AgentClient) -> dict[str, Agent[Any, Any]]:
    @client.agent(name="one")
    async def one(question: str, ctx: ToolContext) -> str:
        return question

    @client.agent(name="optional")
    async def optional(question: str | None) -> str:
        return question or ""

    @client.agent(name="main")
    async def main(question: str, limit: int = 3) -> str:
        return question * limit

    @client.agent(name="several")
    async def several(a: int, b: str) -> str:
        return b * a

    @client.agent(name="model")
    async def model(order: Order) -> int:
        return order.id

    @client.agent(name="none")
    async def none() -> str:
        return "ran"

    return {made.name: made for made in (one, optional, main, several, model, none)}


@pytest.mark.parametrize(
    ("name", "message", "expected"),
    [
        ("one", "hello", {"question": "hello"}),
        ("one", '{"question": "x"}', {"question": "x"}),
        ("one", '{"other": "x"}', {"question": '{"other": "x"}'}),
        ("one", "7", {"question": "7"}),
        ("optional", "hello", {"question": "hello"}),
        ("main", "hello", {"question": "hello"}),
        ("main", '{"question": "x", "limit": 1}', {"question": "x", "limit": 1}),
        ("several", '{"a": 2, "b": "x"}', {"a": 2, "b": "x"}),
        ("model", '{"order": {"id": 7}}', {"order": {"id": 7}}),
        ("none", "whatever", {}),
    ],
)
def test_the_message_becomes_the_arguments(
    client: AgentClient, name: str, message: str, expected: dict[str, Any]
) -> None:
    assert plan_function_call(agents(client)[name], message) == expected


@pytest.mark.parametrize(
    ("name", "message", "complaint"),
    [
        ("several", "hello", "a, b: expected a JSON object"),
        ("several", "[1]", "a, b: expected a JSON object"),
        ("several", '{"a": "x"}', "a: Input should be a valid integer.*b: Field required"),
        ("several", '{"a": 1, "b": "x", "c": 1}', "c: Extra inputs are not permitted"),
        ("model", '{"order": {}}', "order.id: Field required"),
        ("main", '{"limit": 1}', "question: Field required"),
    ],
)
def test_a_message_that_does_not_fit_names_the_parameters(
    client: AgentClient, name: str, message: str, complaint: str
) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        plan_function_call(agents(client)[name], message)


async def ask(model: FunctionModel, messages: list[AnyMessage], heard: list[ParsedToolCall] | None = None) -> Any:
    callbacks = LLMStreamCallbacks(on_tool_call=heard.append if heard is not None else None)
    return await model.generate_step(
        LLMGenerateInput(
            messages=messages,
            tools=[],
            config=LLMConfig(model="function"),
            agent_id="ses_1",
            agent_type="one",
            callbacks=callbacks,
        )
    )


async def test_the_function_model_makes_the_one_call(client: AgentClient) -> None:
    model = FunctionModel(agents(client)["one"])
    heard: list[ParsedToolCall] = []
    result = await ask(model, [UserMessage(content="hi")], heard)
    assert isinstance(result, ToolCallsStepResult)
    call = ParsedToolCall(id="call_0", name="one", arguments={"question": "hi"})
    assert result.tool_calls == [call] and heard == [call]
    assert (result.model, result.usage, result.stop_reason) == ("function", Usage(), StopReason.TOOL_USE)


async def test_call_ids_are_unique_in_a_session(client: AgentClient) -> None:
    model = FunctionModel(agents(client)["one"])
    earlier: list[AnyMessage] = [
        UserMessage(content="hi"),
        AssistantMessage(tool_calls=[ToolCallRequest(id="call_0", name="one", arguments={"question": "hi"})]),
        ToolResultMessage(tool_call_id="call_0", tool_name="one", content="hi"),
    ]
    result = await ask(model, [*earlier, UserMessage(content="again")])
    assert result.tool_calls[0].id == "call_1"


async def test_a_failed_function_fails_the_run(client: AgentClient) -> None:
    model = FunctionModel(agents(client)["one"])
    for content, error in ((json.dumps({"error": "no money"}), "no money"), ("odd", "odd")):
        failed = ToolResultMessage(tool_call_id="call_0", tool_name="one", content=content, success=False)
        result = await ask(model, [UserMessage(content="hi"), failed])
        assert isinstance(result, ErrorStepResult)
        assert (result.error, result.code, result.retryable) == (error, "function_failed", False)


async def test_a_message_that_does_not_fit_is_an_error_result(client: AgentClient) -> None:
    result = await ask(FunctionModel(agents(client)["several"]), [UserMessage(content="hi")])
    assert isinstance(result, ErrorStepResult) and result.code == "invalid_input"
    assert "a, b" in result.error
    with pytest.raises(DefinitionError, match="function"):
        FunctionModel(Agent(name="a", system_prompt="p", llm_config=LLMConfig(model="m")))
