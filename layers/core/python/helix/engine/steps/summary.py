"""Writes a summary, which replaces the beginning of a conversation (docs/protocol.md#views).

Law: one transaction on AT(v) writes the view and records the call's usage. The call has an attempt row instead of an
answer, and does not count as a step of the run. If the summary fails, is empty, or is longer than the text it replaces,
the same transaction records the failure instead of the view, and the run continues without a summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from helix.core.config import LLMConfig
from helix.core.context_policy import Summary
from helix.core.estimating import estimate_request, estimate_text
from helix.core.messages import AnyMessage, UserMessage
from helix.core.prompt import note_cuts
from helix.core.row_keys import attempt_sort
from helix.core.session_row import SessionRow, StepClaim
from helix.core.steps import AnyStepResult, ErrorStepResult, TextStepResult
from helix.core.usage_parts import with_answer
from helix.core.view_row import ContextMark, ViewRow
from helix.core.views import show_history
from helix.engine.context import RunContext
from helix.engine.engine import logger
from helix.engine.facts import ContextChanged
from helix.engine.history import row_key
from helix.engine.money.reservations import settle
from helix.engine.money.usage import failed_put, summary_put
from helix.engine.observers import show
from helix.engine.steps.views import MOST_OVERFLOWS, Prepared
from helix.engine.writing import at_version, session_put, view_put
from helix.ports.model import LLMGenerateInput
from helix.ports.state_store import Operation
from helix.services.batch_rows import call_taken

MOST_TOKENS = 4_096
"""The maximum length of a summary, in tokens."""
INSTRUCTIONS = """\
Stop working on the task for a moment. Write a summary of this conversation, because its beginning will be removed and \
only your summary will remain of it. Do not call a tool, and do not address the user. State, in this order:
1. What the user asked for, with every requirement, constraint and preference, in the user's own words where they matter.
2. What was done and found out: facts, numbers, names, ids, file paths, decisions and their reasons, and errors.
3. What is unfinished, and what the next action was going to be.
Keep everything that is needed to continue. Leave out everything that is not. Write at most 800 words."""


def summary_request(
    request: LLMGenerateInput, view: ViewRow | None, history: Sequence[AnyMessage], summary: Summary, recall: bool
) -> LLMGenerateInput:
    """Return the request for the summary. It begins like `request`, which the provider's prompt cache may still hold,
    and ends with the summary instructions instead of the rest."""
    system = [message for message in request.messages if message.role == "system"]
    asked = INSTRUCTIONS if not summary.focus else f"{INSTRUCTIONS}\nPay particular attention to: {summary.focus}"
    shown = note_cuts(show_history(view, history[: summary.upto], recall=recall))
    messages = [*system, *shown, UserMessage(content=asked)]
    config = request.config
    if summary.model is not None and summary.model != config.model:
        retries, timeout_s = config.max_retries, config.timeout_s
        # No later request of that model begins like this one.
        config = LLMConfig(model=summary.model, max_retries=retries, timeout_s=timeout_s, cache=False)
    limit = min(config.max_output_tokens or MOST_TOKENS, MOST_TOKENS)
    config = config.model_copy(update={"max_output_tokens": limit, "response_cache": None})
    return replace(request, messages=messages, config=config, tool_choice="none", output_schema=None, passing=1)


async def write_summary(run: RunContext, session: SessionRow, prepared: Prepared, result: AnyStepResult) -> bool:
    """Write the view with the summary in `result`, or record that it failed. False: the write was refused."""
    claim, view, summary = session.claim, prepared.plan.view, prepared.plan.summary
    assert claim is not None and summary is not None
    now, engine = run.now(), run.engine
    history = (await engine.history.messages(session))[: summary.upto]
    text, problem = _text_of(result, view, history)
    new = run.next_version(session)
    settle(engine, new, result.usage)
    new.run_parts = with_answer(new.run_parts, run.own, result.model, result.usage)
    answered = prepared.plan.cause == "request" and session.context.asked == summary.focus
    asked = None if answered else session.context.asked  # another request may have arrived in the meantime
    changes = {"step": claim.step, "attempt": claim.attempt, "asked": asked}
    overflows = overflows_of(session, claim)
    row: ViewRow | None = None
    ops: list[Operation] = []
    if problem is None:
        changes |= {"view": new.version, "tokens": 0, "failed": 0, "overflows": overflows}
        row = ViewRow(
            run_id=run.run_id,
            step=claim.step,
            attempt=claim.attempt,
            count=session.count,
            hidden=summary.upto,
            cleared=max(summary.upto, view.cleared if view is not None else 0),
            summary=text,
            cause=prepared.plan.cause,
            tokens=prepared.tokens,
            created_at=now,
        )
        new.context = session.context.model_copy(update=changes)
        ops = [view_put(new, row), summary_put(session, result.model, result.usage, now)]
    else:
        logger.warning("run %s: the summary at step %d failed: %s", run.run_id, claim.step, problem)
        new.context = session.context.model_copy(update={**changes, "failed": claim.step, "overflows": overflows})
        ops = [failed_put(session, result.model, result.usage, problem, now)]
    ops = [session_put(new, at_version(session)), *ops]
    if not await run.commit("summary", ops, lambda: is_recorded(run, claim), new):
        return False
    if row is not None:
        engine.history.cache.put_view(new, new.version, row)
        show(run, ContextChanged(row, new.version))
    return True


def _text_of(result: AnyStepResult, view: ViewRow | None, history: Sequence[AnyMessage]) -> tuple[str, str | None]:
    """Return the summary, and the reason why it cannot be used, or None if it can."""
    if isinstance(result, ErrorStepResult):
        return "", result.code
    if not isinstance(result, TextStepResult) or not result.content.strip():
        return "", "empty_summary"
    text = result.content.strip()
    replaced = show_history(view, history)
    if estimate_text(text) >= estimate_request(replaced):
        return "", "long_summary"
    return text, None


async def is_recorded(run: RunContext, claim: StepClaim) -> bool:
    """Return whether this worker's transaction was applied, for use after the store's response was lost. Only that
    transaction settles the attempt."""
    key = row_key(run.session_id, attempt_sort(claim.run_id, claim.step, claim.attempt))
    (value,) = await run.engine.store.get([key])
    return value is not None and value.get("outcome") in ("summary", "failed")


def without_summary(session: SessionRow) -> ContextMark:
    """Return the session's context after a summary could not be written."""
    return session.context.model_copy(update={"failed": session.step + 1, "asked": None})


