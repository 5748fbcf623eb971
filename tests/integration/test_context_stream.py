"""The stream tells readers once that the model's view of a conversation has changed."""

from __future__ import annotations

from typing import Any

from tests.support_run import agent

from helix import LocalExecutor, ScriptedModel, tool
from helix.core.chunks import ContextChangedChunk
from helix.core.context_policy import Context

SUMMARY = "The user wants to see everything."
STEPS = 12


@tool
async def look(number: int) -> str:
    """Look at something long."""
    return f"{number}: " + "word " * 700


def model() -> ScriptedModel:
    looked = 0

    def answer(request: Any) -> dict[str, Any]:
        nonlocal looked
        if "Write a summary" in (request.messages[-1].content or ""):
            return {"content": SUMMARY}
        looked += 1
        if looked == STEPS:
            return {"content": "That is everything."}
        return {"tool_calls": [{"id": f"call_{looked}", "name": "look", "arguments": {"number": looked}}]}

    return ScriptedModel([answer], repeat=True)


async def changes_under(context: Context) -> list[ContextChangedChunk]:
    looking = agent("looker", tools=[look], context=context)
    async with LocalExecutor(":memory:", model=model()) as executor:
        handle = await executor.execute(looking, "Look at everything.")
        chunks = [chunk async for chunk in await handle.stream()]
        assert (await handle.result()).status == "completed"
    return [chunk for chunk in chunks if isinstance(chunk, ContextChangedChunk)]


async def test_a_summary_is_on_the_stream_once() -> None:
    changes = await changes_under(
        Context(window=9_000, clear_at=None, summarise_at=0.6, keep_steps=2, summariser="same")
    )
    assert changes
    assert [change.summary for change in changes] == [SUMMARY] * len(changes)
    assert len({change.step for change in changes}) == len(changes)


async def test_a_clearing_is_on_the_stream_once() -> None:
    changes = await changes_under(Context(window=9_000, clear_at=0.5, keep_steps=2))
    assert changes
    assert [change.hidden for change in changes] == [0] * len(changes)
    assert len({change.step for change in changes}) == len(changes)
