"""Edits through the engine: a crash at each line, repeated deliveries, and places whose state is gone."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import BaseModel
from tests.support_crash import S, Sweep, executor, finish, fresh, lead, model
from tests.support_run import agent

from helix import LocalExecutor, MemoryStateStore, ScriptedModel
from helix.core.errors import AgentAlreadyRunningError, CheckpointNotFoundError
from helix.core.initial import AgentInput
from helix.engine.engine import Settings
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.runtime.edits import edit
from helix.testing.crash import Point

FIRST = AgentInput(message="begin", metadata={"id": "u1"})
OTHER = AgentInput(message="other", metadata={"id": "u1"})


class Counted(BaseModel):
    count: int = 0


class Edited(Sweep):
    """An edit. Whatever was stored when the worker died, delivering it once more ends in one conversation."""

    async def recover(self, store: StateStore, streams: StreamManager, point: Point) -> None:
        await super().recover(store, streams, point)
        workers = executor(store, streams, self.scripted)
        runs = len((await workers.sessions.list_runs(S)).runs)
        handle = await edit(workers, lead, S, OTHER, user_id=None, key="e1")
        await handle.result(timeout_s=20)
        said = [m.content for m in (await workers.sessions.get_messages(S)).messages if m.role == "user"]
        assert said[-1] == "other" and "begin" not in said[1:], (point, said)
        assert len((await workers.sessions.list_runs(S)).runs) <= runs + 1


async def test_an_edit_survives_a_crash_at_each_line() -> None:
    fresh()
    sweep = Edited(lead, model(lead=[finish("One.", "x")]))

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(lead, FIRST, session_id=S)).result()
        await (await edit(workers, lead, S, OTHER, user_id=None, key="e1")).result()

    assert len(await sweep.everywhere(act)) > 10


async def test_of_several_edits_at_once_one_runs() -> None:
    helper = agent("helper")
    async with LocalExecutor(MemoryStateStore(), model=ScriptedModel(["One.", "Two."])) as workers:
        await (await workers.execute(helper, FIRST, session_id="s")).result()
        others = [AgentInput(message=f"m{n}", metadata={"id": "u1"}) for n in range(5)]
        made = await asyncio.gather(
            *(edit(workers, helper, "s", one, user_id=None, key=one.message) for one in others), return_exceptions=True
        )
        assert sorted(isinstance(one, AgentAlreadyRunningError) for one in made) == [False, True, True, True, True]


async def test_a_place_whose_state_was_deleted_is_refused_and_nothing_changes() -> None:
    helper = agent("helper", state_schema=Counted)
    script = ["One.", "Two.", "Three.", "Never."]
    store = MemoryStateStore()
    async with LocalExecutor(store, model=ScriptedModel(script), settings=Settings(keep_checkpoints=1)) as workers:
        await (await workers.execute(helper, FIRST, session_id="s")).result()
        for n in range(2):
            given = AgentInput(message="more", metadata={"id": f"m{n}"}, state={"count": n + 7})
            await (await workers.execute(helper, given, session_id="s")).result()
        before = await workers.sessions.get("s")
        with pytest.raises(CheckpointNotFoundError, match="not stored any more"):
            await edit(workers, helper, "s", OTHER, user_id=None, key="e1")
        assert await workers.sessions.get("s") == before
