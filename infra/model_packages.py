"""The packages with which `call_model` asks the models of a stage's agents.

Law: nothing is imported to know them. An agent whose model depends on its state may ask any: it needs litellm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from helix.adapters.models.choice import LITELLM, package_of
from helix.core.agents import AnyAgent
from helix.core.config import LLMConfig
from helix.core.errors import DefinitionError
from helix.infra.config import ModelPackage, Settings, SettingsError
from helix.runtime.models import DEMO_NAMES, IMPORTED

_NAMES: dict[str, ModelPackage] = {
    "boto3": "bedrock",
    "openai": "openai",
    "anthropic": "anthropic",
    LITELLM: "litellm",
}


def with_model_packages(settings: Settings, agents: Iterable[AnyAgent]) -> Settings:
    """The settings with what the agents need in place of the default. Raises `SettingsError` for a model that the packages
    which the settings name cannot serve."""
    needed: dict[ModelPackage, str] = {}
    for who, model, package in _needs(settings, agents):
        needed.setdefault(package, f"the model {model!r} of {who}")
    given = settings.model_packages
    if given is None:
        return settings.model_copy(update={"model_packages": tuple(sorted(needed))})
    for package, why in needed.items():
        if package not in given and "litellm" not in given:
            named = ",".join(given)
            advice = f"add {package}, or leave model_packages out, which takes what the agents need"
            raise SettingsError(f"context key 'model_packages': {named!r} cannot serve {why}: {advice}")
    return settings


def _needs(settings: Settings, agents: Iterable[AnyAgent]) -> Iterator[tuple[str, str, ModelPackage]]:
    """Who asks, the model, and the package for it."""
    if settings.model in DEMO_NAMES:
        return
    if settings.model and not settings.model.startswith(IMPORTED):
        yield "the setting model", settings.model, _package(settings.model, LLMConfig(model=settings.model))
        return
    for agent in agents:
        who, config = f"agent {agent.name!r}", agent.llm_config
        if callable(config) and settings.model_packages is None:
            yield who, "that its state chooses", "litellm"
        elif isinstance(config, LLMConfig) and agent.function is None:
            for model in config.models:
                yield who, model, _package(model, config)


def _package(model: str, config: LLMConfig) -> ModelPackage:
    """As if all packages were installed."""
    try:
        return _NAMES[package_of(model, config, has=lambda package: True)]
    except DefinitionError as error:
        raise SettingsError(str(error)) from error
