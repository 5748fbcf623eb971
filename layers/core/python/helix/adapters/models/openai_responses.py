"""OpenAI's Responses API, at OpenAI and at Azure.

Law: the provider stores nothing (`store` is false). A step's encrypted reasoning comes with its answer, is stored in
the session's row and is sent back with it. Options in the terms of Chat Completions are translated, or refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openai import APIError, BadRequestError

from helix.adapters.models.failures import failure
from helix.adapters.models.file_parts import Sent
from helix.adapters.models.openai_api import CHAT_ONLY
from helix.adapters.models.openai_exchange import EXTRA, OpenAIExchange
from helix.adapters.models.pricing import Tokens, count
from helix.adapters.models.sdk import own_options
from helix.adapters.models.server_tool_forms import fees, server_tool_form, web_searches
from helix.adapters.models.turns import Passage, call_id, in_order
from helix.adapters.models.wire import (
    AttemptFailedError,
    CallPart,
    Cited,
    Piece,
    RefusedRequestError,
    Served,
    Text,
    Thinking,
)
from helix.core.json import dumps
from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    Citation,
    ServerBlock,
    SystemMessage,
    ThinkingContent,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
)
from helix.core.run_settings import CHOICES

_OF_THE_SESSION = frozenset({"background", "conversation", "input", "instructions", "previous_response_id", "prompt"})
"""The options that the session determines. A second value would contradict it."""
_TRANSLATED = frozenset(
    {"max_completion_tokens", "max_tokens", "reasoning", "reasoning_effort", "response_format", "text", "verbosity"}
)
_UNSUMMARIZED = set[tuple[str, int]]()
"""The models that refused to show summaries because OpenAI has not verified the organization. Each is stored with a
hash of its options, because they may contain a key."""
_SERVED = frozenset({"web_search_call", "code_interpreter_call", "file_search_call", "mcp_call", "mcp_list_tools"})
"""The items of OpenAI's own tools."""
_INCOMPLETE = {"max_output_tokens": "length", "content_filter": "content_filter"}


