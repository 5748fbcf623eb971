"""The replies of the WebSocket protocol as models, for client generators and tests.

Law: the service replies only with these models, and tests validate its replies against them. An optional field is left
out unless the request asked for it. A later version may add fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from pydantic import ConfigDict, Field
from pydantic.json_schema import models_json_schema

from helix.core.handles import CanResumeResult, SessionSnapshot, SessionState, SubSessionRef
from helix.core.json import JsonObject, JsonValue
from helix.core.messages import Message, Record
from helix.core.reports import AgentList, BudgetChanged, BudgetList, CostFound, FleetFound, StepFound, UsageFound
from helix.core.requests import AnyRequest, Part
from helix.core.rows import ErrorInfo, Pending
from helix.core.run_row import RunRow
from helix.core.status import AgentStatus, EndStatus, SessionStatus
from helix.core.usage import Usage
from helix.core.wire import Kind


class _Partial(Record):
    """A model whose fields with defaults may be left out."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)


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


class Started(Record):
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


class Answered(Started):
    """The result of `answer`. `run_id` is the session's current run."""

    resumed: bool
    """Whether the response started a run."""


class Interrupted(Record):
    """The result of `interrupt`."""

    interrupted: bool
    """Whether the run was asked to stop. False if it had already ended."""


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


class Queued(Record):
    """The queue position of a run that waits for a slot."""

    place: int
    """The position in the agent's queue. Position 1 gets the next free slot."""
    expires_at: float
    """The time when the wait times out and the run is ended, in Unix seconds."""
    reason: str | None
    """Why a budget has stopped the agent, so that none of its runs start. None if the agent merely has no free slot."""


class RunFound(_Partial):
    """The result of a run, as in `helix.AgentResult`. While it is `running`, fields from `output` on are left out."""

    session_id: str
    """The session of the run."""
    run_id: str
    """The run that the request named."""
    status: Literal["running"] | EndStatus
    """The status of the run. `running` also means that it waits for a slot."""
    turn: int
    """The number of the run in its session, starting at 1."""
    start_sequence: int
    """The sequence after which the run's messages begin on the stream."""
    output: JsonValue = None
    """The output of a completed run: JSON according to the agent's schema. Without a schema, the last text or a tool's
    result."""
    text: str | None = None
    """The text of a completed run's last answer. None if that answer had no text."""
    error: str | None = None
    """The message of the error that a failed run ended with."""
    error_code: str | None = None
    """The code of that error, stable and meant for programs."""
    recoverable: bool = True
    """Whether `retry` may succeed after a failure."""
    pending: list[Pending] = Field(default_factory=list)
    """The calls that a paused or interrupted run waits for."""
    completion_reason: str | None = None
    """The reason why the run ended, such as `text`, `output` or `pending`. None for most failures: see `error_code`."""
    usage: Usage = Usage()
    """The usage of the run, including its sub-agents."""
    steps: int = 0
    """The number of steps that the run took."""


class SessionFound(_Partial):
    """The result of `get_session`. Fields from `run` on are present only if the request asked for them."""

    session: SessionState
    """The committed state of the session."""
    can_resume: CanResumeResult
    """Whether `resume` would continue the session now."""
    queued: Queued | None = None
    """The run's place in the queue. Left out if the run does not wait for a slot."""
    run: RunFound | None = None
    """The run that the request named with `run_id`."""
    messages: list[Message] = Field(default_factory=list)
    """A page of the conversation, oldest message first."""
    offset: int = 0
    """The index in the conversation of the first message in `messages`."""
    runs: list[RunRow] = Field(default_factory=list)
    """The newest runs, newest first."""
    more_runs: bool = False
    """Whether the session has older runs than `runs`."""
    sub_sessions: list[SubSessionRef] = Field(default_factory=list)
    """The sub-agents' sessions, in the order of their calls."""
    snapshot: SessionSnapshot | None = None
    """The conversation, and the stream sequence from which to continue."""


class ListedSession(_Partial):
    """A `SessionState` without `custom_state` and `output`, and with a title. Times are in Unix seconds."""

    session_id: str
    """The id of the session."""
    agent_type: str
    """The name of the session's agent, which never changes."""
    stream_id: str
    """The stream of the session's chunks. It has the id of the root session."""
    status: AgentStatus
    """The status of the last run. A run that waits for a slot is `running`."""
    version: int
    """The number of changes to the session so far."""
    current_run_id: str
    """The current or last run. Empty in a copy that has not run yet."""
    turn: int
    """The number of the current or last run, starting at 1. 0 in a copy that has not run yet."""
    step_count: int
    """The number of the last committed step."""
    message_count: int
    """The number of messages in the conversation."""
    checkpoint_id: str
    """The newest checkpoint."""
    error: ErrorInfo | None
    """The error that the last run ended with. None if it did not fail."""
    pending: list[Pending]
    """The calls that wait for a response, in this session or in a sub-agent's."""
    usage: Usage
    """The usage of all runs."""
    aborted: bool
    """Whether the session was aborted. It then accepts a new message, but no retry."""
    abort_reason: str | None
    """The reason that the caller of `abort` gave."""
    parent_session_id: str | None
    """The parent of a sub-agent's session. None in this list, which has root sessions only."""
    forked_from: JsonObject | None
    """The origin of a branch or clone: `session_id` and `checkpoint_id`. None for other sessions."""
    user_id: str | None
    """The owner of the session. None if it was made without a user."""
    tags: list[str]
    """The tags that the session was created with."""
    metadata: JsonObject
    """The metadata that the session was created with."""
    lease_expires: float
    """The time when the worker's lease on an in-process run expires. 0 for other runs, and after the run has ended."""
    created_at: float
    """The time when the session was created."""
    updated_at: float
    """The time of the last change."""
    title: str = ""
    """The beginning of the first message, at most 80 characters. Present only if the request asked for `titles`."""


