"""Small rows are packed into the row `session`, as on DynamoDB: every call beneath is a place to die, moves among them."""

from __future__ import annotations

import pytest
from tests.contracts.test_packing import packed
from tests.integration.test_crash_sweep import S, Sweep, choose, fresh_log
from tests.support_crash import executor, lead, model

from helix import MemoryStateStore
from helix.adapters.aws import packing
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.services.segments import SegmentStreams
from helix.testing.crash import CrashPoints, Point, crash_everywhere

__all__ = ["fresh_log"]


@pytest.mark.slow
@pytest.mark.parametrize("room", [400, 1000])
async def test_a_session_with_packed_rows(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with tools, state and a sub-agent; what a crash left is settled, and read, through another store."""
    monkeypatch.setattr(packing, "ROOM", room)
    sweep = Sweep(lead, model())

    async def act(store: StateStore, _: StreamManager, points: CrashPoints) -> None:
        own = packed(store)
        workers = executor(own, points.streams(SegmentStreams(own)), sweep.scripted)
        await (await workers.execute(lead, "begin", session_id=S)).result()

    async def recover(store: StateStore, _: StreamManager, point: Point) -> None:
        own = packed(store)
        await sweep.recover(own, SegmentStreams(own), point)

    covered = await crash_everywhere(MemoryStateStore, act, recover, choose=choose)
    assert any(name.startswith("transact:unpack") for name, _ in covered)
    assert set(sweep.outcomes) == {"completed"} and all(found == sweep.states[0] for found in sweep.states)
