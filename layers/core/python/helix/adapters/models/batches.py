"""The batches of OpenAI and Anthropic, through the providers' own packages.

Law: a request in a batch has the same form as a streamed one, without the stream. Its answer is read by the same code, and
costs half. Nothing that is stored has credentials: they come from the provider's environment variables.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol, runtime_checkable

from helix.adapters.models.answer import PartialAnswer
from helix.adapters.models.effort import with_verbosity
from helix.adapters.models.failures import classify, failure
from helix.adapters.models.reasoning import request_for
from helix.adapters.models.sdk import SdkExchange
from helix.adapters.models.wire import AttemptFailedError
from helix.core.config import LLMConfig
from helix.core.errors import DefinitionError, ModelError
from helix.core.json import JsonObject
from helix.core.rows import ErrorInfo
from helix.core.steps import AnyStepResult
from helix.core.usage import Usage
from helix.ports.batches import BatchAnswer, BatchForm, BatchStatus
from helix.ports.model import LLMGenerateInput, LLMStreamCallbacks

_SECRET = frozenset({"api_key", "auth_token", "organization", "extra_headers", "extra_query"})
"""The provider options that are not stored, so a batch cannot be sent with them."""


class ProviderBatches(Protocol):
    """The batches of one provider, with a client. The operations raise the package's errors."""

    async def send(self, name: str, interface: str, requests: Sequence[tuple[str, JsonObject]]) -> str: ...

    async def find(
        self, name: str, calls: Collection[str], since: float, others: Collection[str]
    ) -> str | Literal["unknown"] | None: ...

    async def look(self, batch: str) -> BatchStatus: ...

    def answers(self, batch: str) -> AsyncIterator[tuple[str, JsonObject | BaseException | None]]:
        """Yield the id of each request with its answer or its error. None: it was not executed."""
        ...

    async def cancel(self, batch: str) -> None: ...


@runtime_checkable
class BatchWire(Protocol):
    """A wire whose provider has batches."""

    def exchange(self, request: LLMGenerateInput, model: str) -> SdkExchange: ...

    def batches(self, client: Any, model: str) -> ProviderBatches: ...


class ModelBatches:
    """Implements `Batches` for the models of a `ModelAdapter`. `wire` returns the wire of a model, or raises
    `DefinitionError`."""

    def __init__(self, wire: Callable[[str, LLMConfig], Awaitable[BatchWire]], now: Callable[[], float]) -> None:
        self._wire, self._now = wire, now

    async def form(self, request: LLMGenerateInput) -> BatchForm:
        config, model = request.config, request.config.model
        if secret := sorted(_SECRET & config.provider_options.keys()):
            problem = f"{secret[0]!r} cannot be stored with a batch: set the provider's environment variables instead"
            raise DefinitionError("LLMConfig", "provider_options", problem)
        if config.server_tools:
            raise DefinitionError("LLMConfig", "server_tools", "batches do not support them: leave out one of the two")
        wire = await self._wire(model, config)
        exchange = wire.exchange(with_verbosity(request_for(request, model), model), model)
        try:
            body = await exchange.form()
        except AttemptFailedError as error:
            raise error.failure.error() from error
        return BatchForm({"model": model, "interface": exchange.interface, **_address(config)}, body)

    async def read(self, place: JsonObject, request: LLMGenerateInput, answer: JsonObject) -> AnyStepResult:
        request = _asked_at(place, request)
        model = request.config.model
        wire = await self._wire(model, request.config)
        exchange = wire.exchange(request, model)
        try:
            pieces = exchange.read(answer)
            partial = PartialAnswer(LLMStreamCallbacks(), exchange.strict)
            await partial.feed(pieces)
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise failure(model, "model_error", f"the answer of a batch cannot be read: {error}").error() from error
        except Exception as error:
            raise self._error(error, model) from error
        usage = _half(exchange.usage(partial.text_so_far))
        if not exchange.counted:
            usage = usage.model_copy(update={"unknown_calls": 1})
        return await partial.result(model, exchange.finish_reason or "stop", exchange.refusal, usage)

    async def send(self, place: JsonObject, name: str, requests: Sequence[tuple[str, JsonObject]]) -> str:
        provider, model = await self._provider(place)
        try:
            return await provider.send(name, str(place["interface"]), requests)
        except Exception as error:
            raise self._error(error, model) from error

    async def find(
        self, place: JsonObject, name: str, calls: Collection[str], since: float, others: Collection[str]
    ) -> str | Literal["unknown"] | None:
        provider, model = await self._provider(place)
        try:
            return await provider.find(name, calls, since, others)
        except Exception as error:
            raise self._error(error, model) from error

    async def look(self, place: JsonObject, batch: str) -> BatchStatus:
        provider, model = await self._provider(place)
        try:
            return await provider.look(batch)
        except Exception as error:
            raise self._error(error, model) from error

    async def answers(self, place: JsonObject, batch: str) -> AsyncIterator[BatchAnswer]:
        provider, model = await self._provider(place)
        try:
            async for call, outcome in provider.answers(batch):
                if isinstance(outcome, BaseException):
                    failed = classify(outcome, model, now=self._now())
                    error = ErrorInfo(code=failed.code, message=failed.message, recoverable=failed.retryable)
                    yield BatchAnswer(call, error=error)
                elif outcome is not None:
                    yield BatchAnswer(call, outcome)
        except Exception as error:
            raise self._error(error, model) from error

    async def cancel(self, place: JsonObject, batch: str) -> None:
        provider, model = await self._provider(place)
        try:
            await provider.cancel(batch)
        except Exception as error:
            raise self._error(error, model) from error

    async def _provider(self, place: JsonObject) -> tuple[ProviderBatches, str]:
        """Return the provider's batches at that place, and the model."""
        model = str(place["model"])
        options = {"base_url": place["base_url"]} if place.get("base_url") else {}
        config = LLMConfig(model=model, provider_options=options)
        try:
            wire = await self._wire(model, config)
            exchange = wire.exchange(LLMGenerateInput([], [], config, "", ""), model)
            client = exchange.connect(exchange.options)
            return await asyncio.to_thread(wire.batches, client, model), model  # the first one imports, which blocks
        except DefinitionError as error:
            raise ModelError(str(error), retryable=True) from error
        except Exception as error:
            raise self._error(error, model) from error

    def _error(self, error: BaseException, model: str) -> ModelError:
        return error if isinstance(error, ModelError) else classify(error, model, now=self._now()).error()


def _address(config: LLMConfig) -> JsonObject:
    """Return the base URL that the agent itself sets, if it does."""
    options: Mapping[str, Any] = config.provider_options
    base = options.get("base_url") or options.get("api_base")
    return {"base_url": base} if base else {}


def _asked_at(place: JsonObject, request: LLMGenerateInput) -> LLMGenerateInput:
    """Return the request with the model and the interface that it was sent with. The agent's settings may have changed
    since."""
    changes: dict[str, Any] = {"model": str(place["model"]), "fallbacks": []}
    if place["interface"] in ("responses", "chat"):
        changes["api"] = place["interface"]
    if "base_url" in place:
        changes["provider_options"] = {**request.config.provider_options, "base_url": place["base_url"]}
    return replace(request, config=request.config.model_copy(update=changes))


def _half(usage: Usage) -> Usage:
    """Return the usage at the price of a batch."""
    return usage.model_copy(update={"cost_micros": (usage.cost_micros + 1) // 2})
