"""Chooses a model, or a deployment of one, for a call: first by whether the call fits, then by cost, speed and load.

Law: pure. A model is chosen only if the prompt and its answer fit. Sizes are compared as numbers and variants by rank,
never as strings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from helix.core.errors import ContextTooLargeError

DEFAULT_OUTPUT_TOKENS = 500
"""The number of tokens reserved for an answer without a length limit."""
UNKNOWN_USD_PER_TOKEN = 0.0001
"""The assumed price of a token if no price is known. It exceeds nearly all real prices, so that such a model is chosen
last."""


class ModelVariant(StrEnum):
    """Size classes of context windows. Upper bounds are inclusive: 4,096 tokens are SMALL, 32,768 MEDIUM, 131,072
    LARGE. Compare them by `rank`, which starts at 0."""

    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"
    XLARGE = "xlarge"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    @classmethod
    def of(cls, tokens: int) -> ModelVariant:
        """Return the smallest class that can hold that many tokens."""
        return next((variant for bound, variant in _BOUNDS if tokens <= bound), cls.XLARGE)


_RANKS = {variant: rank for rank, variant in enumerate(ModelVariant)}
_BOUNDS = ((4_096, ModelVariant.SMALL), (32_768, ModelVariant.MEDIUM), (131_072, ModelVariant.LARGE))


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """A model, or a deployment of one, that can serve a call."""

    instance_id: str
    """The id of the candidate. For a route it is the name of the model."""
    model: str
    """The litellm id of the model."""
    max_context_tokens: int | None
    """The size of its context window in tokens, prompt and answer together. None if not known."""
    agent_id: str = ""
    """The agent that the deployment serves, for callers that register instances per agent. Empty for a route."""
    max_output_tokens: int | None = None
    """The maximum length of its answers in tokens. None if not known."""
    load: float = 0.0
    """The used fraction of its capacity, from 0 to 1."""
    queue_depth: int = 0
    """The number of requests in its queue."""
    avg_latency_ms: float | None = None
    """The latency of its calls in milliseconds, either configured or the observed mean. None if there is neither."""
    input_usd: float | None = None
    """The price of a prompt token in US dollars. None if not known."""
    output_usd: float | None = None
    """The price of an answer token in US dollars. None if not known."""
    bonus: float = 0.0
    """Points to add to its score."""
    available: bool = True
    """Whether it accepts calls at all."""
    healthy: bool = True
    """Whether its health checks succeed. Calls never go to an unhealthy instance."""

    @property
    def variant(self) -> ModelVariant:
        return ModelVariant.XLARGE if self.max_context_tokens is None else ModelVariant.of(self.max_context_tokens)

    def cost_usd(self, need: Need) -> float:
        """Return the maximum cost of the call at list price. Tokens with an unknown price cost `UNKNOWN_USD_PER_TOKEN`
        each."""
        prices = [UNKNOWN_USD_PER_TOKEN if usd is None else usd for usd in (self.input_usd, self.output_usd)]
        return need.input_tokens * prices[0] + need.output_tokens * prices[1]


@dataclass(frozen=True, slots=True)
class Need:
    """The tokens that a call needs."""

    input_tokens: int
    """The number of prompt tokens."""
    output_tokens: int = 0
    """The number of tokens reserved for the answer."""

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of the parts of a score. See `score`."""

    exact: float = 20
    """Points gained by the smallest class that can hold the call, and again by the preferred model."""
    tier: float = 10
    """Points lost per class above the smallest one that can hold the call."""
    load: float = 30
    """Points lost at full load."""
    queue: float = 2
    """Points lost per queued request, up to 10 requests."""
    latency: float = 1
    """Points lost per second of mean latency."""
    cost: float = 5
    """Points lost per multiple of the cheapest price beyond the first."""


BALANCED = Weights()
SPEED = Weights(latency=3, cost=0)
WITHOUT_COST = Weights(cost=0)


