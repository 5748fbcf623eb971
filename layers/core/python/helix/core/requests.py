"""The requests of the WebSocket protocol, version 1: their union, and the requests about a connection and its streams.

`core.run_requests`, `core.session_requests`, `core.file_requests` and `core.fleet_requests` have the other requests.
`core.protocol` parses them all, and `core.replies` has their results.

Law: the models are closed, and every field is bounded.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, get_args

from pydantic import Field, model_validator

from helix.core.file_requests import FinishUpload, GetFile, Upload
from helix.core.fleet_requests import ChangeBudget, GetBudgets, GetFleet, GetUsage, ListAgents
from helix.core.messages import Record
from helix.core.request_fields import BaseRequest, Id, SessionId, SessionRequest, Text, Token
from helix.core.run_requests import Abort, AnswerAction, Interrupt, ReportCall, Resume, Retry, Run, Withdraw
from helix.core.session_requests import (
    Branch,
    ChangeTags,
    Clone,
    Compact,
    Compare,
    Delete,
    DiffCheckpoints,
    GetCheckpoint,
    GetContext,
    GetCost,
    GetExecutions,
    GetLogs,
    GetSession,
    GetStep,
    ListCheckpoints,
    ListSessions,
    ReadRows,
    Rename,
)

MAX_REQUEST_PARTS: Final = 16


class Authenticate(BaseRequest):
    """Renew the connection's credentials with a new token of the same user, or query the identity of the caller.

    Result: `{"principal", "expires_at", "operator", "prefix"}`. Session ids that a client chooses begin with `prefix`.
    """

    action: Literal["authenticate"]
    """The name of this action."""
    token: Token | None = None
    """A new token of the same user. None: change nothing and return the identity of the caller."""


class _OfStream(BaseRequest):
    session_id: SessionId | None = None
    """The session that the stream belongs to. Give this or `stream_id`, not both."""
    stream_id: SessionId | None = None
    """The stream. Give this or `session_id`, not both."""

    @model_validator(mode="after")
    def _one_stream(self) -> _OfStream:
        if (self.session_id is None) == (self.stream_id is None):
            raise ValueError("give session_id, or stream_id, and not both")
        return self


class Subscribe(_OfStream):
    """Receive the stored messages of a stream after a sequence, and then new ones as they arrive.

    Result: `{"stream_id", "caught_up", "complete"}`. Stored messages up to `caught_up` have been sent. If `complete` is
    false, there are more: subscribe again with `caught_up` as `after`.
    """

    action: Literal["subscribe"]
    """The name of this action."""
    after: int = Field(default=0, ge=0)
    """The last sequence that the client has received. 0: from the beginning of the stream."""


class Unsubscribe(_OfStream):
    """Stop receiving the messages of a stream. Result: `{"stream_id"}`."""

    action: Literal["unsubscribe"]
    """The name of this action."""


class ReadStream(SessionRequest):
    """Read a page of a session's stored stream. Result: `{"stream_id", "messages"}`."""

    action: Literal["read_stream"]
    """The name of this action."""
    after: int = Field(default=0, ge=0)
    """The sequence after which the page starts. 0: the beginning of the stream."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    """The maximum number of messages on the page."""


class Ping(BaseRequest):
    """Keep the connection open. Result: `{"now"}`, the service's current time in Unix seconds."""

    action: Literal["ping"]
    """The name of this action."""


AnyRequest: TypeAlias = (
    Authenticate
    | Run
    | Resume
    | Retry
    | Interrupt
    | Withdraw
    | Abort
    | AnswerAction
    | ReportCall
    | Subscribe
    | Unsubscribe
    | GetSession
    | ListSessions
    | ListCheckpoints
    | GetCheckpoint
    | DiffCheckpoints
    | Compare
    | GetStep
    | GetContext
    | GetCost
    | GetExecutions
    | GetLogs
    | GetBudgets
    | ChangeBudget
    | GetUsage
    | GetFleet
    | ListAgents
    | Upload
    | FinishUpload
    | GetFile
    | ReadStream
    | ReadRows
    | Compact
    | Rename
    | ChangeTags
    | Branch
    | Clone
    | Delete
    | Ping
)
Request = Annotated[AnyRequest, Field(discriminator="action")]
ACTIONS: Final = frozenset(get_args(cls.model_fields["action"].annotation)[0] for cls in get_args(AnyRequest))


class Part(Record):
    """A part of a long request, for clients such as browsers that cannot split a message into several frames."""

    v: Literal[1]
    """The version of the protocol."""
    type: Literal["part"]
    """The type of this message. Requests have an `action` instead."""
    part: Id
    """The `id` of the request, shared by all its parts."""
    index: Annotated[int, Field(ge=0)]
    """The index of this part, starting at 0."""
    total: Annotated[int, Field(ge=1, le=MAX_REQUEST_PARTS)]
    """The number of parts."""
    data: Text
    """A piece of the JSON text of the request. All pieces joined in order of `index` form the text."""

    @model_validator(mode="after")
    def _check_index(self) -> Part:
        if self.index >= self.total:
            raise ValueError("index must be below total")
        return self
