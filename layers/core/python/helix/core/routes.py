"""Routes: the models from which each call of an agent chooses one. They are data only, `core.routing` decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from helix.core.messages import Record

Prefer = Literal["balanced", "cost", "speed"]
Level = Literal["warning", "critical"]


class RouteOption(Record):
    """One model of a route."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1)
    """The id of the model, as litellm names it."""
    window: int | None = Field(default=None, ge=1)
    """The tokens of the context window, answer included. It overrides the catalog. None: the catalog's value holds."""
    latency_ms: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The usual time of a call, in milliseconds. None: the average that this process has seen of the model."""
    bonus: float = Field(default=0, allow_inf_nan=False)
    """The points that are added to the model's score. See `core.routing.score`."""


def _option(value: object) -> object:
    return {"model": value} if isinstance(value, str) else value


class Route(Record):
    """A choice of models, to give as an agent's `model`.

    Each call takes the best of `models` that the prompt and its answer fit into. If that model fails, the others that
    fit are tried, from the best to the worst.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: tuple[Annotated[RouteOption, BeforeValidator(_option)], ...] = Field(min_length=1, max_length=32)
    """The models: litellm ids or `RouteOption`s, each once. Among equal models, the earlier one is taken."""
    prefer: Prefer = "balanced"
    """The order of the models that fit. `cost`: cheapest first. `speed`: fastest first. `balanced`: best score first, see
    `core.routing.score`."""
    degrade_at: Level | None = None
    """The level of a budget of the run from which calls take the cheapest model that fits. None: never.

    A budget reaches `warning` at 80 % of its limit and `critical` at 95 %, unless its definition says otherwise.
    """

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
