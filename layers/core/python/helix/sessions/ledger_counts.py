"""Counts the invoked functions and entered states of a run's executions from its rows.

The deployed state machine enters CallModel, then Route, and then one branch (infra/definition.py). One invocation of
CallModel executes as many steps as fit. The invocation ends when another function has to execute a call of the step, or
when the run ends. Every answer names the delivery that bought it, and every call that another function executed has a
row, so states and invocations can be counted.

Four things leave no row:

- A delivery was refused because another delivery was active.
- A delivery died while it held no claim. It counts as one that ran out of time.
- A delivery ran out of time just before the run ended.
- A call was handed to another function, which found a stop request.

Law: this module never guesses. Events that no row shows are not counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from helix.core.entries import CallRow
from helix.core.rows import AttemptRow
from helix.core.run_row import RunRow
from helix.sessions.ledger_rows import Answered, SessionRows

KEEPING = frozenset({"continue", "with_confirmation", "takeover", "retry"})
"""The modes in which a run continues the step that the previous run left open."""
NEVER_STARTED = frozenset({"queue_timeout"})
LOOP = ("CallModel", "Route")


@dataclass(frozen=True, slots=True)
class Taken:
    """The calls of one answer that other functions executed."""

    calls: tuple[CallRow, ...]
    """The rows of these calls."""
    from_at: float
    """The earliest time at which the functions could execute the calls, in Unix seconds."""

    @property
    def verbs(self) -> Counter[str]:
        return Counter("start_run" if call.child is not None else "call_tool" for call in self.calls)


@dataclass(slots=True)
class RunCount:
    """The counts of one run, across all its executions."""

    run: RunRow
    """The row of the run."""
    states: Counter[str] = field(default_factory=Counter)
    """The number of times that each state was entered, by the state's name."""
    invocations: Counter[str] = field(default_factory=Counter)
    """The number of invocations, by verb."""
    repeated: Counter[str] = field(default_factory=Counter)
    """The number of `invocations` that repeated a delivery that had died, by verb."""
    model_s: float = 0.0
    """The total number of seconds that `call_model` waited for models and inline tools, computed from the times in the
    rows."""
    tool_s: float = 0.0
    """The total number of seconds that `call_tool` waited for tools."""

    @property
    def transitions(self) -> int:
        return self.states.total() + self.repeated.total()


def count_run(rows: SessionRows, run: RunRow) -> RunCount:
    """Count all executions of the run."""
    found = RunCount(run)
    error = run.error.code if run.error is not None else None
    if run.mode == "abort":  # the caller of the abort ended it, so nothing was executed
        return found
    if error in NEVER_STARTED:
        found.invocations["finish_run"] = 0
        return found
    mine = [one for one in rows.answers if one.answer.run_id == run.run_id]
    adopted = _adopted(rows, run)
    steps = [(one, _taken(one, run)) for one in [*adopted, *mine]]
    taken = [group for _, group in steps if group is not None]
    models = 1
    for (one, group), (after, _) in pairwise(steps):
        another = one in mine and _buyer(one) != _buyer(after) and not _deaths(rows, run, one, after)
        models += group is not None or another
    if steps and steps[-1][1] is not None:
        models += 1
    found.invocations["call_model"] = models
    for group in taken:
        found.invocations += group.verbs
        if len(group.calls) == 1:
            found.states["StartRun" if group.verbs["start_run"] else "CallTool"] += 1
        else:
            found.states["Calls"] += 1
            found.states["Kind"] += len(group.calls)
            found.states["CallOneTool"] += group.verbs["call_tool"]
            found.states["StartOneRun"] += group.verbs["start_run"]
    for state in LOOP:
        found.states[state] += models
    if run.part > 1:  # each part begins with a delivery that finds its position; the previous one ended with one
        rolled = run.part - 1
        found.invocations["call_model"] += rolled
        found.states.update(dict.fromkeys((*LOOP, "Rolled"), rolled))
    if run.status != "running":
        ended = "fail_run" if error in ("aborted", "runtime_crash", "access_denied") else "finish_run"
        found.invocations[ended] += 1
        if ended == "finish_run":
            found.states["FinishRun"] += 1
    _repeats(rows, run, mine, taken, found)
    _times(rows, run, mine, taken, found)
    found.states = +found.states
    found.invocations = +found.invocations
    return found


