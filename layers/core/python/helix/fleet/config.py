"""How an `AgentRuntime` is set up."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from helix.core.checks import is_int, is_number, require
from helix.core.errors import DefinitionError
from helix.core.resources import ResourceConfig

OWNER = "RuntimeConfig"
DEVELOPMENT = "development"


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
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
    """

    environment: str = DEVELOPMENT
    debug: bool = False
    hot_reload: bool | None = None
    watch_paths: Sequence[str] = ("teleon", "agents")
    max_workers: int = 10
    log_level: str = "INFO"
    default_resources: ResourceConfig = field(default_factory=ResourceConfig)
    store: str = "helix.db"
    logs: str = ".helix/logs"
    model: str | None = None
    sweep_s: float = 5.0

    def __post_init__(self) -> None:
        require(bool(self.environment) and isinstance(self.environment, str), OWNER, "environment", "must be a text")
        require(isinstance(self.debug, bool), OWNER, "debug", "must be True or False")
        reload, development = self.hot_reload, self.environment == DEVELOPMENT
        require(reload is None or isinstance(reload, bool), OWNER, "hot_reload", "must be True, False or None")
        problem = f"is for the environment {DEVELOPMENT!r}, and this is {self.environment!r}"
        require(not reload or development, OWNER, "hot_reload", problem)
        object.__setattr__(self, "hot_reload", development if reload is None else reload)
        paths = self.watch_paths
        valid = isinstance(paths, list | tuple) and all(isinstance(path, str) and path for path in paths)
        require(valid, OWNER, "watch_paths", "must be a list of paths")
        object.__setattr__(self, "watch_paths", list(paths))
        valid = is_int(self.max_workers) and 1 <= self.max_workers <= 100
        require(valid, OWNER, "max_workers", f"must be between 1 and 100, not {self.max_workers!r}")
        valid = isinstance(self.log_level, str) and self.log_level.upper() in logging.getLevelNamesMapping()
        require(valid, OWNER, "log_level", f"must be DEBUG, INFO, WARNING or ERROR, not {self.log_level!r}")
        resources = checked_resources(self.default_resources, OWNER, "default_resources")
        object.__setattr__(self, "default_resources", resources)
        valid = isinstance(self.store, str) and bool(self.store) and self.store != ":memory:"
        require(valid, OWNER, "store", "must be the path of a file or a URL: other processes open it too")
        require(isinstance(self.logs, str) and bool(self.logs), OWNER, "logs", "must be the path of a folder")
        valid = self.model is None or (isinstance(self.model, str) and bool(self.model))
        require(valid, OWNER, "model", "must be a text that is not empty, or None")
        valid = is_number(self.sweep_s) and 0 < self.sweep_s < math.inf
        require(valid, OWNER, "sweep_s", "must be a number of seconds, more than 0")


def checked_resources(resources: ResourceConfig, owner: str, field: str = "resources") -> ResourceConfig:
    """The same, its bounds compared. Who asks for a minimum alone has at least that as maximum: the sources' own samples
    do; both given and contradicting each other are an error."""
    if not isinstance(resources, ResourceConfig):
        raise DefinitionError(owner, field, f"must be a ResourceConfig, not {resources!r}")
    given = resources.model_dump(exclude_unset=True)
    if "max_instances" not in given and resources.min_instances > resources.max_instances:
        given["max_instances"] = resources.min_instances
    return ResourceConfig.of(given, owner, field)
