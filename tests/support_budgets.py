"""Helpers for the tests of budgets: answers with a cost, prices, and the rest of a budget."""

from __future__ import annotations

from typing import Any

from tests.support_run import QUICK, World, agent

from helix import LLMConfig, LocalExecutor
from helix.core.budget import BudgetDefinition
from helix.core.measures import Measures
from helix.core.usage import Usage
from helix.engine.engine import Worst
from helix.fleet.budgets import BudgetManager
from helix.ports.catalog import ModelInfo
from helix.testing.clocks import ShiftedClock

WORST = 100
"""The maximum usage of a call in these tests, in tokens and in micro-dollars."""


class Prices:
    """A catalog with one price for every model, in micro-dollars per token."""

    def __init__(
        self, input_micros: float | None = 1, output_micros: float | None = 2, longest: int | None = None
    ) -> None:
        self._input, self._output, self._longest = input_micros, output_micros, longest

    def info(self, model: str) -> ModelInfo:
        if model == "unheard-of" or self._input is None or self._output is None:
            return ModelInfo(model)
        dearer = 10 if model == "dear" else 1
        return ModelInfo(
            model,
            max_output_tokens=self._longest,
            input_usd=self._input * dearer / 1e6,
            output_usd=self._output * dearer / 1e6,
        )


class Counted:
    """`Metrics` that store the reported values."""

    def __init__(self) -> None:
        self.told: list[Measures] = []

    def record(self, measures: Measures) -> None:
        self.told.append(measures)

    def total(self, name: str) -> float:
        return sum(measures.values.get(name, 0) for measures in self.told)


def cost(tokens: int, micros: int | None = None, **more: Any) -> dict[str, Any]:
    """Return a script entry's usage: this many tokens, and as many micro-dollars unless stated otherwise."""
    return Usage(prompt_tokens=tokens, cost_micros=tokens if micros is None else micros, calls=1, **more).model_dump()


def says(text: str, tokens: int, micros: int | None = None, **more: Any) -> dict[str, Any]:
    return {"content": text, "usage": cost(tokens, micros, **more)}


def found(tokens: int) -> dict[str, Any]:
    """Return a sub-agent's last answer."""
    return {"output": {"text": "found"}, "usage": cost(tokens)}


def asks(tokens: int, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": list(calls), "usage": cost(tokens)}


def bounded_executor(world: World, script: Any, *, worst: int = WORST, **options: Any) -> LocalExecutor:
    """Return an executor whose calls use at most `worst`."""
    options.setdefault("clock", ShiftedClock())
    executor = world.executor(script, settings=options.pop("settings", QUICK), **options)
    executor.engine.worst_case = lambda request: Worst(worst, worst)
    return executor


def manager(executor: LocalExecutor) -> BudgetManager:
    return BudgetManager(executor.store, clock=executor.engine.clock)


def config(**fields: Any) -> LLMConfig:
    return LLMConfig(**{"model": "scripted", "max_retries": 0, **fields})


def worker(name: str = "worker", **fields: Any) -> Any:
    fields.setdefault("llm_config", config())
    return agent(name, **fields)


async def left(executor: LocalExecutor, definition: BudgetDefinition, ahead_s: float = 0) -> tuple[int, int]:
    """Return (limit, remaining) of the current window, or of one that is this much earlier or later."""
    (state,) = await executor.engine.budgets.get([definition.window(executor.engine.clock.now() + ahead_s)[0]])
    return (definition.limit, definition.limit) if state is None else (state.limit, state.remaining)
