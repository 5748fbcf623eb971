"""A conversation in turns, as Anthropic's Messages and Amazon Bedrock's Converse take it: user and assistant alternate, and
the results of a step's calls are one user turn.

Law: nothing is sent that these interfaces refuse: no empty text, no foreign call id, no turn of the assistant's first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, assert_never

from helix.core.config import LLMConfig
from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    SystemMessage,
    ThinkingContent,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
)

Blocks: TypeAlias = list[dict[str, Any]]
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")
NOTHING = "(empty)"
"""Sent in place of a text that is blank."""
LEAST_ANSWER = 4096
"""Tokens of an answer, beside those of its thinking, where nobody says how many and Claude wants a number."""


def turns(
    messages: Sequence[AnyMessage],
    *,
    text: Callable[[str], dict[str, Any]],
    answer: Callable[[AssistantMessage], Blocks],
    result: Callable[[ToolResultMessage], dict[str, Any]],
) -> tuple[str, Blocks]:
    """The system prompt, and the turns as `{"role", "content"}`, their content made of what the three functions give."""
    system: list[str] = []
    made: Blocks = []
    for message in messages:
        match message:
            case SystemMessage():
                system.append(message.content)
                continue
            case UserMessage():
                role, blocks = "user", [text(said(message.content))]
            case AssistantMessage():
                role, blocks = "assistant", answer(message)
            case ToolResultMessage():
                role, blocks = "user", [result(message)]
            case _:
                assert_never(message)
        if not blocks:
            continue
        if made and made[-1]["role"] == role:
            made[-1]["content"].extend(blocks)
        else:
            made.append({"role": role, "content": blocks})
    if made and made[0]["role"] == "assistant":
        made.insert(0, {"role": "user", "content": [text(NOTHING)]})
    return "\n\n".join(part for part in system if part.strip()), made


def in_order(message: AssistantMessage) -> Iterator[ThinkingContent | ToolCallRequest | str]:
    """An answer in the order in which it came: reasoning, text that is not blank, and calls. Providers refuse reasoning
    that has moved, and reasoning that nothing follows."""
    content, written, called = message.content or "", 0, 0
    for block in (*message.thinking, None):
        text_end = block.after_text if block is not None else len(content)
        calls_end = block.after_calls if block is not None else len(message.tool_calls)
        if (text := content[written:text_end]).strip():
            yield text
        yield from message.tool_calls[called:calls_end]
        written, called = max(written, text_end), max(called, calls_end)
        if block is not None and (content[written:].strip() or message.tool_calls[called:]):
            yield block


def said(text: str) -> str:
    return text if text.strip() else NOTHING


def call_id(id: str) -> str:
    return _NOT_IN_IDS.sub("_", id)[:64] or "call"


def cache_mark(config: LLMConfig) -> dict[str, Any] | None:
    """The mark behind what the provider is to cache, or None without `cache`. The option `cache_control`, which may say an
    hour, becomes every mark: Anthropic refuses a mark that lasts longer than one before it."""
    if not config.cache:
        return None
    given = config.provider_options.get("cache_control")
    return dict(given) if isinstance(given, Mapping) else {"type": "ephemeral"}


def thinks_first(options: Mapping[str, Any]) -> bool:
    """Whether Claude is asked to think: no tool can be forced then, and temperature is fixed."""
    asked = options.get("thinking")
    return isinstance(asked, Mapping) and asked.get("type") != "disabled"


def takes_temperature(temperature: float, entry: Mapping[str, Any], thinks: bool) -> bool:
    return temperature == 1 or not (thinks or entry.get("supports_sampling_params") is False)
