"""Anthropic's models through the anthropic package."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from anthropic import AsyncAnthropic, AsyncStream, DefaultAsyncHttpxClient

from helix.adapters.models.anthropic_batches import AnthropicBatches
from helix.adapters.models.anthropic_blocks import ContentBlocks, answer_blocks, text_block
from helix.adapters.models.catalog import entry_of
from helix.adapters.models.decompression import BOUNDED
from helix.adapters.models.effort import claude_options
from helix.adapters.models.failures import failure
from helix.adapters.models.file_parts import Sent
from helix.adapters.models.pricing import Prices, Tokens, count
from helix.adapters.models.prompt_caches import cache_mark, moving_ends
from helix.adapters.models.sdk import OPENAIS, Clients, SdkExchange, own_options
from helix.adapters.models.server_tool_forms import server_tool_form
from helix.adapters.models.turns import (
    LEAST_ANSWER,
    Blocks,
    call_id,
    nonempty_text,
    takes_temperature,
    thinks_first,
    tools_to_send,
    turns,
)
from helix.adapters.models.wire import AttemptFailedError, CallPart, Piece
from helix.core.json import JsonObject, dumps
from helix.core.messages import ToolResultMessage, UserMessage
from helix.ports.model import LLMGenerateInput, ToolSpec

_OF_THE_CLIENT = {"api_key": "api_key", "auth_token": "auth_token", "api_base": "base_url", "base_url": "base_url"}
_EXTRA = frozenset({"extra_headers", "extra_query", "extra_body"})


class AnthropicWire:
    """Implements `Wire`."""

    def __init__(self, prices: Prices) -> None:
        self._prices, self._clients = prices, Clients(AsyncAnthropic, partial(DefaultAsyncHttpxClient, **BOUNDED))

    def exchange(self, request: LLMGenerateInput, model: str) -> _Exchange:
        return _Exchange(request, model, self._prices, self._clients, AsyncStream)

    def batches(self, client: Any, model: str) -> AnthropicBatches:
        return AnthropicBatches(client, model)


class _Exchange(SdkExchange):
    """Implements `Exchange`."""

    interface = "messages"

    def __init__(self, request: LLMGenerateInput, model: str, prices: Prices, clients: Clients, stream: Any) -> None:
        super().__init__(request, model, prices, clients, stream)
        self._reported: dict[str, Any] = {}
        self._blocks = ContentBlocks()

    async def open(self) -> None:
        options = self.options
        client = self.connect(options)
        await self.files.load()
        self.constrain("anthropic")
        try:
            await self.post(client, "/v1/messages", self._body(options), self._with_betas(options))
        except TypeError as error:  # the package raises this if it has no credentials
            raise AttemptFailedError(failure(self.model, "authentication", "")) from error

    def connect(self, options: dict[str, Any]) -> Any:
        """Return the client for these options, and remove the client's own options from `options`."""
        given = self.drop_client_options(options)
        if "auth_token" not in given:
            given.setdefault("api_key", os.environ.get("ANTHROPIC_API_KEY") or None)
        given["base_url"] = base_of(given)
        return self.clients.client(**given)

    def drop_client_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Remove the client's own options from `options`, and return them under the client's names."""
        return {_OF_THE_CLIENT[name]: options.pop(name) for name in list(options) if name in _OF_THE_CLIENT}

    async def form(self) -> dict[str, Any]:
        options = self.options
        self.drop_client_options(options)
        self.constrain("anthropic")
        body = {**self._body(options), **(options.get("extra_body") or {})}
        return {name: value for name, value in body.items() if name != "stream"}

    def read(self, answer: Mapping[str, Any]) -> Sequence[Piece]:
        self.constrain("anthropic")
        self._count(answer.get("usage"))
        self.finish_reason = answer.get("stop_reason")
        pieces: list[Piece] = []
        for index, block in enumerate(answer.get("content") or ()):
            pieces += self._blocks.read({"type": "content_block_start", "index": index, "content_block": block})
            if block.get("type") == "tool_use":
                pieces.append(CallPart(index, arguments=dumps(block.get("input") or {})))
        return pieces

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
            case _:
                return self._blocks.read(event)
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
            searches=count(now, "server_tool_use", "web_search_requests"),
        )

    @property
    def _free_choice(self) -> str:
        """The choice without own tools: those of the history are only described, not offered."""
        is_free = self.request.config.server_tools and self.request.tool_choice != "none"
        return "auto" if is_free else "none"

    def _with_betas(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options with the header that the provider's tools need."""
        betas = server_tool_form(self.request.config.server_tools, self.interface).betas
        if not betas:
            return options
        headers = {name.lower(): value for name, value in (options.get("extra_headers") or {}).items()}
        given = [headers["anthropic-beta"]] if "anthropic-beta" in headers else []
        return {**options, "extra_headers": {**headers, "anthropic-beta": ",".join([*given, *betas])}}

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
        mark = cache_mark(self.request, supported=bool(entry.get("supports_prompt_caching", not entry)))
        body |= own_options(options, _EXTRA | OPENAIS | ({"cache_control"} if mark else set()))
        system, messages = turns(
            self.request.messages, text=text_block, content=self._content, answer=answer_blocks, result=self._result
        )
        if system:
            body["system"] = [text_block(system)]
        form = server_tool_form(config.server_tools, self.interface)
        if tools or form.tools:
            body["tools"] = [*(_tool(tool, self.strict_forms.get(tool.name)) for tool in tools), *form.tools]
            unforced = thinks or entry.get("supports_forced_tool_use") is False
            choice = self.request.tool_choice if self.request.tools else self._free_choice
            body["tool_choice"] = _choice(choice, unforced)
            if config.parallel_tool_calls is False and body["tool_choice"]["type"] != "none":
                body["tool_choice"]["disable_parallel_tool_use"] = True
        if form.servers:
            body["mcp_servers"] = form.servers
        if mark:
            heads = [(blocks, len(blocks)) for blocks in (body.get("tools"), body.get("system")) if blocks]
            for blocks, end in [*heads, *moving_ends(messages, self.request.passing)]:
                if blocks[end - 1].get("type") not in ("thinking", "redacted_thinking"):
                    blocks[end - 1]["cache_control"] = mark
        return {**body, "model": self.name, "messages": messages, "stream": True}

    def _content(self, message: UserMessage | ToolResultMessage) -> Blocks:
        return [text_block(part) if isinstance(part, str) else _file(part) for part in self.files.content(message)]

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


def base_of(options: Mapping[str, Any]) -> str | None:
    """Return the base URL from the options or the environment, or None for the package's default."""
    base = options.get("base_url") or os.environ.get("ANTHROPIC_API_BASE") or os.environ.get("ANTHROPIC_BASE_URL")
    return base.rstrip("/").removesuffix("/messages").removesuffix("/v1") if base else None


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


def _file(sent: Sent) -> dict[str, Any]:
    source: dict[str, Any] = {"type": "url", "url": sent.file.url}
    if sent.data is not None:
        source = {"type": "base64", "media_type": sent.file.media_type, "data": sent.encoded}
    if sent.form == "image":
        return {"type": "image", "source": source}
    return {"type": "document", "source": source, **({"title": sent.file.name} if sent.file.name else {})}
