"""The model catalog: context windows and list prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The limits and list prices of one model. Limits are in tokens, prices in US dollars per token. None means
    unknown; callers then assume their own upper bound for the price."""

    model: str
    """The model's litellm id."""
    max_input_tokens: int | None = None
    """The size of the context window."""
    max_output_tokens: int | None = None
    """The maximum length of an answer."""
    input_usd: float | None = None
    """The price of a prompt token."""
    output_usd: float | None = None
    """The price of an answer token."""
    cached_input_usd: float | None = None
    """The price of a prompt token read from the provider's cache. None: the same price as other prompt tokens."""
    worst_input_usd: float | None = None
    """The maximum price of a prompt token, regardless of prompt length and caching. Reservations use it."""
    worst_output_usd: float | None = None
    """The maximum price of an answer token, including reasoning tokens. Reservations use it."""

    @property
    def priced(self) -> bool:
        return self.input_usd is not None and self.output_usd is not None

    def cost_usd(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float | None:
        """Return the cost of a call at list price, or None if no price is known. `input_tokens` includes
        `cached_tokens`."""
        if self.input_usd is None or self.output_usd is None:
            return None
        cached_usd = self.input_usd if self.cached_input_usd is None else self.cached_input_usd
        return (
            (input_tokens - cached_tokens) * self.input_usd
            + cached_tokens * cached_usd
            + output_tokens * self.output_usd
        )


class ModelCatalog(Protocol):
    def info(self, model: str) -> ModelInfo:
        """Return the limits and prices of a model. Fast, without network access. Never raises: an unknown model has no
        limits and no prices."""
        ...
