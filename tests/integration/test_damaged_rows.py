"""Rows that another program has changed. A reader gets a typed error, and other sessions stay readable."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import CommandLine
from tests.support.stored_rows import rewrite
from tests.support_run import World, agent, play
from tests.support_sub_agents import Notes

from helix.core.errors import DamagedRowError
from helix.ports.state_store import Put, Table

DAMAGES = {
    "no JSON": "{",
    "no object": "[1]",
    "a field is missing": '{"kind": "session", "session_id": "bad"}',
    "a field has another type": '{"kind": "session", "session_id": "bad", "usage": 7}',
}


@pytest.mark.parametrize("text", DAMAGES.values(), ids=list(DAMAGES))
async def test_a_damaged_session_is_a_typed_error_and_left_out_of_the_list(tmp_path: Path, text: str) -> None:
    world = World("sqlite", tmp_path)
    executor = world.executor(["one", "two"])
    for session_id in ("bad", "good"):
        await play(executor, agent(), session_id=session_id)
    (file,) = tmp_path.glob("**/*.db")
    assert rewrite(file, "sessions", "bad", "session", text) == 1
    with pytest.raises(DamagedRowError, match="'bad'"):
        await executor.sessions.get("bad")
    page = await executor.sessions.list_sessions()
    assert ([state.session_id for state in page.sessions], page.damaged) == (["good"], ["bad"])
    assert await executor.delete("bad") and not await executor.sessions.exists("bad")
    await world.close()


CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "a state that is null": ("c#", {"state": None}),
    "an unknown status": ("session", {"status": "dreaming"}),
    "a state that is nowhere": ("session", {"state_at": "x"}),
    "a message that is missing": ("session", {"count": 9}),
    "a stream row without messages": ("s#", {"messages": None}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_command_line_shows_the_others_and_names_the_row(tmp_path: Path, change: str) -> None:
    prefix, fields = CHANGES[change]

    async def make() -> None:
        world = World("sqlite", tmp_path)
        executor = world.executor(["one", "two"])
        for session_id in ("bad", "good"):
            await play(executor, agent(state_schema=Notes), session_id=session_id)
        table: Table = "streams" if prefix == "s#" else "sessions"
        rows = await executor.store.query(table, "bad", start=prefix)
        await executor.store.transact("damage", [Put(rows[0].key, {**rows[0].value, **fields})])
        await world.close()

    asyncio.run(make())
    helix = CommandLine(tmp_path)
    listed = helix("sessions", "--db", "helix.db")
    assert listed.code == 0 and "good" in listed.out, listed
    if prefix != "s#" and "count" not in fields:
        assert "'bad' is damaged" in listed.err
    for command in ["tail", "export"] if prefix == "s#" else ["show"]:
        refused = helix(command, "bad", "--db", "helix.db")
        assert refused.code == 2 and "'bad'" in refused.err and "internal error" not in refused.err, refused
    assert helix("delete", "bad", "--db", "helix.db").code == 0
    assert helix("show", "bad", "--db", "helix.db").code == 2


async def test_a_session_of_an_unknown_status_takes_no_message(tmp_path: Path) -> None:
    world = World("sqlite", tmp_path)
    executor = world.executor(["one", "two"])
    await play(executor, agent(), session_id="bad")
    (row,) = await executor.store.query("sessions", "bad", start="session", end="session\x00")
    await executor.store.transact("damage", [Put(row.key, {**row.value, "status": "dreaming"})])
    with pytest.raises(DamagedRowError, match=r"'bad'.*status"):
        await executor.execute(agent(), "go", session_id="bad")
    with pytest.raises(DamagedRowError, match=r"'bad'.*status"):
        await executor.sessions.can_resume("bad")
    assert await executor.delete("bad")
    await world.close()
