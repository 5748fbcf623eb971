"""Resources that an agent asks for: replicas, CPU, memory, health checks.

Law: every key has one long name. A shorthand beside its long name is an error, and so is an unknown key.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

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


def profile_digest(agent: str) -> str:
    """Return six characters for an agent's name of any length, so that a function has room for the digests of hundreds
    of agents. The probability that two of 1,000 names have the same digest is 1 in 140,000."""
    return base64.urlsafe_b64encode(hashlib.sha256(agent.encode()).digest())[:6].decode()


class ResourceConfig(BaseModel):
    """The resources of an agent. Times are in seconds. Raises `ValueError` for a minimum above a given maximum."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)

    min_instances: int = Field(default=1, ge=0, le=100)
    """The smallest number of instances. Given without a maximum, it raises the maximum to itself if necessary."""
    max_instances: int = Field(default=1, ge=1, le=100)
    """The largest number of instances. Equal bounds fix the number."""
    cpu_limit: float | None = Field(default=None, ge=0.1, le=32)
    """The most cores of an instance. None sets no limit."""
    memory_limit_mb: int | None = Field(default=None, ge=64)
    """The most memory of an instance, in MiB. None sets no limit."""
    startup_timeout: float = Field(default=30, ge=5)
    """The time in which a process must become ready."""
    shutdown_timeout: float = Field(default=30, ge=5)
    """The time that a process has to end its work before it is killed."""
    health_check_enabled: bool = True
    """Whether processes are checked."""
    health_check_interval: float = Field(default=30, ge=5)
    """The pause between two checks of a process."""
    auto_start: bool = False
    """Whether an instance starts as soon as the agent is registered, instead of with its first run."""
    scaling: dict[str, int | float] = Field(default_factory=dict)
    """Options of `core.fleet_policy.FleetPolicy`, by which the agent moves between its bounds. Empty means the
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
