"""The index of root sessions: an entry of each session under its user, and a row with the session's facets.

    index#<user> / <session id>    the entry: the agent and the first title, written with the session
    facets#<user> / <session id>   what lists filter by, as of the end of a run

Law: a facets row with an `agent` describes a session at rest. It is written with the effects of the run that ended. A
claim replaces it by the bare version of the session that the claim writes (`moved_put`). Readers read the session itself
if the row is missing or bare, so it may be lost, but never wrong (ADR 87).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Self

from pydantic import Field

from helix.core.session_row import SessionRow
from helix.core.status import SessionStatus
from helix.core.stored import AsStored, Stored
from helix.ports.state_store import ABSENT, Key, Put, Value, When

TITLE_CHARS: Final = 80
TOOL_NAME: Final = re.compile(r"[\w.:-]{1,64}", re.ASCII)
MOST_TOOLS: Final = 30
"""The maximum number of tool names that a session lists. Each write of the session has them."""


class Facets(Stored):
    """The properties of a session that lists filter by."""

    version: int
    """The session's version that they describe."""
    agent: str = ""
    """The name of the session's own agent. Empty in the row of a session that a claim has moved on."""
    status: AsStored[SessionStatus] = "completed"
    """The status of the last run."""
    waiting: bool = False
    """Whether the session may wait for a person. Only the session's rows tell for an interrupted one."""
    tags: list[str] = Field(default_factory=list)
    """The session's tags."""
    tools: list[str] = Field(default_factory=list)
    """The tools that the session's model has called."""
    error: str = ""
    """The code of the error that ended the last run. Empty if it did not fail."""
    micros: int = 0
    """The cost of all runs in micro-dollars."""
    updated_at: float = 0
    """The time of the last change (Unix seconds)."""
    title: str = ""
    """The title that a person gave. Empty if there is none."""

    @classmethod
    def of(cls, session: SessionRow) -> Self:
        return cls(
            version=session.version,
            agent=session.agent_type,
            status=session.status,
            waiting=bool(session.pending) or (session.status == "interrupted" and session.open is not None),
            tags=session.tags,
            tools=session.tools,
            error=session.error.code if session.error is not None else "",
            micros=session.usage.cost_micros,
            updated_at=session.updated_at,
            title=session.title,
        )


def index_partition(user_id: str | None) -> str:
    return f"index#{user_id or ''}"


def facets_partition(user_id: str | None) -> str:
    return f"facets#{user_id or ''}"


def index_key(session: SessionRow) -> Key:
    """Return the key of the row that lists a root session under its user. A lost claim may leave such a row without a
    session."""
    return Key("sessions", index_partition(session.user_id), session.session_id)


def facets_key(session: SessionRow) -> Key:
    return Key("sessions", facets_partition(session.user_id), session.session_id)


def listed_put(session: SessionRow, message: str | None, *, may_precede: bool = False) -> Put:
    """Put the index entry of a root session. `message`: the text of its first message. None if the caller does not know it;
    readers then read it from the session."""
    value: Value = {"agent_type": session.agent_type}
    if message is not None:
        value["title"] = title_of(message)
    return Put(index_key(session), value, may_precede=may_precede)


def moved_put(session: SessionRow) -> Put:
    """Put the bare facets row of a root session that is about to get this version. Part of each transaction that changes
    facets outside of a run's end: a claim, and a new title."""
    return Put(facets_key(session), {"version": session.version}, may_precede=True)


def facets_put(session: SessionRow, *, first_run: bool) -> Put:
    """Put the facets of a root session at rest. Refused if a later claim was first. `first_run`: whether the session was
    created by the run that has ended, so that no claim has written the row."""
    when = ABSENT if first_run else When(below={"version": session.version})
    return Put(facets_key(session), Facets.of(session).dump(), when)


def title_of(message: str) -> str:
    """Return the beginning of a message as a title: one line of at most 80 characters."""
    text = " ".join(message.split())
    return text if len(text) <= TITLE_CHARS else text[: TITLE_CHARS - 1] + "…"


def with_tools(tools: list[str], called: Iterable[str]) -> list[str]:
    """Return the tools with the called ones, in the order of their first call, at most `MOST_TOOLS`. A model may make up a
    name of any length; one that no tool can have is left out."""
    return list(dict.fromkeys([*tools, *filter(TOOL_NAME.fullmatch, called)]))[:MOST_TOOLS]
