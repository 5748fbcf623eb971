"""The blocks of `helix chat` while chunks arrive one at a time."""

from __future__ import annotations

import pytest
from tests.support.chat_screen import screen
from tests.support_gateway import executor_of

from helix.core.chunks import StepCommittedChunk, StreamChunk, ToolEndChunk, ToolStartChunk

pytestmark = pytest.mark.slow


async def test_calls_that_the_stream_brings_after_their_step_was_drawn_are_drawn() -> None:
    chunks: list[StreamChunk] = [
        StepCommittedChunk(step=1, attempt=1),
        ToolStartChunk(step=1, attempt=1, tool_call_id="one", tool_name="first", arguments={}),
        ToolEndChunk(step=1, attempt=1, tool_call_id="one", tool_name="first", success=True, result="1"),
        ToolStartChunk(step=1, attempt=1, tool_call_id="two", tool_name="second", arguments={}),
        ToolEndChunk(step=1, attempt=1, tool_call_id="two", tool_name="second", success=True, result="2"),
    ]
    async with screen(executor_of([])) as s:
        for chunk in chunks:
            s.app.session.conversation.add(chunk)
            s.app._mark_changed()
            await s.app._draw()
        await s.until("first() → 1")
        await s.until("second() → 2")
