"""A step that loses the provider's cache says so, with the reason: in its row, in metrics and on the command line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.command_line import CommandLine
from tests.support_measures import Heard, used
from tests.support_run import World, a_tool, agent, call, calls, play, result_of

from helix import LocalExecutor, MemoryStateStore, ScriptedModel, ToolContext
from helix.core.chunks import StepCommittedChunk
from helix.core.context_policy import Context, KeepLast
from helix.core.entries import AssistantRow
from helix.core.lost_caches import LostCache
from helix.fleet.prometheus import Figures, model_totals, render
from helix.ports.state_store import StateStore
from helix.services.segments import SegmentStreams
from helix.sessions.session_rows import read_session_rows
from helix.testing.clocks import ShiftedClock
from helix.testing.crash import Crash, CrashPoints

S = "talk"


class Mood(BaseModel):
    mood: str = "calm"


async def feel(_: Any, ctx: ToolContext[Mood]) -> str:
    ctx.update_state(lambda state: setattr(state, "mood", "glad"))
    return "felt"


LOOK = a_tool("look", lambda _, __: "found")
STEADY = agent("steady", tools=[LOOK])
MOODY = agent(
    "moody", tools=[a_tool("feel", feel)], state_schema=Mood, system_prompt=lambda state: f"You are {state.mood}."
)


def answer(entry: Any, prompt: int, cached: int = 0, written: int = 0, **fields: Any) -> dict[str, Any]:
    """Return a script entry that read and wrote these tokens of the provider's cache."""
    return {**entry, **fields, "usage": used(prompt, cached_tokens=cached, written_tokens=written).model_dump()}


def script(tool: str, **second: Any) -> list[Any]:
    """Return two answers. The first writes 20,000 tokens to the cache, and the second reads none of them."""
    return [answer(calls(call(tool)), 20_000, written=20_000), answer({"content": "Done."}, 21_000, **second)]


async def answers(store: StateStore, session_id: str = S) -> list[AssistantRow]:
    rows = await read_session_rows(store, session_id)
    return [entry for entry in rows.entries.values() if isinstance(entry, AssistantRow)]


async def losses(store: StateStore, session_id: str = S) -> list[tuple[LostCache | None, int]]:
    return [(row.lost_cache, row.usage.lost_tokens) for row in await answers(store, session_id)]


async def test_a_prompt_that_is_read_from_the_cache_loses_nothing(quick_world: World) -> None:
    heard = Heard()
    executor = quick_world.executor(script("look", cached=19_900), metrics=heard)
    await play(executor, STEADY, session_id=S)
    assert await losses(executor.store) == [(None, 0), (None, 0)]
    assert heard.total("PromptCacheLosses") == 0


async def test_a_changed_system_prompt_is_the_reason_everywhere(quick_world: World) -> None:
    heard = Heard()
    executor = quick_world.executor(script("feel"), metrics=heard)
    _, result, chunks = await play(executor, MOODY, session_id=S)
    assert await losses(executor.store) == [(None, 0), ("system_prompt", 20_000)]
    assert result.usage.lost_tokens == 20_000 and result.usage.written_tokens == 20_000
    (measured,) = heard.with_("PromptCacheLosses")
    assert (measured.values, measured.agent) == ({"PromptCacheLosses": 1}, "moody")
    expected = {"reason": "system_prompt", "tokens": 20_000, "step": 2, "model": "scripted"}
    assert expected.items() <= measured.details.items()
    marks = [chunk.lost_cache for chunk in chunks if isinstance(chunk, StepCommittedChunk)]
    assert marks == [None, "system_prompt"]
    totals = await model_totals(executor.store)
    page, _ = render(Figures(uptime_s=1, ready=True, totals=totals))
    assert 'helix_llm_lost_cache_tokens_total{agent="moody",model="scripted"} 20000.0' in page


@pytest.mark.parametrize(
    ("second", "ahead_s", "reason"),
    [({}, 0, "provider"), ({}, 301, "expired"), ({"model": "a-fallback"}, 301, "model")],
)
async def test_the_next_turn_is_compared_with_the_last_one(second: Any, ahead_s: float, reason: str) -> None:
    store, plan = MemoryStateStore(), [answer({"content": "One."}, 20_000, written=20_000)]
    async with LocalExecutor(store, model=ScriptedModel(plan)) as executor:
        await play(executor, STEADY, session_id=S)
    plan = [answer({"content": "Two."}, 20_500, **second)]
    async with LocalExecutor(store, model=ScriptedModel(plan), clock=ShiftedClock(ahead_s)) as executor:
        await play(executor, STEADY, session_id=S)
        assert await losses(store) == [(None, 0), (reason, 20_000)]


