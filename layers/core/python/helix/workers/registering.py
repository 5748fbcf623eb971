"""Registers agents with a runtime: the served definitions, their sources, and the ownership of a name.

Law: a definition is identified by a digest. Registering the same definition again changes nothing. A different definition
under the same name is refused, here and by the rows. It is accepted if the caller asks to replace the first, or if no live
runtime supervises the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from helix.core.agents import AnyAgent
from helix.core.checks import is_int, is_number, require
from helix.core.errors import DuplicateAgentError
from helix.core.json import JsonObject
from helix.core.resources import ResourceConfig
from helix.fleet.rows import AgentEntry, change_entry, put_entry, read_entry
from helix.ports.clock import Clock
from helix.ports.state_store import ABSENT, StateStore
from helix.runtime.importing import ServedAgent, source_of
from helix.services.row_slots import RowSlots
from helix.workers.config import RuntimeConfig, checked_resources


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits that are passed to `register_llm_agent`."""

    model: str
    """The model that the agent calls."""
    max_tokens: int
    """The maximum number of tokens in one answer."""
    cost_budget: float | None
    """The maximum US dollars that all runs of the agent may spend in an hour. None: no budget."""

    def check(self, owner: str) -> None:
        """Check the limits. Raises `DefinitionError`."""
        require(isinstance(self.model, str) and bool(self.model), owner, "model", "must be the name of a model")
        valid = is_int(self.max_tokens) and self.max_tokens >= 1
        require(valid, owner, "max_tokens", f"must be 1 or more, not {self.max_tokens!r}")
        valid = self.cost_budget is None or (is_number(self.cost_budget) and self.cost_budget > 0)
        problem = f"must be more than 0 US dollars per hour, not {self.cost_budget!r}"
        require(valid, owner, "cost_budget", problem)


@dataclass(frozen=True, slots=True)
class RegistrationOptions:
    """The options with which the caller registered an agent."""

    resources: ResourceConfig | None
    """The resources of the agent's processes. None: the agent's own, or else the runtime's default."""
    bounds: Bounds | None
    """The limits of an agent that `register_llm_agent` registers. None for `register_agent`."""
    replace: bool
    """Whether to replace another definition under the same name."""


@dataclass(frozen=True, slots=True)
class Registered:
    """An agent that this process has registered."""

    served: ServedAgent
    """The source from which worker processes import the definition."""
    agent: AnyAgent
    """The definition itself, in this process."""
    resources: ResourceConfig
    """The resources that apply, after all defaults."""
    cost_budget: float | None
    """The maximum US dollars that all runs of the agent may spend in an hour. None: no budget."""
    digest: str
    """The digest of the definition with its resources and budget. Equal digests mean the same definition."""


class Register(dict[str, Registered]):
    """The agents of one runtime, by id. `is_foreign` tells whether another live runtime supervises an entry."""

    def __init__(self, store: StateStore, clock: Clock, config: RuntimeConfig, slots: RowSlots | None) -> None:
        super().__init__()
        self._store, self._clock, self._config, self._slots = store, clock, config, slots
        self.is_foreign: Callable[[AgentEntry], bool] = lambda entry: entry.supervised(clock.now())

    async def add(self, agent_name: str, agent_callable: Any, asked: RegistrationOptions) -> Registered:
        """Register the agent. Raises `DefinitionError` for a definition that cannot be served, and
        `DuplicateAgentError`."""
        owner, bounds = f"agent {agent_name!r}", asked.bounds
        source = source_of(agent_callable, agent_name)
        served = ServedAgent(agent_name, source)
        if bounds is not None:
            bounds.check(owner)
            served = ServedAgent(agent_name, source, bounds.model, bounds.max_tokens)
        agent = served.load() if isinstance(agent_callable, str) else served.apply_limits(agent_callable)
        own = ResourceConfig.model_validate(agent.resources) if agent.resources else None
        chosen = checked_resources(asked.resources or own or self._config.default_resources, owner)
        cost_budget = bounds.cost_budget if bounds is not None else None
        more: JsonObject = {"resources": chosen.model_dump(mode="json"), "cost_budget": cost_budget}
        known = Registered(served, agent, chosen, cost_budget, served.digest(agent, more))
        before = self.get(agent_name)
        if before is not None and before.digest != known.digest and not asked.replace:
            raise DuplicateAgentError(
                f"{owner} is registered with another definition: choose another id, or pass replace=True"
            )
        await self._write(known, asked.replace)
        self[agent_name] = known
        return known

    async def _write(self, known: Registered, replace: bool) -> None:
        """Write the agent's entry, and its limit."""
        served = known.served
        fields: dict[str, Any] = {
            "definition": known.digest,
            "source": served.source,
            "resources": known.resources.model_dump(mode="json"),
            "model": served.model,
            "max_tokens": served.max_tokens,
            "cost_budget": known.cost_budget,
        }
        while True:
            entry = await read_entry(self._store, served.agent_id)
            if entry is None:
                entry = AgentEntry(agent_id=served.agent_id, created_at=self._clock.now(), **fields)
                if await put_entry(self._store, entry, ABSENT):
                    break
                continue
            if entry.definition == known.digest:
                break
            if self.is_foreign(entry) and not replace:
                raise DuplicateAgentError(
                    f"agent {served.agent_id!r} is supervised by another runtime on this store, with another definition"
                )
            fields["wanted"] = min(entry.wanted, known.resources.max_instances)
            seen = {"definition": entry.definition, "wanted": entry.wanted}
            if await change_entry(self._store, served.agent_id, add=["restarts"], seen=seen, **fields):
                entry = entry.model_copy(update=fields)
                break
        if not entry.stopped and self._slots is not None:
            await self._slots.set_limit(served.agent_id, max(1, entry.wanted))
