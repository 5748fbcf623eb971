"""Amazon Bedrock's models through boto3's ConverseStream, with the credentials that boto3 finds. On AWS these are the
credentials of the function's role.

A model's name is `bedrock/` followed by a Bedrock id. The id is a model id, the id of a cross-region inference profile
(`us.`, `eu.`, `global.`), or an ARN, which contains its region.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import threading
from collections.abc import Mapping, Sequence
from itertools import count as count_from
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import NoRegionError

from helix.adapters.models.bedrock_stream import Conversation, send_bodies, watch_connections
from helix.adapters.models.catalog import entry_of
from helix.adapters.models.effort import bedrock_options
from helix.adapters.models.failures import failure
from helix.adapters.models.file_forms import CONVERSE_AUDIO, CONVERSE_DOCUMENTS, CONVERSE_VIDEO, IMAGES
from helix.adapters.models.file_parts import Encoded, JsonBody, RequestFiles, Sent, mapped
from helix.adapters.models.pricing import Prices, Tokens, count
from helix.adapters.models.prompt_caches import cache_mark, moving_ends
from helix.adapters.models.sdk import OPENAIS, own_options
from helix.adapters.models.turns import (
    LEAST_ANSWER,
    NOTHING,
    Blocks,
    Passage,
    call_id,
    in_order,
    takes_temperature,
    thinks_first,
    tools_to_send,
    turns,
)
from helix.adapters.models.wire import AttemptFailedError, CallPart, NativeExchange, Piece, Redacted, Text, Thinking
from helix.core.json import JsonObject, dumps
from helix.core.messages import (
    AssistantMessage,
    ServerBlock,
    ThinkingContent,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
)
from helix.ports.model import LLMGenerateInput, ToolSpec

_OF_THE_SESSION = {
    "aws_access_key_id": "aws_access_key_id",
    "aws_secret_access_key": "aws_secret_access_key",
    "aws_session_token": "aws_session_token",
    "aws_profile_name": "profile_name",
    "aws_region_name": "region_name",
    "region_name": "region_name",
}
_REGION = ("AWS_REGION_NAME", "AWS_REGION")
"""The environment variables for the region that boto3 does not read."""
_LITELLMS = frozenset({"api_key", "auth_token"})
"""litellm's options for credentials, which are not sent to a model."""
_ENDPOINT = ("aws_bedrock_runtime_endpoint", "api_base", "base_url")
_LONGEST_S = 86_400
"""boto3's read timeout, in seconds. The timeouts of `LLMConfig` end the attempt earlier."""
_CONNECT_S = 10
_CONNECTIONS = 64
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9 ()\[\]-]")
_HOUR_PRICE = "cache_creation_input_token_cost_above_1hr"
"""The price that marks the models whose cache can last an hour. Bedrock refuses a lifetime for the others."""
_LONGEST_NAME = 190
"""The maximum length of a document's name, without its number. Converse accepts 200 characters."""


class BedrockWire:
    """A `Wire` on boto3. It keeps one client for each region, endpoint and set of credentials."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._clients: dict[str, Any] = {}
        self._making = threading.Lock()

    def exchange(self, request: LLMGenerateInput, model: str) -> _Exchange:
        return _Exchange(request, model, self._prices, self)

    def client(self, session: Mapping[str, Any], endpoint: str | None) -> Any:
        """Return the client, which blocks the first time. Raises boto3's errors."""
        key = dumps({**session, "endpoint": endpoint})
        with self._making:
            if key not in self._clients:
                config = Config(
                    retries={"total_max_attempts": 1},
                    read_timeout=_LONGEST_S,
                    connect_timeout=_CONNECT_S,
                    max_pool_connections=_CONNECTIONS,
                    tcp_keepalive=True,
                )
                made = boto3.Session(**session).client("bedrock-runtime", endpoint_url=endpoint, config=config)
                watch_connections(made)
                send_bodies(made)
                self._clients[key] = made
            return self._clients[key]


