"""The model part of the ledger: one line for every attempt, and one for the usage that each tool reported.

Law: these lines add up to the cost in the run rows. If they do not, an extra line says so and adds the unexplained
cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from helix.core.entries import CallRow
from helix.core.ledger import NANOS, Line, total
from helix.core.lost_caches import describe_loss
from helix.core.run_row import RunRow
from helix.core.usage import Usage
from helix.core.usage_parts import AGENTS, ASSUMED
from helix.services.session_calls import ModelCall
from helix.sessions.ledger_rows import SessionRows

MODEL, TOOL, BOOKS = "Model", "Tool", "Books"
MICRO = NANOS // 1_000_000
KNOWN = ("answered", "summary", "failed", "lost")
"""The outcomes of calls whose usage the provider reported."""
SUMMARISED = "it took the place of earlier messages"


def model_lines(rows: SessionRows, calls: Sequence[ModelCall]) -> list[Line]:
    """Return the lines for one session: its model calls, the usage of its tools, and any difference from its run
    rows."""
    own = {run.run_id for run in rows.runs}  # a copy begins with answers that another session paid for
    lines = [_call(call) for call in calls]
    for one in rows.answers:
        if one.answer.run_id in own:
            lines += [line for row in one.calls if row is not None for line in _tool(rows, row)]
    booked, listed = sum(_booked(rows, run) for run in rows.runs), total(lines)
    if booked != listed:
        lines.append(
            Line(
                service=BOOKS,
                what="difference to the runs' rows",
                session_id=rows.session.session_id,
                quantity=1,
                unit="difference",
                nanos=max(0, booked - listed),  # a row with a lower cost does not reduce what was spent
                basis="estimated",
                how=f"the rows of its runs say ${booked / NANOS:.6f}, its calls ${listed / NANOS:.6f}",
            )
        )
    return lines


def _call(call: ModelCall) -> Line:
    known = call.outcome in KNOWN
    tokens = call.usage.total_tokens if known else call.assumed_tokens
    basis, how = _of_outcome(call)
    return Line(
        service=MODEL,
        what=f"{call.model or 'a model'}{'' if call.outcome == 'answered' else f', {call.outcome}'}",
        session_id=call.session_id,
        quantity=tokens,
        unit="tokens",
        nanos=(call.usage.cost_micros if known else call.assumed_micros) * MICRO,
        basis=basis,  # type: ignore[arg-type]
        how=how,
        run_id=call.run_id,
        step=call.step,
        attempt=call.attempt,
    )


def _of_outcome(call: ModelCall) -> tuple[str, str]:
    match call.outcome:
        case "answered" | "summary" | "failed" | "lost":
            if call.usage.unknown_calls:
                return "estimated", "at least: the provider did not report all that it used"
            if not call.usage.priced:
                return "estimated", "the price of this model is not known: it counts as $0 here"
            details = {"lost": "paid and discarded", "failed": call.error or "no answer", "summary": SUMMARISED}
            return "measured", details.get(call.outcome, describe_loss(call.lost_cache, call.usage))
        case _:
            if call.assumed_micros or call.assumed_tokens:
                return "estimated", "its result is unknown: its reserved worst case counts as spent"
            return "estimated", "its result is unknown, and no budget had reserved for it"


def _tool(rows: SessionRows, row: CallRow) -> Iterable[Line]:
    """Yield the line for a tool call. A sub-agent's usage is in the lines of its own session."""
    if row.usage is None or row.child is not None or row.usage == Usage():
        return
    yield Line(
        service=TOOL,
        what=row.tool_name,
        session_id=rows.session.session_id,
        quantity=row.usage.total_tokens,
        unit="tokens",
        nanos=row.usage.cost_micros * MICRO,
        basis="measured",
        how="as the tool reported",
        run_id=row.run_id,
        step=row.step,
    )


def _booked(rows: SessionRows, run: RunRow) -> int:
    """Return the run row's cost for this session itself, spent or counted as spent, without its sub-agents."""
    usage, parts, claim = run.usage, run.parts, run.claim
    if run.status == "running" and run.run_id == rows.session.run_id:  # the claim moves to the run's row at its end
        usage, parts = rows.session.run_usage, rows.session.run_parts
    micros = usage.cost_micros + run.late_micros
    if AGENTS in parts:
        micros -= parts[AGENTS].cost_micros
    late = [row for row in rows.attempts if row.run_id == run.run_id and row.outcome == "lost"]
    assumed = parts[ASSUMED].cost_micros if ASSUMED in parts else 0
    if claim is not None:
        came_late = any((row.step, row.attempt) == (claim.step, claim.attempt) for row in late)
        assumed += 0 if came_late else claim.micros
    counted = sum(row.assumed_micros for row in late)  # the answer came late, after its cost was assumed
    return (micros + max(0, assumed - counted)) * MICRO
