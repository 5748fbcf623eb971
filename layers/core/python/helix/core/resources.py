"""The resources that an agent requests: replicas, CPU, memory and health checks.

Law: every key has one long name. Giving both the shorthand and the long name is an error, and so is an unknown key.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from helix.core.errors import DefinitionError

DEFAULT_PROFILE = "default"
"""The resource profile of all agents that request no resources."""
IMAGE_SUFFIX = "-image"
"""The suffix of an image function's name. Lambda cannot switch a function between zip and image."""

SHORTHAND = {
    "min": "min_instances",
    "max": "max_instances",
    "cpu": "cpu_limit",
    "memory": "memory_limit_mb",
    "health_interval": "health_check_interval",
}


def profile_digest(agent: str) -> str:
    """Return a six-character digest of an agent's name, short enough that one function can hold the digests of hundreds
    of agents. The probability that two of 1,000 names collide is 1 in 140,000."""
    return base64.urlsafe_b64encode(hashlib.sha256(agent.encode()).digest())[:6].decode()


class ResourceConfig(BaseModel):
    """The resources of an agent. Times are in seconds. Raises `ValueError` for a minimum above a given maximum."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)

    min_instances: int = Field(default=1, ge=0, le=100)
    """The minimum number of instances. If only the minimum is given, the maximum is raised to it if necessary."""
    max_instances: int = Field(default=1, ge=1, le=100)
    """The maximum number of instances. Equal bounds fix the number."""
    cpu_limit: float | None = Field(default=None, ge=0.1, le=32)
    """The maximum number of CPU cores of an instance. None sets no limit."""
    memory_limit_mb: int | None = Field(default=None, ge=64)
    """The maximum memory of an instance in MiB. None sets no limit."""
    startup_timeout: float = Field(default=30, ge=5)
    """The time within which a process must become ready."""
    shutdown_timeout: float = Field(default=30, ge=5)
    """The time that a process has to finish its work before it is killed."""
    health_check_enabled: bool = True
    """Whether to run health checks on processes."""
    health_check_interval: float = Field(default=30, ge=5)
    """The interval between two health checks of a process."""
    auto_start: bool = False
    """Whether an instance starts when the agent is registered, rather than with its first run."""
    scaling: dict[str, int | float] = Field(default_factory=dict)
    """Options of `core.fleet_policy.FleetPolicy`, which control scaling between the bounds. Empty means the
    defaults."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_instances > self.max_instances:
            if "max_instances" in self.model_fields_set:
                problem = f"min_instances {self.min_instances} is more than max_instances {self.max_instances}"
                raise ValueError(f"{problem}: raise the maximum")
            object.__setattr__(self, "max_instances", self.min_instances)
            self.__pydantic_fields_set__.add("max_instances")
        return self

    @classmethod
    def of(cls, given: Mapping[str, Any], owner: str, field: str = "helix") -> ResourceConfig:
        """Parse long and short keys. Raises `DefinitionError`, naming `<field>.<key>` as the caller spelled it."""
        if not isinstance(given, Mapping):
            raise DefinitionError(owner, field, f"must be a mapping of settings, not {given!r}")
        spelled: dict[str, str] = {}
        for key in given:
            name = SHORTHAND.get(key, key)
            if name not in cls.model_fields:
                known = ", ".join([*cls.model_fields, *SHORTHAND])
                raise DefinitionError(owner, f"{field}.{key}", f"no such setting; the settings are {known}")
            if name in spelled:
                raise DefinitionError(owner, f"{field}.{key}", f"is the same as {spelled[name]!r}: give one of the two")
            spelled[name] = key
        values = {name: given[key] for name, key in spelled.items()}
        try:
            config = cls(**{"max_instances": cls.model_fields["max_instances"].default, **values})
        except ValidationError as error:
            first = error.errors()[0]
            if not first["loc"]:  # the error is about both bounds
                raise DefinitionError(owner, f"{field}.{spelled['min_instances']}", first["msg"]) from error
            name, problem = str(first["loc"][0]), f"{first['msg']}, not {first['input']!r}"
            raise DefinitionError(owner, f"{field}.{spelled[name]}", problem) from error
        if config.scaling:
            _check_scaling(config.scaling, owner, f"{field}.scaling")
        return config


def _check_scaling(options: Mapping[str, float], owner: str, field: str) -> None:
    from helix.core.fleet_policy import FleetPolicy  # imported only if there are options

    try:
        FleetPolicy.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join([field, *(str(part) for part in first["loc"])])
        raise DefinitionError(owner, where, f"{first['msg']}, not {first['input']!r}") from error
