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
"""The code of an answer that did not come within its request's `timeout_s`."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """The description of a tool for the model."""

    name: str
    """The name by which the model calls the tool."""
    description: str
    """The text that tells the model what the tool does."""
    parameters: JsonObject
    """A JSON Schema object of the arguments."""
    strict: bool = False
    """Whether the provider should constrain the arguments to the schema, where it can."""


@dataclass(frozen=True, slots=True)
class LLMStreamCallbacks:
    """Callbacks that an adapter calls in order while the answer streams. None: the caller does not want that event.

    An adapter awaits a callback that returns an awaitable. This lets readers have the words of an adapter that does not
    yield to the event loop. A callback that raises must not end the call: the adapter drops the error and goes on.
    """

    on_text_delta: Callable[[str], MaybeAwaitable] | None = None
    """Called with each piece of text."""
    on_thinking: Callable[[str, bool], MaybeAwaitable] | None = None
    """Called with (content, is_complete): False for a piece of reasoning, True once with the whole block."""
    on_tool_start: Callable[[str], MaybeAwaitable] | None = None
    """Called with the name of a tool when the first piece of its call comes. The call may still be discarded."""
    on_tool_call: Callable[[ParsedToolCall], MaybeAwaitable] | None = None
    """Called with a call whose arguments are complete."""
    on_error: Callable[[Exception], MaybeAwaitable] | None = None
    """Called when an attempt failed and will be repeated, or is given up."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The amounts that budgets allow one call, for all its attempts together and for one attempt."""

    tokens: int
    """The tokens that all attempts may use together, prompts and answers."""
    micros: int
    """The cost of all attempts together, in micro-dollars."""
    attempt_tokens: int
    """The most tokens that one attempt can use."""
    attempt_micros: int
    """The most that one attempt can cost, in micro-dollars."""

    def another(self, spent: Usage) -> bool:
        """Whether one more attempt fits after `spent`. An attempt of unknown usage counts with the most that it can
        use."""
        tokens = spent.total_tokens + spent.unknown_calls * self.attempt_tokens
        unpriced = spent.calls if not spent.priced else spent.unknown_calls
        micros = spent.cost_micros + unpriced * self.attempt_micros
        return tokens + self.attempt_tokens <= self.tokens and micros + self.attempt_micros <= self.micros


@dataclass(frozen=True, slots=True)
class Question:
    """A question to the response cache (docs/appendix/semantics.md#cache). The fields after `exact` serve questions
    that may be worded otherwise."""

    exact: str
    """A digest of everything that changes the answer."""
    threshold: float | None = None
    """The least cosine similarity of another wording. None: the very same question only."""
    context: str = ""
    """A digest of everything but the last user message. Empty without a threshold."""
    text: str = ""
    """The last user message, which may be worded otherwise. Empty without a threshold."""


@dataclass(frozen=True, slots=True)
class LLMGenerateInput:
    """The input of one model call."""

    messages: Sequence[AnyMessage]
    """The conversation, which starts with the system message."""
    tools: Sequence[ToolSpec]
    """The tools that the model may call."""
    config: LLMConfig
    """The model and its settings. A route has been resolved already."""
    agent_id: str
    """The id of the session."""
    agent_type: str
    """The name of the agent."""
    tool_choice: str = "auto"
    """The provider's choice of tools: `auto`, `required`, `none` or a tool name."""
    output_schema: JsonObject | None = None
    """The JSON Schema of the agent's output, which the model gives by calling the tool `__finish__`. None: the agent's
    output is text."""
    timeout_s: float | None = None
    """The seconds that are left before the caller's own deadline. None: there is no deadline."""
    callbacks: LLMStreamCallbacks = field(default_factory=LLMStreamCallbacks)
    """The receivers of the streamed answer."""
    chosen: str = ""
    """The reason why a route chose `config.model`. Empty: no route chose it."""
    question: Question | None = None
    """The question by which the response cache knows the call. None: the cache is not used for it."""
    remembered: AnyStepResult | None = None
    """The answer from the response cache; no adapter is asked then. None: the cache does not have it."""
    allowance: Allowance | None = None
    """The bounds by budgets, set when the call's worst case is reserved. None: no budget bounds the call."""


class LLMAdapter(Protocol):
    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        """Ask the model once and return its answer.

        The engine repeats an error that says `retryable` (`services.retrying`), up to the config's `max_retries`. An
        adapter with the attribute `repeats_failures = True` applies retries and fallbacks of the config itself.

        A failure of the provider is an `ErrorStepResult`, not an exception. Cancelling the awaiting task ends the call
        and its connection at once. When `timeout_s` runs out, the result is a retryable error with the code
        `OUT_OF_TIME`; the engine cancels an adapter that goes on. `usage` is filled for every answer, errors included
        where the provider reported it.
        """
        ...


class ChoosesModel(Protocol):
    """An adapter that may ask another model than the request names. It reports that model, because prices, windows and
    the cache depend on it."""

    def configured(self, config: LLMConfig) -> LLMConfig:
        """Return the settings that the adapter uses when it is given `config`."""
        ...
