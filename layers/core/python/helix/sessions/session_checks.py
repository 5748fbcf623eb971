"""Checks the invariants of the rows of a session and its sub-agents (docs/protocol.md#invariants).

Law: the checks are pure functions of rows that were already read. A problem is one line, `property: description`. Tests
check the sessions that they create (`helix.testing.invariants`), and imports check the sessions that they receive
(`helix.sessions.export_checks`).
"""

from __future__ import annotations

from collections.abc import Iterator

from helix.core.entries import CallRow, UserRow
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.core.status import CLAIMS, ENDS, FINAL_RUNS
from helix.sessions.history_checks import check_history
from helix.sessions.session_rows import SessionRows


def check_rows(rows: SessionRows, *, at_rest: bool = False, pruned: bool = False) -> list[str]:
    """Return the problems with one session's rows. With `pruned`, checkpoints may be missing, and the checks do not
    rely on them."""
    session = rows.session
    if session is None:
        return list(_absent(rows))
    if session.status == "deleting":
        return []
    problems = [*_session(rows, session), *_runs(rows, session, pruned), *check_history(rows, session, pruned)]
    if at_rest:
        problems += _at_rest(rows, session)
    return problems


def _absent(rows: SessionRows) -> Iterator[str]:
    """Check that a partition without a session row is empty, or the beginning of a copy."""
    left = [sort for sort in rows.values if not sort.startswith("m#") and sort != "copying"]
    if left or (rows.values and "copying" not in rows.values):
        yield f"zombie_invisible: rows without a session: {sorted(rows.values)[:5]}"


def _session(rows: SessionRows, session: SessionRow) -> Iterator[str]:
    if session.status not in ENDS | {"running"}:
        yield f"legal_transitions: status {session.status!r} is not in the table"
    if session.claim is not None and session.open is not None:
        yield "no_answer_rebought: a step is being bought while another is open"
    if session.claim is not None and session.claim.step != session.step + 1:
        yield f"no_answer_rebought: claim on step {session.claim.step}, history ends at {session.step}"
    if session.status != "running":
        if session.claim is not None or session.blocks:
            yield "effects_once: the session does not run and still holds a claim or money"
        if session.lease_owner is not None:
            yield f"effects_once: the session does not run and {session.lease_owner!r} holds its lease"
    if session.status == "completed" and session.open is not None:
        yield "pairs_whole: completed with an open step"
    if (session.error is not None) != (session.status == "failed"):
        yield f"legal_transitions: status {session.status!r} with error {session.error!r}"
    if session.status == "paused":
        yield from _paused(rows, session)
    elif session.pending:
        yield f"no_answer_lost: {session.status!r} with pending calls"
    if session.aborted and session.status != "failed":
        yield f"legal_transitions: aborted, but {session.status!r}"


def _paused(rows: SessionRows, session: SessionRow) -> Iterator[str]:
    run = rows.runs.get(session.run_id)
    if not session.pending and (run is None or run.reason != "budget_exceeded"):
        yield "no_answer_lost: paused, but not waiting for anything"
    calls = {e.call_id: e for e in rows.entries.values() if isinstance(e, CallRow)}
    for pending in session.pending:
        row = calls.get(pending.call_id)
        wanted = "claimed" if pending.kind == "child" else "asked"
        if row is None or row.state != wanted:
            yield f"no_answer_lost: paused on call {pending.call_id!r}, which is {row.state if row else 'missing'!r}"


def _runs(rows: SessionRows, session: SessionRow, pruned: bool) -> Iterator[str]:
    runs = rows.runs_in_order()
    first = 1 if session.forked_from is None or runs else 0
    turns = [run.turn for run in runs]
    if turns != list(range(first, session.turn + 1)) and not (not runs and session.turn == 0):
        yield f"one_winner_per_claim: turn is {session.turn}, and there are runs of turns {turns}"
    if runs and runs[-1].run_id != session.run_id:
        yield f"one_winner_per_claim: current run is {session.run_id!r}, newest {runs[-1].run_id!r}"
    waited = {e.run_id for e in rows.entries.values() if isinstance(e, UserRow) and e.queued}  # ids from their arrival
    ids = [run.run_id for run in runs if run.run_id not in waited]
    if ids != sorted(ids):
        yield "one_winner_per_claim: run ids do not sort by turn"
    for before, run in zip([None, *runs][:-1], runs, strict=True):
        yield from _run(rows, session, before, run)
        origin = rows.checkpoints.get(run.start_state_at)
        needed = run.start_state_at and (run.run_id == session.run_id or not pruned)
        if needed and (origin is None or origin.state is None):
            yield f"checkpoint_forever: turn {run.turn} began on a state that does not exist: {run.start_state_at!r}"
    for run_id in rows.stops:
        if run_id not in rows.runs:
            yield f"interrupt_own_run: a stop names a run that does not exist: {run_id!r}"