class ResponsesExchange(OpenAIExchange):
    """Implements `Exchange`."""

    interface = "responses"

    async def open(self) -> None:
        options = self.options
        client = self.connect(options)
        self._check(options)
        await self.files.load()
        self.constrain("openai")
        self._begun: set[int] = set()
        self._served: list[Mapping[str, Any]] = []
        self._said = self._part_at = 0
        try:
            await self.post(client, "/responses", self._body(options), options)
        except BadRequestError as error:
            if "reasoning.summary" not in str(error):
                raise
            _UNSUMMARIZED.add(self._key_of_options)
            await self.post(client, "/responses", self._body(options), options)

    async def form(self) -> dict[str, Any]:
        options = self.options
        self.drop_client_options(options)
        self._check(options)
        self.constrain("openai")
        body = {**self._body(options), **(options.get("extra_body") or {})}
        return {name: value for name, value in body.items() if name != "stream"}

    def read(self, answer: Mapping[str, Any]) -> Sequence[Piece]:
        self.constrain("openai")
        self._begun, self._served = set(), []
        if answer.get("status") == "failed":
            error = answer.get("error") or {}
            raise RefusedRequestError(None, error)
        pieces: list[Piece] = []
        for index, item in enumerate(answer.get("output") or ()):
            pieces += self._read_whole(index, item)
        self._end(answer)
        return pieces

    def _read_whole(self, index: int, item: Mapping[str, Any]) -> list[Piece]:
        """Return the pieces of an item that did not arrive as a stream."""
        match item["type"]:
            case "message":
                parts = item.get("content") or ()
                self.refusal += "".join(part.get("refusal") or "" for part in parts)
                return [Text(part.get("text") or "", item.get("phase")) for part in parts]
            case "reasoning":
                parts = [part.get("text") or "" for part in item.get("summary") or item.get("content") or ()]
                return [Thinking("\n\n".join(parts)), *self._read_item(index, item)]
            case _:
                return [*self._read_item(index, item)]

    def _check(self, options: Mapping[str, Any]) -> None:
        """Raise `AttemptFailedError` for an option that this interface does not have."""
        for name in sorted((CHAT_ONLY | _OF_THE_SESSION) & options.keys()):
            what = (
                "names a conversation other than the session's: leave it out"
                if name in _OF_THE_SESSION
                else "is not an option of the Responses API: leave it out, or set api='chat'"
            )
            raise AttemptFailedError(failure(self.model, "bad_request", f"provider_options[{name!r}] {what}"))

    async def next(self) -> Sequence[Piece] | None:
        event = await self.event()
        if event is None:
            return None
        match event.get("type"):
            case "response.refusal.delta":
                self.refusal += event["delta"]
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return [Thinking(event["delta"])]
            case "response.reasoning_summary_part.added" if event.get("summary_index"):
                return [Thinking("\n\n")]
            case "response.output_item.added" if event["item"]["type"] == "message":
                return [Text("", event["item"].get("phase"))]
            case "response.output_item.added" if event["item"]["type"] == "function_call":
                return [CallPart(event["output_index"], event["item"]["call_id"], event["item"]["name"])]
            case "response.function_call_arguments.delta":
                self._begun.add(event["output_index"])
                return [CallPart(event["output_index"], arguments=event["delta"])]
            case "response.output_item.done":
                return self._read_item(event["output_index"], event["item"])
            case "response.completed" | "response.incomplete":
                self._end(event["response"])
            case "response.failed":
                self._raise_error(event["response"].get("error") or {})
            case "error":
                self._raise_error(event)
            case _:
                return self._read_text(event)
        return ()

    def _read_text(self, event: Mapping[str, Any]) -> Sequence[Piece]:
        match event.get("type"):
            case "response.output_text.delta":
                self._said += len(event["delta"])
                return [Text(event["delta"])]
            case "response.content_part.added":
                self._part_at = self._said
            case "response.output_text.annotation.added":
                return self._cited(event["annotation"])
            case "response.output_item.added" if event["item"]["type"] in _SERVED:
                return [Served(event["item"], complete=False)]
        return ()

    def _read_item(self, index: int, item: Mapping[str, Any]) -> Sequence[Piece]:
        if item["type"] in _SERVED:
            self._served.append(item)
            return [Served(dict(item))]
        if item["type"] == "reasoning" and item.get("encrypted_content"):
            return [Thinking(signature=item["encrypted_content"], id=item.get("id"))]
        if item["type"] == "function_call" and index not in self._begun:  # it arrived in one piece
            return [CallPart(index, item["call_id"], item["name"], item.get("arguments") or "")]
        return ()

    def _cited(self, given: Mapping[str, Any]) -> Sequence[Piece]:
        """Return the source of an annotation. Its place counts from the beginning of the part of the answer."""
        start = given.get("start_index", given.get("index", 0))
        place = {"start": self._part_at + start, "end": self._part_at + given.get("end_index", start)}
        title = given.get("title") or given.get("filename")
        return [Cited(Citation(url=given.get("url"), title=title, **place))]

    def _end(self, response: Mapping[str, Any]) -> None:
        if reported := response.get("usage"):
            self.tokens = Tokens(
                count(reported, "input_tokens"),
                count(reported, "output_tokens"),
                reasoning=count(reported, "output_tokens_details", "reasoning_tokens"),
                cached=count(reported, "input_tokens_details", "cached_tokens"),
                written=count(reported, "input_tokens_details", "cache_write_tokens"),
                searches=web_searches(self._served),
                fees=fees(self._served),
            )
        why = (response.get("incomplete_details") or {}).get("reason")
        self.finish_reason = _INCOMPLETE.get(why, why) if why else "stop"

    def _raise_error(self, error: Mapping[str, Any]) -> None:
        raise APIError(str(error.get("message") or ""), self.sent_request, body=dict(error))

    def _body(self, options: Mapping[str, Any]) -> dict[str, Any]:
        config, body = self.request.config, dict[str, Any]()
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if self.top_p is not None:
            body["top_p"] = self.top_p
        limit = config.max_output_tokens or options.get("max_completion_tokens") or options.get("max_tokens")
        if limit is not None:
            body["max_output_tokens"] = limit
        summary = None if self._key_of_options in _UNSUMMARIZED else "auto"
        reasoning = {"effort": self.effort, "summary": summary, **(options.get("reasoning") or {})}
        if self.is_reasoning:
            body["reasoning"] = {name: value for name, value in reasoning.items() if value is not None}
        form = server_tool_form(config.server_tools, self.interface)
        if include := [*(["reasoning.encrypted_content"] if self.is_reasoning else []), *form.include]:
            body["include"] = include
        text = {"verbosity": self.verbosity, "format": _format(options.get("response_format"))}
        text |= options.get("text") or {}
        if any(text.values()):
            body["text"] = {name: value for name, value in text.items() if value is not None}
        body |= {"store": False, **own_options(options, EXTRA | _TRANSLATED | {"cache_control", "thinking"})}
        body = self.cache_key | body
        own = [self._tool(tool.name, tool.description, tool.parameters) for tool in self.request.tools]
        if tools := [*own, *form.tools]:
            body["tools"] = tools
            choice = self.request.tool_choice
            body["tool_choice"] = choice if choice in CHOICES else {"type": "function", "name": choice}
            body = {**self.parallel, **body}
        system = [m.content for m in self.request.messages if isinstance(m, SystemMessage) and m.content.strip()]
        if system:
            body["instructions"] = "\n\n".join(system)
        items = [item for message in self.request.messages for item in self._items(message)]
        return {**body, "model": self.name, "input": items, "stream": True}

    def _items(self, message: AnyMessage) -> list[dict[str, Any]]:
        match message:
            case UserMessage():
                return [{"role": "user", "content": self._content(message)}]
            case AssistantMessage():
                return _answer(message)
            case ToolResultMessage():
                id = call_id(message.tool_call_id)
                return [{"type": "function_call_output", "call_id": id, "output": self._content(message)}]
            case _:
                return []

    def _content(self, message: UserMessage | ToolResultMessage) -> str | list[dict[str, Any]]:
        return [_part(part) for part in self.files.content(message)] if message.files else message.content

    @property
    def _key_of_options(self) -> tuple[str, int]:
        return self.name, hash(dumps(self.request.config.provider_options))

    def _tool(self, name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return a tool. In this API a tool is strict unless specified otherwise."""
        made, strict = self.strict_forms.get(name, parameters), name in self.strict_forms
        return {"type": "function", "name": name, "description": description, "parameters": made, "strict": strict}


def _part(part: str | Sent) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    if part.form == "image":
        return {"type": "input_image", "detail": "auto", "image_url": part.address}
    if part.data is None:
        return {"type": "input_file", "file_url": part.file.url}
    return {"type": "input_file", "filename": part.name, "file_data": part.address}


def _answer(message: AssistantMessage) -> list[dict[str, Any]]:
    """Return the items of an answer. Reasoning alone is refused, so it is sent only with the items that follow it."""
    return [item for part in in_order(message) if (item := _item(part, message.metadata.get("phase")))]


def _item(part: ThinkingContent | ServerBlock | ToolCallRequest | Passage, phase: Any) -> dict[str, Any] | None:
    match part:
        case Passage(text):
            return {"role": "assistant", "content": text, **({"phase": phase} if phase else {})}
        case ServerBlock(raw=raw):
            return raw if str(raw.get("type")) in _SERVED else None
        case ToolCallRequest():
            arguments = dumps(part.arguments)
            return {"type": "function_call", "call_id": call_id(part.id), "name": part.name, "arguments": arguments}
        case ThinkingContent(id=str(id), signature=str(sealed)):
            summary = [{"type": "summary_text", "text": part.text}] if part.text else []
            return {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": sealed}
        case _:
            return None


def _format(given: Any) -> Any:
    """Return `response_format` of Chat Completions as `text.format`."""
    if isinstance(given, Mapping) and given.get("type") == "json_schema":
        return {"type": "json_schema", **given["json_schema"]}
    return given
