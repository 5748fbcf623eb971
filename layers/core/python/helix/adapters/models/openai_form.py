"""The form of a model call in OpenAI's Chat Completions, and in litellm's `acompletion`, which follows it.

Law: nothing is sent that the provider does not accept. Reasoning and cache marks are sent only to models that
understand them, so the same history works for every model of a fallback list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from helix.adapters.models.catalog import entry_of
from helix.adapters.models.effort import litellm_effort
from helix.adapters.models.file_forms import CHAT_AUDIO, note
from helix.adapters.models.file_parts import RequestFiles, Sent, plain
from helix.adapters.models.openai_api import takes_verbosity
from helix.adapters.models.prompt_caches import cache_key, cache_mark, previous_end
from helix.adapters.models.reasoning import is_claude
from helix.adapters.models.turns import tools_to_send
from helix.core.json import JsonObject
from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    SystemMessage,
    ThinkingContent,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
)
from helix.core.run_settings import CHOICES
from helix.ports.model import LLMGenerateInput, ToolSpec

# Providers that require a thinking model's plain reasoning along with its tool calls.
_WANT_REASONING_BACK = frozenset({"deepseek", "moonshot"})
_CLAUDES = ("anthropic", "bedrock", "vertex_ai")
"""The beginnings of litellm's names for the providers of Claude whose new models have a prompt cache."""


def call_arguments(
    request: LLMGenerateInput, model: str, provider: str, files: RequestFiles, *, strict: Mapping[str, JsonObject]
) -> dict[str, Any]:
    """Return the keyword arguments of `litellm.acompletion` for `model`. `provider_options` override other settings,
    except those that the adapter depends on (streaming, its own retries, the conversation). `strict`: see
    `to_tools`."""
    config = request.config
    claude = is_claude(model, provider)
    entry = entry_of(model)
    supported = bool(entry.get("supports_prompt_caching", provider.startswith(_CLAUDES)))
    mark = cache_mark(request, supported=supported) if claude else None
    offered = tools_to_send(request) if claude or provider.startswith("bedrock") else request.tools
    tools = to_tools(offered, strict=strict, mark=mark)
    arguments: dict[str, Any] = {"drop_params": True, "timeout": config.timeout_s}
    if config.temperature is not None:
        arguments["temperature"] = config.temperature
    if config.top_p is not None:
        arguments["top_p"] = config.top_p
    if config.parallel_tool_calls is not None and request.tools:
        arguments["parallel_tool_calls"] = config.parallel_tool_calls
    if config.max_output_tokens is not None:
        arguments["max_tokens"] = config.max_output_tokens
    if config.stop:
        arguments["stop"] = config.stop
    if config.reasoning is not None and "thinking" not in config.provider_options:
        arguments["reasoning_effort"] = litellm_effort(config.reasoning, claude, provider)
    if config.verbosity is not None and takes_verbosity(model):
        arguments["verbosity"] = config.verbosity
    if provider == "openai" and entry and (key := cache_key(request)) is not None:
        arguments["prompt_cache_key"] = key
    arguments |= config.provider_options
    if mark is not None or not claude:
        arguments.pop("cache_control", None)
    if tools:
        arguments["tools"] = tools
    if request.tools:
        arguments["tool_choice"] = to_tool_choice(request.tool_choice)
    return arguments | {
        "model": model,
        "messages": plain(to_messages(request.messages, model, provider, files, mark=mark, passing=request.passing)),
        "stream": True,
        "stream_options": {"include_usage": True},
        "num_retries": 0,
        "max_retries": 0,
    }


def to_tools(
    tools: Sequence[ToolSpec], *, strict: Mapping[str, JsonObject], mark: JsonObject | None = None
) -> list[dict[str, Any]]:
    """Return the tools in OpenAI's form. `strict`: the strict forms of schemas, by tool. `mark`: see `cache_mark`."""
    made: list[dict[str, Any]] = []
    for tool in tools:
        function: dict[str, Any] = {"name": tool.name, "description": tool.description}
        if tool.name in strict:
            function |= {"parameters": strict[tool.name], "strict": True}
        else:
            function["parameters"] = tool.parameters
        made.append({"type": "function", "function": function})
    if mark is not None and made:
        made[-1]["cache_control"] = mark
    return made


