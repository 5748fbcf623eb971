"""Context windows, list prices and kinds of input, from the table that litellm ships.

Law: litellm itself is not imported, because that takes seconds. Its table is read at the first request, once per
process. Values from the caller override the table. A name that only resembles another provider's model is unknown,
because a wrong price is worse than none.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic_core import from_json

from helix._log import get_logger
from helix.core.errors import InvalidInputError
from helix.ports.catalog import ModelInfo

__all__ = ["FREE_PROVIDERS", "Limits", "LitellmCatalog", "Prices", "entry_of"]

Prices = Mapping[str, tuple[float, float]]
"""The prices by model id: (US dollars per input token, US dollars per output token)."""
Limits = Mapping[str, tuple[int, int | None]]
"""The limits by model id: (tokens of the context window, tokens of an answer or None if unknown)."""

FREE_PROVIDERS = frozenset({"ollama", "ollama_chat", "lm_studio", "llamafile"})
"""The providers that run on the user's own machine. litellm would ask their server for a price that does not exist."""

_TABLE = "model_prices_and_context_window_backup.json"
_PROMPT_TIER = re.compile(r"_above_\d+k_tokens$")
_CACHE_LIFE = re.compile(r"_above_\d+hr$")
_CHAT_MODES = ("chat", "responses")
_SEES = re.compile(r"\bft:|vision|pixtral|-vl\b")
"""A pattern for models that accept images but are not marked in the table."""
_NOVA = re.compile(r"amazon\.nova-(?!micro)(\d-)?(lite|pro|premier)")
"""A pattern for the Amazon Bedrock models that accept video, and files as S3 addresses
(docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference-supported-models-features.html)."""

logger = get_logger(__name__)


class LitellmCatalog:
    """A `ModelCatalog` on litellm's table. Names are litellm's. The provider may be omitted: `openai/gpt-4o` or
    `gpt-4o`.

    prices are US dollars per token, `{model: (input, output)}`. limits are tokens, `{model: (window, answer)}`. Both
    are looked up by the name that the caller uses. Raises `InvalidInputError` for a price below 0 or a window below 1.
    """

    def __init__(self, *, prices: Prices = MappingProxyType({}), limits: Limits = MappingProxyType({})) -> None:
        for model, price in prices.items():
            if min(price) < 0:
                raise InvalidInputError(f"the price of {model!r} is {price}: it must be 0 or more")
        for model, limit in limits.items():
            if any(part is not None and part < 1 for part in limit):
                raise InvalidInputError(f"the limits of {model!r} are {limit}: they must be 1 or more")
        self._prices, self._limits = dict(prices), dict(limits)
        self._known: dict[str, ModelInfo] = {}

    def info(self, model: str) -> ModelInfo:
        found = self._known.get(model)
        if found is None:
            found = self._known[model] = self._look_up(model)
        return found

    def _look_up(self, model: str) -> ModelInfo:
        price, limit = self._prices.get(model), self._limits.get(model)
        info = ModelInfo(model)
        if price is None or limit is None:
            info = info_of(model)
        if price is not None:
            info = replace(
                info,
                input_usd=price[0],
                output_usd=price[1],
                cached_input_usd=None,
                worst_input_usd=price[0],
                worst_output_usd=price[1],
                audio_usd=None,
            )
        if limit is not None:
            info = replace(info, max_input_tokens=limit[0], max_output_tokens=limit[1] or info.max_output_tokens)
        return info


def info_of(model: str) -> ModelInfo:
    """Return the table's information about `model`."""
    return _read(model, entry_of(model))


def entry_of(model: str) -> Mapping[str, Any]:
    """Return the table's entry for `model`, by its full name or by the part after the provider. It is empty if there is
    no entry."""
    table = _table()
    if model in table:
        return table[model]
    for provider, name in _split_name(model):
        entry = table.get(name)
        if entry is not None and provider in str(entry.get("litellm_provider", "")):
            return entry
    if model.partition("/")[0] in FREE_PROVIDERS:
        return {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0}
    return {}


