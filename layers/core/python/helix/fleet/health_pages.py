"""The endpoints `/health`, `/ready` and `/live`, for your own web app and for the deployed function.

Law: a degraded service still returns 200. A service that is unhealthy or not ready returns 503. Only a critical check makes
the whole service unhealthy. Every client sees statuses and ages. Messages of checks may contain private names, so they are
shown only on request.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from helix.core.health import HealthStatus, worst_status
from helix.core.json import dumps

JSON_TYPE = "application/json"
ROUTES = ("/health", "/ready", "/live", "/metrics")
BEARER = "bearer "


@dataclass(frozen=True, slots=True)
class Page:
    status: int
    """The HTTP status code."""
    body: str
    """The body of the response."""
    content_type: str = JSON_TYPE
    """The value of the header `content-type`."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check as shown on a page."""

    name: str
    """The name of the check on the page."""
    status: HealthStatus
    """The check's status."""
    message: str = ""
    """The explanation of the status, shown only if details are requested."""
    critical: bool = False
    """Whether a failure makes the whole service unhealthy."""
    took_ms: float | None = None
    """The duration of the check in milliseconds. None: not measured."""


@dataclass(frozen=True, slots=True)
class About:
    service: str
    """The name of the service, such as `helix-<stage>`."""
    version: str
    """The version of the service."""
    uptime_s: float
    """Seconds since the process started to serve."""


def health_of(checks: Sequence[Checked]) -> HealthStatus:
    """Return unhealthy if a critical check is unhealthy, and degraded for any other failure. Without checks the service is
    healthy."""
    counted = [
        HealthStatus.DEGRADED if c.status is HealthStatus.UNHEALTHY and not c.critical else c.status for c in checks
    ]
    return worst_status(counted) if counted else HealthStatus.HEALTHY


def health_page(about: About, checks: Sequence[Checked], *, details: bool) -> Page:
    status = health_of(checks)
    body = {**_head(about, status), "checks": {check.name: _shown(check, details) for check in checks}}
    return _page(503 if status is HealthStatus.UNHEALTHY else 200, body)


def ready_page(about: About, ready: bool, reason: str) -> Page:
    return _page(200 if ready else 503, {"service": about.service, "ready": ready, "reason": reason})


def live_page(about: About) -> Page:
    return _page(200, _head(about, "alive"))


def has_token(token: str | None, headers: Mapping[str, str]) -> bool:
    """Return whether the request contains the token. The names in `headers` are in lower case."""
    given, token = bearer(headers), (token or "").strip()
    return bool(token and given) and hmac.compare_digest(given.encode(), token.encode())


def bearer(headers: Mapping[str, str]) -> str:
    """Return the request's bearer token, or an empty string."""
    given = headers.get("authorization", "")
    return given[len(BEARER) :].strip() if given.lower().startswith(BEARER) else ""


def _head(about: About, status: str) -> dict[str, Any]:
    uptime_s = round(about.uptime_s, 3)
    return {"status": status, "service": about.service, "version": about.version, "uptime_seconds": uptime_s}


def _shown(check: Checked, details: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"status": check.status, "critical": check.critical}
    if details:
        shown["message"] = check.message
        if check.took_ms is not None:
            shown["response_time_ms"] = round(check.took_ms, 3)
    return shown


def _page(status: int, body: Mapping[str, Any]) -> Page:
    return Page(status, dumps(body))


REFUSED = _page(401, {"error": "not_authenticated"})
NOT_FOUND = _page(404, {"error": "not_found"})
