"""Any damage to any row: each way to read returns what it can, or an error that names the row.

Rule: nothing hangs, no other session is hidden, every error is one of Helix, and `delete` works.
"""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, redirect_stdout
from typing import Any

import pytest
from tests.support.chat_screen import Here
from tests.support.row_damage import Damage, copy_of, damages, new_executor, play_session, put, storable

from helix import LocalExecutor, MemoryStateStore
from helix.cli.run.follow import open_questions
from helix.cli.sessions import files, tail
from helix.cli.sessions.cost import read_ledger
from helix.cli.sessions.files import _export
from helix.cli.sessions.html import read_conversation
from helix.cli.sessions.page import read_page
from helix.cli.sessions.tail import watch
from helix.cli.where import Where
from helix.client import HelixClient
from helix.client.polling import PollingLink
from helix.core.errors import HelixError
from helix.ports.state_store import Key, Row
from helix.sessions import snapshots

PATIENCE_S = 2.0
FEW = 60
Door = Callable[[HelixClient, LocalExecutor, str], Awaitable[Any]]


async def by_tail(client: HelixClient, executor: LocalExecutor, session_id: str) -> None:
    with redirect_stdout(io.StringIO()):
        await watch(client, Where(), session_id, follow=False, json=True)


async def by_list(client: HelixClient, executor: LocalExecutor, session_id: str) -> None:
    page: dict[str, Any] = dict(await client.list_sessions(limit=50, titles=True))
    names = [entry["session_id"] for entry in page["sessions"]]
    assert "other" in names and "s" in [*names, *page["damaged"]], page
    listed = await executor.sessions.list_sessions()
    assert "other" in [state.session_id for state in listed.sessions]
    waiting: dict[str, Any] = dict(await client.list_sessions(limit=50, waiting=True))
    assert "s" in [*names, *waiting["damaged"], *page["damaged"]]


async def by_points(client: HelixClient, executor: LocalExecutor, session_id: str) -> None:
    listed: dict[str, Any] = dict(await client.list_checkpoints(session_id, limit=50))
    for point in listed["checkpoints"]:
        await client.ask("get_checkpoint", {"session_id": session_id, "checkpoint_id": point["id"]})
        await executor.sessions.get_checkpoint_messages(session_id, point["id"])


async def by_steps(client: HelixClient, executor: LocalExecutor, session_id: str) -> None:
    for step in (1, 2):
        await client.ask("get_step", {"session_id": session_id, "step": step})


DOORS: dict[str, Door] = {
    "list": by_list,
    "get": lambda client, executor, session_id: client.get_session(session_id),
    "show": lambda client, executor, session_id: read_page(client, session_id, None),
    "html": lambda client, executor, session_id: read_conversation(client, session_id),
    "snapshot": lambda client, executor, session_id: executor.get_snapshot(session_id),
    "questions": lambda client, executor, session_id: open_questions(client.get_session, session_id),
    "tail": by_tail,
    "export": lambda client, executor, session_id: _export(client, session_id),
    "cost": lambda client, executor, session_id: read_ledger(client, Where(), session_id, "kinesis"),
    "get_cost": lambda client, executor, session_id: client.ask("get_cost", {"session_id": session_id}),
    "checkpoints": by_points,
    "latest": lambda client, executor, session_id: executor.sessions.get_latest_checkpoint(session_id),
    "steps": by_steps,
    "conversation": lambda client, executor, session_id: executor.sessions.load_conversation_messages(session_id),
    "runs": lambda client, executor, session_id: executor.sessions.list_runs(session_id),
    "run": lambda client, executor, session_id: executor.sessions.get_current_run(session_id),
    "can resume": lambda client, executor, session_id: executor.sessions.can_resume(session_id),
}


@asynccontextmanager
async def opened(store: MemoryStateStore) -> AsyncIterator[tuple[HelixClient, LocalExecutor]]:
    executor = new_executor(store)
    async with HelixClient.over(PollingLink(Here(executor), poll_s=0.01)) as client:
        yield client, executor


async def read_by_all(store: MemoryStateStore, damage: Damage, problems: list[str]) -> None:
    async with opened(store) as (client, executor):
        for name, door in DOORS.items():
            session_id = damage.key.partition if name not in ("list", "export", "cost") else "s"
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await door(client, executor, session_id)
            except HelixError as error:
                names = (damage.key.partition, damage.key.sort, damage.other)  # a reference to a missing object
                if name == "list" or not any(repr(one) in str(error) for one in names):
                    problems.append(f"{name}: {damage}: {type(error).__name__} names nothing: {error}")
            except Exception as error:
                problems.append(f"{name}: {damage}: {type(error).__name__}: {str(error)[:300]}")


async def delete_it(store: MemoryStateStore, damage: Damage, problems: list[str]) -> None:
    executor = new_executor(store)
    try:
        async with asyncio.timeout(PATIENCE_S):
            if damage.key.table == "sessions" and damage.key.sort == "session":
                boss = executor.registry.get("boss")
                assert boss is not None
                await executor.abort(boss, damage.key.partition)  # a run that claims to be running
            assert await executor.delete("s")
            left = await store.query("sessions", "s") + await store.query("streams", "s")
            assert not left, left
    except Exception as error:
        problems.append(f"delete: {damage}: {type(error).__name__}: {str(error)[:300]}")


def chosen(rows: list[Row], seed: int, count: int) -> list[Damage]:
    """Choose some damages for each row, over all kinds of fields."""
    found = [damage for row in rows for damage in damages(row) if storable(damage)]
    return random.Random(seed).sample(found, count)


@pytest.fixture(autouse=True)
def quick_to_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tail, files, snapshots):
        monkeypatch.setattr(module, "WAIT_S", 0.05)


async def walk(seed: int, count: int) -> list[str]:
    store, problems = MemoryStateStore(), list[str]()
    rows = await play_session(store)
    for damage in chosen(rows, seed, count):
        damaged = copy_of(store)
        await put(damaged, damage)
        await read_by_all(damaged, damage, problems)
        await delete_it(damaged, damage, problems)
    return problems


async def test_a_damaged_field() -> None:
    assert await walk(1, FEW) == []


@pytest.mark.slow
async def test_many_damaged_fields() -> None:
    assert await walk(2, 600) == []


async def test_a_running_session_without_its_staged_answer_is_aborted_and_deleted() -> None:
    store = MemoryStateStore()
    rows = await play_session(store)
    (session,) = [row for row in rows if row.key == Key("sessions", "s", "session")]
    lost = next(d for d in damages(session) if str(d).startswith("sessions/s/session lineage = -1"))
    problems: list[str] = []
    await put(store, lost)
    await delete_it(store, lost, problems)
    assert problems == []
