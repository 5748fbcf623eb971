"""The choice of a model: the requested one, the agents' own, or the demonstration model.

Law: the choice imports nothing; `prepare_models` imports what was chosen. A provider counts as available when one of
its own variables is set. For a provider that is not in the table, the variable is `<PROVIDER>_API_KEY`, as for most
providers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from helix.adapters.models.providers import name_problem, provider_of
from helix.core.agents import AnyAgent
from helix.core.config import LLMConfig
from helix.core.errors import DefinitionError, InvalidInputError
from helix.core.prompt import build_effective_tools
from helix.core.states import typed_state
from helix.core.steps import AnyStepResult
from helix.ports.model import BaseAdapter, LLMAdapter, LLMGenerateInput, ToolSpec
from helix.runtime.agent_models import Agents, Models, check_settings
from helix.runtime.importing import load
from helix.runtime.user_adapters import is_adapter

DEMO_NAMES = ("demo", "demonstration")
DEMONSTRATION = "demonstration"
"""The demonstration model's name in stored calls."""
NOT_LANGUAGE_MODELS = (None, DEMONSTRATION, "function")
"""The model names of stored calls that were not answered by a provider."""

_VARIABLES: dict[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "vertex_ai": ("GOOGLE_APPLICATION_CREDENTIALS", "VERTEXAI_PROJECT", "VERTEX_PROJECT"),
    "azure": ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_AD_TOKEN"),
    "azure_ai": ("AZURE_AI_API_KEY",),
    "bedrock": (
        "AWS_ACCESS_KEY_ID",
        "AWS_PROFILE",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ),
    "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY"),
    "fireworks_ai": ("FIREWORKS_AI_API_KEY", "FIREWORKS_API_KEY"),
    "huggingface": ("HF_TOKEN", "HUGGINGFACE_API_KEY"),
    "watsonx": ("WATSONX_APIKEY", "WATSONX_API_KEY", "WATSONX_TOKEN"),
}
_KEYLESS = frozenset({"ollama", "ollama_chat", "lm_studio", "llamafile"})
"""Providers that run on the user's own machine and need no key."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that was chosen for an agent and its sub-agents."""

    adapter: LLMAdapter | None
    """The adapter for `LocalExecutor(model=...)`. None: each agent's own model."""
    name: str | None = None
    """The model that all agents use. None if each agent has its own, or needs none."""
    missing: str | None = None
    """The missing variable, if the demonstration model was chosen because of it. None if it was requested, or another
    model was chosen."""

    @property
    def is_demonstration(self) -> bool:
        return self.name in DEMO_NAMES


def choose_model(agent: AnyAgent, asked_for: str | None, environment: Mapping[str, str]) -> ModelChoice:
    """Return the model for `agent` and its sub-agents. `asked_for` is `demo`, any litellm name, or None. Raises
    `DefinitionError` for a name that does not begin with a known provider. The demonstration model never replaces such
    a model silently."""
    if asked_for in DEMO_NAMES:
        return _demonstration(None)
    from helix.adapters.models.adapter import ModelAdapter

    if asked_for is not None:
        check_model_name(asked_for, environment)
        return ModelChoice(OneModel(ModelAdapter(), asked_for), asked_for)
    for member in _tree(agent):
        config = _config(member)
        if config is None:
            continue
        for model in config.models:
            _check_name(f"agent {member.name!r}", model, config, environment)
        check_settings(member, ModelAdapter(), config)
        for model in member.context.models:
            _check_name(f"agent {member.name!r}", model, LLMConfig(model=model), environment)
        if (lacking := _find_missing_variable(config, environment)) is not None:
            return _demonstration(lacking if member is agent else f"{lacking} (for sub-agent {member.name!r})")
    return ModelChoice(None)


class OneModel(BaseAdapter):
    """An adapter with the same model for every request, whatever the agents' own settings name."""

    def __init__(self, adapter: BaseAdapter, model: str) -> None:
        self._adapter, self._model = adapter, model
        self.repeats_failures, self.batches = adapter.repeats_failures, adapter.batches

    def configured(self, config: LLMConfig) -> LLMConfig:
        return config.model_copy(update={"model": self._model, "fallbacks": [], "route": None})

    def prepare(self, config: LLMConfig) -> None:
        self._adapter.prepare(self.configured(config))

    def refused_setting(self, config: LLMConfig) -> str | None:
        return self._adapter.refused_setting(self.configured(config))

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        return await self._adapter.generate_step(replace(request, config=self.configured(request.config)))


def prepare_models(agents: Agents) -> None:
    """Prepare the adapters of all known agents: import the packages that call their models. This creates no client and
    reads no environment variable, because secrets are read later."""
    registry = agents.registry
    roots = [agent for name in registry.registered_types() if (agent := registry.get(name)) is not None]
    for member in (member for root in roots for member in _tree(root)):
        adapter, config = agents.model_of(member), _config(member)
        if config is not None:
            adapter.prepare(config)
            for model in member.context.models:
                adapter.prepare(LLMConfig(model=model))


