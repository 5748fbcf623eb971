"""The settings of an `AgentRuntime` and of its file watcher."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from helix.core.errors import DefinitionError
from helix.core.resources import ResourceConfig
from helix.runtime.stores import MEMORY

DEVELOPMENT = "development"
Text = Annotated[str, Field(min_length=1)]


class Config(BaseModel):
    """Validated settings. Raises `DefinitionError`, which names the invalid field."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

    if not TYPE_CHECKING:  # the type checker knows the fields

        def __init__(self, **given: Any) -> None:
            try:
                super().__init__(**given)
            except ValidationError as error:
                first = error.errors()[0]
                problem = f"{first['msg']}; given: {first['input']!r}"
                raise DefinitionError(type(self).__name__, ".".join(map(str, first["loc"])), problem) from None


class RuntimeConfig(Config):
    """The settings of an `AgentRuntime`. Raises `DefinitionError`, which names the invalid field."""

    environment: Text = DEVELOPMENT
    """The purpose of the fleet. Hot reload requires `development`."""
    debug: bool = False
    """Whether the worker processes log everything, regardless of `log_level`."""
    hot_reload: bool | None = Field(default=None, validate_default=True)
    """Whether running agents restart when their files change. None, the default: only in development. In other environments
    True is an error."""
    watch_paths: Sequence[Text] = ["teleon", "agents"]
    """The files and folders that hot reload watches. Missing ones are skipped."""
    max_workers: int = Field(default=10, ge=1, le=100)
    """The maximum number of worker processes in this runtime, and of concurrently active runs in its store (1 to 100)."""
    log_level: Text = "INFO"
    """The level of the worker processes' logs: DEBUG, INFO, WARNING or ERROR."""
    default_resources: ResourceConfig = Field(default_factory=ResourceConfig)
    """The resources of agents that do not declare their own and are registered without any."""
    store: Text = "helix.db"
    """The path of a SQLite file, or the URL of another store. It contains the runs, the queue and the fleet. Worker
    processes share it, so it cannot be `:memory:`."""
    logs: Text = ".helix/logs"
    """The folder for the processes' logs, `<process id>.log`."""
    model: Text | None = None
    """The model for all agents: `demo`, a litellm name, or `import:module:attribute` (an adapter, or a function from
    the agent to one). None uses each agent's own. It is a string, because worker processes also read it."""
    sweep_s: float = Field(default=5.0, gt=0)
    """The number of seconds between two sweeps. A sweep repairs what crashes left behind."""
    keep_checkpoints: int | None = Field(default=None, ge=1)
    """The number of newest checkpoints that the end of a run keeps in its session (docs/protocol.md#retention). None
    keeps all."""
    session_ttl_s: float | None = Field(default=None, gt=0)
    """The number of seconds from a session's last write until it is deleted, unless it is running or waiting. None keeps
    all sessions."""

    @field_validator("hot_reload")
    @classmethod
    def _in_development(cls, value: bool | None, info: ValidationInfo) -> bool:
        development = info.data.get("environment") == DEVELOPMENT
        if value and not development:
            raise ValueError(f"hot reload needs the environment {DEVELOPMENT!r}")
        return development if value is None else value

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        if value.upper() not in logging.getLevelNamesMapping():
            raise ValueError("it must be DEBUG, INFO, WARNING or ERROR")
        return value

    @field_validator("store")
    @classmethod
    def _shared(cls, value: str) -> str:
        if value == MEMORY:
            raise ValueError("worker processes share the store: it must be the path of a file, or a URL")
        return value

    @field_validator("default_resources")
    @classmethod
    def _checked(cls, value: ResourceConfig) -> ResourceConfig:
        return checked_resources(value, cls.__name__, "default_resources")

    @property
    def retention(self) -> dict[str, Any]:
        """The retention settings, as fields of `Settings`, for this process and for worker processes."""
        return {"keep_checkpoints": self.keep_checkpoints, "session_ttl_s": self.session_ttl_s}


def checked_resources(resources: ResourceConfig, owner: str, field: str = "resources") -> ResourceConfig:
    """Check the resources, and return them. Raises `DefinitionError`."""
    if not isinstance(resources, ResourceConfig):
        raise DefinitionError(owner, field, f"must be a ResourceConfig, not {resources!r}")
    return ResourceConfig.of(resources.model_dump(exclude_unset=True), owner, field)
