"""Helpers that run agents through the public API: scripted models, executors that share a store, and gates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from helix import Agent, LLMConfig, LocalExecutor, MemoryStateStore, ScriptedModel, SQLiteStateStore, define_tool
from helix.core.chunk_envelope import ChunkBase
from helix.core.chunks import StreamChunk
from helix.core.context import ToolContext
from helix.core.handles import AgentExecutionHandle, AgentResult
from helix.core.messages import AnyMessage, AssistantMessage, ToolResultMessage
from helix.core.registry import AgentRegistry
from helix.engine.engine import Settings
from helix.ports.model import LLMGenerateInput

QUICK = Settings(stop_poll_s=0.01)
PATIENCE_S = 10.0


class World:
    """One store, and executors on it. On SQLite each executor opens the file for itself, as another process would."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self._path = kind, folder / "helix.db"
        self._memory = MemoryStateStore()
        self._executors: list[LocalExecutor] = []

    def executor(self, script: Any = (), *, settings: Settings = QUICK, **options: Any) -> LocalExecutor:
        """Return an executor. `script` is a script for a `ScriptedModel`, or a model."""
        model = script if hasattr(script, "generate_step") else ScriptedModel(script)
        store = self._memory if self.kind == "memory" else SQLiteStateStore(self._path)
        options.setdefault("registry", AgentRegistry())
        made = LocalExecutor(store, model=model, settings=settings, **options)
        self._executors.append(made)
        return made

    async def close(self) -> None:
        for executor in self._executors:
            await executor.close()


def agent(name: str = "helper", **fields: Any) -> Agent[Any, Any]:
    fields.setdefault("system_prompt", "You help.")
    fields.setdefault("llm_config", LLMConfig(model="scripted"))
    return Agent(name=name, **fields)


class Nothing(BaseModel):
    """Input of tools that take none."""


class Text(BaseModel):
    text: str


def a_tool(name: str, execute: Callable[[Any, ToolContext[Any]], Any] | str, **fields: Any) -> Any:
    """Return a tool without parameters, or with `input_schema`."""
    fields.setdefault("input_schema", Nothing)
    fields.setdefault("description", f"Does {name}.")
    return define_tool(name=name, execute=execute, **fields)  # type: ignore[arg-type]


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def calls(*items: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    """Return a script entry that asks for these calls."""
    entry: dict[str, Any] = {"tool_calls": list(items)}
    return entry | ({"content": content} if content is not None else {})


class Gate:
    """A place where a task waits until the test opens it. `entered` says that the task has reached it."""

    def __init__(self) -> None:
        self.entered, self.opened = asyncio.Event(), asyncio.Event()
        self.times = 0

    async def wait(self) -> None:
        self.times += 1
        self.entered.set()
        await self.opened.wait()

    async def reached(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.entered.wait()

    def open(self) -> None:
        self.opened.set()


def gated(gate: Gate, answer: Any) -> Callable[[LLMGenerateInput], Awaitable[Any]]:
    """Return a script entry that answers once the gate is open."""

    async def entry(request: LLMGenerateInput) -> Any:
        await gate.wait()
        return answer

    return entry


async def result_of(handle: AgentExecutionHandle[Any]) -> AgentResult[Any]:
    return await handle.result(timeout_s=PATIENCE_S)


async def chunks_of(handle: AgentExecutionHandle[Any], **options: Any) -> list[StreamChunk]:
    """Return the run's whole stream, after its end."""
    async with asyncio.timeout(PATIENCE_S):
        return [chunk async for chunk in await handle.stream(**options)]


async def play(
    executor: LocalExecutor, who: Agent[Any, Any], message: Any = "go", **options: Any
) -> tuple[AgentExecutionHandle[Any], AgentResult[Any], list[StreamChunk]]:
    """Execute to the end. Return the handle, the result and the chunks."""
    handle = await executor.execute(who, message, **options)
    chunks = await chunks_of(handle)
    return handle, await result_of(handle), chunks


def types(chunks: Sequence[ChunkBase], *, but: Sequence[str] = ("text_delta", "output_delta")) -> list[str]:
    return [chunk.type for chunk in chunks if chunk.type not in but]  # type: ignore[attr-defined]


def of_type(chunks: Sequence[ChunkBase], kind: str) -> list[Any]:
    return [chunk for chunk in chunks if chunk.type == kind]  # type: ignore[attr-defined]


def text_of(chunks: Sequence[ChunkBase]) -> str:
    return "".join(chunk.delta for chunk in of_type(chunks, "text_delta"))


async def history(executor: LocalExecutor, session_id: str) -> list[AnyMessage]:
    found = await executor.sessions.get_messages(session_id, limit=1000)
    assert_paired(found.messages)
    return found.messages


def told(messages: Sequence[AnyMessage]) -> list[str]:
    """Return short forms of messages: `user: hi`, `assistant: text [tool, tool]`, `tool: content`."""
    lines = []
    for message in messages:
        line = f"{message.role}: {message.content or ''}"
        if isinstance(message, AssistantMessage) and message.tool_calls:
            line += "[" + ", ".join(c.name for c in message.tool_calls) + "]"
        lines.append(line)
    return lines


def results(messages: Sequence[AnyMessage]) -> list[str]:
    return [m.content for m in messages if isinstance(m, ToolResultMessage)]


def assert_paired(messages: Sequence[AnyMessage]) -> None:
    """Check that every call has exactly one result, right after its answer and in call order, and that ids are unique."""
    expected: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if isinstance(message, ToolResultMessage):
            assert expected and message.tool_call_id == expected.pop(0), told(messages)
            continue
        assert not expected, told(messages)
        if isinstance(message, AssistantMessage):
            expected = [c.id for c in message.tool_calls]
            assert not seen & set(expected) and len(set(expected)) == len(expected)
            seen.update(expected)
    assert not expected, told(messages)


def assert_stream(chunks: Sequence[ChunkBase]) -> None:
    """Check that sequences ascend, text ends committed or discarded, tool chunks come in pairs, and the end comes last."""
    sequences = [chunk.sequence for chunk in chunks]
    assert sequences == sorted(set(sequences))
    open_calls: set[tuple[str, str]] = set()
    for chunk in chunks:
        if chunk.type == "tool_start":  # type: ignore[attr-defined]
            key = (chunk.session_id, chunk.tool_call_id)  # type: ignore[attr-defined]
            open_calls.add(key)
        elif chunk.type == "tool_end":  # type: ignore[attr-defined]
            open_calls.discard((chunk.session_id, chunk.tool_call_id))  # type: ignore[attr-defined]
    assert not open_calls


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a state that has no event of its own."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.005)
