"""A late event loop logs the delay and its cause. With many runs at work, garbage is collected less often."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from helix import Agent, LLMConfig, LocalExecutor, MemoryStateStore, ScriptedModel, tool
from helix.core.measures import Measures
from helix.runtime import load


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
    monkeypatch.setattr(load, "LOOK_S", 0.05)
    monkeypatch.setattr(load, "LATE_S", 0.2)


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
    monkeypatch.setattr(load, "FEW", 0)
    with caplog.at_level(logging.WARNING, "helix"):
        await run(Recorded(), 0.5)
    assert "1 runs are at work in this process. Lower max_runs, or add processes" in caplog.text


async def test_a_loop_that_keeps_up_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Recorded()
    with caplog.at_level(logging.WARNING, "helix"):
        await run(metrics, 0.0)
    assert not metrics.lags and "event loop" not in caplog.text


@pytest.fixture
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


@tool
async def naps(seconds: float) -> tuple[int, int, int]:
    """Sleep, and say how often garbage is collected."""
    await asyncio.sleep(seconds)
    return gc.get_threshold()


async def seen_while_at_work(thresholds: tuple[int, int, int]) -> list[int]:
    gc.set_threshold(*thresholds)
    call = {"tool_calls": [{"name": "naps", "arguments": {"seconds": 0.3}}]}
    napper = Agent(name="napper", system_prompt="Sleep.", tools=[naps], llm_config=LLMConfig(model="scripted"))
    async with LocalExecutor(MemoryStateStore(), model=ScriptedModel([call, "Done."])) as executor:
        handle = await executor.execute(napper, "Go.")
        await handle.result()
        (said,) = [m for m in (await executor.sessions.get_messages(handle.session_id)).messages if m.role == "tool"]
    assert gc.get_threshold() == thresholds, "as before"
    return list(json.loads(said.content))


async def test_garbage_is_collected_less_often_while_many_runs_are_at_work(
    thresholds: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await seen_while_at_work((700, 10, 10)) == [700, 10, 10], "few runs"
    monkeypatch.setattr(load, "FEW", 0)
    assert await seen_while_at_work((700, 10, 10)) == list(load.COLLECTED)
    assert await seen_while_at_work((50_000, 5, 5)) == [50_000, 5, 5], "the thresholds that the process has set itself"