def _adopted(rows: SessionRows, run: RunRow) -> list[Answered]:
    """Return the step that was open when the run began, if the run continued it."""
    if run.mode not in KEEPING:
        return []
    turns = {other.run_id: other.turn for other in rows.runs}
    return [
        one
        for one in rows.answers
        if one.lineage == run.start_lineage
        and one.answer.step == run.first_step
        and turns.get(one.answer.run_id, run.turn) < run.turn
    ]


def _executed(one: Answered) -> list[CallRow]:
    """Return the answer's calls that were not already resolved with the answer."""
    return [row for row in one.calls if row is not None and row.by != "plan"]


def _inline(one: Answered) -> list[CallRow]:
    return [row for row in _executed(one) if row.inline]


def _taken(one: Answered, run: RunRow) -> Taken | None:
    """Return the calls that other functions executed. None if the delivery that bought or found the answer continued on
    its own. A call that waits for a person was written with the answer; a function executes it only after its
    approval."""
    calls = []
    for row in _executed(one):
        again = row.child is not None and run.mode in KEEPING and (row.ended_at or run.started_at + 1) > run.started_at
        if row.claim >= 1 and (row.run_id == run.run_id or again) and not row.inline:
            calls.append(row)
    from_at = max([one.answer.created_at, run.started_at, *(row.ended_at or 0 for row in _inline(one))])
    return Taken(tuple(calls), from_at) if calls else None


def _buyer(one: Answered) -> str:
    """Return the delivery that bought the answer."""
    return one.answer.attempt_id.rpartition(".")[0]


def _deaths(rows: SessionRows, run: RunRow, one: Answered, after: Answered) -> int:
    """Return the number of deliveries that died between two answers, during an inline call or a model call. Each was
    repeated."""
    step = after.answer.step
    return _deaths_in_calls(one) + sum(1 for row in rows.attempts if _dead(row, run) and row.step == step)


def _deaths_in_calls(one: Answered) -> int:
    """Return the number of deliveries that died during a step's calls. The calls run concurrently, so after one death
    each of them is claimed again."""
    return max((max(0, row.claim - 1) + (row.by == "policy") for row in _inline(one)), default=0)


def _dead(row: AttemptRow, run: RunRow) -> bool:
    return row.run_id == run.run_id and row.outcome == "dead"


def _repeats(rows: SessionRows, run: RunRow, mine: list[Answered], taken: list[Taken], found: RunCount) -> None:
    dead = sum(1 for row in rows.attempts if _dead(row, run))
    alive = max(0, dead - (run.error is not None and run.error.code == "runtime_crash"))
    alive += sum(_deaths_in_calls(one) for one in mine)
    claims = sum(max(0, row.claim - 1) for group in taken for row in group.calls if row.child is None)
    for verb, many in (("call_model", alive), ("call_tool", claims)):
        if many:
            found.repeated[verb] += many
            found.invocations[verb] += many


def _times(rows: SessionRows, run: RunRow, mine: list[Answered], taken: list[Taken], found: RunCount) -> None:
    """Add up the times between recorded events: from the event before an answer to the answer, and from there to its
    results."""
    before = run.started_at
    bought = [(one.answer.created_at, one) for one in mine]
    bought += [(row.at, None) for row in rows.attempts if row.run_id == run.run_id]  # type: ignore[misc]
    for at, one in sorted(bought, key=lambda pair: pair[0]):
        found.model_s += max(0.0, at - before)
        ended = [row.ended_at for row in _executed(one) if row.ended_at is not None] if one is not None else []
        inline = [row.ended_at for row in _inline(one) if row.ended_at] if one is not None else []
        found.model_s += max(0.0, max(inline, default=at) - at)
        before = max([at, *ended])
    for group in taken:
        for row in group.calls:
            if row.child is None and row.ended_at is not None:
                found.tool_s += max(0.0, row.ended_at - group.from_at)
