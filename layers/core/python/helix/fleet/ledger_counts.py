"""What a run's rows say of its executions: which functions were called how often, and which states were entered.

The deployed machine goes CallModel, Next, and then one way (infra/definition.py); every answer, and every call that an
execution took on, left a row. So states and deliveries can be counted from rows, but for repeats: a delivery that was
refused because another was at work left nothing.

Law: nothing is guessed here. What rows do not tell is not counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from helix.core.rows import CallRow, RunRow
from helix.fleet.ledger_rows import Answered, SessionRows

KEEPING = frozenset({"continue", "with_confirmation", "takeover", "retry"})
"""Modes in which a run goes on with the step that the one before left open."""
NEVER_STARTED = frozenset({"queue_timeout"})
BETWEEN_STEPS = frozenset({"aborted", "runtime_crash", "budget_exceeded", "invalid_agent", "context_too_large"})
"""Errors that end a run in a delivery of their own, after its last answer."""
LOOP = ("CallModel", "Next")


@dataclass(frozen=True, slots=True)
class Taken:
    """The calls of one answer that an execution took on together. `from_at`: since when they could be (Unix seconds)."""

    calls: tuple[CallRow, ...]
    from_at: float

    @property
    def verbs(self) -> Counter[str]:
        return Counter("start_run" if call.child is not None else "call_tool" for call in self.calls)


@dataclass(slots=True)
class RunCount:
    """`states`: how often each was entered. `invocations`: by verb. `repeated`: of these, deliveries that came again after
    one that died. `model_s`: between what came before an answer and the answer, all together."""

    run: RunRow
    states: Counter[str] = field(default_factory=Counter)
    invocations: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)
    model_s: float = 0.0
    tool_s: float = 0.0

    @property
    def transitions(self) -> int:
        return self.states.total() + self.repeated.total()


def count_run(rows: SessionRows, run: RunRow) -> RunCount:
    """Of all executions of the run."""
    found = RunCount(run)
    error = run.error.code if run.error is not None else None
    if error in NEVER_STARTED:
        found.invocations["finish_run"] = 0
        return found
    mine = [one for one in rows.answers if one.answer.run_id == run.run_id]
    adopted = _adopted(rows, run)
    taken = [group for one in [*adopted, *mine] if (group := _taken(one, run)) is not None]
    models = len(mine) + len(adopted) + (0 if _ended_by_answer(rows, run, mine) else 1)
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
    if run.part > 1:  # each part begins with a delivery that finds what to do; the one before ended with one
        rolled = run.part - 1
        found.invocations["call_model"] += rolled
        found.states.update(dict.fromkeys((*LOOP, "Rolled"), rolled))
    if run.status != "running":
        ended = "fail_run" if error in ("aborted", "runtime_crash") else "finish_run"
        found.invocations[ended] += 1
        if ended == "finish_run":
            found.states["FinishRun"] += 1
    _repeats(rows, run, taken, found)
    _times(rows, run, mine, taken, found)
    found.states = +found.states
    found.invocations = +found.invocations
    return found


def _adopted(rows: SessionRows, run: RunRow) -> list[Answered]:
    """The step that was open when the run began, if it went on with it."""
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
    """Its calls that were not settled with the answer itself."""
    return [row for row in one.calls if row is not None and row.by != "plan"]


def _taken(one: Answered, run: RunRow) -> Taken | None:
    calls = []
    asked = {pending.call_id for pending in run.pending} if one.answer.run_id == run.run_id else set()
    for row in _executed(one):
        again = row.child is not None and run.mode in KEEPING and (row.ended_at or run.started_at + 1) > run.started_at
        claimed = row.claim >= 1 and (row.run_id == run.run_id or again)
        # Who must be asked finds the delivery that takes the call on; what he says is taken on by the next run.
        asks = row.call_id in asked or (row.state == "asked" and row.run_id == run.run_id)
        if (claimed or asks) and not row.inline:
            calls.append(row)
    return Taken(tuple(calls), max(one.answer.created_at, run.started_at)) if calls else None


def _ended_by_answer(rows: SessionRows, run: RunRow, mine: list[Answered]) -> bool:
    """Whether the delivery that bought the last answer also ended the run."""
    if not mine or run.status not in ("completed", "failed"):
        return False
    last = max(mine, key=lambda one: one.answer.step)
    later = any(row.run_id == run.run_id and row.step > last.answer.step for row in rows.attempts)
    between = run.error is not None and run.error.code in BETWEEN_STEPS
    open_calls = [request for request, row in zip(last.answer.tool_calls, last.calls, strict=True) if row is None]
    return not (_executed(last) or open_calls or later or between)


def _repeats(rows: SessionRows, run: RunRow, taken: list[Taken], found: RunCount) -> None:
    dead = sum(1 for row in rows.attempts if row.run_id == run.run_id and row.outcome == "dead")
    alive = max(0, dead - (run.error is not None and run.error.code == "runtime_crash"))
    claims = sum(max(0, row.claim - 1) for group in taken for row in group.calls if row.child is None)
    for verb, many in (("call_model", alive), ("call_tool", claims)):
        if many:
            found.repeated[verb] += many
            found.invocations[verb] += many


def _times(rows: SessionRows, run: RunRow, mine: list[Answered], taken: list[Taken], found: RunCount) -> None:
    """From the moments that the rows know: what came before an answer, the answer, its results."""
    before = run.started_at
    bought = [(one.answer.created_at, one) for one in mine]
    bought += [(row.at, None) for row in rows.attempts if row.run_id == run.run_id]  # type: ignore[misc]
    for at, one in sorted(bought, key=lambda pair: pair[0]):
        found.model_s += max(0.0, at - before)
        ended = [row.ended_at for row in _executed(one) if row.ended_at is not None] if one is not None else []
        inline = [row.ended_at for row in _executed(one) if row.inline and row.ended_at] if one is not None else []
        found.model_s += max(0.0, max(inline, default=at) - at)
        before = max([at, *ended])
    for group in taken:
        for row in group.calls:
            if row.child is None and row.ended_at is not None:
                found.tool_s += max(0.0, row.ended_at - group.from_at)
