"""The value of a segment's row, in which the fields that messages share are stored once
(docs/protocol.md#segment-rows).

Law: reading returns the messages and the head that were written. A row with every field in full, as earlier versions
wrote it, can also be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from helix.core.compact import HERE, expand_checkpoint_id, shorten_checkpoint_id
from helix.core.damage import UNREADABLE, first_problem
from helix.core.errors import damaged_row
from helix.core.json import JsonObject
from helix.core.row_keys import step_of, turn_of
from helix.core.sequencer import Head
from helix.core.wire import StreamMessage
from helix.ports.state_store import Row

ENDS = ("end", "fail", "paused")
CREATED = "checkpoint_created"
ENVELOPE = {"session_id", "run_id", "agent_id", "agent_type", "step", "attempt", "timestamp"}
NOT_BODY = ENVELOPE | {"type"}


Place = dict[str, Any]
"""The fields that apply to each message until an entry changes them."""


def _start(stream_id: str) -> Place:
    return {
        "session_id": stream_id,
        "run_id": "",
        "turn": 0,
        "agent_type": "",
        "step": 0,
        "attempt": 0,
        "timestamp": 0.0,
        "status": None,
    }


def segment_value(stream_id: str, head: Head, messages: Sequence[StreamMessage]) -> dict[str, Any]:
    """Return the row's fields `head` and `messages`."""
    place = _start(stream_id)
    entries = [entry for message in messages for entry in _entries(place, message)]
    later = _seconds(place["timestamp"], head.updated_at)
    if messages and messages[-1].kind in ENDS and later is not None:
        entries[-1].append(later)
        place["timestamp"] = head.updated_at
    return {"head": _short_head(stream_id, head, place), "messages": entries}


def segment_head(row: Row) -> Head:
    """Return the head after the segment. Raises `DamagedRowError`."""
    try:
        return _head(row)
    except UNREADABLE as error:
        raise damaged_row(*row.key, first_problem(error)) from error


def _head(row: Row) -> Head:
    stream_id, value = row.key.partition, row.value
    place, sequence = _start(stream_id), _first(row) - 1
    for entry in _written(value):
        sequence += _apply_entry(place, entry)
    last = place["timestamp"]
    fields = {"sequence": sequence, "root": stream_id, "created_at": last, "updated_at": last, **value["head"]}
    if fields["created_at"] < 0:
        fields["created_at"] = _after(last, fields["created_at"])
    sessions = {}
    for key, session in fields.get("sessions", {}).items():
        shared = {name: place[name] for name in _shared(session.get("over", True)) if place[name] is not None}
        sessions[stream_id if key == HERE else key] = {**shared, **session}
    return Head.model_validate({**fields, "sessions": sessions})


def _shared(over: bool) -> tuple[str, ...]:
    """Return the fields of a session's head that are omitted if they equal those of the last message."""
    return ("turn", "step", "attempt", *(("status",) if over else ("run_id", "agent_type")))


def segment_end(row: Row, head: Head) -> tuple[int, str]:
    """Return the `rev` and the log position of the stream's last segment, given its head. Raises `DamagedRowError`."""
    rev, at = row.value.get("rev", 0), row.value.get("at", "")
    if type(rev) is not int or not isinstance(at, str) or not (at == "" or at.isdecimal()):
        raise damaged_row(*row.key, "rev or at: Input should be a number, and a text of digits")
    if rev < 0 or (rev == 0 and head.sequence < _first(row)):
        raise damaged_row(*row.key, "messages: a segment without messages has a rev above 0")
    return rev, at


def segment_messages(row: Row) -> list[StreamMessage]:
    """Return the messages of the segment. Raises `DamagedRowError`."""
    try:
        return [*_messages(row)]
    except UNREADABLE as error:
        raise damaged_row(*row.key, first_problem(error)) from error


def _messages(row: Row) -> Iterator[StreamMessage]:
    stream_id = row.key.partition
    place, sequence = _start(stream_id), _first(row)
    for entry in _written(row.value):
        if not _apply_entry(place, entry):
            continue
        if isinstance(entry, dict):
            yield StreamMessage(stream_id=stream_id, **entry)
        else:
            yield _message(stream_id, sequence, place, entry)
        sequence += 1


def _written(value: dict[str, Any]) -> list[Any]:
    entries = value["messages"]
    if not isinstance(entries, list):
        raise TypeError("messages: Input should be a valid list")
    return entries


def _first(row: Row) -> int:
    """Return the sequence in the row's key."""
    return int(row.key.sort[2:])


