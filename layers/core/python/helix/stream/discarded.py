"""Finds discarded text: text that a page shows while it streams, but not after a reload."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from helix.core.conversation.changes import (
    AnswerChange,
    CallEnded,
    CallStarted,
    PartBegan,
    PartEnded,
    PartGrew,
    StepBegan,
    StepCommitted,
    StepDiscarded,
    TextCited,
)
from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import Step
from helix.core.wire import StreamMessage


def discarded_text(messages: Iterable[StreamMessage], root: str) -> set[int]:
    """Return the sequences of text chunks to hide from a new reader because their attempt was discarded. Text of an
    interrupted run is kept, unless another attempt at its step follows."""
    conversation = Conversation(root)
    found: set[int] = set()
    sequences: dict[Step, list[int]] = {}
    for message in messages:
        shown: Step | None = None
        for change in conversation.take(message):
            if isinstance(change, CallStarted | CallEnded) and change.call.served:
                shown = change.call.step if change.call.step.state == "open" else shown
            if not isinstance(change, AnswerChange):
                continue  # no other change affects text
            match change:
                case PartBegan() | PartGrew() | PartEnded():
                    shown = change.part.step
                case TextCited(step, _):
                    shown = step
                case StepBegan(_, replaces):
                    found.update(sequences.pop(replaces, []) if replaces is not None else [])
                case StepCommitted(step):
                    sequences.pop(step, None)
                    shown = None
                case StepDiscarded(step):
                    found.update([] if step.retained else sequences.pop(step, []))
                    shown = None
                case _:
                    assert_never(change)
        if shown is not None and shown.conversation is conversation:
            sequences.setdefault(shown, []).append(message.sequence)
    return found