@dataclass(frozen=True, slots=True)
class ToolStrictness:
    """Whether a model constrains the arguments of a tool to its schema (docs/guide/models.md#strict-schemas)."""

    agent: str
    """The agent's name."""
    model: str
    """The agent's model. A fallback may decide otherwise."""
    tool: str
    """The tool's name. The output is `__finish__`."""
    strict: bool
    """Whether the tool is strict."""
    reason: str = ""
    """Why it is not strict. Empty if it is."""


def strict_tools_of(agent: AnyAgent) -> Iterator[ToolStrictness]:
    """Yield whether each tool of the agent and of its sub-agents is strict. Raises `DefinitionError` if a model is known to
    refuse a setting."""
    from helix.adapters.models.adapter import ModelAdapter
    from helix.adapters.models.choice import package_of
    from helix.adapters.models.strict_tools import plan_strict, strict_form

    for member in _tree(agent):
        if (config := _config(member)) is None:
            continue
        check_settings(member, ModelAdapter(), config)
        tools = [ToolSpec(t.name, t.description, t.parameters, t.strict) for t in build_effective_tools(member)]
        plan = plan_strict(tools, config, strict_form(config.model, package_of(config.model, config)))
        for tool in tools:
            reason = plan.reasons.get(tool.name, "")
            yield ToolStrictness(member.name, config.model, tool.name, not reason, reason)


def models_of(agent: AnyAgent) -> Iterator[str]:
    """Yield the models of the agent and all its sub-agents at every level, including fallbacks and the models that
    write summaries."""
    for member in _tree(agent):
        if (config := _config(member)) is not None:
            yield from config.models
            yield from member.context.models


def variables_of(model: str) -> tuple[str, ...]:
    """Return the environment variables that provide access to the model; one of them is enough. Empty for a model that
    needs no credentials."""
    provider = provider_of(model)
    if provider in _KEYLESS:
        return ()
    name = provider.upper().replace("-", "_")
    return _VARIABLES.get(provider, (f"{name}_API_KEY", f"{name}_API_BASE"))


def variables_for(models: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return all variables of the models' providers, selected by prefix: OPENAI_API_KEY, OPENAI_BASE_URL."""
    starts: set[str] = set()
    for model in models:
        starts |= {f"{provider_of(model).upper().replace('-', '_')}_"}
        starts |= {f"{name.partition('_')[0]}_" for name in variables_of(model)}
    chosen = tuple(starts - {"AWS_", "HELIX_"})
    return {name: value for name, value in environment.items() if chosen and name.startswith(chosen)}


def _demonstration(missing: str | None) -> ModelChoice:
    from helix.adapters.models.demo import DemonstrationModel

    return ModelChoice(DemonstrationModel(), "demo", missing)


def check_model_name(name: str, environment: Mapping[str, str]) -> None:
    """Refuse a name for the model of all agents if it does not begin with a known provider, because `named_models`
    would not find it. Raises `DefinitionError`."""
    if name and name not in DEMO_NAMES and not name.startswith(IMPORTED):
        _check_name("the model", name, LLMConfig(model=name), environment)


def _check_name(owner: str, model: str, config: LLMConfig, environment: Mapping[str, str]) -> None:
    if (problem := name_problem(model, config, environment)) is not None:
        raise DefinitionError(owner, "model", problem)


def _find_missing_variable(config: LLMConfig, environment: Mapping[str, str]) -> str | None:
    """Return the variable to set before any of the config's models can be called. None if one of them can already be
    called."""
    if any(config.provider_options.get(name) for name in ("api_key", "api_base", "base_url")):
        return None
    for model in config.models:
        names = variables_of(model)
        if not names or any(environment.get(name) for name in names):
            return None
    return variables_of(config.model)[0]


def _config(agent: AnyAgent) -> LLMConfig | None:
    """Return the agent's config; if it depends on the state, the config for a new session. None for an agent that needs
    no model."""
    if agent.function is not None or not callable(agent.llm_config):
        return agent.llm_config if isinstance(agent.llm_config, LLMConfig) else None
    try:
        return agent.llm_config(typed_state(agent, agent.initial_state()))
    except Exception:
        return None  # the agent's own function fails, and its run reports that in detail


def _tree(agent: AnyAgent) -> Iterator[AnyAgent]:
    """Yield the agent and all its sub-agents at every level, each once."""
    seen: set[str] = set()
    stack = [agent]
    while stack:
        member = stack.pop()
        if member.name not in seen:
            seen.add(member.name)
            yield member
            stack.extend(tool.agent for tool in reversed(member.tools) if tool.agent is not None)


IMPORTED = "import:"


def named_models(name: str | None) -> Models | None:
    """Return the models with that name: `import:module:attribute` (an adapter, or a function agent -> adapter), `demo`,
    or any litellm name. None if the name is empty, because each agent then has its own model. Raises
    `InvalidInputError` if nothing has that name."""
    if not name:
        return None
    if name.startswith(IMPORTED):
        place = name.removeprefix(IMPORTED)
        found: Models = load(place)
        if not callable(found) and not is_adapter(found):
            raise InvalidInputError(f"the model {place!r} is neither an adapter nor a function of an agent")
        return found

    @cache
    def chosen(agent: AnyAgent) -> LLMAdapter:
        adapter = choose_model(agent, name, os.environ).adapter
        assert adapter is not None, "a model was asked for by name"
        return adapter

    return chosen
