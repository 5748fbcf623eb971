"""What a model call cost, in whole millionths of a US dollar.

Law: a price given to the adapter wins over litellm's map; a model that neither knows is `priced=False` and never 0 by
accident. Sums are exact because every call is rounded once, here.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from helix.adapters.models.catalog import FREE_PROVIDERS, Prices
from helix.core.usage import Usage

__all__ = ["Prices", "partial_usage", "usage_of"]


def usage_of(litellm: ModuleType, model: str, provider: str, reported: Any, prices: Prices) -> Usage:
    """One call's usage from litellm's usage object. None (nothing reported) gives an unpriced call of no tokens; then, and
    where no prompt was counted, the call is one of unknown usage."""
    if reported is None:
        return Usage(calls=1, unknown_calls=1, priced=False)
    prompt, completion = _count(reported, "prompt_tokens"), _count(reported, "completion_tokens")
    usage = Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        reasoning_tokens=min(
            _count(getattr(reported, "completion_tokens_details", None), "reasoning_tokens"), completion
        ),
        cached_tokens=min(_count(getattr(reported, "prompt_tokens_details", None), "cached_tokens"), prompt),
        calls=1,
        unknown_calls=0 if prompt else 1,
    )
    dollars = _dollars(litellm, model, provider, reported, usage, prices)
    return usage.model_copy(update={"cost_micros": round((dollars or 0) * 1_000_000), "priced": dollars is not None})


def partial_usage(chunks: list[Any]) -> Any:
    """The usage a provider reported before its stream broke (Anthropic reports the prompt first), or None."""
    usages = [usage for chunk in chunks if (usage := getattr(chunk, "usage", None)) is not None]
    return max(
        usages, key=lambda usage: _count(usage, "prompt_tokens") + _count(usage, "completion_tokens"), default=None
    )


def _dollars(
    litellm: ModuleType, model: str, provider: str, reported: Any, usage: Usage, prices: Prices
) -> float | None:
    if price := prices.get(model):
        return usage.prompt_tokens * price[0] + usage.completion_tokens * price[1]
    if provider in FREE_PROVIDERS:
        return 0.0
    try:
        parts = litellm.cost_per_token(
            model=model,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            usage_object=reported,
        )
    except Exception:  # litellm raises several types for "no price known"
        return None
    dollars = float(sum(parts))
    known = model in litellm.model_cost or model.partition("/")[2] in litellm.model_cost
    return dollars if dollars > 0 or known else None


def _count(source: Any, name: str) -> int:
    value = getattr(source, name, None)
    return max(int(value), 0) if isinstance(value, int | float) else 0
