"""Checks the output of an answer before it is staged.

Law: the verdict is stored with the answer, in the transaction that stages it: as the answer's output, or as the failed
result of its `__finish__` call. So the output of a staged answer is never checked again. A check that fails ends the run,
because its output must not count as accepted.
"""

from __future__ import annotations

import asyncio
import inspect
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any

from helix._log import describe
from helix.core.errors import FatalToolError, InvalidInputError, ToolError
from helix.core.json import clean_text, dumps, text_of
from helix.core.output_checks import OutputCheck, OutputContext, count_parameters
from helix.core.planning import failed, refuse_output
from helix.core.session_row import SessionRow
from helix.core.states import refused_state, typed_state
from helix.engine.claims.liveness import confirm, run_claim
from helix.engine.context import RunContext
from helix.engine.engine import logger
from helix.engine.steps.ask import ModelAnswer

CHECK_S = 60.0
"""The maximum duration of one check, in seconds."""
FAILED = "output_check_failed"


async def check_output(run: RunContext, session: SessionRow, answer: ModelAnswer) -> ModelAnswer:
    """Return the answer with the plan that follows from the verdict of the agent's checks on its output."""
    agent, claim, plan = run.agent, session.claim, answer.plan
    if plan is None or plan.finish is None or claim is None:
        return answer
    schema: Any = agent.output_schema
    try:
        state = typed_state(agent, await run.engine.history.state(session))
    except InvalidInputError as error:
        return replace(answer, plan=failed("invalid_agent", refused_state(agent, error)))
    context = OutputContext(session.session_id, session.run_id, claim.step, state)
    for check in agent.output_checks:
        await confirm(run.engine, run_claim(run))
        try:
            output = schema.model_validate_json(dumps(plan.finish.output), by_alias=True, by_name=True)
            reason = await _run_check(check, output, context)
        except Exception as error:
            logger.warning("run %s: an output check of agent %r failed", run.run_id, agent.name, exc_info=True)
            text = f"an output check of agent {agent.name!r} raised {describe(error)}"
            return replace(answer, plan=failed(FAILED, text))
        if reason is not None:
            return replace(answer, plan=refuse_output(plan, clean_text(reason) or "the output was refused"))
    return answer


async def _run_check(check: OutputCheck, output: Any, context: OutputContext) -> str | None:
    """Return the reason why the check refuses the output, or None. A sync check runs in a thread."""
    given = (output, context)[: count_parameters(check)]
    try:
        async with asyncio.timeout(CHECK_S):
            if inspect.iscoroutinefunction(check):
                reason = await check(*given)
            else:
                reason = await asyncio.to_thread(partial(copy_context().run, check, *given))
                reason = await reason if inspect.isawaitable(reason) else reason
    except FatalToolError:
        raise
    except ToolError as error:
        return text_of(error)
    if reason is not None and not isinstance(reason, str):
        raise TypeError(f"it returned {type(reason).__name__}: return None to accept the output, or the reason as text")
    return reason
