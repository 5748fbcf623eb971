"""Readers show where an interrupt cut an answer off. The encoders do it as those in TypeScript (`encoders.test.ts`)."""

from __future__ import annotations

import io
from typing import Any

from tests.support_run import agent

from helix.cli.view.base import Heading
from helix.cli.view.terminal import TerminalView
from helix.core.wire import StreamMessage
from helix.runtime.models import ModelChoice
from helix.stream.agui import AgUiEncoder
from helix.stream.notebook import Panel
from helix.stream.ui_fold import UIMessageFold
from helix.stream.ui_messages import UIMessageEncoder

AT: dict[str, Any] = {"step": 1, "attempt": 1}
CHUNKS: list[tuple[str, dict[str, Any]]] = [
    ("r1", {"type": "text_delta", "delta": "Half", **AT}),
    ("r1", {"type": "step_committed", "stop_reason": "interrupted", **AT}),
    ("r2", {"type": "run_resumed", "previous_run_id": "r1", "mode": "continue"}),
    ("r2", {"type": "text_delta", "delta": " more.", "step": 2, "attempt": 1}),
    ("r2", {"type": "step_committed", "stop_reason": "end_turn", "step": 2, "attempt": 1}),
]
MESSAGES = [
    StreamMessage.model_validate(
        {"stream_id": "ses", "session_id": "ses", "run_id": run, "sequence": n, "kind": "chunk"}
        | {"chunk": {"agent_id": "ses", "session_id": "ses", "run_id": run, **chunk}}
    )
    for n, (run, chunk) in enumerate(CHUNKS, 1)
]


def test_a_page_of_the_ai_sdk_keeps_a_part_at_the_place_of_the_cut() -> None:
    for version in (6, 7):
        encoder, fold = UIMessageEncoder("ses", version=version), UIMessageFold()
        for message in MESSAGES:
            fold.feed(encoder.feed(message))
        assert fold.message is not None
        parts = [(p["type"], p.get("text", p.get("data"))) for p in fold.message["parts"]]  # type: ignore[union-attr, index, call-overload, union-attr]
        assert parts == [
            *[("step-start", None), ("text", "Half"), ("data-answer-cut", {"step": 1})],
            *[("step-start", None), ("text", " more.")],
        ]


def test_ag_ui_gets_an_event_with_the_message_that_was_cut() -> None:
    encoder = AgUiEncoder("ses")
    events = [event for message in MESSAGES for event in encoder.feed(message)]
    cuts = [event["value"] for event in events if event.get("name") == "helix.answer_cut"]
    assert cuts == [{"messageId": "ses/1/1"}]
    assert [m["content"] for m in encoder.messages] == ["Half", " more."]


def test_the_terminal_and_the_notebook_say_where_it_stopped() -> None:
    file, panel = io.StringIO(), Panel("ses")
    view = TerminalView(file, None, Heading(agent("boss"), ModelChoice(None), "helix.db"))
    view.opened("ses")
    for message in MESSAGES:
        view.chunk(message.parsed())
        panel.add(message.parsed())
    lines = [line.strip(" │") for line in file.getvalue().splitlines()]
    assert lines[lines.index("Half") + 1] == "stopped here" and lines.count("stopped here") == 1
    shown = panel.html()
    assert shown.index("Half") < shown.index("stopped here") < shown.index("more.")
