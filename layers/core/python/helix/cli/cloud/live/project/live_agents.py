"""The agents of `helix check --live`. A script replaces their models, so they cost no tokens.

Law: a message contains the whole script as JSON, so every process and every retry behaves the same way.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

from pydantic import BaseModel

from helix import Agent, LLMConfig, ToolContext, create_sub_agent_tool, default_registry, tool
from helix.adapters.models.playback import Pace, notify, play
from helix.adapters.system import SystemClock
from helix.core.messages import AssistantMessage, UserMessage, files_of
from helix.core.steps import (
    AnyStepResult,
    ErrorStepResult,
    ParsedSubAgentCall,
    ParsedToolCall,
    TextStepResult,
    ToolCallsStepResult,
)
from helix.core.tools import SUBAGENT_TOOL_PREFIX
from helix.core.usage import Usage
from helix.ports.model import LLMGenerateInput

EDITION = "1"
CLOCK, PACE = SystemClock(), Pace(SystemClock(), None)


def die_until(moment: float) -> None:
    """Kill this process with SIGKILL, as the platform would, if `moment` (Unix seconds) is still in the future."""
    if CLOCK.now() < moment:
        os.kill(os.getpid(), signal.SIGKILL)


@tool
async def look(topic: str, ctx: ToolContext[Any]) -> str:
    """Return the topic."""
    return f"{topic}: found, edition {EDITION}"


@tool(timeout_s=120)
async def wait(seconds: float, ctx: ToolContext[Any]) -> str:
    """Wait for the given number of seconds."""
    ctx.emit("begun")
    await asyncio.sleep(seconds)
    return "waited"


@tool(on_unknown="retry", timeout_s=10)
async def die(until: float, ctx: ToolContext[Any]) -> str:
    """Kill the process until that moment. The call may be repeated."""
    die_until(until)
    return "survived"


@tool(on_unknown="skip", timeout_s=10)
async def die_once(until: float, ctx: ToolContext[Any]) -> str:
    """Kill the process until that moment. The call must not be repeated."""
    die_until(until)
    return "repeated"


@tool(require_approval=True)
async def pay(euros: int, ctx: ToolContext[Any]) -> str:
    """Pay an amount. A person must approve the call."""
    return f"paid {euros}"


@tool
async def draw(ctx: ToolContext[Any]) -> bytes:
    """Return a file."""
    return b"a drawing"


async def _see(request: LLMGenerateInput) -> str:
    """Return the contents of the files that the model is shown."""
    return " ".join([(await request.files.read(file)).decode() for file in files_of(request.messages)])


class Planned:
    """Implements `LLMAdapter`."""

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        step, model = _due(request), request.config.model
        text, usage = (
            await _see(request) if "see" in step else str(step.get("say", "")),
            Usage(prompt_tokens=10, completion_tokens=10, cost_micros=10, calls=1),
        )
        text = text or os.urandom(step.get("size", 0) // 2).hex()
        die_until(step.get("die_until", 0))
        if CLOCK.now() < step.get("refuse_until", 0):
            return ErrorStepResult(error="too many requests, as planned", code="rate_limited", usage=usage, model=model)
        if step.get("key", os.environ.get("LIVE_KEY")) != os.environ.get("LIVE_KEY"):
            return ErrorStepResult(error="an old key, as planned", code="authentication", usage=usage, model=model)
        for word in text.split(" ") if step.get("pause_s") else ():
            await notify(request.callbacks.on_text_delta, f"{word} ")
            await asyncio.sleep(step["pause_s"])
        if step.get("pause_s"):
            return TextStepResult(content=f"{text} ", usage=usage, model=model)
        if not step.get("calls"):
            return await play(TextStepResult(content=text, usage=usage, model=model), request, PACE)
        return await play(_calls(step["calls"], usage, model), request, PACE)


def _due(request: LLMGenerateInput) -> dict[str, Any]:
    said = [message for message in request.messages if message.role != "system"]
    at = max(place for place, message in enumerate(said) if isinstance(message, UserMessage))
    steps: list[dict[str, Any]] = json.loads(str(said[at].content))
    done = sum(isinstance(message, AssistantMessage) for message in said[at:])
    if "edition" in steps[0]:
        return (
            {"say": f"edition {EDITION}"} if steps[0]["edition"] == EDITION else {"calls": [["wait", {"seconds": 5}]]}
        )
    return steps[done] if done < len(steps) else {"say": "done"}


def _calls(calls: list[tuple[str, dict[str, Any]]], usage: Usage, model: str) -> ToolCallsStepResult:
    named = [(f"call_{place}", name, arguments) for place, (name, arguments) in enumerate(calls)]
    prefix = SUBAGENT_TOOL_PREFIX
    return ToolCallsStepResult(
        tool_calls=[
            ParsedToolCall(id=i, name=name, arguments=a) for i, name, a in named if not name.startswith(prefix)
        ],
        sub_agent_calls=[
            ParsedSubAgentCall(id=i, agent_type=name.removeprefix(prefix), input=a)
            for i, name, a in named
            if name.startswith(prefix)
        ],
        order=[ident for ident, _, _ in named],
        usage=usage,
        model=model,
    )


model = Planned()


def _agent(name: str, **fields: Any) -> Agent[Any, Any]:
    tools = [look, wait, die, die_once, pay]
    given = {
        "tools": tools,
        "max_steps": 200,
        "system_prompt": f"You are {name}.",
        "llm_config": LLMConfig(model="planned", max_retries=0),
    }
    return Agent(name=name, **{**given, **fields})


class Answer(BaseModel):
    summary: str
    """The text that the script gives as the sub-agent's output."""


helper = _agent("live_helper", output_schema=Answer)
talker = _agent("live_talker", tools=[look, wait, die, die_once, pay, draw, create_sub_agent_tool(helper)])
inline = _agent("live_inline", inline_tools=True)
single = _agent("live_single", resources={"min": 1, "max": 1})
poor = _agent("live_poor", tools=[])
for agent in (talker, helper, inline, single, poor):
    default_registry.register(agent)
