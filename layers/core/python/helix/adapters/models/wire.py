"""The interface of each provider's package: one attempt at one model, with its stream as pieces.

Law: an `Exchange` knows only the provider's form. Deadlines, retries, fallbacks, the assembly of an answer and the
meaning of errors are the same for all providers. They live in `adapter`, `attempt`, `answer` and `failures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from helix.adapters.models.failures import Failure
from helix.adapters.models.pricing import Prices, Tokens, price
from helix.adapters.models.strict_tools import plan_strict, strict_form
from helix.core.json import JsonObject
from helix.core.messages import Citation
from helix.core.usage import Usage
from helix.ports.model import LLMGenerateInput


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer's text."""

    text: str
    """The text, which may be empty."""
    phase: str | None = None
    """OpenAI's name for the text that follows, such as `commentary`. None: not reported."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """A piece of reasoning."""

    text: str = ""
    """The reasoning as text, which may be empty."""
    signature: str | None = None
    """The provider's signature. It ends the block that it signs. None: the block continues."""
    id: str | None = None
    """The provider's name for the block. None: the provider does not name blocks."""


@dataclass(frozen=True, slots=True)
class Redacted:
    data: str
    """The encrypted reasoning, which the provider accepts back unchanged."""


@dataclass(frozen=True, slots=True)
class CallPart:
    """A fragment of a tool call. The id and name arrive once, and the arguments in parts."""

    index: int
    """The number that the stream assigns to the call."""
    id: str = ""
    """The call's id. Empty: another fragment has it."""
    name: str = ""
    """The tool's name. Empty: another fragment has it."""
    arguments: str = ""
    """The next part of the arguments as JSON text."""


@dataclass(frozen=True, slots=True)
class Served:
    """An item that a tool of the provider produced."""

    raw: JsonObject
    """The item as the provider sends it."""
    complete: bool = True
    """Whether the item is complete, and so part of the answer. False: it only shows that a call has begun."""


@dataclass(frozen=True, slots=True)
class Cited:
    """A source of a part of the answer's text."""

    citation: Citation
    """The source, with its place in the text so far."""


Piece: TypeAlias = Text | Thinking | Redacted | CallPart | Served | Cited


class AttemptFailedError(Exception):
    """Raised by an exchange that detects the failure before it sends the request."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class RefusedAnswerError(Exception):
    """Raised if the form of an answer makes it unreadable. Another attempt would end the same way."""


class RefusedRequestError(Exception):
    """A provider's error for one request of a batch. `status`: its HTTP status; None: it has none."""

    def __init__(self, status: int | None, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("message") or error.get("code") or "the request failed"))
        self.code, self.type, self.body = error.get("code"), error.get("type"), dict(error)
        if status is not None:
            self.status_code, self.response = status, object()


class BrokenStreamError(Exception):
    """Raised if an event cannot be read. Later events cannot be trusted, so it counts as a lost connection."""


class Exchange(Protocol):
    """One attempt. `finish_reason` is the provider's own reason once it has arrived. None after the end means that the
    stream was cut off. `counted`: whether the provider itself reported its token counts. `strict`: the schemas of the
    tools whose arguments the provider constrains, known once `open` has returned."""

    @property
    def strict(self) -> Mapping[str, JsonObject]: ...
    @property
    def finish_reason(self) -> str | None: ...
    @property
    def refusal(self) -> str: ...
    @property
    def counted(self) -> bool: ...
    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response, in lower case, known once `open` has returned. Empty if the package hides them."""

    async def open(self) -> None:
        """Send the request. Raises the package's errors, or `AttemptFailedError`."""
        ...

    async def next(self) -> Sequence[Piece] | None:
        """Return the pieces of the next event, or None at the end. After a cancelled call only `close` is allowed."""
        ...

    def usage(self, said: str | None) -> Usage:
        """Return the usage so far. `said`: the text of a complete answer, used to estimate the usage if none was
        reported."""
        ...

    async def close(self) -> None:
        """Close the connection, at once if the answer is not complete."""
        ...


class Wire(Protocol):
    """A provider's imported package. It is created in a thread, because the import takes a long time."""

    def exchange(self, request: LLMGenerateInput, model: str) -> Exchange: ...


class NativeExchange:
    """The common part of exchanges that use the providers' own packages: the request, and the reported values."""

    def __init__(self, request: LLMGenerateInput, model: str, prices: Prices) -> None:
        self.request, self.model, self.prices = request, model, prices
        self.strict: Mapping[str, JsonObject] = {}
        self.strict_forms: Mapping[str, JsonObject] = {}
        self.finish_reason: str | None = None
        self.refusal = ""
        self.tokens: Tokens | None = None

    @property
    def name(self) -> str:
        """The model's name at its provider."""
        return self.model.partition("/")[2] or self.model

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.request.config.provider_options)

    @property
    def counted(self) -> bool:
        return self.tokens is not None

    @property
    def headers(self) -> Mapping[str, str]:
        return {}

    def constrain(self, package: str) -> None:
        """Decide which tools are strict when `package` sends them."""
        tools = self.request.tools
        self.strict_forms = plan_strict(tools, self.request.config, strict_form(self.model, package)).schemas
        self.strict = {tool.name: tool.parameters for tool in tools if tool.name in self.strict_forms}

    def usage(self, said: str | None) -> Usage:
        tokens = self.tokens
        if tokens is None and said is not None:
            from helix.adapters.models.token_count import TokenCounter

            count = TokenCounter()
            prompt = count.count_messages_tokens(self.request.messages, self.name, tools=self.request.tools)
            tokens = Tokens(prompt, count.count_tokens(said, self.name))
        return price(self.model, tokens, self.prices)
