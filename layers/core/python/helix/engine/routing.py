"""Which model of an agent's route takes the next call.

Law: the choice is `core.routing`'s; here are only its numbers: the prompt's estimated size, windows and prices from the
catalog, what this process saw of each model's latency, and how near the run's budgets are to their line.
"""

from __future__ import annotations

from dataclasses import replace

from helix.core.estimating import estimate_request
from helix.core.routes import Route, RouteOption
from helix.core.routing import (
    BALANCED,
    DEFAULT_OUTPUT_TOKENS,
    InstanceInfo,
    Need,
    Order,
    by_cost,
    by_score,
    by_speed,
    decide,
    ranked,
)
from helix.core.rows import SessionRow
from helix.engine.engine import Engine, logger
from helix.engine.money import budget_level
from helix.ports.catalog import ModelInfo
from helix.ports.model import LLMGenerateInput

LEVELS = ("", "warning", "critical", "exceeded")
LATEST_SHARE = 0.3
"""How much the latest call counts in what is known of a model's latency."""


async def choose_model(engine: Engine, new: SessionRow, request: LLMGenerateInput) -> LLMGenerateInput:
    """The request with the best model of its route; the others that fit are its fallbacks. `new`: the session with its
    budgets bound. Raises `ContextTooLargeError` where the prompt and its answer fit none."""
    config = request.config
    route = config.route
    if route is None:
        return request
    need = Need(estimate_request(request.messages, request.tools), config.max_output_tokens or DEFAULT_OUTPUT_TOKENS)
    offered = [_instance(engine, option) for option in route.models]
    level = "" if route.degrade_at is None else await budget_level(engine, new)
    degraded = route.degrade_at is not None and LEVELS.index(level) >= LEVELS.index(route.degrade_at)
    best, *others = ranked(offered, need, _order(route, offered, need, degraded))
    if degraded:  # a dearer model would be reserved for, which is what the budget has no room for
        others = []
    why = f"a budget is at {level}: the cheapest that fits" if degraded else _WHY[route.prefer]
    decision = decide(best, need, f"{why}, of {len(offered)} models for about {need.total} tokens", fallback=degraded)
    logger.info("run %s: %s by its route: %s", new.run_id, decision.model, decision.reason)
    fallbacks = dict.fromkeys([*(other.model for other in others), *config.fallbacks])
    chosen = config.model_copy(
        update={"model": best.model, "fallbacks": [name for name in fallbacks if name != best.model], "route": None}
    )
    return replace(request, config=chosen, chosen=decision.reason)


def note_latency(engine: Engine, model: str | None, seconds: float) -> None:
    """Remember how long a model took, for the next choice of this process."""
    if model is not None:
        before = engine.latencies.get(model, seconds * 1000)
        engine.latencies[model] = before + LATEST_SHARE * (seconds * 1000 - before)


_WHY = {"balanced": "the best score", "cost": "the cheapest that fits", "speed": "the quickest that fits"}


def _order(route: Route, offered: list[InstanceInfo], need: Need, degraded: bool) -> Order:
    if degraded or route.prefer == "cost":
        return by_cost(need)
    return by_speed(need) if route.prefer == "speed" else by_score(offered, need, BALANCED)


def _instance(engine: Engine, option: RouteOption) -> InstanceInfo:
    info = ModelInfo(option.model) if engine.catalog is None else engine.catalog.info(option.model)
    seen = engine.latencies.get(option.model)
    return InstanceInfo(
        instance_id=option.model,
        model=option.model,
        max_context_tokens=option.window or info.max_input_tokens,
        max_output_tokens=info.max_output_tokens,
        avg_latency_ms=seen if option.latency_ms is None else option.latency_ms,
        input_usd=info.input_usd,
        output_usd=info.output_usd,
        bonus=option.bonus,
    )
