"""The table in docs/guide/streaming.md says what each reader shows of each chunk. Each reader is given a stream with the
chunk and one without it."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import pytest
from tests.support.chunk_samples import BELOW, CALL, CHUNKS, COMMITTED, STARTED, SUB, TEXT
from tests.support_run import agent

from helix.cli.view.base import Heading
from helix.cli.view.terminal import TerminalView
from helix.core import chunks as c
from helix.core.chunk_envelope import NoticeChunk
from helix.core.conversation.changes import Resynced
from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import Call, Notice, Step
from helix.core.files import FilePart
from helix.core.wire import StreamMessage
from helix.runtime.models import ModelChoice
from helix.stream.agui import AgUiEncoder
from helix.stream.notebook import Panel
from helix.stream.ui_messages import UIMessageEncoder

GUIDE = Path(__file__).parents[2] / "docs/guide/streaming.md"
NOTHING = "–"
Messages = Sequence[StreamMessage]

AFTER: dict[str, list[c.StreamChunk]] = {"citation": [COMMITTED], "subagent_start": [BELOW]}
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
            [file.name for file in one.files],
        )

    return [
        (
            (item.text, item.thinking, item.output, item.state == "discarded"),
            [call(one) for one in (*item.served.values(), *item.calls)],
            [source.url for source in item.sources] if item.state == "committed" else [],
        )
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


class CitationChunk(NoticeChunk):
    """A chunk type that no reader has code for."""

    type: Literal["citation"] = "citation"
    number: int
    title: str
    page: int | None = None
    ui_fields = ("number", "title")
    line = "Source {number}: {title} {page}"


@pytest.mark.parametrize("reader", READERS)
def test_each_reader_shows_a_new_notice_without_code_for_it(reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(c.CHUNK_CLASSES, "citation", CitationChunk)
    chunk = CitationChunk(number=1, title="{tea}", session_id="ses", run_id="run", agent_id="ses", agent_type="boss")
    about = {"stream_id": "ses", "session_id": "ses", "run_id": "run", "sequence": 1}
    sent = StreamMessage(
        **about, kind="chunk", chunk=chunk.model_dump(mode="json", exclude_defaults=True) | {"type": "citation"}
    )
    expected = {
        "`helix chat`": "Source 1: {tea}",
        "`helix run`": "· Source 1: {tea}",
        "notebook": "Source 1: {tea}",
        "AI SDK": "{'type': 'data-citation', 'data': {'number': 1, 'title': '{tea}'}, 'transient': True}",
        "AG-UI": "{'type': 'CUSTOM', 'name': 'helix.citation', 'value': {'number': 1, 'title': '{tea}'}}",
    }
    assert expected[reader] in str(READERS[reader]([sent]))


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_names_the_files_of_a_result(reader: str) -> None:
    label = FilePart(kind="image", media_type="image/png", sha256="a" * 64, name="label.png")
    end = c.ToolEndChunk(result="Seen", files=[label], **CALL)
    chunks: list[c.StreamChunk] = [TEXT, COMMITTED, STARTED, end]
    messages = [_message(n, chunk) for n, chunk in enumerate(chunks, 1)]
    assert "label.png" in str(READERS[reader](messages))
