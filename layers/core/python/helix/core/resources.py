"""What an agent asks of the machines it runs on: replicas, CPU, memory, health checks.

Law: every key has one long name; a shorthand and its long name together are an error, and so is an unknown key.
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
    """Six characters for an agent's name, however long: a function has room for the digests of hundreds of agents. That two
    of 1,000 names have the same one has a probability of 1 in 140,000."""
    return base64.urlsafe_b64encode(hashlib.sha256(agent.encode()).digest())[:6].decode()


class ResourceConfig(BaseModel):
    """Units: `cpu_limit` in cores, `memory_limit_mb` in MiB, timeouts and the interval in seconds; None is no limit. A
    minimum alone raises the maximum to it; a minimum above a given maximum is an error.

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
            if not first["loc"]:  # of both bounds
                raise DefinitionError(owner, f"{field}.{spelled['min_instances']}", first["msg"]) from error
            name, problem = str(first["loc"][0]), f"{first['msg']}, not {first['input']!r}"
            raise DefinitionError(owner, f"{field}.{spelled[name]}", problem) from error
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
