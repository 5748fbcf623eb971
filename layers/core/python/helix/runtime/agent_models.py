"""The agents of a process, and their models. They are separate from the executor, because most deployed functions do
not need an executor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from helix.adapters.models.function import FunctionModel
from helix.core.agents import Agent, AnyAgent
from helix.core.config import LLMConfig
from helix.core.declared_tools import declare_run
from helix.core.errors import AgentNotFoundError, DefinitionError, InvalidInputError
from helix.core.frontend_tools import GivenTool
from helix.core.registry import AgentRegistry, default_registry
from helix.core.request_heads import HeadRow
from helix.core.run_settings import GivenSettings, read_settings
from helix.ports.model import BaseAdapter, LLMAdapter
from helix.runtime.user_adapters import complete_adapter, is_adapter


def check_settings(agent: AnyAgent, adapter: BaseAdapter, config: LLMConfig) -> None:
    """Raise `DefinitionError` if the agent's model is known to refuse a setting of its config."""
    if (problem := adapter.refused_setting(config)) is not None:
        raise DefinitionError(f"agent {agent.name!r}", "llm_config", problem)


Models = LLMAdapter | Callable[[AnyAgent], LLMAdapter]


class Agents:
    """The agents that a process knows, and the model of each. Agents that the caller passes take precedence over the
    registry's."""

    def __init__(self, registry: AgentRegistry | None, model: Models | None) -> None:
        self.registry = registry if registry is not None else default_registry
        self._known: dict[str, AnyAgent] = {}
        self._model = model

    def know(self, agent: AnyAgent) -> None:
        if not isinstance(agent, Agent):
            raise InvalidInputError(f"{agent!r} is not an Agent")
        if isinstance(agent.llm_config, LLMConfig) and self._known.get(agent.name) is not agent:
            check_settings(agent, self.model_of(agent), agent.llm_config)
        self._known[agent.name] = agent

    def declare(
        self, agent: AnyAgent, tools: Sequence[GivenTool] | None, given: GivenSettings | None
    ) -> HeadRow | None:
        """Return the declaration of a run (`core.declared_tools`). Raises `InvalidInputError` for a setting that the
        agent's model refuses."""
        settings = read_settings(given)
        declared = declare_run(agent, tools, settings)
        if settings is not None and isinstance(agent.llm_config, LLMConfig):
            config = agent.llm_config.model_copy(update=settings.changes)
            if (problem := self.model_of(agent).refused_setting(config)) is not None:
                raise InvalidInputError(f"settings: {problem}")
        return declared

    def named(self, name: str) -> AnyAgent:
        """Return the agent with that name. Raises `AgentNotFoundError`."""
        for known in self._known.values():
            found = known.find_agent(name)
            if found is not None:
                return found
        try:
            return self.registry.resolve(name)
        except AgentNotFoundError:
            for root in self.registry.registered_types():  # a sub-agent is found through its parent
                agent = self.registry.get(root)
                found = agent.find_agent(name) if agent is not None else None
                if found is not None:
                    return found
            raise

    def model_of(self, agent: AnyAgent) -> BaseAdapter:
        if agent.function is not None:
            return FunctionModel(agent)
        model = self._model
        if model is None:
            from helix.adapters.models.adapter import ModelAdapter

            self._model = model = ModelAdapter()
        return complete_adapter(model if is_adapter(model) else model(agent))
