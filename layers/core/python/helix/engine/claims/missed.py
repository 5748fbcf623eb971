"""Commits of a dead worker that may be missing from its stream.

Law: a fold reaches the stream before the next answer is staged, so only commits since the last staged answer can be
missing. Writing them again is harmless: the sequencer recognises repeated marks by attempt, and all other records by
session version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helix.core.entries import AnyEntry, AssistantRow, CallRow, UserRow
from helix.core.row_keys import checkpoint_sort, checkpoint_version, run_sort
from helix.core.rows import CheckpointRow
from helix.core.session_row import SessionRow
from helix.engine.context import RunContext
from helix.engine.engine import Engine
from helix.engine.facts import CommitsMissed
from helix.engine.history import row_key
from helix.engine.observers import show

PAGE, STEP_PAGE = 32, 66


@dataclass(frozen=True, slots=True)
class Missed:
    """The commits of one step that may be missing from the stream."""

    answer: AssistantRow | None
    """The answer of the step. None: no answer precedes the checkpoint."""
    results: Sequence[CallRow]
    """The rows of the step's calls with their results, in call order."""
    checkpoints: Sequence[CheckpointRow]
    """The checkpoints of the step, oldest first. The commit of the first one added the step to history."""
    arrived: Sequence[tuple[int, UserRow, bool]] = ()
    """The messages after the step that had waited: the index, the row, and whether the message steered its run. Others
    began their run."""


async def read_missed(engine: Engine, session_id: str, checkpoint_id: str) -> Missed | None:
    """Return the commits that may be missing from the stream at this checkpoint, or None if the checkpoint does not
    exist."""
    if not checkpoint_id:
        return None
    version = checkpoint_version(session_id, checkpoint_id)
    rows = await engine.store.query(
        "sessions", session_id, start="c#", end=checkpoint_sort(version + 1), limit=PAGE, reverse=True
    )
    points = [CheckpointRow.at(row.key.partition, row.key.sort, row.value) for row in rows]
    if not points or points[0].id != checkpoint_id:
        return None
    last = points[0]
    same = 0
    while same < len(points) and (points[same].step, points[same].lineage) == (last.step, last.lineage):
        same += 1
    reported = points[same - 1 :: -1]
    answer, results, first = await _step_before(engine, session_id, reported[0])
    lineage = await engine.history.lineage(session_id, last.lineage)
    after = await engine.history.entries(session_id, lineage, first, last.count) if first < last.count else []
    waited = [(first + n, row) for n, row in enumerate(after) if isinstance(row, UserRow) and row.queued]
    return Missed(answer, results, reported, await _with_fates(engine, session_id, waited))


async def _with_fates(
    engine: Engine, session_id: str, waited: Sequence[tuple[int, UserRow]]
) -> list[tuple[int, UserRow, bool]]:
    """Return each message, and whether it steered its run. A message that began a run is the first one after the run's
    starting point."""
    if not waited:
        return []
    names = sorted({row.run_id for _, row in waited})
    runs = await engine.store.get([row_key(session_id, run_sort(name)) for name in names])
    begun = {
        name: run.get("start_count", 0)
        for name, run in zip(names, runs, strict=True)
        if run is not None and (run.get("input") or {}).get("message") is not None
    }
    return [(index, row, begun.get(row.run_id) != index) for index, row in waited]


async def show_missed(run: RunContext, session: SessionRow) -> None:
    """Record the commits that added the last step to history again. Another delivery made them, and its records may not
    reach the log before the next step."""
    missed = await read_missed(run.engine, session.session_id, session.checkpoint)
    if missed is not None:
        show(run, CommitsMissed(missed))


async def _step_before(
    engine: Engine, session_id: str, point: CheckpointRow
) -> tuple[AssistantRow | None, list[CallRow], int]:
    """Return the answer and the results at the end of the checkpoint's messages, and the index after them. Messages of
    users follow there."""
    lineage = await engine.history.lineage(session_id, point.lineage)
    start = point.count
    entries: list[AnyEntry] = []
    while start > lineage.start and not any(isinstance(entry, AssistantRow) for entry in entries):
        end, start = start, max(lineage.start, start - STEP_PAGE)
        entries = [*await engine.history.entries(session_id, lineage, start, end), *entries]
    after = point.count
    while entries and isinstance(entries[-1], UserRow):
        entries.pop()
        after -= 1
    results: list[CallRow] = []
    while entries and isinstance(entries[-1], CallRow):
        row = entries.pop()
        assert isinstance(row, CallRow)
        results.insert(0, row)
    answer = entries[-1] if entries and isinstance(entries[-1], AssistantRow) else None
    return answer, results, after