async def test_other_tools_are_the_reason_after_a_deployment() -> None:
    store, plan = MemoryStateStore(), [answer({"content": "One."}, 20_000, written=20_000)]
    async with LocalExecutor(store, model=ScriptedModel(plan)) as executor:
        await play(executor, STEADY, session_id=S)
    with_more = agent("steady", tools=[LOOK, a_tool("smell", lambda _, __: "roses")])
    plan = [answer({"content": "Two."}, 20_500)]
    async with LocalExecutor(store, model=ScriptedModel(plan)) as executor:
        await play(executor, with_more, session_id=S)
        assert await losses(store) == [(None, 0), ("tools", 20_000)]


async def test_a_rewound_history_is_compared_with_its_own_last_answer(quick_world: World) -> None:
    plan = [
        answer({"content": "One."}, 20_000, written=20_000),
        answer({"content": "Two."}, 40_000, cached=20_000, written=20_000),
        answer({"content": "Again."}, 39_000, cached=19_000, written=20_000),
    ]
    executor = quick_world.executor(plan)
    await play(executor, STEADY, session_id=S)
    first = (await executor.sessions.list_checkpoints(S)).items[0].id
    await play(executor, STEADY, "and now?", session_id=S)
    handle = await executor.resume(STEADY, S, mode="from_checkpoint", checkpoint_id=first, message="or now?")
    await result_of(handle)
    assert await losses(executor.store) == [(None, 0)] * 3, "the second answer's 40,000 tokens are not expected"


async def test_a_hidden_history_is_the_reason_though_it_adds_a_tool(quick_world: World) -> None:
    plan = [
        answer({"content": "One."}, 20_000, written=20_000),
        answer({"content": "Two."}, 20_500, cached=20_000, written=500),
        answer({"content": "Three."}, 9_000, cached=1_000, written=8_000),
    ]
    executor = quick_world.executor(plan)
    for context in (Context(), Context(), Context(policies=[KeepLast(1)])):
        who = agent("steady", tools=[LOOK], context=context)
        await play(executor, who, session_id=S)
    assert await losses(executor.store) == [(None, 0), (None, 0), ("history", 8_000)]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_step_that_is_tried_again_loses_its_cache_once(when: str) -> None:
    """The worker dies before or after the write of the second answer."""
    store, heard = MemoryStateStore(), Heard()
    points = CrashPoints((f"transact:commit:{when}", 0))
    streams = points.streams(SegmentStreams(points.store(store)))
    model = ScriptedModel(script("look"))
    dying = LocalExecutor(points.store(store), streams=streams, model=model, metrics=heard)
    with pytest.raises(Crash):
        await points.unless_crashed(_run(dying))
    assert heard.total("PromptCacheLosses") == 0, "the dead worker did not live to count it"
    if when == "before":
        model, later = ScriptedModel([answer({"content": "Done."}, 21_000)]), ShiftedClock(60)
        async with LocalExecutor(store, model=model, clock=later, metrics=heard) as executor:
            await asyncio.wait_for(result_of(await executor.resume(STEADY, S)), 60)
        assert heard.total("PromptCacheLosses") == 1
    assert await losses(store) == [(None, 0), ("provider", 20_000)]
    session = (await read_session_rows(store, S)).session
    assert session is not None and session.usage.lost_tokens == 20_000


async def _run(executor: LocalExecutor) -> None:
    await (await executor.execute(STEADY, "go", session_id=S)).result()


async def test_the_command_line_shows_which_step_lost_its_cache(tmp_path: Path) -> None:
    world = World("sqlite", tmp_path)
    await play(world.executor(script("feel")), MOODY, session_id=S)
    await world.close()
    helix = CommandLine(tmp_path)
    shown, cost = await asyncio.to_thread(helix, "show", S), await asyncio.to_thread(helix, "cost", S)
    assert "lost caches" in shown.out and "step 2  the system prompt changed" in shown.out
    assert "20,000 lost from a cache" in shown.out
    assert "lost 20,000 tokens of the provider's cache" in " ".join(cost.out.split())
