"""The sessions that write on one stream, as AG-UI tells them apart."""

from __future__ import annotations

from dataclasses import dataclass, field

from helix.core.json import JsonObject


@dataclass
class Writer:
    """One session that writes: the root, or a run of a sub-agent. `tag` is what its events carry."""

    session_id: str
    run_id: str
    tag: JsonObject = field(default_factory=dict)
    at: tuple[int, int] = (0, 0)
    message: str | None = None
    thought: str | None = None
    thoughts: int = 0
    shown: list[str] = field(default_factory=list)  # messages of the present attempt


@dataclass(frozen=True)
class Link:
    agent: str
    call: str
    parent: str
