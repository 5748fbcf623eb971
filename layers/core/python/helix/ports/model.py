"""The language model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from helix.core.config import LLMConfig
from helix.core.json import JsonObject
from helix.core.messages import AnyMessage
from helix.core.steps import AnyStepResult, ParsedToolCall
from helix.core.usage import Usage

MaybeAwaitable = Awaitable[None] | None
OUT_OF_TIME = "deadline_exceeded"
"""The code of an answer that did not come within `timeout_s` of its request."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model knows of a tool. `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: JsonObject
    strict: bool = False


@dataclass(frozen=True, slots=True)
class LLMStreamCallbacks:
    """Called in order while the answer streams; awaited if they return an awaitable, which is how an adapter that does not
    yield to the event loop lets readers have its words.

    `on_thinking(content, is_complete)`: False for a delta, True once with the whole block. `on_tool_start`: the first piece
    of a call, by its name, which may still be discarded. `on_tool_call`: a call whose arguments are complete. `on_error`:
    an attempt failed and will be repeated, or is given up. A callback that raises must not kill the call: adapters drop it
    and go on.
    """

    on_text_delta: Callable[[str], MaybeAwaitable] | None = None
    on_thinking: Callable[[str, bool], MaybeAwaitable] | None = None
    on_tool_start: Callable[[str], MaybeAwaitable] | None = None
    on_tool_call: Callable[[ParsedToolCall], MaybeAwaitable] | None = None
    on_error: Callable[[Exception], MaybeAwaitable] | None = None


@dataclass(frozen=True, slots=True)
class Allowance:
    """What budgets allow one call: `tokens` and `micros` (millionths of a US dollar) for all its attempts together, of
    which one can use at most `attempt_tokens` and `attempt_micros`."""

    tokens: int
    micros: int
    attempt_tokens: int
    attempt_micros: int

    def another(self, spent: Usage) -> bool:
        """Whether one more attempt fits, when `spent` has gone and any attempt of unknown usage may have used its most."""
        tokens = spent.total_tokens + spent.unknown_calls * self.attempt_tokens
        unpriced = spent.calls if not spent.priced else spent.unknown_calls
        micros = spent.cost_micros + unpriced * self.attempt_micros
        return tokens + self.attempt_tokens <= self.tokens and micros + self.attempt_micros <= self.micros


@dataclass(frozen=True, slots=True)
class Question:
    """What the response cache is asked (docs/appendix/semantics.md#cache).

    exact: a digest of everything that changes the answer. For questions that may be worded otherwise: threshold, the
    least cosine similarity; context, a digest of all but the last user message; text, that message."""

    exact: str
    threshold: float | None = None
    context: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class LLMGenerateInput:
    """One model call. `messages` starts with the system message. `tool_choice` is `auto`, `required`, `none` or a tool
    name. `timeout_s` is what is left before the caller's own deadline; None means no deadline. `chosen`: why a route chose
    `config.model`. `question`: what the response cache knows it by, where it may be answered from there. `remembered`: the
    answer that it has; no adapter is asked then."""

    messages: Sequence[AnyMessage]
    tools: Sequence[ToolSpec]
    config: LLMConfig
    agent_id: str
    agent_type: str
    tool_choice: str = "auto"
    output_schema: JsonObject | None = None
    timeout_s: float | None = None
    callbacks: LLMStreamCallbacks = field(default_factory=LLMStreamCallbacks)
    chosen: str = ""
    question: Question | None = None
    remembered: AnyStepResult | None = None
    allowance: Allowance | None = None


class LLMAdapter(Protocol):
    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        """Ask the model once and return what it gave. An error that says `retryable` is repeated by the engine
        (`services.retrying`), up to the config's `max_retries`; an adapter with the attribute `repeats_failures = True`
        applies retries and fallbacks of the config itself.

        A failure of the provider is an `ErrorStepResult`, not an exception. Cancelling the awaiting task ends the call
        and its connection at once. When `timeout_s` runs out the result is a retryable error, `OUT_OF_TIME`; the
        engine cancels an adapter that goes on. `usage` is filled for every answer, errors included where the provider
        reported it.
        """
        ...


class ChoosesModel(Protocol):
    """An adapter that asks another model than the request names reports it: prices, windows and the cache depend on it."""

    def configured(self, config: LLMConfig) -> LLMConfig:
        """The settings that the adapter goes by where it is given `config`."""
        ...
