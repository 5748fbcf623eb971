"""Readers show once that the model's view of a conversation has changed, and what took the place of the hidden messages."""

from __future__ import annotations

import io
from typing import Any

import pytest
from tests.support_run import agent

from helix.cli.view.base import Heading
from helix.cli.view.terminal import TerminalView
from helix.core import chunks as c
from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import Notice
from helix.core.conversation.pieces import describe_context
from helix.core.messages import UserMessage
from helix.core.sequencer import Head, StreamRecord, admit
from helix.core.wire import StreamMessage
from helix.runtime.models import ModelChoice
from helix.stream.agui import AgUiEncoder
from helix.stream.notebook import Panel
from helix.stream.ui_messages import UIMessageEncoder

CLEARED = c.ContextChangedChunk(step=3, cleared=4, tokens=900)
SUMMARISED = c.ContextChangedChunk(step=5, hidden=6, cleared=6, summary="Tea is wanted.", cause="overflow", tokens=950)
IN_PLACE = (
    "The model now sees a summary in place of the first 6 messages, because the provider refused the prompt as too long"
)
FIELDS = {"hidden": 6, "cleared": 6, "summary": "Tea is wanted.", "cause": "overflow", "tokens": 950}


def record(
    kind: Any, chunk: c.StreamChunk | None = None, turn: int = 1, *, time: float = 5.0, **fields: Any
) -> StreamRecord:
    about = {"session_id": "ses", "run_id": f"r{turn}", "agent_type": "boss", "agent_id": "ses"}
    body = chunk.model_copy(update=about).model_dump(mode="json", exclude_defaults=True) if chunk is not None else {}
    chunks = [{**body, "type": chunk.type}] if chunk is not None else []
    return StreamRecord(session_id="ses", run_id=f"r{turn}", turn=turn, kind=kind, chunks=chunks, time=time, **fields)


def view(chunk: c.ContextChangedChunk, turn: int = 1, n: int = 0) -> StreamRecord:
    return record("call", chunk, turn, step=chunk.step, call_id="view:7", n=n, mark="committed")


def words(turn: int, attempt: int) -> StreamRecord:
    return record("attempt", c.TextDeltaChunk(step=5, attempt=attempt, delta="Tea"), turn, step=5, attempt=attempt)


def messages(*chunks: c.StreamChunk) -> list[StreamMessage]:
    records = [record("run", mark="started"), *(record("fold", one, version=n) for n, one in enumerate(chunks, 1))]
    return admit("ses", Head(), records)[1]


def folded(found: list[StreamMessage]) -> list[Notice]:
    conversation = Conversation("ses")
    for message in found:
        conversation.take(message)
    return [item for item in conversation.items if isinstance(item, Notice) and item.kind == "context"]


@pytest.mark.parametrize("n", [0, 1], ids=["by another worker", "by the same worker"])
def test_a_view_that_is_sent_again_before_its_step_begins_is_in_the_log_once(n: int) -> None:
    found = admit("ses", Head(), [record("run", mark="started"), view(SUMMARISED), view(SUMMARISED, n=n)])[1]
    assert [(message.chunk or {}).get("type") for message in found] == ["context_changed"]


def test_a_view_that_a_takeover_sends_again_is_shown_once() -> None:
    """The log does not know a view's writer any more once the step has begun, so the fold drops the second chunk."""
    taken_over = c.RunResumedChunk(previous_run_id="r1", mode="takeover")
    later = [record("run", taken_over, 2, mark="started", last=(4, 1)), view(SUMMARISED, 2), words(2, 2)]
    found = admit("ses", Head(), [record("run", mark="started"), view(SUMMARISED), words(1, 1), *later])[1]
    types = [(message.chunk or {}).get("type") for message in found]
    assert types.count("context_changed") == 2
    assert [(notice.text, notice.hidden) for notice in folded(found)] == [("Tea is wanted.", 6)]
    for encoder, name in ((UIMessageEncoder("ses"), "data-context-changed"), (AgUiEncoder("ses"), "CUSTOM")):
        events = [event for message in found for event in encoder.feed(message)]
        assert [event["type"] for event in events].count(name) == 1


def test_a_view_that_is_made_again_after_a_rewind_is_shown_again() -> None:
    rewound = c.StreamResyncChunk(reason="from_checkpoint")
    assert len(folded(messages(SUMMARISED, rewound, SUMMARISED))) == 2


def test_a_notice_is_about_what_has_changed() -> None:
    more = SUMMARISED.model_copy(update={"step": 7, "cleared": 9, "cause": "policy"})
    hidden = c.ContextChangedChunk(step=7, hidden=8, cleared=9, cause="request")
    found = folded(messages(CLEARED, SUMMARISED, more, hidden))
    assert [(notice.text, notice.hidden, notice.code, notice.tone) for notice in found] == [
        ("", 0, "policy", "plain"),
        ("Tea is wanted.", 6, "overflow", "plain"),
        ("", 0, "policy", "plain"),
        ("", 8, "request", "plain"),
    ]
    assert [describe_context(notice) for notice in found] == [
        "Old tool results were cleared from the model's context",
        IN_PLACE,
        "Old tool results were cleared from the model's context",
        "The model no longer sees the first 8 messages, as requested",
    ]


def test_a_view_of_steps_that_are_stored_already_is_not_noted() -> None:
    conversation = Conversation("ses")
    stored = UserMessage(content="hi", step=5, run_id="r1")
    conversation.load([stored], {}, sequence=10)
    assert [change for message in messages(CLEARED) for change in conversation.take(message)] == []


def test_the_terminal_has_one_line_without_the_summary() -> None:
    file = io.StringIO()
    shown = TerminalView(file, None, Heading(agent("boss"), ModelChoice(None), "helix.db"))
    shown.opened("ses")
    for message in messages(CLEARED, SUMMARISED, SUMMARISED):
        shown.chunk(message.parsed())
    lines = [line.strip() for line in file.getvalue().splitlines() if "·" in line and "step" not in line][1:]
    assert lines == [
        "· Old tool results were cleared from the model's context",
        f"· {IN_PLACE}",
    ]


def test_a_notebook_has_a_line() -> None:
    panel = Panel("ses")
    for message in messages(SUMMARISED):
        panel.add(message.parsed())
    assert panel.text() == f"{IN_PLACE}.\nrunning · ses"


@pytest.mark.parametrize("version", [6, 7])
def test_the_ai_sdk_gets_transient_data(version: Any) -> None:
    encoder = UIMessageEncoder("ses", version=version)
    parts = [part for message in messages(SUMMARISED) for part in encoder.feed(message)]
    assert parts[1:] == [{"type": "data-context-changed", "data": FIELDS, "transient": True}]


def test_ag_ui_gets_a_custom_event() -> None:
    encoder = AgUiEncoder("ses")
    events = [event for message in messages(SUMMARISED) for event in encoder.feed(message)]
    custom = [(event["name"], event["value"]) for event in events if event["type"] == "CUSTOM"]
    assert custom == [("helix.context_changed", FIELDS)]
