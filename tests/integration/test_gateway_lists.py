"""Requests for long lists and long sessions: a search by the service, and the newest part of a conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.support_run import Nothing, a_tool, agent, call, calls

from helix import LocalExecutor, MemoryStateStore, ScriptedModel, ToolContext
from helix.adapters.models.scripted import Entry
from helix.client import HelixClient
from helix.gateway.loopback import LoopbackGateway
from helix.sessions import search

SESSIONS = 203


async def tick(given: Nothing, ctx: ToolContext[Any]) -> str:
    return "tock"


@pytest_asyncio.fixture
async def executor() -> AsyncIterator[LocalExecutor]:
    script: dict[str, list[Entry]] = {"helper": ["Hello."] * SESSIONS, "counter": [*[calls(call("tick"))] * 4, "Done."]}
    async with LocalExecutor(MemoryStateStore(), model=ScriptedModel(script)) as made:
        yield made


async def _all(client: HelixClient, **filters: Any) -> tuple[list[Any], int]:
    """Return the items of all pages, and the number of pages."""
    found: list[Any] = []
    after, pages = None, 0
    while pages == 0 or after is not None:
        page: Any = await client.list_sessions(after=after, **filters)
        found, after, pages = [*found, *page["sessions"]], page["cursor"], pages + 1
    return found, pages


async def test_words_are_looked_for_in_all_sessions_a_bounded_part_at_a_time(
    executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "LOOKS", 2)
    monkeypatch.setattr(search, "ENTRIES", 60)
    for n in range(SESSIONS):
        handle = await executor.execute(
            agent("helper"), f"Question {n:04}:\n where is it?", tags=["odd" if n % 2 else "even"]
        )
        await handle.result()
    async with LoopbackGateway(executor) as gateway, HelixClient(gateway.url) as client:
        (found,), pages = await _all(client, text="WHERE question 0000:", titles=True)
        assert found["title"] == "Question 0000: where is it?"
        assert pages == 2, "one reply looks at this many sessions, at most"
        ends = sum(1 for n in range(SESSIONS) if n % 100 == 13)
        assert len((await _all(client, text="question 13: odd"))[0]) == ends > 1, "a word may be in a tag"
        assert [one["session_id"] for one in (await _all(client, text=found["session_id"]))[0]] == [found["session_id"]]
        assert (await _all(client, text="question elsewhere"))[0] == []


async def test_a_snapshot_has_its_newest_messages_where_it_is_asked_for_them(executor: LocalExecutor) -> None:
    handle = await executor.execute(agent("counter", tools=[a_tool("tick", tick)]), "Count")
    await handle.result()
    async with LoopbackGateway(executor) as gateway, HelixClient(gateway.url) as client:
        whole: dict[str, Any] = await client.get_snapshot(handle.session_id)
        reply: Any = await client.ask("get_session", {"session_id": handle.session_id, "snapshot": True, "newest": 3})
        part = reply["snapshot"]
        assert len(whole["messages"]) == 10 and whole["offset"] == 0
        assert part["messages"] == whole["messages"][7:] and part["offset"] == 7
        assert (part["sequence"], part["checkpoint_id"]) == (whole["sequence"], whole["checkpoint_id"])
        before: Any = await client.ask("get_session", {"session_id": handle.session_id, "messages": 5, "before": 7})
        assert before["messages"] == whole["messages"][2:7] and before["offset"] == 2
