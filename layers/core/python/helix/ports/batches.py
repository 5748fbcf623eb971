"""The batches of a model provider: many requests at half the price, whose answers come within a day."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from helix.core.json import JsonObject
from helix.core.rows import ErrorInfo
from helix.core.steps import AnyStepResult
from helix.ports.model import LLMGenerateInput

MAX_CALLS, MAX_BYTES = 10_000, 90_000_000
"""The largest batch that is sent, in requests and in bytes. Each provider accepts more."""


@dataclass(frozen=True, slots=True)
class BatchForm:
    """A request as a provider's batch contains it."""

    place: JsonObject
    """The parts that all requests of a batch have in common: the model, the interface and the address."""
    body: JsonObject
    """The request."""


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """The progress of a batch at its provider."""

    ended: bool
    """Whether the batch has ended, so that it has all the answers that it will ever have."""
    error: ErrorInfo | None = None
    """The reason why the provider refused the whole batch, and bills none of it. None: it did not. `recoverable` says
    whether another batch may be accepted."""


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """The outcome of one request of a batch."""

    call: str
    """The id of the request."""
    answer: JsonObject | None = None
    """The provider's answer. None: the request failed."""
    error: ErrorInfo | None = None
    """The reason for the failure. `recoverable` says whether the same request may succeed in another batch."""


class Batches(Protocol):
    """The batches of the models that an adapter calls. A failed operation raises `ModelError`; if it is retryable, the
    operation may be repeated. Credentials come from the environment only, because `place` is stored."""

    async def form(self, request: LLMGenerateInput) -> BatchForm:
        """Return the request as a batch contains it. Raises `DefinitionError` for a model or a setting that batches do
        not support."""
        ...

    async def send(self, place: JsonObject, name: str, requests: Sequence[tuple[str, JsonObject]]) -> str:
        """Send the batch, and return the provider's id of it. `name`: a unique name, by which `find` recognises the
        batch. `requests`: the id and the body of each request. If this raises, the provider may have the batch."""
        ...

    async def find(
        self, place: JsonObject, name: str, calls: Collection[str], since: float, others: Collection[str]
    ) -> str | Literal["unknown"] | None:
        """Return the provider's id of the batch that `send` may have sent after `since` (Unix seconds) with these calls.
        None: the provider does not have it. `unknown`: this can only be said later. `others`: the provider's ids of
        batches that are known to be others."""
        ...

    async def look(self, place: JsonObject, batch: str) -> BatchStatus:
        """Return the progress of the batch with that provider's id."""
        ...

    def answers(self, place: JsonObject, batch: str) -> AsyncIterator[BatchAnswer]:
        """Yield the outcomes of an ended batch. A request without an outcome was not executed, and is not billed."""
        ...

    async def read(self, place: JsonObject, request: LLMGenerateInput, answer: JsonObject) -> AnyStepResult:
        """Return the answer to the request as a step result, with its usage at the price of a batch."""
        ...

    async def cancel(self, place: JsonObject, batch: str) -> None:
        """Ask the provider to stop the batch. Requests that it has executed are billed, and have answers."""
        ...
