"""Settings of a process, read from its environment into one typed value.

Law: the environment is read here, once, when the process starts. Code below `runtime` never reads it. The variables of
model providers belong to the providers: `runtime.models` only checks whether they are set.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from helix.core.errors import InvalidInputError

DB = "HELIX_DB"
LEASE_SECONDS = "HELIX_LEASE_SECONDS"
AGENTS = "HELIX_AGENTS"
LOG = "HELIX_LOG"

DEFAULT_DB = "helix.db"
DEFAULT_LEASE_S = 15.0


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The settings of a process that is not deployed."""

    db: str = DEFAULT_DB
    """The path of the SQLite store, or the URL of another store (`HELIX_DB`)."""
    lease_s: float = DEFAULT_LEASE_S
    """The seconds after which another process may take over a silent worker's session (`HELIX_LEASE_SECONDS`)."""
    agents: tuple[str, ...] = ()
    """Modules or files to import, so that their agents are known by name (`HELIX_AGENTS`, separated by commas)."""
    log: int = logging.WARNING
    """The level of the log on stderr, as a number from `logging` (`HELIX_LOG` contains its name)."""


def read_settings(environment: Mapping[str, str]) -> ProcessSettings:
    """Read the settings. An empty variable counts as unset. Raises `InvalidInputError`, which names the invalid
    variable."""
    given = {name: value.strip() for name, value in environment.items() if value.strip()}
    return ProcessSettings(
        db=given.get(DB, DEFAULT_DB),
        lease_s=_seconds(LEASE_SECONDS, given.get(LEASE_SECONDS)),
        agents=tuple(name.strip() for name in given.get(AGENTS, "").split(",") if name.strip()),
        log=_level(given.get(LOG, "warning")),
    )


def _seconds(name: str, text: str | None) -> float:
    if text is None:
        return DEFAULT_LEASE_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 < seconds < inf:
        raise InvalidInputError(f"{name} is {text!r}; it must be a number of seconds, more than 0")
    return seconds


def _level(name: str) -> int:
    level = logging.getLevelNamesMapping().get(name.upper())
    if level is None:
        raise InvalidInputError(f"{LOG} is {name!r}; it must be debug, info, warning or error")
    return level
