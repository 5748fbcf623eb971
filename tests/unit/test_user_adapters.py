"""Users' adapters need only the method `generate_step`."""

from __future__ import annotations

from typing import Any

from helix import Agent, LLMConfig, ScriptedModel
from helix.core.registry import AgentRegistry
from helix.core.steps import TextStepResult
from helix.ports.catalog import ModelCatalog
from helix.ports.model import LLMGenerateInput
from helix.runtime.agent_models import Agents
from helix.runtime.models import prepare_models
from helix.runtime.user_adapters import complete_adapter, is_adapter

CONFIG = LLMConfig(model="asked-for")
WHO = Agent(name="who", system_prompt="Talk.", llm_config=CONFIG)
REQUEST = LLMGenerateInput(messages=(), tools=(), config=CONFIG, agent_id="s", agent_type="who")


class Least:
    async def generate_step(self, request: LLMGenerateInput) -> Any:
        return TextStepResult(content=request.config.model)


class Whole(Least):
    repeats_failures = True

    def __init__(self) -> None:
        self.prepared: list[str] = []

    def configured(self, config: LLMConfig) -> LLMConfig:
        return config.model_copy(update={"model": "own"})

    def prepare(self, config: LLMConfig) -> None:
        self.prepared.append(config.model)

    def unsupported(self, request: LLMGenerateInput, catalog: ModelCatalog | None) -> str | None:
        return "no files"


async def test_an_adapter_with_one_method_has_the_defaults_of_the_others() -> None:
    adapter = complete_adapter(Least())
    adapter.prepare(CONFIG)
    assert adapter.repeats_failures is False and adapter.configured(CONFIG) is CONFIG
    assert adapter.unsupported(REQUEST, None) is None
    assert await adapter.generate_step(REQUEST) == TextStepResult(content="asked-for")


def test_an_adapter_keeps_its_own_members() -> None:
    whole = Whole()
    adapter = complete_adapter(whole)
    adapter.prepare(CONFIG)
    assert adapter.repeats_failures is True and adapter.configured(CONFIG).model == "own"
    assert adapter.unsupported(REQUEST, None) == "no files"
    assert whole.prepared == ["asked-for"]


def test_an_adapter_of_helix_stays_itself() -> None:
    model = ScriptedModel([])
    assert complete_adapter(model) is model


def test_a_function_of_the_agent_is_no_adapter() -> None:
    assert is_adapter(Least()) and is_adapter(ScriptedModel([])) and not is_adapter(lambda agent: Least())


def test_all_adapters_of_a_process_are_prepared() -> None:
    """Adapters that a function returns for an agent are prepared too. An adapter that cannot be prepared is left alone."""
    registry, whole = AgentRegistry(), Whole()
    registry.register(WHO)
    prepare_models(Agents(registry, lambda agent: whole))
    prepare_models(Agents(registry, Least()))
    assert whole.prepared == ["asked-for"]
