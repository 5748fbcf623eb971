"""Settings of a process: what its environment says, as one typed value.

Law: the environment is read here, once, when the process starts; nothing below `runtime` looks at it. The variables of
model providers are theirs, not ours: `runtime.models` only asks whether they are there.
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
    """db: path of the SQLite store. lease_s: seconds after which a silent worker's session may be taken over.
    agents: modules or files that are imported so that their agents are known by name. log: level of the log on stderr.
    """

    db: str = DEFAULT_DB
    lease_s: float = DEFAULT_LEASE_S
    agents: tuple[str, ...] = ()
    log: int = logging.WARNING


def read_settings(environment: Mapping[str, str]) -> ProcessSettings:
    """Raises `InvalidInputError` naming the variable that is wrong. An empty variable counts as one that is not set."""
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
