"""The agents that `bench/latency.py` deploys. Their model reports, in its own text, when it was called and when it
answered.

Law: the first word of an answer is the time at which it was given (Unix seconds). The last answer of a run lists each of
its steps: when the model was called, when it had answered, how many seconds this process waited for AWS since the previous
answer, and with how many calls.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from botocore.httpsession import URLLib3Session
from pydantic import BaseModel

from helix import Agent, LLMConfig, define_tool
from helix.adapters.models.playback import notify
from helix.core.messages import AssistantMessage
from helix.core.registry import default_registry
from helix.core.steps import AnyStepResult, ParsedToolCall, TextStepResult, ToolCallsStepResult
from helix.ports.model import LLMGenerateInput

FIRST_TOKEN_S, TOKEN_S, WORDS = 0.4, 0.02, 20
STEPS = 16


class Nothing(BaseModel):
    pass


CALLS: list[tuple[float, float]] = []
"""The intervals in which botocore waited for each response of AWS."""
send = URLLib3Session.send


def timed_send(session: URLLib3Session, request: Any) -> Any:
    begun = time.time()
    try:
        return send(session, request)
    finally:
        CALLS.append((begun, time.time()))


URLLib3Session.send = timed_send


def waited(since: float) -> tuple[float, int]:
    """Return the seconds in which at least one call waited, and the number of calls."""
    calls = sorted(call for call in CALLS if call[0] > since)
    total, until = 0.0, since
    for begun, ended in calls:
        total += max(0.0, ended - max(begun, until))
        until = max(until, ended)
    return total, len(calls)


class TimedModel:
    """A model that writes text for agents without tools, and requests `STEPS` calls of the others, one at a time and at
    once."""

    answered = 0.0

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        asked = time.time()
        if not request.tools:
            return await self._talk(request)
        told = [m.content or "" for m in request.messages if isinstance(m, AssistantMessage)]
        if len(told) == STEPS:
            return TextStepResult(content=json.dumps([json.loads(text) for text in told]))
        call = ParsedToolCall(id=f"call_{len(told)}", name="look", arguments={})
        since, self.answered = waited(self.answered), time.time()
        return ToolCallsStepResult(content=json.dumps([asked, self.answered, *since]), tool_calls=[call])

    async def _talk(self, request: LLMGenerateInput) -> AnyStepResult:
        await asyncio.sleep(FIRST_TOKEN_S)
        deltas = [f"{time.time():.6f}", *[" word"] * WORDS]
        for delta in deltas:
            await notify(request.callbacks.on_text_delta, delta)
            await asyncio.sleep(TOKEN_S)
        return TextStepResult(content="".join(deltas))


def look(arguments: Nothing, context: Any) -> str:
    return "seen"


def agent(name: str, *, inline: bool | None = None) -> Agent[Any, Any]:
    tools = []
    if inline is not None:
        described = "Takes no time."
        tools.append(define_tool(name="look", description=described, input_schema=Nothing, execute=look, inline=inline))
    return Agent(name=name, system_prompt="Go.", tools=tools, llm_config=LLMConfig(model="timed"), max_steps=None)


model = TimedModel()
for made in (agent("talker"), agent("plain", inline=False), agent("inline", inline=True)):
    default_registry.replace(made)
