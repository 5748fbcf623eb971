"""`/health`, `/ready`, `/live` and `/metrics` of a Starlette app, over HTTP; FastAPI apps are Starlette apps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from helix import MemoryStateStore
from helix.compat.endpoints import HealthEndpointManager, get_health_manager, setup_health_endpoints
from helix.core.errors import InvalidInputError
from helix.core.usage import Usage
from helix.core.usage_parts import Share
from helix.fleet.prometheus import ModelTotals, Queue, model_totals
from helix.services.usage_counters import Counters
from helix.testing.clocks import ShiftedClock


@asynccontextmanager
async def client(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as made:
        yield made


def figures(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the samples by name and labels, as the official client reads them."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def down() -> tuple[bool, str]:
    return False, "connection refused"


async def test_an_app_is_alive_healthy_and_not_yet_ready() -> None:
    app = Starlette()
    manager = setup_health_endpoints(app, service_name="my-agent", version="1.0.0")
    assert get_health_manager() is manager
    async with client(app) as http:
        live, ready, health = (await http.get("/live"), await http.get("/ready"), await http.get("/health"))
        assert (live.status_code, live.json()["status"]) == (200, "alive")
        assert (ready.status_code, ready.json()) == (503, {"service": "my-agent", "ready": False, "reason": "starting"})
        assert (health.status_code, health.json()["status"]) == (200, "healthy")
        assert (health.json()["service"], health.json()["version"]) == ("my-agent", "1.0.0")
        assert health.headers["cache-control"] == "no-store"
        manager.set_ready(True, reason="Initialization complete")
        ready = await http.get("/ready")
        assert (ready.status_code, ready.json()["reason"]) == (200, "Initialization complete")
        manager.set_ready(False, reason="draining")
        assert (await http.get("/ready")).status_code == 503


async def test_a_critical_failure_is_unhealthy_and_any_other_degraded() -> None:
    app = Starlette()
    manager = setup_health_endpoints(app)
    manager.add_check("cache", down)
    async with client(app) as http:
        degraded = await http.get("/health")
        assert (degraded.status_code, degraded.json()["status"]) == (200, "degraded")
        told = degraded.json()["checks"]["cache"]
        assert (told["status"], told["message"], told["critical"]) == ("unhealthy", "connection refused", False)
        manager.add_check("database", down, critical=True)
        unhealthy = await http.get("/health")
        assert (unhealthy.status_code, unhealthy.json()["status"]) == (503, "unhealthy")
        assert manager.remove_check("database") and not manager.remove_check("database")
        manager.add_check("cache", lambda: True)
        assert (await http.get("/health")).json()["status"] == "healthy"


async def test_checks_are_asked_side_by_side() -> None:
    both = asyncio.Barrier(2)

    async def waits_for_the_other() -> bool:
        async with asyncio.timeout(10):
            await both.wait()
        return True

    app = Starlette()
    manager = setup_health_endpoints(app)
    manager.add_check("one", waits_for_the_other, critical=True)
    manager.add_check("two", waits_for_the_other, critical=True)
    async with client(app) as http:
        assert (await http.get("/health")).status_code == 200


async def test_pages_are_before_the_apps_other_routes_and_below_any_prefix() -> None:
    async def other(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"the app's {request.url.path}")

    app = Starlette(routes=[Mount("/", routes=[Route("/{rest:path}", other)])])
    manager = HealthEndpointManager("it", "2")
    manager.mount(app, prefix="/api/")
    manager.mount(app)
    before = len(app.router.routes)
    manager.mount(app, prefix="/api")
    assert len(app.router.routes) == before, "mounting twice at the same place counts once"
    async with client(app) as http:
        assert (await http.get("/api/live")).json()["service"] == "it"
        assert (await http.get("/live")).json()["service"] == "it"
        assert (await http.get("/else")).text == "the app's /else"
        assert (await http.post("/live")).status_code in (404, 405)
    with pytest.raises(InvalidInputError):
        manager.mount(app, prefix="api")
    with pytest.raises(InvalidInputError):
        manager.add_check("", down)


async def test_metrics_are_what_the_official_parser_reads() -> None:
    async def totals() -> Sequence[ModelTotals]:
        return [ModelTotals("helper", 'open"ai/\nx', 3, 100, 20, 1_500_000)]

    async def queues() -> Sequence[Queue]:
        return [Queue("helper", 4, 2, 2), Queue("other", 0, 0, None)]

    app = Starlette()
    manager = setup_health_endpoints(app, totals=totals, queues=queues)
    manager.set_ready(True)
    for success in (True, True, False):
        manager.record_request(success=success)
    async with client(app) as http:
        page = await http.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=")
    found = figures(page.text)
    model = (("agent", "helper"), ("model", 'open"ai/\nx'))
    assert found[("helix_requests_total", ())] == 3
    assert found[("helix_errors_total", ())] == 1
    assert found[("helix_ready", ())] == 1
    assert found[("helix_llm_requests_total", model)] == 3
    assert found[("helix_llm_tokens_total", (model[0], ("direction", "input"), model[1]))] == 100
    assert found[("helix_llm_tokens_total", (model[0], ("direction", "output"), model[1]))] == 20
    assert found[("helix_llm_cost_total", model)] == 1.5
    assert found[("helix_queue_depth", (("agent", "helper"),))] == 4
    assert found[("helix_concurrency_limit", (("agent", "helper"),))] == 2
    assert ("helix_concurrency_limit", (("agent", "other"),)) not in found
    for name in ("uptime_seconds", "cpu_percent", "memory_percent", "memory_used_bytes"):
        assert found[(f"helix_{name}", ())] >= 0
    assert 0 < found[("helix_memory_percent", ())] <= 100 and found[("helix_memory_used_bytes", ())] > 1_000_000
    kinds = {family.name: family.type for family in text_string_to_metric_families(page.text)}
    assert kinds["helix_llm_cost"] == "counter" and kinds["helix_queue_depth"] == "gauge"
    assert not [name for name in kinds if not name.startswith("helix_")], "no metric of another registry"


async def test_stored_totals_only_grow_and_outlive_the_process() -> None:
    store, clock = MemoryStateStore(), ShiftedClock()

    async def used(at: float, **usage: Any) -> None:
        share = Share("openai/gpt-4o", "completion", Usage(calls=1, **usage), 1)
        assert await Counters(store, clock).count("usage", [], [share], agent="helper", tenant="ann", at=at) is None

    async def scrape() -> dict[Any, float]:
        app = Starlette()
        setup_health_endpoints(app, totals=lambda: model_totals(store))  # each time the sample of a new process
        async with client(app) as http:
            return figures((await http.get("/metrics")).text)

    model = (("agent", "helper"), ("model", "openai/gpt-4o"))
    await used(0.0, prompt_tokens=10, completion_tokens=5, cost_micros=250_000)
    first = await scrape()
    assert first[("helix_llm_requests_total", model)] == 1
    assert first[("helix_llm_cost_total", model)] == 0.25
    await used(400 * 86_400.0, prompt_tokens=1, completion_tokens=1, cost_micros=250_000)
    second = await scrape()
    assert second[("helix_llm_requests_total", model)] == 2, "hours pass, totals stay"
    assert second[("helix_llm_cost_total", model)] == 0.5
    assert all(second[key] >= value for key, value in first.items() if key[0].endswith("_total"))


async def test_a_token_protects_the_figures_and_what_checks_say() -> None:
    app = Starlette()
    manager = setup_health_endpoints(app, token="hush")
    manager.add_check("database", down)
    async with client(app) as http:
        assert (await http.get("/metrics")).status_code == 401
        wrong = await http.get("/metrics", headers={"authorization": "Bearer hus"})
        assert wrong.status_code == 401
        assert (await http.get("/metrics", headers={"Authorization": "bearer hush"})).status_code == 200
        open_page = (await http.get("/health")).json()["checks"]["database"]
        assert open_page == {"status": "unhealthy", "critical": False}
        closed = await http.get("/health", headers={"authorization": "Bearer hush"})
        assert closed.json()["checks"]["database"]["message"] == "connection refused"
        assert (await http.get("/live")).status_code == 200
