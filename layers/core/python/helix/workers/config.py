"""How an `AgentRuntime` and its file watcher are set up."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from helix.core.errors import DefinitionError
from helix.core.resources import ResourceConfig

DEVELOPMENT = "development"
Text = Annotated[str, Field(min_length=1)]


class Config(BaseModel):
    """Settings. Raises `DefinitionError` naming the field that is wrong."""

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
    """Raises `DefinitionError` naming the field that is wrong.

    environment: what the fleet is for; `development` is what hot reload asks for.
    debug: log everything.
    hot_reload: restart running agents when their files change; default: only in development, and never elsewhere.
    watch_paths: files and folders to watch; those that do not exist are passed over.
    max_workers: worker processes of this runtime, and runs at work on its store, at once (1 to 100).
    log_level: of the worker processes' logs.
    default_resources: of agents that are registered without.
    store: path of the SQLite file, or the URL of a Redis server: where runs, queue and fleet are.
    logs: the folder of the processes' logs, `<process id>.log`.
    model: the model for all agents: `demo`, a litellm name, or `import:module:attribute` (an adapter, or a function of the
        agent that gives one); default each agent's own. A text, because worker processes read it too.
    sweep_s: seconds between two looks at what crashes left behind.
    keep_checkpoints, session_ttl_s: what is deleted with time, as `helix.engine.engine.Settings` has it; None: nothing.
    """

    environment: Text = DEVELOPMENT
    debug: bool = False
    hot_reload: bool | None = Field(default=None, validate_default=True)
    watch_paths: Sequence[Text] = ["teleon", "agents"]
    max_workers: int = Field(default=10, ge=1, le=100)
    log_level: Text = "INFO"
    default_resources: ResourceConfig = Field(default_factory=ResourceConfig)
    store: Text = "helix.db"
    logs: Text = ".helix/logs"
    model: Text | None = None
    sweep_s: float = Field(default=5.0, gt=0)
    keep_checkpoints: int | None = Field(default=None, ge=1)
    session_ttl_s: float | None = Field(default=None, gt=0)

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
        if value == ":memory:":
            raise ValueError("worker processes share the store: it must be the path of a file, or a URL")
        return value

    @field_validator("default_resources")
    @classmethod
    def _checked(cls, value: ResourceConfig) -> ResourceConfig:
        return checked_resources(value, cls.__name__, "default_resources")

    @property
    def retention(self) -> dict[str, Any]:
        """As `Settings` takes it, here and in worker processes."""
        return {"keep_checkpoints": self.keep_checkpoints, "session_ttl_s": self.session_ttl_s}


def checked_resources(resources: ResourceConfig, owner: str, field: str = "resources") -> ResourceConfig:
    """The same, checked. Raises `DefinitionError`."""
    if not isinstance(resources, ResourceConfig):
        raise DefinitionError(owner, field, f"must be a ResourceConfig, not {resources!r}")
    return ResourceConfig.of(resources.model_dump(exclude_unset=True), owner, field)
