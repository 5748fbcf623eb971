"""HealthChecker: run named checks of targets, on request or in the background, and derive the targets' health from the
results.

Law: a target may have any number of checks, with different names. Its health is that of its worst check. A listener
receives each change once, after it is stored, and acts on it. A failed readiness check should stop admission of its target,
and a failed liveness check should restart it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from helix.adapters.system import SystemClock
from helix.core.errors import InvalidInputError, StoreError
from helix.core.health import (
    CheckFunction,
    CheckType,
    HealthCheck,
    HealthResult,
    HealthStatus,
    LLMHealthRule,
    OverallHealth,
    combine_results,
    judge,
    overall,
    verdict_of,
)
from helix.core.json import clean_text
from helix.core.llm_metrics import LLMMetrics
from helix.engine.engine import logger
from helix.fleet import health_rows
from helix.ports.clock import Clock
from helix.ports.state_store import StateStore
from helix.runtime.stores import MEMORY, open_store
from helix.services.activity import note_activity

LLM = "llm"
"""The name of the check under which `check_llm_health` stores its result."""


@dataclass(frozen=True, slots=True)
class HealthChange:
    """A change in one check's status."""

    target: str
    """The target that was checked, such as an agent."""
    check: str
    """The name of the check."""
    check_type: CheckType
    """The type of the check, which determines the consequence."""
    before: HealthStatus
    """The status before. `UNKNOWN`: the check had no result."""
    after: HealthStatus
    """The new status."""
    result: HealthResult
    """The stored result that changed the status."""

    @property
    def stops_admission(self) -> bool | None:
        """The effect on admission. True: stop admitting runs of the target. False: admit them again. None: no effect."""
        if self.check_type is not CheckType.READINESS or HealthStatus.UNHEALTHY not in (self.before, self.after):
            return None
        return self.after is HealthStatus.UNHEALTHY

    @property
    def asks_restart(self) -> bool:
        return self.check_type is CheckType.LIVENESS and self.after is HealthStatus.UNHEALTHY


Listener = Callable[[HealthChange], Awaitable[None] | None]


