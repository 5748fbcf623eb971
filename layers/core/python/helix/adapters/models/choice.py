"""The choice of the package that calls a model: the provider's own if it is installed and supports the call, otherwise
litellm.

Law: nothing is imported for the decision. `LLMConfig.adapter` overrides the choice.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from helix.adapters.models.catalog import entry_of
from helix.adapters.models.file_forms import Interface
from helix.adapters.models.openai_api import api_of
from helix.adapters.models.pricing import Prices
from helix.adapters.models.providers import FAMILIES, provider_of
from helix.adapters.models.wire import Wire
from helix.core.config import LLMConfig
from helix.core.errors import DefinitionError

LITELLM = "litellm"
PACKAGES = {"bedrock": "boto3", "openai": "openai", "azure": "openai", "anthropic": "anthropic"}
"""The providers' own packages, by provider."""
_WIRES = {
    "boto3": ("bedrock", "BedrockWire", "bedrock"),
    "openai": ("openai", "OpenAIWire", "openai"),
    "anthropic": ("anthropic", "AnthropicWire", "anthropic"),
    LITELLM: ("litellm", "LiteLLMWire", "models"),
}
"""The wire of each package: the module in this folder, the class, and the extra that installs the package."""
_LITELLMS = frozenset(
    {
        *("custom_llm_provider", "drop_params", "additional_drop_params", "allowed_openai_params", "mock_response"),
        *("modify_params", "cache_control_injection_points", "web_search_options"),
    }
)
"""The provider options that litellm itself handles. Providers do not have them."""
_TRANSLATED: Mapping[str, frozenset[str]] = {
    "openai": frozenset(
        {"api_version", "azure_ad_token", "azure_ad_token_provider", "base_model", "client_id", "tenant_id"}
    ),
    "anthropic": frozenset({"reasoning_effort", "response_format", "parallel_tool_calls", "user", "n", "seed"}),
    "boto3": frozenset(
        {
            *(
                "reasoning_effort",
                "response_format",
                "parallel_tool_calls",
                "service_tier",
                "n",
                "seed",
                "user",
                "api_key",
            ),
            *("aws_role_name", "aws_session_name", "aws_web_identity_token", "aws_sts_endpoint", "aws_external_id"),
        }
    ),
}
"""The provider options in OpenAI's terms that litellm translates for other providers."""


def interface_of(model: str, config: LLMConfig, package: str) -> Interface:
    """Return the interface that `package` calls for `model`."""
    match package:
        case "boto3":
            return "converse"
        case "anthropic":
            return "messages"
        case _ if model.startswith(("openai/", "azure/")) or package == "openai":
            api = api_of(model, config)
            return "litellm" if package == LITELLM and api == "chat" else api
        case _:
            return "litellm"


def package_of(model: str, config: LLMConfig, has: Callable[[str], bool] | None = None) -> str:
    """Return `boto3`, `openai`, `anthropic` or `litellm`. Raises `DefinitionError` if the config requires a provider's
    own package that does not exist. `has` tells whether a package is available; the default checks whether it is
    installed here."""
    has = has or installed
    own = _native_package(model)
    match config.adapter:
        case "litellm":
            return LITELLM
        case "native":
            if own is None:
                problem = (
                    f"'native', but {model!r} has no adapter of its own: its name starts with none of {_prefixes()}"
                )
                raise DefinitionError("LLMConfig", "adapter", problem)
            return own
        case _:
            if own is None or (has(LITELLM) and not (has(own) and _supports(own, model, config))):
                return LITELLM
            return own


@cache
def installed(package: str) -> bool:
    """Return whether `package` can be imported. A folder that holds only its data does not count (`helix.infra.build`)."""
    found = importlib.util.find_spec(package)
    return found is not None and found.origin is not None


def extra_of(package: str) -> str:
    """Return the extra of `helix-agents` that installs the package."""
    return _WIRES[package][2]


def wire_of(package: str, prices: Prices) -> Wire:
    """Return the package's wire. Imports the package, which blocks. Raises `DefinitionError` if it is not installed."""
    module, name, _ = _WIRES[package]
    try:
        with _pause_collector():
            if package != "boto3":
                _import_httpx()
            made: Any = getattr(importlib.import_module(f"helix.adapters.models.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in (package, "botocore"):
            raise
        problem = f"the package {package} is not installed: pip install 'helix-agents[{extra_of(package)}]'"
        raise DefinitionError("LLMConfig", "model", problem) from error
    wire: Wire = made(prices)
    return wire


@contextlib.contextmanager
def _pause_collector() -> Iterator[None]:
    """Switch the garbage collector off during an import. An import creates thousands of objects, all of which stay.
    Garbage collection would take a tenth of the import's time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _import_httpx() -> None:
    """Import httpx without its command line, which imports rich and takes 40 ms. httpx works without the module."""
    if "httpx" not in sys.modules:
        sys.modules["httpx._main"] = None  # type: ignore[assignment]
        try:
            with contextlib.suppress(ModuleNotFoundError):  # the package reports the missing module
                importlib.import_module("httpx")
        finally:
            sys.modules.pop("httpx._main", None)


def _native_package(model: str) -> str | None:
    """Return the provider's own package. A name without a provider has one only if its family implies it."""
    if "/" not in model and not any(model.lower().startswith(start) for start in FAMILIES):
        return None
    return PACKAGES.get(provider_of(model))


def _supports(package: str, model: str, config: LLMConfig) -> bool:
    """Return whether the package's adapter supports this model and these options as well as litellm does."""
    if config.provider_options.keys() & (_LITELLMS | _TRANSLATED[package]):
        return False
    name = model.partition("/")[2]
    if package == "boto3":  # other routes than Converse: invoke/, agent/, <region>/, ...
        return "/" not in name.removeprefix("converse/") or name.removeprefix("converse/").startswith("arn:")
    if package == "openai":  # embeddings, images, speech
        return entry_of(model).get("mode", "chat") in ("chat", "responses")
    return True


def _prefixes() -> str:
    return ", ".join(f"{provider}/" for provider in PACKAGES)