def _entries(place: Place, message: StreamMessage) -> Iterator[Any]:
    """Yield the message's entry, preceded by one with the fields that have changed since the previous message."""
    chunk: Any = message.chunk
    now = {"session_id": message.session_id, "run_id": message.run_id, "turn": message.turn}
    later: float | None = None
    if message.kind != "chunk":
        fields = {"status": message.status, "error": message.error}
        entry: list[Any] = [message.kind, {name: text for name, text in fields.items() if text is not None}]
    elif chunk is not None and _is_plain(message, chunk):
        now |= {name: chunk[name] for name in ("agent_type", "step", "attempt", "timestamp")}
        body = {name: value for name, value in chunk.items() if name not in NOT_BODY}
        if "checkpoint_id" in body:
            if chunk["type"] == CREATED and step_of(body["checkpoint_id"]) == body["step_count"]:
                del body["step_count"]
            body["checkpoint_id"] = shorten_checkpoint_id(message.session_id, body["checkpoint_id"])
        entry = [chunk["type"], body]
        later = _seconds(place["timestamp"], chunk["timestamp"])
        if later is not None:
            entry.append(later)
            del now["timestamp"]
    else:
        yield message.model_dump(mode="json", exclude_defaults=True, exclude={"stream_id"})
        return
    changed = {name: value for name, value in now.items() if value != place[name]}
    if "run_id" in changed and (turn := turn_of(message.run_id)) is not None:
        changed.pop("turn", None)
        if turn != message.turn:
            changed["turn"] = message.turn
    if changed:
        yield changed
    yield entry
    place |= now if later is None else {**now, "timestamp": chunk["timestamp"]}
    if message.kind in ENDS:
        place["status"] = message.status


def _is_plain(message: StreamMessage, chunk: JsonObject) -> bool:
    """Return whether the chunk's envelope is complete and equals that of its message."""
    return (
        chunk.keys() >= ENVELOPE
        and chunk["session_id"] == chunk["agent_id"] == message.session_id
        and chunk["run_id"] == message.run_id
        and isinstance(chunk.get("type"), str)
        and chunk["type"] not in ENDS
        and isinstance(chunk["timestamp"], int | float)
        and not str(chunk.get("checkpoint_id")).startswith(HERE)
        and (chunk["type"] != CREATED or "step_count" in chunk)
        and message.status is None
        and message.error is None
    )


def _seconds(before: float, after: float) -> float | None:
    """Return the number of seconds from `before` to `after`, or None if it is not exact or storing it saves nothing."""
    later = round(after - before, 4)
    return later if later and before and _after(before, later) == after else None


def _after(before: float, later: float) -> float:
    return round(before + later, 4)


def _apply_entry(place: Place, entry: Any) -> bool:
    """Advance `place` by the entry. True if the entry is a message, False if it only names changed fields."""
    if isinstance(entry, dict):
        if "kind" in entry:
            return True
        turn = turn_of(entry["run_id"]) if "run_id" in entry else None
        place.update({"turn": turn, **entry} if turn is not None else entry)
        return False
    if entry[0] in ENDS:
        place["status"] = entry[1].get("status")
    if len(entry) > 2:
        place["timestamp"] = _after(place["timestamp"], entry[2])
    return True


def _message(stream_id: str, sequence: int, place: Place, entry: list[Any]) -> StreamMessage:
    kind, body = entry[0], entry[1]
    about = {"session_id": place["session_id"], "run_id": place["run_id"], "turn": place["turn"]}
    if kind in ENDS:
        return StreamMessage(stream_id=stream_id, sequence=sequence, kind=kind, **about, **body)
    envelope = {name: value for name, value in place.items() if name not in ("turn", "status")}
    chunk = {"type": kind, **envelope, "agent_id": place["session_id"], **body}
    if "checkpoint_id" in chunk:
        chunk["checkpoint_id"] = expand_checkpoint_id(place["session_id"], chunk["checkpoint_id"])
        if kind == CREATED and "step_count" not in chunk:
            chunk["step_count"] = step_of(chunk["checkpoint_id"])
    return StreamMessage(stream_id=stream_id, sequence=sequence, kind="chunk", chunk=chunk, **about)


def _short_head(stream_id: str, head: Head, place: Place) -> dict[str, Any]:
    value: dict[str, Any] = {}
    if head.root != stream_id:
        value["root"] = head.root
    for name in ("created_at", "updated_at"):
        if getattr(head, name) != place["timestamp"]:
            value[name] = getattr(head, name)
    earlier = _seconds(place["timestamp"], head.created_at)
    if "created_at" in value and earlier is not None and earlier < 0:
        value["created_at"] = earlier
    sessions = {}
    for key, session in head.sessions.items():
        short = session.model_dump(mode="json", exclude_defaults=True)
        for name in _shared(session.over):
            short[name] = getattr(session, name)
            if short[name] == place[name]:
                del short[name]
        sessions[HERE if key == stream_id else key] = short
    return {**value, "sessions": sessions}
