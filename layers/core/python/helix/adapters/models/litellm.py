"""Calls any model that litellm supports. Importing litellm takes seconds, so it is done in a thread, at the first
call."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, cast

from helix.adapters.models.adapter import ModelAdapter
from helix.adapters.models.catalog import FREE_PROVIDERS
from helix.adapters.models.choice import LITELLM
from helix.adapters.models.failures import failure
from helix.adapters.models.file_parts import RequestFiles
from helix.adapters.models.litellm_tap import StreamTap
from helix.adapters.models.openai_api import api_of
from helix.adapters.models.openai_form import call_arguments
from helix.adapters.models.pricing import Prices, Tokens, usage_of
from helix.adapters.models.providers import unknown_provider
from helix.adapters.models.strict_tools import plan_strict, strict_form
from helix.adapters.models.wire import AttemptFailedError, CallPart, Exchange, Piece, Redacted, Text, Thinking
from helix.core.config import LLMConfig
from helix.core.errors import DefinitionError
from helix.core.json import JsonObject
from helix.core.usage import Usage
from helix.ports.model import LLMGenerateInput

__all__ = ["LiteLLMAdapter", "LiteLLMWire", "litellm_usage", "load_litellm"]

_ITS_WARNINGS = (
    ".*conflict with protected namespace.*",
    ".*Accessing the.*attribute on the instance is deprecated.*",
    ".*`ReadOnly` qualifier.*",
    "Pydantic serializer warnings",
)


class LiteLLMAdapter(ModelAdapter):
    """A `ModelAdapter` that uses litellm for all models, even if other packages are installed."""

    def package(self, model: str, config: LLMConfig) -> str:
        return LITELLM


class LiteLLMWire:
    """A `Wire` on litellm. litellm's `drop_params` omits settings that a model does not have."""

    def __init__(self, prices: Prices) -> None:
        self._litellm, self._prices = load_litellm(), prices
        # It needs the openai package, which is installed with litellm and takes as long to import.
        self._responses: Any = importlib.import_module("helix.adapters.models.litellm_responses").LiteLLMResponses

    def exchange(self, request: LLMGenerateInput, model: str) -> Exchange:
        _ignore_its_warnings()
        if model.startswith(("openai/", "azure/")) and api_of(model, request.config) == "responses":
            made: Exchange = self._responses(self._litellm, self._prices, request, model)
            return made
        return _Exchange(self._litellm, self._prices, request, model)


class _Exchange:
    """Implements `Exchange`."""

    def __init__(self, litellm: ModuleType, prices: Prices, request: LLMGenerateInput, model: str) -> None:
        self._litellm, self._prices, self._request, self._model = litellm, prices, request, model
        self.strict: Mapping[str, JsonObject] = {}
        self._provider = ""
        self._stream: Any = None
        self._tap: StreamTap | None = None
        self._reported: Any = None

    @property
    def finish_reason(self) -> str | None:
        return self._tap.finish_reason if self._tap else None

    @property
    def refusal(self) -> str:
        return self._tap.refusal if self._tap else ""

    @property
    def counted(self) -> bool:
        """Whether usage was reported. litellm estimates missing usage without saying so."""
        return self._tap is not None and self._tap.reported_usage

    @property
    def headers(self) -> Mapping[str, str]:
        found = getattr(self._stream, "_response_headers", None)
        return found if isinstance(found, Mapping) else {}

    async def open(self) -> None:
        litellm, model, options = self._litellm, self._model, self._request.config.provider_options
        try:
            # For an unknown provider `acompletion` only reports "bad request", with advice about litellm's own
            # functions.
            self._provider = litellm.get_llm_provider(model, options.get("custom_llm_provider"))[1]
        except Exception as error:
            raise AttemptFailedError(failure(model, "model_not_found", unknown_provider(model))) from error
        tools = self._request.tools
        strict = plan_strict(tools, self._request.config, strict_form(model, LITELLM)).schemas
        self.strict = {tool.name: tool.parameters for tool in tools if tool.name in strict}
        files = RequestFiles(self._request, model, "litellm")
        await files.load()
        arguments = call_arguments(self._request, model, self._provider, files, strict=strict)
        files.release()
        self._stream = await litellm.acompletion(**arguments)
        self._tap = StreamTap(self._stream)

    async def next(self) -> Sequence[Piece] | None:
        chunk = await anext(self._stream, None)
        if chunk is None:
            return None
        self._reported = getattr(chunk, "usage", None) or self._reported
        return list(_pieces(chunk.choices[0].delta)) if chunk.choices else ()

    def usage(self, said: str | None) -> Usage:
        reported = self._reported
        if reported is None and said is None:
            reported = _partial_usage(getattr(self._stream, "chunks", None) or [])
        return litellm_usage(self._litellm, self._model, self._provider, reported, self._prices)

    async def close(self) -> None:
        if self._tap is not None:
            await self._tap.close()


