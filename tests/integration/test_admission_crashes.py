"""The process dies at every store call, stream call and start of an admission, and one sweep repairs what it left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.contracts.slots_races import at_rest, runs
from tests.support.delivery_stage import Held, Stage, event_of
from tests.support_run import agent

from helix import MemoryStateStore, ScriptedModel
from helix.core.errors import QueueFullError
from helix.core.row_keys import make_run_id, run_sort
from helix.engine.history import row_key, session_key
from helix.engine.runs.admission import part_of
from helix.engine.runs.intake import set_limit
from helix.ports.launcher import ExecutionState, Part, execution_name
from helix.ports.state_store import Delete, StateStore
from helix.ports.streams import StreamManager
from helix.services.slot_rows import Candidate
from helix.testing.crash import CrashPoints, Point, crash_everywhere
from helix.testing.invariants import check_session

WHO = agent("agent", resources={"max": 2})
LATER_S = 1000.0


class Platform(Held):
    """A platform on which started executions outlive their starter. The starter may die before or after the call."""

    def __init__(self, states: dict[str, ExecutionState], points: CrashPoints | None) -> None:
        super().__init__()
        self.states, self._points = states, points

    async def start(self, part: Part) -> None:
        if self._points is None:
            await super().start(part)
        else:
            await self._points.call("start", lambda: super(Platform, self).start(part))


class RunReport:
    """The report of a run: `act` with a crash, then `recover` from what it left, on the same platform."""

    def __init__(self, script: Callable[[Stage], Awaitable[None]], **queue: Any) -> None:
        self._script, self._queue = script, queue
        self._states: dict[str, ExecutionState] = {}

    def _stage(self, store: StateStore, streams: StreamManager, points: CrashPoints | None) -> Stage:
        model = ScriptedModel(["Done."], repeat=True)
        stage = Stage(model, WHO, store=store, streams=streams, queue=self._queue)
        stage.engine.launcher = stage.held = Platform(self._states, points)
        return stage

    async def act(self, store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        self._states.clear()
        await self._script(self._stage(store, streams, points))

    async def recover(self, store: StateStore, streams: StreamManager, point: Point) -> None:
        on = self._stage(store, streams, None)
        on.clock.ahead_s = LATER_S
        await on.deliver("sweep")
        await self._all_is_right(on)
        for _ in range(10):
            at_work = await on.slots.holders("agent")
            if not at_work:
                break
            for run in at_work:
                await on.end(event_of(await self._at_work(on, run)))
                await self._all_is_right(on)
        if await on.slots.queue("agent"):
            await set_limit(on.engine, "agent", 5)  # the process died while the limit was 0
            await self.recover(store, streams, point)
            return
        assert await at_rest(on.slots)
        on.clock.ahead_s += 60
        await on.deliver("sweep")
        assert await on.deliver("sweep") == {}, "nothing is left to do"
        for session_id in [f"s{n}" for n in range(5)]:
            if await on.executor.sessions.exists(session_id):
                await check_session(store, streams, session_id, at_rest=True)

    async def _at_work(self, on: Stage, run: Candidate) -> Part:
        return part_of(on.engine, WHO, await on.engine.history.run(run.session_id, run.run_id))

    async def _all_is_right(self, on: Stage) -> None:
        """Check that no slot is free while a ticket waits, and that the runs with a slot are exactly the runs at work."""
        counter = (await on.slots.counters()).get("agent")
        if counter is None:
            return
        held, line = await runs(on.slots, "agent")
        assert counter.bound is not None and (not line or len(held) >= counter.bound)
        for run in await on.slots.holders("agent"):
            execution = execution_name(await self._at_work(on, run))
            assert self._states.get(execution) == "running", f"{run.run_id} has a slot and no execution"
        for ticket in await on.slots.queue("agent"):
            assert ticket.candidate.run_id not in self._states, "it waits, and was started"


async def come(on: Stage, n: int) -> None:
    await on.executor.execute(WHO, "go", session_id=f"s{n}", run_id=make_run_id(1, f"r{n}"))


def place(n: int) -> dict[str, Any]:
    return event_of(Part("agent", f"s{n}", make_run_id(1, f"r{n}"), 1, 1))


async def coming_and_going(on: Stage) -> None:
    """Start four runs on two slots. Two of them end, and the others are admitted."""
    for n in range(4):
        await come(on, n)
    for n in range(2):
        await on.end(place(n))


async def stopped_in_line(on: Stage) -> None:
    """Interrupt one of three waiting runs, and abort another."""
    for n in range(5):
        await come(on, n)
    await on.executor.interrupt("s2", "enough")
    await on.executor.abort(WHO, "s3", "enough")
    await on.end(place(0))


async def stopped_intake(on: Stage) -> None:
    """Lower the limit to 0, and raise it again."""
    await on.slots.set_limit("agent", 0)
    for n in range(3):
        await come(on, n)
    await set_limit(on.engine, "agent", 2)
    await on.end(place(0))


async def no_room(on: Stage) -> None:
    """Fill the queue, and retry a run that was refused after its claim."""
    for n in range(4):
        try:
            await come(on, n)
        except QueueFullError:
            await on.end(place(0))
            await come(on, n)


async def waited_too_long(on: Stage) -> None:
    for n in range(3):
        await come(on, n)
    on.clock.ahead_s = 61
    await on.deliver("sweep")
    await on.end(place(0))


PATIENT = {"queue_timeout_s": 10**9}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("script", "queue", "writes"),
    [
        (coming_and_going, PATIENT, ["take_slot", "take_ticket", "release_slot", "grant_slot"]),
        (coming_and_going, {**PATIENT, "account_limit": 2}, ["make_counter", "release_slot", "grant_slot"]),
        (stopped_in_line, PATIENT, ["drop_ticket", "end_interrupted", "release_slot"]),
        (stopped_intake, PATIENT, ["set_limit", "take_ticket", "grant_slot"]),
        (no_room, {**PATIENT, "max_queue": 1}, ["take_ticket", "release_slot", "grant_slot"]),
        (waited_too_long, {"queue_timeout_s": 60}, ["take_ticket", "drop_ticket", "end_failed"]),
    ],
    ids=["coming-and-going", "one-limit-for-all", "stopped-in-line", "stopped-intake", "no-room", "waited-too-long"],
)
async def test_one_sweep_puts_right_what_a_crash_left(script: Any, queue: dict[str, Any], writes: list[str]) -> None:
    story = RunReport(script, **queue)
    covered = await crash_everywhere(MemoryStateStore, story.act, story.recover)
    names = {name for name, _ in covered}
    wanted = [f"transact:{write}" for write in writes] + ([] if script is waited_too_long else ["start"])
    assert {f"{call}:{when}" for call in wanted for when in ("before", "after")} <= names


async def test_a_ticket_of_a_session_that_is_gone_is_taken_out_of_the_line() -> None:
    who = agent("agent", resources={"max": 1})
    stage = Stage(ScriptedModel([]), who)
    handles = [await stage.executor.execute(who, "go") for _ in range(2)]
    places = [session_key(handles[1].session_id), row_key(handles[1].session_id, run_sort(handles[1].run_id))]
    await stage.store.transact("gone", [Delete(place) for place in places])
    stage.clock.ahead_s = LATER_S
    assert (await stage.deliver("sweep"))["released"] == 1
    assert await stage.slots.queue("agent") == []
    assert [run.run_id for run in await stage.slots.holders("agent")] == [handles[0].run_id]
