"""Routes: the candidate models for each call of an agent. They are only data; `core.routing` makes the choice."""

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
    """The context window in tokens, including the answer. It overrides the catalog. None uses the catalog's value."""
    latency_ms: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The expected latency of a call in milliseconds. None uses the average that this process has observed for the
    model."""
    bonus: float = Field(default=0, allow_inf_nan=False)
    """Points to add to the model's score. See `core.routing.score`."""


def _option(value: object) -> object:
    return {"model": value} if isinstance(value, str) else value


class Route(Record):
    """A set of candidate models, for use as an agent's `model`.

    Each call uses the best of `models` whose context window fits the prompt and its answer. If that model fails, the
    others that fit are tried from best to worst.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: tuple[Annotated[RouteOption, BeforeValidator(_option)], ...] = Field(min_length=1, max_length=32)
    """The models: litellm ids or `RouteOption`s, without duplicates. Among equally good models, the earlier one
    wins."""
    prefer: Prefer = "balanced"
    """The order of the models that fit. `cost`: cheapest first. `speed`: fastest first. `balanced`: best score first,
    see `core.routing.score`."""
    degrade_at: Level | None = None
    """The budget level at which calls switch to the cheapest model that fits. None: never.

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