def may_shorten(session: SessionRow) -> bool:
    """Return whether a prompt that was refused as too long may be shortened. This is allowed `MOST_OVERFLOWS` times per
    step."""
    claim = session.claim
    return claim is not None and overflows_of(session, claim) < MOST_OVERFLOWS


async def note_overflow(run: RunContext, session: SessionRow, result: ErrorStepResult) -> bool:
    """Record that the provider refused the step's prompt as too long. The step then starts over with a shorter prompt.
    False: the write was refused."""
    claim = session.claim
    assert claim is not None
    new = run.next_version(session)
    settle(run.engine, new, result.usage)
    new.run_parts = with_answer(new.run_parts, run.own, result.model, result.usage)
    overflows = overflows_of(session, claim) + 1
    changes = {"step": claim.step, "attempt": claim.attempt, "overflows": overflows, "tokens": 0}
    new.context = session.context.model_copy(update=changes)
    ops = [
        session_put(new, at_version(session)),
        failed_put(session, result.model, result.usage, result.code, run.now()),
        *call_taken(session),
    ]
    logger.warning("run %s: step %d is too long for its model and is shortened", run.run_id, claim.step)
    return await run.commit("overflow", ops, lambda: is_recorded(run, claim), new)


def overflows_of(session: SessionRow, claim: StepClaim) -> int:
    return session.context.overflows if session.context.step == claim.step else 0
