"""The content of a session, without what differs between any two executions: ids, times, and the division of text into
deltas.

Law: a story is plain JSON, so that two stories can be compared by value and each difference has a path. A field is never
left out because it is inconvenient: a difference between two runtimes is a defect, or is listed in `FREE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from typing import Any

from helix.core.entries import AssistantRow
from helix.core.wire import StreamMessage
from helix.runtime.executor import Executor
from helix.sessions.session_rows import SessionRows
from helix.testing.invariants import read_tree
from helix.testing.stream_invariants import read_all

FREE = {
    "created_at", "updated_at", "started_at", "ended_at", "timestamp", "at", "expires_at",  # times
    "version", "sequence", "start_sequence", "from_sequence", "view", "start_view",  # counts of writes to rows and streams
    "attempt_id", "owner", "deadline", "claim", "lease_owner", "lease_expires",  # workers
    "part", "part_step", "part_agent",  # executions
}  # fmt: skip
RunReport = dict[str, Any]
_CHECKPOINT = re.compile(r"cpv1-(\S+)-s(\d+)-t\d+-[0-9a-f]{6}")
_RUN = re.compile(r"run_(\d{6})_[0-9A-Z]{16}")


async def read_report(executor: Executor, session_id: str, *, hide: Sequence[str] = ()) -> RunReport:
    """Return the session with its sub-agents, in call order, and the stream of all of them. `hide` lists texts (such as
    folders) that differ between two executions. They become `<0>`, `<1>`, ..."""
    tree = await read_tree(executor.store, session_id)
    root = tree[0].session
    assert root is not None, f"there is no session {session_id!r}"
    stream = await read_all(executor.streams, root.stream_id) if root.stream_id == session_id else []
    names = Names(tree, hide, {str(m.chunk["queued_id"]) for m in stream if m.chunk and "queued_id" in m.chunk})
    story = {
        "sessions": {names.plain(rows.session_id): await _session(executor, rows) for rows in tree},
        "stream": _stream(stream, names),
    }
    told: RunReport = names.plain(story)
    return told


async def _session(executor: Executor, rows: SessionRows) -> RunReport:
    """Read the session through the public methods, and from its rows if these show more."""
    state = await executor.sessions.get(rows.session_id)
    messages = await executor.sessions.load_conversation_messages(rows.session_id)
    checkpoints = []
    for row in rows.checkpoints_in_order():
        told = await executor.sessions.get_checkpoint(rows.session_id, row.id)
        checkpoints.append(_cut(told.model_dump(mode="json")))
    return {
        "state": _cut(state.model_dump(mode="json")),
        "messages": [_cut(message.model_dump(mode="json")) for message in messages],
        "checkpoints": checkpoints,
        "runs": [_cut(run.model_dump(mode="json")) for run in rows.runs_in_order()],
        # The chunk of a sub-agent has no fixed place: a stop of the parent may end it before its own stop is asked for.
        "stops": [] if state.parent_session_id else [_cut(s.model_dump(mode="json")) for s in rows.stops.values()],
        "lineages": {str(number): row.model_dump(mode="json") for number, row in rows.lineages.items()},
    }


def _stream(messages: Sequence[StreamMessage], names: Names) -> dict[str, list[Any]]:
    """Group chunks by writer. The calls of one step write concurrently. All other chunks have one order."""
    lanes: dict[str, list[Any]] = {}
    for message in messages:
        body = _cut(message.chunk) if message.chunk is not None else {"type": message.kind}
        body |= {"session": message.session_id, "run": message.run_id, "turn": message.turn}
        if message.kind != "chunk":
            body |= {"status": message.status, "error": message.error}
        lane = lanes.setdefault(names.plain(_lane(body)), [])
        if lane and body["type"] in ("text_delta", "output_delta") and _joins(lane[-1], body):
            lane[-1]["delta"] += body["delta"]
        elif lane and body["type"] == "thinking" and not body.get("is_complete") and _joins(lane[-1], body):
            lane[-1]["content"] += body["content"]
        else:
            lane.append(body)
    return dict(sorted(lanes.items()))


def _lane(body: RunReport) -> str:
    """Return the writer of a chunk: a call by its id, an emitted event by its name, because the chunk has no call id, and
    the sender of a message that waits by the message."""
    place = f"{body['session']} turn {body['turn']}"
    match body["type"]:
        case "tool_start" | "tool_end" | "tool_approval_request":
            return f"{place} call {body['tool_call_id']}"
        case "subagent_start" | "subagent_end":
            return f"{place} call {body['parent_tool_call_id']}"
        case "custom":
            return f"{place} step {body['step']} {body['event_name']}"
        case "message_queued" if body["state"] != "delivered":
            return f"{place} message {body['queued_id']}"
        case _:
            return place


def _joins(last: RunReport, body: RunReport) -> bool:
    """Return whether two chunks are parts of one text, cut at the end of a record."""
    own = {"delta", "content"}
    return {k: v for k, v in last.items() if k not in own} == {k: v for k, v in body.items() if k not in own}


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _cut(item) for name, item in value.items() if name not in FREE}
    return [_cut(item) for item in value] if isinstance(value, list) else value


class Names:
    """Stable names for ids: sessions and runs by their place in the tree, checkpoints and waiting messages by their
    order."""

    def __init__(self, tree: Sequence[SessionRows], hide: Sequence[str], waiting: Set[str]) -> None:
        known: dict[str, str] = {text: f"<{n}>" for n, text in enumerate(hide)}
        known |= {ident: f"message{n}" for n, ident in enumerate(sorted(waiting))}
        self._checkpoints: dict[str, str] = {}
        for rows in tree:
            name = "root" if rows is tree[0] else _place(rows, known)
            known[rows.session_id] = name
            known |= {run.run_id: f"{name}.run{run.turn}" for run in rows.runs.values()}
            ids = [row.id for row in rows.checkpoints_in_order()]
            self._checkpoints |= {ident: f"{name}.checkpoint{n}" for n, ident in enumerate(ids)}
            for entry in rows.entries.values():
                if isinstance(entry, AssistantRow):
                    for call_id, ref in entry.children.items():
                        known.setdefault(ref.session_id, f"{name}/{entry.step}/{call_id}")  # perhaps never used
                        known.setdefault(ref.run_id, f"{name}/{entry.step}/{call_id}.run1")
        longest = sorted(known, key=len, reverse=True)
        self._known = known
        self._ids = re.compile("|".join(re.escape(ident) for ident in longest))

    def plain(self, value: Any) -> Any:
        match value:
            case str():
                text = _CHECKPOINT.sub(
                    lambda found: self._checkpoints.get(found[0], f"checkpoint at {found[2]}"), value
                )
                text = self._ids.sub(lambda found: self._known[found[0]], text)
                return _RUN.sub(
                    lambda found: f"source.run{int(found[1])}", text
                )  # in a copied session, the run that it was copied from
            case dict():
                return {self.plain(name): self.plain(item) for name, item in value.items()}
            case list() | tuple():
                return [self.plain(item) for item in value]
            case _:
                return value


def _place(rows: SessionRows, known: dict[str, str]) -> str:
    assert rows.session is not None and rows.session.parent is not None
    return known[rows.session_id]


def differences(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """Yield the differences between two stories as `path: wanted, found`."""
    match wanted, found:
        case dict(), dict():
            for name in sorted({*wanted, *found}):
                where = f"{path}.{name}" if path else name
                if name not in found:
                    yield f"{where}: missing, was {_short(wanted[name])}"
                elif name not in wanted:
                    yield f"{where}: not expected: {_short(found[name])}"
                else:
                    yield from differences(wanted[name], found[name], where)
        case list(), list():
            for n in range(max(len(wanted), len(found))):
                where = f"{path}[{n}]"
                if n >= len(found):
                    yield f"{where}: missing, was {_short(wanted[n])}"
                elif n >= len(wanted):
                    yield f"{where}: not expected: {_short(found[n])}"
                else:
                    yield from differences(wanted[n], found[n], where)
        case _ if wanted != found:
            yield f"{path}: {_short(wanted)} became {_short(found)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:300]}... ({len(text)} characters)"
