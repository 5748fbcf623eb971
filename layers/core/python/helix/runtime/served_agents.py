"""An agent as the fleet serves it: what was registered, made anew in each worker process from where it stands.

Law: the same definition gives the same agent in every process. What was asked for at registration (its id, a model, the
longest answer) is part of the agent, so it holds for every call, whoever makes it.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from helix.core.agents import Agent, AnyAgent
from helix.core.config import LLMConfig
from helix.core.errors import DefinitionError
from helix.core.functions import AgentClient
from helix.core.json import JsonObject, dumps
from helix.core.registry import AgentRegistry
from helix.runtime.importing import load, place_of


@dataclass(frozen=True, slots=True)
class ServedAgent:
    """source: where the agent or the function stands, as `module:attribute` or `file.py:attribute`. model, max_tokens: what
    takes the place of, and bounds, the agent's own settings."""

    agent_id: str
    source: str
    model: str | None = None
    max_tokens: int | None = None

    def dump(self) -> JsonObject:
        return {"agent_id": self.agent_id, "source": self.source, "model": self.model, "max_tokens": self.max_tokens}

    @classmethod
    def of(cls, value: JsonObject) -> ServedAgent:
        names = ("agent_id", "source", "model", "max_tokens")
        return cls(**{name: value.get(name) for name in names})  # type: ignore[arg-type]

    def load(self) -> AnyAgent:
        """Runs the user's code. Raises `DefinitionError`, and whatever that code raises."""
        return self.made_of(load(self.source))

    def made_of(self, found: Any) -> AnyAgent:
        agent = agent_of(found, self.agent_id)
        if self.model is not None or self.max_tokens is not None:
            agent = bounded(agent, self.model, self.max_tokens)
        return agent

    def digest(self, agent: AnyAgent, more: JsonObject) -> str:
        """Changes when what is served changes; `more` is what else the definition says."""
        told = {**self.dump(), "fingerprint": agent.fingerprint(), **more}
        return hashlib.sha256(dumps(told).encode()).hexdigest()[:16]


def source_of(agent_callable: Any, agent_id: str) -> str:
    """Where worker processes find it. A text is taken as that place."""
    if isinstance(agent_callable, str):
        return agent_callable
    place = place_of(agent_callable)
    if place is None and isinstance(agent_callable, Agent) and agent_callable.function is not None:
        inner = agent_callable.function.function
        place = place_of(inner) if inner is not None else None
    if place is None:
        problem = "stands in no module: worker processes import it, so make it a variable or function of a module"
        raise DefinitionError(f"agent {agent_id!r}", "agent_callable", problem)
    return place


def agent_of(found: Any, agent_id: str) -> AnyAgent:
    """The agent under its id: a session finds its agent by that name."""
    if isinstance(found, Agent):
        return found if found.name == agent_id else replace(found, name=agent_id)
    if inspect.iscoroutinefunction(found):
        return AgentClient(registry=AgentRegistry()).agent(agent_id)(found)
    problem = f"must be an Agent or an async function, not {found!r}"
    raise DefinitionError(f"agent {agent_id!r}", "agent_callable", problem)


def bounded(agent: AnyAgent, model: str | None, max_tokens: int | None) -> AnyAgent:
    """The agent with that model, and no answer longer than `max_tokens`."""
    if agent.function is not None:
        advice = "register it with register_agent, or give an Agent"
        problem = f"is a function, and what it asks of models is not seen here: {advice}"
        raise DefinitionError(f"agent {agent.name!r}", "agent_callable", problem)
    own: LLMConfig | Callable[[Any], LLMConfig] | None = agent.llm_config

    def config(given: LLMConfig) -> LLMConfig:
        changes: dict[str, Any] = {}
        if model is not None:
            changes |= {"model": model, "route": None, "fallbacks": []}
        if max_tokens is not None:
            changes["max_output_tokens"] = min(given.max_output_tokens or max_tokens, max_tokens)
        return given.model_copy(update=changes)

    if isinstance(own, LLMConfig):
        return replace(agent, llm_config=config(own))
    assert own is not None
    return replace(agent, llm_config=lambda state: config(own(state)))
