"""Helpers for the tests of `LiteLLMAdapter`: requests, recorded callbacks, a clock, servers of two dialects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from helix.adapters.models.adapter import ModelAdapter
from helix.adapters.models.litellm import load_litellm
from helix.core.config import LLMConfig
from helix.core.errors import ModelError
from helix.core.json import JsonObject
from helix.core.messages import AnyMessage, SystemMessage, UserMessage
from helix.ports.model import LLMGenerateInput, LLMStreamCallbacks, ToolSpec
from helix.testing.loopback_server import LoopbackServer, RecordedRequest, Responder
from helix.testing.openai_server import ModelAnswer, ModelToolCall, OpenAIServer, ScriptedResponse

MODEL = "openai/gpt-4o-mini"
CLAUDE = "anthropic/claude-sonnet-4-5"
EMPTY: JsonObject = {"type": "object", "properties": {}}
CALL = ModelAnswer(tool_calls=[ModelToolCall("add", {"a": 1, "b": 2})])


@dataclass
class FakeClock:
    """A clock on which time passes only by sleeping, and sleeping takes no real time."""

    at: float = 1_000_000.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds


@dataclass
class Heard:
    """The calls of the callbacks, in order."""

    events: list[tuple[Any, ...]] = field(default_factory=list)

    def callbacks(self) -> LLMStreamCallbacks:
        async def on_text(delta: str) -> None:
            self.events.append(("text", delta))

        return LLMStreamCallbacks(
            on_text_delta=on_text,
            on_thinking=lambda content, complete: self.events.append(("thinking", content, complete)),
            on_tool_call=lambda call: self.events.append(("call", call)),
            on_error=lambda error: self.events.append(("error", error)),
        )

    @property
    def kinds(self) -> list[str]:
        return [
            kind
            for (kind, *_), previous in zip(self.events, [("",), *self.events], strict=False)
            if kind != previous[0]
        ]

    @property
    def errors(self) -> list[ModelError]:
        return [event[1] for event in self.events if event[0] == "error"]


@pytest.fixture(params=["litellm", "native"])
def each_adapter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the tests of a module once with litellm, and once with the package that is chosen if all are installed."""
    if request.param == "native":
        monkeypatch.setattr(request.module, "LiteLLMAdapter", ModelAdapter)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def heard() -> Heard:
    return Heard()


Serve = Callable[..., OpenAIServer]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Start a server that plays the given script, and point litellm's OpenAI provider at it. litellm is loaded here,
    because that takes seconds for which no test waits."""
    load_litellm()
    servers: list[OpenAIServer] = []

    def start(*script: ScriptedResponse | Callable[[dict[str, Any]], Any]) -> OpenAIServer:
        server = OpenAIServer(list(script)).start()
        servers.append(server)
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        return server

    yield start
    for server in servers:
        server.stop()


def request(
    messages: list[AnyMessage] | None = None,
    *,
    tools: list[ToolSpec] | None = None,
    tool_choice: str = "auto",
    deadline_s: float | None = None,
    callbacks: LLMStreamCallbacks | None = None,
    **config: Any,
) -> LLMGenerateInput:
    return LLMGenerateInput(
        messages=messages or [SystemMessage(content="be brief"), UserMessage(content="hello")],
        tools=tools or [],
        config=LLMConfig(**{"model": MODEL, **config}),
        agent_id="session-1",
        agent_type="tester",
        tool_choice=tool_choice,
        timeout_s=deadline_s,
        callbacks=callbacks or LLMStreamCallbacks(),
    )


def tool(name: str = "add", parameters: JsonObject | None = None, *, strict: bool | None = False) -> ToolSpec:
    return ToolSpec(name=name, description=f"the tool {name}", parameters=parameters or EMPTY, strict=strict)


def openai_event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """Return one event of an OpenAI stream, for events that `OpenAIServer` does not send."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n".encode()


# --- Anthropic's dialect ---


class AnthropicServer(LoopbackServer):
    """Plays Messages API streams: each entry is the list of events of one answer."""

    def __init__(self, *script: list[dict[str, Any]]) -> None:
        super().__init__(self._answer)
        self._script = list(script)

    async def _answer(self, request: RecordedRequest, responder: Responder) -> None:
        await responder.start(200, {"content-type": "text/event-stream"})
        for event in self._script.pop(0):
            if event["type"] == "test_stall":
                await asyncio.sleep(60)
            if event["type"] == "test_cut":
                responder.abort()
                return
            await responder.send(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        await responder.end()


def anthropic_events(*blocks: tuple[dict[str, Any], list[dict[str, Any]]], stop: str | None) -> list[dict[str, Any]]:
    message: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": "claude"}
    message |= {"content": [], "stop_reason": None}
    usage = {"input_tokens": 20, "output_tokens": 1, "cache_read_input_tokens": 100}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**message, "usage": usage}}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    if stop is not None:
        delta = {"stop_reason": stop, "stop_sequence": None}
        events += [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 40}}, {"type": "message_stop"}]
    return events


def text_block(*texts: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": text} for text in texts]


def thinking_block(signature: str, *texts: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    deltas: list[dict[str, Any]] = [{"type": "thinking_delta", "thinking": text} for text in texts]
    return {"type": "thinking", "thinking": ""}, [*deltas, {"type": "signature_delta", "signature": signature}]


TOOL_USE = (
    {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}},
    [{"type": "input_json_delta", "partial_json": part} for part in ('{"a": ', "1}")],
)
REDACTED: tuple[dict[str, Any], list[dict[str, Any]]] = ({"type": "redacted_thinking", "data": "ENCRYPTED"}, [])


@pytest.fixture
def anthropic(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., AnthropicServer]]:
    servers: list[AnthropicServer] = []

    def start(*script: list[dict[str, Any]]) -> AnthropicServer:
        server = AnthropicServer(*script).start()
        servers.append(server)
        monkeypatch.delenv("ANTHROPIC_API_BASE", raising=False)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.origin)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
        return server

    yield start
    for server in servers:
        server.stop()


Anthropic = Callable[..., AnthropicServer]
