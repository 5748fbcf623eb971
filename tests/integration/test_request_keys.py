"""Request keys: a repeat finds the run that the first request started, whatever happened since, for the documented time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support_gateway import ADA, Desk, desk_of, started
from tests.support_run import Gate, World, a_tool, agent, call, calls, gated, result_of

from helix import InvalidInputError, LocalExecutor, MemoryStateStore, ScriptedModel, SessionNotFoundError
from helix.core.errors import StoreError
from helix.ports.state_store import Operation
from helix.runtime.executor import Executor
from helix.services.request_keys import HOLDS_S, key_partition

MANY = 25


async def runs_of(executor: Executor, session_id: str) -> int:
    return len((await executor.sessions.list_runs(session_id, limit=100)).runs)


def test_a_key_holds_for_a_day() -> None:
    assert HOLDS_S >= 24 * 3600


async def test_a_key_of_a_client_holds_behind_many_runs() -> None:
    desk = desk_of(ScriptedModel(["Hello."], repeat=True))
    async with desk.executor:
        await desk.connect("ada", ADA)
        first = await started(desk, key="k")
        session_id = first["session_id"]
        for _ in range(MANY):
            await started(desk, session_id=session_id)
        await desk.connect("ada2", ADA)
        for connection in ("ada", "ada2"):
            again = await desk.result(connection, "run", agent="helper", message="hi", key="k")
            assert (again["session_id"], again["run_id"], again["turn"]) == (session_id, first["run_id"], 1)
        assert await runs_of(desk.executor, session_id) == MANY + 1


async def test_a_key_of_a_resume_holds_behind_many_runs() -> None:
    gate = Gate()
    desk = desk_of([gated(gate, "never"), *(["Hello."] * (MANY + 2))])
    async with desk.executor:
        await desk.connect("ada", ADA)
        place = await desk.result("ada", "run", agent="helper", message="hi")
        session_id = place["session_id"]
        await gate.reached()
        await desk.result("ada", "interrupt", session_id=session_id)
        await desk.ended(session_id)
        resumed = await desk.result("ada", "resume", session_id=session_id, key="r")
        await desk.ended(session_id)
        for _ in range(MANY):
            await started(desk, session_id=session_id)
        again = await desk.result("ada", "resume", session_id=session_id, key="r")
        assert again["run_id"] == resumed["run_id"]
        assert await runs_of(desk.executor, session_id) == MANY + 2


async def test_a_refused_request_leaves_its_key_free() -> None:
    """A request that was refused because the session was busy starts later, under the same key."""
    gate = Gate()
    desk = desk_of([gated(gate, "First."), "Second."])
    async with desk.executor:
        await desk.connect("ada", ADA)
        place = await desk.result("ada", "run", agent="helper", message="hi")
        session_id = place["session_id"]
        await gate.reached()
        error = await desk.error("ada", "run", agent="helper", message="more", session_id=session_id, key="k")
        assert error["code"] == "agent_already_running"
        gate.open()
        await desk.ended(session_id)
        later = await started(desk, session_id=session_id, key="k")
        assert later["turn"] == 2 and later["run_id"] != place["run_id"]


async def test_the_key_of_a_deleted_session_starts_nothing(desk: Desk) -> None:
    place = await started(desk, key="k")
    await desk.result("ada", "delete", session_id=place["session_id"])
    error = await desk.error("ada", "run", agent="helper", message="hi", key="k")
    assert error["code"] == "session_not_found"
    assert (await desk.result("ada", "list_sessions"))["sessions"] == []


@pytest.mark.parametrize("session_id", [None, "ses_here"])
async def test_the_same_key_in_two_processes_is_one_run(world: World, session_id: str | None) -> None:
    """The executor treats the key the same way: one run and one handle, for any number of concurrent callers."""
    executors = [world.executor(ScriptedModel(["Hello."], repeat=True)) for _ in range(2)]
    handles = await asyncio.gather(
        *(one.execute(agent(), "hi", session_id=session_id, key="order-7") for one in executors for _ in range(3))
    )
    assert len({(handle.session_id, handle.run_id) for handle in handles}) == 1
    assert (await result_of(handles[0])).text == "Hello."
    late = await executors[1].execute(agent(), "hi", session_id=session_id, key="order-7")
    assert late.run_id == handles[0].run_id
    assert await runs_of(executors[0], late.session_id) == 1


@pytest.mark.parametrize("key", ["", "x" * 129, "two words", "ä"])
async def test_a_key_that_is_none_is_refused(quick_world: World, key: str) -> None:
    with pytest.raises(InvalidInputError, match="key"):
        await quick_world.executor().execute(agent(), "hi", key=key)


class _LosesTheAnswer(MemoryStateStore):
    """A store that commits the claim without the process learning it."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0

    async def transact(self, name: str, operations: Any) -> None:
        done: list[Operation] = list(operations)
        await super().transact(name, done)
        if name == "claim_execute" and not self.lost:
            self.lost += 1
            raise StoreError("the answer was lost")


async def test_a_claim_whose_answer_was_lost_keeps_its_key() -> None:
    executor = LocalExecutor(_LosesTheAnswer(), model=ScriptedModel(["Hello."], repeat=True))
    async with executor:
        first = await executor.execute(agent(), "hi", key="k")
        again = await executor.execute(agent(), "hi", key="k")
        assert (first.session_id, first.run_id) == (again.session_id, again.run_id)
        assert (await result_of(again)).status == "completed"


async def test_a_key_is_a_row_that_says_until_when(quick_world: World) -> None:
    executor = quick_world.executor(["Hello."])
    handle = await executor.execute(agent(), "hi", key="k")
    (row,) = await executor.store.query("streams", key_partition("k"))
    run = await executor.sessions.get_run(handle.session_id, handle.run_id)
    assert row.value["ttl"] >= run.started_at + HOLDS_S
    await handle.result()


class _LetsAnotherFirst(MemoryStateStore):
    """A store that serves another request between the check of the key and the claim."""

    other: Callable[[], Awaitable[object]] | None = None

    async def transact(self, name: str, operations: Any) -> None:
        if name.startswith("claim_") and self.other is not None:
            other, self.other = self.other, None
            await other()
        await super().transact(name, operations)


@pytest.mark.parametrize("verb", ["resume", "retry"])
async def test_a_key_that_another_user_took_at_the_same_moment_shows_nothing(verb: str) -> None:
    store = _LetsAnotherFirst()
    who = agent(max_steps=1, tools=[a_tool("look", lambda given, ctx: "seen")])
    async with LocalExecutor(store, model=ScriptedModel([calls(call("look"))], repeat=True)) as executor:
        for user in ("ada", "bob"):
            result = await (await executor.execute(who, "hi", session_id=user, user_id=user)).result()
            assert result.status == "failed"
        places = {user: (await executor.sessions.get(user)).checkpoint_id for user in ("ada", "bob")}

        async def again(user: str) -> str:
            if verb == "retry":
                return (await executor.retry(who, user, user_id=user, key="k")).session_id
            place = places[user]
            return (await executor.resume(who, user, checkpoint_id=place, user_id=user, key="k")).session_id

        store.other = lambda: again("ada")
        with pytest.raises(SessionNotFoundError):
            await again("bob")
