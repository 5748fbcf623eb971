"""The packages that `call_model` uses to call the models of a stage's agents.

Law: choosing the packages does not import them. An agent whose model depends on its state may call any model, so it needs
litellm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from helix.adapters.models.choice import LITELLM, package_of
from helix.core.agents import AnyAgent
from helix.core.config import LLMConfig
from helix.core.errors import DefinitionError
from helix.core.guards import is_judge
from helix.core.verdicts import PLACES
from helix.infra.config import ModelPackage, Settings, SettingsError
from helix.runtime.models import DEMO_NAMES, IMPORTED

_NAMES: dict[str, ModelPackage] = {
    "boto3": "bedrock",
    "openai": "openai",
    "anthropic": "anthropic",
    LITELLM: "litellm",
}


def with_model_packages(settings: Settings, agents: Iterable[AnyAgent]) -> Settings:
    """Return the settings, with the default replaced by the packages that the agents need. Raises `SettingsError` if the
    settings name packages that cannot serve one of the models."""
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
    """Yield the caller, the model and the package for it."""
    if settings.model in DEMO_NAMES:
        return
    if settings.model and not settings.model.startswith(IMPORTED):
        yield "the setting model", settings.model, _package(settings.model, LLMConfig(model=settings.model))
        return
    for agent in with_judges(agents):
        who, config = f"agent {agent.name!r}", agent.llm_config
        if callable(config) and settings.model_packages is None:
            yield who, "that its state chooses", "litellm"
        elif isinstance(config, LLMConfig) and agent.function is None:
            for model in config.models:
                yield who, model, _package(model, config)
        for model in agent.context.models:
            yield who, model, _package(model, LLMConfig(model=model))


def with_judges(agents: Iterable[AnyAgent]) -> Iterator[AnyAgent]:
    """Yield each agent, and the agents that judge for it."""
    for agent in agents:
        yield agent
        yield from (judge for guard in agent.guards for place in PLACES if is_judge(judge := getattr(guard, place)))


def _package(model: str, config: LLMConfig) -> ModelPackage:
    """Return the package that calls the model if all packages are installed. Raises `SettingsError`."""
    try:
        return _NAMES[package_of(model, config, has=lambda package: True)]
    except DefinitionError as error:
        raise SettingsError(str(error)) from error
