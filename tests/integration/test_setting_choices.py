"""`tool_choice`, `parallel_tool_calls` and `top_p`: what each provider is sent, what is refused by name, and how a forced
choice ends."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from tests.support import model_ways
from tests.support.model_dialects import ANTHROPIC, BEDROCK, OPENAI, Says
from tests.support.model_ways import Way
from tests.support_litellm import tool as spec

from helix import (
    Agent,
    DefinitionError,
    InvalidInputError,
    LLMConfig,
    LocalExecutor,
    ModelAdapter,
    ResponseCacheConfig,
    RunSettings,
    ScriptedModel,
    tool,
)
from helix.adapters.models.setting_checks import refused_setting
from helix.core.steps import TextStepResult
from helix.testing.openai_server import ModelAnswer, ModelToolCall, OpenAIServer

way = model_ways.way
FINE = Says("fine", stop="end_turn")
S = "talk"
LOOK = {"tool_calls": [{"id": "c1", "name": "look", "arguments": {}}]}


@tool
async def look() -> str:
    """Look."""
    return "seen"


class Answer(BaseModel):
    text: str


def agent(*, tools: Any = (look,), **config: Any) -> Agent[Any, Any]:
    return Agent(name="desk", system_prompt="Help.", tools=tools, llm_config=LLMConfig(**{"model": "m", **config}))


# --- at the providers -------------------------------------------------------------------------------------------------


async def test_every_provider_is_sent_the_settings(way: Way) -> None:
    server = way.start(FINE)
    settings: dict[str, Any] = {"parallel_tool_calls": False}
    if way.dialect.name != "responses":  # its model reasons
        settings["top_p"] = 0.4
    asked = way.request(tools=[spec()], tool_choice="add", max_retries=0, **settings)
    assert isinstance(await ModelAdapter().generate_step(asked), TextStepResult)
    body = server.requests[0].json
    if way.dialect is BEDROCK:
        assert body["inferenceConfig"]["topP"] == 0.4
        assert body["toolConfig"]["toolChoice"] == {"tool": {"name": "add"}}
        assert body["additionalModelRequestFields"]["tool_choice"]["disable_parallel_tool_use"] is True
        return
    if way.dialect is ANTHROPIC:
        assert body["top_p"] == 0.4
        assert body["tool_choice"] == {"type": "tool", "name": "add", "disable_parallel_tool_use": True}
        return
    assert body["parallel_tool_calls"] is False
    named = body["tool_choice"].get("function", body["tool_choice"])
    assert named["name"] == "add" and body.get("top_p") == settings.get("top_p")


async def test_without_a_forced_tool_one_call_at_a_time_is_asked_of_claude_in_its_own_words(way: Way) -> None:
    if way.dialect not in (ANTHROPIC, BEDROCK):
        pytest.skip("OpenAI has a field of its own")
    server = way.start(FINE)
    asked = way.request(tools=[spec()], parallel_tool_calls=False, max_retries=0)
    assert isinstance(await ModelAdapter().generate_step(asked), TextStepResult)
    body = server.requests[0].json
    body = body.get("additionalModelRequestFields", body)
    typed = {} if (way.dialect, way.adapter) == (BEDROCK, "litellm") else {"type": "auto"}  # litellm says it elsewhere
    assert body["tool_choice"] == {**typed, "disable_parallel_tool_use": True}


async def test_the_settings_are_left_out_without_tools(way: Way) -> None:
    server = way.start(FINE)
    asked = way.request(parallel_tool_calls=False, tool_choice="required", max_retries=0)
    assert isinstance(await ModelAdapter().generate_step(asked), TextStepResult)
    assert "parallel" not in server.requests[0].body.decode() and "tool_choice" not in server.requests[0].json


@pytest.mark.parametrize(
    ("model", "config", "problem"),
    [
        ("openai/o3", {"parallel_tool_calls": False}, "parallel_tool_calls: 'openai/o3' does not support this setting"),
        ("openai/gpt-5", {"top_p": 0.5}, "top_p: 'openai/gpt-5' does not accept top_p while it reasons"),
        ("openai/gpt-5.1", {"top_p": 0.5, "reasoning": "none"}, None),
        ("openai/gpt-4o-mini", {"top_p": 0.5, "parallel_tool_calls": True, "tool_choice": "required"}, None),
        ("anthropic/claude-opus-4-7", {"top_p": 0.5}, "top_p: 'anthropic/claude-opus-4-7' does not accept top_p"),
        ("anthropic/claude-sonnet-4-5", {"top_p": 0.5, "temperature": 0}, "accepts temperature or top_p, but not both"),
        (
            "anthropic/claude-sonnet-4-5",
            {"top_p": 0.5, "reasoning": "low"},
            "only 0.95 to 1 while thinking is enabled",
        ),
        ("anthropic/claude-sonnet-5-5", {"tool_choice": "required"}, "which 'anthropic/claude-sonnet-5-5' refuses"),
        (NOVA := "bedrock/us.amazon.nova-pro-v1:0", {"parallel_tool_calls": False}, "only Claude has it, not"),
        (NOVA, {"tool_choice": "none"}, "only Claude takes 'none', not"),
        (NOVA, {"tool_choice": "required", "top_p": 0.3}, None),
        ("openai/some-local-model", {"top_p": 0.1, "parallel_tool_calls": False, "tool_choice": "x"}, None),
    ],
)
def test_a_setting_that_a_model_refuses_is_named(model: str, config: dict[str, Any], problem: str | None) -> None:
    found = refused_setting(model, LLMConfig(model=model, **config))
    assert found is None if problem is None else problem in str(found)


async def test_a_refused_setting_fails_before_a_run_begins() -> None:
    async with LocalExecutor(":memory:") as executor:
        with pytest.raises(
            DefinitionError, match="agent 'desk': llm_config: parallel_tool_calls: 'openai/o3' does not"
        ):
            await executor.execute(agent(model="openai/o3", parallel_tool_calls=False), "go")
        with pytest.raises(InvalidInputError, match="settings: top_p: 'openai/gpt-5' does not accept top_p"):
            await executor.execute(agent(model="openai/gpt-5"), "go", session_id=S, settings={"top_p": 0.5})
        assert not await executor.sessions.exists(S)


async def test_a_config_of_the_state_is_checked_at_its_step() -> None:
    made = Agent(
        name="desk",
        system_prompt="Help.",
        tools=[look],
        llm_config=lambda state: LLMConfig(model="openai/o3", parallel_tool_calls=True),
    )
    async with LocalExecutor(":memory:") as executor:
        result = await (await executor.execute(made, "go")).result()
    assert result.error is not None and result.error.startswith(
        "parallel_tool_calls: 'openai/o3' does not support this setting"
    )


# --- definitions ------------------------------------------------------------------------------------------------------


def test_an_unknown_setting_is_a_definition_error_that_names_the_nearest_one() -> None:
    with pytest.raises(DefinitionError, match="'tool_chioce' is not a setting; did you mean 'tool_choice'"):
        LLMConfig(model="m", tool_chioce="auto")  # type: ignore[call-arg]
    with pytest.raises(DefinitionError, match="'frobnicate' is not a setting; the settings are model, temperature"):
        LLMConfig(model="m", frobnicate=1)  # type: ignore[call-arg]


def test_a_forced_tool_and_thinking_are_refused_together() -> None:
    for config in (
        {"reasoning": "low"},
        {"provider_options": {"thinking": {"type": "enabled", "budget_tokens": 2000}}},
    ):
        with pytest.raises(
            DefinitionError, match="'required' forces a call, which 'anthropic/claude-sonnet-4-5' refuses"
        ):
            LLMConfig(model="anthropic/claude-sonnet-4-5", tool_choice="required", **config)
    LLMConfig(model="anthropic/claude-sonnet-4-5", tool_choice="none", reasoning="low")
    LLMConfig(model="openai/gpt-5", tool_choice="required", reasoning="low")


def test_a_forced_tool_must_exist() -> None:
    with pytest.raises(DefinitionError, match="'lok' forces a call that is not possible: its tools are look"):
        agent(tool_choice="lok")
    with pytest.raises(DefinitionError, match="'required' forces a call that is not possible: it has no tools"):
        agent(tool_choice="required", tools=())


@pytest.mark.parametrize("settings", [{"top_p": 0}, {"top_p": 1.1}, {"tool_choice": ""}])
def test_values_have_limits(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LLMConfig(model="m", **settings)


# --- in a run ---------------------------------------------------------------------------------------------------------


async def choices(made: Agent[Any, Any], *script: Any, **given: Any) -> tuple[list[str], Any]:
    model = ScriptedModel([*script])
    async with LocalExecutor(":memory:", model=model) as executor:
        result = await (await executor.execute(made, "go", **given)).result()
    return [request.tool_choice for request in model.requests], result


@pytest.mark.parametrize("choice", ["required", "look"])
async def test_a_forced_choice_ends_with_the_first_call(choice: str) -> None:
    sent, result = await choices(agent(tool_choice=choice), LOOK, LOOK, "done")
    assert (sent, result.text) == ([choice, "auto", "auto"], "done")


async def test_a_new_message_forces_again_and_a_resumed_run_does_not() -> None:
    @tool(require_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    made = agent(tools=[pay], tool_choice="required")
    call = {"tool_calls": [{"id": "c1", "name": "pay", "arguments": {}}]}
    model = ScriptedModel([call, "done", {"tool_calls": [{"id": "c2", "name": "pay", "arguments": {}}]}])
    async with LocalExecutor(":memory:", model=model) as executor:
        handle = await executor.execute(made, "go", session_id=S)
        assert (await handle.result()).status == "paused"
        handle = await executor.get_handle(made, S)
        resumed = await handle.answer("c1", approved=True)
        assert (await resumed.result()).text == "done"
        await (await executor.execute(made, "again", session_id=S)).result()
    assert [request.tool_choice for request in model.requests] == ["required", "auto", "required"]


async def test_none_forbids_calls_and_gives_an_output_at_once() -> None:
    assert (await choices(agent(tool_choice="none"), "done"))[0] == ["none"]
    made = Agent(
        name="desk",
        system_prompt="Help.",
        tools=[look],
        output_schema=Answer,
        llm_config=LLMConfig(model="m", tool_choice="none"),
    )
    sent, result = await choices(made, {"output": {"text": "hi"}})
    assert (sent, result.output) == (["__finish__"], Answer(text="hi"))


async def test_a_handoff_begins_anew_and_a_tool_that_the_other_agent_lacks_is_not_forced() -> None:
    other = Agent(
        name="other", system_prompt="Help.", tools=[look], llm_config=LLMConfig(model="m", tool_choice="look")
    )
    first = Agent(name="first", system_prompt="Help.", handoffs=[other], model="m")
    hand = {"tool_calls": [{"id": "c0", "name": "transfer_to_other", "arguments": {}}]}
    assert (await choices(first, hand, LOOK, "done"))[0] == ["auto", "look", "auto"]
    given = {"settings": {"tool_choice": "transfer_to_other"}}
    assert (await choices(first, hand, "done", **given))[0] == ["transfer_to_other", "auto"]


async def test_a_run_overrides_the_settings_and_the_next_one_does_not() -> None:
    model = ScriptedModel(["one", "two"])
    made = agent(top_p=0.9, parallel_tool_calls=True)
    async with LocalExecutor(":memory:", model=model) as executor:
        settings = RunSettings(tool_choice="none", top_p=0.1, parallel_tool_calls=False)
        await (await executor.execute(made, "go", session_id=S, settings=settings)).result()
        await (await executor.execute(made, "go on", session_id=S)).result()
    configs = [(r.tool_choice, r.config.top_p, r.config.parallel_tool_calls) for r in model.requests]
    assert configs == [("none", 0.1, False), ("auto", 0.9, True)]


async def test_a_run_that_continues_in_another_process_keeps_the_settings(tmp_path: Any) -> None:
    """They are stored with the run, like the tools that it declares."""

    @tool(require_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    made, path = agent(tools=[pay]), str(tmp_path / "helix.db")
    call = {"tool_calls": [{"id": "c1", "name": "pay", "arguments": {}}]}
    async with LocalExecutor(path, model=ScriptedModel([call])) as executor:
        handle = await executor.execute(made, "go", session_id=S, settings={"top_p": 0.1, "parallel_tool_calls": False})
        assert (await handle.result()).status == "paused"
    model = ScriptedModel(["done", "later"])
    async with LocalExecutor(path, model=model) as executor:
        resumed = await (await executor.get_handle(made, S)).answer("c1", approved=True)
        assert (await resumed.result()).text == "done"
        await (await executor.execute(made, "again", session_id=S)).result()
        context = await executor.sessions.get_context(S, 2)
    assert [(r.config.top_p, r.config.parallel_tool_calls) for r in model.requests] == [(0.1, False), (None, None)]
    own = {"top_p": 0.1, "parallel_tool_calls": False}
    assert context.request is not None and context.request.settings == {**own, "cache": "auto"}


async def test_wrong_settings_of_a_run_are_refused() -> None:
    async with LocalExecutor(":memory:", model=ScriptedModel([])) as executor:
        with pytest.raises(
            DefinitionError, match="the run: settings: 'tool_choise' is not a setting; did you mean 'tool_c"
        ):
            await executor.execute(agent(), "go", session_id=S, settings={"tool_choise": "none"})
        with pytest.raises(InvalidInputError, match="tool_choice 'lok' forces a call that agent 'desk' does not have"):
            await executor.execute(agent(), "go", session_id=S, settings={"tool_choice": "lok"})
        with pytest.raises(InvalidInputError, match="settings: top_p: Input should be less than or equal to 1"):
            await executor.execute(agent(), "go", session_id=S, settings={"top_p": 7})
        assert not await executor.sessions.exists(S)


async def test_a_cached_answer_belongs_to_its_settings() -> None:
    model = ScriptedModel([{"content": text, "model": "m"} for text in ("one", "two", "three")])
    made = agent(tools=(), temperature=0, response_cache=ResponseCacheConfig())
    async with LocalExecutor(":memory:", model=model) as executor:
        for settings in (None, {"top_p": 0.1}, {"top_p": 0.2}, {"top_p": 0.1}):
            await (await executor.execute(made, "go", settings=settings)).result()
    assert len(model.requests) == 3


async def test_a_real_loop_with_a_forced_tool_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    call = ModelAnswer(tool_calls=[ModelToolCall("look", {})])
    with OpenAIServer([call, "done"]) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        async with LocalExecutor(":memory:") as executor:
            made = agent(model=OPENAI.model, tool_choice="required")
            result = await (await executor.execute(made, "go")).result()
    assert result.text == "done"
    assert [request.json["tool_choice"] for request in server.requests] == ["required", "auto"]
    assert server.requests[0].json["tools"][0]["function"]["strict"] is True
