"""The open parts of an AG-UI run. A reader that connects during the run receives them before the events that it missed.

Law: a reader that applied the events so far, and then applies `events()` and the rest, ends up in the same state as a
reader that stayed connected. Its reducer ignores start events with an id that it already has.
"""

from __future__ import annotations

from collections.abc import Mapping

from helix.core.json import JsonObject
from helix.stream.agui import AgUiEncoder

OPENERS: Mapping[str, str] = {
    "SUBAGENT_STARTED": "subagentRunId",
    "TEXT_MESSAGE_START": "messageId",
    "REASONING_START": "messageId",
    "REASONING_MESSAGE_START": "messageId",
    "TOOL_CALL_START": "toolCallId",
}
CLOSERS: Mapping[str, str] = {
    "SUBAGENT_FINISHED": "SUBAGENT_STARTED",
    "SUBAGENT_ERROR": "SUBAGENT_STARTED",
    "TEXT_MESSAGE_END": "TEXT_MESSAGE_START",
    "REASONING_END": "REASONING_START",
    "REASONING_MESSAGE_END": "REASONING_MESSAGE_START",
    "TOOL_CALL_END": "TOOL_CALL_START",
}


class Opened:
    def __init__(self) -> None:
        self._run: JsonObject | None = None
        self._open: dict[tuple[str, object], JsonObject] = {}

    def feed(self, event: JsonObject) -> None:
        kind = str(event["type"])
        if kind in ("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"):
            self._run, self._open = (event if kind == "RUN_STARTED" else None), {}
        elif kind in OPENERS:
            self._open[kind, event[OPENERS[kind]]] = event
        elif kind in CLOSERS:
            opener = CLOSERS[kind]
            self._open.pop((opener, event[OPENERS[opener]]), None)

    def events(self) -> list[JsonObject]:
        """Return the events that open the run and its open parts. Empty between two runs. The announcement of a
        sub-agent omits a parent that has ended."""
        if self._run is None:
            return []
        found = [self._run]
        for event in self._open.values():
            parent = event.get("parentSubagentRunId")
            if parent is not None and ("SUBAGENT_STARTED", parent) not in self._open:
                event = {name: value for name, value in event.items() if name != "parentSubagentRunId"}
            found.append(event)
        return found


class Joining:
    """A reader that joins a turn. With `anew`, it is a new connection. Otherwise it continues an interrupted
    connection, whose open parts are still open."""

    def __init__(self, encoder: AgUiEncoder, run_id: str, *, anew: bool) -> None:
        self._encoder, self._run_id, self._anew = encoder, run_id, anew
        self._opened = Opened()

    def announce(self, *, messages: bool) -> None:
        self._encoder.announce(run_id=self._run_id, messages=messages)

    def seen(self, event: JsonObject) -> None:
        self._opened.feed(event)

    def events(self) -> list[JsonObject]:
        return self._opened.events() if self._anew else []
