"""Rows that earlier code stored, in every store. They are consistent and readable, and their sessions continue.

tests/fixtures/rows has a file for each format, named after the day of its code. `python -m tests.e2e.record_rows` makes
one. A file is never changed.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.aws_resources import fresh, make_store, make_tables, moto, tables
from tests.support.cloud_agents import cast, planned, tools
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.delivery_stage import Stage
from tests.support.state_machine import Machines, StateMachine

from helix import AgentResult, Confirmation, MemoryStateStore, SQLiteStateStore
from helix.adapters.sqlite_schema import TABLES
from helix.adapters.system import SystemIds
from helix.core.agents import AnyAgent
from helix.core.json import dumps
from helix.core.wire import StreamMessage
from helix.ports.state_store import Put, Row, StateStore, Table
from helix.runtime.executor import Executor
from helix.services.segments import SegmentStreams
from helix.sessions.exports import KINDS, Export, children_of, read_export
from helix.sessions.imports import import_session
from helix.testing.clocks import ShiftedClock
from helix.testing.invariants import check_session

ROWS = Path(__file__).parents[1] / "fixtures" / "rows"
RELEASES = sorted(path.stem for path in ROWS.glob("*.jsonl"))
FIRST_SQLITE = "2026-11-22"
"""The last format whose SQLite files have schema version 1."""
LATER_S = 1_200
"""The time between the recording of a file and its use. Claims of dead workers have expired, but runs in line have not
waited too long."""
STORES = ("memory", "sqlite", pytest.param("dynamodb", marks=pytest.mark.slow))
ENDED = ("done", "large", "failed", "paused", "below", "stopped")
AT_WORK = {"in_model": "All of it.", "in_tool": "Over.", "first": "One.", "queued": "Two.", "died": "Over."}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def ident(name: str) -> str:
    return f"ann:{name}"


def items_of(release: str) -> Iterator[tuple[Table, dict[str, Any]]]:
    """Return (table, item) pairs in DynamoDB's format."""

    def read(value: dict[str, Any]) -> Any:
        return value["latin-1"].encode("latin-1") if set(value) == {"latin-1"} else value

    for line in (ROWS / f"{release}.jsonl").read_text().splitlines():
        row = json.loads(line, object_hook=read)
        yield row["table"], row["item"]


async def recorded(dynamodb: StateStore, release: str) -> list[Row]:
    """Return every row in the format of the other stores."""
    places = sorted({(table, item["pk"]["S"]) for table, item in items_of(release)})
    return [row for table, partition in places for row in await dynamodb.query(table, partition)]


def written_at(release: str) -> float:
    return max(float(item["updated_at"]["N"]) for _, item in items_of(release) if "updated_at" in item)


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def aws() -> Iterator[dict[str, Any]]:
    with moto() as made:
        yield made


@pytest.fixture(params=STORES)
async def store(
    request: pytest.FixtureRequest, release: str, aws: dict[str, Any], tmp_path: Path
) -> AsyncIterator[StateStore]:
    prefix = fresh()
    make_tables(aws["dynamodb"], prefix)
    for table, item in items_of(release):
        aws["dynamodb"].put_item(TableName=tables(prefix)[table], Item=item)
    found: StateStore = make_store(aws["dynamodb"], aws["s3"], prefix)
    if request.param != "dynamodb":
        rows, path = await recorded(found, release), tmp_path / "helix.db"
        await found.close()
        found = MemoryStateStore() if request.param == "memory" else SQLiteStateStore(path)
        if request.param == "sqlite" and release <= FIRST_SQLITE:
            first_sqlite(path, rows)
        else:
            for row in rows:
                await found.transact("load", [Put(row.key, row.value)])
    yield found
    await found.close()


def first_sqlite(path: Path, rows: list[Row]) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        for table in TABLES:
            columns = "partition TEXT NOT NULL, sort TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (partition, sort)"
            db.execute(f"CREATE TABLE {table} ({columns})")
        for row in rows:
            values = row.key.partition, row.key.sort, dumps(row.value)
            db.execute(f"INSERT INTO {row.key.table} VALUES (?, ?, ?)", values)
        db.execute("PRAGMA user_version = 1")


