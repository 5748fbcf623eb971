"""A model call never names a request head that is not stored, whoever dies or comes first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_request_heads import FIXED, MOODY, Recorder, check, run
from tests.support.context_talk import S

from helix import (
    Agent,
    LocalExecutor,
    MemoryStateStore,
    SQLiteStateStore,
)
from helix.ports.state_store import Key, Value
from helix.services.request_heads import read_head
from helix.services.segments import SegmentStreams
from helix.services.session_calls import session_calls
from helix.testing.clocks import ShiftedClock
from helix.testing.crash import Crash, CrashPoints
from helix.testing.invariants import check_session


@pytest.mark.parametrize(
    "point",
    [("transact:put_head:before", 0), ("transact:put_head:after", 0), ("transact:claim_step:after", 0)],
    ids=lambda point: str(point[0]),
)
@pytest.mark.parametrize("who", [FIXED, MOODY], ids=["fixed", "moody"])
async def test_a_crash_leaves_no_call_without_its_head(point: tuple[str, int], who: Agent[Any, Any]) -> None:
    store = MemoryStateStore()
    points = CrashPoints(point)
    dying = LocalExecutor(
        store=points.store(store),
        streams=points.streams(SegmentStreams(points.store(store))),
        model=Recorder("Hello.").adapter(),
    )
    with pytest.raises(Crash):
        await points.unless_crashed(finished(dying, who))
    await check_session(store, SegmentStreams(store), S)
    claimed = (await store.query("sessions", S, start="session", end="session$"))[0].value
    assert ("head" in claimed) == ("claim" in claimed) == point[0].startswith("transact:claim_step")
    later = ShiftedClock(3600)  # the dead worker's claims have expired
    async with LocalExecutor(store=store, model=Recorder("Hello.").adapter(), clock=later) as executor:
        await asyncio.wait_for(recovered(executor, who), 60)
        await check(store)
        calls = await session_calls(store, S)
    assert len({call.head for call in calls}) == 1
    assert [call.outcome for call in calls] == (["dead", "answered"] if "claim" in claimed else ["answered"])


async def finished(executor: LocalExecutor, who: Agent[Any, Any]) -> None:
    await (await executor.execute(who, "go", session_id=S)).result()


async def recovered(executor: LocalExecutor, who: Agent[Any, Any]) -> None:
    result = await (await executor.resume(who, S)).result()
    assert result.status == "completed", result.error


async def test_two_workers_that_find_no_head_store_it_once(tmp_path: Path) -> None:
    both = asyncio.Barrier(2)

    class Meeting(SQLiteStateStore):
        async def get(self, keys: Sequence[Key]) -> list[Value | None]:
            found = await super().get(keys)
            if keys[0].partition.startswith("head#"):
                await both.wait()
            return found

    async def one(session_id: str) -> None:
        place = Meeting(tmp_path / "helix.db")
        async with LocalExecutor(store=place, model=Recorder("Hello.").adapter()) as executor:
            await run(executor, FIXED, session_id)

    await asyncio.gather(one("a"), one("b"))
    store = SQLiteStateStore(tmp_path / "helix.db")
    (first,), (second,) = await session_calls(store, "a"), await session_calls(store, "b")
    assert first.head == second.head and await read_head(store, "a", first.head) is not None
    await store.close()
