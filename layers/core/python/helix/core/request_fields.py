"""The types of the fields of requests, and the fields that many requests of the WebSocket protocol have.

Law: every field is bounded.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, StringConstraints

from helix.core.messages import Record

PAGE: Final = 100
"""The maximum number of items on a page."""
ID: Final = r"^[A-Za-z0-9_.:-]{1,64}$"
Id: TypeAlias = Annotated[str, StringConstraints(pattern=ID)]
SessionId: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:@+=-]{1,256}$")]
RunId: TypeAlias = SessionId
Name: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=512)]
Text: TypeAlias = Annotated[str, StringConstraints(min_length=1)]
Reason: TypeAlias = Annotated[str, StringConstraints(max_length=2000)]
Token: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=8192)]
UnixTime: TypeAlias = Annotated[float, Field(ge=0, le=253_402_300_799)]
"""A time in Unix seconds, up to the year 9999."""
CallError: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=8000)]
Key: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=128)]
"""An idempotency key. Repeating a request with the same key, from any connection, has no second effect."""
LOWEST_PRIORITY: Final = -999


def _modest(priority: int) -> int:
    if not LOWEST_PRIORITY <= priority <= 0:
        raise ValueError(f"a client's priority is {LOWEST_PRIORITY} to 0; only the service sets a higher one")
    return priority


Priority: TypeAlias = Annotated[int, AfterValidator(_modest)]
Limit: TypeAlias = Annotated[int, Field(ge=1, le=PAGE)]


class BaseRequest(Record):
    """The fields of all requests."""

    v: Literal[1]
    """The version of the protocol."""
    id: Id
    """The client's id for the request. The reply or error repeats it."""


class SessionRequest(BaseRequest):
    """The fields of requests about one session."""

    session_id: SessionId
    """The session that the request is about."""
