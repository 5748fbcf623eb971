"""Tags of sessions: `change_tags` at any moment costs a run nothing, and no tag is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.integration.test_compact import gated
from tests.support.context_talk import S, Talk, agent, check, talk
from tests.support_gateway import Desk, started
from tests.support_run import Gate

from helix import LocalExecutor, MemoryStateStore
from helix.adapters.models.scripted import ScriptedModel
from helix.core.context_policy import Context
from helix.core.errors import InvalidInputError, SessionNotFoundError
from helix.ports.state_store import Operation
from helix.services.session_calls import session_calls

DESK = agent(Context())


class Hammered(MemoryStateStore):
    """A store in which a person adds a tag before each of a worker's writes."""

    executor: LocalExecutor | None = None
    writes = 0

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        worker = name in ("claim_step", "stage", "commit", "fold") or name.startswith("end_")
        if self.executor is not None and worker:
            self.writes += 1
            if self.writes % 2:  # else the worker's repeat, which is let through
                await self.executor.change_tags(S, add=[f"t{self.writes}"])
        await super().transact(name, operations)


async def test_a_tag_before_every_write_costs_no_answer_and_is_kept() -> None:
    said, store = Talk(), Hammered()
    async with LocalExecutor(store=store, model=said.adapter()) as executor:
        store.executor = executor
        for turn in range(4):
            result = await (await executor.execute(DESK, f"question {turn}", session_id=S, tags=["new"])).result()
            assert result.status == "completed", result.error
        tags = (await executor.sessions.get(S)).tags
    assert store.writes > 8 and tags == ["new", *(f"t{n}" for n in range(1, store.writes + 1, 2))]
    assert {call.outcome for call in await session_calls(store, S)} == {"answered"}
    assert len(said.prompts) == 4 * 2, "no answer was bought twice"
    await check(store)


async def test_tags_of_several_callers_during_a_model_call_outlast_the_run() -> None:
    said, gate, store = Talk(), Gate(), MemoryStateStore()
    model = ScriptedModel([gated(gate, said)], repeat=True, record=False)
    async with LocalExecutor(store=store, model=model) as executor:
        handle = await executor.execute(DESK, "question", session_id=S, tags=["old", "stays"])
        await gate.reached()
        adds = [executor.change_tags(S, add=[f"  of\n{n} ", f"of {n}"]) for n in range(5)]
        await asyncio.gather(*adds, executor.change_tags(S, remove=["old", "none"]))
        gate.open()
        assert (await handle.result()).status == "completed"
        tags = (await executor.sessions.get(S)).tags
    assert tags[0] == "stays" and sorted(tags[1:]) == [f"of {n}" for n in range(5)]
    assert len(said.prompts) == 2
    await check(store)


async def test_a_repeat_writes_nothing_and_a_tag_in_both_is_kept() -> None:
    store = await talk(DESK, Talk(), turns=1)
    async with LocalExecutor(store=store) as executor:
        version = (await executor.sessions.get(S)).version
        for _ in range(2):
            assert await executor.change_tags(S, add=["a", "b"]) == ["a", "b"]
        assert (await executor.sessions.get(S)).version == version + 1
        assert await executor.change_tags(S, add=["a"], remove=["a", "b"]) == ["a"]
        assert (await executor.branch(S)).tags == ["a"]


async def test_a_tag_that_cannot_be_is_refused() -> None:
    store = await talk(DESK, Talk(), turns=1)
    async with LocalExecutor(store=store) as executor:
        many = [f"t{n}" for n in range(50)]
        assert await executor.change_tags(S, add=many) == many
        with pytest.raises(InvalidInputError, match=f"session {S!r} would have 51 tags; the limit is 50"):
            await executor.change_tags(S, add=["one more"])
        for bad in (" \n", "x" * 257, "a \ud800"):
            with pytest.raises(InvalidInputError, match="a tag"):
                await executor.change_tags(S, add=[bad])
        with pytest.raises(SessionNotFoundError):
            await executor.change_tags("none", add=["x"])
        assert (await executor.sessions.get(S)).tags == many
        assert await executor.change_tags(S, add=["one more"], remove=["t0"]) == [*many[1:], "one more"]


async def test_the_list_finds_a_session_by_its_new_tag(desk: Desk) -> None:
    place = (await started(desk))["session_id"]
    await started(desk)
    assert await desk.result("ada", "change_tags", session_id=place, add=["north"]) == {"tags": ["north"]}

    async def found(tag: str) -> list[str]:
        listed = await desk.result("ada", "list_sessions", tag=tag, facets=True)
        return [one["session_id"] for one in listed["sessions"]]

    assert await found("north") == [place] == await found("north"), "also once the index has it"
    await desk.result("ada", "change_tags", session_id=place, remove=["north"], add=["south"])
    assert (await found("north"), await found("south")) == ([], [place])
