"""Ends a run that was stopped during a model call, and keeps the text of the cut answer if the agent asks for it.

Law: what becomes history is what readers have: the log has acknowledged it, and no guard may still refuse it. The
transaction that ends the run adds it, so a worker that dies before that keeps nothing.
"""

from __future__ import annotations

from helix.core.entries import AssistantRow
from helix.core.rows import StopRow
from helix.core.session_row import SessionRow
from helix.core.steps import StopReason
from helix.core.usage_parts import static_model
from helix.engine.context import RunContext
from helix.engine.engine import Over
from helix.engine.row_requests import read_request
from helix.engine.steps.ask import ModelAnswer
from helix.engine.steps.close import stop_run


async def stop_call(run: RunContext, session: SessionRow, answer: ModelAnswer, stop: StopRow) -> Over | None:
    """End the run whose model call was stopped. None: the write was refused, so the rows say how to continue. A request
    for a summary may come at any time, and never causes a kept answer to be lost."""
    known: SessionRow | None = session
    while known is not None:
        outcome = await stop_run(
            run, known, stop, cut=_cut_answer(run, known, answer) if stop.stop == "interrupt" else None
        )
        if outcome is not None:
            return outcome
        known = await read_request(run.engine, known)
    return None


def _cut_answer(run: RunContext, session: SessionRow, answer: ModelAnswer) -> AssistantRow | None:
    """Return the row of the cut answer, or None if nothing of it is kept. Its calls are never kept, because their
    arguments may be incomplete, nor its reasoning, whose signature is missing. The usage is in the row of the attempt."""
    claim, agent = session.claim, run.agent
    assert claim is not None
    if not agent.keep_partial or session.parent is not None or not answer.partial.strip():
        return None
    if any(guard.judges("output") or (guard.judges("input") and guard.when == "beside") for guard in agent.guards):
        return None
    return AssistantRow(
        run_id=session.run_id,
        step=claim.step,
        attempt=claim.attempt,
        attempt_id=claim.attempt_id,
        content=answer.partial,
        agent=session.active_agent,
        stop_reason=StopReason.INTERRUPTED,
        model=static_model(agent) or None,
        head=session.head,
        output_limit=session.output_limit,
        view=session.context.view,
        verdicts=list(answer.verdicts),
        created_at=run.now(),
    )
