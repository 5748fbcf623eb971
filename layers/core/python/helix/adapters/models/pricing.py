"""The price of a model call, in whole millionths of a US dollar.

Law: a price given to the adapter takes precedence over litellm's table. A model without a price in either is
`priced=False`, never 0 by accident. Sums are exact because every call is rounded once, here. litellm is not imported; only
its table is read (`catalog`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helix.adapters.models.catalog import FREE_PROVIDERS, Prices, entry_of
from helix.core.usage import Usage

__all__ = ["Prices", "Tokens", "count", "price", "usage_of"]

SEARCH_USD = 0.01
"""The list price of a web search at OpenAI and Anthropic, in US dollars, for models without a price in the table."""
_TIER = re.compile(r"_above_(\d+)k_tokens$")


@dataclass(frozen=True, slots=True)
class Tokens:
    """The token counts of one call as a provider reports them."""

    prompt: int = 0
    """The input tokens, including `cached`, `written`, `written_1h` and `audio`."""
    completion: int = 0
    """The output tokens, including `reasoning`."""
    reasoning: int = 0
    """The output tokens of reasoning."""
    cached: int = 0
    """The input tokens that were read from the provider's cache."""
    written: int = 0
    """The input tokens that were written to the provider's cache."""
    written_1h: int = 0
    """The input tokens that were written to the provider's cache for one hour."""
    audio: int = 0
    """The input tokens of audio. They are not read from the cache."""
    searches: int = 0
    """The number of web searches by the provider's own tool."""
    fees: float = 0.0
    """The fees of the provider's other tools, in US dollars."""


def price(model: str, tokens: Tokens | None, prices: Prices) -> Usage:
    """Return one call's usage. None means that no usage was reported, and yields an unpriced call without tokens."""
    return usage_of(Tokens(), None) if tokens is None else usage_of(tokens, _dollars(model, tokens, prices))


def usage_of(tokens: Tokens, dollars: float | None) -> Usage:
    """Return the usage of a call with this price. None: the price is unknown. A call without prompt tokens counts as a call
    of unknown usage."""
    return Usage(
        prompt_tokens=tokens.prompt,
        completion_tokens=tokens.completion,
        reasoning_tokens=min(tokens.reasoning, tokens.completion),
        cached_tokens=min(tokens.cached, tokens.prompt),
        written_tokens=min(tokens.written + tokens.written_1h, tokens.prompt),
        calls=1,
        unknown_calls=0 if tokens.prompt else 1,
        cost_micros=round((dollars or 0) * 1_000_000),
        priced=dollars is not None,
    )


def _dollars(model: str, tokens: Tokens, prices: Prices) -> float | None:
    dollars = _dollars_of_tokens(model, tokens, prices)
    return None if dollars is None else dollars + tokens.searches * search_usd(model) + tokens.fees


def search_usd(model: str) -> float:
    """Return the price of a web search by the provider's own tool, in US dollars."""
    costs = entry_of(model).get("search_context_cost_per_query")
    known = costs.get("search_context_size_medium") if isinstance(costs, Mapping) else None
    return float(known) if isinstance(known, int | float) else SEARCH_USD


def _dollars_of_tokens(model: str, tokens: Tokens, prices: Prices) -> float | None:
    if own := prices.get(model):
        return tokens.prompt * own[0] + tokens.completion * own[1]
    if model.partition("/")[0] in FREE_PROVIDERS:
        return 0.0
    entry = entry_of(model)
    plain, answer = (_rate(entry, name, tokens.prompt) for name in ("input_cost_per_token", "output_cost_per_token"))
    if plain is None or answer is None:
        return None
    read = _rate(entry, "cache_read_input_token_cost", tokens.prompt, plain)
    write = _rate(entry, "cache_creation_input_token_cost", tokens.prompt, plain)
    hour = _rate(entry, "cache_creation_input_token_cost_above_1hr", tokens.prompt, write)
    heard = _rate(entry, "input_cost_per_audio_token", tokens.prompt, plain)
    fresh = max(tokens.prompt - tokens.cached - tokens.written - tokens.written_1h - tokens.audio, 0)
    cached = tokens.cached * (read or 0) + tokens.written * (write or 0) + tokens.written_1h * (hour or 0)
    return fresh * plain + tokens.audio * (heard or 0) + cached + tokens.completion * answer


def _rate(entry: Mapping[str, Any], name: str, prompt: int, default: float | None = None) -> float | None:
    """Return the price for a prompt of that length, from the highest tier that it exceeds."""
    at, found = -1, entry.get(name, default)
    for key, value in entry.items():
        tier = _TIER.search(key)
        if tier and key[: tier.start()] == name and prompt > int(tier[1]) * 1000 > at:
            at, found = int(tier[1]) * 1000, value
    return float(found) if isinstance(found, int | float) and found >= 0 else default


def count(source: Any, *names: str) -> int:
    """Return a number in nested JSON, or 0 if it is missing."""
    for name in names:
        source = source.get(name) if isinstance(source, Mapping) else None
    return max(int(source), 0) if isinstance(source, int | float) else 0
