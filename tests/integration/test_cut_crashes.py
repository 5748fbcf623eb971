"""A process dies at every write while an interrupt cuts an answer off: the text is kept once, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.journal import Journal
from tests.support.usage_invariants import find_usage_problems
from tests.support_crash import CONFIG, LONG, LoggedModel, Notes, S, call, choose, executor, fresh, look, quiet, settle
from tests.support_run import told

from helix import Agent, LocalExecutor, MemoryStateStore, ScriptedModel
from helix.adapters.models.playback import notify
from helix.core.prompt import GO_ON
from helix.ports.model import LLMGenerateInput
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.testing.crash import CrashPoints, Point, crash_everywhere

WORKERS: list[LocalExecutor] = []
STOPPING: list[bool] = []
DYING: list[CrashPoints] = []
SEEN: list[list[str]] = []
talker = Agent(
    name="talker", system_prompt="Talk.", tools=[look], state_schema=Notes, llm_config=CONFIG, keep_partial=True
)


async def cut(request: LLMGenerateInput) -> str:
    """Answer the second step: stream a part of it and interrupt the run. A later process answers in full."""
    SEEN.append(told(request.messages[1:]))
    if not STOPPING:
        return "whole"
    for piece in ("half ", "a sen"):
        await notify(request.callbacks.on_text_delta, piece)
    await WORKERS[-1].interrupt(S, "enough")
    await DYING[-1].unless_crashed(forever())
    raise AssertionError("unreachable")


async def forever() -> None:
    await asyncio.Event().wait()


async def test_the_text_is_kept_once_or_not_at_all() -> None:
    fresh()
    script: list[Any] = [{"content": "First.", "tool_calls": [call("look", topic="a")]}, cut, cut]
    scripted = LoggedModel(ScriptedModel({"talker": script}, by="position"))
    has_cut: list[bool] = []

    async def act(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        STOPPING[:], DYING[:] = [True], [points]
        WORKERS[:] = [executor(store, streams, scripted)]
        handle = await WORKERS[-1].execute(talker, "begin", session_id=S)
        assert (await handle.result(timeout_s=20)).status == "interrupted"
        await quiet(WORKERS[-1])

    async def recover(store: StateStore, streams: StreamManager, point: Point) -> None:
        STOPPING.clear()
        journal = Journal()
        await journal.check(store, streams, S)
        workers = executor(store, streams, scripted, LONG)
        if not await workers.sessions.exists(S):
            return
        assert await settle(workers, talker, S) == "completed"
        await journal.check(store, streams, S, at_rest=True)
        assert not await find_usage_problems(store, S)
        said = told((await workers.sessions.get_messages(S, limit=100)).messages)
        begin = ["user: begin", "assistant: First.[look]", "tool: a: found"]
        has_cut.append("assistant: half a sen" in said)
        assert said == [*begin, *(["assistant: half a sen"] if has_cut[-1] else []), "assistant: whole"], (point, said)
        assert (f"user: {GO_ON}" in SEEN[-1]) == has_cut[-1]

    covered = await crash_everywhere(MemoryStateStore, act, recover, choose=choose)
    assert covered and {True, False} == set(has_cut)
