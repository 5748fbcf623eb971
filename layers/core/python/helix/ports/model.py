"""The language model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Protocol

from helix.core.config import LLMConfig
from helix.core.errors import FileMissingError
from helix.core.files import FilePart
from helix.core.json import JsonObject
from helix.core.messages import AnyMessage, Citation, ServerCall, latest_files
from helix.core.model_limits import ReportedLimit
from helix.core.steps import AnyStepResult, ParsedToolCall
from helix.core.usage import Usage
from helix.ports.catalog import ModelCatalog, unsupported

if TYPE_CHECKING:
    from helix.ports.batches import Batches

MaybeAwaitable = Awaitable[None] | None
OUT_OF_TIME = "deadline_exceeded"
"""The error code for a call without an answer within the request's `timeout_s`."""
PUT_OFF = "put_off"
"""The error code for a call that ended before a pause longer than the request's `longest_pause_s`."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as described to the model."""

    name: str
    """The name by which the model calls the tool."""
    description: str
    """The text that tells the model what the tool does."""
    parameters: JsonObject
    """A JSON Schema object that describes the arguments."""
    strict: bool | None = None
    """Whether the provider should constrain the arguments to the schema, as in `Tool.strict`."""


@dataclass(frozen=True, slots=True)
class LLMStreamCallbacks:
    """Callbacks that an adapter calls in order while the answer streams. None: the caller does not need the event.

    An adapter awaits a callback that returns an awaitable. This lets text reach readers even if the adapter itself
    never yields to the event loop. A callback that raises must not end the call: the adapter ignores the error and
    continues.
    """

    on_text_delta: Callable[[str], MaybeAwaitable] | None = None
    """Called with each piece of text."""
    on_thinking: Callable[[str, bool], MaybeAwaitable] | None = None
    """Called with (content, is_complete): with False for each piece of reasoning, and once with True for the whole
    block."""
    on_output_delta: Callable[[str], MaybeAwaitable] | None = None
    """Called with each piece of the structured output: the arguments of the first `__finish__` call, as JSON text."""
    on_tool_start: Callable[[str], MaybeAwaitable] | None = None
    """Called with the name of a tool when the first piece of its call arrives. The call may still be discarded."""
    on_tool_call: Callable[[ParsedToolCall], MaybeAwaitable] | None = None
    """Called with each tool call once its arguments are complete."""
    on_server_call: Callable[[ServerCall], MaybeAwaitable] | None = None
    """Called with a call of the provider's own tool when it begins, and again when it has its result."""
    on_citation: Callable[[Citation], MaybeAwaitable] | None = None
    """Called with each source of the answer's text."""
    on_error: Callable[[Exception], MaybeAwaitable] | None = None
    """Called when an attempt has failed, whether or not it will be retried."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The amounts that budgets allow for one call, in total and per attempt."""

    tokens: int
    """The total tokens that all attempts may use, prompts and answers together."""
    micros: int
    """The total cost allowed for all attempts, in micro-dollars."""
    attempt_tokens: int
    """The maximum number of tokens that one attempt can use."""
    attempt_micros: int
    """The maximum cost of one attempt, in micro-dollars."""

    def another(self, spent: Usage) -> bool:
        """Return whether another attempt fits after `spent`. An attempt with unknown usage counts with its maximum."""
        tokens = spent.total_tokens + spent.unknown_calls * self.attempt_tokens
        unpriced = spent.calls if not spent.priced else spent.unknown_calls
        micros = spent.cost_micros + unpriced * self.attempt_micros
        return tokens + self.attempt_tokens <= self.tokens and micros + self.attempt_micros <= self.micros


@dataclass(frozen=True, slots=True)
class Question:
    """A lookup in the response cache (docs/appendix/semantics.md#cache). The fields after `exact` are for semantic
    lookups, which also match other wordings."""

    exact: str
    """A digest of everything that can change the answer."""
    threshold: float | None = None
    """The minimum cosine similarity of another wording. None: only an identical request matches."""
    context: str = ""
    """A digest of everything except the last user message. Empty without a threshold."""
    text: str = ""
    """The last user message, whose wording may differ. Empty without a threshold."""


class Files(Protocol):
    """The bytes of the files in a request's messages."""

    async def read(self, file: FilePart) -> bytes:
        """Return the bytes of a stored file. Raises `FileMissingError` if they were deleted."""
        ...

    def location(self, file: FilePart) -> str | None:
        """Return the `s3://<bucket>/<key>` address of a stored file, for providers that read S3 themselves. None: the
        bytes are not in S3."""
        ...


class NoFiles:
    """An implementation of `Files` for requests without stored files."""

    async def read(self, file: FilePart) -> bytes:
        raise FileMissingError(file.sha256 or file.url or "", file.name)

    def location(self, file: FilePart) -> str | None:
        return None


class Limits(Protocol):
    """The limits of the models that one call may use, shared by all workers. No method raises if the store fails."""

    async def turn(self, model: str, most_s: float = inf) -> float:
        """Return the seconds until the next attempt at `model` may begin; 0: now. The first call takes a turn at the
        model, unless its wait would be longer than `most_s`. Until `tried`, later calls return the rest of the wait,
        which may have become longer."""
        ...

    async def tried(
        self,
        model: str,
        *,
        used: int | None = None,
        reported: ReportedLimit | None = None,
        refused_s: float | None = None,
    ) -> None:
        """Report the end of an attempt. `used`: its tokens, if they are known. `reported`: the limit that the response
        named. `refused_s`: the seconds for which the provider refuses requests, because its limit was reached."""
        ...

    async def failed_over(self, models: Sequence[str]) -> None:
        """Report that these models failed and a fallback answered in their place."""
        ...


