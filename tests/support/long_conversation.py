"""An agent whose conversation outgrows its model's window, and its scripted model."""

from __future__ import annotations

from typing import Any

from tests.support_run import agent

from helix import Agent, ScriptedModel, tool
from helix.core.context_policy import Context

SUMMARY = "The user wants to see everything."
LAST = "That is everything."
STEPS = 12
CLEARS = Context(window=9_000, clear_at=0.5, keep_steps=2)
SUMMARISES = Context(window=9_000, clear_at=None, summarise_at=0.6, keep_steps=2, summariser="same")


@tool
async def look(number: int) -> str:
    """Look at something long."""
    return f"{number}: " + "word " * 700


def looking_agent(context: Context) -> Agent[Any, Any]:
    return agent("looker", tools=[look], context=context)


def looking_model() -> ScriptedModel:
    """Return a model that looks in each step but the last, and answers `SUMMARY` if it is asked for a summary."""
    looked = 0

    def answer(request: Any) -> dict[str, Any]:
        nonlocal looked
        if "Write a summary" in (request.messages[-1].content or ""):
            return {"content": SUMMARY}
        looked += 1
        if looked == STEPS:
            return {"content": LAST}
        return {"tool_calls": [{"id": f"call_{looked}", "name": "look", "arguments": {"number": looked}}]}

    return ScriptedModel([answer], repeat=True)
