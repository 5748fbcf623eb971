"""What is known of models: context windows and list prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """model: litellm id. Limits in tokens, None where unknown. Prices in US dollars per token, None where unknown: then the
    caller takes its own ceiling."""

    model: str
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    input_usd: float | None = None
    output_usd: float | None = None
    cached_input_usd: float | None = None


class ModelCatalog(Protocol):
    def info(self, model: str) -> ModelInfo:
        """Never raises: a model that nobody knows has no limits and no prices. Quick, and asks nothing of the network."""
        ...
