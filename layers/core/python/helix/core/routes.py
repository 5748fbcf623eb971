"""A route: models among which each call of an agent chooses its own. Just data; `core.routing` decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from helix.core.messages import Record

Prefer = Literal["balanced", "cost", "speed"]
Level = Literal["warning", "critical"]


class RouteOption(Record):
    """One model of a route.

    model: litellm id. window: tokens of its context window, answer included, where the catalog does not know it or knows
    better. latency_ms: what a call usually takes; without it, what this process has seen of the model. bonus: points
    added to its score, see `core.routing.score`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1)
    window: int | None = Field(default=None, ge=1)
    latency_ms: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    bonus: float = Field(default=0, allow_inf_nan=False)


def _option(value: object) -> object:
    return {"model": value} if isinstance(value, str) else value


class Route(Record):
    """Give it as an agent's `model`: each call takes the best of `models` that the prompt and its answer fit into.

    models: litellm ids, or `RouteOption`s; each once, and in the order in which equals are taken.
    prefer: `cost` takes the cheapest that fits and `speed` the quickest; `balanced` the best by `core.routing.score`.
    degrade_at: from this level of a budget of the run on (warning: 80 % used, critical: 95 %) the cheapest that fits.

    The other models that fit are tried, in their order, where the chosen one fails.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: tuple[Annotated[RouteOption, BeforeValidator(_option)], ...] = Field(min_length=1, max_length=32)
    prefer: Prefer = "balanced"
    degrade_at: Level | None = None

    @model_validator(mode="after")
    def _each_once(self) -> Route:
        names = self.names
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"model {twice!r} is named twice")
        return self

    @property
    def names(self) -> Sequence[str]:
        return [option.model for option in self.models]
