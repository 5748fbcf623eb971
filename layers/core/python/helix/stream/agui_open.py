"""The open parts of an AG-UI run, which a reader that connects in mid-run gets before the events that it does not have.

Law: a reader that has applied the events so far, and applies `events()` and then the rest, ends as one that applied all
in one connection. Its reducer ignores an opening under an id that it has.
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
        """Return the events that open the run and its open parts. Empty between two runs. A sub-agent is announced
        without a parent that has ended."""
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
    """A reader that comes to a turn. With `anew`, its connection begins now. Otherwise it continues a connection that
    was cut, and the parts that were open there are still open."""

    def __init__(self, encoder: AgUiEncoder, run_id: str, *, anew: bool) -> None:
        self._encoder, self._run_id, self._anew = encoder, run_id, anew
        self._opened = Opened()

    def announce(self, *, messages: bool) -> None:
        self._encoder.announce(run_id=self._run_id, messages=messages)

    def seen(self, event: JsonObject) -> None:
        self._opened.feed(event)

    def events(self) -> list[JsonObject]:
        return self._opened.events() if self._anew else []
