"""Settings of the reporter: what its environment says, and what the caller says over it.

Law: an argument wins over its variable; there is no default address, so nothing is sent by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from helix.core.errors import InvalidInputError

DEPLOYMENT_ID, API_KEY, PLATFORM_URL = "HELIX_DEPLOYMENT_ID", "HELIX_API_KEY", "HELIX_PLATFORM_URL"
INTERVAL, BATCH_SIZE, ENABLED = "HELIX_METRICS_INTERVAL", "HELIX_METRICS_BATCH_SIZE", "HELIX_METRICS_ENABLED"
AGENT_ID, SERVICE_NAME, SERVICE_VERSION = "HELIX_AGENT_ID", "HELIX_SERVICE_NAME", "HELIX_SERVICE_VERSION"
MAX_BUFFER = 10_000
_YES, _NO = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class ReporterSettings:
    """`flush_interval` in seconds; `batch_size`: so many requests are sent without waiting for it."""

    deployment_id: str = ""
    api_key: str = ""
    url: str = ""
    flush_interval: float = 10
    batch_size: int = 100
    enabled: bool = True
    agent_id: str = "default"
    service_name: str = ""
    service_version: str = ""

    @property
    def configured(self) -> bool:
        return bool(self.enabled and self.deployment_id and self.api_key and self.url)

    def __repr__(self) -> str:
        return f"ReporterSettings(deployment_id={self.deployment_id!r}, url={self.url!r}, configured={self.configured})"


def read_reporter_settings(environment: Mapping[str, str], **given: Any) -> ReporterSettings:
    """Settings of the environment, over which what is given (and not None) wins. Raises `InvalidInputError` naming what is
    wrong."""
    names = {
        "deployment_id": DEPLOYMENT_ID,
        "api_key": API_KEY,
        "url": PLATFORM_URL,
        "agent_id": AGENT_ID,
        "service_name": SERVICE_NAME,
        "service_version": SERVICE_VERSION,
    }
    found: dict[str, Any] = {field: environment[name] for field, name in names.items() if environment.get(name)}
    if text := environment.get(ENABLED):
        if text.lower() not in _YES | _NO:
            raise InvalidInputError(f"{ENABLED} is {text!r}; it must be true or false")
        found["enabled"] = text.lower() in _YES
    for field, name, kind in (("flush_interval", INTERVAL, float), ("batch_size", BATCH_SIZE, int)):
        if given.get(field) is None and (text := environment.get(name)):
            try:
                found[field] = kind(text)
            except ValueError:
                raise InvalidInputError(f"{name} is {text!r}; it must be a number") from None
    settings = ReporterSettings(**found | {name: value for name, value in given.items() if value is not None})
    if not 0 < settings.flush_interval < 86_400:
        raise InvalidInputError(f"flush_interval is {settings.flush_interval}: it must be more than 0 seconds")
    if not 1 <= settings.batch_size <= MAX_BUFFER:
        raise InvalidInputError(f"batch_size is {settings.batch_size}: it must be 1 to {MAX_BUFFER}")
    if settings.url and (urlsplit(settings.url).scheme not in ("http", "https") or not urlsplit(settings.url).netloc):
        raise InvalidInputError(f"{settings.url!r} is no http or https address")
    return settings
