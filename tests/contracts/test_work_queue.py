"""The work queue on every store: an execution has one holder at a time, and no rows are left behind."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.redis_server import RedisServer

from helix import MemoryStateStore, SQLiteStateStore
from helix.adapters.redis import RedisStateStore
from helix.core.row_keys import SESSION, run_sort
from helix.core.run_row import RunRow
from helix.core.session_row import Parent, SessionRow
from helix.ports.launcher import Part
from helix.ports.state_store import Key, Put, StateStore, Update, Value
from helix.services.work_queue import KEEP_S, WorkQueue
from helix.testing.clocks import ShiftedClock

ROOT = Path(__file__).parents[2]


def anything(value: Value) -> bool:
    return True


async def a_run(store: StateStore, number: int = 1, *, child: bool = False) -> Part:
    """Store a session with a running run, as a claim leaves it."""
    session_id, run_id = f"s{number}", f"run_{number}"
    parent = Parent(session_id="s0", run_id="run_0", call_id="c") if child else None
    session = SessionRow(
        session_id=session_id,
        agent_type="crew",
        stream_id=session_id,
        status="running",
        version=1,
        run_id=run_id,
        turn=1,
        parent=parent,
    )
    run = RunRow(
        run_id=run_id, session_id=session_id, turn=1, status="running", mode="execute", agent_type="crew", first_step=1
    )
    rows = [
        Put(Key("sessions", session_id, SESSION), session.dump()),
        Put(Key("sessions", session_id, run_sort(run_id)), run.dump()),
    ]
    await store.transact("a_run", rows)
    return Part("default", session_id, run_id, 1, 1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as made:
        yield made


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def queues(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[WorkQueue, WorkQueue]]:
    """The queues of two processes on the same rows, with one clock."""
    clock = ShiftedClock()
    stores: list[StateStore]
    if request.param == "memory":
        stores = [MemoryStateStore()] * 2
    elif request.param == "sqlite":
        stores = [SQLiteStateStore(tmp_path / "q.db") for _ in range(2)]
    else:
        server: RedisServer = request.getfixturevalue("server")
        server.ask("FLUSHALL")
        stores = [RedisStateStore(server.url) for _ in range(2)]
    yield WorkQueue(stores[0], clock, lease_s=10), WorkQueue(stores[1], clock, lease_s=10)
    for store in stores:
        await store.close()


Queues = tuple[WorkQueue, WorkQueue]


async def test_a_second_start_finds_the_first(queues: Queues) -> None:
    queue, other = queues
    part = await a_run(queue.store)
    assert await queue.state(part) == "none"
    await asyncio.gather(*(it.start(part) for it in (queue, other, queue)))
    assert (await other.state(part), len(await queue.open_work())) == ("running", 1)
    work = await queue.claim("w1", anything)
    assert work is not None and await queue.finish(work)
    await other.start(part)
    assert (await other.state(part), await queue.open_work()) == ("ended", [])


async def test_one_claims_it(queues: Queues) -> None:
    queue, other = queues
    await queue.start(await a_run(queue.store))
    claims = await asyncio.gather(*(it.claim(f"w{n}", anything) for n, it in enumerate([queue, other] * 5)))
    assert sum(work is not None for work in claims) == 1


async def test_the_oldest_that_is_wanted_comes_first(queues: Queues) -> None:
    queue, other = queues
    for number in (1, 2, 3):
        await queue.start(await a_run(queue.store, number, child=number == 2))
    first = await other.claim("w1", anything)
    child = await other.claim("w1", lambda value: not value["root"])
    assert first is not None and child is not None
    assert ((first.part.run_id, first.root), (child.part.run_id, child.root)) == (("run_1", True), ("run_2", False))


async def test_a_lease_that_lapsed_is_anothers(queues: Queues) -> None:
    """The next holder learns who held the lease before. Every call of the first holder is refused."""
    queue, other = queues
    await queue.start(await a_run(queue.store))
    first = await queue.claim("w1", anything)
    assert first is not None and await queue.renew(first)
    assert await other.claim("w2", anything) is None
    clock = queue.clock
    assert isinstance(clock, ShiftedClock)
    free_at = await other.next_free()
    assert free_at is not None
    clock.ahead_s += 11
    second = await other.claim("w2", anything)
    assert second is not None and (second.former, second.deaths, second.claims) == ("w1", 1, 2)
    assert [await queue.renew(first), await queue.finish(first), await queue.give_back(first)] == [False] * 3
    assert await other.finish(second)


async def test_what_is_given_back_waits_as_long_as_it_should(queues: Queues) -> None:
    queue, other = queues
    await queue.start(await a_run(queue.store))
    work = await queue.claim("w1", anything)
    assert work is not None and await queue.give_back(work, not_before=queue.clock.now() + 5)
    assert await other.claim("w2", anything) is None
    assert isinstance(queue.clock, ShiftedClock)
    queue.clock.ahead_s += 6
    again = await other.claim("w2", anything)
    assert again is not None and (again.former, again.deaths) == ("w1", 0)


async def test_a_dead_workers_executions_are_free_at_once(queues: Queues) -> None:
    queue, other = queues
    for number in (1, 2):
        await queue.start(await a_run(queue.store, number))
    held, kept = await queue.claim("w1", anything), await queue.claim("w2", anything)
    assert held is not None and kept is not None
    assert await other.release_dead_worker("w1", died=True) == [held.name]
    assert await other.release_dead_worker("w1", died=False) == []
    again = await other.claim("w3", anything)
    assert again is not None and (again.name, again.former, again.deaths) == (held.name, "w1", 1)
    assert await queue.renew(kept)
    assert await other.release_dead_worker("w2", died=True) == [kept.name], (
        "after an execution that another worker holds"
    )


async def test_what_a_dying_worker_gave_back_counts_too(queues: Queues) -> None:
    queue, other = queues
    await queue.start(await a_run(queue.store))
    work = await queue.claim("w1", anything)
    assert work is not None and await queue.give_back(work)
    assert await other.release_dead_worker("w1", died=True) == []
    again = await other.claim("w2", anything)
    assert again is not None and again.deaths == 1


async def test_a_death_is_counted_once(queues: Queues) -> None:
    """The process that reported the death may have crashed before it was stored, so it reports again."""
    queue, other = queues
    await queue.start(await a_run(queue.store))
    assert await queue.claim("w1", anything)
    for it in (queue, other):
        await it.release_dead_worker("w1", died=True)
    again = await other.claim("w2", anything)
    assert again is not None and again.deaths == 1
    await other.release_dead_worker("w2", died=True)
    third = await queue.claim("w3", anything)
    assert third is not None and third.deaths == 2


async def test_what_was_handed_over_in_order_counts_for_no_death(queues: Queues) -> None:
    """The supervisor died, and its worker gave back its execution before it exited."""
    queue, other = queues
    await queue.start(await a_run(queue.store))
    work = await queue.claim("w1", anything)
    assert work is not None and await queue.give_back(work)
    await other.release_dead_worker("w1", died=True, handed_over=True)
    again = await other.claim("w2", anything)
    assert again is not None and again.deaths == 0


async def test_all_that_is_over_is_forgotten_at_once(queues: Queues) -> None:
    """Finished executions span several pages, beside many whose runs are not over."""
    queue, other = queues
    for number in range(5):
        await queue.start(await a_run(queue.store, number))
        work = await queue.claim("w1", anything)
        assert work is not None and await queue.finish(work)
        if number >= 3:
            over = {"status": "completed", "effects": "done"}
            await queue.store.transact(
                "over", [Update(Key("sessions", f"s{number}", run_sort(f"run_{number}")), set=over)]
            )
    assert isinstance(queue.clock, ShiftedClock)
    queue.clock.ahead_s += KEEP_S + 60
    assert await other.trim(page=2) == 2


async def test_a_stop_ends_it_whoever_holds_it(queues: Queues) -> None:
    queue, other = queues
    part = await a_run(queue.store)
    await queue.start(part)
    work = await queue.claim("w1", anything)
    assert work is not None
    with queue.signals_of(work) as watch:
        await other.stop(part, "enough")
        await watch.changed(5)
    assert not (await queue.signals(work)).open
    assert (await queue.finish(work), await queue.state(part)) == (False, "ended")
    await other.stop(part, "again")


async def test_a_token_is_woken_once_or_not_at_all(queues: Queues) -> None:
    queue, other = queues
    await queue.start(await a_run(queue.store))
    work = await queue.claim("w1", anything)
    assert work is not None
    token = f"{work.name}#one"
    await other.wake(token)
    await other.wake(token)
    assert (await queue.signals(work)).tokens == {token}
    await queue.finish(work)
    await other.wake(f"{work.name}#late")
    await other.wake("nobody#x")
    assert (await queue.signals(work)).tokens == {token}


async def test_an_execution_of_a_deleted_session_is_none(queues: Queues) -> None:
    queue, _ = queues
    await queue.start(Part("default", "gone", "run_9", 1, 1))
    assert await queue.open_work() == []


async def test_rows_are_forgotten_once_the_run_is_over(queues: Queues) -> None:
    queue, _ = queues
    part = await a_run(queue.store)
    await queue.start(part)
    work = await queue.claim("w1", anything)
    assert work is not None
    await queue.wake(f"{work.name}#t")
    await queue.finish(work)
    assert isinstance(queue.clock, ShiftedClock)
    queue.clock.ahead_s += KEEP_S + 1
    assert await queue.trim() == 0  # the run still has status running: the sweep must find that its execution has ended
    (value,) = await queue.store.get([Key("sessions", part.session_id, run_sort(part.run_id))])
    ended = {**(value or {}), "status": "completed", "effects": "done"}
    await queue.store.transact("end", [Put(Key("sessions", part.session_id, run_sort(part.run_id)), ended)])
    assert await queue.trim() == 1
    assert await queue.store.query("control", f"execution#{work.name}") == []
    assert await queue.store.query("control", "work-ended") == []


RACER = """
import asyncio, json, sys
from helix import SQLiteStateStore
from helix.adapters.system import SystemClock
from helix.adapters.redis import RedisStateStore
from helix.services.work_queue import WorkQueue

async def main(path, name):
    store = SQLiteStateStore(path)
    queue, mine = WorkQueue(store, SystemClock()), []
    sys.stdin.readline()
    while (work := await queue.claim(name, lambda value: True)) is not None:
        assert await queue.finish(work)
        mine.append(work.name)
    print(json.dumps(mine))
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_several_processes_share_the_work(tmp_path: Path) -> None:
    """Each execution is claimed and finished by one process."""
    path = tmp_path / "race.db"
    store = SQLiteStateStore(path)
    queue = WorkQueue(store, ShiftedClock())
    for number in range(40):
        await queue.start(await a_run(store, number))
    racers = [
        subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-c", RACER, str(path), f"w{n}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ},
        )
        for n in range(3)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    found = [json.loads((await asyncio.to_thread(racer.communicate))[0]) for racer in racers]
    assert sorted(name for names in found for name in names) == sorted(f"run_{n}" for n in range(40))
    assert await queue.open_work() == []
    await store.close()
