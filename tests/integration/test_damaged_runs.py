"""A row that cannot be read fails its own run, and never the sweep, a listing, an abort or a deletion."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.integration.test_damaged_rows import DAMAGES
from tests.support.delivery_stage import Stage
from tests.support.stored_rows import rewrite
from tests.support_gateway import ADA, BOB, Desk, executor_of, started
from tests.support_run import QUICK, Gate, Text, World, a_tool, agent, call, calls, gated, play, result_of
from tests.support_sub_agents import ask, child, parent

from helix import SQLiteStateStore, ToolContext
from helix.core.errors import DamagedRowError, RunNotFoundError, SessionNotFoundError
from helix.core.row_keys import make_run_id
from helix.core.run_row import RunRow
from helix.engine.runs.admission import gauges
from helix.ports.state_store import Key, Put
from helix.services.open_runs import open_run_key
from helix.testing.clocks import ShiftedClock


class Notes(BaseModel):
    seen: list[str] = []


def note(given: Text, ctx: ToolContext[Notes]) -> str:
    ctx.update_state(lambda notes: notes.seen.append(given.text))
    return "noted"


WHO = agent(tools=[a_tool("note", note, input_schema=Text)], state_schema=Notes)
NOTE = calls(call("note", text="x"))
DEEP = '{"state": ' + '{"a":' * 230 + "{}" + "}" * 230 + "}"  # as an older version could write it


def damage(path: Path, session_id: str, sort: str, text: str, table: str = "sessions") -> None:
    assert rewrite(path, table, session_id, sort, text) == 1


def sorts(path: Path, session_id: str) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT sort FROM sessions WHERE partition = ? ORDER BY sort", (session_id,))
        return [sort for (sort,) in rows]


async def on_stage(path: Path) -> tuple[Stage, dict[str, Any]]:
    """Return a deployed run with a folded step, and an open one whose call is claimed."""
    stage = Stage([NOTE, NOTE, "done", "done", "done"], WHO, store=SQLiteStateStore(path))
    event = await stage.begin(WHO)
    told = await stage.deliver("call_model", event)
    await stage.deliver("call_tool", told)
    return stage, await stage.deliver("call_model", told)


ROWS = ["session", "run", "first message", "answer", "call", "open answer", "checkpoint", "newest checkpoint"]


def chosen(name: str, path: Path, event: dict[str, Any]) -> str:
    found = sorts(path, event["session_id"])
    messages = [sort for sort in found if sort.startswith("m#")]
    points = [sort for sort in found if sort.startswith("c#")]
    rows = {
        "session": "session",
        "run": f"r#{event['run_id']}",
        "checkpoint": points[0],
        "newest checkpoint": points[-1],
    }
    places = {"first message": 0, "answer": 1, "call": 2, "open answer": 3}
    return rows[name] if name in rows else messages[places[name]]


@pytest.mark.parametrize("text", [*DAMAGES.values(), DEEP], ids=[*DAMAGES, "too deep"])
@pytest.mark.parametrize("name", ROWS)
async def test_a_deployed_run(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "helix.db"
    stage, told = await on_stage(path)
    session_id, run_id = told["session_id"], told["run_id"]
    damage(path, session_id, chosen(name, path, told), text)
    stage.engine.history.__init__(stage.store)  # type: ignore[misc]  # another process: nothing is cached
    other = await stage.begin(WHO)
    with contextlib.suppress(DamagedRowError):
        await stage.deliver("call_tool", told)
        await stage.deliver("finish_run", await stage.follow(told))
    stage.held.states[run_id] = "ended"
    stage.clock.ahead_s += 600
    for _ in range(3):
        await stage.deliver("sweep")
    run = await stage.engine.history.run(session_id, run_id)
    assert run.status == "completed" or (run.status, run.error and run.error.code) == ("failed", "damaged_row")
    assert run.effects == "done" and await stage.store.get([open_run_key(run_id)]) == [None]
    page = await stage.executor.sessions.list_sessions()
    assert {other["session_id"], session_id} == {*(s.session_id for s in page.sessions), *page.damaged}
    await stage.end(other)
    await stage.executor.abort(WHO, session_id)
    assert await stage.executor.delete(session_id) and not sorts(path, session_id)
    assert await stage.deliver("sweep") == {}
    await stage.store.close()


@pytest.mark.parametrize("text", ["{", '{"started_at": "x"}'])
async def test_an_entry_of_the_index_of_open_runs(tmp_path: Path, text: str) -> None:
    path = tmp_path / "helix.db"
    stage, told = await on_stage(path)
    key = open_run_key(told["run_id"])
    damage(path, key.partition, key.sort, text, "control")
    other = await stage.begin(WHO)
    assert (await gauges(stage.engine))[None]["RunsActive"] == 1, "those that can be read are counted"
    stage.held.states.clear()
    stage.clock.ahead_s += 600
    await stage.deliver("sweep")
    assert [part.run_id for part in stage.held.starts].count(other["run_id"]) == 2  # the sweep reached it
    await stage.store.close()


@pytest.mark.parametrize("text", [*DAMAGES.values(), DEEP], ids=[*DAMAGES, "too deep"])
@pytest.mark.parametrize("name", ROWS[:3])
async def test_a_run_of_this_process(tmp_path: Path, name: str, text: str) -> None:
    """Its model answers after the damage. The run ends here, and the session can be stopped and deleted."""
    world, gate = World("sqlite", tmp_path), Gate()
    executor = world.executor([NOTE, gated(gate, NOTE), "done", "again"])
    handle = await executor.execute(WHO, "go")
    await gate.reached()
    path = tmp_path / "helix.db"
    event = {"session_id": handle.session_id, "run_id": handle.run_id}
    damage(path, handle.session_id, chosen(name, path, event), text)
    gate.open()
    with contextlib.suppress(DamagedRowError):
        await result_of(handle)
    second = world.executor(["again"])
    await second.abort(WHO, handle.session_id)
    if name != "run":
        run = await second.sessions.get_run(handle.session_id, handle.run_id)
        assert run.status == "completed" or (run.error is not None and run.error.code == "damaged_row")
    if name == "session":  # rebuilt from its newest checkpoint, so that a new message continues it
        _, result, _ = await play(second, WHO, session_id=handle.session_id)
        assert result.status == "completed"
        state = await second.sessions.get(handle.session_id)
        assert state.custom_state == {"seen": ["x"]}
    assert await second.delete(handle.session_id) and not sorts(path, handle.session_id)
    await world.close()


async def test_two_callers_make_a_row_anew_once(tmp_path: Path) -> None:
    world = World("sqlite", tmp_path)
    executor = world.executor(["one", "two", "three"])
    await play(executor, WHO, session_id="s")
    damage(tmp_path / "helix.db", "s", "session", "{")
    others = [world.executor(["again"]) for _ in range(4)]
    await asyncio.gather(*(other.abort(WHO, "s") for other in others))
    assert [sort for sort in sorts(tmp_path / "helix.db", "s") if sort.startswith("l#")] == ["l#000001"]
    _, result, _ = await play(others[0], WHO, session_id="s")
    assert result.output == "again" and (await others[1].sessions.get("s")).message_count == 4
    with pytest.raises(SessionNotFoundError):
        await executor.abort(WHO, "nowhere")
    await world.close()


async def test_a_client_stops_and_deletes_its_own_only(tmp_path: Path) -> None:
    executor = executor_of(["Hello."] * 3, store=SQLiteStateStore(tmp_path / "helix.db"))
    async with executor:
        desk = Desk(executor)
        await desk.connect("ada", ADA)
        await desk.connect("bob", BOB)
        place = await started(desk)
        session_id = place["session_id"]
        await desk.ended(session_id)
        damage(tmp_path / "helix.db", session_id, "session", "{")
        assert (await desk.error("ada", "get_session", session_id=session_id))["code"] == "damaged_row"
        for action in ("get_session", "abort", "delete"):
            assert (await desk.error("bob", action, session_id=session_id))["code"] == "session_not_found"
        assert await desk.result("ada", "delete", session_id=session_id) == {"deleted": True}
        place = await started(desk)
        await desk.ended(place["session_id"])
        damage(tmp_path / "helix.db", place["session_id"], "session", '{"session_id": 7}')
        assert await desk.result("ada", "abort", session_id=place["session_id"]) == {}


async def test_a_run_that_is_no_longer_its_sessions(tmp_path: Path) -> None:
    """The damaged row does not end the run that came after it."""
    path = tmp_path / "helix.db"
    stage, told = await on_stage(path)
    old = make_run_id(0, "run_0")
    row = RunRow(
        run_id=old, session_id=told["session_id"], turn=0, status="failed", mode="x", agent_type=WHO.name, first_step=1
    )
    index = {"session_id": told["session_id"], "agent_type": WHO.name, "started_at": 0.0}
    puts = [Put(Key("sessions", told["session_id"], f"r#{old}"), row.dump()), Put(open_run_key(old), index)]
    await stage.store.transact("test", puts)
    damage(path, told["session_id"], f"r#{old}", "{")
    stage.clock.ahead_s += 600
    await stage.deliver("sweep")
    assert (await stage.session(told)).status == "running"
    assert await stage.store.get([open_run_key(old)]) == [None]
    with pytest.raises(RunNotFoundError):
        await stage.engine.history.run(told["session_id"], "run_none")
    await stage.store.close()


@pytest.mark.parametrize("text", [*DAMAGES.values()], ids=[*DAMAGES])
@pytest.mark.parametrize("row", ["call", "open answer", "child"])
async def test_a_deployed_call_of_a_sub_agent(tmp_path: Path, row: str, text: str) -> None:
    """Its delivery ends the run at once, and its execution does not wait."""
    path = tmp_path / "helix.db"
    boss = parent(child())
    stage = Stage({"boss": [calls(ask())], "finder": []}, boss, store=SQLiteStateStore(path))
    told = await stage.deliver("call_model", await stage.begin(boss))
    assert await stage.deliver("start_run", {**told, "token": "first"}) == {"call": "waits"}
    if row == "child":
        damage(path, stage.held.starts[-1].session_id, "session", text)
    else:
        messages = [sort for sort in sorts(path, told["session_id"]) if sort.startswith("m#")]
        damage(path, told["session_id"], messages[-1 if row == "call" else -2], text)
    for token in ("second", "third"):
        assert await stage.deliver("start_run", {**told, "token": token}) == {"call": "over"}
    assert stage.held.woken == ["second", "third"]
    run = await stage.run(told)
    assert (run.status, run.error and run.error.code) == ("failed", "damaged_row")
    assert (await stage.deliver("call_model", told))["next"] == "finish"
    await stage.store.close()


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"session_id": 7}'])
async def test_an_entry_of_the_index_of_sessions_that_expire(tmp_path: Path, text: str) -> None:
    """Its session expires all the same, and so do those behind it."""
    world, clock = World("sqlite", tmp_path), ShiftedClock()
    executor = world.executor(["one", "two"], settings=replace(QUICK, session_ttl_s=60.0), clock=clock)
    for session_id in ("s", "t"):
        await play(executor, WHO, session_id=session_id)
    assert rewrite(tmp_path / "helix.db", "control", "expiring#%", "%", text) >= 2
    clock.ahead_s += 600
    assert await executor.expire() == 2
    assert not await executor.sessions.exists("s") and not await executor.sessions.exists("t")
    await world.close()
