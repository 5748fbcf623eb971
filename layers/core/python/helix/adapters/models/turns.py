"""A conversation in turns, for Anthropic's Messages and Amazon Bedrock's Converse. User and assistant alternate, and
the results of a step's calls are one user turn.

Law: nothing is sent that these interfaces refuse: empty text, a foreign call id, or an assistant turn at the beginning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    ServerBlock,
    SystemMessage,
    ThinkingContent,
    ToolCallRequest,
    ToolResultMessage,
    UserMessage,
)
from helix.ports.model import LLMGenerateInput, ToolSpec

Blocks: TypeAlias = list[dict[str, Any]]
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")
NOTHING = "(empty)"
"""The replacement for blank text."""
LEAST_ANSWER = 4096
"""The token limit of an answer, without its thinking, if no setting limits it. Claude requires a limit."""


def tools_to_send(request: LLMGenerateInput) -> list[ToolSpec]:
    """Return the request's tools. Without any, return those of the calls in the history, which these interfaces require:
    the agent may have lost its tools, or may have taken over from one that has some."""
    if request.tools:
        return list(request.tools)
    called = [c.name for m in request.messages if isinstance(m, AssistantMessage) for c in m.tool_calls]
    return [ToolSpec(name, name, {"type": "object", "properties": {}}) for name in dict.fromkeys(called)]


def turns(
    messages: Sequence[AnyMessage],
    *,
    text: Callable[[str], dict[str, Any]],
    content: Callable[[UserMessage], Blocks],
    answer: Callable[[AssistantMessage], Blocks],
    result: Callable[[ToolResultMessage], dict[str, Any]],
) -> tuple[str, Blocks]:
    """Return the system prompt, and the turns as `{"role", "content"}`. The four functions build their content.
    `content` builds that of a user message, without blank text."""
    system: list[str] = []
    made: Blocks = []
    for message in messages:
        match message:
            case SystemMessage():
                system.append(message.content)
                continue
            case UserMessage():
                role, blocks = "user", content(message) or [text(NOTHING)]
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


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of an answer's text that is not blank."""

    text: str
    """The text of the part."""
    start: int
    """Its place in the answer's text."""


def in_order(message: AssistantMessage) -> Iterator[ThinkingContent | ServerBlock | ToolCallRequest | Passage]:
    """Yield the parts of an answer in their original order: reasoning, items of the provider's tools, text that is not
    blank, and calls. Providers refuse reasoning that was moved, and reasoning at the end."""
    content, written, called = message.content or "", 0, 0
    blocks = _blocks_in_order(message)
    for place, block in enumerate((*blocks, None)):
        text_end = block.after_text if block is not None else len(content)
        calls_end = block.after_calls if block is not None else len(message.tool_calls)
        if (text := content[written:text_end]).strip():
            yield Passage(text, written)
        yield from message.tool_calls[called:calls_end]
        written, called = max(written, text_end), max(called, calls_end)
        more = content[written:].strip() or message.tool_calls[called:]
        if isinstance(block, ServerBlock) or (
            block is not None and (more or any(isinstance(later, ServerBlock) for later in blocks[place:]))
        ):
            yield block


def _blocks_in_order(message: AssistantMessage) -> Sequence[ThinkingContent | ServerBlock]:
    if not message.server_blocks:
        return message.thinking
    found: list[ThinkingContent | ServerBlock] = []
    for place, thought in enumerate((*message.thinking, None)):
        found += [block for block in message.server_blocks if block.after_thinking == place]
        found += [thought] if thought is not None else []
    return found


def nonempty_text(text: str) -> str:
    return text if text.strip() else NOTHING


def call_id(id: str) -> str:
    return _NOT_IN_IDS.sub("_", id)[:64] or "call"


def thinks_first(options: Mapping[str, Any]) -> bool:
    """Return whether Claude is asked to think. In that case no tool can be forced, and the temperature is fixed."""
    asked = options.get("thinking")
    return isinstance(asked, Mapping) and asked.get("type") != "disabled"


def takes_temperature(temperature: float, entry: Mapping[str, Any], thinks: bool) -> bool:
    return temperature == 1 or not (thinks or entry.get("supports_sampling_params") is False)
