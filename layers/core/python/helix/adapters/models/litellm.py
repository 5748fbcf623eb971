"""Any model that litellm can call, behind the `LLMAdapter` port.

Law: one answer or one classified error, never an exception of a provider. Retries and fallbacks are Helix's own, so
that a partial text is discarded (`on_error`) before the next attempt starts; litellm's are switched off. litellm takes
seconds to import: that happens in a thread, at the first call, and nowhere else.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import os
import warnings
from types import MappingProxyType, ModuleType
from typing import Any, cast

from helix.adapters.models.litellm_attempt import Call, attempt
from helix.adapters.models.litellm_errors import Failure, failure
from helix.adapters.models.playback import notify
from helix.adapters.models.pricing import Prices
from helix.adapters.system import SystemClock
from helix.core.errors import DefinitionError
from helix.core.steps import AnyStepResult, ErrorStepResult, StopReason
from helix.ports.clock import Clock
from helix.ports.model import LLMGenerateInput
from helix.services.retrying import wait_before

__all__ = ["LiteLLMAdapter", "load_litellm"]

_ITS_WARNINGS = (
    ".*conflict with protected namespace.*",
    ".*Accessing the.*attribute on the instance is deprecated.*",
    ".*`ReadOnly` qualifier.*",
)


class LiteLLMAdapter:
    """`prices` are US dollars per token, `{model: (input, output)}`, and win over litellm's map.

    Keys and addresses come from each provider's own variables (`OPENAI_API_KEY`, `OPENAI_BASE_URL`,
    `ANTHROPIC_API_KEY`, ...) or from `LLMConfig.provider_options` (`api_key`, `api_base`, ...). Settings a model does
    not have are left out for it (litellm's `drop_params`), so that fallbacks may differ. `output_schema` is not sent:
    the `__finish__` tool carries it.
    """

    repeats_failures = True
    """Its repeats are between its fallbacks: the engine adds none of its own."""

    def __init__(self, *, prices: Prices = MappingProxyType({}), clock: Clock | None = None) -> None:
        self._prices = dict(prices)
        self._clock = clock or SystemClock()

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        deadline = None if request.timeout_s is None else self._clock.now() + request.timeout_s
        call = Call(request, deadline)
        try:
            async with asyncio.timeout(request.timeout_s) as limit:
                return await self._first_answer(call)
        except TimeoutError:
            if not limit.expired():
                raise
        late = failure(call.model, "deadline_exceeded", f"no answer within {request.timeout_s:g} s")
        await notify(request.callbacks.on_error, late.error())
        return _error(call, call.model, late)

    async def _first_answer(self, call: Call) -> AnyStepResult:
        """Each model in turn until one answers."""
        litellm = await asyncio.to_thread(load_litellm)
        _ignore_its_warnings()
        config = call.request.config
        failures: dict[str, Failure] = {}
        for model in dict.fromkeys([config.model, *config.fallbacks]):
            if failures and not call.may_go_on:
                break
            call.model = model
            outcome = await self._with_retries(litellm, call)
            if not isinstance(outcome, Failure):
                return outcome
            failures[model] = outcome
        # What may still succeed later says so, even where another model failed for good.
        model = next((name for name, failed in failures.items() if failed.retryable), config.model)
        return _error(call, model, failures.pop(model), failures)

    async def _with_retries(self, litellm: ModuleType, call: Call) -> AnyStepResult | Failure:
        """One model until it answers, fails for good, has no repeat left, or would answer too late."""
        repeats = 0
        while True:
            outcome = await attempt(litellm, call, self._prices, self._clock.now)
            if not isinstance(outcome, Failure):
                return outcome
            await notify(call.request.callbacks.on_error, outcome.error())
            wait = wait_before(repeats, call.request.config.max_retries, outcome.retry_after_s)
            if wait is None or not outcome.retryable or not call.may_go_on:
                return outcome
            if call.deadline is not None and self._clock.now() + wait >= call.deadline:
                return outcome
            await self._clock.sleep(wait)
            repeats += 1


@functools.cache
def load_litellm() -> ModuleType:
    """Import litellm: quiet, without its fetch of a price map, and with the parts that its first call would load.

    Blocks for seconds the first time. Raises `DefinitionError` where it is not installed.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    try:
        litellm: Any = importlib.import_module("litellm")
    except ModuleNotFoundError as error:
        if error.name != "litellm":
            raise
        problem = "litellm is not installed: pip install 'helix-agents[models]'"
        raise DefinitionError("LiteLLMAdapter", "litellm", problem) from error
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    if "LITELLM_LOG" not in os.environ:  # every failure is reported by Helix; asking for litellm's log brings it back
        logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    importlib.import_module("openai.resources")
    getattr(litellm, "encoding", None)
    return cast(ModuleType, litellm)


def _ignore_its_warnings() -> None:
    """Repeat the filters that litellm sets when imported: pytest forgets them after the test that imported it, and
    where warnings are errors the next stream would fail."""
    for message in _ITS_WARNINGS:
        warnings.filterwarnings("ignore", message=message)


def _error(call: Call, model: str, failed: Failure, others: dict[str, Failure] | None = None) -> ErrorStepResult:
    also = ", ".join(f"{name!r} ({other.code})" for name, other in (others or {}).items())
    return ErrorStepResult(
        error=failed.message + (f" (also failed: {also})" if also else ""),
        code=failed.code,
        retryable=failed.retryable,
        retry_after_s=failed.retry_after_s,
        stop_reason=StopReason.ERROR,
        usage=call.spent,
        model=model,
    )
