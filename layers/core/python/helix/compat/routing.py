"""Model deployments, and the choice of one for each request.

Law: `core.routing` decides. This module keeps track of the deployments, their load and their prices. A deployment whose
context window is too small is never chosen: if none fits, `get_best_instance` returns None and the routers raise
`ContextTooLargeError`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

from helix.adapters.models.catalog import LitellmCatalog
from helix.adapters.models.token_count import TokenCounter
from helix.core.errors import InvalidInputError
from helix.core.routing import (
    BALANCED,
    DEFAULT_OUTPUT_TOKENS,
    SPEED,
    WITHOUT_COST,
    InstanceInfo,
    Need,
    RoutingDecision,
    Weights,
    by_score,
    decide,
    fits,
    ranked,
)
from helix.ports.catalog import ModelCatalog

Chat = Sequence[Mapping[str, Any]]
Count = Callable[[Chat, str], int]


class ContextWindowManager:
    """The instances to which requests may be routed. An instance is a deployment of a model, for example in a region or
    account.

    context_windows: tokens by model, to correct windows in the catalog. catalog: windows and prices; by default litellm's
    own table.
    """

    def __init__(
        self, context_windows: Mapping[str, int] = MappingProxyType({}), *, catalog: ModelCatalog | None = None
    ) -> None:
        for model, tokens in context_windows.items():
            _positive(f"the window of {model!r}", tokens)
        self._windows = dict(context_windows)
        self._catalog: ModelCatalog = catalog or LitellmCatalog()
        self._instances: dict[str, InstanceInfo] = {}

    async def register_instance(
        self, instance_id: str, agent_id: str, model: str, max_context_tokens: int | None = None
    ) -> InstanceInfo:
        """Add an instance, or replace the one with that id, which resets its load and latency. `max_context_tokens`
        defaults to the model's window. Raises `InvalidInputError` for a window below 1."""
        if max_context_tokens is not None:
            _positive("max_context_tokens", max_context_tokens)
        made = self.of_model(model, max_context_tokens)
        self._instances[instance_id] = made = replace(made, instance_id=instance_id, agent_id=agent_id)
        return made

    async def unregister_instance(self, instance_id: str) -> bool:
        """Remove the instance. Return False if that id is not registered."""
        return self._instances.pop(instance_id, None) is not None

    async def update_instance_load(
        self,
        instance_id: str,
        load: float,
        queue_depth: int = 0,
        avg_latency_ms: float | None = None,
        *,
        healthy: bool = True,
        available: bool = True,
    ) -> InstanceInfo:
        """Set the load (0 to 1), the number of waiting requests, and the average latency in milliseconds (None: unchanged).
        Raises `InvalidInputError` for an unknown instance, and for numbers out of range."""
        before = self._instances.get(instance_id)
        if before is None:
            raise InvalidInputError(f"no instance {instance_id!r} is registered")
        if not 0 <= load <= 1 or queue_depth < 0 or (avg_latency_ms is not None and avg_latency_ms < 0):
            problem = f"load {load}, queue_depth {queue_depth}, avg_latency_ms {avg_latency_ms}"
            raise InvalidInputError(f"{problem}: load is from 0 to 1, the others are 0 or more")
        after = replace(before, load=load, queue_depth=queue_depth, healthy=healthy, available=available)
        if avg_latency_ms is not None:
            after = replace(after, avg_latency_ms=avg_latency_ms)
        self._instances[instance_id] = after
        return after

    async def get_best_instance(
        self, required_context_tokens: int, prefer_model: str | None = None, prefer_cost: bool = True
    ) -> InstanceInfo | None:
        """Return the best instance whose window holds that many tokens, prompt and answer together. None if none fits.
        `prefer_model` is a substring of the preferred model's name."""
        if required_context_tokens < 0:
            raise InvalidInputError(f"required_context_tokens is {required_context_tokens}: it must be 0 or more")
        need = Need(required_context_tokens)
        found = [instance for instance in self.instances if fits(instance, need)]
        if not found:
            return None
        weights = BALANCED if prefer_cost else WITHOUT_COST
        return ranked(found, need, by_score(found, need, weights, prefer_model))[0]

    @property
    def instances(self) -> Sequence[InstanceInfo]:
        return list(self._instances.values())

    def of_model(self, model: str, max_context_tokens: int | None = None) -> InstanceInfo:
        """Return the model itself as an instance, with its window and prices if they are known."""
        info = self._catalog.info(model)
        return InstanceInfo(
            instance_id=model,
            model=model,
            max_context_tokens=max_context_tokens or self._windows.get(model) or info.max_input_tokens,
            max_output_tokens=info.max_output_tokens,
            input_usd=info.input_usd,
            output_usd=info.output_usd,
        )

    async def get_statistics(self) -> dict[str, Any]:
        """Return the number of instances and of usable ones by class, their mean load (0 to 1) and their waiting
        requests."""
        instances = self.instances
        usable = [i for i in instances if i.available and i.healthy]
        return {
            "total_instances": len(instances),
            "available_instances": len(usable),
            "by_variant": dict(Counter(str(i.variant) for i in instances)),
            "average_load": sum(i.load for i in usable) / len(usable) if usable else 0.0,
            "queue_depth": sum(i.queue_depth for i in usable),
        }


