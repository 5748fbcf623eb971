"""Titles of sessions: `rename` at any moment costs a run nothing, and no title is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.integration.test_compact import gated
from tests.integration.test_damaged_reads import opened
from tests.support.context_talk import S, Talk, agent, check, history, talk
from tests.support_gateway import Desk, started
from tests.support_run import Gate

from helix import LocalExecutor, MemoryStateStore
from helix.adapters.models.scripted import ScriptedModel
from helix.adapters.system import SystemClock, SystemIds
from helix.cli.sessions.files import _export
from helix.core.context_policy import Context
from helix.core.errors import DamagedRowError, InvalidInputError, SessionNotFoundError
from helix.engine.history import session_key
from helix.ports.state_store import Operation, Update
from helix.services.session_calls import session_calls
from helix.sessions.exports import read_export
from helix.sessions.imports import import_session

DESK = agent(Context())


class Hammered(MemoryStateStore):
    """A store in which a person renames the session before each of a worker's writes."""

    executor: LocalExecutor | None = None
    renamed = 0

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        worker = name in ("claim_step", "stage", "commit", "fold") or name.startswith("end_")
        if self.executor is not None and worker:
            self.renamed += 1
            if self.renamed % 2:  # else the worker's repeat, which is let through
                await self.executor.rename(S, f"Title {self.renamed}")
        await super().transact(name, operations)


async def test_a_title_before_every_write_costs_no_answer_and_is_kept() -> None:
    said, store = Talk(), Hammered()
    async with LocalExecutor(store=store, model=said.adapter()) as executor:
        store.executor = executor
        for turn in range(4):
            result = await (await executor.execute(DESK, f"question {turn}", session_id=S)).result()
            assert result.status == "completed", result.error
        last = store.renamed - (store.renamed + 1) % 2
        assert last > 8 and (await executor.sessions.get(S)).title == f"Title {last}"
    assert {call.outcome for call in await session_calls(store, S)} == {"answered"}
    assert len(said.prompts) == 4 * 2, "no answer was bought twice"
    assert len(await history(store)) == 4 * 4
    await check(store)


async def test_a_title_during_a_model_call_outlasts_the_run() -> None:
    said, gate, store = Talk(), Gate(), MemoryStateStore()
    async with LocalExecutor(
        store=store, model=ScriptedModel([gated(gate, said)], repeat=True, record=False)
    ) as executor:
        handle = await executor.execute(DESK, "question", session_id=S)
        await gate.reached()
        named = await asyncio.gather(*(executor.rename(S, f"  Kettles\n{n} ") for n in range(5)))
        assert sorted(named) == [f"Kettles {n}" for n in range(5)]
        title = (await executor.sessions.get(S)).title
        assert title in named
        gate.open()
        assert (await handle.result()).status == "completed"
        assert (await executor.sessions.get(S)).title == title
    assert len(said.prompts) == 2
    await check(store)


async def test_a_title_goes_with_copies_and_exports() -> None:
    store = await talk(DESK, Talk(), turns=1)
    async with LocalExecutor(store=store) as executor:
        version = (await executor.sessions.get(S)).version
        await executor.rename(S, "Kettles")
        await executor.rename(S, "Kettles")
        assert (await executor.sessions.get(S)).version == version + 1, "a repeat writes nothing"
        assert (await executor.branch(S)).title == "Kettles"
    async with opened(store) as (client, _):
        lines = [*(await _export(client, S)).lines()]
    other = MemoryStateStore()
    await import_session(other, read_export(lines), SystemClock(), SystemIds())
    async with LocalExecutor(store=other) as executor:
        assert (await executor.sessions.get(S)).title == "Kettles"
        assert await executor.rename(S, " \n ") == ""
        assert (await executor.sessions.get(S)).title == ""
    await check(other)


async def test_a_session_that_is_rebuilt_after_damage_keeps_its_title() -> None:
    store = await talk(DESK, Talk(), turns=1)
    async with LocalExecutor(store=store, model=Talk().adapter()) as executor:
        await executor.rename(S, "Kettles")
        await store.transact("damage", [Update(session_key(S), set={"count": "many"})])
        with pytest.raises(DamagedRowError):
            await executor.sessions.get(S)
        await executor.abort(DESK, S)
        assert (await executor.sessions.get(S)).title == "Kettles"


async def test_a_title_that_cannot_be_is_refused() -> None:
    store = await talk(DESK, Talk(), turns=1)
    async with LocalExecutor(store=store) as executor:
        assert await executor.rename(S, "x" * 120) == "x" * 120
        with pytest.raises(InvalidInputError, match="title has 121 characters; the limit is 120"):
            await executor.rename(S, "x" * 121)
        with pytest.raises(InvalidInputError, match="title"):
            await executor.rename(S, "a \ud800")
        with pytest.raises(SessionNotFoundError):
            await executor.rename("none", "x")
        assert (await executor.sessions.get(S)).title == "x" * 120


async def test_the_list_has_the_title_and_finds_it(desk: Desk) -> None:
    place = (await started(desk))["session_id"]
    await started(desk)
    assert await desk.result("ada", "rename", session_id=place, title=" All  kettles") == {"title": "All kettles"}
    for asked in (True, False):
        listed = (await desk.result("ada", "list_sessions", titles=asked))["sessions"]
        assert [one["title"] for one in listed] == ["hi" if asked else "", "All kettles"]
    found = await desk.result("ada", "list_sessions", text="KETTLES")
    assert [one["session_id"] for one in found["sessions"]] == [place]
    assert (await desk.result("ada", "get_session", session_id=place))["session"]["title"] == "All kettles"
    assert await desk.result("ada", "rename", session_id=place, title="") == {"title": ""}
    listed = (await desk.result("ada", "list_sessions", titles=True))["sessions"]
    assert [one["title"] for one in listed] == ["hi", "hi"]
