"""What each provider's package has to do: one attempt at one model, its stream given as pieces.

Law: an `Exchange` knows the provider's form and nothing else. Deadlines, repeats, fallbacks, the assembly of an answer
and the meaning of errors are the same for all, and live in `adapter`, `attempt`, `answer` and `failures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from helix.adapters.models.failures import Failure
from helix.adapters.models.pricing import Prices, Tokens, price
from helix.core.json import JsonObject
from helix.core.usage import Usage
from helix.ports.model import LLMGenerateInput


@dataclass(frozen=True, slots=True)
class Text:
    """`phase`: OpenAI's word for the text that follows."""

    text: str
    phase: str | None = None


@dataclass(frozen=True, slots=True)
class Thinking:
    """A signature ends the block that it signs; `id` is the provider's name of that block."""

    text: str = ""
    signature: str | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Redacted:
    data: str


@dataclass(frozen=True, slots=True)
class CallPart:
    """A fragment of the call at `index`: its id and name come once, its arguments in parts."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


Piece: TypeAlias = Text | Thinking | Redacted | CallPart


class AttemptFailedError(Exception):
    """Raised by an exchange that knows what is wrong before it asks."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class RefusedAnswerError(Exception):
    """Raised where an answer is not read, because of its form. Another attempt would be the same."""


class BrokenStreamError(Exception):
    """Raised where an event cannot be read. What follows it cannot be trusted, so it counts as a lost connection."""


class Exchange(Protocol):
    """One attempt. `finish_reason` is the provider's word once it came; None after the end means that the stream was cut.
    `counted`: whether the provider itself said how many tokens it counted. `strict`: schemas of the tools whose arguments
    the provider constrains, known once `open` returned."""

    @property
    def strict(self) -> Mapping[str, JsonObject]: ...
    @property
    def finish_reason(self) -> str | None: ...
    @property
    def refusal(self) -> str: ...
    @property
    def counted(self) -> bool: ...

    async def open(self) -> None:
        """Send the request. Raises what the package raises, or `AttemptFailedError`."""
        ...

    async def next(self) -> Sequence[Piece] | None:
        """What the next event adds; None at the end. Cancelling it leaves the exchange fit for `close` only."""
        ...

    def usage(self, said: str | None) -> Usage:
        """What was used so far. `said`: the text of a complete answer, to estimate by where nothing was reported."""
        ...

    async def close(self) -> None:
        """Close the connection at once if the answer is not complete."""
        ...


class Wire(Protocol):
    """A provider's package, imported. It is made in a thread, because that import takes long."""

    def exchange(self, request: LLMGenerateInput, model: str) -> Exchange: ...


class NativeExchange:
    """What the exchanges of the providers' own packages share: the request, and what was reported."""

    def __init__(self, request: LLMGenerateInput, model: str, prices: Prices) -> None:
        self.request, self.model, self.prices = request, model, prices
        self.strict: Mapping[str, JsonObject] = {}
        self.finish_reason: str | None = None
        self.refusal = ""
        self.tokens: Tokens | None = None

    @property
    def name(self) -> str:
        """The model as its provider calls it."""
        return self.model.partition("/")[2] or self.model

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.request.config.provider_options)

    @property
    def counted(self) -> bool:
        return self.tokens is not None

    def usage(self, said: str | None) -> Usage:
        tokens = self.tokens
        if tokens is None and said is not None:
            from helix.adapters.models.token_count import TokenCounter

            count = TokenCounter()
            prompt = count.count_messages_tokens(self.request.messages, self.name, tools=self.request.tools)
            tokens = Tokens(prompt, count.count_tokens(said, self.name))
        return price(self.model, tokens, self.prices)
