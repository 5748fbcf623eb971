"""The reply of the WebSocket protocol about the agents that a client may run."""

from __future__ import annotations

from typing import Literal

from helix.core.json import JsonObject
from helix.core.messages import Record


class AgentFound(Record):
    """An agent that `run` accepts."""

    name: str
    """The name to pass to `run` as `agent`."""
    description: str
    """The description from the agent's definition."""
    examples: list[str]
    """Messages that a person may begin with. Often empty."""
    kind: Literal["chat", "function"]
    """`chat`: a model answers a message. `function`: a Python function is called with `input`."""
    input: JsonObject
    """The JSON schema of the fields that `run` accepts besides `agent`: `message` and `state`, or `input`."""
    output: JsonObject
    """The JSON schema of the result's output. Empty if a function agent does not declare one."""


class AgentList(Record):
    """The result of `list_agents`."""

    first: str | None
    """The agent to offer first: the first that the project registered and that no other agent calls or hands over to. None
    without agents."""
    agents: list[AgentFound]
    """A page of agents, sorted by name."""
    cursor: str | None
    """The value of `after` for the next page. None on the last page."""
