"""Which model plays is decided by names and the environment alone."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import BaseModel

from helix import Agent, AgentClient, LLMConfig, create_sub_agent_tool
from helix.adapters.models.demo import DemonstrationModel
from helix.core.agents import AnyAgent
from helix.core.registry import AgentRegistry
from helix.core.steps import AnyStepResult, TextStepResult
from helix.ports.model import LLMGenerateInput
from helix.runtime.models import OneModel, choose_model, provider_of, variables_of


class Task(BaseModel):
    task: str


class Answer(BaseModel):
    text: str


def agent(model: str, **fields: object) -> AnyAgent:
    return Agent(name="a", system_prompt="Help.", llm_config=LLMConfig.model_validate({"model": model, **fields}))


def pair(model: str, child_model: str) -> AnyAgent:
    config = LLMConfig(model=child_model)
    child: AnyAgent = Agent(name="child", system_prompt="Help.", output_schema=Answer, llm_config=config)
    tools = [create_sub_agent_tool(child, Task)]
    return Agent(name="a", system_prompt="Help.", tools=tools, llm_config=LLMConfig(model=model))


@pytest.mark.parametrize(
    ("model", "provider", "variable"),
    [
        ("openai/gpt-4o-mini", "openai", "OPENAI_API_KEY"),
        ("gpt-4o", "openai", "OPENAI_API_KEY"),
        ("o3-mini", "openai", "OPENAI_API_KEY"),
        ("anthropic/claude-sonnet-4-5", "anthropic", "ANTHROPIC_API_KEY"),
        ("claude-sonnet-4-5", "anthropic", "ANTHROPIC_API_KEY"),
        ("gemini/gemini-2.5-pro", "gemini", "GEMINI_API_KEY"),
        ("bedrock/anthropic.claude-v2", "bedrock", "AWS_PROFILE"),
        ("some-new/model", "some-new", "SOME_NEW_API_KEY"),
    ],
)
def test_a_model_belongs_to_a_provider_with_variables(model: str, provider: str, variable: str) -> None:
    assert provider_of(model) == provider
    assert variable in variables_of(model)
    assert choose_model(agent(model), None, {}).is_demonstration
    assert choose_model(agent(model), None, {variable: "x"}).adapter is None
    assert choose_model(agent(model), None, {variable: ""}).is_demonstration


def test_what_needs_no_credentials_plays_itself() -> None:
    assert choose_model(agent("ollama/llama3"), None, {}).adapter is None
    assert (
        choose_model(agent("openai/x", provider_options={"api_base": "http://localhost:1"}), None, {}).adapter is None
    )
    assert choose_model(agent("openai/x", fallbacks=["ollama/llama3"]), None, {}).adapter is None

    @AgentClient(registry=AgentRegistry()).agent(name="function")
    async def function(text: str) -> str:
        return text

    assert choose_model(function, None, {}).adapter is None


def test_a_local_server_is_enough() -> None:
    assert choose_model(agent("gpt-4o"), None, {"OPENAI_BASE_URL": "http://localhost:1"}).adapter is None


def test_one_agent_without_credentials_is_enough_for_the_demonstration() -> None:
    both = pair("openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5")
    choice = choose_model(both, None, {"OPENAI_API_KEY": "x"})
    assert isinstance(choice.adapter, DemonstrationModel)
    assert choice.missing == "ANTHROPIC_API_KEY (for sub-agent 'child')"
    assert choose_model(both, None, {"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "x"}).adapter is None


def test_a_config_that_depends_on_the_state_is_asked_for_a_new_session() -> None:
    dynamic: AnyAgent = Agent(name="a", system_prompt="Help.", llm_config=lambda state: LLMConfig(model="gpt-4o"))
    assert choose_model(dynamic, None, {}).missing == "OPENAI_API_KEY"
    broken: AnyAgent = Agent(name="a", system_prompt="Help.", llm_config=lambda state: state["no"])
    assert choose_model(broken, None, {}).adapter is None  # its run reports what its function raises


def test_the_demonstration_model_can_be_asked_for() -> None:
    choice = choose_model(agent("gpt-4o"), "demo", {"OPENAI_API_KEY": "x"})
    assert (choice.is_demonstration, choice.missing) == (True, None)


async def test_a_model_asked_for_plays_for_every_agent_without_its_fallbacks() -> None:
    class Heard:
        config = LLMConfig(model="none")

        async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
            self.config = request.config
            return TextStepResult(content="")

    heard = Heard()
    config = LLMConfig(model="openai/gpt-4o-mini", fallbacks=["gpt-4o"], temperature=0.5)
    request = LLMGenerateInput(messages=(), tools=(), config=config, agent_id="s", agent_type="a")
    await OneModel(heard, "anthropic/claude-sonnet-4-5").generate_step(request)
    assert (heard.config.model, heard.config.fallbacks) == ("anthropic/claude-sonnet-4-5", [])
    assert heard.config.temperature == 0.5
    choice = choose_model(agent("gpt-4o"), "anthropic/claude-sonnet-4-5", {})
    assert (choice.name, choice.is_demonstration) == ("anthropic/claude-sonnet-4-5", False)


def test_choosing_imports_no_model_library() -> None:
    code = (
        "import sys; from helix import Agent, LLMConfig; from helix.runtime.models import choose_model\n"
        "agent = Agent(name='a', system_prompt='x', llm_config=LLMConfig(model='gpt-4o'))\n"
        "for asked, env in ((None, {}), ('gpt-4o', {}), (None, {'OPENAI_API_KEY': 'x'})):\n"
        "    choose_model(agent, asked, env)\n"
        "print('litellm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
