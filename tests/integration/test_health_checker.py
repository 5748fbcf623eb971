"""`HealthChecker`: several checks per target, kept in any store, run in the background, with callbacks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from helix import MemoryStateStore, SQLiteStateStore
from helix.core.errors import InvalidInputError
from helix.core.health import CheckType, HealthCheck, HealthStatus, LLMHealthRule
from helix.core.llm_metrics import LLMMetrics
from helix.fleet.health import HealthChange, HealthChecker
from helix.ports.state_store import StateStore

PATIENCE_S = 10.0


class HandClock:
    """A clock that stands still until the test moves it. A sleeper wakes when its time has come."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self._moved = asyncio.Condition()
        self._wakes: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        until = self.time + seconds
        async with self._moved:
            self._wakes.append(until)
            self._moved.notify_all()
            try:
                await self._moved.wait_for(lambda: self.time >= until)
            finally:
                self._wakes.remove(until)

    async def asleep(self) -> None:
        """Wait until all sleepers that were due have finished their work, and one sleeps again."""
        async with asyncio.timeout(PATIENCE_S), self._moved:
            await self._moved.wait_for(lambda: bool(self._wakes) and min(self._wakes) > self.time)

    async def on(self, seconds: float) -> None:
        await self.asleep()
        async with self._moved:
            self.time += seconds
            self._moved.notify_all()
        await self.asleep()


