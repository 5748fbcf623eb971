"""HealthChecker: named checks of targets, asked at once or in the background, and what they amount to.

Law: a target may have any number of checks, told apart by name; its health is the worst of theirs. Who wants to act on a
change is told of it once, after it is stored: a failed readiness check stops admission of its target, a failed liveness
check asks for a restart; both are the listener's to do.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from helix.adapters.system import SystemClock
from helix.core.errors import InvalidInputError, StoreError
from helix.core.health import (
    CheckType,
    HealthCheck,
    HealthResult,
    HealthStatus,
    LLMHealthRule,
    OverallHealth,
    judge,
    of_target,
    overall,
)
from helix.core.llm_metrics import LLMMetrics
from helix.engine.beats import SWEEP
from helix.engine.engine import logger
from helix.fleet import health_rows
from helix.fleet.probing import probe
from helix.ports.clock import Clock
from helix.ports.state_store import StateStore

LLM = "llm"
"""The name under which `check_llm_health` keeps its result."""


@dataclass(frozen=True, slots=True)
class HealthChange:
    """A check of `target` has another status than before."""

    target: str
    check: str
    check_type: CheckType
    before: HealthStatus
    after: HealthStatus
    result: HealthResult

    @property
    def stops_admission(self) -> bool | None:
        """True: let no more runs of the target in. False: they may come in again. None: nothing changes for them."""
        if self.check_type is not CheckType.READINESS or HealthStatus.UNHEALTHY not in (self.before, self.after):
            return None
        return self.after is HealthStatus.UNHEALTHY

    @property
    def asks_restart(self) -> bool:
        return self.check_type is CheckType.LIVENESS and self.after is HealthStatus.UNHEALTHY


Listener = Callable[[HealthChange], Awaitable[None] | None]


class HealthChecker:
    """store: results are kept there, and go on from there after a restart; default in memory. on_change: told of each
    change of a check's status; what it raises is logged. llm_rule: the limits of `check_llm_health`."""

    def __init__(
        self,
        store: StateStore | None = None,
        *,
        clock: Clock | None = None,
        on_change: Listener | None = None,
        llm_rule: LLMHealthRule | None = None,
    ) -> None:
        self._store, self._clock = store, clock or SystemClock()
        self.on_change = on_change
        self._llm_rule = llm_rule or LLMHealthRule()
        self._checks: dict[str, dict[str, HealthCheck]] = {}
        self._results: dict[tuple[str, str], HealthResult] = {}
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._monitoring = False

    async def register_check(self, target_id: str, health_check: HealthCheck) -> None:
        """Add a check; one of the same name is replaced, its counts stay. Watched from now on, if monitoring."""
        if health_check.name in (LLM, SWEEP, health_rows.READY):
            raise InvalidInputError(f"a check cannot be named {health_check.name!r}: the name is taken")
        self._checks.setdefault(target_id, {})[health_check.name] = health_check
        if self._monitoring:
            await self._unwatch(target_id, health_check.name)
            self._watch(target_id, health_check)

    async def unregister_check(self, target_id: str, name: str | None = None) -> bool:
        """Remove a check of the target, or all of them, with their results. False if there was none."""
        known = self._checks.get(target_id, {})
        gone = [check for check in known if name is None or check == name]
        for check in gone:
            await self._unwatch(target_id, check)
            del known[check]
        if not known:
            self._checks.pop(target_id, None)
        for place in [place for place in self._results if place[0] == target_id and name in (None, place[1])]:
            del self._results[place]
        if self._store is not None:
            await health_rows.forget(self._store, target_id, name)
        return bool(gone)

    async def check_health(self, target_id: str, run: bool = False) -> HealthResult:
        """The target's health as last seen; with `run`, its checks are asked now, all at once. Unknown target: UNKNOWN."""
        if run:
            checks = self._checks.get(target_id, {}).values()
            await asyncio.gather(*(self._ask(target_id, check) for check in checks))
        return of_target(await self._known(target_id))

    async def results(self, target_id: str) -> list[HealthResult]:
        """Of each of its checks, as last seen."""
        return await self._known(target_id)

    async def get_overall_health(self) -> OverallHealth:
        """Of all targets that are registered here or have results in the store."""
        found = {*self._checks, *(target for target, _ in self._results)}
        if self._store is not None:
            found.update(await health_rows.targets(self._store))
        return overall({target: of_target(await self._known(target)) for target in sorted(found)})

    async def check_llm_health(
        self, target_id: str, llm_metrics: LLMMetrics, cost_budget: float | None = None
    ) -> HealthResult:
        """Judge an agent's figures, and keep the result as the target's check `llm`. `cost_budget`: US dollars an hour."""
        status, reasons = self._llm_rule.judge(llm_metrics, cost_budget)
        now = self._clock.now()

        def decide(before: HealthResult | None) -> HealthResult:
            ok = status is HealthStatus.HEALTHY
            return HealthResult(
                status=status,
                message="; ".join(reasons),
                check=LLM,
                checked_at=now,
                consecutive_failures=0 if ok else (before.consecutive_failures if before else 0) + 1,
                consecutive_successes=(before.consecutive_successes if before else 0) + 1 if ok else 0,
            )

        return await self._keep(target_id, LLM, decide)

    # --- monitoring ----------------------------------------------------------------------------------------------------

    async def start_monitoring(self) -> None:
        """Ask every check each `interval`, after its `initial_delay`. Starting twice changes nothing."""
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
        if task is not None and task is not asyncio.current_task():  # a listener may unregister what called it
            task.cancel()
            await asyncio.wait({task})

    async def _monitor(self, target: str, check: HealthCheck) -> None:
        if check.initial_delay:
            await self._clock.sleep(check.initial_delay)
        while self._tasks.get((target, check.name)) is asyncio.current_task():
            try:
                await self._ask(target, check)
            except StoreError as error:
                logger.warning("health of %r: %r could not be kept: %s", target, check.name, error)
            except Exception:
                logger.warning("health of %r: %r could not be kept", target, check.name, exc_info=True)
            await self._clock.sleep(check.interval)

    # --- inside --------------------------------------------------------------------------------------------------------

    async def _ask(self, target: str, check: HealthCheck) -> HealthResult:
        asked = await probe(check.name, check.check_fn, check.timeout, self._clock)
        return await self._keep(
            target,
            check.name,
            lambda before: judge(check, before, (asked.ok, asked.message), asked.at, asked.took_ms),
        )

    async def _keep(
        self, target: str, name: str, decide: Callable[[HealthResult | None], HealthResult]
    ) -> HealthResult:
        if self._store is not None:
            before, after = await health_rows.save(self._store, target, name, decide)
        else:
            before = self._results.get((target, name))
            after = decide(before)
        self._results[target, name] = after
        was = HealthStatus.UNKNOWN if before is None else before.status
        if was is not after.status:
            await self._tell(HealthChange(target, name, after.check_type, was, after.status, after))
        return after

    async def _known(self, target: str) -> list[HealthResult]:
        """Results from the store where there is one: other processes look at the target too."""
        if self._store is not None:
            found = {result.check: result for result in await health_rows.results(self._store, target)}
        else:
            found = {name: result for (about, name), result in self._results.items() if about == target}
        for name, check in self._checks.get(target, {}).items():
            found.setdefault(name, HealthResult(check=name, check_type=check.check_type, message="not asked yet"))
        return list(found.values())

    async def _tell(self, change: HealthChange) -> None:
        if change.after is HealthStatus.UNHEALTHY:
            logger.warning("%s: check %r is unhealthy: %s", change.target, change.check, change.result.message)
        if self.on_change is None:
            return
        try:
            told = self.on_change(change)
            if inspect.isawaitable(told):
                await told
        except Exception:
            logger.exception("a listener failed on the health of %r", change.target)
