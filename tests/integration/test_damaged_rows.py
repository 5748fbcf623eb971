"""Rows that something else has changed: whoever reads them gets a typed error, and other sessions stay readable."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.stored_rows import rewrite
from tests.support_run import World, agent, play

from helix.core.errors import DamagedRowError

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
