"""What a worker that died may have left untold: the last step's mark, results and checkpoints (PROTOCOL 11).

Law: a fold is on the stream before the next answer is staged, so only what was committed since the last staged answer can
be missing. Telling it again is harmless: the sequencer knows marks by attempt, and the rest by session version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helix.core.planning import MAX_CALLS_PER_STEP
from helix.core.row_keys import checkpoint_sort, checkpoint_version
from helix.core.rows import AssistantRow, CallRow, CheckpointRow, UserRow
from helix.engine.engine import Engine

PAGE = 32


@dataclass(frozen=True, slots=True)
class Untold:
    """`checkpoints` of one step, oldest first: the first made the step history. `results` are those of its calls."""

    answer: AssistantRow | None
    results: Sequence[CallRow]
    checkpoints: Sequence[CheckpointRow]


async def read_untold(engine: Engine, session_id: str, checkpoint_id: str) -> Untold | None:
    """What may be untold at this checkpoint, or None if it is not there."""
    if not checkpoint_id:
        return None
    version = checkpoint_version(session_id, checkpoint_id)
    rows = await engine.store.query(
        "sessions", session_id, start="c#", end=checkpoint_sort(version + 1), limit=PAGE, reverse=True
    )
    points = [CheckpointRow.model_validate(row.value) for row in rows]
    if not points or points[0].id != checkpoint_id:
        return None
    last = points[0]
    same = 0
    while same < len(points) and (points[same].step, points[same].lineage) == (last.step, last.lineage):
        same += 1
    told = points[same - 1 :: -1]
    answer, results = await _step_before(engine, session_id, told[0])
    return Untold(answer, results, told)


async def _step_before(
    engine: Engine, session_id: str, point: CheckpointRow
) -> tuple[AssistantRow | None, list[CallRow]]:
    """The answer and results that stand at the end of the checkpoint's messages, behind a user's message at most."""
    lineage = await engine.history.lineage(session_id, point.lineage)
    start = max(lineage.start, point.count - MAX_CALLS_PER_STEP - 2)
    entries = await engine.history.entries(session_id, lineage, start, point.count)
    if entries and isinstance(entries[-1], UserRow):
        entries.pop()
    results: list[CallRow] = []
    while entries and isinstance(entries[-1], CallRow):
        row = entries.pop()
        assert isinstance(row, CallRow)
        results.insert(0, row)
    answer = entries[-1] if entries and isinstance(entries[-1], AssistantRow) else None
    return answer, results
