"""The reporter against a platform on loopback: batches, retries, the circuit breaker, limits, and that it is off by
default."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from tests.support.report_server import Platform, platform
from tests.support_run import eventually

from helix.compat.reporter import AgentReporter, get_agent_reporter, init_agent_reporter, shutdown_agent_reporter
from helix.compat.reporter_posting import BREAKER_FAILURES, BREAKER_S, MAX_BATCHES, Poster, encode, split
from helix.compat.reporter_settings import MAX_BUFFER, ReporterSettings, read_reporter_settings
from helix.core.errors import InvalidInputError
from helix.testing.clocks import SetClock


@pytest.fixture
async def there() -> AsyncIterator[Platform]:
    async with platform() as made:
        yield made


@pytest.fixture
def clock() -> SetClock:
    return SetClock(1_700_000_000.0)


@pytest.fixture
async def reporters(clock: SetClock) -> AsyncIterator[Callable[..., AgentReporter]]:
    made: list[AgentReporter] = []

    def make(where: Platform | None, **fields: Any) -> AgentReporter:
        limits = {"max_bytes": fields.pop("max_bytes")} if "max_bytes" in fields else {}
        settings = ReporterSettings("deploy-123", "hlx_key", where.url if where else "", **fields)
        made.append(AgentReporter(settings, clock=clock, **limits))
        return made[-1]

    yield make
    for reporter in made:
        await reporter.stop()


async def report(reporter: AgentReporter, times: int = 1, **fields: Any) -> None:
    told = {"input_tokens": 100, "output_tokens": 50, "latency_ms": 250.5, "model": "gpt-4", "success": True, **fields}
    for _ in range(times):
        await reporter.report_request(**told)


async def past_the_waits(clock: SetClock, work: Awaitable[None], *, step_s: float = 1.0) -> float:
    """Do the work and move the clock forward whenever it waits. Return the seconds that it waited."""
    task = asyncio.ensure_future(work)
    waited = 0.0
    async with asyncio.timeout(20):
        while not task.done():
            if clock.sleepers:
                clock.advance(step_s)
                waited += step_s
            await asyncio.sleep(0.001)
    await task
    return waited


async def test_a_report_as_the_platform_gets_it(there: Platform, clock: SetClock, reporters: Any) -> None:
    reporter = reporters(there, agent_id="chat", service_name="shop", service_version="1.2")
    await report(reporter, cost=0.002)
    await report(reporter, success=False, error_type="rate_limited", latency_ms=1000.0)
    await reporter.report_health("degraded", active_requests=5, queue_depth=2)
    await reporter.flush()
    assert there.paths == ["/api/v1/agents/deploy-123/metrics"]
    (headers,), (payload,) = there.headers, there.accepted
    assert headers["authorization"] == "Bearer hlx_key" and headers["x-helix-deployment-id"] == "deploy-123"
    assert (payload["deployment_id"], payload["agent_id"], payload["timestamp"]) == ("deploy-123", "chat", clock.now())
    assert payload["service"] == {"name": "shop", "version": "1.2"}
    first, second = payload["requests"]
    assert first == {
        "timestamp": clock.now(),
        "input_tokens": 100,
        "output_tokens": 50,
        "latency_ms": 250.5,
        "model": "gpt-4",
        "success": True,
        "cost": 0.002,
        "error_type": None,
    }
    assert second["error_type"] == "rate_limited"
    assert (payload["health"]["status"], payload["health"]["queue_depth"]) == ("degraded", 2)
    sums = payload["aggregated"]
    assert (sums["total_requests"], sums["failed_requests"], sums["total_input_tokens"]) == (2, 1, 200)
    assert (sums["min_latency_ms"], sums["max_latency_ms"], sums["models"]) == (250.5, 1000.0, {"gpt-4": 2})
    await reporter.flush()
    assert len(there.accepted) == 1, "nothing new, nothing sent"
    await report(reporter)
    await reporter.flush()
    assert there.accepted[1]["aggregated"]["total_requests"] == 1 and there.accepted[1]["health"] is None


async def test_it_sends_each_interval_and_at_once_when_a_batch_is_full(
    there: Platform, clock: SetClock, reporters: Any
) -> None:
    reporter = reporters(there, batch_size=10, flush_interval=10)
    await reporter.start()
    await report(reporter, 3)

    async def waits() -> bool:
        return clock.sleepers > 0

    await eventually(waits)
    assert there.accepted == []
    clock.advance(10)

    async def sent() -> bool:
        return len(there.requests) == 3

    await eventually(sent)
    await report(reporter, 25)

    async def all_sent() -> bool:
        return len(there.requests) == 28

    await eventually(all_sent)
    assert max(len(payload["requests"]) for payload in there.accepted) == 10


async def test_stop_sends_what_is_left(there: Platform, reporters: Any) -> None:
    reporter = reporters(there)
    await reporter.start()
    assert reporter.running
    await report(reporter, 3)
    await reporter.stop()
    assert len(there.requests) == 3 and not reporter.running
    await reporter.stop()


async def test_a_platform_that_stumbles_is_asked_again(there: Platform, clock: SetClock, reporters: Any) -> None:
    """It is asked three times more, after 1, 2 and 4 seconds."""
    reporter = reporters(there)
    there.answer(500, 503, 500)
    await report(reporter)
    waited = await past_the_waits(clock, reporter.flush())
    assert waited == 1 + 2 + 4 and len(there.requests) == 1 and len(there.bodies) == 4
    assert reporter.get_local_stats()["retries"] == 3


async def test_429_waits_twice_as_long_or_as_long_as_asked(there: Platform, clock: SetClock, reporters: Any) -> None:
    reporter = reporters(there)
    there.answer(429)
    there.answer(429, retry_after="9")
    await report(reporter)
    assert await past_the_waits(clock, reporter.flush()) == 2 + 9
    assert len(there.requests) == 1


async def test_what_is_refused_for_good_is_dropped(there: Platform, clock: SetClock, reporters: Any) -> None:
    reporter = reporters(there)
    there.answer(401)
    await report(reporter)
    await reporter.flush()
    await report(reporter)
    await reporter.flush()
    stats = reporter.get_local_stats()
    assert (stats["batches_refused"], stats["batches_sent"], stats["batches_kept"], stats["retries"]) == (1, 1, 0, 0)
    assert stats["circuit"] == "closed"


async def test_what_was_not_delivered_comes_with_the_next(there: Platform, clock: SetClock, reporters: Any) -> None:
    reporter = reporters(there)
    there.hang_up = True
    await report(reporter, model="first")
    await past_the_waits(clock, reporter.flush())
    assert reporter.get_local_stats()["batches_kept"] == 1
    there.hang_up = False
    await report(reporter, model="second")
    await reporter.flush()
    assert [request["model"] for request in there.requests] == ["first", "second"]
    assert reporter.get_local_stats()["batches_kept"] == 0


async def test_the_breaker(there: Platform, clock: SetClock, reporters: Any) -> None:
    """The breaker opens after five failures, allows one attempt after a minute, and closes when that succeeds."""
    reporter = reporters(there)
    there.answer(*[500] * 4 * (BREAKER_FAILURES + 1))
    for _ in range(BREAKER_FAILURES):
        assert reporter.get_local_stats()["circuit"] == "closed"
        await report(reporter)
        await past_the_waits(clock, reporter.flush())
    assert reporter.get_local_stats()["circuit"] == "open"
    asked = len(there.bodies)
    assert asked == 4 * BREAKER_FAILURES
    await report(reporter)
    await reporter.flush()
    assert len(there.bodies) == asked, "no request is sent while the breaker is open"
    assert reporter.get_local_stats()["batches_kept"] == BREAKER_FAILURES + 1

    clock.advance(BREAKER_S)
    assert reporter.get_local_stats()["circuit"] == "half-open"
    await past_the_waits(clock, reporter.flush())
    assert len(there.bodies) == asked + 4 and reporter.get_local_stats()["circuit"] == "open", (
        "one attempt, which failed"
    )

    clock.advance(BREAKER_S)
    await reporter.flush()
    assert reporter.get_local_stats()["circuit"] == "closed" and reporter.get_local_stats()["batches_kept"] == 0
    assert len(there.requests) == BREAKER_FAILURES + 1


async def test_kept_batches_are_bounded(there: Platform, clock: SetClock, reporters: Any) -> None:
    reporter = reporters(there, batch_size=1)
    there.hang_up = True
    for place in range(BREAKER_FAILURES):
        await report(reporter, model=f"m{place}")
        await past_the_waits(clock, reporter.flush())
    for place in range(BREAKER_FAILURES, MAX_BATCHES + 20):
        await report(reporter, model=f"m{place}")
        await reporter.flush()
    stats = reporter.get_local_stats()
    assert (stats["batches_kept"], stats["batches_dropped"], stats["circuit"]) == (MAX_BATCHES, 20, "open")
    there.hang_up = False
    clock.advance(BREAKER_S)
    await reporter.flush()
    assert [request["model"] for request in there.requests] == [f"m{n}" for n in range(20, MAX_BATCHES + 20)]


async def test_the_buffer_is_bounded(there: Platform, reporters: Any) -> None:
    reporter = reporters(there, batch_size=MAX_BUFFER)
    await report(reporter, MAX_BUFFER + 5)
    stats = reporter.get_local_stats()
    assert (stats["buffered"], stats["dropped"], stats["total_requests"]) == (MAX_BUFFER, 5, MAX_BUFFER + 5)
    await reporter.flush()
    assert len(there.requests) == MAX_BUFFER


async def test_a_large_report_is_split(there: Platform, reporters: Any) -> None:
    reporter = reporters(there, max_bytes=4_000)
    await report(reporter, 60)
    await reporter.report_health()
    await reporter.flush()
    assert len(there.bodies) > 2 and max(map(len, there.bodies)) <= 4_000
    assert len(there.requests) == 60
    assert sum(payload["health"] is not None for payload in there.accepted) == 1, "sums and health are reported once"
    assert sum(bool(payload["aggregated"]) for payload in there.accepted) == 1


def test_one_request_that_is_too_large_is_sent_as_it_is() -> None:
    payload: dict[str, Any] = {"requests": [{"model": "x" * 100}], "health": None, "aggregated": {}}
    assert split(payload, 50) == [payload] and len(encode(payload)) > 50


# --- settings -----------------------------------------------------------------------------------------------------------


async def test_nothing_is_sent_by_default(there: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    incomplete: list[dict[str, Any]] = [{}, {"deployment_id": "d", "api_key": "k"}, {"url": there.url, "api_key": "k"}]
    for given in incomplete:
        reporter = await init_agent_reporter(**given, environment={})
        assert get_agent_reporter() is reporter and not reporter.running
        await report(reporter, 200)
        await reporter.flush()
        stats = reporter.get_local_stats()
        assert (stats["total_requests"], stats["configured"]) == (200, False)
    await shutdown_agent_reporter()
    assert there.bodies == []
    with pytest.raises(InvalidInputError, match="init_agent_reporter"):
        get_agent_reporter()
    await shutdown_agent_reporter()


async def test_switched_off_by_its_variable(there: Platform) -> None:
    off = {"HELIX_METRICS_ENABLED": "false"}
    reporter = await init_agent_reporter("d", "k", url=there.url, environment=off)
    await report(reporter)
    await reporter.flush()
    await shutdown_agent_reporter()
    assert there.bodies == []


async def test_the_processs_reporter(there: Platform) -> None:
    told = {"HELIX_DEPLOYMENT_ID": "d/1", "HELIX_API_KEY": "k", "HELIX_PLATFORM_URL": there.url + "/"}
    reporter = await init_agent_reporter(environment=told)
    assert reporter.running
    await report(reporter)
    second = await init_agent_reporter("other", environment=told)
    assert get_agent_reporter() is second and not reporter.running and len(there.requests) == 1
    await report(second)
    await shutdown_agent_reporter()
    assert there.paths == ["/api/v1/agents/d%2F1/metrics", "/api/v1/agents/other/metrics"]


def test_an_argument_wins_over_its_variable() -> None:
    told = {"HELIX_METRICS_INTERVAL": "3", "HELIX_METRICS_BATCH_SIZE": "7", "HELIX_AGENT_ID": "chat"}
    found = read_reporter_settings(told)
    assert (found.flush_interval, found.batch_size, found.agent_id, found.url) == (3, 7, "chat", "")
    found = read_reporter_settings(told, flush_interval=20.0, batch_size=None)
    assert (found.flush_interval, found.batch_size) == (20, 7)
    assert read_reporter_settings({}) == ReporterSettings() and ReporterSettings().flush_interval == 10
    assert "key" not in repr(ReporterSettings("d", "a secret key", "http://x"))


@pytest.mark.parametrize(
    ("told", "given", "problem"),
    [
        ({"HELIX_METRICS_INTERVAL": "often"}, {}, "HELIX_METRICS_INTERVAL"),
        ({"HELIX_METRICS_BATCH_SIZE": "1.5"}, {}, "HELIX_METRICS_BATCH_SIZE"),
        ({"HELIX_METRICS_ENABLED": "perhaps"}, {}, "HELIX_METRICS_ENABLED"),
        ({}, {"flush_interval": 0}, "flush_interval"),
        ({}, {"batch_size": 0}, "batch_size"),
        ({}, {"url": "ftp://x"}, "http"),
    ],
)
def test_what_is_wrong_is_named(told: dict[str, str], given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        read_reporter_settings(told, **given)


async def test_wrong_reports_are_refused(reporters: Any) -> None:
    with pytest.raises(InvalidInputError, match="negative"):
        await report(reporters(None), input_tokens=-1)
    with pytest.raises(InvalidInputError, match="status"):
        await reporters(None).report_health("splendid")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0])
async def test_a_number_that_cannot_be_sent_is_refused_at_once(reporters: Any, number: float) -> None:
    reporter = reporters(None)
    with pytest.raises(InvalidInputError, match="negative or not finite"):
        await report(reporter, latency_ms=number)
    with pytest.raises(InvalidInputError, match="negative or not finite"):
        await reporter.report_health(queue_depth=number)
    await reporter.flush()
    assert reporter.get_local_stats()["buffered"] == 0


async def test_a_delivery_that_is_cancelled_is_kept_and_the_breaker_admits_again(clock: SetClock) -> None:
    asked, sent = asyncio.Event(), []

    async def answer(request: httpx.Request) -> httpx.Response:
        if not asked.is_set():
            asked.set()
            await asyncio.Event().wait()
        sent.append(request.content)
        return httpx.Response(200)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        poster = Poster("http://there.test", {}, client, clock)
        poster.opened_at = clock.now() - BREAKER_S  # half-open: this is its one attempt
        task = asyncio.ensure_future(poster.deliver({"requests": [], "n": 1}))
        await asyncio.wait_for(asked.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [one["n"] for one in poster.unsent] == [1]
        await poster.deliver({"requests": [], "n": 2})
    assert (len(sent), len(poster.unsent), poster.circuit) == (2, 0, "closed")