class _Exchange(NativeExchange):
    """Implements `Exchange`."""

    def __init__(self, request: LLMGenerateInput, model: str, prices: Prices, wire: BedrockWire) -> None:
        super().__init__(request, model, prices)
        self._wire = wire
        self._files = RequestFiles(request, model, "converse")
        self._names: list[str] = []
        self._conversation: Conversation | None = None

    @property
    def name(self) -> str:
        return self.model.removeprefix("bedrock/").removeprefix("converse/")

    @property
    def options(self) -> dict[str, Any]:
        config = self.request.config
        thinking = bedrock_options(config.reasoning, self.name, entry_of(self.model), config.max_output_tokens)
        return {**thinking, **super().options}

    @property
    def _is_claude(self) -> bool:
        """Whether the model is Claude. The ARN of an inference profile may not reveal this, but only Claude has the
        option `thinking`."""
        return "claude" in self.name.lower() or (self._is_arn and not self._is_nova and thinks_first(self.options))

    @property
    def _thinks(self) -> bool:
        return self._is_claude and thinks_first(self.options)

    @property
    def _is_arn(self) -> bool:
        return self.name.startswith("arn:")

    @property
    def _is_nova(self) -> bool:
        return "nova" in self.name.lower()

    async def open(self) -> None:
        options = self.options
        session = {_OF_THE_SESSION[name]: options.pop(name) for name in list(options) if name in _OF_THE_SESSION}
        endpoint = next((found for found in [options.pop(name, None) for name in _ENDPOINT] if found), None)
        if unknown := next((name for name in options if name in _LITELLMS or name.startswith("aws_")), None):
            problem = f"provider_options[{unknown!r}] needs litellm: pip install 'helix-agents[models]'"
            raise AttemptFailedError(failure(self.model, "bad_request", problem))
        if self._is_arn:
            session.setdefault("region_name", self.name.split(":")[3])
        elif region := next((os.environ[name] for name in _REGION if os.environ.get(name)), None):
            session.setdefault("region_name", region)
        try:
            client = await asyncio.to_thread(self._wire.client, session, endpoint)
        except NoRegionError as error:
            problem = "no AWS region: set AWS_REGION, or provider_options['aws_region_name']"
            raise AttemptFailedError(failure(self.model, "bad_request", problem)) from error
        await self._files.load()
        known = client.meta.service_model.operation_model("ConverseStream").input_shape.members
        if "strict" in client.meta.service_model.shape_for("ToolSpecification").members:  # an older boto3 refuses it
            self.constrain("boto3")
        arguments, body = self._arguments(options, frozenset(known)), None
        if self._files.loaded:
            whole = {name: value for name, value in arguments.items() if "location" not in known[name].serialization}
            body = JsonBody(mapped(whole, lambda leaf: Encoded(leaf) if isinstance(leaf, bytes) else leaf))
            arguments = mapped(arguments, lambda leaf: b"-" if isinstance(leaf, Encoded) else leaf)
        self._conversation = Conversation(client, arguments, body)
        self._files.release()
        await self._conversation.start()

    async def next(self) -> Sequence[Piece] | None:
        assert self._conversation is not None, "an exchange is opened first"
        event = await self._conversation.next()
        if event is None:
            return None
        for name, payload in event.items():
            match name:
                case "contentBlockStart":
                    call = payload["start"].get("toolUse")
                    return [CallPart(payload["contentBlockIndex"], call["toolUseId"], call["name"])] if call else ()
                case "contentBlockDelta":
                    return _pieces(payload["contentBlockIndex"], payload["delta"])
                case "messageStop":
                    self.finish_reason = payload.get("stopReason")
                case "metadata":
                    self._count(payload.get("usage"))
        return ()

    async def close(self) -> None:
        if self._conversation is not None:
            self._conversation.abort()

    def _count(self, reported: Mapping[str, Any] | None) -> None:
        if not reported:
            return
        cached, written = count(reported, "cacheReadInputTokens"), count(reported, "cacheWriteInputTokens")
        hour = sum(count(part, "inputTokens") for part in reported.get("cacheDetails") or () if part.get("ttl") == "1h")
        self.tokens = Tokens(
            count(reported, "inputTokens") + cached + written,
            count(reported, "outputTokens"),
            cached=cached,
            written=max(written - hour, 0),
            written_1h=min(hour, written),
        )

    def _arguments(self, options: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
        """Return the arguments of `ConverseStream`. A provider option with the name of an argument is passed as that
        argument. All others are passed as model-specific fields."""
        entry = entry_of(self.model)
        system, messages = turns(
            self.request.messages, text=_text, content=self._content, answer=self._answer, result=self._result
        )
        arguments: dict[str, Any] = {name: value for name, value in options.items() if name in known}
        more = own_options(
            options, known | OPENAIS | {"cache_control"} | ({"top_p"} if self._is_claude else {"top_p", "thinking"})
        )
        if (tools := self._tools(entry)) and (choice := self._claudes_choice("toolChoice" in tools)):
            more["tool_choice"] = choice
        if more:
            arguments["additionalModelRequestFields"] = {**more, **arguments.get("additionalModelRequestFields", {})}
        inference = {**self._inference(options, entry), **arguments.get("inferenceConfig", {})}
        if inference:
            arguments["inferenceConfig"] = inference
        if system:
            arguments["system"] = [_text(system)]
        if tools:
            arguments["toolConfig"] = tools
        caches = (self._is_claude or self._is_nova) and entry.get("supports_prompt_caching", not entry)
        mark = cache_mark(self.request, supported=True) if caches else None
        if mark:
            lasting = entry.get(_HOUR_PRICE, not entry) and "ttl" in mark
            point = {"cachePoint": {"type": "default"} | ({"ttl": mark["ttl"]} if lasting else {})}
            heads = [tools.get("tools") if self._is_claude else None, arguments.get("system")]
            for blocks in filter(None, heads):
                blocks.append(point)
            for blocks, end in moving_ends(messages, self.request.passing):
                _insert_point(blocks, end, point)
        return {**arguments, "modelId": self.name, "messages": messages}

    def _inference(self, options: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
        config, made = self.request.config, dict[str, Any]()
        budget = count(options, "thinking", "budget_tokens") if self._thinks else 0
        if config.max_output_tokens is not None:
            made["maxTokens"] = config.max_output_tokens
        elif budget:
            made["maxTokens"] = budget + LEAST_ANSWER
        if config.temperature is not None and takes_temperature(config.temperature, entry, self._thinks):
            made["temperature"] = config.temperature
        if config.stop:
            made["stopSequences"] = config.stop
        if (top_p := options.get("top_p", config.top_p)) is not None:
            made["topP"] = top_p
        return made

    def _tools(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        request = self.request
        tools = [_tool(tool, self.strict_forms.get(tool.name)) for tool in tools_to_send(request)]
        made: dict[str, Any] = {"tools": tools} if tools else {}
        if not request.tools:
            return made
        unforced = self._thinks or entry.get("supports_forced_tool_use") is False
        forced = request.tool_choice not in ("auto", "none") and not unforced
        if forced and (self._is_claude or self._is_nova or entry.get("supports_tool_choice", not entry)):
            named = {"any": {}} if request.tool_choice == "required" else {"tool": {"name": request.tool_choice}}
            made["toolChoice"] = named
        return made

    def _claudes_choice(self, chosen: bool) -> dict[str, Any] | None:
        """Return Claude's own field for what Converse cannot say. `chosen`: whether `toolChoice` has the type, which may
        be given only once."""
        request = self.request
        if not self._is_claude or not request.tools:
            return None
        if "none" == request.tool_choice == request.config.tool_choice:
            return {"type": "none"}
        if request.config.parallel_tool_calls is False:
            return {"disable_parallel_tool_use": True} | ({} if chosen else {"type": "auto"})
        return None

    def _answer(self, message: AssistantMessage) -> Blocks:
        return [block for part in in_order(message) if (block := self._block(part))]

    def _block(self, part: ThinkingContent | ServerBlock | ToolCallRequest | Passage) -> dict[str, Any] | None:
        match part:
            case Passage(text):
                return _text(text)
            case ServerBlock():
                return None
            case ToolCallRequest():
                return {"toolUse": {"toolUseId": call_id(part.id), "name": part.name, "input": part.arguments}}
            case ThinkingContent():
                signed = self._is_claude and (part.signature or part.redacted)
                return {"reasoningContent": _thought(part)} if signed else None

    def _content(self, message: UserMessage | ToolResultMessage) -> Blocks:
        made = [_text(part) if isinstance(part, str) else self._file(part) for part in self._files.content(message)]
        if any("document" in block for block in made) and not any("text" in block for block in made):  # required
            made.append(_text(NOTHING))
        return made

    def _file(self, sent: Sent) -> dict[str, Any]:
        media_type, where = sent.file.media_type, {"s3Location": {"uri": sent.location}}
        source: dict[str, Any] = where if sent.data is None else {"bytes": sent.encoded}
        match sent.form:
            case "image":
                return {"image": {"format": IMAGES[media_type], "source": source}}
            case "audio":
                return {"audio": {"format": CONVERSE_AUDIO[media_type], "source": source}}
            case "video":
                return {"video": {"format": CONVERSE_VIDEO[media_type], "source": source}}
            case _:
                name = self._document_name(sent)
                return {"document": {"format": CONVERSE_DOCUMENTS[media_type], "name": name, "source": source}}

    def _document_name(self, sent: Sent) -> str:
        """Return a name that Converse accepts: it has only allowed characters and is unique in the request. It depends
        only on the earlier documents, so that the next step's prompt begins with the same bytes."""
        stem = re.sub(r"\s+", " ", _NOT_IN_NAMES.sub(" ", sent.name.rpartition(".")[0] or sent.name)).strip()
        stem = stem[:_LONGEST_NAME].rstrip() or "document"
        names = (stem if number == 1 else f"{stem} ({number})" for number in count_from(1))
        name = next(name for name in names if name.lower() not in self._names)
        self._names.append(name.lower())
        return name

    def _result(self, message: ToolResultMessage) -> dict[str, Any]:
        content = self._content(message) or [_text(NOTHING)]
        made: dict[str, Any] = {"toolUseId": call_id(message.tool_call_id), "content": content}
        if not message.success and (self._is_claude or self._is_nova):  # other models refuse the field
            made["status"] = "error"
        return {"toolResult": made}


def _pieces(index: int, delta: Mapping[str, Any]) -> Sequence[Piece]:
    if (reasoning := delta.get("reasoningContent")) is not None:
        if redacted := reasoning.get("redactedContent"):
            return [Redacted(base64.b64encode(redacted).decode())]
        return [Thinking(reasoning.get("text") or "", reasoning.get("signature") or None)]
    if (call := delta.get("toolUse")) is not None:
        return [CallPart(index, arguments=call.get("input") or "")]
    return [Text(delta.get("text") or "")]


def _insert_point(blocks: Blocks, end: int, point: dict[str, Any]) -> None:
    """Insert the cache point after the first `end` blocks, but before the documents and videos that would precede it:
    Converse refuses a cache point directly after them, and one with nothing before it."""
    while end and blocks[end - 1].keys() & {"document", "video"}:
        end -= 1
    if end:
        blocks.insert(end, point)


def _text(text: str) -> dict[str, Any]:
    return {"text": text}


def _tool(tool: ToolSpec, strict: JsonObject | None) -> dict[str, Any]:
    schema = {"json": strict or tool.parameters}
    made = {"name": tool.name, "description": tool.description or tool.name, "inputSchema": schema}
    return {"toolSpec": {**made, "strict": True} if strict else made}


def _thought(block: ThinkingContent) -> dict[str, Any]:
    if block.redacted:
        return {"redactedContent": base64.b64decode(block.redacted)}
    return {"reasoningText": {"text": block.text, "signature": block.signature}}
