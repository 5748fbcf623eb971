"""Settings of the reporter, from environment variables and arguments.

Law: an argument overrides its environment variable. There is no default URL, so nothing is sent by default.
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
    """The deployment to which the platform assigns the reports."""
    api_key: str = Field(default="", repr=False)
    """The bearer token that is sent with each report."""
    url: str = ""
    """The URL of the platform, without the path for reports."""
    flush_interval: float = Field(default=10, gt=0, lt=86_400)
    """The seconds between reports."""
    batch_size: int = Field(default=100, ge=1, le=MAX_BUFFER)
    """The number of buffered requests at which they are sent before the interval ends. Also the maximum number of requests
    per report."""
    enabled: bool = True
    """Whether the reporter sends anything."""
    agent_id: str = "default"
    """The agent whose requests are reported."""
    service_name: str = ""
    """The name of the service in each report. Empty: reports omit name and version."""
    service_version: str = ""
    """The version of the service."""

    def __post_init__(self) -> None:
        if self.url:
            TypeAdapter(HttpUrl).validate_python(self.url)

    @property
    def configured(self) -> bool:
        return bool(self.enabled and self.deployment_id and self.api_key and self.url)


def read_reporter_settings(environment: Mapping[str, str], **given: Any) -> ReporterSettings:
    """Read the settings from the environment. Arguments that are not None override them. Raises `InvalidInputError` with
    the name of an invalid setting."""
    found = {field: environment[name] for field, name in VARIABLES.items() if environment.get(name)}
    own = {field: value for field, value in given.items() if value is not None}
    try:
        return ReporterSettings(**(found | own))
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else "url"
        named = VARIABLES[field] if field in found and field not in own else field
        raise InvalidInputError(f"{named} is {first['input']!r}: {first['msg']}") from None
