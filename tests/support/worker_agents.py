"""The agents that worker processes serve in tests. The message says what a run does, and its actions are appended to a
file.

notes 3            three steps with one `note` each, then "Done."
notes 3 block 2    the same; the model blocks forever at its second answer, the first time it is asked for it
tool hog           one call of that tool, then "Done."
children 3         three calls of the sub-agent at once, then "Done."
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from helix import Agent, AgentClient, LLMConfig, Question, ScriptedModel, ToolContext, create_sub_agent_tool, tool
from helix.core.messages import AssistantMessage, UserMessage
from helix.core.registry import AgentRegistry

FOLDER = "HELIX_TEST_FOLDER"


def log(line: str) -> int:
    """Append a line, and return how often the file has it now."""
    path = Path(os.environ[FOLDER]) / "log.txt"
    with path.open("a") as file:
        file.write(line + "\n")
    return path.read_text().splitlines().count(line)


def logged(folder: Path) -> list[str]:
    path = folder / "log.txt"
    return path.read_text().splitlines() if path.exists() else []


@tool
def note(text: str) -> str:
    """Note a text."""
    log(f"note {text}")
    return text


@tool
async def hog() -> str:
    """Take memory, and keep it."""
    log("hog")
    kept = bytearray(300 * 1024 * 1024)
    kept[::4096] = b"x" * len(kept[::4096])
    await asyncio.sleep(3600)
    return str(len(kept))


@tool
async def die() -> str:
    """End the process."""
    log("die")
    os._exit(7)


@tool
async def burn() -> str:
    """Compute for two seconds."""
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        sum(range(20_000))
        await asyncio.sleep(0)
    return "burnt"


@tool
async def swallow() -> str:
    """Run a command that reads its standard input to the end."""
    await (await asyncio.create_subprocess_exec("cat", stdout=asyncio.subprocess.DEVNULL)).wait()
    return "swallowed"


def stand_still() -> None:
    log(f"child {subprocess.Popen(['sleep', '600']).pid}")
    time.sleep(600)


@tool
async def deaf() -> str:
    """Start a command, and block the whole process."""
    stand_still()
    return "never"


@asynccontextmanager
async def pool() -> AsyncIterator[int]:
    log("pool opened")
    yield os.getpid()
    log("pool closed")


@tool
async def borrow(ctx: ToolContext[Any, int]) -> int:
    """Borrow from the pool."""
    log(f"borrowed in process {ctx.deps}")
    return ctx.deps


@tool
async def book(ctx: ToolContext) -> str:
    """Ask twice, then book."""
    log("book")
    seat = await ctx.ask(Question("Which seat?", choices=["window", "aisle"]))
    if seat == "window" and log("dies") == 1:
        os._exit(7)
    return f"{seat} for {await ctx.ask(Question('For whom?', remind_s=0.5, timeout_s=60))}"


async def answer(request: Any) -> Any:
    asked = [message for message in request.messages if isinstance(message, UserMessage)][-1]
    since = request.messages[request.messages.index(asked) :]
    step = sum(isinstance(message, AssistantMessage) for message in since) + 1
    words = asked.content.split()
    if words[:1] == ["leaf"]:
        return {"tool_calls": [{"name": "__finish__", "arguments": {"text": asked.content}}]}
    if "block" in words and step == int(words[words.index("block") + 1]) and log(f"asked {asked.content}") == 1:
        await asyncio.Event().wait()
    match words:
        case ["notes", count, *_] if step <= int(count):
            return {"tool_calls": [{"name": "note", "arguments": {"text": str(step)}}]}
        case ["tool", name, *_] if step == 1:
            return {"tool_calls": [{"name": name, "arguments": {}}]}
        case ["children", count, *_] if step == 1:
            made = [{"name": "subagent__leaf", "arguments": {"message": f"leaf {n}"}} for n in range(int(count))]
            return {"tool_calls": made}
    return f"Done with {request.config.model} in {request.config.max_output_tokens}."


model = ScriptedModel([answer], repeat=True, record=False)


class Text(BaseModel):
    text: str


leaf = Agent(name="leaf", system_prompt="Leaf.", llm_config=LLMConfig(model="scripted"), output_schema=Text)
steady = Agent(
    name="steady",
    system_prompt="Work.",
    llm_config=LLMConfig(model="scripted", max_output_tokens=5000),
    tools=[note, hog, die, burn, swallow, deaf, borrow, book, create_sub_agent_tool(leaf)],
    deps=pool,
)

client = AgentClient(registry=AgentRegistry())


@client.agent("greeter", helix={"min": 1, "max": 3})
async def greeter(name: str) -> str:
    """Greet someone."""
    return f"Hello, {name}"


async def plain(query: str) -> str:
    """Answer."""
    if query == "fail":
        raise ValueError("it was told to")
    return f"plain {query}"
