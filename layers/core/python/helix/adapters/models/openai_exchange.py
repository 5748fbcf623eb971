"""What OpenAI's two interfaces share: the address, the credentials, and what a model's name says of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Mapping
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import urlsplit

from openai import AsyncStream

from helix.adapters.models.catalog import entry_of
from helix.adapters.models.openai_form import strict_tools
from helix.adapters.models.pricing import Prices
from helix.adapters.models.sdk import Clients, SdkExchange
from helix.core.config import LLMConfig
from helix.core.json import JsonObject
from helix.ports.model import LLMGenerateInput

T = TypeVar("T")
EXTRA = frozenset({"extra_headers", "extra_query", "extra_body"})
CHAT_ONLY = frozenset(
    {
        *("audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "modalities", "n"),
        *("prediction", "presence_penalty", "seed", "stop", "web_search_options"),
    }
)
"""Provider options that the Responses API does not have."""
_OF_THE_CLIENT = {"api_key": "api_key", "api_base": "base_url", "base_url": "base_url", "organization": "organization"}
_KEYS = {"openai": ("OPENAI_API_KEY",), "azure": ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY")}
_BASES = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "azure": ("AZURE_API_BASE", "AZURE_OPENAI_ENDPOINT"),
}
_OWN_HOSTS = re.compile(
    r"(^|\.)(api\.openai\.com|openai\.azure\.com|services\.ai\.azure\.com|cognitiveservices\.azure\.com)$"
)
_AZURE_PATH = "/openai/v1"
_END_S = 0.2
"""How long a server may take to end an answer that said `[DONE]`."""
_REASONING = re.compile(r"^(o\d|gpt-([5-9]|\d\d)(?!.*-chat))")
"""Models that reason: they refuse `stop` and, while they reason, `temperature`."""
_VERBOSE = re.compile(r"^gpt-([5-9]|\d\d)")
_STRICT = re.compile(r"^(ft:)?(gpt-4o|gpt-4\.\d|gpt-([5-9]|\d\d)|o\d)")
"""Models with structured outputs, where there is no table that says it."""
_CHAT_MODELS = re.compile(r"audio|search-(preview|api)|^gpt-3\.5-turbo-instruct")


class Stream(AsyncStream[T]):  # type: ignore[misc]
    """Read to its end: the package stops at `[DONE]`, and a connection whose answer is not read is closed."""

    async def _iter_events(self) -> AsyncIterator[Any]:
        events = super()._iter_events()
        async for event in events:
            if not event.data.startswith("[DONE]"):
                if event.data.strip():  # some servers keep the connection alive with empty events
                    yield event
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    async for _ in events:
                        pass
            return


class OpenAIExchange(SdkExchange):
    """Of `openai/...` and `azure/...`. `reasons`: whether the model thinks. `effort`: how much, in words that it has."""

    def __init__(self, request: LLMGenerateInput, model: str, prices: Prices, clients: Clients) -> None:
        super().__init__(request, model, prices, clients, Stream)
        self.entry = entry_of(model)

    @property
    def name(self) -> str:
        return name_of(self.model)

    @property
    def reasons(self) -> bool:
        return bool(_REASONING.match(self.name) or self.entry.get("mode") == "responses")

    @property
    def verbosity(self) -> str | None:
        given = self.request.config.verbosity or self.request.config.provider_options.get("verbosity")
        return str(given) if given and _VERBOSE.match(self.name) else None

    @property
    def known(self) -> bool:
        """Whether the model is one of OpenAI's, which refuse what they do not have."""
        return bool(self.entry or _STRICT.match(self.name))

    @cached_property
    def effort(self) -> str | None:
        options = self.request.config.provider_options
        asked = self.request.config.reasoning or options.get("reasoning_effort")
        return None if asked is None or not self.reasons else effort_of(str(asked), self.entry)

    @property
    def temperature(self) -> float | None:
        """None where the model refuses it: a reasoning model has one temperature, unless it does not reason this time."""
        given, effort = self.request.config.temperature, self.effort or self.entry.get("default_reasoning_effort")
        return None if self.reasons and effort != "none" and given != 1 else given

    def constrained(self) -> Mapping[str, JsonObject]:
        entry = self.entry
        strict_ok = bool(entry.get("supports_response_schema") if entry else _STRICT.match(self.name))
        return strict_tools(self.request, "openai", strict_ok)

    def connect(self, options: dict[str, Any]) -> Any:
        """The client for these options; takes those that are its own out of them."""
        given = {_OF_THE_CLIENT[name]: options.pop(name) for name in list(options) if name in _OF_THE_CLIENT}
        provider = provider_of(self.model)
        given["base_url"] = base_of(self.model, given)
        given.setdefault("api_key", next(filter(None, map(os.environ.get, _KEYS[provider])), None))
        return self.clients.client(**given)


def provider_of(model: str) -> str:
    return "azure" if model.startswith("azure/") else "openai"


def name_of(model: str) -> str:
    """The model as its provider calls it."""
    return model.removeprefix(f"{provider_of(model)}/").removeprefix("responses/")


def api_of(model: str, config: LLMConfig) -> str:
    """`responses` or `chat`: see `LLMConfig.api`."""
    name, options = name_of(model), config.provider_options
    if config.api is not None:
        return config.api
    entry = entry_of(model)
    if "/responses/" in model or entry.get("mode") == "responses":
        return "responses"
    base = base_of(model, options)
    elsewhere = base is not None and not _OWN_HOSTS.search(urlsplit(base).hostname or "")
    endpoints = entry.get("supported_endpoints") or ["/v1/responses"]
    if elsewhere or "/v1/responses" not in endpoints or _CHAT_MODELS.search(name):
        return "chat"
    return "chat" if CHAT_ONLY & options.keys() or (config.stop and not _REASONING.match(name)) else "responses"


def base_of(model: str, options: Mapping[str, Any]) -> str | None:
    """The address that the options or the environment name; None for the package's own."""
    provider = provider_of(model)
    given = options.get("base_url") or options.get("api_base")
    base = given or next(filter(None, map(os.environ.get, _BASES[provider])), None)
    if base is None or provider == "openai" or urlsplit(base).path.strip("/"):
        return base
    return base.rstrip("/") + _AZURE_PATH


def effort_of(effort: str, entry: Mapping[str, Any]) -> str:
    """The nearest effort that the model has. A model that the catalog does not know is sent the word as it is."""
    nearest = {"none": ("none", "minimal"), "minimal": ("minimal",), "xhigh": ("xhigh",)}
    if not entry or effort not in nearest:
        return effort
    has = (word for word in nearest[effort] if entry.get(f"supports_{word}_reasoning_effort"))
    return next(has, "high" if effort == "xhigh" else "low")
