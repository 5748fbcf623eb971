"""Settings of the reporter, from its environment and from arguments.

Law: an argument overrides its variable. There is no default address, so nothing is sent by default.
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
    """The settings of a reporter. It sends nothing unless `deployment_id`, `api_key` and `url` are set."""

    deployment_id: str = ""
    """The deployment under which the platform files the reports."""
    api_key: str = Field(default="", repr=False)
    """The bearer token of each report."""
    url: str = ""
    """The address of the platform, without the path of reports."""
    flush_interval: float = Field(default=10, gt=0, lt=86_400)
    """The seconds between reports."""
    batch_size: int = Field(default=100, ge=1, le=MAX_BUFFER)
    """The number of buffered requests that are sent without waiting for the interval. A report has at most so many."""
    enabled: bool = True
    """Whether the reporter sends anything."""
    agent_id: str = "default"
    """The agent whose requests are reported."""
    service_name: str = ""
    """The name of the service, which each report has. Empty: reports leave name and version out."""
    service_version: str = ""
    """The version of the service."""

    def __post_init__(self) -> None:
        if self.url:
            TypeAdapter(HttpUrl).validate_python(self.url)

    @property
    def configured(self) -> bool:
        return bool(self.enabled and self.deployment_id and self.api_key and self.url)


def read_reporter_settings(environment: Mapping[str, str], **given: Any) -> ReporterSettings:
    """Read the settings of the environment; given arguments that are not None override them. Raises
    `InvalidInputError`, which names the wrong setting."""
    found = {field: environment[name] for field, name in VARIABLES.items() if environment.get(name)}
    own = {field: value for field, value in given.items() if value is not None}
    try:
        return ReporterSettings(**(found | own))
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else "url"
        named = VARIABLES[field] if field in found and field not in own else field
        raise InvalidInputError(f"{named} is {first['input']!r}: {first['msg']}") from None
