"""The table in docs/guide/streaming.md says what each reader shows of each chunk. Each reader is given a stream with the
chunk and one without it."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support_run import agent

from helix.cli.view.base import Heading
from helix.cli.view.terminal import TerminalView
from helix.core import chunks as c
from helix.core.conversation.changes import Resynced
from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import Call, Notice, Step
from helix.core.wire import StreamMessage
from helix.runtime.models import ModelChoice
from helix.stream.agui import AgUiEncoder
from helix.stream.notebook import Panel
from helix.stream.ui_messages import UIMessageEncoder

GUIDE = Path(__file__).parents[2] / "docs/guide/streaming.md"
NOTHING = "–"
Messages = Sequence[StreamMessage]

STEP: dict[str, Any] = {"step": 1, "attempt": 1}
CALL: dict[str, Any] = {"tool_call_id": "c1", "tool_name": "look", "step": 1}
CHILD: dict[str, Any] = {
    "parent_tool_call_id": "c1",
    "sub_agent_id": "sub",
    "sub_agent_type": "helper",
    "step": 1,
}
TEXT = c.TextDeltaChunk(delta="Tea.", **STEP)
COMMITTED = c.StepCommittedChunk(usage={"prompt_tokens": 5, "calls": 1}, model="m", **STEP)
STARTED = c.ToolStartChunk(attempt=1, **CALL)
SUB = {"session_id": "sub", "run_id": "run2", "agent_id": "sub", "agent_type": "helper"}
BELOW = c.TextDeltaChunk(delta="Below.", **SUB, **STEP)
CHUNKS: dict[str, tuple[list[c.StreamChunk], c.StreamChunk]] = {
    "text_delta": ([], TEXT),
    "thinking": ([], c.ThinkingChunk(content="Hm.", **STEP)),
    "tool_start": ([TEXT, COMMITTED], STARTED),
    "tool_end": ([TEXT, COMMITTED, STARTED], c.ToolEndChunk(result=1, **CALL)),
    "subagent_start": ([TEXT, COMMITTED, STARTED], c.SubAgentStartChunk(**CHILD)),
    "subagent_end": (
        [TEXT, COMMITTED, STARTED, c.SubAgentStartChunk(**CHILD), BELOW],
        c.SubAgentEndChunk(status="completed", result=1, **CHILD),
    ),
    "custom": ([], c.CustomEventChunk(event_name="found", data=1)),
    "state_patch": ([], c.StatePatchChunk(patches=[{"op": "add", "path": "/n", "value": 1}])),
    "error": ([], c.ErrorChunk(error="busy", code="model_error")),
    "output_delta": ([], c.OutputDeltaChunk(delta='{"n": 1', **STEP)),
    "output": ([], c.OutputChunk(output={"n": 1})),
    "run_interrupted": ([TEXT, BELOW], c.RunInterruptedChunk(reason="stopped")),
    "run_resumed": ([], c.RunResumedChunk(previous_run_id="before", mode="takeover")),
    "checkpoint_created": ([], c.CheckpointCreatedChunk(checkpoint_id="k", step_count=1, message_count=2)),
    "run_paused": ([TEXT, BELOW], c.RunPausedChunk(reason="budget_exceeded")),
    "run_superseded": ([], c.RunSupersededChunk(superseded_run_id="before", by_run_id="run")),
    "step_committed": ([TEXT], COMMITTED),
    "step_discarded": ([TEXT], c.StepDiscardedChunk(reason="lost", **STEP)),
    "stream_resync": ([TEXT], c.StreamResyncChunk(reason="chunks were lost")),
    "tool_approval_request": ([TEXT, COMMITTED], c.ToolApprovalRequestChunk(**CALL)),
    "run_queued": ([], c.RunQueuedChunk(queued=2, expires_at=1.0)),
    "context_changed": ([], c.ContextChangedChunk(hidden=4, cleared=4, summary="Tea.", step=1)),
    "unknown": ([], c.UnknownChunk(type="later")),
}
"""The preceding chunks and the chunk itself, by type."""
AFTER: dict[str, list[c.StreamChunk]] = {"subagent_start": [BELOW]}
END = {"run_interrupted": "interrupted", "run_paused": "paused"}
"""Chunks before the end of a run, and the status of the run. A sub-agent sends the same chunk."""


def stream(kind: str, *, with_it: bool) -> Messages:
    before, chunk = CHUNKS[kind]
    same = [chunk.model_copy(update=SUB)] if kind in END else []
    chunks = [*before, *([chunk, *same] if with_it else []), *AFTER.get(kind, [])]
    found = [_message(n, one) for n, one in enumerate(chunks, 1)]
    status = END.get(kind, "completed")
    about = {"stream_id": "ses", "session_id": "ses", "run_id": "run"}
    end = StreamMessage(**about, sequence=99, kind="paused" if status == "paused" else "end", status=status)
    return [*found, end]


def _message(sequence: int, chunk: c.StreamChunk) -> StreamMessage:
    envelope = {"session_id": "ses", "run_id": "run", "agent_id": "ses", "agent_type": "boss"}
    given = chunk if chunk.session_id else chunk.model_copy(update=envelope)
    about = {"stream_id": "ses", "session_id": given.session_id, "run_id": given.run_id, "sequence": sequence}
    return StreamMessage(**about, kind="chunk", chunk=given.model_dump(mode="json", exclude={"sequence"}))


def chat(messages: Messages) -> object:
    """What `cli/chat/blocks.py` draws of the items. `chat_session.py` reads the session again after a `Resynced`."""
    conversation = Conversation("ses")
    changes = [change for message in messages for change in conversation.take(message)]
    if any(isinstance(change, Resynced) for change in changes):
        return "read again"

    def call(one: Call) -> object:
        return (
            one.name,
            one.state,
            one.arguments,
            one.attempt,
            one.edited,
            one.result,
            one.error,
            one.child and one.child.id,
        )

    return [
        (item.text, item.thinking, item.output, item.state == "discarded", [call(one) for one in item.calls])
        if isinstance(item, Step)
        else (item.text, isinstance(item, Notice) and (item.kind, item.code, item.queued, item.hidden))
        for item in conversation.items
    ]


def terminal(messages: Messages) -> object:
    file = io.StringIO()
    view = TerminalView(file, None, Heading(agent("boss"), ModelChoice(None), "helix.db"))
    view.opened("ses")
    for message in messages:
        if message.kind == "chunk":
            view.chunk(message.parsed())
    view._out.end()
    return file.getvalue()


def notebook(messages: Messages) -> object:
    panel = Panel("ses")
    for message in messages:
        if message.kind == "chunk":
            panel.add(message.parsed())
    return panel.text()


def ai_sdk(messages: Messages) -> object:
    encoder = UIMessageEncoder("ses")
    return [part for message in messages for part in encoder.feed(message)] + encoder.close()


def ag_ui(messages: Messages) -> object:
    encoder = AgUiEncoder("ses")
    events = [event for message in messages for event in encoder.feed(message)]
    return [{name: value for name, value in event.items() if name != "timestamp"} for event in events]


READERS: dict[str, Callable[[Messages], object]] = {
    "`helix chat`": chat,
    "`helix run`": terminal,
    "notebook": notebook,
    "AI SDK": ai_sdk,
    "AG-UI": ag_ui,
}


def table() -> dict[str, dict[str, str]]:
    """Return the guide's table: what each reader shows, by chunk type."""
    lines = GUIDE.read_text("utf-8").splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("| Chunk |"))
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in _table_lines(lines[first:])]
    return {row[0].strip("`"): dict(zip(header[1:], row[1:], strict=True)) for row in rows}


def _table_lines(lines: Sequence[str]) -> list[str]:
    end = next(n for n, line in enumerate(lines) if not line.startswith("|"))
    return list(lines[:end])


def test_the_table_has_every_chunk_and_every_reader() -> None:
    assert set(CHUNKS) == c.CHUNK_TYPES | {"unknown"}
    assert set(table()) == set(CHUNKS)
    assert all(list(row) == list(READERS) for row in table().values())


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", CHUNKS)
def test_a_reader_shows_what_the_table_says(kind: str, reader: str) -> None:
    read = READERS[reader]
    shown = read(stream(kind, with_it=True)) != read(stream(kind, with_it=False))
    assert shown == (table()[kind][reader] != NOTHING)