class SessionList(Record):
    """The result of `list_sessions`."""

    sessions: list[ListedSession]
    """A page of sessions, newest id first. It may be short or empty even if there are more."""
    cursor: str | None
    """The value of `after` for the next page. None on the last page."""
    damaged: list[str]
    """The ids of sessions on this page whose rows cannot be read."""


class ListedCheckpoint(Record):
    """A checkpoint without its custom state."""

    id: str
    """The id of the checkpoint, for use as `checkpoint_id` in other requests."""
    run_id: str
    """The run that wrote the checkpoint. Empty for the first checkpoint of a copy."""
    turn: int
    """The number of that run in its session. 0 for the first checkpoint of a copy."""
    lineage: int
    """The lineage of history that the checkpoint belongs to. A rewind starts a new lineage."""
    count: int
    """The number of messages at the checkpoint."""
    step: int
    """The number of the last committed step at the checkpoint."""
    status: SessionStatus
    """The status of the session at the checkpoint."""
    state_at: str
    """The id of the checkpoint that stores the custom state. It is this one if the state changed here."""
    warnings: list[str]
    """The conflicts between changes that parallel tools made to the custom state."""
    pending: list[Pending]
    """The pending calls at the checkpoint."""
    usage: list[int | bool]
    """The usage of the session so far: the values of `Usage` in the order of its fields, without zeros at the end."""
    name: str | None
    """The name that a caller gave the checkpoint, or None. Retention keeps named checkpoints."""
    created_at: float
    """The time when the checkpoint was written, in Unix seconds."""


class CheckpointList(Record):
    """The result of `list_checkpoints`."""

    checkpoints: list[ListedCheckpoint]
    """A page of checkpoints, newest first."""
    cursor: str | None
    """The value of `after` for the next page. None on the last page."""


class CheckpointState(ListedCheckpoint):
    """A checkpoint with its custom state."""

    custom_state: JsonObject
    """The custom state at the checkpoint."""


class CheckpointFound(Record):
    """The result of `get_checkpoint`."""

    checkpoint: CheckpointState
    """The checkpoint that the request named, or the latest."""


class CheckpointDiff(Record):
    """The result of `diff_checkpoints`: the changes from the checkpoint `before` to the checkpoint `after`."""

    before: str
    """The id of the first checkpoint."""
    after: str
    """The id of the second checkpoint."""
    patches: list[JsonObject]
    """The RFC 6902 patches that turn the state of `before` into the state of `after`."""
    messages: list[Message]
    """A page of the messages that only `after` has."""
    offset: int
    """The index among the added messages of the first message in `messages`."""
    added: int
    """The number of messages that only `after` has."""
    removed: int
    """The number of messages that only `before` has, because the session was rewound."""


class WireMessage(_Partial):
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


class RowPage(Record):
    """The result of `read_rows`."""

    rows: list[tuple[str, JsonObject]]
    """A page of stored rows, sorted by key. Each row is `[sort, value]`: its sort key and its JSON value."""
    cursor: str | None
    """The value of `after` for the next page. None on the last page."""


class Copied(Record):
    """The result of `branch` and `clone`."""

    session_id: str
    """The new session."""


class Deleted(Record):
    """The result of `delete`."""

    deleted: Literal[True]
    """Always true: a session that does not exist is an error."""


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
    "interrupt": Interrupted,
    "abort": Nothing,
    "subscribe": Subscribed,
    "unsubscribe": Unsubscribed,
    "get_session": SessionFound,
    "list_sessions": SessionList,
    "list_checkpoints": CheckpointList,
    "get_checkpoint": CheckpointFound,
    "diff_checkpoints": CheckpointDiff,
    "get_step": StepFound,
    "get_cost": CostFound,
    "get_budgets": BudgetList,
    "change_budget": BudgetChanged,
    "get_usage": UsageFound,
    "get_fleet": FleetFound,
    "list_agents": AgentList,
    "read_stream": StreamPage,
    "read_rows": RowPage,
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
