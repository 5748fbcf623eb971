"""The agent registry: finds the definition of an agent by its stored name.

Law: a name can be registered only once. An unknown name raises an `AgentNotFoundError` that lists the known names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from helix.core.agents import Agent, AnyAgent
from helix.core.errors import AgentNotFoundError, DefinitionError


@dataclass(frozen=True, slots=True)
class AgentFactoryContext:
    """The context passed to a factory. Every field is optional, so a factory must work without them."""

    env: Mapping[str, str] = field(default_factory=dict)
    """Settings of the process, as passed by the caller of `resolve`."""
    session_id: str | None = None
    """The session for which the agent is created. None if not known."""
    run_id: str | None = None
    """The run for which the agent is created. None if not known."""
    user_id: str | None = None
    """The user for which the agent is created. None if not known."""


AgentFactory = Callable[[AgentFactoryContext], AnyAgent]


class AgentRegistry:
    """A registry of agents, and of factories that create an agent per run, by name.

    A factory must return the same definition for the same context, because a resumed run resolves its agent again.
    """

    def __init__(self) -> None:
        self._agents: dict[str, AnyAgent] = {}
        self._factories: dict[str, AgentFactory] = {}

    def register(self, agent: AnyAgent) -> None:
        """Add an agent. Raises `DefinitionError` if the name is taken, even by the same agent. Use `replace` to
        register it again."""
        self._refuse_taken(_check_agent(agent).name)
        self._agents[agent.name] = agent

    def register_factory(self, name: str, factory: AgentFactory) -> None:
        """Add a factory, which every `resolve` calls. Raises `DefinitionError` if the name is taken."""
        if not callable(factory):
            raise DefinitionError(f"agent {name!r}", "factory", "must be a function of an AgentFactoryContext")
        self._refuse_taken(name)
        self._factories[name] = factory

    def replace(self, agent: AnyAgent) -> None:
        """Register `agent` in place of any agent or factory of its name."""
        self._factories.pop(_check_agent(agent).name, None)
        self._agents[agent.name] = agent

    def resolve(self, name: str, context: AgentFactoryContext | None = None) -> AnyAgent:
        """Return the agent with that name, calling its factory if it has one. Raises `AgentNotFoundError` for an
        unknown name, and `DefinitionError` if the factory returns an agent with a different name."""
        if (agent := self._agents.get(name)) is not None:
            return agent
        factory = self._factories.get(name)
        if factory is None:
            known = ", ".join(self.registered_types()) or "none"
            raise AgentNotFoundError(f"no agent {name!r} is registered in this process; registered: {known}")
        made = factory(context or AgentFactoryContext())
        if not isinstance(made, Agent) or made.name != name:
            raise DefinitionError(f"agent {name!r}", "factory", f"must return an agent of that name, not {made!r}")
        _mark_as_made(made)
        return made

    def get(self, name: str) -> AnyAgent | None:
        """Return the agent registered under `name`. None if the name is unknown or belongs to a factory (see
        `resolve`)."""
        return self._agents.get(name)

    def has(self, name: str) -> bool:
        return name in self._agents or name in self._factories

    def unregister(self, name: str) -> bool:
        """Remove an agent or a factory. Returns False if the name is unknown."""
        agent, factory = self._agents.pop(name, None), self._factories.pop(name, None)
        return agent is not None or factory is not None

    def registered_types(self) -> list[str]:
        """Return the names of agents and factories, sorted."""
        return sorted({*self._agents, *self._factories})

    def first_root(self) -> str | None:
        """Return the name of the agent to offer first: the first one registered that no other agent calls or hands over
        to. If there is none, the first one; None without agents. Factories are not called, and come last."""
        agents = self._agents.values()
        used = {tool.agent.name for agent in agents for tool in agent.tools if tool.agent not in (None, agent)}
        names = [*self._agents, *self._factories]
        return next((name for name in names if name not in used), names[0] if names else None)

    def clear(self) -> None:
        self._agents.clear()
        self._factories.clear()

    def _refuse_taken(self, name: str) -> None:
        if self.has(name):
            raise DefinitionError(f"agent {name!r}", "name", "is registered already: choose another, or use replace")


def _check_agent(agent: Any) -> AnyAgent:
    if not isinstance(agent, Agent):
        raise DefinitionError("registry", "agent", f"{agent!r} is not an Agent")
    return agent


def _mark_as_made(agent: AnyAgent) -> None:
    """Mark the agent and its sub-agents, because their prompts and tools may contain values of the session."""
    if not agent.made_by_factory:
        object.__setattr__(agent, "made_by_factory", True)
        for tool in agent.tools:
            if tool.agent is not None:
                _mark_as_made(tool.agent)


default_registry = AgentRegistry()
"""The default registry. `@client.agent` registers here, and the command line and deployments look up names here."""
