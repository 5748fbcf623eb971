"""The replies of the WebSocket protocol as models, for client generators and tests: the table of all replies, the frames
that carry them, and the replies about a connection, its streams and the start of runs.

`core.session_replies` has the replies about sessions, `core.reports` those about agents, steps and costs.

Law: the service replies only with these models, and tests validate its replies against them. An optional field is left
out unless the request asked for it. A later version may add fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from pydantic.json_schema import models_json_schema

from helix.core.agent_reports import AgentList
from helix.core.comparison import Comparison
from helix.core.context_replies import ContextFound
from helix.core.file_requests import FileAddress, UploadBegun, UploadFinished
from helix.core.inbox import Withdrawn
from helix.core.json import JsonObject
from helix.core.messages import Record
from helix.core.reports import BudgetChanged, BudgetList, CostFound, FleetFound, StepFound, UsageFound
from helix.core.requests import AnyRequest, Part
from helix.core.session_replies import (
    CheckpointDiff,
    CheckpointFound,
    CheckpointList,
    Copied,
    Deleted,
    ExecutionsFound,
    LogsFound,
    PartialReply,
    Renamed,
    RowPage,
    SessionFound,
    SessionList,
    TagsChanged,
)
from helix.core.wire import Kind


class Authenticated(Record):
    """The result of `authenticate`: the identity of the connection's caller."""

    principal: str | None
    """The user, as `user` or `tenant/user`. None for an anonymous caller and for an operator that IAM authorized."""
    expires_at: float
    """The time when the caller's credentials expire, in Unix seconds. After that, only `authenticate` is accepted."""
    operator: bool
    """Whether the caller may read the fleet and change budgets."""
    prefix: str
    """The required prefix of session ids that the caller chooses. Empty without authentication, when any id is
    allowed."""


class Started(PartialReply):
    """The result of `run`, `resume` and `retry`."""

    session_id: str
    """The session of the run. For `run` without a session id, the new session."""
    run_id: str
    """The run that was started. A repeated request gets the run that the first one started."""
    turn: int
    """The number of the run in its session, starting at 1."""
    stream_id: str
    """The stream with the run's messages."""
    after: int
    """The sequence after which the run's messages begin."""
    replay: bool
    """Whether messages of the run were stored before the subscription. If so, `subscribe` with this `after`."""
    queued_id: str | None = None
    """The id under which the message waits in the session's `inbox`. None if it started its run at once."""


class Answered(Started):
    """The result of `answer`. `run_id` is the session's current run."""

    resumed: bool
    """Whether the response started a run."""


class Interrupted(Record):
    """The result of `interrupt`."""

    interrupted: bool
    """Whether the run was asked to stop. False if it had already ended."""


class WithdrawnReply(Record):
    """The result of `withdraw`."""

    withdrawn: Withdrawn
    """The fate of the message. `delivered`: it is in history already. `not_found`: no such message waits."""


class CallReported(Record):
    """The result of `report_call`."""

    expires_at: float | None
    """For a heartbeat, the time (Unix seconds) when the wait ends without another one. None: never, or the call ended."""


class Nothing(Record):
    pass


class Subscribed(Record):
    """The result of `subscribe`."""

    stream_id: str
    """The stream whose messages this connection receives from now on."""
    caught_up: int
    """The last sequence of the stored messages that were sent."""
    complete: bool
    """Whether all stored messages were sent. If not, subscribe again with `caught_up` as `after`."""


class Unsubscribed(Record):
    """The result of `unsubscribe`."""

    stream_id: str
    """The stream whose messages this connection no longer receives."""


class WireMessage(PartialReply):
    """A `helix.core.wire.StreamMessage` without the fields that equal their defaults."""

    v: Literal[1] = 1
    """The version of the wire format."""
    session_id: str
    """The session that wrote the message. A sub-agent writes to the stream of its root session."""
    run_id: str
    """The run that wrote the message. Empty for a `stream_resync` chunk that the log itself created."""
    turn: int = 0
    """The number of that run in its session."""
    sequence: int
    """The position of the message in the stream: 1, 2, 3, ... without gaps."""
    kind: Kind
    """`chunk` for a chunk. `end`, `fail` or `paused` ends the messages of a run."""
    chunk: JsonObject | None = None
    """The chunk: one of `chunks`, or of a type that this version does not know. None for other kinds."""
    status: str | None = None
    """The status of the run that ended. None for a chunk."""
    error: str | None = None
    """The message of the error that the run ended with."""


class StreamPage(Record):
    """The result of `read_stream`."""

    stream_id: str
    """The stream that was read."""
    messages: list[WireMessage]
    """A page of stored messages. Empty at the end of the stream."""


class Pong(Record):
    """The result of `ping`."""

    now: float
    """The service's current time in Unix seconds."""


