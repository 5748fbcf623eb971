"""Finds discarded text: text that a page shows while it streams, but not after a reload."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from helix.core.conversation.changes import CONTINUES
from helix.core.wire import StreamMessage


def discarded_text(messages: Iterable[StreamMessage], root: str) -> set[int]:
    """Return the sequences of text chunks to hide from a new reader because their attempt was discarded. Text of an
    interrupted run is kept, unless another attempt at its step follows."""
    found: set[int] = set()
    words: dict[tuple[int, int], list[int]] = {}
    retained: dict[int, list[int]] = {}
    run_id = ""
    for message in messages:
        chunk: dict[str, Any] = message.chunk or {}
        kind, step = chunk.get("type"), chunk.get("step", 0)
        if message.session_id == root and message.run_id not in ("", run_id):
            run_id = message.run_id
            if kind != "run_resumed" or chunk.get("mode") not in CONTINUES:
                retained.clear()  # it begins another message of the page
        if message.session_id != root or kind not in ("text_delta", "thinking", "step_committed", "step_discarded"):
            continue
        at = (step, chunk.get("attempt", 0))
        if kind == "step_discarded":
            dropped = words.pop(at, [])
            if chunk.get("status") == "interrupted":
                retained[step] = dropped
            else:
                found.update(dropped)
            continue
        found.update(retained.pop(step, []))
        if kind == "step_committed":
            words.pop(at, None)
        else:
            words.setdefault(at, []).append(message.sequence)
    return found
