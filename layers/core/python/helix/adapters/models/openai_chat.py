"""OpenAI's Chat Completions, for OpenAI and every server that supports it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from helix.adapters.models.openai_exchange import EXTRA, OpenAIExchange
from helix.adapters.models.openai_form import to_messages, to_tool_choice, to_tools
from helix.adapters.models.pricing import Tokens, count
from helix.adapters.models.prompt_caches import cache_mark
from helix.adapters.models.reasoning import is_claude
from helix.adapters.models.sdk import own_options
from helix.adapters.models.wire import CallPart, Piece, Text, Thinking
from helix.core.json import dumps


class ChatExchange(OpenAIExchange):
    """Implements `Exchange`."""

    interface = "chat"

    async def open(self) -> None:
        options = self.options
        client = self.connect(options)
        await self.files.load()
        self.constrain("openai")
        await self.post(client, "/chat/completions", self._body(options), options)

    async def next(self) -> Sequence[Piece] | None:
        event = await self.event()
        return None if event is None else self._read(event)

    async def form(self) -> dict[str, Any]:
        self.constrain("openai")
        options = self.options
        self.drop_client_options(options)
        body = {**self._body(options), **(options.get("extra_body") or {})}
        return {name: value for name, value in body.items() if name not in ("stream", "stream_options")}

    def read(self, answer: Mapping[str, Any]) -> Sequence[Piece]:
        self.constrain("openai")
        choices = [{**choice, "delta": _numbered(choice.get("message") or {})} for choice in answer["choices"][:1]]
        return self._read({**answer, "choices": choices})

    def _read(self, event: Mapping[str, Any]) -> Sequence[Piece]:
        if reported := event.get("usage"):
            self.tokens = Tokens(
                count(reported, "prompt_tokens"),
                count(reported, "completion_tokens"),
                reasoning=count(reported, "completion_tokens_details", "reasoning_tokens"),
                cached=count(reported, "prompt_tokens_details", "cached_tokens"),
                written=count(reported, "prompt_tokens_details", "cache_write_tokens"),
                audio=count(reported, "prompt_tokens_details", "audio_tokens"),
            )
        choices = event.get("choices")
        if not choices:
            return ()
        self.finish_reason = choices[0].get("finish_reason") or self.finish_reason
        delta = choices[0].get("delta") or {}
        self.refusal += delta.get("refusal") or ""
        return list(_pieces(delta))

    def _body(self, options: Mapping[str, Any]) -> dict[str, Any]:
        config, body = self.request.config, dict[str, Any]()
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if self.top_p is not None:
            body["top_p"] = self.top_p
        if config.max_output_tokens is not None:
            body["max_completion_tokens" if self.is_reasoning else "max_tokens"] = config.max_output_tokens
        if config.stop and not self.is_reasoning:
            body["stop"] = config.stop
        if self.verbosity is not None:
            body["verbosity"] = self.verbosity
        others = {"cache_control", "thinking", "verbosity", *(() if self.is_reasoning else ("reasoning_effort",))}
        body |= own_options(options, EXTRA | others if self.is_known else EXTRA)
        body = self.cache_key | body
        if self.effort is not None:
            body["reasoning_effort"] = self.effort
        elif not self.is_known and config.reasoning is not None:
            body.setdefault("reasoning_effort", config.reasoning)
        if self.request.tools:
            body["tools"] = to_tools(self.request.tools, strict=self.strict_forms)
            body["tool_choice"] = to_tool_choice(self.request.tool_choice)
            body = self.parallel | body
        mark = None
        if is_claude(self.model):  # behind a gateway with OpenAI's interface, which may not know marks
            mark = cache_mark(self.request, supported=False)
        made = to_messages(
            self.request.messages, self.model, "openai", self.files, mark=mark, passing=self.request.passing
        )
        messages = [{name: value for name, value in message.items() if value is not None} for message in made]
        return {
            **body,
            "model": self.name,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


def _numbered(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a whole message with a number for each call, as a stream has it."""
    calls = message.get("tool_calls") or ()
    return {**message, "tool_calls": [{**call, "index": index} for index, call in enumerate(calls)]}


def _pieces(delta: Mapping[str, Any]) -> Iterator[Piece]:
    yield Thinking(delta.get("reasoning_content") or delta.get("reasoning") or "")
    yield Text(delta.get("content") or "")
    for part in delta.get("tool_calls") or ():
        function = part.get("function") or {}
        arguments = function.get("arguments") or ""
        text = arguments if isinstance(arguments, str) else dumps(arguments)  # some servers send the object itself
        yield CallPart(part.get("index") or 0, part.get("id") or "", function.get("name") or "", text)
