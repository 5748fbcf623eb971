"""Settings of the reporter: what its environment says, and what the caller says over it.

Law: an argument wins over its variable; there is no default address, so nothing is sent by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, HttpUrl, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from helix.core.errors import InvalidInputError

VARIABLES = {
    "deployment_id": "HELIX_DEPLOYMENT_ID",
    "api_key": "HELIX_API_KEY",
    "url": "HELIX_PLATFORM_URL",
    "flush_interval": "HELIX_METRICS_INTERVAL",
    "batch_size": "HELIX_METRICS_BATCH_SIZE",
    "enabled": "HELIX_METRICS_ENABLED",
    "agent_id": "HELIX_AGENT_ID",
    "service_name": "HELIX_SERVICE_NAME",
    "service_version": "HELIX_SERVICE_VERSION",
}
MAX_BUFFER = 10_000


@dataclass(frozen=True)
class ReporterSettings:
    """`flush_interval` in seconds; `batch_size`: the number of requests that are sent without waiting for it."""

    deployment_id: str = ""
    api_key: str = Field(default="", repr=False)
    url: str = ""
    flush_interval: float = Field(default=10, gt=0, lt=86_400)
    batch_size: int = Field(default=100, ge=1, le=MAX_BUFFER)
    enabled: bool = True
    agent_id: str = "default"
    service_name: str = ""
    service_version: str = ""

    def __post_init__(self) -> None:
        if self.url:
            TypeAdapter(HttpUrl).validate_python(self.url)

    @property
    def configured(self) -> bool:
        return bool(self.enabled and self.deployment_id and self.api_key and self.url)


def read_reporter_settings(environment: Mapping[str, str], **given: Any) -> ReporterSettings:
    """Settings of the environment, over which what is given (and not None) wins. Raises `InvalidInputError` naming what is
    wrong."""
    found = {field: environment[name] for field, name in VARIABLES.items() if environment.get(name)}
    own = {field: value for field, value in given.items() if value is not None}
    try:
        return ReporterSettings(**(found | own))
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else "url"
        named = VARIABLES[field] if field in found and field not in own else field
        raise InvalidInputError(f"{named} is {first['input']!r}: {first['msg']}") from None
