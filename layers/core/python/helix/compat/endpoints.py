"""Health endpoints for any Starlette or FastAPI app: `/health`, `/ready`, `/live` and `/metrics`.

Law: an app starts as not ready and must report when it is ready. Checks run when the page is requested. A failed
non-critical check makes the app degraded, but it still serves requests.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from helix._version import __version__
from helix.adapters.system import SystemClock
from helix.core.errors import InvalidInputError
from helix.core.health import CheckFunction, HealthStatus
from helix.fleet.health import probe
from helix.fleet.health_pages import (
    REFUSED,
    ROUTES,
    About,
    Checked,
    Page,
    has_token,
    health_page,
    live_page,
    ready_page,
)
from helix.fleet.prometheus import Figures, ModelTotals, Queue, render
from helix.ports.clock import Clock

CHECK_TIMEOUT_S = 10.0
Totals = Callable[[], Awaitable[Sequence[ModelTotals]]]
Queues = Callable[[], Awaitable[Sequence[Queue]]]


class HealthEndpointManager:
    """Manages the health state of an app and serves its health pages.

    token: the bearer token that `/metrics` and the messages of `/health` require; None makes them public.
    totals, queues: the sources of stored values for `/metrics`; see `helix.fleet.prometheus`."""

    def __init__(
        self,
        service_name: str = "helix",
        version: str = __version__,
        *,
        token: str | None = None,
        totals: Totals | None = None,
        queues: Queues | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.service_name, self.version = service_name, version
        self._token, self._totals, self._queues = token, totals, queues
        self._clock = clock or SystemClock()
        self._begun = self._clock.now()
        self._process = _process()
        self._checks: dict[str, tuple[CheckFunction, bool]] = {}
        self._ready, self._reason = False, "starting"
        self._lock = threading.Lock()
        self._requests = self._errors = 0

    def add_check(self, name: str, fn: CheckFunction, critical: bool = False) -> None:
        """Add a check, or replace the one with that name. `fn` is a sync or async function that returns a bool or (bool,
        message)."""
        if not name:
            raise InvalidInputError("a check needs a name")
        self._checks[name] = (fn, critical)

    def remove_check(self, name: str) -> bool:
        """Remove the check. Returns False if there is no check with that name."""
        return self._checks.pop(name, None) is not None

    def set_ready(self, ready: bool, reason: str = "") -> None:
        """Set whether this process accepts work. `reason` is shown on `/ready`."""
        self._ready, self._reason = ready, reason

    @property
    def ready(self) -> bool:
        return self._ready

    def record_request(self, success: bool = True) -> None:
        """Count a request that the app has handled. Thread-safe."""
        with self._lock:
            self._requests += 1
            self._errors += not success

    def mount(self, app: Any, prefix: str = "") -> None:
        """Serve the four pages of this manager from `app`, under `prefix`, with precedence over its other routes. The
        manager may be mounted in several places. A second mount in the same place replaces the first."""
        if prefix and not prefix.startswith("/"):
            raise InvalidInputError(f"prefix {prefix!r} must begin with '/'")
        base = prefix.rstrip("/")
        pages = (self._health_page, self._ready_page, self._live_page, self._metrics_page)
        paths = {f"{base}{route}" for route in ROUTES}
        routes = app.router.routes
        routes[:] = [route for route in routes if not (getattr(route, "path", None) in paths and _is_own_route(route))]
        for at, (route, page) in enumerate(zip(ROUTES, pages, strict=True)):
            routes.insert(at, Route(f"{base}{route}", _Endpoint(page), methods=["GET"], include_in_schema=False))

    # --- pages ---------------------------------------------------------------------------------------------------------

    async def _health_page(self, request: Request) -> Page:
        checks = await asyncio.gather(*(self._run_check(name, *check) for name, check in list(self._checks.items())))
        details = self._token is None or has_token(self._token, request.headers)
        return health_page(self._about(), checks, details=details)

    async def _run_check(self, name: str, ask: CheckFunction, critical: bool) -> Checked:
        asked = await probe(name, ask, CHECK_TIMEOUT_S, self._clock)
        status = HealthStatus.HEALTHY if asked.ok else HealthStatus.UNHEALTHY
        return Checked(name, status, asked.message, critical, asked.took_ms)

    async def _ready_page(self, request: Request) -> Page:
        return ready_page(self._about(), self._ready, self._reason)

    async def _live_page(self, request: Request) -> Page:
        return live_page(self._about())

    async def _metrics_page(self, request: Request) -> Page:
        if self._token is not None and not has_token(self._token, request.headers):
            return REFUSED
        figures = Figures(self._clock.now() - self._begun, self._ready)
        with self._lock:
            figures.requests, figures.errors = self._requests, self._errors
        if self._process is not None:
            with self._process.oneshot():
                figures.cpu_percent = self._process.cpu_percent(None)  # since the last request; two busy cores are 200
                figures.memory_percent = self._process.memory_percent()
                figures.memory_bytes = self._process.memory_info().rss
        figures.totals = await self._totals() if self._totals is not None else ()
        figures.queues = await self._queues() if self._queues is not None else ()
        return Page(200, *render(figures))

    def _about(self) -> About:
        return About(self.service_name, self.version, self._clock.now() - self._begun)


class _Endpoint:
    """An endpoint object, which Starlette calls as an ASGI app. Its class identifies the routes of Helix."""

    def __init__(self, page: Callable[[Request], Awaitable[Page]]) -> None:
        self._page = page

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        page = await self._page(Request(scope, receive))
        headers = {"cache-control": "no-store", "content-type": page.content_type}
        await Response(page.body, page.status, headers)(scope, receive, send)


def _is_own_route(route: Any) -> bool:
    return isinstance(getattr(route, "endpoint", None), _Endpoint)


def _process() -> Any:
    """Return this process, if psutil is installed."""
    try:
        import psutil
    except ImportError:
        return None
    process = psutil.Process()
    process.cpu_percent(None)  # the first call only sets the reference
    return process


_managers: list[HealthEndpointManager] = []
"""The process-wide manager, as the only element."""


def setup_health_endpoints(
    app: Any, service_name: str = "helix", version: str = __version__, prefix: str = "", **options: Any
) -> HealthEndpointManager:
    """Create a manager and mount it in `app`. From now on `get_health_manager()` returns it. `options` are passed to the
    manager."""
    manager = HealthEndpointManager(service_name, version, **options)
    manager.mount(app, prefix)
    _managers[:] = [manager]
    return manager


def get_health_manager() -> HealthEndpointManager:
    """Return the manager that was set up last. If none was, return one that is not mounted."""
    if not _managers:
        _managers.append(HealthEndpointManager())
    return _managers[0]