def _run(rows: SessionRows, session: SessionRow, before: RunRow | None, run: RunRow) -> Iterator[str]:
    name = f"run of turn {run.turn}"
    current = run.run_id == session.run_id
    if current and run.status != session.status:
        yield f"legal_transitions: {name} is {run.status!r}, its session {session.status!r}"
    if not current and run.status not in FINAL_RUNS:
        yield f"legal_transitions: {name} has a successor and is {run.status!r}"
    if run.mode not in CLAIMS:
        yield f"legal_transitions: {name} has mode {run.mode!r}"
    expected = before.run_id if before is not None else ("" if session.forked_from is not None else None)
    if (run.previous_run_id or None) != (expected or None):
        yield f"one_winner_per_claim: {name} follows {run.previous_run_id!r}, not {expected!r}"
    if run.effects == "done" and run.status == "running":
        yield f"effects_once: {name} runs and had its effects"
    if (run.ended_at is None) != (run.status == "running"):
        yield f"legal_transitions: {name} is {run.status!r} and ended at {run.ended_at}"
    if (run.error is not None) != (run.status == "failed"):
        yield f"legal_transitions: {name} is {run.status!r} with error {run.error!r}"
    if current and run.status != "running" and (run.output, run.error) != (session.output, session.error):
        yield f"legal_transitions: {name} and its session have different ends"
    if run.start_count > rows.length(run.start_lineage):
        yield f"checkpoint_forever: {name} began on messages that do not exist"


def _at_rest(rows: SessionRows, session: SessionRow) -> Iterator[str]:
    if session.status == "running":
        yield f"never_stuck: run {session.run_id!r} runs, and no worker executes it"
    for run in rows.runs.values():
        if run.status != "running" and run.effects != "done":
            yield f"effects_once: run of turn {run.turn} is {run.status!r} without its effects"


def check_children(tree: list[SessionRows], *, at_rest: bool) -> list[str]:
    """Check one_child, told_once and parent_wakes over a tree from `read_tree`."""
    by_id = {rows.session_id: rows for rows in tree}
    problems: list[str] = []
    if len(by_id) != len(tree):
        problems.append("one_child: two calls name one child session")
    for rows in tree[1:]:
        child = rows.session
        if child is None or child.status == "deleting":
            continue
        parent = by_id.get(child.parent.session_id) if child.parent is not None else None
        if parent is None or child.parent is None:
            problems.append(f"one_child: {child.session_id!r} does not know its parent")
            continue
        reported = [
            (lineage, row)
            for (lineage, _), row in parent.entries.items()
            if isinstance(row, CallRow) and row.child is not None and row.child.session_id == child.session_id
        ]
        problems += _reported(child, rows, reported, parent, at_rest=at_rest)
    return problems


def _reported(
    child: SessionRow, rows: SessionRows, reported: list[tuple[int, CallRow]], parent: SessionRows, *, at_rest: bool
) -> Iterator[str]:
    call_id = child.parent.call_id if child.parent is not None else ""
    if len(reported) != 1:
        yield f"one_child: call {call_id!r} of child {child.session_id!r} has {len(reported)} rows"
        return
    ((lineage, row),) = reported
    if row.call_id != call_id:
        yield f"one_child: child {child.session_id!r} is of call {call_id!r}, and call {row.call_id!r} has it"
    if row.state == "done" and row.by == "child":
        ended = [run for run in rows.runs.values() if run.status in ("completed", "failed")]
        if not any((run.status == "completed") == row.success for run in ended):
            yield f"told_once: call {call_id!r} has a result that no run of {child.session_id!r} gave"
    current = parent.session
    waits = (
        current is not None and current.open is not None and (current.lineage, current.open.step) == (lineage, row.step)
    )
    if at_rest and waits and row.state != "done" and child.status in ("completed", "failed"):
        yield f"parent_wakes: child {child.session_id!r} is {child.status!r}, and its parent has no report"
