"""Anthropic's models through the anthropic package."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from anthropic import AsyncAnthropic, AsyncStream, DefaultAsyncHttpxClient

from helix.adapters.models.catalog import entry_of
from helix.adapters.models.decompression import BOUNDED
from helix.adapters.models.effort import claude_options
from helix.adapters.models.failures import failure
from helix.adapters.models.file_parts import Sent
from helix.adapters.models.pricing import Prices, Tokens, count
from helix.adapters.models.sdk import OPENAIS, Clients, SdkExchange, own_options
from helix.adapters.models.turns import (
    LEAST_ANSWER,
    Blocks,
    cache_mark,
    call_id,
    in_order,
    nonempty_text,
    takes_temperature,
    thinks_first,
    tools_to_send,
    turns,
)
from helix.adapters.models.wire import AttemptFailedError, CallPart, Piece, Redacted, Text, Thinking
from helix.core.json import JsonObject
from helix.core.messages import AssistantMessage, ThinkingContent, ToolCallRequest, ToolResultMessage, UserMessage
from helix.ports.model import LLMGenerateInput, ToolSpec

_OF_THE_CLIENT = {"api_key": "api_key", "auth_token": "auth_token", "api_base": "base_url", "base_url": "base_url"}
_EXTRA = frozenset({"extra_headers", "extra_query", "extra_body"})


class AnthropicWire:
    """Implements `Wire`."""

    def __init__(self, prices: Prices) -> None:
        self._prices, self._clients = prices, Clients(AsyncAnthropic, partial(DefaultAsyncHttpxClient, **BOUNDED))

    def exchange(self, request: LLMGenerateInput, model: str) -> _Exchange:
        return _Exchange(request, model, self._prices, self._clients, AsyncStream)


class _Exchange(SdkExchange):
    """Implements `Exchange`."""

    interface = "messages"

    def __init__(self, request: LLMGenerateInput, model: str, prices: Prices, clients: Clients, stream: Any) -> None:
        super().__init__(request, model, prices, clients, stream)
        self._reported: dict[str, Any] = {}

    async def open(self) -> None:
        options = self.options
        given = {_OF_THE_CLIENT[name]: options.pop(name) for name in list(options) if name in _OF_THE_CLIENT}
        if "auth_token" not in given:
            given.setdefault("api_key", os.environ.get("ANTHROPIC_API_KEY") or None)
        base = given.get("base_url") or os.environ.get("ANTHROPIC_API_BASE") or os.environ.get("ANTHROPIC_BASE_URL")
        given["base_url"] = base.rstrip("/").removesuffix("/messages").removesuffix("/v1") if base else None
        client = self.clients.client(**given)
        await self.files.load()
        self.constrain("anthropic")
        try:
            await self.post(client, "/v1/messages", self._body(options), options)
        except TypeError as error:  # the package raises this if it has no credentials
            raise AttemptFailedError(failure(self.model, "authentication", "")) from error

    async def next(self) -> Sequence[Piece] | None:
        event = await self.event()
        if event is None:
            return None
        match event.get("type"):
            case "message_start":
                self._count(event["message"].get("usage"))
            case "message_delta":
                self._count(event.get("usage"))
                self.finish_reason = event["delta"].get("stop_reason") or self.finish_reason
            case "content_block_start":
                return _begin_block(event.get("index") or 0, event["content_block"])
            case "content_block_delta":
                return _continue_block(event.get("index") or 0, event["delta"])
        return ()

    def _count(self, reported: Mapping[str, Any] | None) -> None:
        """Count the tokens. Later reports replace earlier ones; fields that they omit keep their values."""
        if not reported:
            return
        self._reported |= {name: value for name, value in reported.items() if value is not None}
        now, hour = self._reported, count(self._reported, "cache_creation", "ephemeral_1h_input_tokens")
        cached, written = count(now, "cache_read_input_tokens"), count(now, "cache_creation_input_tokens")
        self.tokens = Tokens(
            count(now, "input_tokens") + cached + written,
            count(now, "output_tokens"),
            reasoning=count(now, "output_tokens_details", "thinking_tokens"),
            cached=cached,
            written=max(written - hour, 0),
            written_1h=min(hour, written),
        )

    def _body(self, options: Mapping[str, Any]) -> dict[str, Any]:
        config, tools, entry = self.request.config, tools_to_send(self.request), entry_of(self.model)
        thinks = thinks_first(options)
        answer = config.max_output_tokens or entry.get("max_output_tokens") or LEAST_ANSWER
        body: dict[str, Any] = {"max_tokens": answer}
        if not config.max_output_tokens:
            body["max_tokens"] = max(answer, count(options, "thinking", "budget_tokens") + LEAST_ANSWER)
        if config.temperature is not None and takes_temperature(config.temperature, entry, thinks):
            body["temperature"] = config.temperature
        if config.top_p is not None:
            body["top_p"] = config.top_p
        if config.stop:
            body["stop_sequences"] = config.stop
        mark = cache_mark(config)
        body |= own_options(options, _EXTRA | OPENAIS | ({"cache_control"} if mark else set()))
        system, messages = turns(
            self.request.messages, text=_text, content=self._content, answer=_answer, result=self._result
        )
        if system:
            body["system"] = [_text(system)]
        if tools:
            body["tools"] = [_tool(tool, self.strict_forms.get(tool.name)) for tool in tools]
            unforced = thinks or entry.get("supports_forced_tool_use") is False
            body["tool_choice"] = _choice(self.request.tool_choice if self.request.tools else "none", unforced)
            if config.parallel_tool_calls is False and body["tool_choice"]["type"] != "none":
                body["tool_choice"]["disable_parallel_tool_use"] = True
        if mark:
            # The beginning of the prompt never changes, and the next step's prompt begins with all of this one.
            for blocks in (body.get("system"), body.get("tools"), messages[-1]["content"] if messages else None):
                if blocks and blocks[-1].get("type") not in ("thinking", "redacted_thinking"):
                    blocks[-1]["cache_control"] = mark
        return {**body, "model": self.name, "messages": messages, "stream": True}

    def _content(self, message: UserMessage | ToolResultMessage) -> Blocks:
        return [_text(part) if isinstance(part, str) else _file(part) for part in self.files.content(message)]

    def _result(self, message: ToolResultMessage) -> dict[str, Any]:
        content = self._content(message) if message.files else nonempty_text(message.content)
        made = {"type": "tool_result", "tool_use_id": call_id(message.tool_call_id), "content": content}
        return made if message.success else {**made, "is_error": True}

    @property
    def name(self) -> str:
        return self.model.removeprefix("anthropic/")

    @property
    def options(self) -> dict[str, Any]:
        config = self.request.config
        thinking = claude_options(config.reasoning, entry_of(self.model), config.max_output_tokens)
        return {**thinking, **super().options}


def _begin_block(index: int, block: Mapping[str, Any]) -> Sequence[Piece]:
    match block.get("type"):
        case "text":
            return [Text(block.get("text") or "")]
        case "thinking":
            return [Thinking(block.get("thinking") or "", block.get("signature") or None)]
        case "redacted_thinking":
            return [Redacted(block.get("data") or "")]
        case "tool_use":
            return [CallPart(index, block.get("id") or "", block.get("name") or "")]
    return ()


def _continue_block(index: int, delta: Mapping[str, Any]) -> Sequence[Piece]:
    match delta.get("type"):
        case "text_delta":
            return [Text(delta.get("text") or "")]
        case "thinking_delta":
            return [Thinking(delta.get("thinking") or "")]
        case "signature_delta":
            return [Thinking(signature=delta.get("signature") or None)]
        case "input_json_delta":
            return [CallPart(index, arguments=delta.get("partial_json") or "")]
    return ()


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _tool(tool: ToolSpec, strict: JsonObject | None) -> dict[str, Any]:
    made = {"name": tool.name, "description": tool.description, "input_schema": strict or tool.parameters}
    return {**made, "strict": True} if strict else made


def _choice(choice: str, unforced: bool) -> dict[str, Any]:
    match choice:
        case "auto" | "none":
            return {"type": choice}
        case _ if unforced:
            return {"type": "auto"}
        case "required":
            return {"type": "any"}
        case _:
            return {"type": "tool", "name": choice}


def _answer(message: AssistantMessage) -> Blocks:
    return [block for part in in_order(message) if (block := _block(part))]


def _block(part: ThinkingContent | ToolCallRequest | str) -> dict[str, Any] | None:
    match part:
        case str():
            return _text(part)
        case ToolCallRequest():
            return {"type": "tool_use", "id": call_id(part.id), "name": part.name, "input": part.arguments}
        case ThinkingContent():
            return _thinking_block(part) if part.signature or part.redacted else None


def _thinking_block(block: ThinkingContent) -> dict[str, Any]:
    if block.redacted:
        return {"type": "redacted_thinking", "data": block.redacted}
    return {"type": "thinking", "thinking": block.text, "signature": block.signature}


def _file(sent: Sent) -> dict[str, Any]:
    source: dict[str, Any] = {"type": "url", "url": sent.file.url}
    if sent.data is not None:
        source = {"type": "base64", "media_type": sent.file.media_type, "data": sent.encoded}
    if sent.form == "image":
        return {"type": "image", "source": source}
    return {"type": "document", "source": source, **({"title": sent.file.name} if sent.file.name else {})}
