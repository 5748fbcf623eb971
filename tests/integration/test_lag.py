"""An event loop that is late says so, and why."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from helix import Agent, LLMConfig, LocalExecutor, MemoryStateStore, ScriptedModel, tool
from helix.core.measures import Measures
from helix.runtime import lag


class Recorded:
    def __init__(self) -> None:
        self.lags: list[float] = []

    def record(self, measures: Measures) -> None:
        self.lags += [value for name, value in measures.values.items() if name == "LoopLag"]


@tool
async def blocks(seconds: float) -> str:
    """Compute without awaiting anything."""
    time.sleep(seconds)  # noqa: ASYNC251
    await asyncio.sleep(0.1)
    return "computed"


AGENT = Agent(name="busy", system_prompt="Compute.", tools=[blocks], llm_config=LLMConfig(model="scripted"))


@pytest.fixture(autouse=True)
def sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "LOOK_S", 0.05)
    monkeypatch.setattr(lag, "LATE_S", 0.2)


async def run(metrics: Any, seconds: float) -> None:
    call = {"tool_calls": [{"name": "blocks", "arguments": {"seconds": seconds}}]}
    async with LocalExecutor(MemoryStateStore(), model=ScriptedModel([call, "Done."]), metrics=metrics) as executor:
        assert (await (await executor.execute(AGENT, "Go.")).result()).status == "completed"
        await asyncio.sleep(0.1)


async def test_it_is_recorded_and_the_warning_names_the_cause(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Recorded()
    with caplog.at_level(logging.WARNING, "helix"):
        await run(metrics, 0.5)
    assert len(metrics.lags) == 1 and 200 <= metrics.lags[0] <= 5_000
    (said,) = [record.getMessage() for record in caplog.records if "event loop" in record.getMessage()]
    assert "Make a tool that computes, or that waits without await, a plain function" in said


async def test_many_runs_are_a_cause_too(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "FEW", 0)
    with caplog.at_level(logging.WARNING, "helix"):
        await run(Recorded(), 0.5)
    assert "1 runs are at work in this process. Lower max_runs, or add processes" in caplog.text


async def test_a_loop_that_keeps_up_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Recorded()
    with caplog.at_level(logging.WARNING, "helix"):
        await run(metrics, 0.0)
    assert not metrics.lags and "event loop" not in caplog.text