REPLIES: Final[Mapping[str, type[Record]]] = {
    "authenticate": Authenticated,
    "run": Started,
    "resume": Started,
    "retry": Started,
    "answer": Answered,
    "report_call": CallReported,
    "interrupt": Interrupted,
    "withdraw": WithdrawnReply,
    "abort": Nothing,
    "subscribe": Subscribed,
    "unsubscribe": Unsubscribed,
    "get_session": SessionFound,
    "list_sessions": SessionList,
    "list_checkpoints": CheckpointList,
    "get_checkpoint": CheckpointFound,
    "diff_checkpoints": CheckpointDiff,
    "compare": Comparison,
    "get_step": StepFound,
    "get_context": ContextFound,
    "upload": UploadBegun,
    "finish_upload": UploadFinished,
    "get_file": FileAddress,
    "get_executions": ExecutionsFound,
    "get_logs": LogsFound,
    "get_cost": CostFound,
    "get_budgets": BudgetList,
    "change_budget": BudgetChanged,
    "get_usage": UsageFound,
    "get_fleet": FleetFound,
    "list_agents": AgentList,
    "read_stream": StreamPage,
    "read_rows": RowPage,
    "compact": Nothing,
    "rename": Renamed,
    "change_tags": TagsChanged,
    "branch": Copied,
    "clone": Copied,
    "delete": Deleted,
    "ping": Pong,
}
"""The result model of each action."""


# --- what a client receives -----------------------------------------------------------------------------------------------


class Refusal(Record):
    """An error as reported to the client (`core.refusals`)."""

    code: str
    """The code of the error, stable and meant for programs."""
    message: str
    """A human-readable explanation."""
    recoverable: bool
    """Whether the same request may succeed later."""
    details: JsonObject
    """The ids that the error concerns, and the invalid `field`. Empty if there are no details."""


class ReplyFrame(Record):
    """The frame that answers a request."""

    v: Literal[1]
    """The version of the protocol."""
    type: Literal["reply"]
    """The type of this frame."""
    id: str
    """The `id` of the request."""
    action: str
    """The `action` of the request."""
    result: JsonObject
    """The result, described by the model in `REPLIES`."""


class ErrorFrame(Record):
    """The frame that reports a refused or failed request."""

    v: Literal[1]
    """The version of the protocol."""
    type: Literal["error"]
    """The type of this frame."""
    id: str | None
    """The `id` of the request. None if it could not be parsed."""
    action: str | None
    """The `action` of the request. None if it could not be parsed."""
    error: Refusal
    """The error."""


class MessagesFrame(Record):
    """The next messages of a stream that the connection subscribes to."""

    v: Literal[1]
    """The version of the protocol."""
    type: Literal["messages"]
    """The type of this frame."""
    stream_id: str
    """The stream of the messages."""
    messages: list[WireMessage]
    """The messages, in order. A message may be delivered more than once."""


class LaggingFrame(Record):
    """A notice that the connection was too slow. It receives no more of the stream until it subscribes again."""

    v: Literal[1]
    """The version of the protocol."""
    type: Literal["lagging"]
    """The type of this frame."""
    stream_id: str
    """The stream whose messages were missed."""
    after: int
    """The sequence after which messages were missed. Use it as `after` in the next `subscribe`."""


class PartFrame(Record):
    """A part of a frame that is longer than 32 KB (`core.frames`)."""

    v: Literal[1]
    """The version of the protocol."""
    type: Literal["part"]
    """The type of this frame."""
    part: str
    """The id that all parts of one frame share, unique on the connection."""
    index: int
    """The index of this part, starting at 0."""
    total: int
    """The number of parts."""
    data: str
    """A piece of the text. All pieces joined in order of `index` form the JSON text of the frame."""


FRAMES: Final[Mapping[str, type[Record]]] = {
    "reply": ReplyFrame,
    "error": ErrorFrame,
    "messages": MessagesFrame,
    "lagging": LaggingFrame,
    "part": PartFrame,
}


def protocol_json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the protocol, for clients in other languages.

    It describes an object with `requests` and `replies` by action, `frames` by type, and `part`, a piece of a long
    request. `core.chunks.chunk_json_schema` has the chunks.
    """
    requests = {get_args(cls.model_fields["action"].annotation)[0]: cls for cls in get_args(AnyRequest)}
    models: list[tuple[type[Record], Literal["validation", "serialization"]]] = []
    models += [(cls, "validation") for cls in (*requests.values(), Part)]
    models += [(cls, "serialization") for cls in dict.fromkeys((*REPLIES.values(), *FRAMES.values()))]
    places, schema = models_json_schema(models, title="The WebSocket protocol of Helix, version 1")
    groups = {
        "requests": {name: places[cls, "validation"] for name, cls in requests.items()},
        "replies": {name: places[cls, "serialization"] for name, cls in REPLIES.items()},
        "frames": {name: places[cls, "serialization"] for name, cls in FRAMES.items()},
    }
    made = {
        name: {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}
        for name, fields in groups.items()
    }
    properties = {**made, "part": places[Part, "validation"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": schema["title"],
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
        "$defs": schema["$defs"],
    }
