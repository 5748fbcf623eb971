"""Which model, or which deployment of it, takes a call: first what it fits into, then cost, speed and load.

Law: pure, and nothing is chosen that the prompt and its answer do not fit into. Sizes are compared as numbers and variants
by their rank, never as words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from helix.core.errors import ContextTooLargeError

DEFAULT_OUTPUT_TOKENS = 500
"""Room that is kept for an answer whose length nobody limited."""
UNKNOWN_USD_PER_TOKEN = 0.0001
"""What a token is taken to cost where no price is known: dearer than nearly all, so that it is chosen last."""


class ModelVariant(StrEnum):
    """Classes of context windows. Upper bounds belong to their class: 4,096 tokens are SMALL, 32,768 MEDIUM, 131,072 LARGE.
    Compare them by `rank`, which counts from 0."""

    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"
    XLARGE = "xlarge"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    @classmethod
    def of(cls, tokens: int) -> ModelVariant:
        """The smallest class whose windows hold that many tokens."""
        return next((variant for bound, variant in _BOUNDS if tokens <= bound), cls.XLARGE)


_RANKS = {variant: rank for rank, variant in enumerate(ModelVariant)}
_BOUNDS = ((4_096, ModelVariant.SMALL), (32_768, ModelVariant.MEDIUM), (131_072, ModelVariant.LARGE))


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """A model, or a deployment of one, that may take a call.

    max_context_tokens: its window, prompt and answer together; None where nobody knows it. max_output_tokens: the longest
    answer it gives. load: 0 to 1. avg_latency_ms: None where none was seen. input_usd, output_usd: US dollars per token,
    None where no price is known. bonus: points added to its score.
    """

    instance_id: str
    model: str
    max_context_tokens: int | None
    agent_id: str = ""
    max_output_tokens: int | None = None
    load: float = 0.0
    queue_depth: int = 0
    avg_latency_ms: float | None = None
    input_usd: float | None = None
    output_usd: float | None = None
    bonus: float = 0.0
    available: bool = True
    healthy: bool = True

    @property
    def variant(self) -> ModelVariant:
        return ModelVariant.XLARGE if self.max_context_tokens is None else ModelVariant.of(self.max_context_tokens)

    def cost_usd(self, need: Need) -> float:
        """What the call costs at most, by list price; a part whose price is unknown costs `UNKNOWN_USD_PER_TOKEN`."""
        prices = [UNKNOWN_USD_PER_TOKEN if usd is None else usd for usd in (self.input_usd, self.output_usd)]
        return need.input_tokens * prices[0] + need.output_tokens * prices[1]


@dataclass(frozen=True, slots=True)
class Need:
    """Tokens of a call: its prompt, and the room for its answer."""

    input_tokens: int
    output_tokens: int = 0

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each part of a score counts. Latency is in points per second, cost per multiple of the cheapest price."""

    exact: float = 20
    tier: float = 10
    load: float = 30
    queue: float = 2
    latency: float = 1
    cost: float = 5


BALANCED = Weights()
SPEED = Weights(latency=3, cost=0)
WITHOUT_COST = Weights(cost=0)


@dataclass(frozen=True, slots=True)
class RoutingDecision:
    """What was chosen and why. `estimated_cost` in US dollars for prompt and full answer; None where no price is known.
    `estimated_latency_ms`: None where none was seen. `fallback`: it is not the first wish (the preferred model did not fit,
    or a budget asks for a cheaper one)."""

    instance_id: str
    model: str
    variant: ModelVariant
    estimated_cost: float | None
    estimated_latency_ms: float | None
    reason: str
    fallback: bool = False


Order = Callable[[InstanceInfo], tuple[float, ...]]


def fits(instance: InstanceInfo, need: Need) -> bool:
    """Whether it may take the call at all. A window that nobody knows is no reason against it."""
    window, answer = instance.max_context_tokens, instance.max_output_tokens
    holds = (window is None or window >= need.total) and (answer is None or answer >= need.output_tokens)
    return instance.available and instance.healthy and holds


def ranked(instances: Iterable[InstanceInfo], need: Need, order: Order | None = None) -> list[InstanceInfo]:
    """Those that fit, best first by `order` (default: as they were given); those whose window nobody knows come after the
    others. Raises `ContextTooLargeError` where none fits."""
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
    """Points: more is better. The smallest class that holds the call gets `exact`, a larger one loses `tier` for each class
    above; load, queue (10 at most), latency and price beyond the cheapest cost points; a model whose name holds
    `prefer_model` wins over all that is equal (`exact` points once more)."""
    above = instance.variant.rank - ModelVariant.of(need.total).rank
    points = instance.bonus + (weights.exact if above <= 0 else -weights.tier * above)
    points -= weights.load * instance.load + weights.queue * min(instance.queue_depth, 10)
    points -= weights.latency * (instance.avg_latency_ms or 0) / 1000
    points -= weights.cost * (_ratio(instance.cost_usd(need), cheapest_usd) - 1)
    return points + (weights.exact if prefer_model and prefer_model in instance.model else 0)


def by_score(instances: Sequence[InstanceInfo], need: Need, weights: Weights, prefer_model: str | None = None) -> Order:
    """Best score first."""
    cheapest = min(instance.cost_usd(need) for instance in instances)
    return lambda i: (-score(i, need, weights, cheapest_usd=cheapest, prefer_model=prefer_model), i.cost_usd(need))


def by_cost(need: Need) -> Order:
    """Cheapest first; a shared price is decided by load, then by latency."""
    return lambda i: (i.cost_usd(need), i.load, float(i.queue_depth), i.avg_latency_ms or 0.0)


def by_speed(need: Need) -> Order:
    """Quickest first; one of which nothing was seen is tried as if it took a second."""
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
    """How many times the cheapest; beside something free all that costs is taken as ten times."""
    if cheapest > 0:
        return cost / cheapest
    return 1.0 if cost <= 0 else 10.0
