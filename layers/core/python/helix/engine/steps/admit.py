"""Admit a step's model call: build its request, take its turn at the model's limit, and reserve its worst case.

Law: nothing is claimed or reserved before the call's turn is near. A function does not wait for a turn that is more than
`run.longest_pause_s` away: it stores the turn and ends, and a later delivery of the step finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import inf

from helix.core.errors import ContentionError, WorkInProgressError
from helix.core.estimating import estimate_request
from helix.core.rows import ErrorInfo
from helix.core.session_row import SessionRow
from helix.core.steps import ErrorStepResult
from helix.core.usage_parts import with_answer
from helix.engine.context import RunContext
from helix.engine.engine import Later, logger
from helix.engine.inbox import Arrived
from helix.engine.money.reservations import Refused, Reserved, reserve, settle
from helix.engine.money.usage import failed_put
from helix.engine.steps.ask import FUNCTION, prepare
from helix.engine.steps.close import Folding
from helix.engine.steps.handoff import activate
from helix.engine.steps.summary import is_recorded, overflows_of, without_summary
from helix.engine.steps.views import Prepared
from helix.engine.writing import at_version, session_put
from helix.ports.model import PUT_OFF, LLMGenerateInput
from helix.services.model_limits import CallLimits
from helix.services.retrying import MAX_WAIT_S

Admitted = tuple[Prepared, Reserved | Refused] | ErrorInfo | Later | None


async def admit(
    run: RunContext, session: SessionRow, folding: Folding | None, new: SessionRow, arrived: Arrived, attempt: int
) -> Admitted:
    """Prepare the request, take its turn and reserve its worst case. If no budget has room for a summary, the step
    continues without one. None: the budgets that bind the session have changed."""
    if (lost := activate(run, new)) is not None:
        return lost
    while True:
        prepared = await prepare(run, session, folding, new, arrived.messages)
        if isinstance(prepared, ErrorInfo):
            return prepared
        prepared = _for_batch(run, prepared)
        ready = await _take_turn(run, new, prepared.request, attempt)
        if isinstance(ready, Later):
            return ready
        prepared = replace(prepared, request=ready)
        try:
            reserved = await reserve(run.engine, run.agent, new, ready, run.own.on_budget)
        except ContentionError as met:  # many runs compete for the remainder; the next delivery finds this one's draws
            raise WorkInProgressError(f"a budget of session {run.session_id!r}", run.now() + 1) from met
        if reserved is None or prepared.plan.summary is None or not isinstance(reserved, Refused):
            return None if reserved is None else (prepared, reserved)
        new.context = without_summary(new)


def _for_batch(run: RunContext, prepared: Prepared) -> Prepared:
    """Return the request marked for a batch, if the agent's calls go there. A summary, and an answer from the response
    cache, do not wait. Only the first model is asked: a batch has no fallbacks."""
    request = prepared.request
    if not run.agent.batch or prepared.plan.summary is not None or request.remembered is not None:
        return prepared
    config = request.config.model_copy(update={"fallbacks": []})
    return replace(prepared, request=replace(request, config=config, batch=True))


async def _take_turn(
    run: RunContext, new: SessionRow, request: LLMGenerateInput, attempt: int
) -> LLMGenerateInput | Later:
    """Take the turn of the first model that is not avoided and has one soon, or of the last one. Return the request with
    its models in that order, or the end of the wait."""
    engine, config = run.engine, request.config
    if request.remembered is not None or request.batch or config.model == FUNCTION.model:
        return request  # a batch has limits of its own

    @cache
    def tokens() -> int:
        most = config.max_output_tokens or engine.settings.default_output_tokens
        return estimate_request(request.messages, request.tools, config.model) + most

    learns, waits_elsewhere = engine.models(run.agent).repeats_failures, run.longest_pause_s < inf
    call = _call_name(new, attempt) if waits_elsewhere else ""
    limits = CallLimits(engine.limits, tokens=tokens, learns=learns, call=call, put_off=waits_elsewhere and attempt > 1)
    most_retries = config.max_retries
    if waits_elsewhere and attempt > 1:  # the deliveries before have made some of the retries
        config = config.model_copy(update={"max_retries": max(0, config.max_retries - (attempt - 1))})
    models = await engine.limits.order([config.model, *config.fallbacks]) if learns else [config.model]
    model, wait = await _first_free(limits, models)
    if wait > run.longest_pause_s:
        return Later(await limits.keep(model, call, wait))
    if learns:
        others = [name for name in (*models, *config.fallbacks) if name != model]
        config = config.model_copy(update={"model": model, "fallbacks": list(dict.fromkeys(others))})
    # A fallback's answer is not that of the agent's own model, and is not kept as such.
    question = request.question if model == request.config.model else None
    pause = run.longest_pause_s if attempt <= most_retries else inf
    return replace(request, config=config, limits=limits, longest_pause_s=pause, question=question)


async def _first_free(limits: CallLimits, models: Sequence[str]) -> tuple[str, float]:
    """Return the model whose turn the call has taken, and its wait in seconds."""
    if len(models) > 1 and (model := await limits.stored(models)) is not None:
        return model, await limits.turn(model)
    for model in models[:-1]:
        if (wait := await limits.turn(model, MAX_WAIT_S)) <= MAX_WAIT_S:
            return model, wait
    return models[-1], await limits.turn(models[-1])


def _call_name(session: SessionRow, attempt: int) -> str:
    return f"{session.run_id}#{session.step + 1}#{attempt}"


def is_put_off(request: LLMGenerateInput, result: object) -> bool:
    """Return whether the call ended before a pause that this worker does not make."""
    return isinstance(result, ErrorStepResult) and result.code == PUT_OFF and request.longest_pause_s < inf


async def put_off(
    run: RunContext, session: SessionRow, request: LLMGenerateInput, result: ErrorStepResult
) -> Later | None:
    """Return the claim of the step, with the usage of its attempts, and store the time of the next attempt. None: the
    write was refused. If this worker dies between the two, the next delivery takes a turn of its own."""
    claim, limits = session.claim, request.limits
    assert claim is not None and isinstance(limits, CallLimits)
    new = run.next_version(session)
    settle(run.engine, new, result.usage)
    new.run_parts = with_answer(new.run_parts, run.own, result.model, result.usage)
    changes = {"step": claim.step, "attempt": claim.attempt, "overflows": overflows_of(session, claim)}
    new.context = session.context.model_copy(update=changes)
    lost = failed_put(session, result.model, result.usage, result.code, run.now())
    ops = [session_put(new, at_version(session)), lost]
    if not await run.commit("put_off", ops, lambda: is_recorded(run, claim), new):
        return None
    seconds = result.retry_after_s or 0.0
    logger.info("run %s: step %d waits for %.1f s: %s", run.run_id, claim.step, seconds, result.error)
    model = result.model or request.config.model
    return Later(await limits.keep(model, _call_name(new, claim.attempt + 1), seconds))
