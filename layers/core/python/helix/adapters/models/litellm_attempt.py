"""One attempt at one model: ask, read the stream to its end, close it.

Law: whatever happens, the connection is closed when this returns or is cancelled, and what the attempt used is in
`Call.spent`: as the provider reported it, or as a call of unknown usage where more may be billed than was reported.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from helix.adapters.models.litellm_errors import Failure, classify, failure, may_be_billed
from helix.adapters.models.litellm_messages import call_arguments, strict_names
from helix.adapters.models.litellm_stream import PartialAnswer
from helix.adapters.models.litellm_tap import StreamTap
from helix.adapters.models.pricing import Prices, partial_usage, usage_of
from helix.core.steps import AnyStepResult, ErrorStepResult
from helix.core.usage import Usage
from helix.ports.model import LLMGenerateInput


@dataclass(slots=True)
class Call:
    """One `generate_step`: the `model` being tried, the `deadline` in Unix seconds, what all attempts `spent`."""

    request: LLMGenerateInput
    deadline: float | None
    model: str = ""
    spent: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        self.model = self.model or self.request.config.model

    @property
    def may_go_on(self) -> bool:
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


async def attempt(litellm: ModuleType, call: Call, prices: Prices, now: Callable[[], float]) -> AnyStepResult | Failure:
    """The answer of `call.model`, with the usage of all attempts so far; or why this attempt failed."""
    config, model = call.request.config, call.model
    try:
        # By hand, because for an unknown provider litellm says only "bad request".
        provider = litellm.get_llm_provider(model, config.provider_options.get("custom_llm_provider"))[1]
    except Exception as error:
        return failure(model, "model_not_found", str(getattr(error, "message", error)), secrets=call.secrets)
    reading, billed = _Reading(), True
    try:
        async with asyncio.timeout(config.timeout_s) as limit:
            strict_ok = bool(litellm.supports_response_schema(model=model))
            strict = strict_names(call.request, provider, strict_ok)
            answer = PartialAnswer(
                call.request.callbacks, {t.name: t.parameters for t in call.request.tools if t.name in strict}
            )
            arguments = call_arguments(call.request, model, provider, strict_ok=strict_ok)
            finish_reason = await reading.run(await litellm.acompletion(**arguments), answer, config.stall_timeout_s)
            if finish_reason is None:
                return failure(model, "connection_error", "the stream ended before the answer was complete")
            usage, billed = usage_of(litellm, model, provider, reading.usage, prices), False
            uncounted = answer.said and not usage.completion_tokens
            if uncounted or not reading.reported_usage:  # litellm's own estimate
                usage = usage.model_copy(update={"unknown_calls": 1})
            call.spent += usage
            result = await answer.result(model, finish_reason, reading.refusal, call.spent)
            if isinstance(result, ErrorStepResult) and result.retryable:
                return Failure(result.code, result.error)
            return result
    except _StalledError:
        return failure(model, "stalled", f"no data for {config.stall_timeout_s:g} s")
    except Exception as error:
        if isinstance(error, TimeoutError) and limit.expired():
            return failure(model, "timeout", f"the attempt took more than {config.timeout_s:g} s")
        billed = reading.heard or may_be_billed(error)
        return classify(error, model, now=now(), secrets=call.secrets)
    finally:
        await reading.close()
        if billed:  # broken off, or nobody knows how far it came
            usage = usage_of(litellm, model, provider, reading.partial(), prices)
            call.spent += usage.model_copy(update={"unknown_calls": 1})


class _Reading:
    """One stream of litellm being read."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._tap: StreamTap | None = None
        self.usage: Any = None
        self.heard = False

    @property
    def reported_usage(self) -> bool:
        """Whether `usage` is the provider's, and not litellm's estimate."""
        return self._tap is not None and self._tap.reported_usage

    @property
    def refusal(self) -> str:
        return self._tap.refusal if self._tap else ""

    async def run(self, stream: Any, answer: PartialAnswer, stall_timeout_s: float) -> str | None:
        """Feed `stream` to `answer` to its end; why it ended, or None where it was cut.

        The first chunk may take as long as the model thinks. After it, silence is a stall, unless the answer is
        complete and only the usage is missing.
        """
        self._stream, self._tap = stream, StreamTap(stream)
        silence: float | None = None
        while True:
            try:
                chunk = await _next(stream, silence)
            except _StalledError:
                if self._tap.finish_reason is None:
                    raise
                chunk = None
            if chunk is None:
                return self._tap.finish_reason
            silence, self.heard = stall_timeout_s, True
            self.usage = getattr(chunk, "usage", None) or self.usage
            if chunk.choices:
                await answer.feed(chunk.choices[0].delta)

    def partial(self) -> Any:
        """What the provider reported of tokens before its stream broke, if anything."""
        return self.usage or partial_usage(getattr(self._stream, "chunks", None) or [])

    async def close(self) -> None:
        if self._tap is not None:
            with contextlib.suppress(Exception):
                await self._tap.close()


async def _next(stream: Any, silence: float | None) -> Any:
    """The next chunk, or None at the end."""
    try:
        async with asyncio.timeout(silence) as limit:
            return await anext(stream, None)
    except TimeoutError:
        if limit.expired():
            raise _StalledError from None
        raise