def _pieces(delta: Any) -> Iterator[Piece]:
    blocks = getattr(delta, "thinking_blocks", None) or []
    for block in blocks:
        if block.get("type") == "redacted_thinking":
            yield Redacted(block.get("data"))
        else:
            yield Thinking(block.get("thinking") or "", block.get("signature") or None)
    if not blocks:
        yield Thinking(getattr(delta, "reasoning_content", None) or "")
    yield Text(getattr(delta, "content", None) or "")
    for part in getattr(delta, "tool_calls", None) or []:
        function = getattr(part, "function", None)
        name, arguments = getattr(function, "name", None), getattr(function, "arguments", None)
        yield CallPart(getattr(part, "index", None) or 0, getattr(part, "id", None) or "", name or "", arguments or "")


@functools.cache
def load_litellm() -> ModuleType:
    """Import litellm: quietly, without fetching a price map, and with the modules that its first call would load.

    It blocks for seconds the first time. Raises `DefinitionError` if litellm is not installed.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    try:
        litellm: Any = importlib.import_module("litellm")
    except ModuleNotFoundError as error:
        if error.name != "litellm":
            raise
        problem = "litellm is not installed: pip install 'helix-agents[models]'"
        raise DefinitionError("LiteLLMAdapter", "litellm", problem) from error
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    litellm.disable_aiohttp_transport = True  # httpx, as the packages of OpenAI and Anthropic use it
    if "LITELLM_LOG" not in os.environ:  # Helix reports every failure; LITELLM_LOG turns litellm's log on again
        logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    importlib.import_module("openai.resources")
    getattr(litellm, "encoding", None)
    return cast(ModuleType, litellm)


def _ignore_its_warnings() -> None:
    """Restore litellm's warning filters. pytest resets them after the test that imported litellm. If warnings are errors,
    the next stream would fail."""
    for message in _ITS_WARNINGS:
        warnings.filterwarnings("ignore", message=message)


# --- usage, in litellm's form ---------------------------------------------------------------------------------------


def litellm_usage(litellm: ModuleType, model: str, provider: str, reported: Any, prices: Prices) -> Usage:
    """Return one call's usage from litellm's usage object. None means that no usage was reported, and yields an unpriced
    call without tokens."""
    if reported is None:
        return usage_of(Tokens(), None)
    tokens = Tokens(
        _count(reported, "prompt_tokens"),
        _count(reported, "completion_tokens"),
        reasoning=_count(getattr(reported, "completion_tokens_details", None), "reasoning_tokens"),
        cached=_count(getattr(reported, "prompt_tokens_details", None), "cached_tokens"),
    )
    return usage_of(tokens, _dollars(litellm, model, provider, reported, tokens, prices))


def _partial_usage(chunks: list[Any]) -> Any:
    """Return the usage that a provider reported before its stream broke, or None. Anthropic reports the prompt first."""
    usages = [usage for chunk in chunks if (usage := getattr(chunk, "usage", None)) is not None]
    return max(
        usages, key=lambda usage: _count(usage, "prompt_tokens") + _count(usage, "completion_tokens"), default=None
    )


def _dollars(
    litellm: ModuleType, model: str, provider: str, reported: Any, tokens: Tokens, prices: Prices
) -> float | None:
    if price := prices.get(model):
        return tokens.prompt * price[0] + tokens.completion * price[1]
    if provider in FREE_PROVIDERS:
        return 0.0
    try:
        parts = litellm.cost_per_token(
            model=model,
            prompt_tokens=tokens.prompt,
            completion_tokens=tokens.completion,
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
