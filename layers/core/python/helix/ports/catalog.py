"""What is known of models: context windows and list prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """model: litellm id. Limits in tokens, None where unknown. Prices in US dollars per token, None where unknown: then the
    caller takes its own ceiling. `worst_input_usd` and `worst_output_usd` are the most that one token of this model can
    cost, whatever the length of the prompt and the cache do: what a reservation counts with."""

    model: str
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    input_usd: float | None = None
    output_usd: float | None = None
    cached_input_usd: float | None = None
    worst_input_usd: float | None = None
    worst_output_usd: float | None = None

    @property
    def priced(self) -> bool:
        return self.input_usd is not None and self.output_usd is not None

    def cost_usd(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float | None:
        """What a call costs at list price; `input_tokens` includes `cached_tokens`. None where no price is known."""
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
        """Never raises: a model that nobody knows has no limits and no prices. Quick, and asks nothing of the network."""
        ...