def chat_models() -> list[str]:
    """Return the chat models whose names have no provider."""
    return [name for name, entry in _table().items() if "/" not in name and entry.get("mode") == "chat"]


def _split_name(model: str) -> Iterator[tuple[str, str]]:
    """Yield the ways to split a name. `bedrock/converse/us.x` is looked up as `converse/us.x`, then as `us.x`, each
    with the provider bedrock."""
    provider, slash, name = model.partition("/")
    while slash:
        yield provider.lower(), name
        _, slash, name = name.partition("/")


def _read(model: str, entry: Mapping[str, Any]) -> ModelInfo:
    answer = _count(entry, "max_output_tokens")
    input_usd, output_usd = _price(entry, "input_cost_per_token"), _price(entry, "output_cost_per_token")
    if output_usd is None and entry.get("mode") == "embedding":
        output_usd = 0.0
    info = ModelInfo(
        model,
        max_input_tokens=_count(entry, "max_input_tokens") or (None if answer else _count(entry, "max_tokens")),
        max_output_tokens=answer,
        input_usd=input_usd,
        output_usd=output_usd,
        cached_input_usd=_price(entry, "cache_read_input_token_cost"),
        worst_input_usd=_highest_price(entry, input_usd, "input_cost_per_token", "cache_creation_input_token_cost"),
        worst_output_usd=_highest_price(entry, output_usd, "output_cost_per_token", "output_cost_per_reasoning_token"),
        audio_usd=_price(entry, "input_cost_per_audio_token"),
    )
    return _with_inputs(info, entry)


def _with_inputs(info: ModelInfo, entry: Mapping[str, Any]) -> ModelInfo:
    """Return the info, extended by the kinds of files that the model accepts. The table marks these for chat models. A
    missing mark means that the model does not accept the kind. The exceptions are PDF documents if the model accepts
    images, and names that suggest images."""
    nova = info.model.startswith("bedrock/") and bool(_NOVA.search(info.model))
    if entry.get("mode") not in _CHAT_MODES:
        return replace(info, video=True, reads_s3=True) if nova else info
    modalities = entry.get("supported_modalities") or ()
    marked = bool(entry.get("supports_vision") or entry.get("supports_image_input") or "image" in modalities)
    images = marked or (None if "supports_vision" not in entry and _SEES.search(info.model) else False)
    pdfs = entry.get("supports_pdf_input")
    if pdfs is None and images is False and not info.model.startswith("bedrock/"):  # Converse reads documents itself
        pdfs = False
    return replace(
        info,
        images=images,
        pdfs=pdfs,
        audio=bool(entry.get("supports_audio_input") or "audio" in modalities),
        video=nova or bool(entry.get("supports_video_input") or "video" in modalities),
        reads_s3=nova,
    )


def _highest_price(entry: Mapping[str, Any], base: float | None, *names: str) -> float | None:
    """Return the highest price among all tiers of these names, because longer prompts and longer-lived caches cost
    more."""
    if base is None:
        return None
    tiers = [name for name in entry if _CACHE_LIFE.sub("", _PROMPT_TIER.sub("", name)) in names]
    return max([base, *(price for name in tiers if (price := _price(entry, name)) is not None)])


def _count(entry: Mapping[str, Any], name: str) -> int | None:
    value = entry.get(name)
    return int(value) if isinstance(value, int | float) and value >= 1 else None


def _price(entry: Mapping[str, Any], name: str) -> float | None:
    value = entry.get(name)
    return float(value) if isinstance(value, int | float) and value >= 0 else None


@functools.cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    """Return litellm's table, parsed once in tens of milliseconds. It is empty if litellm is not installed or has moved
    its file. A deps layer without litellm still has the file (`helix.infra.build`)."""
    found = importlib.util.find_spec("litellm")
    folders = found.submodule_search_locations if found is not None else None
    table: dict[str, Any] = {}
    try:
        if folders:
            table = from_json((Path(next(iter(folders))) / _TABLE).read_bytes())
    except (OSError, ValueError) as error:
        logger.warning("litellm's table of models cannot be read: no model has a known price or window: %s", error)
    table.pop("sample_spec", None)
    return table
