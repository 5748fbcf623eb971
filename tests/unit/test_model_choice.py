"""The choice of the model depends only on names and the environment."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from pydantic import BaseModel, ValidationError

from helix import Agent, AgentClient, LLMConfig, create_sub_agent_tool
from helix.adapters.models.catalog import chat_models
from helix.adapters.models.demo import DemonstrationModel
from helix.adapters.models.providers import PROVIDERS, name_problem, provider_of
from helix.core.agents import AnyAgent
from helix.core.context_policy import Clear, Context, Policy, Summarise
from helix.core.errors import DefinitionError
from helix.core.registry import AgentRegistry
from helix.core.routes import Route
from helix.core.steps import AnyStepResult, TextStepResult
from helix.ports.model import BaseAdapter, LLMGenerateInput
from helix.runtime.importing import with_limits
from helix.runtime.models import OneModel, choose_model, variables_of


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
    assert choose_model(agent(model), None, {variable: "x"}).adapter is None
    if provider in PROVIDERS:
        assert choose_model(agent(model), None, {}).is_demonstration
        assert choose_model(agent(model), None, {variable: ""}).is_demonstration


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (
            "opnai/gpt-4o-mini",
            "'opnai' is not a provider that Helix or litellm knows; did you mean 'openai/gpt-4o-mini'?",
        ),
        ("antropic/claude-sonnet-4-5", "did you mean 'anthropic/claude-sonnet-4-5'?"),
        ("some-new/model", "'some-new' is not a provider that Helix or litellm knows"),
        (
            "gpt4o",
            "does not name a provider; write <provider>/<model>, such as openai/gpt-4o-mini; did you mean 'gpt-4o'?",
        ),
        ("nonsense", "'nonsense' does not name a provider"),
    ],
)
def test_a_name_without_a_known_provider_is_refused(model: str, problem: str) -> None:
    """The name is refused even if a variable is set that no provider reads. The demonstration model does not replace it."""
    routed = agent("gpt-4o", route=Route(models=("gpt-4o", model)))
    for asked, who, owner in (
        (None, agent(model), "agent 'a'"),
        (None, agent("gpt-4o", fallbacks=[model]), "agent 'a'"),
        (None, routed, "agent 'a'"),
        (None, replace(agent("gpt-4o"), context=Context(summariser=model)), "agent 'a'"),
        (None, pair("gpt-4o", model), "agent 'child'"),
        (model, agent("gpt-4o"), "the model"),
    ):
        with pytest.raises(DefinitionError) as raised:
            choose_model(who, asked, {"OPENAI_API_KEY": "x"})
        assert str(raised.value).startswith(f"{owner}: model: ") and problem in str(raised.value)
    assert choose_model(agent(model), "demo", {}).is_demonstration
    options = {"api_base": "http://localhost:1"}
    assert choose_model(agent(model, provider_options=options), None, {"OPENAI_API_KEY": "x"}).adapter is None
    # the program configures the provider through litellm
    own = {"adapter": "litellm", "provider_options": {"api_key": "x"}}
    assert choose_model(agent(model, **own), None, {}).adapter is None


def test_every_provider_and_model_of_litellm_is_known() -> None:
    """Otherwise a name that litellm accepts would be reported as a mistake."""
    from litellm.types.utils import LlmProviders

    assert {provider.value for provider in LlmProviders} <= PROVIDERS, "add them to helix.adapters.models.providers"
    for model in ["ft:gpt-4o-mini:org::1", "deepseek-chat", "openai/ft:x", *chat_models()]:
        assert name_problem(model, LLMConfig(model=model), {}) is None, model


@pytest.mark.parametrize("name", ["tool_choice", "tools", "messages", "model", "stream", "num_retries", "max_retries"])
def test_an_option_that_helix_sets_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=f"provider_options has '{name}', which Helix sets for each call: "):
        LLMConfig(model="gpt-4o", provider_options={"seed": 7, name: "auto"})


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
    assert choose_model(broken, None, {}).adapter is None  # the run reports the function's exception


def test_the_demonstration_model_can_be_asked_for() -> None:
    choice = choose_model(agent("gpt-4o"), "demo", {"OPENAI_API_KEY": "x"})
    assert (choice.is_demonstration, choice.missing) == (True, None)


async def test_a_model_asked_for_plays_for_every_agent_without_its_fallbacks() -> None:
    class Heard(BaseAdapter):
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


def test_a_model_for_an_agent_also_writes_its_summaries() -> None:
    own: Policy = lambda shown: Clear(0)  # noqa: E731
    context = Context(summariser="openai/gpt-4o", policies=[Summarise(model="openai/gpt-4o"), own])
    who = replace(agent("gpt-4o"), context=context)
    assert with_limits(who, None, 100).context == context
    changed = with_limits(who, "openai/x", None).context
    assert changed == Context(summariser="same", policies=[Summarise(), own]) and changed.models == []
    assert with_limits(agent("gpt-4o"), "openai/x", None).context == Context()
