"""The agent that `helix check --stage` runs in a deployed stage. A program replaces its model, so it costs no tokens.

Law: the message only chooses among the scripts below. Their calls only count, and wait for a limited time. So the agent is
safe in every stage, for every caller who may run agents there.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Any, Literal

from helix._version import __version__
from helix.adapters.models.scripted import Entry, ScriptedModel
from helix.core.agents import Agent, AnyAgent
from helix.core.config import LLMConfig
from helix.core.messages import ToolResultMessage, UserMessage
from helix.core.steps import AnyStepResult
from helix.core.tools import tool
from helix.ports.model import BaseAdapter, LLMGenerateInput
from helix.runtime.cloud import CHECK_AGENT

CALLS = 40
SHORT_PAUSES, SHORT_S, LONG_PAUSES, LONG_S = 100, 1, 6, 15
"""Both scripts last about as long as a check waits, so that an interrupt or a stop arrives in time even on a slow stage."""
Script = Literal["message", "calls", "pauses", "wait"]
"""The first word of the message."""


@tool
async def number(value: int) -> int:
    """Return the value."""
    return value


@tool(timeout_s=60)
async def pause(seconds: int) -> str:
    """Wait, for a quarter of a minute at most."""
    await asyncio.sleep(min(max(seconds, 0), LONG_S))
    return "waited"


def _describe_message(request: LLMGenerateInput) -> str:
    """Return the version, and the length of the message."""
    return f"{__version__} {len(_message(request))}"


def _count_successes(request: LLMGenerateInput) -> str:
    return str(sum(isinstance(m, ToolResultMessage) and m.success for m in request.messages))


def _message(request: LLMGenerateInput) -> str:
    return next((m.content or "" for m in reversed(request.messages) if isinstance(m, UserMessage)), "")


def _calls(name: str, *arguments: dict[str, Any]) -> Entry:
    return {"tool_calls": [{"name": name, "arguments": each} for each in arguments]}


SCRIPTS: dict[Script, list[Entry]] = {
    "message": [_describe_message],
    "calls": [_calls("number", *({"value": n} for n in range(CALLS))), _count_successes],
    "pauses": [*[_calls("pause", {"seconds": SHORT_S})] * SHORT_PAUSES, "done"],
    "wait": [*[_calls("pause", {"seconds": LONG_S})] * LONG_PAUSES, "done"],
}


class CheckModel(BaseAdapter):
    """An adapter that answers with the script that the message names, or the first script otherwise."""

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        word = _message(request).partition(" ")[0]
        script = next((entries for name, entries in SCRIPTS.items() if name == word), SCRIPTS["message"])
        model = ScriptedModel(script, by="position", repeat=True, record=False, model="demonstration")
        return await model.generate_step(request)


@lru_cache(maxsize=1)
def check_agent() -> AnyAgent:
    return Agent(
        name=CHECK_AGENT,
        system_prompt="A program answers: it checks a deployed stage.",
        tools=[number, pause],
        llm_config=LLMConfig(model="demonstration"),
        max_steps=SHORT_PAUSES + 2,
    )


def check_model() -> BaseAdapter:
    return CheckModel()
