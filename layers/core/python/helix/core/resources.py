"""What an agent asks of the machines it runs on: replicas, CPU, memory, health checks.

Law: every key has one long name; a shorthand and its long name together are an error, and so is an unknown key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from helix.core.errors import DefinitionError

DEFAULT_PROFILE = "default"
"""The resource profile of all agents that ask for nothing of their own."""

SHORTHAND = {
    "min": "min_instances",
    "max": "max_instances",
    "cpu": "cpu_limit",
    "memory": "memory_limit_mb",
    "health_interval": "health_check_interval",
}


class ResourceConfig(BaseModel):
    """Units: `cpu_limit` in cores, `memory_limit_mb` in MiB, timeouts and the interval in seconds; None is no limit.

    `auto_start` starts an instance as soon as the agent is registered, instead of with its first run. `scaling`: options of
    `core.fleet_policy.FleetPolicy`, by which the agent moves between its bounds; equal bounds fix it.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)

    min_instances: int = Field(default=1, ge=0, le=100)
    max_instances: int = Field(default=1, ge=1, le=100)
    cpu_limit: float | None = Field(default=None, ge=0.1, le=32)
    memory_limit_mb: int | None = Field(default=None, ge=64)
    startup_timeout: float = Field(default=30, ge=5)
    shutdown_timeout: float = Field(default=30, ge=5)
    health_check_enabled: bool = True
    health_check_interval: float = Field(default=30, ge=5)
    auto_start: bool = False
    scaling: dict[str, int | float] = Field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any], owner: str, field: str = "helix") -> ResourceConfig:
        """Read long and short keys. Raises `DefinitionError` naming `<field>.<key>` as the caller spelled it."""
        if not isinstance(given, Mapping):
            raise DefinitionError(owner, field, f"must be a mapping of settings, not {given!r}")
        spelled: dict[str, str] = {}
        for key in given:
            name = SHORTHAND.get(key, key)
            if name not in cls.model_fields:
                known = ", ".join([*cls.model_fields, *SHORTHAND])
                raise DefinitionError(owner, f"{field}.{key}", f"no such setting; there are {known}")
            if name in spelled:
                raise DefinitionError(owner, f"{field}.{key}", f"is the same as {spelled[name]!r}: give one of the two")
            spelled[name] = key
        try:
            config = cls(**{name: given[key] for name, key in spelled.items()})
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            problem = f"{first['msg']}, not {first['input']!r}"
            raise DefinitionError(owner, f"{field}.{spelled[name]}", problem) from error
        if config.min_instances > config.max_instances:
            key = spelled.get("min_instances", "max_instances")
            problem = f"min_instances {config.min_instances} is more than max_instances {config.max_instances}"
            raise DefinitionError(owner, f"{field}.{key}", problem)
        if config.scaling:
            _check_scaling(config.scaling, owner, f"{field}.scaling")
        return config


def _check_scaling(options: Mapping[str, float], owner: str, field: str) -> None:
    from helix.core.fleet_policy import FleetPolicy  # not for those who ask for none

    try:
        FleetPolicy.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join([field, *(str(part) for part in first["loc"])])
        raise DefinitionError(owner, where, f"{first['msg']}, not {first['input']!r}") from error
