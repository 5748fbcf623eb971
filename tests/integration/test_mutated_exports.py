"""An export with any one field changed in any way. It is refused by line and field with nothing written, or it becomes a
session that works like any other."""

from __future__ import annotations

import asyncio
import io
import random
from contextlib import redirect_stdout, suppress
from typing import Any

import pytest
from tests.integration.test_damaged_reads import opened
from tests.support.row_damage import BOSS, Damage, damages, new_executor, play_session

from helix import Confirmation, LocalExecutor, MemoryStateStore
from helix.adapters.system import SystemClock, SystemIds
from helix.cli.sessions.files import WAIT_S, _export
from helix.cli.sessions.html import read_conversation
from helix.cli.sessions.page import read_page
from helix.cli.sessions.tail import watch
from helix.cli.where import Where
from helix.client import HelixClient
from helix.core.errors import AgentNotFoundError, InvalidInputError
from helix.ports.state_store import Row
from helix.sessions.exports import Export, read_export
from helix.sessions.imports import import_session

PATIENCE_S = 3.0
FEW = 60


async def exported() -> Export:
    store = MemoryStateStore()
    await play_session(store)
    async with opened(store) as (client, _):
        return await _export(client, "s")


def changed(export: Export, damage: Damage) -> list[str]:
    rows = [Row(row.key, damage.value) if row.key == damage.key else row for row in export.rows]
    return [*Export(export.header, rows).lines()]


async def live_on(store: MemoryStateStore) -> None:
    """Use the session in every way that a session supports."""
    async with opened(store) as (client, executor):
        page: dict[str, Any] = dict(await client.list_sessions(limit=10))
        assert ([entry["session_id"] for entry in page["sessions"]], page["damaged"]) == (["s"], [])
        await read_page(client, "s", None)
        await read_conversation(client, "s")
        await executor.get_snapshot("s")
        again = await _export(client, "s")
        read_export(again.lines())
        with suppress(AgentNotFoundError):  # the session of another project
            await go_on(client, executor)
    executor = new_executor(store)
    assert await executor.delete("s")
    left = await store.query("sessions", "s") + await store.query("streams", "s")
    assert not left, left


async def go_on(client: HelixClient, executor: LocalExecutor) -> None:
    state = await client.get_session("s")
    who = executor.registry.get(state.agent_type) or BOSS
    if state.status == "paused":
        for call in state.pending:
            handle = await executor.resume(who, "s", confirmation=Confirmation(call.call_id))
    else:
        handle = await executor.execute(who, "go", session_id="s")
    result = await handle.result(timeout_s=PATIENCE_S)
    assert result.status in ("completed", "failed"), result
    with redirect_stdout(io.StringIO()):
        await watch(client, Where(), "s", follow=False, json=True)
    handle = await executor.execute(who, "again", session_id="s")
    assert (await handle.result(timeout_s=PATIENCE_S)).status == "completed"
    await executor.abort(who, "s")


async def walk(seed: int, count: int) -> tuple[int, list[str]]:
    export, problems, taken = await exported(), list[str](), 0
    found = [damage for row in export.rows for damage in damages(row)]
    for damage in random.Random(seed).sample(found, count):
        store = MemoryStateStore()
        try:
            read = read_export(changed(export, damage))
        except InvalidInputError as error:
            if "line" not in str(error) and "session" not in str(error):
                problems.append(f"refused: {damage}: names nothing: {error}")
            continue
        except Exception as error:
            problems.append(f"read: {damage}: {type(error).__name__}: {str(error)[:200]}")
            continue
        taken += 1
        try:
            async with asyncio.timeout(WAIT_S + PATIENCE_S * 3):  # an export waits for the run's end in its stream
                await import_session(store, read, SystemClock(), SystemIds())
                await live_on(store)
        except Exception as error:
            problems.append(f"taken: {damage}: {type(error).__name__}: {str(error)[:200]}")
    return taken, problems


async def test_what_an_export_has_is_taken() -> None:
    store, export = MemoryStateStore(), await exported()
    await import_session(store, read_export(export.lines()), SystemClock(), SystemIds())
    await live_on(store)


async def test_a_changed_field() -> None:
    taken, problems = await walk(1, FEW)
    assert problems == [] and 0 < taken < FEW / 2


@pytest.mark.slow
async def test_many_changed_fields() -> None:
    _, problems = await walk(2, 1_000)
    assert problems == []
