"""The function `health`: `/health`, `/ready`, `/live` and `/metrics` of the deployed app, behind an HTTP API.

Law: everything is read from the tables, because one function's memory does not reflect the whole app. Every client sees
statuses. Only a client with the token sees check messages and metrics. The token is the value of the stage's secret, or a
token whose hash is stored in a row.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import AliasPath, BaseModel, ConfigDict, Field

from helix._version import __version__
from helix.core.errors import HelixError, StoreError
from helix.core.health import HealthStatus, combine_results
from helix.engine.engine import logger
from helix.fleet import health_rows
from helix.fleet.health_pages import (
    NOT_FOUND,
    REFUSED,
    About,
    Checked,
    Page,
    bearer,
    has_token,
    health_page,
    live_page,
    ready_page,
)
from helix.fleet.metrics_token import is_token
from helix.fleet.prometheus import Figures, Queue, queues, render, stored_usage
from helix.fleet.secret_cache import CachedSecret
from helix.fleet.warnings import warn_of_late_sweep
from helix.ports.state_store import Key, StateStore
from helix.runtime.cloud import Application
from helix.services.activity import Beats

if TYPE_CHECKING:
    from helix.core.delivery import Delivery

READ_S = 3.0
"""The timeout of all reads for one page."""


class HealthEvent(BaseModel):
    """An HTTP API event, payload format 2.0. Other fields that API Gateway sends are ignored."""

    model_config = ConfigDict(extra="ignore", defer_build=True, populate_by_name=True)

    route_key: str = Field(default="", alias="routeKey")
    """The method and route that matched, such as `GET /health`. `$default`: no route matched."""
    headers: dict[str, str] = Field(default_factory=dict)
    """The request's headers."""
    path: str = Field(default="", validation_alias=AliasPath("requestContext", "http", "path"))
    """The requested path, including the API's stage."""

    @property
    def route(self) -> str:
        """The path of the route, such as `/health`. For `$default` it is the last part of the requested path."""
        named = self.route_key.partition(" ")[2]
        return named or "/" + self.path.rstrip("/").rpartition("/")[2]


async def health(app: Application, event: HealthEvent, delivery: Delivery) -> dict[str, Any]:
    """Handle an HTTP API request. Return a status, headers and a body."""
    page = await _page(app, event)
    headers = {"content-type": page.content_type, "cache-control": "no-store"}
    return {"statusCode": page.status, "headers": headers, "body": page.body}


async def _page(app: Application, event: HealthEvent) -> Page:
    about = About(f"helix-{app.settings.stage}", __version__, app.clock.now() - _start_time(app))
    headers = {name.lower(): value for name, value in event.headers.items()}
    match event.route:
        case "/live":
            return live_page(about)
        case "/ready":
            return ready_page(about, *await readiness(app.store, app.clock.now()))
        case "/health":
            checks = await app_checks(app.store, app.clock.now())
            return health_page(about, checks, details=await _is_trusted(app, headers))
        case "/metrics":
            if not await _is_trusted(app, headers):
                return REFUSED
            text, content_type = render(await _read_figures(app, about))
            return Page(200, text, content_type)
        case _:
            return NOT_FOUND


# --- checks -----------------------------------------------------------------------------------------------------------


async def app_checks(store: StateStore, now: float) -> list[Checked]:
    """Run the checks of the app: the tables (critical), the schedule, the queues, and the stored health of each agent."""
    tables = await asyncio.gather(_check_table(store, "control"), _check_table(store, "sessions"))
    if any(check.status is not HealthStatus.HEALTHY for check in tables):
        return list(tables)
    (beats, _), waiting, agents = await asyncio.gather(
        health_rows.app_rows(store), queues(store), health_rows.targets(store)
    )
    checks = [*tables, _check_schedule(beats, now), _check_queues(waiting)]
    for target in agents:
        found = combine_results(await health_rows.results(store, target))
        checks.append(Checked(f"agent {target}", found.status, found.message))
    return checks


async def readiness(store: StateStore, now: float) -> tuple[bool, str]:
    """Return whether the app is ready, and the reason if it is not. It is ready if the tables respond, the schedule runs,
    and no process has reported that it is not. A new deployment is therefore not ready before its first sweep."""
    for check in await asyncio.gather(_check_table(store, "control"), _check_table(store, "sessions")):
        if check.status is not HealthStatus.HEALTHY:
            return False, f"the {check.name} does not answer"
    beats, ready = await health_rows.app_rows(store)
    if ready is not None and not ready["ready"]:
        return False, str(ready["reason"] or "work is not accepted")
    swept = _check_schedule(beats, now)
    return swept.status is HealthStatus.HEALTHY, swept.message if swept.status is not HealthStatus.HEALTHY else ""


async def _check_table(store: StateStore, table: Any) -> Checked:
    name = f"{table} table"
    try:
        async with asyncio.timeout(READ_S):
            await store.get([Key(table, f"health#{health_rows.APP}", "probe")])
    except (HelixError, TimeoutError) as error:
        logger.warning("the %s does not answer: %s", name, error)
        return Checked(name, HealthStatus.UNHEALTHY, type(error).__name__, critical=True)
    return Checked(name, HealthStatus.HEALTHY, critical=True)


def _check_schedule(beats: Beats, now: float) -> Checked:
    if beats.swept_at is None:
        return Checked("sweep", HealthStatus.DEGRADED, "the sweep has not run yet")
    if warn_of_late_sweep(beats, now):
        return Checked("sweep", HealthStatus.DEGRADED, f"the last sweep was {now - beats.swept_at:.0f} s ago")
    return Checked("sweep", HealthStatus.HEALTHY)


def _check_queues(waiting: list[Queue]) -> Checked:
    stuck = [q for q in waiting if q.depth and q.limit == 0]
    if stuck:
        return Checked("queue", HealthStatus.DEGRADED, ", ".join(f"{q.agent}: {q.depth} wait, limit 0" for q in stuck))
    return Checked("queue", HealthStatus.HEALTHY, f"{sum(q.depth for q in waiting)} wait")


async def _read_figures(app: Application, about: About) -> Figures:
    store, now = app.store, app.clock.now()
    usage, waiting, (ready, _), agents = await asyncio.gather(
        stored_usage(store), queues(store), readiness(store, now), health_rows.targets(store)
    )
    statuses = [combine_results(await health_rows.results(store, target)).status for target in agents]
    return Figures(
        uptime_s=about.uptime_s,
        ready=ready,
        requests=usage.runs,
        errors=usage.failed,
        totals=usage.models,
        queues=waiting,
        health={str(status): statuses.count(status) for status in HealthStatus},
    )


# --- authorization ----------------------------------------------------------------------------------------------------


async def _is_trusted(app: Application, headers: dict[str, str]) -> bool:
    if not bearer(headers):
        return False
    if app.settings.metrics_secret and _secret(app).matches(lambda token: has_token(token, headers)):
        return True
    return await is_token(app.store, headers)


@lru_cache(maxsize=1)
def _secret(app: Application) -> CachedSecret:
    arn = app.settings.metrics_secret

    def read() -> str:
        try:
            return str(app.client("secretsmanager").get_secret_value(SecretId=arn)["SecretString"])
        except (BotoCoreError, ClientError, KeyError) as error:
            raise StoreError(f"the secret {arn!r} cannot be read: {error}") from error

    return CachedSecret(read, app.clock)


@lru_cache(maxsize=1)
def _start_time(app: Application) -> float:
    """Return the time at which this process first handled a request."""
    return app.clock.now()