@pytest.fixture
def stage(store: StateStore, release: str, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return a stage of the current code. What held the runs up is over: the files exist, and no worker dies."""

    async def opened(path: str) -> None:
        return None

    for module in (planned, tools):
        monkeypatch.setattr(module, "pass_gate", opened)
    monkeypatch.setattr(tools, "_die_once", lambda mark: None)
    clock = ShiftedClock(written_at(release) + LATER_S - ShiftedClock().now())
    return Stage(planned.PlannedModel(), *cast.CAST, store=store, streams=SegmentStreams(store), clock=clock)


async def seen(executor: Executor, name: str) -> list[StreamMessage]:
    """Return what the stream has of the session's newest run."""
    run_id = (await executor.sessions.get(ident(name))).current_run_id
    return [message async for message in executor.stream_messages(ident(name), run_id)]


async def agent_of(executor: Executor, name: str) -> AnyAgent:
    return executor.agents.named((await executor.sessions.get(ident(name))).agent_type)


async def result_of(executor: Executor, name: str) -> AgentResult[Any]:
    return await (await executor.get_handle(await agent_of(executor, name), ident(name))).result(timeout_s=60)


async def tree_of(store: StateStore, session_id: str) -> list[Row]:
    rows = [row for row in await store.query("sessions", session_id) if row.key.sort.startswith(KINDS)]
    return rows + [row for below in children_of(rows) for row in await tree_of(store, below)]


@pytest.mark.slow
async def test_every_session_at_rest_is_exported_and_imported(stage: Stage) -> None:
    store, other = stage.executor.store, MemoryStateStore()
    for name in ENDED:
        rows = await tree_of(store, ident(name)) + await store.query("streams", ident(name))
        export = read_export(Export({"session_id": ident(name)}, rows).lines())
        await import_session(other, export, stage.clock, SystemIds())
        await check_session(other, SegmentStreams(other), ident(name))


@pytest.mark.slow
async def test_every_session_is_sound_and_read(stage: Stage) -> None:
    executor = stage.executor
    for name in (*ENDED, *AT_WORK, "parent"):
        await check_session(executor.store, executor.streams, ident(name))
    done = await executor.sessions.get(ident("done"))
    assert (done.status, done.turn, done.user_id) == ("completed", 2, "ann")
    assert done.custom_state == {"seen": ["tea"], "total": 3, "notes": {}}
    messages = await executor.sessions.load_conversation_messages(ident("done"))
    assert [m.content for m in messages if m.role == "tool"] == ["tea: found", "2", "3"]
    stream = await seen(executor, "done")
    assert (stream[0].turn, stream[-1].kind, stream[-1].status) == (2, "end", "completed")
    text = [m.chunk["delta"] for m in stream if m.chunk and m.chunk["type"] == "text_delta"]
    assert "".join(map(str, text)) == "Second."
    page = await executor.sessions.list_sessions(user_id="ann", limit=100)
    assert not page.damaged and len(page.sessions) == len(ENDED) + len(AT_WORK) + 1


async def test_every_session_goes_on(stage: Stage) -> None:
    """Nothing executes the runs that were at work, as after a crash of every process. The sweep finds them."""
    executor, machines = stage.executor, Machines(StateMachine(stage.deliver))
    stage.engine.launcher = machines
    await stage.deliver("sweep")
    await machines.ended()
    for name, text in AT_WORK.items():
        result = await result_of(executor, name)
        assert (result.status, result.text) == ("completed", text), (name, result)
    parent = await executor.sessions.get(ident("parent"))
    assert (parent.status, parent.output) == ("completed", {"summary": "with it", "sources": []})
    again = await executor.retry(await agent_of(executor, "failed"), ident("failed"))
    assert (await again.result(timeout_s=60)).error_code == "overloaded", "it is asked again, and is as it was"
    stopped = await executor.resume(await agent_of(executor, "stopped"), ident("stopped"))
    assert (await stopped.result(timeout_s=60)).text == "On again."
    await answered(executor, machines)
    await continued(executor)
    await machines.ended()
    for session in (await executor.sessions.list_sessions(user_id="ann", limit=100)).sessions:
        await check_session(executor.store, executor.streams, session.session_id, at_rest=True)
        assert await executor.delete(session.session_id)
    assert not (await executor.sessions.list_sessions(user_id="ann", limit=100)).sessions


async def answered(executor: Executor, machines: Machines) -> None:
    gated, form = (await executor.sessions.get(ident("paused"))).pending
    agent = await agent_of(executor, "paused")
    await executor.answer(agent, ident("paused"), Confirmation(form.call_id, data={"because": "so"}))
    await executor.answer(agent, ident("paused"), Confirmation(gated.call_id))
    assert (await result_of(executor, "paused")).text == "Thanks."
    (waits,) = (await executor.sessions.get(ident("below"))).pending
    (deep,) = (await executor.sessions.get(str(waits.child_session_id))).pending
    await executor.answer(await agent_of(executor, "below"), ident("below"), Confirmation(deep.call_id))
    await machines.ended()
    result = await result_of(executor, "below")
    assert result.output == tools.Answer(summary="all"), result.error


async def continued(executor: Executor) -> None:
    """Branch before the second turn, and play a third turn in the branch and in the session."""
    checkpoints = (await executor.sessions.list_checkpoints(ident("done"), limit=100)).items
    early = next(one for one in reversed(checkpoints) if (one.turn, one.step) == (1, 2))
    branch = await executor.branch(ident("done"), early.id)
    message = plan(use(call("add", amount=10)), say("Third."))
    for session_id, total in ((branch.session_id, 12), (ident("done"), 13)):
        handle = await executor.execute(await agent_of(executor, "done"), message, session_id=session_id)
        assert (await handle.result(timeout_s=60)).text == "Third."
        assert (await executor.sessions.get(session_id)).custom_state["total"] == total
