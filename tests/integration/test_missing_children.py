"""A sub-agent's session that was deleted or never started. Its parent can be shown everywhere, and says what is missing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.chat_screen import screen
from tests.support.command_line import CommandLine
from tests.support_gateway import Desk, executor_of
from tests.support_run import QUICK, calls, play
from tests.support_sub_agents import ask, child, finish, only_child, parent

from helix import LocalExecutor, SQLiteStateStore
from helix.cli.chat.blocks import CallBlock
from helix.engine.engine import Settings

WORDS = {"deleted": "was deleted", "not_started": "has not started"}


async def played(path: Path, status: str) -> LocalExecutor:
    """Play a boss whose finder is deleted, or refused because sub-agents may not be nested so deeply."""
    settings = Settings(stop_poll_s=QUICK.stop_poll_s, max_depth=3 if status == "deleted" else 0)
    script = {"boss": [calls(ask()), "done"], "finder": [finish("blue")]}
    boss = parent(child())
    executor = executor_of(script, boss, child(), store=SQLiteStateStore(path), settings=settings)
    _, result, _ = await play(executor, boss, session_id="s")
    assert result.status == "completed"
    ref = await only_child(executor, "s")
    if status == "deleted":
        assert ref.status == "completed" and await executor.delete(ref.session_id)
    return executor


@pytest.mark.parametrize("status", list(WORDS))
async def test_a_reader_is_told(tmp_path: Path, status: str) -> None:
    executor = await played(tmp_path / "s.db", status)
    assert (await only_child(executor, "s")).status == status
    desk = Desk(executor, anonymous=True)
    await desk.connect("c", None)
    found = await desk.result("c", "get_session", session_id="s", sub_sessions=True, snapshot=True)
    assert [ref["status"] for ref in found["sub_sessions"]] == [status]
    async with screen(executor, "boss", "s") as s:
        await s.until("done")
        for called in s.app.query(CallBlock):
            await called.open(True)
        await s.until(f"session {WORDS[status]}")
    assert await executor.delete("s")
    await executor.close()


@pytest.mark.parametrize("status", list(WORDS))
def test_the_command_line_says_it(tmp_path: Path, status: str) -> None:
    async def make() -> None:
        await (await played(tmp_path / "s.db", status)).close()

    asyncio.run(make())
    helix = CommandLine(tmp_path)
    done = helix("show", "s", "--db", "s.db")
    assert done.code == 0 and f"finder  {WORDS[status]}" in done.out, done
    assert helix("show", "s", "--db", "s.db", "--html", "s.html").code == 0
    assert WORDS[status] in (tmp_path / "s.html").read_text("utf-8")
    assert helix("show", "s", "--db", "s.db", "--json").result["sub_sessions"][0]["status"] == status
    assert helix("cost", "s", "--db", "s.db").code == 0 and helix("export", "s", "--db", "s.db").code == 0