class NoLimits:
    """An implementation of `Limits` without any limit."""

    async def turn(self, model: str, most_s: float = inf) -> float:
        return 0.0

    async def tried(
        self,
        model: str,
        *,
        used: int | None = None,
        reported: ReportedLimit | None = None,
        refused_s: float | None = None,
    ) -> None:
        return None

    async def failed_over(self, models: Sequence[str]) -> None:
        return None


@dataclass(frozen=True, slots=True)
class LLMGenerateInput:
    """The input of one model call."""

    messages: Sequence[AnyMessage]
    """The conversation, starting with the system message."""
    tools: Sequence[ToolSpec]
    """The tools that the model may call."""
    config: LLMConfig
    """The model and its settings. A route has been resolved already."""
    agent_id: str
    """The id of the session."""
    agent_type: str
    """The name of the agent."""
    tool_choice: str = "auto"
    """The tool choice to send to the provider: `auto`, `required`, `none` or a tool name."""
    output_schema: JsonObject | None = None
    """The JSON Schema of the agent's output, which the model returns by calling the tool `__finish__`. None: the
    agent's output is text."""
    timeout_s: float | None = None
    """The time left until the caller's deadline, in seconds. None: there is no deadline."""
    callbacks: LLMStreamCallbacks = field(default_factory=LLMStreamCallbacks)
    """The receivers of the streamed answer."""
    files: Files = field(default_factory=NoFiles)
    """The source of the bytes of files in `messages`. An adapter reads them only when it builds its request."""
    chosen: str = ""
    """The reason why a route chose `config.model`. Empty if no route chose it."""
    passing: int = 0
    """The number of messages at the end that later requests of the session do not repeat, such as the request to
    finish. Each has a text and no files. The provider's prompt cache ends before them."""
    origin_id: str = ""
    """The id of the first session of the chain of copies that led to this one. Empty: `agent_id`."""
    question: Question | None = None
    """The cache lookup for this call. None: the response cache is not used."""
    remembered: AnyStepResult | None = None
    """The cached answer; no adapter is called then. None on a cache miss."""
    allowance: Allowance | None = None
    """The limits from budgets, set when the call's worst case is reserved. None: no budget limits the call."""
    batch: bool = False
    """Whether the request is for a provider's batch, at half the price."""
    limits: Limits = field(default_factory=NoLimits)
    """The limits of the call's models. Every attempt waits for its turn and reports its end."""
    longest_pause_s: float = inf
    """The longest pause, in seconds, that this worker makes before an attempt. Instead of a longer one, the call ends
    with the error `PUT_OFF`, whose `retry_after_s` is the pause."""

    @property
    def lasting(self) -> Sequence[AnyMessage]:
        """The messages without the `passing` ones."""
        return self.messages[: len(self.messages) - self.passing]


class LLMAdapter(Protocol):
    """The part of a language model adapter that a user has to implement. `BaseAdapter` declares what else the engine
    uses."""

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        """Call the model once and return its answer.

        The engine retries an error marked `retryable` (`services.retrying`), up to the config's `max_retries`, unless
        the adapter has `repeats_failures`.

        A provider failure is an `ErrorStepResult`, not an exception. Cancelling the awaiting task ends the call and its
        connection immediately. When `timeout_s` expires, the result must be a retryable error with the code
        `OUT_OF_TIME`; the engine cancels an adapter that continues anyway. `usage` is set for every answer, and for
        errors if the provider reported it.
        """
        ...


class BaseAdapter(ABC):
    """An `LLMAdapter` that declares all its capabilities. The engine only works with such adapters. Helix's own
    adapters derive from it, and `helix.runtime.user_adapters` wraps any other object that has `generate_step`."""

    batches: Batches | None = None
    """The batches of the adapter's models. None: the adapter has none."""
    repeats_failures: bool = False
    """Whether the adapter applies the config's retries and fallbacks itself. The engine then adds no retries."""

    @abstractmethod
    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        """Call the model once, as specified in `LLMAdapter.generate_step`."""

    def configured(self, config: LLMConfig) -> LLMConfig:
        """Return the settings that the adapter actually uses for `config`. If it may call a different model from the
        one that the request names, the adapter returns that model, because prices, context windows and the cache depend
        on it."""
        return config

    def unsupported(self, request: LLMGenerateInput, catalog: ModelCatalog | None) -> str | None:
        """Return the reason why no model of the request accepts the files of its last user message, or None. The engine
        calls this before it reserves money for the call. An unknown model is never refused."""
        files = latest_files(request.lasting)
        if not files or catalog is None:
            return None
        problems = [
            unsupported(catalog.info(model), files) for model in [request.config.model, *request.config.fallbacks]
        ]
        return None if None in problems else problems[0]

    def refused_setting(self, config: LLMConfig) -> str | None:
        """Return which setting a model of `config` is known to refuse, and what to do. None if none is."""
        return None

    def prepare(self, config: LLMConfig) -> None:
        """Import the modules that the first call with `config` needs, which blocks. This creates no clients and reads
        no environment variables."""
        return
