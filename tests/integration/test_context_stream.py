"""The stream tells readers once that the model's view of a conversation has changed."""

from __future__ import annotations

from tests.support.long_conversation import CLEARS, SUMMARISES, SUMMARY, looking_agent, looking_model

from helix import LocalExecutor
from helix.core.chunks import ContextChangedChunk
from helix.core.context_policy import Context


async def changes_under(context: Context) -> list[ContextChangedChunk]:
    async with LocalExecutor(":memory:", model=looking_model()) as executor:
        handle = await executor.execute(looking_agent(context), "Look at everything.")
        chunks = [chunk async for chunk in await handle.stream()]
        assert (await handle.result()).status == "completed"
    return [chunk for chunk in chunks if isinstance(chunk, ContextChangedChunk)]


async def test_a_summary_is_on_the_stream_once() -> None:
    changes = await changes_under(SUMMARISES)
    assert changes
    assert [change.summary for change in changes] == [SUMMARY] * len(changes)
    assert len({change.step for change in changes}) == len(changes)


async def test_a_clearing_is_on_the_stream_once() -> None:
    changes = await changes_under(CLEARS)
    assert changes
    assert [change.hidden for change in changes] == [0] * len(changes)
    assert len({change.step for change in changes}) == len(changes)
