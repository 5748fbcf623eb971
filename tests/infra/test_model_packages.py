"""The packages of a stage's `call_model` follow from the models that its agents name."""

from __future__ import annotations

from typing import Any

import pytest

from helix import Agent, LLMConfig, Route
from helix.core.context_policy import ClearResults, Context, Summarise
from helix.infra.config import SettingsError, read_settings
from helix.infra.model_packages import with_model_packages
from helix.infra.verbs import memory_of
from helix.runtime.models import models_of

GPT, CLAUDE = "openai/gpt-5.6", "anthropic/claude-sonnet-4-5"
NOVA, GEMINI = "bedrock/us.amazon.nova-pro-v1:0", "gemini/gemini-2.5-flash"


def agent(**config: Any) -> Agent:
    return Agent(name="desk", system_prompt="Help.", llm_config=LLMConfig(**config))


@pytest.mark.parametrize(
    ("config", "packages"),
    [
        ({"model": GPT}, ("openai",)),
        ({"model": "azure/prod"}, ("openai",)),
        ({"model": GPT, "fallbacks": [CLAUDE, NOVA]}, ("anthropic", "bedrock", "openai")),
        ({"model": Route(models=[GPT, NOVA])}, ("bedrock", "openai")),
        ({"model": GEMINI, "fallbacks": [GPT]}, ("litellm", "openai")),
        ({"model": GPT, "adapter": "litellm"}, ("litellm",)),
        ({"model": "bedrock/invoke/anthropic.claude-3-haiku-20240307-v1:0"}, ("litellm",)),
        ({"model": CLAUDE, "provider_options": {"reasoning_effort": "low"}}, ("litellm",)),
    ],
)
def test_what_an_agent_needs(config: dict[str, Any], packages: tuple[str, ...]) -> None:
    assert with_model_packages(read_settings({}), [agent(**config)]).calling == packages


def test_the_writer_of_summaries_needs_its_package() -> None:
    for context, packages in (
        (Context(summariser=NOVA), ("bedrock", "openai")),
        (Context(summariser="same"), ("openai",)),
        (Context(policies=[ClearResults(), Summarise(model=CLAUDE)]), ("anthropic", "openai")),
    ):
        desk = Agent(name="desk", system_prompt="Help.", model=GPT, context=context)
        assert with_model_packages(read_settings({}), [desk]).calling == packages
        assert set(models_of(desk)) == {GPT, *context.models}


def test_a_model_that_the_state_chooses_may_be_any() -> None:
    chooses = Agent(name="desk", system_prompt="Help.", llm_config=lambda state: LLMConfig(model=GPT))
    assert with_model_packages(read_settings({}), [chooses]).calling == ("litellm",)


@pytest.mark.parametrize(
    ("model", "packages"),
    [("demo", ()), (CLAUDE, ("anthropic",)), ("import:staff:model", ("openai",)), ("", ("openai",))],
)
def test_one_model_for_all(model: str, packages: tuple[str, ...]) -> None:
    assert with_model_packages(read_settings({"model": model}), [agent(model=GPT)]).calling == packages


def test_packages_that_are_named_serve_all_models_or_are_refused() -> None:
    given = read_settings({"model_packages": "bedrock,anthropic"})
    assert with_model_packages(given, [agent(model=NOVA, fallbacks=[CLAUDE])]) == given
    with pytest.raises(SettingsError, match=f"cannot serve the model '{GPT}' of agent 'desk': add openai"):
        with_model_packages(given, [agent(model=NOVA, fallbacks=[GPT])])
    litellm = read_settings({"model_packages": "litellm"})
    assert with_model_packages(litellm, [agent(model=NOVA), agent(model=GPT)]) == litellm


def test_a_native_adapter_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SettingsError, match="no adapter of its own"):
        with_model_packages(read_settings({}), [agent(model=GEMINI, adapter="native")])


def test_litellm_wants_more_memory_to_start_in_time() -> None:
    sizes = [memory_of("call_model", read_settings({"model_packages": name})) for name in ("litellm", "openai,bedrock")]
    assert sizes == [1024, 512]
