"""One attempt at one model: send the request, read the stream to its end, and close it.

Law: the connection is always closed when this returns or is cancelled, and `Call.spent` includes the attempt's usage.
This is the usage that the provider reported. If more may be billed, the attempt counts as a call of unknown usage.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from helix.adapters.models.answer import PartialAnswer
from helix.adapters.models.effort import with_verbosity
from helix.adapters.models.failures import Failure, classify, failure, is_connection_lost, may_be_billed
from helix.adapters.models.reasoning import request_for
from helix.adapters.models.strict_tools import explain_refusal
from helix.adapters.models.wire import AttemptFailedError, BrokenStreamError, Exchange, Piece, RefusedAnswerError, Wire
from helix.core.errors import AccessDeniedError
from helix.core.messages import files_of
from helix.core.model_limits import ReportedLimit, reported_limit
from helix.core.steps import AnyStepResult, ErrorStepResult
from helix.core.usage import Usage
from helix.ports.model import LLMGenerateInput

LEAST_S = 60.0
"""The part of the remaining time that an attempt leaves for each fallback of its model, in seconds."""


@dataclass(slots=True)
class Call:
    """The state of one `generate_step` over all its attempts. Times are Unix seconds, infinite if the call has no
    limit."""

    request: LLMGenerateInput
    """The engine's request."""
    deadline: float
    """The time at which the whole call ends."""
    model: str = ""
    """The model that is being tried. Empty at first, which means the config's model."""
    repeats_until: float = math.inf
    """The time after which no retry begins. Each model has an equal share of the time that is left for it and its
    fallbacks."""
    tries_until: float = math.inf
    """The time at which an attempt ends. It may take longer than its model's share, but leaves time for the
    fallbacks."""
    spent: Usage = field(default_factory=Usage)
    """The usage of all attempts so far."""
    without_reasoning: bool = False
    """Whether a provider refused the reasoning from earlier steps. If so, no further attempt sends it."""
    last_tokens: int = 0
    """The tokens of the attempt that answered. 0 before that."""
    reported: ReportedLimit | None = None
    """The limit that the response of the latest attempt reported. None: it reported none."""

    def __post_init__(self) -> None:
        self.model = self.model or self.request.config.model

    def begin(self, model: str, fallbacks: int, now: float) -> None:
        """Switch to this model. `fallbacks` is the number of models that remain after it."""
        self.model, self.repeats_until, self.tries_until = model, self.deadline, math.inf
        if fallbacks and not math.isinf(self.deadline):
            self.repeats_until = now + (self.deadline - now) / (fallbacks + 1)
            self.tries_until = max(self.repeats_until, self.deadline - LEAST_S * fallbacks)

    def time_for_try(self, now: float) -> float:
        """Return the seconds that an attempt may take."""
        return min(self.request.config.timeout_s, self.tries_until - now)

    @property
    def may_try_again(self) -> bool:
        """Whether budgets leave room for one more attempt."""
        allowance = self.request.allowance
        return allowance is None or allowance.another(self.spent)

    @property
    def secrets(self) -> list[str]:
        options = self.request.config.provider_options
        return [
            value for name, value in options.items() if isinstance(value, str) and ("key" in name or "token" in name)
        ]


class _StalledError(Exception):
    pass


async def attempt(wire: Wire, call: Call, now: Callable[[], float]) -> AnyStepResult | Failure:
    """Return the answer of `call.model` with the usage of all attempts so far, or the reason why this attempt failed.
    Raises `AccessDeniedError` if AWS denies this process the bytes of a file."""
    config, model = call.request.config, call.model
    request = request_for(call.request, model, without=call.without_reasoning)
    exchange = wire.exchange(with_verbosity(request, model), model)
    reading, billed = _StreamReader(exchange), True
    seconds = call.time_for_try(now())
    try:
        async with asyncio.timeout(seconds) as limit:
            await exchange.open()
            call.reported = reported_limit(exchange.headers)
            answer = PartialAnswer(call.request.callbacks, exchange.strict)
            await reading.run(answer, config.stall_timeout_s)
            if exchange.finish_reason is None:
                return failure(model, "connection_error", "the stream ended before the answer was complete")
            usage, billed = exchange.usage(answer.text_so_far), False
            is_missing = bool(answer.text_so_far) and not usage.completion_tokens
            if not exchange.counted or is_missing:  # not counted: litellm's estimate
                usage = usage.model_copy(update={"unknown_calls": 1})
            call.spent += usage
            call.last_tokens = usage.total_tokens
            result = await answer.result(model, exchange.finish_reason, exchange.refusal, call.spent)
            if isinstance(result, ErrorStepResult) and result.retryable:
                return Failure(result.code, result.error)
            return result
    except _StalledError:
        return failure(model, "stalled", f"no data for {config.stall_timeout_s:g} s")
    except RefusedAnswerError as error:
        return failure(model, "model_error", str(error))
    except AttemptFailedError as error:
        billed = False
        return error.failure
    except AccessDeniedError:
        billed = False
        raise
    except Exception as error:
        if isinstance(error, TimeoutError) and limit.expired():
            return failure(model, "timeout", f"the attempt took more than {seconds:g} s")
        billed = reading.heard or may_be_billed(error)
        with_files = bool(files_of(request.messages))
        failed = classify(error, model, now=now(), secrets=call.secrets, with_files=with_files)
        return explain_refusal(failed, error, model, [tool.name for tool in request.tools], exchange.strict)
    finally:
        with contextlib.suppress(Exception):
            await exchange.close()
        if billed:  # the stream broke, or its progress is unknown
            call.spent += exchange.usage(None).model_copy(update={"unknown_calls": 1})


class _StreamReader:
    """A stream that is being read. `heard`: whether it has sent any event."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.heard = False

    async def run(self, answer: PartialAnswer, stall_timeout_s: float) -> None:
        """Feed the stream to `answer` until its end. The first event may take as long as the model thinks. After it,
        silence is a stall. A stall or a lost connection after the answer was complete loses only its usage."""
        silence: float | None = None
        while True:
            try:
                pieces = await self._next(silence)
            except Exception as error:
                lost = isinstance(error, _StalledError) or is_connection_lost(error)
                if self._exchange.finish_reason is None or not lost:
                    raise
                return
            if pieces is None:
                return
            silence, self.heard = stall_timeout_s, True
            await answer.feed(pieces)

    async def _next(self, silence: float | None) -> Sequence[Piece] | None:
        try:
            async with asyncio.timeout(silence) as limit:
                return await self._exchange.next()
        except TimeoutError:
            if limit.expired():
                raise _StalledError from None
            raise
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise BrokenStreamError(f"an event cannot be read: {error}") from error
