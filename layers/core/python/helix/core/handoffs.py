"""Handoffs: tools by which an agent gives the conversation to another agent.

Law: the agent that is active after a history is the target of the last handoff in it, or the session's own agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from helix.core.checks import require
from helix.core.tools import NAME, AnyTool, Tool

if TYPE_CHECKING:
    from helix.core.agents import Agent

TRANSFER_PREFIX = "transfer_to_"


class _NoInput(BaseModel):
    """The input of a handoff tool, which has no fields."""


@dataclass(frozen=True, slots=True)
class Handoff:
    """An agent that another agent may give the conversation to."""

    agent: Agent[Any, Any] | str
    """The agent, or its name. A name is needed where two agents hand over to each other. It is looked up when the model
    calls the tool."""
    when: str = ""
    """When to hand over, as the model reads it. If empty, the agent's description is used."""
    name: str = ""
    """The name of the tool. If empty, `transfer_to_<agent>`."""

    @property
    def target(self) -> str:
        """The name of the agent."""
        return self.agent if isinstance(self.agent, str) else self.agent.name


def handoff_tools(given: Any, owner: str, giver: Agent[Any, Any]) -> list[AnyTool]:
    """Return the tools for the agents and `Handoff`s in `given`. Raises `DefinitionError`."""
    valid = isinstance(given, Sequence) and not isinstance(given, str)
    require(valid, owner, "handoffs", "must be a list of agents, names of agents, or Handoffs")
    require(not given or giver.function is None, owner, "handoffs", "a function agent has no conversation to hand over")
    return [_tool(one, owner, f"handoffs[{index}]", giver) for index, one in enumerate(given)]


def mismatch(giver: Agent[Any, Any], target: Agent[Any, Any]) -> str | None:
    """Return why `giver` cannot hand over to `target`, or None if it can."""
    if target.name == giver.name:
        return "an agent cannot hand over to itself"
    if target.function is not None:
        return f"{target.name!r} is a function agent, which has no conversation"
    if target.state_schema is not giver.state_schema:
        return f"{target.name!r} has another state_schema; agents of one session share its state: give both the same"
    return None


def _tool(given: Any, owner: str, field: str, giver: Agent[Any, Any]) -> AnyTool:
    from helix.core.agents import Agent as AgentType

    handoff = given if isinstance(given, Handoff) else Handoff(given)
    agent = handoff.agent
    if isinstance(agent, str):
        require(NAME.fullmatch(agent) is not None, owner, field, f"{agent!r} is not the name of an agent")
        require(agent != giver.name, owner, field, "an agent cannot hand over to itself")
    else:
        require(isinstance(agent, AgentType), owner, field, f"{agent!r} is neither an agent nor the name of one")
        problem = mismatch(giver, agent)
        require(problem is None, owner, field, problem or "")
    require(isinstance(handoff.when, str), owner, f"{field}.when", "must be a string")
    described = "" if isinstance(agent, str) else agent.description
    return Tool(
        name=handoff.name or TRANSFER_PREFIX + handoff.target,
        description=" ".join(
            filter(None, [f"Hand the conversation over to {handoff.target}.", handoff.when or described])
        ),
        input_schema=_NoInput,
        kind="handoff",
        agent=None if isinstance(agent, str) else agent,
        hands_to=handoff.target,
        uses_deps=False,
    )