def to_tool_choice(choice: str) -> str | dict[str, Any]:
    return choice if choice in CHOICES else {"type": "function", "function": {"name": choice}}


def to_messages(
    messages: Sequence[AnyMessage],
    model: str,
    provider: str,
    files: RequestFiles,
    *,
    mark: JsonObject | None = None,
    passing: int = 0,
) -> list[dict[str, Any]]:
    """Return the messages in litellm's form. Empty assistant messages are skipped, because providers refuse them. A
    tool result can only be text, so a user message after a step's results carries their files."""
    made: list[dict[str, Any]] = []
    returned: list[dict[str, Any]] = []
    for message in messages:
        if returned and not isinstance(message, ToolResultMessage):
            made.append({"role": "user", "content": returned})
            returned = []
        match message:
            case SystemMessage():
                made.append({"role": "system", "content": message.content})
            case UserMessage():
                made.append({"role": "user", "content": _content(message, files)})
            case AssistantMessage():
                if message.content or message.tool_calls:
                    made.append(_assistant(message, model, provider))
            case ToolResultMessage():
                content, more = _result(message, files)
                made.append({"role": "tool", "tool_call_id": message.tool_call_id, "content": content})
                returned += more
            case _:
                assert_never(message)
    if returned:
        made.append({"role": "user", "content": returned})
    if mark is not None and made:
        ends = {0, previous_end([message["role"] for message in made]) or 0, max(len(made) - 1 - passing, 0)}
        for end in ends:
            _add_cache_mark(made[end], mark)
    return made


def _content(message: UserMessage, files: RequestFiles) -> str | list[dict[str, Any]]:
    if not message.files:
        return message.content
    return [_text(part) if isinstance(part, str) else _file(part) for part in files.content(message)]


def _result(message: ToolResultMessage, files: RequestFiles) -> tuple[str, list[dict[str, Any]]]:
    """Return the text of a result, which names the files in their places, and the parts of the message after it."""
    if not message.files:
        return message.content, []
    texts: list[str] = []
    parts: list[dict[str, Any]] = []
    for part in files.content(message):
        if isinstance(part, str):
            texts.append(part)
        else:
            texts.append(note(part.file, readable=True))
            parts += [_text(f"From the result of call {message.tool_call_id}: {texts[-1]}"), _file(part)]
    return "\n".join(texts), parts


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _file(sent: Sent) -> dict[str, Any]:
    match sent.form:
        case "image":
            return {"type": "image_url", "image_url": {"url": sent.address}}
        case "audio":
            audio = {"data": sent.encoded, "format": CHAT_AUDIO[sent.file.media_type]}
            return {"type": "input_audio", "input_audio": audio}
        case _:
            return {"type": "file", "file": {"filename": sent.name, "file_data": sent.address}}


def _assistant(message: AssistantMessage, model: str, provider: str) -> dict[str, Any]:
    made: dict[str, Any] = {"role": "assistant", "content": message.content or None}
    if message.tool_calls:
        made["tool_calls"] = [_call(call) for call in message.tool_calls]
    if is_claude(model, provider):
        blocks = [_block(block) for block in message.thinking if block.signature or block.redacted]
        if blocks:
            made["thinking_blocks"] = blocks
    elif provider in _WANT_REASONING_BACK and (text := "".join(block.text for block in message.thinking)):
        made["reasoning_content"] = text
    return made


def _call(call: ToolCallRequest) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    return {"id": call.id, "type": "function", "function": function}


def _block(block: ThinkingContent) -> dict[str, Any]:
    if block.redacted:
        return {"type": "redacted_thinking", "data": block.redacted}
    return {"type": "thinking", "thinking": block.text, "signature": block.signature}


def _add_cache_mark(message: dict[str, Any], mark: JsonObject) -> None:
    """Put a cache mark on a message. litellm looks for it in a place that depends on the message's role. Converse
    refuses a cache point after a document."""
    if message["role"] == "tool":
        message["cache_control"] = mark
    elif isinstance(message["content"], list):
        for part in [part for part in message["content"] if part["type"] != "file"][-1:]:
            part["cache_control"] = mark
    elif message["content"]:
        message["content"] = [{"type": "text", "text": message["content"], "cache_control": mark}]