@dataclass(frozen=True, slots=True)
class RoutingDecision:
    """The chosen instance, and the reason for the choice."""

    instance_id: str
    """The id of the chosen instance."""
    model: str
    """The litellm id of its model."""
    variant: ModelVariant
    """The class of its context window."""
    estimated_cost: float | None
    """The cost of the prompt and a full-length answer in US dollars. None if a price is not known."""
    estimated_latency_ms: float | None
    """The latency of its calls in milliseconds, as in `InstanceInfo`. None if it is not known."""
    reason: str
    """A human-readable explanation."""
    fallback: bool = False
    """Whether this is not the first choice: the preferred model did not fit, or a budget requires a cheaper one."""


Order = Callable[[InstanceInfo], tuple[float, ...]]


def fits(instance: InstanceInfo, need: Need) -> bool:
    """Return whether the instance can serve the call at all. An unknown context window does not exclude it."""
    window, answer = instance.max_context_tokens, instance.max_output_tokens
    holds = (window is None or window >= need.total) and (answer is None or answer >= need.output_tokens)
    return instance.available and instance.healthy and holds


def ranked(instances: Iterable[InstanceInfo], need: Need, order: Order | None = None) -> list[InstanceInfo]:
    """Return the instances that fit, best first by `order` (by default in the given order). Instances with an unknown
    context window come last. Raises `ContextTooLargeError` if none fits."""
    offered = list(instances)
    found = [instance for instance in offered if fits(instance, need)]
    if not found:
        usable = [i for i in offered if i.available and i.healthy]
        largest = max((i.max_context_tokens or 0 for i in usable), default=0)
        longest = max((i.max_output_tokens or 0 for i in usable), default=0)
        raise ContextTooLargeError(need.input_tokens, need.output_tokens, largest, longest)
    found.sort(key=lambda i: (i.max_context_tokens is None, *(order(i) if order else ())))
    return found


def score(
    instance: InstanceInfo, need: Need, weights: Weights, *, cheapest_usd: float, prefer_model: str | None = None
) -> float:
    """Return the score of the instance for the call. Higher is better.

    The smallest class that can hold the call gains `exact` points; a larger class loses `tier` points per class above
    it. Load, queue (up to 10 requests), latency, and any price above the cheapest cost points. A model whose name
    contains `prefer_model` gains `exact` points again, so it wins among equals.
    """
    above = instance.variant.rank - ModelVariant.of(need.total).rank
    points = instance.bonus + (weights.exact if above <= 0 else -weights.tier * above)
    points -= weights.load * instance.load + weights.queue * min(instance.queue_depth, 10)
    points -= weights.latency * (instance.avg_latency_ms or 0) / 1000
    points -= weights.cost * (_ratio(instance.cost_usd(need), cheapest_usd) - 1)
    return points + (weights.exact if prefer_model and prefer_model in instance.model else 0)


def by_score(instances: Sequence[InstanceInfo], need: Need, weights: Weights, prefer_model: str | None = None) -> Order:
    """Order by score, best first."""
    cheapest = min(instance.cost_usd(need) for instance in instances)
    return lambda i: (-score(i, need, weights, cheapest_usd=cheapest, prefer_model=prefer_model), i.cost_usd(need))


def by_cost(need: Need) -> Order:
    """Order by price, cheapest first, with ties broken by load, then queue, then latency."""
    return lambda i: (i.cost_usd(need), i.load, float(i.queue_depth), i.avg_latency_ms or 0.0)


def by_speed(need: Need) -> Order:
    """Order by latency, fastest first. An unknown latency counts as one second."""
    return lambda i: (1000.0 if i.avg_latency_ms is None else i.avg_latency_ms, i.load, i.cost_usd(need))


def decide(instance: InstanceInfo, need: Need, reason: str, *, fallback: bool = False) -> RoutingDecision:
    priced = instance.input_usd is not None and instance.output_usd is not None
    return RoutingDecision(
        instance_id=instance.instance_id,
        model=instance.model,
        variant=instance.variant,
        estimated_cost=instance.cost_usd(need) if priced else None,
        estimated_latency_ms=instance.avg_latency_ms,
        reason=reason,
        fallback=fallback,
    )


def _ratio(cost: float, cheapest: float) -> float:
    """Return the cost as a multiple of the cheapest. If the cheapest is free, every paid instance counts as ten times
    as expensive."""
    if cheapest > 0:
        return cost / cheapest
    return 1.0 if cost <= 0 else 10.0
