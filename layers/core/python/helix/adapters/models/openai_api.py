"""The choice of OpenAI's interface for a model, and of its base URL. Nothing is imported for the decision."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from helix.adapters.models.catalog import entry_of
from helix.core.config import LLMConfig

CHAT_ONLY = frozenset(
    {
        *("audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "modalities", "n"),
        *("prediction", "presence_penalty", "seed", "stop", "web_search_options"),
    }
)
"""The provider options that the Responses API does not have."""
_BASES = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "azure": ("AZURE_API_BASE", "AZURE_OPENAI_ENDPOINT"),
}
_OWN_HOSTS = re.compile(
    r"(^|\.)(api\.openai\.com|openai\.azure\.com|services\.ai\.azure\.com|cognitiveservices\.azure\.com)$"
)
_AZURE_PATH = "/openai/v1"
REASONING = re.compile(r"^(o\d|gpt-([5-9]|\d\d)(?!.*-chat))")
"""A pattern for models that reason. They refuse `stop` and, while they reason, `temperature`."""
_VERBOSE = re.compile(r"^gpt-([5-9]|\d\d)")
_CHAT_MODELS = re.compile(r"audio|search-(preview|api)|^gpt-3\.5-turbo-instruct")


def provider_of(model: str) -> str:
    return "azure" if model.startswith("azure/") else "openai"


def name_of(model: str) -> str:
    """Return the model's name at its provider."""
    return model.removeprefix(f"{provider_of(model)}/").removeprefix("responses/")


def api_of(model: str, config: LLMConfig) -> Literal["responses", "chat"]:
    """Return `responses` or `chat`: see `LLMConfig.api`."""
    name, options = name_of(model), config.provider_options
    if config.api is not None:
        return config.api
    entry = entry_of(model)
    if "/responses/" in model or entry.get("mode") == "responses":
        return "responses"
    base = base_of(model, options)
    elsewhere = base is not None and not _OWN_HOSTS.search(urlsplit(base).hostname or "")
    dated = "api_version" in options  # versions of Azure's older interface mostly lack Responses
    endpoints = entry.get("supported_endpoints") or ["/v1/responses"]
    if elsewhere or dated or "/v1/responses" not in endpoints or _CHAT_MODELS.search(name):
        return "chat"
    return "chat" if CHAT_ONLY & options.keys() or (config.stop and not REASONING.match(name)) else "responses"


def takes_verbosity(model: str) -> bool:
    """Return whether the model has a setting for the length of its answers."""
    return model.startswith(("openai/", "azure/")) and bool(_VERBOSE.match(name_of(model)))


def base_of(model: str, options: Mapping[str, Any]) -> str | None:
    """Return the base URL from the options or the environment, or None for the package's default."""
    provider = provider_of(model)
    given = options.get("base_url") or options.get("api_base")
    base = given or next(filter(None, map(os.environ.get, _BASES[provider])), None)
    if base is None or provider == "openai" or urlsplit(base).path.strip("/"):
        return base
    return base.rstrip("/") + _AZURE_PATH
