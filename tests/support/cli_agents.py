"""Agents for the tests of the command line. They are loaded by path, like a user's file."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from helix import Agent, AgentClient, LLMConfig, ToolContext, ToolError, create_sub_agent_tool, tool

MODEL = LLMConfig(model="openai/gpt-4o-mini", max_retries=0)


class Report(BaseModel):
    summary: str


class Task(BaseModel):
    task: str


class Log(BaseModel):
    refunded: list[str] = []


@tool(require_approval=True)
async def refund_order(order: str, ctx: ToolContext[Log]) -> str:
    """Refund an order."""
    print("the tool prints this")
    ctx.update_state(lambda log: log.refunded.append(order))
    return f"refunded {order}"


desk = Agent(
    name="desk", system_prompt="Help.", tools=[refund_order], state_schema=Log, output_schema=Report, llm_config=MODEL
)
boss = Agent(name="boss", system_prompt="Delegate.", tools=[create_sub_agent_tool(desk, Task)], llm_config=MODEL)


@tool
async def watch_gate() -> str:
    """Watch the gate until it opens: until the file `open` is there."""
    return await _until("open")


guard = Agent(name="guard", system_prompt="Watch.", tools=[watch_gate], llm_config=MODEL)
talker = Agent(name="talker", system_prompt="Talk.", llm_config=MODEL)

client = AgentClient()


@client.agent(name="gate-keeper")
async def gate(name: str) -> str:
    """Ends when the file `name` is there. A run that takes over finds it; each execution leaves a line in `executions`."""
    return await _until(name)


async def _until(name: str) -> str:
    await asyncio.to_thread(_note_execution)
    while not Path(name).exists():  # another process creates it
        await asyncio.sleep(0.02)
    return f"{name} is open"


def _note_execution() -> None:
    with Path("executions").open("a") as file:
        file.write(f"{os.getpid()}\n")


@client.agent(name="stubborn")
async def stubborn(seconds: float) -> str:
    """Sleep in a thread that cannot be cancelled."""
    await asyncio.to_thread(time.sleep, seconds)
    return "awake"


@client.agent(name="broken")
async def broken(text: str) -> str:
    """Fails until the file `mended` is there."""
    if not Path("mended").exists():
        raise ToolError(f"cannot do {text}")
    return f"did {text}"


not_an_agent: Any = refund_order
