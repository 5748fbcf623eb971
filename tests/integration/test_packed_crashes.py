"""Small rows are packed into the row `session`, as on DynamoDB. The process dies at every call to the underlying store,
including moves of rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.contracts.test_packing import packed
from tests.integration.test_crash_sweep import fresh_log
from tests.support_crash import S, Sweep, choose, executor, lead, model, plain

from helix import LocalExecutor, MemoryStateStore, ScriptedModel
from helix.adapters.aws import packing
from helix.core.errors import CallerError
from helix.ports.state_store import Operation, StateStore
from helix.ports.streams import StreamManager
from helix.services.segments import SegmentStreams
from helix.testing.crash import CrashPoints, Point, crash_everywhere

__all__ = ["fresh_log"]


@pytest.mark.slow
@pytest.mark.parametrize("room", [400, 1000])
async def test_a_session_with_packed_rows(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run uses tools, state and a sub-agent. Another store settles and reads what the crash left."""
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


async def test_a_refused_claim_leaves_no_entry_for_a_session_of_another() -> None:
    """An entry names the session's owner for the case that its row cannot be read."""
    memory = MemoryStateStore()

    class Raced(MemoryStateStore):
        async def transact(self, name: str, operations: Sequence[Operation]) -> None:
            raced, races[:] = list(races), []
            for race in raced:
                await race()
            await memory.transact(name, operations)

        get, query = memory.get, memory.query

    def local(store: StateStore) -> LocalExecutor:
        return LocalExecutor(packed(store), model=ScriptedModel(["Hello."], repeat=True))

    async def first() -> None:
        await (await local(memory).execute(plain, "begin", session_id=S, user_id="ada")).result()

    races = [first]
    with pytest.raises(CallerError):
        await local(Raced()).execute(plain, "begin", session_id=S, user_id="bob")
    listed = [row.key.sort for user in ("ada", "bob") for row in await memory.query("sessions", f"index#{user}")]
    assert listed == [S]
