"""Checkpoints and sessions that expire, and the data that must stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.journal import Journal
from tests.support_crash import LONG, executor, model, plain, quiet, settle
from tests.support_resume import Log, writer
from tests.support_run import QUICK, World, agent, call, calls, chunks_of, play, result_of
from tests.support_run import history as read_history

from helix import LocalExecutor, MemoryStateStore, create_sub_agent_tool
from helix.core.errors import CheckpointNotFoundError, InvalidInputError, SessionNotFoundError
from helix.engine.engine import Settings
from helix.engine.runs.housekeeping import prune_checkpoints
from helix.ports.state_store import Check, StateStore
from helix.ports.streams import StreamManager
from helix.sessions.sweep import sweep
from helix.testing.clocks import ShiftedClock
from helix.testing.crash import CrashPoints, Point, crash_everywhere
from helix.testing.invariants import check_session

S = "ses_kept"
DAY = 86_400.0
WRITER = agent(tools=[writer()], state_schema=Log)
TURN: list[Any] = [calls(call("write", text="x")), "said"]


async def checkpoints(workers: LocalExecutor, session_id: str = S) -> list[Any]:
    return (await workers.sessions.list_checkpoints(session_id, limit=1000)).items


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [{"keep_checkpoints": 0}, {"session_ttl_s": 0}, {"session_ttl_s": -1.0}])
def test_settings_that_would_keep_nothing_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(bad))):
        Settings(**bad)


async def test_the_newest_and_the_named_stay(world: World) -> None:
    workers = world.executor(TURN * 3, settings=replace(QUICK, keep_checkpoints=2))
    await play(workers, WRITER, session_id=S)
    first = await checkpoints(workers)
    await workers.name_checkpoint(S, first[0].id, "before the others")
    await play(workers, WRITER, session_id=S)
    await play(workers, WRITER, session_id=S)
    found = await checkpoints(workers)
    assert [row.name for row in found if row.name] == ["before the others"] and first[0].id in {row.id for row in found}
    assert len(found) <= 5  # two, the named one, and the ones that hold their states
    point = await workers.sessions.get_checkpoint(S, first[0].id)
    assert point.state == {"lines": ["x"]}
    gone = ({row.id for row in first} - {row.id for row in found}).pop()
    for use in (
        lambda: workers.resume(WRITER, S, checkpoint_id=gone),
        lambda: workers.branch(S, gone),
        lambda: workers.clone_session(S, "ses_copy", from_checkpoint_id=gone),
        lambda: workers.sessions.get_checkpoint(S, gone),
        lambda: workers.name_checkpoint(S, gone, "too late"),
    ):
        with pytest.raises(CheckpointNotFoundError):
            await use()
    await workers.name_checkpoint(S, first[0].id, None)
    await play(world.executor(TURN, settings=replace(QUICK, keep_checkpoints=2)), WRITER, session_id=S)
    assert first[0].id not in {row.id for row in await checkpoints(workers)}


async def test_results_and_messages_outlive_their_checkpoints(world: World) -> None:
    workers = world.executor(
        [calls(call("write", text="x")), "one", "two", "three"], settings=replace(QUICK, keep_checkpoints=1)
    )
    handle, before, _ = await play(workers, WRITER, session_id=S)
    await play(workers, WRITER, session_id=S)
    await play(workers, WRITER, session_id=S)
    after = await result_of(handle)
    assert (after.text, after.steps) == (before.text, before.steps) == ("one", 2)
    assert len(await read_history(workers, S)) == 8
    assert (await workers.get_snapshot(S)).messages[-1].content == "three"
    copy = await workers.clone_session(S, "ses_copy")
    assert copy.custom_state == {"lines": ["x"]}
    with pytest.raises(CheckpointNotFoundError, match="keeps no checkpoint with 1 messages"):
        await workers.clone_session(S, "ses_early", from_message_index=2)


async def test_a_step_costs_no_more_writes(world: World) -> None:
    class Counting(MemoryStateStore):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        async def transact(self, name: str, operations: Any) -> None:
            if any(op.key.table == "sessions" and not isinstance(op, Check) for op in operations):
                # streams are flushed by time
                self.names.append(name)
            await super().transact(name, operations)

    found = []
    for keep in (None, 1):
        store = Counting()
        settings = replace(QUICK, keep_checkpoints=keep)
        workers = LocalExecutor(store, model=world.executor(TURN * 4).agents.model_of, settings=settings)
        for _ in range(3):
            await play(workers, WRITER, session_id=S)
        found.append(store.names)
    assert [name for name in found[1] if name != "prune_checkpoints"] == found[0]
    assert found[1].count("prune_checkpoints") <= 3  # one per run


async def test_a_rewind_that_races_with_the_deletion_is_refused(world: World) -> None:
    """Between the read of a checkpoint and the claim, retention deletes the checkpoint that the claim would refer to."""

    class Racing(MemoryStateStore):
        act: Callable[[], Any] | None = None

        async def transact(self, name: str, operations: Any) -> None:
            if name == "claim_from_checkpoint" and self.act is not None:
                act, self.act = self.act, None
                await act()
            await super().transact(name, operations)

    store = Racing()
    models = world.executor(TURN * 8).agents.model_of
    whole = LocalExecutor(store, model=models, settings=QUICK)
    for _ in range(2):
        await play(whole, WRITER, session_id=S)
    old = (await checkpoints(whole))[-1]
    small = LocalExecutor(store, model=models, settings=replace(QUICK, keep_checkpoints=1))

    async def prune() -> None:
        await prune_checkpoints(small.engine, S)

    store.act = prune
    with pytest.raises(CheckpointNotFoundError):
        await whole.resume(WRITER, S, checkpoint_id=old.id)
    assert old.id not in {row.id for row in await checkpoints(whole)}
    await check_session(store, whole.streams, S, at_rest=True, pruned=True)


async def test_a_crash_anywhere_leaves_a_session_that_goes_on() -> None:
    settings = Settings(stop_poll_s=0.02, keep_checkpoints=1, session_ttl_s=DAY)
    scripted = model(plain=[calls(call("look", topic="x")), "one", calls(call("look", topic="y")), "two", "three"])

    async def act(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        workers = executor(store, streams, scripted, settings=settings)
        for _ in range(2):
            await (await workers.execute(plain, "go", session_id=S)).result()
            await quiet(workers)

    async def recover(store: StateStore, streams: StreamManager, point: Point) -> None:
        journal = Journal(pruned=True)
        await journal.check(store, streams, S)
        workers = executor(store, streams, scripted, LONG, settings)
        if await workers.sessions.exists(S):
            await settle(workers, plain, S)
        await (await workers.execute(plain, "more", session_id=S)).result()
        await quiet(workers)
        await journal.check(store, streams, S, at_rest=True)
        assert len(await checkpoints(workers)) <= 3
        expired = executor(store, streams, scripted, LONG + 3 * DAY, settings)
        assert await expired.expire() == 1 and not await expired.sessions.exists(S)

    def choose(points: Any) -> list[Point]:
        return [point for point in points if "prune" in point[0] or "effects" in point[0] or "claim" in point[0]]

    assert await crash_everywhere(MemoryStateStore, act, recover, choose=choose)


# --- sessions ---------------------------------------------------------------------------------------------------------


def at(store: StateStore, days: float, script: Any = (), **settings: Any) -> LocalExecutor:
    from helix import ScriptedModel
    from helix.core.registry import AgentRegistry

    given = replace(QUICK, session_ttl_s=DAY, **settings)
    clock = ShiftedClock(days * DAY)
    return LocalExecutor(store, model=ScriptedModel(script), settings=given, clock=clock, registry=AgentRegistry())


def rows_of(store: MemoryStateStore) -> set[str]:
    """Return the keys of all rows except those of shared request heads."""
    keys = [key for key in store._rows if not key.partition.startswith("head#")]
    return {f"{key.table}/{key.partition}/{key.sort}" for key in keys}


async def test_a_session_that_nobody_uses_is_deleted_with_all_that_is_its_own() -> None:
    store = MemoryStateStore()
    helper = agent("helper", output_schema=Log)
    lead = agent("lead", tools=[create_sub_agent_tool(helper)])
    scripts = {
        "lead": [calls(call("subagent__helper", message="dig")), "done"],
        "helper": [calls(call("__finish__", lines=["dug"]))],
    }
    workers = at(store, 0, scripts)
    await play(workers, lead, session_id=S)
    assert len([row for row in rows_of(store) if row.endswith("/session")]) == 2
    assert await at(store, 0.9).expire() == 0 and await workers.sessions.exists(S)
    assert await at(store, 2).expire() == 1
    left = {row for row in rows_of(store) if not row.startswith("control/usage")}
    assert left == set()  # also no index, stream, sub-agent, or row of the expiry itself
    assert await at(store, 2).expire() == 0


async def test_what_is_used_stays() -> None:
    store = MemoryStateStore()
    await play(at(store, 0, ["one"]), WRITER, session_id=S)
    await play(at(store, 0.7, ["two"]), WRITER, session_id=S)
    assert await at(store, 1.5).expire() == 0 and await at(store, 1.5).sessions.exists(S)
    async with at(store, 3) as opened:  # opening the store deletes a few
        with pytest.raises(SessionNotFoundError):
            await opened.sessions.get(S)


async def test_a_copy_expires_too() -> None:
    store = MemoryStateStore()
    await play(at(store, 0, ["one"]), WRITER, session_id=S)
    await at(store, 1.9).clone_session(S, "ses_copy")
    assert await at(store, 2).expire() == 1 and await at(store, 2).sessions.exists("ses_copy")
    assert await at(store, 4).expire() == 1 and not await at(store, 4).sessions.exists("ses_copy")


async def test_paused_and_running_sessions_stay(world: World) -> None:
    store = MemoryStateStore()
    careful = agent("careful", tools=[writer(require_approval=True)], state_schema=Log)
    _, result, _ = await play(at(store, 0, TURN), careful, session_id=S)
    assert result.status == "paused"
    for days in (2, 10):
        assert await at(store, days).expire() == 0 and await at(store, days).sessions.exists(S)
    later = at(store, 11, ["never mind"])
    handle = await later.resume(careful, S, message="leave it")
    await chunks_of(handle)
    assert (await result_of(handle)).status == "completed"
    assert await at(store, 11.5).expire() == 0
    assert await at(store, 13).expire() == 1


async def test_the_sweep_of_a_deployment_deletes_them() -> None:
    store = MemoryStateStore()
    for number in range(20):
        await play(at(store, 0, ["one"]), WRITER, session_id=f"ses_{number}")
    gone = 0
    for minute in range(8):  # each minute a part of the index
        sweeper = at(store, 2 + minute / 1440)
        done = await sweep(sweeper.engine, sweeper._delivery())
        gone += done["expired"]
    assert gone == 20 and not [row for row in rows_of(store) if row.startswith("sessions/")]


async def test_a_deletion_that_stopped_halfway_is_completed() -> None:
    async def act(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        await play(at(store, 0, TURN), WRITER, session_id=S)
        await at(store, 2).expire()

    async def recover(store: StateStore, streams: StreamManager, point: Point) -> None:
        later = at(store, 2)
        await later.expire()
        assert not await later.sessions.exists(S)
        assert not [row for row in rows_of(store) if not row.startswith("control/usage")]  # type: ignore[arg-type]

    def choose(points: Any) -> list[Point]:
        return [point for point in points if "delete" in point[0] or "expire" in point[0]]

    assert await crash_everywhere(MemoryStateStore, act, recover, choose=choose)
