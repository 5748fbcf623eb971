"""Which of OpenAI's two interfaces a model is asked through, and where. Nothing is imported to decide it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from helix.adapters.models.catalog import entry_of
from helix.core.config import LLMConfig

CHAT_ONLY = frozenset(
    {
        *("audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "modalities", "n"),
        *("prediction", "presence_penalty", "seed", "stop", "web_search_options"),
    }
)
"""Provider options that the Responses API does not have."""
_BASES = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "azure": ("AZURE_API_BASE", "AZURE_OPENAI_ENDPOINT"),
}
_OWN_HOSTS = re.compile(
    r"(^|\.)(api\.openai\.com|openai\.azure\.com|services\.ai\.azure\.com|cognitiveservices\.azure\.com)$"
)
_AZURE_PATH = "/openai/v1"
REASONING = re.compile(r"^(o\d|gpt-([5-9]|\d\d)(?!.*-chat))")
"""Models that reason: they refuse `stop` and, while they reason, `temperature`."""
_VERBOSE = re.compile(r"^gpt-([5-9]|\d\d)")
_CHAT_MODELS = re.compile(r"audio|search-(preview|api)|^gpt-3\.5-turbo-instruct")


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
    dated = "api_version" in options  # of Azure's older interface, most of whose versions have no Responses
    endpoints = entry.get("supported_endpoints") or ["/v1/responses"]
    if elsewhere or dated or "/v1/responses" not in endpoints or _CHAT_MODELS.search(name):
        return "chat"
    return "chat" if CHAT_ONLY & options.keys() or (config.stop and not REASONING.match(name)) else "responses"


def takes_verbosity(model: str) -> bool:
    """Whether the model has a setting for how long its answers are."""
    return model.startswith(("openai/", "azure/")) and bool(_VERBOSE.match(name_of(model)))


def base_of(model: str, options: Mapping[str, Any]) -> str | None:
    """The address that the options or the environment name; None for the package's own."""
    provider = provider_of(model)
    given = options.get("base_url") or options.get("api_base")
    base = given or next(filter(None, map(os.environ.get, _BASES[provider])), None)
    if base is None or provider == "openai" or urlsplit(base).path.strip("/"):
        return base
    return base.rstrip("/") + _AZURE_PATH
