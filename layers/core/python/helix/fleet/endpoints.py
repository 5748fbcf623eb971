"""Health endpoints for any Starlette or FastAPI app: `/health`, `/ready`, `/live` and `/metrics`.

Law: an app starts not ready, and says itself when it is. Checks are asked when the page is; a failed check that is not
critical leaves the app degraded, which still serves.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from helix._version import __version__
from helix.adapters.system import SystemClock
from helix.core.errors import InvalidInputError
from helix.core.health import CheckFunction, HealthStatus
from helix.fleet.health_pages import (
    ROUTES,
    About,
    Checked,
    Page,
    health_page,
    live_page,
    may_see,
    ready_page,
    refused_page,
)
from helix.fleet.probing import probe
from helix.fleet.process_figures import ProcessFigures
from helix.fleet.prometheus import Figures, ModelTotals, Queue, render
from helix.ports.clock import Clock

CHECK_TIMEOUT_S = 10.0
Totals = Callable[[], Awaitable[Sequence[ModelTotals]]]
Queues = Callable[[], Awaitable[Sequence[Queue]]]


@dataclass(frozen=True, slots=True)
class _Check:
    ask: CheckFunction
    critical: bool


class HealthEndpointManager:
    """token: what `/metrics` and the messages of `/health` ask for, as `Authorization: Bearer <token>`; None leaves them
    open. totals, queues: where stored figures for `/metrics` come from, see `helix.fleet.stored_figures`."""

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
        self._process = ProcessFigures()
        self._checks: dict[str, _Check] = {}
        self._ready, self._reason = False, "starting"
        self._lock = threading.Lock()
        self._requests = self._errors = 0

    def add_check(self, name: str, fn: CheckFunction, critical: bool = False) -> None:
        """`fn` answers a bool or (bool, message), now or awaited. One of the same name is replaced."""
        if not name:
            raise InvalidInputError("a check needs a name")
        self._checks[name] = _Check(fn, critical)

    def remove_check(self, name: str) -> bool:
        """False if there is none of that name."""
        return self._checks.pop(name, None) is not None

    def set_ready(self, ready: bool, reason: str = "") -> None:
        """Whether this process takes work; `reason` is shown on `/ready`."""
        self._ready, self._reason = ready, reason

    @property
    def ready(self) -> bool:
        return self._ready

    def record_request(self, success: bool = True) -> None:
        """Count a request that the app has answered. Any thread may."""
        with self._lock:
            self._requests += 1
            self._errors += not success

    def mount(self, app: Any, prefix: str = "") -> None:
        """Serve the four pages of this manager from `app`, below `prefix`, before its other routes. Mounting in several
        places is fine; the same place twice is one place."""
        if prefix and not prefix.startswith("/"):
            raise InvalidInputError(f"prefix {prefix!r} must begin with '/'")
        base = prefix.rstrip("/")
        pages = (self._health_page, self._ready_page, self._live_page, self._metrics_page)
        paths = {f"{base}{route}" for route in ROUTES}
        routes = app.router.routes
        routes[:] = [route for route in routes if not (getattr(route, "path", None) in paths and _ours(route))]
        for at, (route, page) in enumerate(zip(ROUTES, pages, strict=True)):
            routes.insert(at, Route(f"{base}{route}", _Endpoint(page), methods=["GET"], include_in_schema=False))

    # --- pages ---------------------------------------------------------------------------------------------------------

    async def _health_page(self, request: Request) -> Page:
        checks = await asyncio.gather(*(self._asked(name, check) for name, check in list(self._checks.items())))
        details = self._token is None or may_see(self._token, _headers(request))
        return health_page(self._about(), checks, details=details)

    async def _asked(self, name: str, check: _Check) -> Checked:
        asked = await probe(name, check.ask, CHECK_TIMEOUT_S, self._clock)
        status = HealthStatus.HEALTHY if asked.ok else HealthStatus.UNHEALTHY
        return Checked(name, status, asked.message, check.critical, asked.took_ms)

    async def _ready_page(self, request: Request) -> Page:
        return ready_page(self._about(), self._ready, self._reason)

    async def _live_page(self, request: Request) -> Page:
        return live_page(self._about())

    async def _metrics_page(self, request: Request) -> Page:
        if self._token is not None and not may_see(self._token, _headers(request)):
            return refused_page(token_known=True)
        used = self._process.read()
        with self._lock:
            requests, errors = self._requests, self._errors
        figures = Figures(
            uptime_s=self._clock.now() - self._begun,
            ready=self._ready,
            requests=requests,
            errors=errors,
            cpu_percent=used.cpu_percent,
            memory_percent=used.memory_percent,
            memory_bytes=used.memory_bytes,
            totals=await self._totals() if self._totals is not None else (),
            queues=await self._queues() if self._queues is not None else (),
        )
        text, content_type = render(figures)
        return Page(200, text, content_type)

    def _about(self) -> About:
        return About(self.service_name, self.version, self._clock.now() - self._begun)


class _Endpoint:
    """Starlette calls an object that is no function as an ASGI app; by its class it is known as ours."""

    def __init__(self, page: Callable[[Request], Awaitable[Page]]) -> None:
        self._page = page

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        page = await self._page(Request(scope, receive))
        headers = {"cache-control": "no-store", "content-type": page.content_type}
        await Response(page.body, page.status, headers)(scope, receive, send)


def _ours(route: Any) -> bool:
    return isinstance(getattr(route, "endpoint", None), _Endpoint)


def _headers(request: Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


_managers: list[HealthEndpointManager] = []


def setup_health_endpoints(
    app: Any, service_name: str = "helix", version: str = __version__, prefix: str = "", **options: Any
) -> HealthEndpointManager:
    """A new manager, mounted in `app`; from now on it is `get_health_manager()`. `options` are the manager's."""
    manager = HealthEndpointManager(service_name, version, **options)
    manager.mount(app, prefix)
    _managers[:] = [manager]
    return manager


def get_health_manager() -> HealthEndpointManager:
    """The one that was set up last; before, one that is mounted nowhere yet."""
    if not _managers:
        _managers.append(HealthEndpointManager())
    return _managers[0]
