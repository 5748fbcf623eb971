"""The common part of OpenAI's two interfaces: the base URL, the credentials, and the capabilities that a model's name
implies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator
from functools import cached_property
from typing import Any, TypeVar

from openai import AsyncStream

from helix.adapters.models.catalog import entry_of
from helix.adapters.models.effort import openai_effort
from helix.adapters.models.openai_api import REASONING, base_of, name_of, provider_of, takes_verbosity
from helix.adapters.models.pricing import Prices
from helix.adapters.models.prompt_caches import cache_key
from helix.adapters.models.sdk import Clients, SdkExchange
from helix.adapters.models.strict_tools import STRUCTURED
from helix.ports.model import LLMGenerateInput

T = TypeVar("T")
EXTRA = frozenset({"extra_headers", "extra_query", "extra_body"})
_OF_THE_CLIENT = {"api_key": "api_key", "api_base": "base_url", "base_url": "base_url", "organization": "organization"}
KEYS = {"openai": ("OPENAI_API_KEY",), "azure": ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_AD_TOKEN")}
_END_S = 0.2
"""The seconds that a server has to end a response after `[DONE]`."""

_OTHER_MAKERS = re.compile(r"claude|cohere|command|deepseek|gemini|grok|jamba|kimi|llama|mistral|ministral|phi-|qwen")
"""A pattern for the models of other makers on Azure. Some refuse options that only OpenAI has."""


class Stream(AsyncStream[T]):  # type: ignore[misc]
    """A stream that is read to its end. The package itself stops at `[DONE]`, and then has to close the connection
    because the response was not read completely."""

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
    """An exchange with `openai/...` or `azure/...`. `is_reasoning`: whether the model reasons, which the name of an Azure
    deployment may not reveal. `effort`: the reasoning effort in the model's terms."""

    def __init__(self, request: LLMGenerateInput, model: str, prices: Prices, clients: Clients) -> None:
        super().__init__(request, model, prices, clients, Stream)
        self.entry = entry_of(model)

    @property
    def name(self) -> str:
        return name_of(self.model)

    @property
    def is_reasoning(self) -> bool:
        asked = provider_of(self.model) == "azure" and not self.is_known and self.request.config.reasoning is not None
        return asked or bool(REASONING.match(self.name) or self.entry.get("mode") == "responses")

    @property
    def verbosity(self) -> str | None:
        """The verbosity to send. A provider option is sent unchanged; the setting is sent only to models that support
        it."""
        asked = self.request.config.provider_options.get("verbosity")
        if asked is not None:
            return str(asked)
        return self.request.config.verbosity if takes_verbosity(self.model) else None

    @property
    def is_known(self) -> bool:
        """Whether the model is one of OpenAI's, which refuse unsupported options."""
        return bool(self.entry or STRUCTURED.match(self.name))

    @property
    def cache_key(self) -> dict[str, str]:
        """The key of the prompt cache, for models of OpenAI. A deployment of Azure may have any name."""
        deployed = provider_of(self.model) == "azure" and not _OTHER_MAKERS.search(self.name.lower())
        key = cache_key(self.request) if self.is_known or deployed else None
        return {} if key is None else {"prompt_cache_key": key}

    @cached_property
    def effort(self) -> str | None:
        options = self.request.config.provider_options
        asked = options.get("reasoning_effort") or self.request.config.reasoning
        return None if asked is None or not self.is_reasoning else openai_effort(str(asked), self.entry)

    @property
    def temperature(self) -> float | None:
        """The temperature to send. None if the model refuses it: a reasoning model has a fixed temperature, unless its
        effort is `none`."""
        given, effort = self.request.config.temperature, self.effort or self.entry.get("default_reasoning_effort")
        return None if self.is_reasoning and effort != "none" and given != 1 else given

    @property
    def top_p(self) -> float | None:
        """The `top_p` to send. None if the model refuses it."""
        fixed = self.is_reasoning and (self.effort or self.entry.get("default_reasoning_effort")) != "none"
        return None if fixed else self.request.config.top_p

    @property
    def parallel(self) -> dict[str, bool]:
        """The field `parallel_tool_calls`, if it is set."""
        asked = self.request.config.parallel_tool_calls
        return {} if asked is None else {"parallel_tool_calls": asked}

    def connect(self, options: dict[str, Any]) -> Any:
        """Return the client for these options, and remove the client's own options from `options`."""
        given = self.drop_client_options(options)
        provider = provider_of(self.model)
        given["base_url"] = base_of(self.model, given)
        given.setdefault("api_key", next(filter(None, map(os.environ.get, KEYS[provider])), None))
        return self.clients.client(**given)

    def drop_client_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Remove the client's own options from `options`, and return them under the client's names."""
        return {_OF_THE_CLIENT[name]: options.pop(name) for name in list(options) if name in _OF_THE_CLIENT}
