"""A model that does what the last user message says (`plans`), the same in every process.

Law: the model is deterministic and stateless. Texts, calls, usage and failures depend only on the request's messages, apart
from gates and marks, which are files that the message names.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from helix._log import get_logger
from helix.adapters.models.playback import Pace, notify, pieces, play
from helix.adapters.system import SystemClock
from helix.core.errors import ModelError, StoreError
from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    Citation,
    ServerBlock,
    ServerCall,
    ThinkingContent,
    ToolResultMessage,
    UserMessage,
    files_of,
)
from helix.core.prompt import FINISH_NUDGE
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

from .crashes import started
from .plans import Step, call, steps_of

LOOK_S = 0.01
DIES_S = 15.0
"""The seconds of work after which a process dies. Its claim has been renewed by then."""
END = "the end"
logger = get_logger("helix")


def _begun(mark: str) -> int:
    with Path(mark).open("a+") as lines:
        lines.write("started\n")
        lines.seek(0)
        return len(lines.readlines())


async def last(seconds: float, mark: str, deaths: int = 0) -> None:
    """Work for that many seconds. Each execution adds a line to the file `mark`. The first `deaths` of them kill their
    process before they finish, as the platform would."""
    if _begun(mark) <= deaths:
        await asyncio.sleep(min(seconds / 2, DIES_S))
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(seconds)


async def pass_gate(path: str) -> None:
    """Record that a worker waits here, and wait until the file exists."""
    Path(path + ".entered").touch()
    while not Path(path).exists():
        await asyncio.sleep(LOOK_S)


class PlannedModel:
    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        started(request.agent_id, f"step {1 + sum(m.role == 'assistant' for m in request.messages)}")
        if request.tool_choice == "none":  # a summary is asked for
            text = f"A summary of {len(request.messages)} messages."
            usage = Usage(prompt_tokens=shown(request), completion_tokens=1, cost_micros=5, calls=1)
            return TextStepResult(content=text, usage=usage, model=request.config.model)
        step = _next(request)
        text = await _see(request) if step.get("see") else str(step.get("say", ""))
        usage = Usage(prompt_tokens=shown(request), completion_tokens=1 + len(text), cost_micros=7, calls=1)
        if step.get("tokens"):
            usage = usage.model_copy(update=step["tokens"])
        model = request.config.model
        if step.get("fail") and not (step["unless"] and Path(step["unless"]).exists()):
            await _show(request, text)
            return ErrorStepResult(error=f"as planned: {step['fail']}", code=step["fail"], usage=usage, model=model)
        if step.get("fail"):
            return await _play(TextStepResult(content="well again", usage=usage, model=model), request)
        if step.get("stumble"):
            await _show(request, text[: len(text) // 2])
            await notify(request.callbacks.on_error, ModelError("stumbled", retryable=True))
        if step.get("gate"):
            half = len(text) // 2
            await _show(request, text[:half])
            await pass_gate(step["gate"])
            await _show(request, text[half:])
            return TextStepResult(content=text, usage=usage, model=model)
        if step.get("lasts"):
            half = len(text) // 2
            await _show(request, text[:half])
            await last(step["lasts"], step["mark"], step.get("deaths", 0))
            await _show(request, text[half:])
            return TextStepResult(content=text, usage=usage, model=model)
        thinking = [ThinkingContent(text=step["think"])] if step.get("think") else []
        if not step.get("calls"):
            answer = TextStepResult(content=text, thinking=thinking, usage=usage, model=model, **_searched(step, text))
            return await _play(answer, request)
        return await _play(_calls(step, text, thinking, usage, model), request)


SOURCE = "https://tea.example/kettles"


def _searched(step: Step, text: str) -> dict[str, Any]:
    """Return what a search by the provider's own tool adds to the answer."""
    if not step.get("search"):
        return {}
    begun = ServerCall(id="search_1", name="web_search", arguments={"query": step["search"]})
    found = begun.model_copy(update={"done": True, "result": [{"url": SOURCE, "title": "Found"}]})
    raws = [{"type": "server_tool_use", "id": "search_1"}, {"type": "web_search_tool_result", "sealed": "x" * 2000}]
    blocks = [ServerBlock(raw=raw, call=call) for raw, call in zip(raws, (begun, found), strict=True)]
    cited = Citation(start=0, end=len(text) // 2, url=SOURCE, title="Found", raw={"encrypted_index": "y"})
    return {"server_blocks": blocks, "citations": [cited]}


async def _see(request: LLMGenerateInput) -> str:
    """Read the files of the request, and return their types and the hashes of their bytes. A failure is logged, because
    the engine only stores it as the model's error."""
    try:
        seen = [(file.media_type, await request.files.read(file)) for file in files_of(request.messages)]
    except StoreError as error:
        logger.warning("%s", error)
        raise
    return "I see " + ", ".join(f"{kind} {sha256(data).hexdigest()}" for kind, data in seen)


def shown(request: LLMGenerateInput) -> int:
    """Return the size of the model's input: messages, and characters of results. The usage reports it, so that tests can
    see it."""
    return sum(10 + (len(m.content) if isinstance(m, ToolResultMessage) else 0) for m in request.messages)


def _next(request: LLMGenerateInput) -> Step:
    """Return the next step of the plan."""
    said: Sequence[AnyMessage] = [m for m in request.messages if m.role != "system"]
    asked = [i for i, m in enumerate(said) if isinstance(m, UserMessage) and m.content != FINISH_NUDGE]
    at = asked[-1] if asked else 0
    message = said[at].content if asked else ""
    index = sum(isinstance(m, AssistantMessage) for m in said[at:])
    steps = steps_of(str(message))
    if index < len(steps):
        return steps[index]
    if request.output_schema is not None:
        return {"say": "", "calls": [call("__finish__", summary=END)]}
    return {"say": END}


def _calls(step: Step, text: str, thinking: list[ThinkingContent], usage: Usage, model: str) -> ToolCallsStepResult:
    tools: list[ParsedToolCall] = []
    children: list[ParsedSubAgentCall] = []
    order = []
    for place, (name, arguments) in enumerate(step["calls"]):
        ident = f"call_{place}"  # never unique, so the engine makes it so
        order.append(ident)
        if name.startswith(SUBAGENT_TOOL_PREFIX):
            kind = name.removeprefix(SUBAGENT_TOOL_PREFIX)
            children.append(ParsedSubAgentCall(id=ident, agent_type=kind, input=arguments))
        else:
            tools.append(ParsedToolCall(id=ident, name=name, arguments=arguments))
    return ToolCallsStepResult(
        content=text or None,
        tool_calls=tools,
        sub_agent_calls=children,
        order=order,
        thinking=thinking,
        usage=usage,
        model=model,
    )


async def _show(request: LLMGenerateInput, text: str) -> None:
    for delta in pieces(text, 12):
        await notify(request.callbacks.on_text_delta, delta)


async def _play(result: AnyStepResult, request: LLMGenerateInput) -> AnyStepResult:
    return await play(result, request, Pace(SystemClock(), None))
