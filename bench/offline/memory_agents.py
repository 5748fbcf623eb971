"""What `bench/cold_start.py --memory` deploys: the same agent three times, each with functions of its own and with another
package that calls its model."""

from __future__ import annotations

import asyncio
import os

from pydantic import BaseModel

from helix import Agent, LLMConfig, define_tool
from helix.adapters.models.adapter import ModelAdapter
from helix.adapters.models.litellm import LiteLLMAdapter
from helix.core.agents import AnyAgent
from helix.core.registry import default_registry
from helix.core.steps import AnyStepResult, ParsedToolCall, TextStepResult, ToolCallsStepResult
from helix.ports.model import LLMAdapter, LLMGenerateInput

SERVER = "HELIX_BENCH_SERVER"
PACKAGES = ("none", "openai", "litellm")


class Look(BaseModel):
    where: str


class Plain:
    """A model in this process: one call, then a text."""

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        await asyncio.sleep(0.2)
        if request.messages[-1].role == "tool":
            return TextStepResult(content="It is there. " * 50)
        return ToolCallsStepResult(
            content="", tool_calls=[ParsedToolCall(id="c", name="look", arguments={"where": "x"})]
        )


ADAPTERS: dict[str, LLMAdapter] = {"none": Plain(), "openai": ModelAdapter(), "litellm": LiteLLMAdapter()}


def model(agent: AnyAgent) -> LLMAdapter:
    return ADAPTERS[agent.name]


def look(given: Look, ctx: object) -> str:
    return "A page of text. " * 200


for package in PACKAGES:
    options = {"api_base": f"{os.environ.get(SERVER, 'http://127.0.0.1:9')}/v1", "api_key": "bench"}
    tool = define_tool(name="look", description="Look around.", input_schema=Look, execute=look)
    default_registry.replace(
        Agent(
            name=package,
            system_prompt="You look around.",
            llm_config=LLMConfig(model="openai/gpt-4o-mini", provider_options=options),
            tools=[tool],
            resources={"memory": 512},
        )
    )
