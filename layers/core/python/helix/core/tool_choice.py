"""The tool choice of a step: the agent's or the run's, until the model has called a tool.

Law: a forced choice holds until the model has called a tool since the user's last message, or since the handoff to its
agent. It is `auto` afterwards, because a model that must call a tool at every step never answers. The decision depends
only on the history, so a takeover makes the same one.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from helix.core.agents import AnyAgent
from helix.core.json import dumps
from helix.core.messages import AnyMessage, AssistantMessage, ToolResultMessage, UserMessage
from helix.core.run_settings import CHOICES
from helix.core.tools import FINISH_TOOL_NAME

AUTO: Final = "auto"


def choice_of_step(choice: str, agent: AnyAgent, tools: Container[str], history: Sequence[AnyMessage]) -> str:
    """Return the choice to send. `tools`: the names of the tools that the model is offered. `none` forces the output of
    an agent that has an output schema. A tool that is not offered, because another agent is active, is not forced."""
    match choice:
        case "none":
            return FINISH_TOOL_NAME if agent.finish_tool is not None else choice
        case "auto":
            return choice
        case _ if choice not in CHOICES and choice not in tools:
            return AUTO
        case _:
            return AUTO if _has_called(agent, history) else choice


def _has_called(agent: AnyAgent, history: Sequence[AnyMessage]) -> bool:
    """Return whether the model has called a tool since the user's last message, as this agent."""
    begin = dumps({"transferred_to": agent.name})
    for message in reversed(history):
        match message:
            case UserMessage() if message.id:
                return False
            case ToolResultMessage() if message.content == begin:
                return False
            case AssistantMessage() if message.tool_calls:
                return True
            case _:
                pass
    return False
