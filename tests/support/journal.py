"""The facts of a session that must not change between two repeated checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from helix.core.entries import CallRow
from helix.core.status import FINAL_RUNS
from helix.core.wire import StreamMessage
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.sessions.session_rows import SessionRows
from helix.testing.invariants import InvariantViolation, find_problems, read_tree
from helix.testing.stream_invariants import read_all


@dataclass(slots=True)
class Journal:
    """One journal per test. Its `check` runs `check_session`, and compares with the earlier facts. Deleted sessions are
    forgotten. With `pruned`, checkpoints may disappear, but the remaining ones do not change."""

    pruned: bool = False
    _seen: dict[str, SessionRows] = field(default_factory=dict)
    _streams: dict[str, list[StreamMessage]] = field(default_factory=dict)

    async def check(self, store: StateStore, streams: StreamManager, session_id: str, *, at_rest: bool = False) -> None:
        """Check the session. Raise `InvariantViolation`."""
        problems = await find_problems(store, streams, session_id, at_rest=at_rest, pruned=self.pruned)
        if problems := [*problems, *await self.look(store, streams, session_id)]:
            raise InvariantViolation(session_id, problems)

    async def look(self, store: StateStore, streams: StreamManager, session_id: str) -> list[str]:
        """Return the forbidden changes in the session, its sub-agents' sessions and its stream."""
        tree = await read_tree(store, session_id)
        root = tree[0].session
        if root is not None and root.status == "deleting":
            tree = tree[:1]  # its sub-agents' rows are being deleted
        problems = [problem for rows in tree for problem in self.see(rows)]
        return problems if root is None else [*problems, *await self.see_stream(streams, root.stream_id)]

    def forget(self, session_id: str) -> None:
        self._seen.pop(session_id, None)
        self._streams.pop(session_id, None)

    def see(self, now: SessionRows) -> list[str]:
        """Return the forbidden changes since the last look."""
        before = self._seen.pop(now.session_id, None)
        if now.session is None or now.session.status == "deleting":
            self._streams.pop(now.session_id, None)
            return []
        self._seen[now.session_id] = now
        if before is None or before.session is None or before.session.created_at != now.session.created_at:
            return []
        return [f"{now.session_id}: {problem}" for problem in _changes(before, now, self.pruned)]

    async def see_stream(self, streams: StreamManager, stream_id: str) -> list[str]:
        before = self._streams.get(stream_id, [])
        now = await read_all(streams, stream_id)
        self._streams[stream_id] = now
        if now[: len(before)] != before:
            return [f"stream_gapless: stream {stream_id!r} changed what it had said"]
        return []


def _changes(before: SessionRows, now: SessionRows, pruned: bool) -> list[str]:
    old, new = before.session, now.session
    assert old is not None and new is not None
    problems = []
    for name in ("version", "turn", "lineages"):
        if getattr(new, name) < getattr(old, name):
            problems.append(f"one_winner_per_claim: {name} went back from {getattr(old, name)} to {getattr(new, name)}")
    if new.version == old.version and (old.status, old.run_id, old.count) != (new.status, new.run_id, new.count):
        problems.append(f"one_winner_per_claim: version {old.version} has two meanings")
    for place, entry in before.entries.items():
        again = now.entries.get(place)
        final = not isinstance(entry, CallRow) or entry.state == "done"
        if again is None:
            problems.append(f"checkpoint_forever: message {place} vanished")
        elif final and again != entry and not (isinstance(again, CallRow) and again.by == "merge"):
            problems.append(f"staged_answer_immutable, result_immutable: message {place} was {entry!r}, is {again!r}")
    for ident, point in before.checkpoints.items():
        held = now.checkpoints.get(ident)
        if (held is None and not pruned) or (
            held is not None and held.model_copy(update={"name": point.name}) != point
        ):
            problems.append(f"checkpoint_forever: checkpoint {ident!r} changed")
    for run_id, run in before.runs.items():
        again_run = now.runs.get(run_id)
        if again_run is None:
            problems.append(f"effects_once: run {run_id!r} vanished")
        elif run.status in FINAL_RUNS and again_run.status != run.status:
            problems.append(f"legal_transitions: run {run_id!r} was {run.status!r}, is {again_run.status!r}")
        elif run.effects == "done" and again_run.effects != "done":
            problems.append(f"effects_once: effects of run {run_id!r} are open again")
    for number, row in before.lineages.items():
        if now.lineages.get(number) != row:
            problems.append(f"checkpoint_forever: lineage {number} changed")
    problems += _answers(before.values, now.values)
    return problems


def _answers(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> list[str]:
    """Check first_answer_wins: an approved call never asks for approval again."""
    return [
        f"first_answer_wins: call {value.get('call_id')!r} was approved and is asked for approval again"
        for sort, value in before.items()
        if value.get("state") == "approved" and now.get(sort, {}).get("ask") == "approval"
    ]
