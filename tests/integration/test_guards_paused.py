"""A worker pauses inside a guard until its claim has expired. It judges nothing more once another worker has its work."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support_guards import DONE, call, send
from tests.support_run import agent

from helix import Allow, Guard, LocalExecutor, MemoryStateStore, ScriptedModel
from helix.adapters.models.scripted import Entry
from helix.core.guards import GuardContext
from helix.core.verdicts import Verdict
from helix.testing.clocks import ShiftedClock
from helix.testing.invariants import check_session, read_tree

EXPIRED_S = 60.0
PLACES = ("input", "call", "result", "output")


class Pausing:
    """Two guards of one place. The first one keeps the first worker until `go` is set."""

    def __init__(self, place: str, **fields: Any) -> None:
        self.asked: Counter[str] = Counter()
        self.reached, self.go = asyncio.Event(), asyncio.Event()
        self.guards = [Guard(name=n, **{place: self._named(n)}, **fields) for n in ("slow", "next")]

    def _named(self, name: str) -> Any:
        async def function(value: Any, context: GuardContext) -> Allow:
            self.asked[name] += 1
            if name == "slow" and not self.reached.is_set():
                self.reached.set()
                await self.go.wait()
            return Allow()

        return function


def worker(store: MemoryStateStore, clock: ShiftedClock) -> LocalExecutor:
    script: list[Entry] = [{"tool_calls": [call("send", to="bob")]}, "Sent."]
    return LocalExecutor(store, model=ScriptedModel(script, by="position"), clock=clock)


async def verdicts(store: MemoryStateStore) -> list[Verdict]:
    (rows, *_) = await read_tree(store, "s")
    assert rows.session is not None
    history = rows.history(rows.session.lineage, rows.session.count)
    return [verdict for row in history for verdict in getattr(row, "verdicts", [])]


@pytest.mark.parametrize("place", PLACES)
async def test_a_worker_that_paused_judges_nothing_after_a_takeover(place: str) -> None:
    DONE.clear()
    pausing, store, clock = Pausing(place), MemoryStateStore(), ShiftedClock()
    who = agent(guards=pausing.guards, tools=[send])
    paused, other = worker(store, clock), worker(store, clock)
    handle = await paused.execute(who, "begin", session_id="s")
    await pausing.reached.wait()
    clock.ahead_s = EXPIRED_S
    result = await (await other.resume(who, "s")).result(timeout_s=20)
    assert result.status == "completed" and result.text == "Sent."
    stored = [verdict.guard for verdict in await verdicts(store)]
    assert pausing.asked["next"] == stored.count("next") > 0
    pausing.go.set()
    await handle.result(timeout_s=20)
    await paused.close()
    assert pausing.asked["next"] == stored.count("next"), "a stored verdict was asked for again"
    assert [verdict.guard for verdict in await verdicts(store)] == stored
    await check_session(store, other.streams, "s")


@pytest.mark.parametrize("place", PLACES)
async def test_a_worker_that_paused_goes_on_if_no_other_has_its_work(place: str) -> None:
    pausing, store, clock = Pausing(place), MemoryStateStore(), ShiftedClock()
    who = agent(guards=pausing.guards, tools=[send])
    handle = await worker(store, clock).execute(who, "begin", session_id="s")
    await pausing.reached.wait()
    clock.ahead_s = EXPIRED_S
    pausing.go.set()
    result = await handle.result(timeout_s=20)
    assert result.status == "completed" and result.text == "Sent."
    assert pausing.asked["next"] == [verdict.guard for verdict in await verdicts(store)].count("next")


class Report(BaseModel):
    text: str


async def test_a_worker_that_paused_checks_no_output_after_a_takeover() -> None:
    reached, go, store, clock = asyncio.Event(), asyncio.Event(), MemoryStateStore(), ShiftedClock()
    who, checked = agent(output_schema=Report), Counter[str]()

    async def slow(report: Report) -> None:
        if not reached.is_set():
            reached.set()
            await go.wait()

    async def following(report: Report) -> None:
        checked[report.text] += 1

    who.output_check(slow)
    who.output_check(following)
    script: list[Entry] = [{"tool_calls": [{"name": "__finish__", "arguments": {"text": "all"}}]}]
    paused, other = (LocalExecutor(store, model=ScriptedModel(script, by="position"), clock=clock) for _ in "ab")
    handle = await paused.execute(who, "begin", session_id="s")
    await reached.wait()
    clock.ahead_s = EXPIRED_S
    assert (await (await other.resume(who, "s")).result(timeout_s=20)).status == "completed"
    go.set()
    await handle.result(timeout_s=20)
    await paused.close()
    assert checked == {"all": 1}