class HealthChecker:
    """Manages checks of targets and their results. store: keeps the results across restarts; the default is an in-memory
    store. on_change: receives each change in a check's status; its exceptions are logged. llm_rule: the thresholds of
    `check_llm_health`."""

    def __init__(
        self,
        store: StateStore | None = None,
        *,
        clock: Clock | None = None,
        on_change: Listener | None = None,
        llm_rule: LLMHealthRule | None = None,
    ) -> None:
        self._store, self._clock = store or open_store(MEMORY), clock or SystemClock()
        self.on_change = on_change
        self._llm_rule = llm_rule or LLMHealthRule()
        self._checks: dict[str, dict[str, HealthCheck]] = {}
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._monitoring = False

    async def register_check(self, target_id: str, health_check: HealthCheck) -> None:
        """Add a check. It replaces a check with the same name but keeps that check's counts. If monitoring is active, the
        check starts running."""
        if health_check.name in (LLM, *health_rows.OWN):
            raise InvalidInputError(f"a check cannot be named {health_check.name!r}: the name is taken")
        self._checks.setdefault(target_id, {})[health_check.name] = health_check
        if self._monitoring:
            await self._unwatch(target_id, health_check.name)
            self._watch(target_id, health_check)

    async def unregister_check(self, target_id: str, name: str | None = None) -> bool:
        """Remove a check of the target, or all of them, with their results. Returns False if there was none to remove."""
        known = self._checks.get(target_id, {})
        gone = [check for check in known if name in (None, check)]
        for check in gone:
            await self._unwatch(target_id, check)
            del known[check]
        if not known:
            self._checks.pop(target_id, None)
        await health_rows.forget(self._store, target_id, name)
        return bool(gone)

    async def check_health(self, target_id: str, run: bool = False) -> HealthResult:
        """Return the target's last known health. With `run`, run all of its checks now, concurrently. The health of an
        unknown target is UNKNOWN."""
        if run:
            checks = self._checks.get(target_id, {}).values()
            await asyncio.gather(*(self._run_check(target_id, check) for check in checks))
        return combine_results(await self.results(target_id))

    async def results(self, target_id: str) -> list[HealthResult]:
        """Return the last result of each of the target's checks, from any process that uses the store."""
        found = {result.check: result for result in await health_rows.results(self._store, target_id)}
        for name, check in self._checks.get(target_id, {}).items():
            found.setdefault(name, HealthResult(check=name, check_type=check.check_type, message="not checked yet"))
        return list(found.values())

    async def get_overall_health(self) -> OverallHealth:
        """Return the health of all targets that are registered here or have results in the store."""
        found = {*self._checks, *await health_rows.targets(self._store)}
        return overall({target: combine_results(await self.results(target)) for target in sorted(found)})

    async def check_llm_health(
        self, target_id: str, llm_metrics: LLMMetrics, cost_budget: float | None = None
    ) -> HealthResult:
        """Evaluate an agent's metrics, and store the result as the target's check `llm`. `cost_budget`: US dollars per
        hour."""
        status, reasons = self._llm_rule.judge(llm_metrics, cost_budget)
        verdict = status is HealthStatus.HEALTHY, "; ".join(reasons)
        check, now = HealthCheck(name=LLM, check_type=CheckType.CUSTOM), self._clock.now()

        def decide(before: HealthResult | None) -> HealthResult:
            counted = judge(check, before, verdict, now, 0)
            return counted.model_copy(update={"status": status})

        return await self._store_result(target_id, LLM, decide)

    # --- monitoring ----------------------------------------------------------------------------------------------------

    async def start_monitoring(self) -> None:
        """Run every check once per `interval`, after its `initial_delay`. Idempotent."""
        self._monitoring = True
        for target, checks in self._checks.items():
            for check in checks.values():
                self._watch(target, check)

    async def stop_monitoring(self) -> None:
        self._monitoring = False
        for target, name in list(self._tasks):
            await self._unwatch(target, name)

    def _watch(self, target: str, check: HealthCheck) -> None:
        if (target, check.name) not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._monitor(target, check), name=f"health:{target}")
            self._tasks[target, check.name] = task

    async def _unwatch(self, target: str, name: str) -> None:
        task = self._tasks.pop((target, name), None)
        if task is not None and task is not asyncio.current_task():  # a listener may unregister its caller
            task.cancel()
            await asyncio.wait({task})

    async def _monitor(self, target: str, check: HealthCheck) -> None:
        if check.initial_delay:
            await self._clock.sleep(check.initial_delay)
        while self._tasks.get((target, check.name)) is asyncio.current_task():
            try:
                await self._run_check(target, check)
            except Exception as error:
                shown = None if isinstance(error, StoreError) else error  # a store error does not need a traceback
                said = "the result of check %r of %r is not stored: %s"
                logger.warning(said, check.name, target, error, exc_info=shown)
            await self._clock.sleep(check.interval)

    # --- internals -----------------------------------------------------------------------------------------------------

    async def _run_check(self, target: str, check: HealthCheck) -> HealthResult:
        asked = await probe(check.name, check.check_fn, check.timeout, self._clock)
        said = (asked.ok, asked.message), asked.at, asked.took_ms
        return await self._store_result(target, check.name, lambda before: judge(check, before, *said))

    async def _store_result(
        self, target: str, name: str, decide: Callable[[HealthResult | None], HealthResult]
    ) -> HealthResult:
        await note_activity(self._store, self._clock.now())  # otherwise an idle stage would not report the result
        before, after = await health_rows.save(self._store, target, name, decide)
        was = HealthStatus.UNKNOWN if before is None else before.status
        if was is not after.status:
            await self._notify(HealthChange(target, name, after.check_type, was, after.status, after))
        return after

    async def _notify(self, change: HealthChange) -> None:
        if change.after is HealthStatus.UNHEALTHY:
            logger.warning("%s: check %r is unhealthy: %s", change.target, change.check, change.result.message)
        if self.on_change is None:
            return
        try:
            returned = self.on_change(change)
            if inspect.isawaitable(returned):
                await returned
        except Exception:
            logger.exception("a listener failed on the health of %r", change.target)


@dataclass(frozen=True, slots=True)
class Probe:
    ok: bool
    """Whether the check succeeded in time."""
    message: str
    """The check's message, or its error."""
    at: float
    """The end of the check in Unix seconds."""
    took_ms: float
    """The duration of the check in milliseconds."""


async def probe(name: str, check: CheckFunction | None, timeout_s: float, clock: Clock) -> Probe:
    """Run one check. A synchronous function runs in a thread, so that it does not block other checks. Its result is ignored
    after the timeout."""
    begun = clock.now()
    try:
        async with asyncio.timeout(timeout_s):
            ok, message = (True, "") if check is None else verdict_of(await _call_check(check))
    except TimeoutError:
        ok, message = False, f"no answer within {timeout_s:g} s"
    except Exception as error:
        logger.debug("health check %r failed", name, exc_info=True)
        ok, message = False, f"{type(error).__name__}: {error}"
    now = clock.now()
    return Probe(ok, clean_text(message), now, max(0.0, now - begun) * 1000)


async def _call_check(check: CheckFunction) -> object:
    if inspect.iscoroutinefunction(check) or inspect.iscoroutinefunction(getattr(check, "__call__", None)):  # noqa: B004
        returned: object = check()
    else:
        returned = await asyncio.to_thread(check)
    return await returned if inspect.isawaitable(returned) else returned
