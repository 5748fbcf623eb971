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
from helix.core.planning import plan_step_processing
from helix.core.rows import ErrorInfo
from helix.core.session_row import SessionRow
from helix.core.states import refused_state, typed_state
from helix.engine.context import RunContext
from helix.engine.engine import logger
from helix.engine.steps.ask import ModelAnswer

CHECK_S = 60.0
"""The maximum duration of one check, in seconds."""
FAILED = "output_check_failed"


async def check_output(run: RunContext, session: SessionRow, answer: ModelAnswer) -> ModelAnswer:
    """Return the answer with the verdict of the agent's checks on its first valid output."""
    agent, result, claim = run.agent, answer.result, session.claim
    if not agent.output_checks or result is None:
        return answer
    finish = plan_step_processing(result, output_schema=agent.output_schema).finish
    if finish is None or claim is None or claim.summary:
        return answer
    schema: Any = agent.output_schema
    try:
        state = typed_state(agent, await run.engine.history.state(session))
    except InvalidInputError as error:
        return replace(answer, check_error=ErrorInfo(code="invalid_agent", message=refused_state(agent, error)))
    context = OutputContext(session.session_id, session.run_id, claim.step, state)
    try:
        output = schema.model_validate_json(dumps(finish.output), by_alias=True, by_name=True)
        for check in agent.output_checks:
            reason = await _run_check(check, output, context)
            if reason is not None:
                return replace(answer, refused=clean_text(reason) or "the output was refused")
    except Exception as error:
        logger.warning("run %s: an output check of agent %r failed", run.run_id, agent.name, exc_info=True)
        text = f"an output check of agent {agent.name!r} raised {describe(error)}"
        return replace(answer, check_error=ErrorInfo(code=FAILED, message=text))
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
