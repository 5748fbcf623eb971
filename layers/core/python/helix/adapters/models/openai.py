"""OpenAI's models, and those of every server that speaks Chat Completions, through the openai package."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from openai import AsyncOpenAI, AsyncStream, DefaultAsyncHttpxClient

from helix.adapters.models.catalog import entry_of
from helix.adapters.models.decompression import BOUNDED
from helix.adapters.models.openai_form import strict_tools, to_messages, to_tool_choice, to_tools
from helix.adapters.models.pricing import Prices, Tokens, count
from helix.adapters.models.sdk import Clients, SdkExchange, own_options
from helix.adapters.models.wire import CallPart, Piece, Text, Thinking
from helix.core.json import dumps
from helix.ports.model import LLMGenerateInput

T = TypeVar("T")
_END_S = 0.2
"""How long a server may take to end an answer that said `[DONE]`."""
_OF_THE_CLIENT = {"api_key": "api_key", "api_base": "base_url", "base_url": "base_url", "organization": "organization"}
_EXTRA = frozenset({"extra_headers", "extra_query", "extra_body"})
_REASONING = re.compile(r"^(o\d|gpt-([5-9]|\d\d)(?!.*-chat))")
"""Models that count `max_completion_tokens`, and refuse `stop` and, while they reason, `temperature`."""
_STRICT = re.compile(r"^(ft:)?(gpt-4o|gpt-4\.\d|gpt-([5-9]|\d\d)|o\d)")
"""Models with structured outputs, where there is no table that says it."""


class _Stream(AsyncStream[T]):  # type: ignore[misc]
    """Read to its end: the package stops at `[DONE]`, and a connection whose answer is not read is closed."""

    async def _iter_events(self) -> AsyncIterator[Any]:
        events = super()._iter_events()
        async for event in events:
            if not event.data.startswith("[DONE]"):
                if event.data.strip():  # some servers keep the connection alive with empty events
                    yield event
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    async for _ in events:
                        pass
            return


class OpenAIWire:
    """Implements `Wire`."""

    def __init__(self, prices: Prices) -> None:
        self._prices, self._clients = prices, Clients(AsyncOpenAI, partial(DefaultAsyncHttpxClient, **BOUNDED))

    def exchange(self, request: LLMGenerateInput, model: str) -> _Exchange:
        return _Exchange(request, model, self._prices, self._clients, _Stream)


class _Exchange(SdkExchange):
    """Implements `Exchange`."""

    async def open(self) -> None:
        entry = entry_of(self.model)
        strict_ok = bool(entry.get("supports_response_schema") if entry else _STRICT.match(self.name))
        self.strict = strict_tools(self.request, "openai", strict_ok)
        options = self.options
        given = {_OF_THE_CLIENT[name]: options.pop(name) for name in list(options) if name in _OF_THE_CLIENT}
        given.setdefault("api_key", os.environ.get("OPENAI_API_KEY") or None)
        given.setdefault("base_url", os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE") or None)
        await self.post(self.clients.client(**given), "/chat/completions", self._body(entry, options), options)

    async def next(self) -> Sequence[Piece] | None:
        event = await self.event()
        if event is None:
            return None
        if reported := event.get("usage"):
            self.tokens = Tokens(
                count(reported, "prompt_tokens"),
                count(reported, "completion_tokens"),
                reasoning=count(reported, "completion_tokens_details", "reasoning_tokens"),
                cached=count(reported, "prompt_tokens_details", "cached_tokens"),
            )
        choices = event.get("choices")
        if not choices:
            return ()
        self.finish_reason = choices[0].get("finish_reason") or self.finish_reason
        delta = choices[0].get("delta") or {}
        self.refusal += delta.get("refusal") or ""
        return list(_pieces(delta))

    @property
    def name(self) -> str:
        return self.model.removeprefix("openai/")

    def _body(self, entry: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        config, reasons = self.request.config, bool(_REASONING.match(self.name))
        body: dict[str, Any] = {}
        if config.temperature is not None and not (reasons and _is_fixed(config.temperature, entry, options)):
            body["temperature"] = config.temperature
        if config.max_output_tokens is not None:
            body["max_completion_tokens" if reasons else "max_tokens"] = config.max_output_tokens
        if config.stop and not reasons:
            body["stop"] = config.stop
        others = {
            "thinking",
            *(() if reasons else ("reasoning_effort",)),
        }  # OpenAI's models refuse what they do not have
        body |= own_options(options, _EXTRA | others if entry or _STRICT.match(self.name) else _EXTRA)
        if self.request.tools:
            body["tools"] = to_tools(self.request.tools, strict=self.strict, cache=False)
            body["tool_choice"] = to_tool_choice(self.request.tool_choice)
        made = to_messages(self.request.messages, self.model, "openai", cache=config.cache)
        messages = [{name: value for name, value in message.items() if value is not None} for message in made]
        return {
            **body,
            "model": self.name,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


def _is_fixed(temperature: float, entry: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Whether a reasoning model refuses this temperature: unless it does not reason this time."""
    effort = options.get("reasoning_effort") or entry.get("default_reasoning_effort")
    return temperature != 1 and effort != "none"


def _pieces(delta: Mapping[str, Any]) -> Iterator[Piece]:
    yield Thinking(delta.get("reasoning_content") or delta.get("reasoning") or "")
    yield Text(delta.get("content") or "")
    for part in delta.get("tool_calls") or ():
        function = part.get("function") or {}
        arguments = function.get("arguments") or ""
        text = arguments if isinstance(arguments, str) else dumps(arguments)  # some servers send the object itself
        yield CallPart(part.get("index") or 0, part.get("id") or "", function.get("name") or "", text)