class ModelVariantRouter:
    """A router that takes only the size of the request into account, not its content."""

    def __init__(self, manager: ContextWindowManager | None = None) -> None:
        self.manager = manager or ContextWindowManager()

    async def route(
        self, need: Need, model: str | None = None, *, prefer_cost: bool = True, prefer_speed: bool = False
    ) -> RoutingDecision:
        """Return the best instance for the need, or `model` itself if none is registered. With `prefer_speed`, latency has
        triple weight and price none. Raises `ContextTooLargeError` if nothing fits."""
        offered = self.manager.instances or ([self.manager.of_model(model)] if model else [])
        if not offered:
            raise InvalidInputError(
                "no instance is registered and no model is named, so there is nothing to route to: "
                "register an instance, or name a model"
            )
        weights: Weights = SPEED if prefer_speed else BALANCED if prefer_cost else WITHOUT_COST
        best = ranked(offered, need, by_score(offered, need, weights, model))[0]
        wanted = "speed" if prefer_speed else "cost" if prefer_cost else "fit and load"
        fallback = model is not None and model not in best.model
        reason = f"{best.variant} window for {need.total} tokens, by {wanted}, of {len(offered)} instances"
        if fallback:
            reason += f"; {model!r} does not fit, or another is better"
        return decide(best, need, reason, fallback=fallback)


class RequestRouter:
    """A router for requests in provider format. `count(messages, model)` counts their tokens; default: a `TokenCounter`."""

    def __init__(self, manager: ContextWindowManager | None = None, *, count: Count | None = None) -> None:
        self.router = ModelVariantRouter(manager)
        self._count: Count = count or TokenCounter().count_messages_tokens

    @property
    def manager(self) -> ContextWindowManager:
        return self.router.manager

    async def route(
        self,
        messages: Chat,
        model: str,
        max_tokens: int | None = None,
        prefer_cost: bool = True,
        prefer_speed: bool = False,
    ) -> RoutingDecision:
        """Return the instance for the request. The counted prompt plus `max_tokens` (None: 500) must fit into its window.
        Raises `ContextTooLargeError` if no window is large enough, and `InvalidInputError` for a `max_tokens` below 1."""
        if max_tokens is not None:
            _positive("max_tokens", max_tokens)
        need = Need(self._count(messages, model), max_tokens or DEFAULT_OUTPUT_TOKENS)
        return await self.router.route(need, model, prefer_cost=prefer_cost, prefer_speed=prefer_speed)


@cache
def get_request_router() -> RequestRouter:
    """Return the process-wide router."""
    return RequestRouter()


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise InvalidInputError(f"{name} is {value}: it must be at least 1")