class Answers:
    """A check with given results, the last of which repeats."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), 0

    async def __call__(self) -> Any:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(params=["none", "memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StateStore | None]:
    kinds: dict[str, Callable[[], StateStore | None]] = {
        "none": lambda: None,
        "memory": MemoryStateStore,
        "sqlite": lambda: SQLiteStateStore(tmp_path / "h.db"),
    }
    made = kinds[request.param]()
    yield made
    if made is not None:
        await made.close()


async def test_a_check_without_a_function_is_healthy(store: StateStore | None) -> None:
    checker = HealthChecker(store)
    await checker.register_check("my-agent", HealthCheck(name="it"))
    assert (await checker.check_health("my-agent")).status is HealthStatus.UNKNOWN, "no check has run"
    assert (await checker.check_health("my-agent", run=True)).status is HealthStatus.HEALTHY
    assert (await checker.check_health("my-agent")).status is HealthStatus.HEALTHY
    assert (await checker.check_health("nobody")).status is HealthStatus.UNKNOWN


async def test_a_target_has_several_checks_and_a_second_replaces_only_its_namesake(store: StateStore | None) -> None:
    checker = HealthChecker(store)
    await checker.register_check("a", HealthCheck(name="disk", check_fn=Answers(True)))
    await checker.register_check(
        "a", HealthCheck(name="model", check_fn=Answers((False, "no key")), failure_threshold=1)
    )
    found = await checker.check_health("a", run=True)
    assert (found.status, found.message) == (HealthStatus.UNHEALTHY, "model: no key")
    await checker.register_check("a", HealthCheck(name="model", check_fn=Answers(True)))
    assert (await checker.check_health("a", run=True)).status is HealthStatus.HEALTHY
    assert {result.check for result in await checker.results("a")} == {"disk", "model"}


async def test_what_raises_and_what_takes_too_long_has_failed() -> None:
    async def stuck() -> bool:
        await asyncio.Event().wait()
        return True

    checker = HealthChecker()
    await checker.register_check(
        "a", HealthCheck(name="raises", check_fn=Answers(ValueError("no")), failure_threshold=1)
    )
    await checker.register_check("b", HealthCheck(name="stuck", check_fn=stuck, timeout=0.01))
    assert (await checker.check_health("a", run=True)).message == "raises: ValueError: no"
    late = await checker.check_health("b", run=True)
    assert (late.status, late.message) == (HealthStatus.DEGRADED, "stuck: no answer within 0.01 s")


async def test_a_function_that_blocks_holds_up_nobody() -> None:
    released = threading.Event()

    def blocks() -> bool:
        return released.wait(PATIENCE_S)

    checker = HealthChecker()
    await checker.register_check("a", HealthCheck(name="blocks", check_fn=blocks, timeout=0.05))
    await checker.register_check("a", HealthCheck(name="quick", check_fn=lambda: (True, "fine")))
    try:
        assert (await checker.check_health("a", run=True)).status is HealthStatus.DEGRADED
        assert {r.check: r.status.value for r in await checker.results("a")} == {
            "blocks": "degraded",
            "quick": "healthy",
        }
    finally:
        released.set()


async def test_counts_go_on_in_another_process() -> None:
    store = MemoryStateStore()
    check = HealthCheck(name="db", check_fn=Answers(False))
    for _ in range(3):  # each as its own process
        checker = HealthChecker(store)
        await checker.register_check("a", check)
        found = await checker.check_health("a", run=True)
    assert (found.status, found.consecutive_failures) == (HealthStatus.UNHEALTHY, 3)
    elsewhere = HealthChecker(store)
    assert (await elsewhere.check_health("a")).status is HealthStatus.UNHEALTHY
    assert (await elsewhere.get_overall_health()).counts[HealthStatus.UNHEALTHY] == 1


async def test_two_probes_at_once_are_counted_as_two() -> None:
    store = MemoryStateStore()
    checkers = [HealthChecker(store) for _ in range(8)]
    for checker in checkers:
        await checker.register_check("a", HealthCheck(name="db", check_fn=Answers(False)))
    await asyncio.gather(*(checker.check_health("a", run=True) for checker in checkers))
    assert (await checkers[0].check_health("a")).consecutive_failures == 8


async def test_the_worst_target_is_the_overall_health(store: StateStore | None) -> None:
    checker = HealthChecker(store)
    assert (await checker.get_overall_health()).status is HealthStatus.UNKNOWN
    await checker.register_check("a", HealthCheck(name="it"))
    await checker.register_check("b", HealthCheck(name="it", check_fn=Answers(False)))
    await checker.check_health("a", run=True)
    await checker.check_health("b", run=True)
    found = await checker.get_overall_health()
    assert found.status is HealthStatus.DEGRADED
    assert {target: result.status.value for target, result in found.targets.items()} == {
        "a": "healthy",
        "b": "degraded",
    }


async def test_what_is_unregistered_is_forgotten(store: StateStore | None) -> None:
    checker = HealthChecker(store)
    await checker.register_check("a", HealthCheck(name="one"))
    await checker.register_check("a", HealthCheck(name="two", check_fn=Answers(False)))
    await checker.check_health("a", run=True)
    assert await checker.unregister_check("a", "two")
    assert (await checker.check_health("a")).status is HealthStatus.HEALTHY
    assert await checker.unregister_check("a")
    assert not await checker.unregister_check("a")
    assert (await checker.get_overall_health()).targets == {}


@pytest.mark.parametrize("name", ["llm", "sweep", "ready", "activity"])
async def test_names_of_rows_that_are_something_else_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError):
        await HealthChecker().register_check("a", HealthCheck(name=name))


async def test_an_agents_figures_are_kept_as_a_check_of_it(store: StateStore | None) -> None:
    checker = HealthChecker(store, llm_rule=LLMHealthRule(degraded_queue=1))
    metrics = LLMMetrics(requests=3, tokens_per_second=9.0, cost_per_hour=12.5)
    found = await checker.check_llm_health("chat-agent", llm_metrics=metrics, cost_budget=10.0)
    assert (found.status, found.message) == (HealthStatus.DEGRADED, "$12.50 an hour, more than $10.00")
    stuck = LLMMetrics(requests=3, tokens_per_second=0.0, queue_depth=2)
    found = await checker.check_llm_health("chat-agent", stuck)
    assert (found.status, found.consecutive_failures) == (HealthStatus.UNHEALTHY, 2)
    assert (await checker.check_health("chat-agent")).status is HealthStatus.UNHEALTHY


# --- monitoring ---------------------------------------------------------------------------------------------------


async def test_checks_are_asked_after_their_delay_and_at_their_interval() -> None:
    clock, answers = HandClock(), Answers(True)
    checker = HealthChecker(clock=clock)
    await checker.register_check("a", HealthCheck(name="it", check_fn=answers, interval=30, initial_delay=5))
    await checker.start_monitoring()
    await checker.start_monitoring()  # a second start changes nothing
    await clock.asleep()
    told = [answers.asked]
    for seconds in (4, 1, 29, 1, 30):
        await clock.on(seconds)
        told.append(answers.asked)
    assert told == [0, 0, 1, 1, 2, 3]
    await checker.stop_monitoring()
    assert (await checker.check_health("a")).consecutive_successes == 3


async def test_a_check_that_is_registered_later_is_watched_too_and_one_that_is_gone_is_not() -> None:
    clock, answers = HandClock(), Answers(True)
    checker = HealthChecker(clock=clock)
    await checker.start_monitoring()
    await checker.register_check("a", HealthCheck(name="it", check_fn=answers))
    await clock.asleep()
    assert answers.asked == 1
    await checker.unregister_check("a")
    other = Answers(True)
    await checker.register_check("b", HealthCheck(name="it", check_fn=other, interval=40))
    await clock.on(30)
    assert (answers.asked, other.asked) == (1, 1)
    await checker.stop_monitoring()


async def test_a_readiness_failure_stops_admission_and_recovery_opens_it_again() -> None:
    told: list[HealthChange] = []
    checker = HealthChecker(on_change=told.append)
    answers = Answers(True, False, False, False, True)
    await checker.register_check("a", HealthCheck(name="db", check_fn=answers))
    for _ in range(5):
        await checker.check_health("a", run=True)
    assert [(c.before.value, c.after.value, c.stops_admission) for c in told] == [
        ("unknown", "healthy", None),
        ("healthy", "degraded", None),
        ("degraded", "unhealthy", True),
        ("unhealthy", "healthy", False),
    ]
    assert not any(change.asks_restart for change in told)


async def test_a_liveness_failure_asks_for_a_restart_once() -> None:
    told: list[str] = []

    async def restart(change: HealthChange) -> None:
        if change.asks_restart:
            told.append(change.target)

    checker = HealthChecker(on_change=restart)
    check = HealthCheck(name="alive", check_type=CheckType.LIVENESS, check_fn=Answers(False), failure_threshold=2)
    await checker.register_check("a", check)
    for _ in range(4):
        await checker.check_health("a", run=True)
    assert told == ["a"]


async def test_a_listener_that_raises_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def raises(change: HealthChange) -> None:
        raise RuntimeError("no")

    checker = HealthChecker(on_change=raises)
    await checker.register_check("a", HealthCheck(name="it"))
    assert (await checker.check_health("a", run=True)).status is HealthStatus.HEALTHY
    assert "a listener failed" in caplog.text


async def test_a_store_that_fails_is_told_in_one_line(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """Each interval is logged anew, into a user's terminal, and a known error needs no traceback."""
    clock, store = HandClock(), SQLiteStateStore(tmp_path / "helix.db")
    checker = HealthChecker(store, clock=clock)
    await checker.register_check("desk", HealthCheck(name="it", interval=5))
    await store.close()
    await checker.start_monitoring()
    await clock.asleep()
    await checker.stop_monitoring()
    (record,) = [record for record in caplog.records if "is not stored" in record.message]
    assert "closed" in record.message and record.exc_info is None
