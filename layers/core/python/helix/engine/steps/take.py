"""Takes a model's answer: plans its step, has it judged and checked, and writes it (docs/protocol.md#stage).

Law: an answer that was paid for is written, or its cost is recorded for the run's end.
"""

from __future__ import annotations

from dataclasses import replace

from helix.core.session_row import SessionRow
from helix.core.steps import ErrorStepResult, StopReason
from helix.engine.context import RunContext
from helix.engine.engine import Outcome
from helix.engine.guards.outputs import judge_answer
from helix.engine.money.usage import note_lost
from helix.engine.row_requests import read_request
from helix.engine.steps.admit import is_put_off, put_off
from helix.engine.steps.ask import ModelAnswer
from helix.engine.steps.check_output import check_output
from helix.engine.steps.lost_cache import note_lost_cache
from helix.engine.steps.stage import plan_answer, stage
from helix.engine.steps.summary import may_shorten, note_overflow, write_summary
from helix.engine.steps.views import TOO_LONG, Prepared

EXCEEDED = "budget_exceeded"


async def take_answer(run: RunContext, new: SessionRow, prepared: Prepared, answer: ModelAnswer) -> Outcome | None:
    """9: write the model's answer. If the write is refused, the cost of the answer is recorded for the run's end, and
    the rows say how to continue. A request for a summary may come at any time, and never causes an answer to be
    lost."""
    waits = is_put_off(prepared.request, answer.result)
    if prepared.plan.summary is None and answer.plan is None and not waits:
        answer = await _plan(run, new, answer, prepared)
    result, session = answer.result, new
    assert result is not None
    outcome: Outcome | None
    while True:
        if waits and isinstance(result, ErrorStepResult):
            outcome = await put_off(run, session, prepared.request, result)
            written = outcome is not None
        elif prepared.plan.summary is not None:
            outcome, written = None, await write_summary(run, session, prepared, result)
        elif isinstance(result, ErrorStepResult) and result.code == TOO_LONG and may_shorten(session):
            outcome, written = None, await note_overflow(run, session, result)
        else:
            outcome = await stage(run, session, answer, prepared.plan)
            written = outcome is not None
        if written:
            return outcome
        again = await read_request(run.engine, session)
        if again is None and new.claim is not None and new.claim.batch:
            return None  # the answer still waits
        if again is None:
            run.row = None  # the note may change it
            await note_lost(run.engine, session, result.model, result.usage)
            return None
        session = again


async def _plan(run: RunContext, session: SessionRow, answer: ModelAnswer, prepared: Prepared) -> ModelAnswer:
    """Return the answer with the plan of its step that the agent's guards and output checks allow."""
    answer = await note_lost_cache(run, session, answer)
    assert answer.result is not None
    answer = replace(answer, plan=await plan_answer(run, session, answer.result, prepared.plan))
    if run.agent.guards:
        answer = await judge_answer(run, answer, prepared.user_messages)
    return await check_output(run, session, answer) if run.agent.output_checks else answer


def cut_short(answer: ModelAnswer) -> ModelAnswer:
    """Name the budget as the cause of a cut-off answer, if the answer had to be shorter than the agent's own limit."""
    result = answer.result
    if not isinstance(result, ErrorStepResult) or result.stop_reason != StopReason.MAX_TOKENS:
        return answer
    text = f"the budgets had room for a short answer only, and it was cut off: {result.error}"
    return replace(answer, result=result.model_copy(update={"code": EXCEEDED, "error": text}))
