"""Checks the invariants of a session's messages, lineages and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from helix.core.entries import AnyEntry, AssistantRow, CallRow, UserRow
from helix.core.patches import apply, equals_json
from helix.core.row_keys import checkpoint_version
from helix.core.rows import CheckpointRow
from helix.core.session_row import SessionRow
from helix.core.status import ENDS
from helix.sessions.session_rows import SessionRows

GIVERS = frozenset({"tool", "answer", "plan", "policy", "close", "child", "merge"})


def check_history(rows: SessionRows, session: SessionRow, pruned: bool = False) -> list[str]:
    return [
        *_lineages(rows, session),
        *check_messages("history", rows.history(session.lineage, session.count), session.step),
        *_open_step(rows, session),
        *_checkpoints(rows, session),
        *_views(rows, session),
        *_agents(rows, session),
        *(() if pruned else _states(rows)),
        *_authors(rows, session),
    ]


def check_messages(name: str, entries: Sequence[AnyEntry | None], step: int) -> Iterator[str]:
    """Check pairs_whole and one_answer_per_step: each call has one result directly after it, and steps are 1, 2, 3,
    ..."""
    expected: list[str] = []
    seen: set[str] = set()
    answers = 0
    for index, entry in enumerate(entries):
        if entry is None:
            yield f"checkpoint_forever: message {index} of {name} is missing"
            return
        if expected:
            if not isinstance(entry, CallRow) or entry.call_id != expected[0] or entry.state != "done":
                yield f"pairs_whole: message {index} of {name} is not the result of {expected[0]!r}: {entry!r}"
                return
            expected.pop(0)
            yield from _done(name, entry)
        elif isinstance(entry, CallRow):
            yield f"pairs_whole: message {index} of {name} is a result without its call: {entry!r}"
            return
        elif isinstance(entry, AssistantRow):
            answers += 1
            if entry.step != answers:
                yield f"one_answer_per_step: answer {answers} of {name} has step {entry.step}"
            expected = [call.id for call in entry.tool_calls]
            if len(set(expected)) != len(expected) or seen & set(expected):
                yield f"pairs_whole: {name} repeats a call id: {expected}"
            seen.update(expected)
    if expected:
        yield f"pairs_whole: {name} ends before the results of {expected}"
    if answers != step:
        yield f"one_answer_per_step: {name} has {answers} answers but is at step {step}"


def _whole(entries: Sequence[AnyEntry | None]) -> dict[int, int]:
    """Return the last step of each complete prefix, by its number of messages. Equivalent to `check_messages` on every
    prefix, in one pass."""
    found, answers, expected = {0: 0}, 0, list[str]()
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        if expected:
            if not isinstance(entry, CallRow) or entry.call_id != expected.pop() or entry.state != "done":
                break
            if any(_done("", entry)):
                break
        elif isinstance(entry, AssistantRow):
            answers += 1
            expected = [call.id for call in reversed(entry.tool_calls)]
            if entry.step != answers or len(set(expected)) != len(expected) or seen & set(expected):
                break
            seen.update(expected)
        elif not isinstance(entry, UserRow):
            break
        if not expected:
            found[index + 1] = answers
    return found


def _done(name: str, row: CallRow) -> Iterator[str]:
    if row.content is None or (row.success is None and row.by != "close"):
        yield f"result_immutable: call {row.call_id!r} of {name} is done without a result"
    if row.by not in GIVERS:
        yield f"result_immutable: call {row.call_id!r} of {name} was done by {row.by!r}"


def _lineages(rows: SessionRows, session: SessionRow) -> Iterator[str]:
    if not session.lineage <= session.lineages:
        yield f"checkpoint_forever: the session is on lineage {session.lineage}, but it has {session.lineages}"
    for number in range(1, session.lineages + 1):
        row = rows.lineages.get(number)
        if row is None:
            yield f"checkpoint_forever: lineage {number} is missing"
        elif row.start != max((upto for _, upto in row.chain), default=0):
            yield f"checkpoint_forever: lineage {number} starts at {row.start}, but its chain is {row.chain}"
    extra = set(rows.lineages) - set(range(session.lineages + 1))
    if extra:
        yield f"zombie_invisible: the session does not name lineages {sorted(extra)}"


def _open_step(rows: SessionRows, session: SessionRow) -> Iterator[str]:
    """Check that the open step is complete, and that no rows follow it in the current lineage."""
    end = session.count
    if session.open is not None:
        step = session.open
        end = step.base + 1 + step.calls
        answer = rows.entries.get((session.lineage, step.base))
        if step.base != session.count or step.step != session.step + 1:
            history = f"a history of {session.count} messages at step {session.step}"
            yield f"answer_fits_history: open step {step!r} does not follow {history}"
        if not isinstance(answer, AssistantRow):
            yield f"staged_answer_immutable: the open step's answer is missing: {answer!r}"
            return
        if (answer.step, answer.attempt, answer.run_id) != (step.step, step.attempt, step.run_id):
            author = f"run {answer.run_id!r}, step {answer.step}, attempt {answer.attempt}"
            yield f"staged_answer_immutable: the open step {step!r} has an answer of {author}"
        if len(answer.tool_calls) != step.calls:
            yield f"pairs_whole: the open step counts {step.calls} calls, but its answer has {len(answer.tool_calls)}"
        for place, request in enumerate(answer.tool_calls):
            row = rows.entries.get((session.lineage, step.base + 1 + place))
            if row is None:
                continue
            if not isinstance(row, CallRow) or row.call_id != request.id or row.step != step.step:
                yield f"pairs_whole: call {place} of the open step is {request.id!r}, but its row is {row!r}"
            elif row.state == "done":
                yield from _done("the open step", row)
            elif (row.state == "claimed" and not _is_held(row)) or (row.state == "asked" and row.ask is None):
                yield f"no_finished_tool_again: call {request.id!r} is {row.state!r} without an owner or a question"
    beyond = [index for lineage, index in rows.entries if lineage == session.lineage and index >= end]
    if beyond:
        yield f"zombie_invisible: messages {sorted(beyond)} are beyond the end of history ({end})"


def _is_held(row: CallRow) -> bool:
    """Return whether a claimed call has an owner. A call whose heartbeat is missing lost it when it began to wait."""
    return row.owner is not None or (row.later is not None and row.deadline == 0)


def _checkpoints(rows: SessionRows, session: SessionRow) -> Iterator[str]:
    whole = {lineage: _whole(rows.history(lineage, rows.length(lineage))) for lineage in rows.lineages}
    for point in rows.checkpoints.values():
        if f"c#{checkpoint_version(rows.session_id, point.id):010d}" not in rows.values:
            yield f"checkpoint_forever: checkpoint {point.id!r} cannot be found by its id"
        if point.status not in ENDS | {"running"}:
            yield f"checkpoint_forever: checkpoint {point.id!r} has status {point.status!r}"
        if point.run_id and point.run_id not in rows.runs:
            yield f"checkpoint_forever: checkpoint {point.id!r} names a run that does not exist: {point.run_id!r}"
        holder = rows.checkpoints.get(point.state_at)
        if holder is None or holder.state is None:
            yield f"checkpoint_forever: checkpoint {point.id!r} names a state at {point.state_at!r}, which does not exist"
        if whole.get(point.lineage, {}).get(point.count) != point.step:
            yield from check_messages(f"checkpoint {point.id!r}", rows.history(point.lineage, point.count), point.step)
    latest = rows.checkpoints.get(session.checkpoint)
    if latest is None:
        yield f"checkpoint_forever: the session's checkpoint {session.checkpoint!r} is missing"
        return
    here = (session.lineage, session.count, session.step, session.state_at)
    if (latest.lineage, latest.count, latest.step, latest.state_at) != here:
        yield f"answer_fits_history: the session is at {here}, but its checkpoint is {latest!r}"


def _views(rows: SessionRows, session: SessionRow) -> Iterator[str]:
    """Check that each view that a row names exists and shows no more messages than the history has at that point."""
    named = [("the session", session.context.view, session.lineage, session.count)]
    named += [(f"checkpoint {p.id!r}", p.view, p.lineage, p.count) for p in rows.checkpoints.values()]
    named += [(f"run {r.run_id!r}", r.start_view, r.start_lineage, r.start_count) for r in rows.runs.values()]
    for name, version, lineage, count in named:
        view = rows.views.get(version)
        if version and view is None:
            yield f"checkpoint_forever: {name} names view {version}, which does not exist"
        elif view is not None and not 0 <= view.hidden <= max(view.hidden, view.cleared) <= count:
            yield f"answer_fits_history: {name} has {count} messages, but its view is {view!r}"
        elif view is not None and isinstance(_message_at(rows, lineage, view.hidden, count), CallRow):
            yield f"pairs_whole: view {version} of {name} begins with a result"


def _agents(rows: SessionRows, session: SessionRow) -> Iterator[str]:
    """Check that each answer was made by the agent that was active, and that rows name the agent that their history
    makes active."""
    named = [("the session", session.active_agent, session.lineage, session.count)]
    named += [(f"checkpoint {p.id!r}", p.active_agent, p.lineage, p.count) for p in rows.checkpoints.values()]
    named += [(f"run {r.run_id!r}", r.start_agent, r.start_lineage, r.start_count) for r in rows.runs.values()]
    after: dict[int, list[str]] = {}
    for lineage in {lineage for _, _, lineage, _ in named}:
        active = ""
        after[lineage] = [active]
        for entry in rows.history(lineage, rows.length(lineage)):
            if isinstance(entry, AssistantRow):
                if entry.agent != active:
                    yield f"answer_fits_history: {active!r} was active, but {entry.agent!r} made step {entry.step}"
                active = entry.handoff or active
            after[lineage].append(active)
    for name, agent, lineage, count in named:
        if count < len(after[lineage]) and agent != after[lineage][count]:
            yield f"answer_fits_history: {name} names the active agent {agent!r}, and its history {after[lineage][count]!r}"


def _message_at(rows: SessionRows, lineage: int, index: int, count: int) -> AnyEntry | None:
    return rows.history(lineage, count)[index] if index < count else None


def _states(rows: SessionRows) -> Iterator[str]:
    """Check that within a lineage, each checkpoint's patches turn the previous state into its own."""
    before: CheckpointRow | None = None
    for point in rows.checkpoints_in_order():
        held = rows.checkpoints.get(before.state_at) if before is not None else None
        if before is not None and before.lineage == point.lineage and held is not None and held.state is not None:
            wanted = apply(held.state, point.patches)
            found = rows.checkpoints.get(point.state_at)
            if found is not None and found.state is not None and not equals_json(wanted, found.state):
                yield f"answer_fits_history: patches of {point.id!r} give {wanted}, but its state is {found.state}"
        before = point


def _authors(rows: SessionRows, session: SessionRow) -> Iterator[str]:
    """Check zombie_invisible: every message was written for a run of this session. A copy keeps the run ids of its
    source."""
    if session.forked_from is not None:
        return
    for place, entry in rows.entries.items():
        if entry.run_id is not None and entry.run_id not in rows.runs:
            yield f"zombie_invisible: message {place} names a run that does not exist: {entry.run_id!r}"
        if isinstance(entry, UserRow) and not (entry.content or entry.files):
            yield f"pairs_whole: message {place} is empty"
