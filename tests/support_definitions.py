"""Helpers that tests of definitions share: an agent, its schemas, a tool and two plain functions."""

from typing import Any

from pydantic import BaseModel

from helix.core.agents import Agent
from helix.core.config import LLMConfig
from helix.core.context import ToolContext
from helix.core.tools import tool

MODEL = LLMConfig(model="openai/gpt-4o-mini")


class Notes(BaseModel):
    looked_up: list[str] = []


class Answer(BaseModel):
    summary: str
    sources: list[str] = []


class Place(BaseModel):
    city: str
    zip: str = ""


@tool
async def lookup(topic: str, ctx: ToolContext[Notes]) -> str:
    """Look a topic up."""
    ctx.update_state(lambda notes: notes.looked_up.append(topic))
    return f"{topic}: known"


def agent(**changes: Any) -> Agent[Any, Any]:
    return Agent(**{"name": "researcher", "system_prompt": "Look up.", "llm_config": MODEL, **changes})


def plain(x: int) -> str:
    """Plain."""
    return str(x)


async def plain_async(x: Any) -> bool:
    return bool(x)
