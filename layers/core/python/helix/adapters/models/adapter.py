"""An adapter for any provider's models. It uses the provider's own package if that is installed, and litellm otherwise.

Law: a call gives one answer or one classified error, never a provider's exception. Retries and fallbacks are Helix's
own, so that partial text is discarded (`on_error`) before the next attempt starts. The packages' retries are switched
off. A package is imported in a thread, at the first call of a model that needs it, or by `prepare` before any call.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from helix._log import get_logger
from helix.adapters.models.attempt import Call, attempt
from helix.adapters.models.batches import BatchWire, ModelBatches
from helix.adapters.models.catalog import info_of
from helix.adapters.models.choice import LITELLM, interface_of, package_of, wire_of
from helix.adapters.models.failures import Failure, failure
from helix.adapters.models.file_forms import refused
from helix.adapters.models.playback import notify
from helix.adapters.models.pricing import Prices
from helix.adapters.models.server_tool_forms import refused_server_tool
from helix.adapters.models.setting_checks import refused_setting
from helix.adapters.models.wire import Wire
from helix.adapters.system import SystemClock
from helix.core.config import LLMConfig
from helix.core.errors import DefinitionError
from helix.core.files import FilePart
from helix.core.messages import latest_files
from helix.core.steps import AnyStepResult, ErrorStepResult, StopReason
from helix.ports.catalog import ModelCatalog, ModelInfo, unsupported
from helix.ports.clock import Clock
from helix.ports.model import OUT_OF_TIME, BaseAdapter, LLMGenerateInput
from helix.services.retrying import (
    MAX_WAIT_S,
    RATE_LIMITED,
    await_turn,
    put_off,
    refused_for,
    wait_before_retry,
)

__all__ = ["ModelAdapter"]

logger = get_logger(__name__)


class ModelAdapter(BaseAdapter):
    """An adapter for all models. `prices` are US dollars per token, `{model: (input, output)}`, and override litellm's
    table.

    `helix.adapters.models.choice.package_of` decides which package calls a model. The choice is logged once per model.
    Keys and addresses come from each provider's own variables (`OPENAI_API_KEY`, `OPENAI_BASE_URL`,
    `ANTHROPIC_API_KEY`, `AWS_REGION`, ...) or from `LLMConfig.provider_options` (`api_key`, `api_base`,
    `aws_region_name`, ...). Settings that a model does not support are omitted for it, so fallbacks may differ.
    `output_schema` is not sent, because the `__finish__` tool contains it.
    """

    repeats_failures = True
    """True, because the adapter itself retries and falls back. The engine does not add its own retries."""

    def __init__(self, *, prices: Prices = MappingProxyType({}), clock: Clock | None = None) -> None:
        self._prices = dict(prices)
        self._clock = clock or SystemClock()
        self._wires: dict[str, Wire] = {}
        self._logged: dict[str, str] = {}
        self.batches = ModelBatches(self._batch_wire, self._clock.now)

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        call = Call(request, math.inf if request.timeout_s is None else self._clock.now() + request.timeout_s)
        try:
            async with asyncio.timeout(request.timeout_s) as limit:
                return await self._try_models(call)
        except TimeoutError:
            if not limit.expired():
                raise
        late = failure(call.model, OUT_OF_TIME, f"no answer within {request.timeout_s:g} s")
        await notify(request.callbacks.on_error, late.error())
        return _error(call, call.model, late)

    def package(self, model: str, config: LLMConfig) -> str:
        """Return the name of the package that calls `model`."""
        return package_of(model, config)

    def refused_setting(self, config: LLMConfig) -> str | None:
        return next(filter(None, (refused_setting(model, config) for model in config.models)), None)

    def unsupported(self, request: LLMGenerateInput, catalog: ModelCatalog | None) -> str | None:
        config, files = request.config, latest_files(request.lasting)
        problems = [
            self._refused(model, config, files, info_of(model) if catalog is None else catalog.info(model))
            for model in ([config.model, *config.fallbacks] if files else ())
        ]
        return None if None in problems else next(iter(problems), None)

    def _refused(self, model: str, config: LLMConfig, files: Sequence[FilePart], info: ModelInfo) -> str | None:
        try:
            interface = interface_of(model, config, self.package(model, config))
        except DefinitionError:  # the call reports it
            return unsupported(info, files)
        return next((problem for file in files if (problem := refused(file, interface, info))), None)

    def prepare(self, config: LLMConfig) -> None:
        """Import the packages of the config's models, which blocks. A missing package is not reported here, because the
        call may have a fallback."""
        for model in config.models:
            try:
                self._import_wire(self.package(model, config))
            except DefinitionError as error:
                logger.warning("model %r is not prepared: %s", model, error)

    async def _try_models(self, call: Call) -> AnyStepResult:
        """Try each model in turn until one answers."""
        config = call.request.config
        failures: dict[str, Failure] = {}
        models = list(dict.fromkeys([config.model, *config.fallbacks]))
        for place, model in enumerate(models):
            if failures and not call.may_try_again:
                break
            call.begin(model, len(models) - place - 1, self._clock.now())
            try:
                wire = await self._wire(model, config)
            except DefinitionError as error:
                if not failures:
                    raise
                failures[model] = Failure(error.code, str(error))  # reported with the usage of all attempts
                continue
            outcome = await self._with_retries(wire, call, last=model == models[-1])
            if not isinstance(outcome, Failure):
                await self._fail_over(call, failures)
                return outcome
            failures[model] = outcome
        # The error is retryable if any model may still succeed later.
        model = next((name for name, failed in failures.items() if failed.retryable), config.model)
        return _error(call, model, failures.pop(model), failures)

    async def _wire(self, model: str, config: LLMConfig) -> Wire:
        package = self.package(model, config)
        if config.server_tools:
            interface = "litellm" if package == LITELLM else interface_of(model, config, package)
            if (problem := refused_server_tool(config.server_tools, interface)) is not None:
                raise DefinitionError("LLMConfig", "server_tools", f"{problem} (the model is {model!r})")
        wire = self._wires.get(package)
        if wire is None:
            wire = await asyncio.to_thread(self._import_wire, package)
        if self._logged.get(model) != package:
            self._logged[model] = package
            logger.info("model %r is called through the package %s", model, package)
        return wire

    async def _batch_wire(self, model: str, config: LLMConfig) -> BatchWire:
        """Return the wire of a model that has batches. Raises `DefinitionError` if it has none."""
        known = self.package(model, config) in ("openai", "anthropic") and not model.startswith("azure/")
        wire = await self._wire(model, config) if known else None
        if not isinstance(wire, BatchWire):
            problem = (
                f"model {model!r} has no batches here: use 'openai/...' or 'anthropic/...' with the provider's package"
            )
            raise DefinitionError("LLMConfig", "model", problem)
        return wire

    def _import_wire(self, package: str) -> Wire:
        if package not in self._wires:
            self._wires[package] = wire_of(package, self._prices)
        return self._wires[package]

    async def _fail_over(self, call: Call, failures: Mapping[str, Failure]) -> None:
        """Report the models that failed before another one answered, unless their failure was about the request."""
        if failed := [model for model, failure in failures.items() if failure.about_model]:
            await call.request.limits.failed_over(failed)

    async def _with_retries(self, wire: Wire, call: Call, *, last: bool) -> AnyStepResult | Failure:
        """Try one model until it answers, fails permanently, has no retry left, or would answer too late. If it refuses
        the reasoning from earlier steps, it is called once more without it. `last`: there is no fallback after it."""
        request, model, repeats = call.request, call.model, 0
        while True:
            if (pause := await await_turn(request, model, self._clock, math.inf if last else MAX_WAIT_S)) is not None:
                why = f"model {model!r} has no turn for {pause:.0f} s"
                if last or pause <= MAX_WAIT_S:
                    return put_off(model, why, pause, call.spent)
                return failure(model, RATE_LIMITED, why, pause)
            outcome = await attempt(wire, call, self._clock.now)
            failed = outcome if isinstance(outcome, Failure) else None
            await request.limits.tried(
                model,
                used=None if failed is not None else call.last_tokens,
                reported=call.reported if failed is None else failed.reported,
                refused_s=refused_for(failed, failed.code, repeats) if failed is not None else None,
            )
            if not isinstance(outcome, Failure):
                return outcome.model_copy(update={"without_reasoning": True}) if call.without_reasoning else outcome
            await notify(request.callbacks.on_error, outcome.error())
            if outcome.about_reasoning and not call.without_reasoning and call.may_try_again:
                call.without_reasoning = True
                continue
            now, until = self._clock.now(), call.repeats_until
            wait = wait_before_retry(request, outcome, repeats, spent=call.spent, now=now, until=until)
            if wait is None:
                return outcome
            if wait > request.longest_pause_s:
                return put_off(model, outcome.message, wait, call.spent)
            await self._clock.sleep(wait)
            repeats += 1


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
