"""The blocks of `helix chat` while chunks arrive one at a time."""

from __future__ import annotations

import pytest
from tests.support.chat_screen import screen
from tests.support_gateway import executor_of

from helix.cli.chat.blocks import CallBlock, Summarised
from helix.core.chunks import (
    ContextChangedChunk,
    OutputDeltaChunk,
    StepCommittedChunk,
    StepDiscardedChunk,
    StreamChunk,
    TextDeltaChunk,
    ToolEndChunk,
    ToolStartChunk,
)
from helix.core.files import FilePart

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


async def test_the_files_of_a_result_are_named() -> None:
    label = FilePart(
        kind="image", media_type="image/png", sha256="a" * 64, name="label.png", width=6, height=4, size=90
    )
    call = {"step": 1, "attempt": 1, "tool_call_id": "one", "tool_name": "scan"}
    chunks: list[StreamChunk] = [
        StepCommittedChunk(step=1, attempt=1),
        ToolStartChunk(**call),
        ToolEndChunk(**call, result="Seen", files=[label]),
    ]
    async with screen(executor_of([])) as s:
        for chunk in chunks:
            s.app.session.conversation.add(chunk)
        s.app._mark_changed()
        await s.app._draw()
        await s.until("scan() → Seen + 1 file")
        s.app.query_one(CallBlock).toggle()
        await s.until("+ label.png (image/png, 6 x 4, 90 bytes)")


async def test_a_summary_is_closed_until_it_is_asked_for() -> None:
    chunks: list[StreamChunk] = [
        ContextChangedChunk(step=3, cleared=4),
        ContextChangedChunk(step=5, hidden=6, cleared=6, summary="The user wants tea.", cause="overflow"),
    ]
    async with screen(executor_of([])) as s:
        for chunk in chunks:
            s.app.session.conversation.add(chunk)
            s.app._mark_changed()
            await s.app._draw()
        await s.until("Old tool results were cleared from the model's context.")
        await s.until("The model now sees a summary in place of the first 6 messages, because the provider")
        assert "The user wants tea." not in s.text
        s.app.query_one(Summarised).toggle()
        await s.until("The user wants tea.")


async def test_an_output_grows_and_is_struck_through_if_its_attempt_is_discarded() -> None:
    async with screen(executor_of([])) as s:

        async def show(chunk: StreamChunk) -> None:
            s.app.session.conversation.add(chunk)
            s.app._mark_changed()
            await s.app._draw()

        await show(OutputDeltaChunk(step=1, attempt=1, delta='{"title": "For to'))
        await s.until('"title": "For to"')
        await show(OutputDeltaChunk(step=1, attempt=1, delta='day", "n": 4'))
        await s.until('"title": "For today"')
        await s.until('"n": 4')
        await show(StepDiscardedChunk(step=1, attempt=1, reason="lost"))
        await s.until("attempt 1 of step 1 was discarded: lost")
        assert '"n": 4' in s.text, "its text is struck through"


async def test_the_place_where_an_answer_was_stopped_is_marked() -> None:
    async with screen(executor_of([])) as s:

        async def show(chunk: StreamChunk) -> None:
            s.app.session.conversation.add(chunk)
            s.app._mark_changed()
            await s.app._draw()

        await show(TextDeltaChunk(step=1, attempt=1, delta="Half a sen"))
        await s.until("Half a sen")
        assert "stopped here" not in s.text
        await show(StepCommittedChunk(step=1, attempt=1, stop_reason="interrupted"))
        await s.until("stopped here")
