"""The retry policy of model calls: `LLMConfig.max_retries`. `wait_before_retry` is the rule for all adapters, and
`retrying` applies it to an adapter that does not retry failures itself.

Law: a call is retried only after a `retryable` failure, and only while the deadline and the budget leave room. The
output of a failed try is discarded (`on_error`) before the next try starts.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol
from zlib import crc32

from helix.core.errors import ModelError
from helix.core.steps import AnyStepResult, ErrorStepResult
from helix.core.usage import Usage
from helix.ports.clock import Clock
from helix.ports.model import PUT_OFF, BaseAdapter, LLMAdapter, LLMGenerateInput, MaybeAwaitable

RATE_LIMITED = "rate_limited"
"""The code of a failure because the provider's limit was reached."""
MAX_WAIT_S = 60.0
"""The maximum pause between two tries. If a provider asks for a longer one, the call is given up, because a fallback,
or a retry by the caller (`retry_after_s`), is better than a sleeping process."""


class FailedTry(Protocol):
    """A failed try of a model call, as the provider reported it."""

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later."""

    @property
    def retry_after_s(self) -> float | None:
        """The number of seconds to wait before a retry. None: the provider did not specify it."""


def wait_before_retry(
    request: LLMGenerateInput, failed: FailedTry, repeats: int, *, spent: Usage, now: float, until: float
) -> float | None:
    """Return the number of seconds until the next try, after `repeats` retries: the time that the provider asked for, and
    a part of 1, 2, 4, ... s. The part has full jitter, so that callers who failed together do not return together. None
    if there is no next try. `spent`: the usage of all tries so far. `until`: the time (Unix seconds) before which another
    try may begin."""
    if not failed.retryable or repeats >= request.config.max_retries:
        return None
    asked = failed.retry_after_s or 0.0
    share = crc32(f"{request.agent_id}#{repeats}#{now}".encode()) / 2**32
    wait = min(asked + share * 2.0**repeats, max(asked, MAX_WAIT_S))
    if asked > MAX_WAIT_S or now + wait >= until:
        return None
    return wait if request.allowance is None or request.allowance.another(spent) else None


async def await_turn(request: LLMGenerateInput, model: str, clock: Clock, most_s: float = math.inf) -> float | None:
    """Wait for the next attempt's turn at `model`. Return None if the attempt may begin. Otherwise return the number of
    seconds that this worker does not wait, because they are more than `most_s` or the request's `longest_pause_s`."""
    while (wait := await request.limits.turn(model, most_s)) > 0:
        if wait > min(most_s, request.longest_pause_s):
            return wait
        await clock.sleep(wait)
    return None


def refused_for(failed: FailedTry, code: str, repeats: int) -> float | None:
    """Return the number of seconds for which the provider refuses requests. None: the failure was not its limit."""
    if code != RATE_LIMITED:
        return None
    return 2.0**repeats if failed.retry_after_s is None else failed.retry_after_s


def retrying(adapter: BaseAdapter, clock: Clock) -> LLMAdapter:
    """Return the adapter wrapped in the policy, or the adapter itself if it retries failures on its own."""
    return adapter if adapter.repeats_failures else _Retrying(adapter, clock)


class _Retrying:
    """An implementation of `LLMAdapter`."""

    def __init__(self, adapter: LLMAdapter, clock: Clock) -> None:
        self._adapter, self._clock = adapter, clock

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        until = math.inf if request.timeout_s is None else self._clock.now() + request.timeout_s
        spent, repeats, model = Usage(), 0, request.config.model
        heard: list[Exception] = []
        on_error = _noting(request, heard)
        one = replace(request, callbacks=replace(request.callbacks, on_error=on_error))
        while True:
            if (pause := await await_turn(request, model, self._clock)) is not None:
                return put_off(model, f"model {model!r} has no turn for {pause:.0f} s", pause, spent)
            if request.timeout_s is not None:
                one = replace(one, timeout_s=max(0.0, until - self._clock.now()))
            heard.clear()
            raised: ModelError | None = None
            try:
                result = await self._adapter.generate_step(one)
            except ModelError as error:
                raised, result = error, _result_of(error)
            spent += result.usage
            wait = refused_s = None
            if isinstance(result, ErrorStepResult):
                wait = wait_before_retry(request, result, repeats, spent=spent, now=self._clock.now(), until=until)
                refused_s = refused_for(result, result.code, repeats)
            await request.limits.tried(model, used=result.usage.total_tokens, refused_s=refused_s)
            if wait is None:
                if raised is not None and not repeats:
                    raise raised
                return result.model_copy(update={"usage": spent}) if repeats else result
            if not heard and isinstance(result, ErrorStepResult):
                waiting = on_error(raised or _error_of(result))
                if inspect.isawaitable(waiting):
                    await waiting
            if wait > request.longest_pause_s and isinstance(result, ErrorStepResult):
                return put_off(model, result.error, wait, spent)
            await self._clock.sleep(wait)
            repeats += 1


def put_off(model: str, why: str, seconds: float, spent: Usage) -> ErrorStepResult:
    """Return the result of a call that ends before a pause of `seconds`, after which it asks `model`."""
    return ErrorStepResult(error=why, code=PUT_OFF, retryable=True, retry_after_s=seconds, usage=spent, model=model)


def _noting(request: LLMGenerateInput, heard: list[Exception]) -> Callable[[Exception], MaybeAwaitable]:
    """Return a callback that records the errors that the adapter itself reports, and passes them to the request's
    `on_error`."""
    callback = request.callbacks.on_error

    def on_error(error: Exception) -> MaybeAwaitable:
        heard.append(error)
        return callback(error) if callback is not None else None

    return on_error


def _result_of(error: ModelError) -> ErrorStepResult:
    """Return the result of a try that raised. Its usage is not known."""
    return ErrorStepResult(
        error=str(error),
        code=error.code,
        retryable=error.retryable,
        retry_after_s=error.retry_after_s,
        usage=Usage(unknown_calls=1),
    )


def _error_of(result: ErrorStepResult) -> ModelError:
    error = ModelError(result.error, retryable=result.retryable, retry_after_s=result.retry_after_s)
    vars(error)["code"] = result.code  # the class's code names the family; this instance is more specific
    return error
