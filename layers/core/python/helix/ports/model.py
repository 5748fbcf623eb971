"""The language model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from helix.core.config import LLMConfig
from helix.core.json import JsonObject
from helix.core.messages import AnyMessage
from helix.core.steps import AnyStepResult, ParsedToolCall

MaybeAwaitable = Awaitable[None] | None


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told of a tool. `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: JsonObject
    strict: bool = False


@dataclass(frozen=True, slots=True)
class LLMStreamCallbacks:
    """Called in order while the answer streams; awaited if they return an awaitable.

    `on_thinking(content, is_complete)`: False for a delta, True once with the whole block. `on_tool_call`: a call whose
    arguments are complete. `on_error`: an attempt failed and will be repeated, or is given up. A callback that raises
    must not kill the call: adapters drop it and go on.
    """

    on_text_delta: Callable[[str], MaybeAwaitable] | None = None
    on_thinking: Callable[[str, bool], MaybeAwaitable] | None = None
    on_tool_call: Callable[[ParsedToolCall], MaybeAwaitable] | None = None
    on_error: Callable[[Exception], MaybeAwaitable] | None = None


@dataclass(frozen=True, slots=True)
class LLMGenerateInput:
    """One model call. `messages` starts with the system message. `tool_choice` is `auto`, `required`, `none` or a tool
    name. `timeout_s` is what is left before the caller's own deadline; None means no deadline."""

    messages: Sequence[AnyMessage]
    tools: Sequence[ToolSpec]
    config: LLMConfig
    agent_id: str
    agent_type: str
    tool_choice: str = "auto"
    output_schema: JsonObject | None = None
    timeout_s: float | None = None
    callbacks: LLMStreamCallbacks = field(default_factory=LLMStreamCallbacks)


class LLMAdapter(Protocol):
    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        """Ask the model once (with the config's own retries and fallbacks) and return what it gave.

        A failure of the provider is an `ErrorStepResult`, not an exception. Cancelling the awaiting task ends the call
        and its connection at once. When `timeout_s` runs out the result is a retryable error. `usage` is filled for
        every answer, errors included where the provider told it.
        """
        ...
