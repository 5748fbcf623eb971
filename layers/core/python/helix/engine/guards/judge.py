"""Asks the guards of an agent about one value, in their order.

Law: fail closed. A guard that raises, takes too long or returns anything but a verdict for its place blocks the value. A
guard of inputs that had less than its time, because its delivery ends, is asked again by the next delivery.
A later guard judges what an earlier one put in place of the value.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial

from helix.core.call_results import to_json
from helix.core.guards import Guard, GuardContext, is_judge
from helix.core.json import JsonValue, check_json, dumps, loads
from helix.core.usage import Usage
from helix.core.verdicts import ALLOWED, Allow, AnyVerdict, Ask, Block, Place, Replace, Verdict, stored_verdict
from helix.engine.claims.liveness import Claim, confirm, run_claim
from helix.engine.context import RunContext
from helix.engine.engine import logger
from helix.engine.guards.judge_agent import ask_judge
from helix.engine.steps.ask import hand_over

_THREADS = ThreadPoolExecutor(max_workers=32, thread_name_prefix="helix-guard")
"""The threads for guards that are not coroutines, so that a slow guard blocks neither the event loop nor a tool."""
LEFT_S = 5.0
"""The number of seconds before the end of a delivery that guards leave for storing the verdicts."""
Check = Callable[[JsonValue], object]
"""A function that raises an exception if a value cannot take the place of the judged value."""


@dataclass(slots=True)
class Judged:
    """A value after all guards of its place."""

    value: JsonValue
    """The value that passed, or the last value that was judged."""
    verdicts: list[Verdict] = field(default_factory=list)
    """The verdicts in the order of the guards. A refusal is the last one."""
    usage: Usage = field(default_factory=Usage)
    """The usage of the guards' own model calls."""

    @property
    def refused(self) -> Verdict | None:
        """The verdict that refused the value, if any."""
        return next((verdict for verdict in self.verdicts if verdict.refuses), None)

    @property
    def replaced(self) -> bool:
        return any(verdict.verdict == "replace" for verdict in self.verdicts)


def make_guard_context(run: RunContext, on: Place, step: int, **fields: object) -> GuardContext:
    session = run.session
    return GuardContext(
        on=on,
        agent_type=run.agent.name,
        session_id=session.session_id,
        run_id=session.run_id,
        step=step,
        user_id=session.user_id,
        _secrets=run.engine.secrets,
        **fields,  # type: ignore[arg-type]
    )


async def judge(
    run: RunContext,
    context: GuardContext,
    value: JsonValue,
    check: Check,
    guards: Sequence[Guard] | None = None,
    claim: Claim | None = None,
) -> Judged:
    """Ask the guards of `context.on` about the value. `guards`: only these. `claim`: the worker's claim on the call that is
    judged; None for its claim on the step. Raises `LostClaimError`, and asks no other guard, if another worker has it."""
    judged, claim = Judged(value), claim or run_claim(run)
    for guard in run.agent.guards if guards is None else guards:
        if not guard.judges(context.on, context.tool_name):
            continue
        await confirm(run.engine, claim)
        verdict = _fitting(await _ask(run, guard, context, judged.value), guard, context.on, check)
        judged.verdicts.append(stored_verdict(guard.name, context.on, context.call_id, judged.value, verdict))
        if isinstance(verdict, Replace):
            judged.value = verdict.value
        elif not isinstance(verdict, Allow | Ask):
            break
    judged.usage = sum(context.usage, Usage())
    context.usage.clear()
    return judged


async def _ask(run: RunContext, guard: Guard, context: GuardContext, value: JsonValue) -> object:
    function = getattr(guard, context.on)
    time_s = min(guard.timeout_s, max(0.0, run.delivery.deadline - LEFT_S - run.now()))
    given = value if isinstance(value, str) else loads(dumps(value))  # a guard may change what it is given
    try:
        async with asyncio.timeout(time_s):
            if is_judge(function):
                return await ask_judge(run, function, context, value)
            if inspect.iscoroutinefunction(function):
                return await function(given, context)
            work = partial(copy_context().run, function, given, context)
            verdict = await asyncio.get_running_loop().run_in_executor(_THREADS, work)
            return await verdict if inspect.isawaitable(verdict) else verdict
    except TimeoutError:
        reason = f"it gave no verdict within {time_s:g} s"
        if context.on == "input" and guard.when == "before" and time_s < guard.timeout_s:  # nothing was bought yet
            hand_over(run, f"guard {guard.name!r}", reason)
        return Block(reason)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return Block("it was cancelled from inside")
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # including SystemExit, which must not end the worker
        logger.warning("guard %r of agent %r failed and blocks", guard.name, run.agent.name, exc_info=True)
        return Block(f"it raised {type(error).__name__}")


def _fitting(verdict: object, guard: Guard, on: Place, check: Check) -> AnyVerdict:
    """Return the verdict if the guard may return it at this place, otherwise a block. A guard beside the model call can
    only end the run, because the model has read the message."""
    fitting = _checked(verdict, on, check)
    if on != "input" or guard.when == "before" or isinstance(fitting, Allow):
        return fitting
    if isinstance(fitting, Block):
        return Block(fitting.reason, to="user")
    return Block("it cannot replace a message beside the model call", to="user")


def _checked(verdict: object, on: Place, check: Check) -> AnyVerdict:
    if not isinstance(verdict, ALLOWED[on]):
        return Block(f"it returned {type(verdict).__name__}, which is not a verdict about the {on}")
    if isinstance(verdict, Replace):
        try:
            value = to_json(verdict.value)
            check_json(value, "the replacement", limit=None)
            check(value)
        except Exception as error:
            logger.warning("a guard's replacement is not valid", exc_info=True)
            return Block(f"its replacement is not valid: {type(error).__name__}")
        return Replace(value)
    if isinstance(verdict, Block) and verdict.to != "user":
        return Block(verdict.reason)
    return verdict  # type: ignore[return-value]
