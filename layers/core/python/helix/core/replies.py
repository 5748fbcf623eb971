"""What answers the requests of the WebSocket protocol, as models: for generators of clients, and for tests.

Law: a service answers with these and with nothing else; tests hold its answers against them. What a field of the request
asks for is left out where it was not asked for. A later version may add fields.
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
from helix.core.rows import ErrorInfo, Pending, RunRow
from helix.core.status import AgentStatus, EndStatus, SessionStatus
from helix.core.usage import Usage
from helix.core.wire import Kind


class _Partial(Record):
    """A field that has a default may be left out."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)


class Authenticated(Record):
    """`operator`: it may read the fleet and change budgets."""

    principal: str | None
    expires_at: float
    operator: bool
    prefix: str


class Started(Record):
    session_id: str
    run_id: str
    turn: int
    stream_id: str
    after: int
    replay: bool


class Answered(Started):
    resumed: bool


class Interrupted(Record):
    interrupted: bool


class Nothing(Record):
    pass


class Subscribed(Record):
    stream_id: str
    caught_up: int
    complete: bool


class Unsubscribed(Record):
    stream_id: str


class Queued(Record):
    """`place`: 1 is the next of its agent to go. `expires_at`: Unix seconds. `reason`: why none starts, if the agent is
    stopped."""

    place: int
    expires_at: float
    reason: str | None


class RunFound(_Partial):
    """How a run ended, as `helix.AgentResult`; of one that is `running` no field from `output` on is there."""

    session_id: str
    run_id: str
    status: Literal["running"] | EndStatus
    turn: int
    start_sequence: int
    output: JsonValue = None
    text: str | None = None
    error: str | None = None
    error_code: str | None = None
    recoverable: bool = True
    pending: list[Pending] = Field(default_factory=list)
    completion_reason: str | None = None
    usage: Usage = Usage()
    steps: int = 0


class SessionFound(_Partial):
    session: SessionState
    can_resume: CanResumeResult
    queued: Queued | None = None
    run: RunFound | None = None
    messages: list[Message] = Field(default_factory=list)
    offset: int = 0
    runs: list[RunRow] = Field(default_factory=list)
    more_runs: bool = False
    sub_sessions: list[SubSessionRef] = Field(default_factory=list)
    snapshot: SessionSnapshot | None = None


class ListedSession(_Partial):
    """A `SessionState` without `custom_state` and `output`. `title`: the beginning of its first message."""

    session_id: str
    agent_type: str
    stream_id: str
    status: AgentStatus
    version: int
    current_run_id: str
    turn: int
    step_count: int
    message_count: int
    checkpoint_id: str
    error: ErrorInfo | None
    pending: list[Pending]
    usage: Usage
    aborted: bool
    abort_reason: str | None
    parent_session_id: str | None
    forked_from: JsonObject | None
    user_id: str | None
    tags: list[str]
    metadata: JsonObject
    lease_expires: float
    created_at: float
    updated_at: float
    title: str = ""


class SessionList(Record):
    sessions: list[ListedSession]
    cursor: str | None
    damaged: list[str]


class ListedCheckpoint(Record):
    """`usage`: the numbers of a `Usage` in the order of its fields, without zeros at the end."""

    id: str
    run_id: str
    turn: int
    lineage: int
    count: int
    step: int
    status: SessionStatus
    state_at: str
    warnings: list[str]
    pending: list[Pending]
    usage: list[int | bool]
    name: str | None
    created_at: float


class CheckpointList(Record):
    checkpoints: list[ListedCheckpoint]
    cursor: str | None


class CheckpointState(ListedCheckpoint):
    custom_state: JsonObject


class CheckpointFound(Record):
    checkpoint: CheckpointState


class CheckpointDiff(Record):
    """`patches` make the state of `after` of that of `before` (RFC 6902). `messages` are those that are in `after` only,
    `offset` of `added`; `removed`: how many are in `before` only, because the session was rewound."""

    before: str
    after: str
    patches: list[JsonObject]
    messages: list[Message]
    offset: int
    added: int
    removed: int


class WireMessage(_Partial):
    """A `helix.core.wire.StreamMessage` without what equals its default. `chunk` is one of `chunks`, or of a type that
    this version does not know."""

    v: Literal[1] = 1
    session_id: str
    run_id: str
    turn: int = 0
    sequence: int
    kind: Kind
    chunk: JsonObject | None = None
    status: str | None = None
    error: str | None = None


class StreamPage(Record):
    stream_id: str
    messages: list[WireMessage]


class RowPage(Record):
    """Each row is `[sort, value]`."""

    rows: list[tuple[str, JsonObject]]
    cursor: str | None


class Copied(Record):
    session_id: str


class Deleted(Record):
    deleted: Literal[True]


class Pong(Record):
    now: float


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
"""The result of each action."""


# --- what a client receives -----------------------------------------------------------------------------------------------


class Refusal(Record):
    """`recoverable`: the same request may succeed later. `details`: ids, and the field that is wrong."""

    code: str
    message: str
    recoverable: bool
    details: JsonObject


class ReplyFrame(Record):
    v: Literal[1]
    type: Literal["reply"]
    id: str
    action: str
    result: JsonObject


class ErrorFrame(Record):
    v: Literal[1]
    type: Literal["error"]
    id: str | None
    action: str | None
    error: Refusal


class MessagesFrame(Record):
    v: Literal[1]
    type: Literal["messages"]
    stream_id: str
    messages: list[WireMessage]


class LaggingFrame(Record):
    v: Literal[1]
    type: Literal["lagging"]
    stream_id: str
    after: int


class PartFrame(Record):
    v: Literal[1]
    type: Literal["part"]
    part: str
    index: int
    total: int
    data: str


FRAMES: Final[Mapping[str, type[Record]]] = {
    "reply": ReplyFrame,
    "error": ErrorFrame,
    "messages": MessagesFrame,
    "lagging": LaggingFrame,
    "part": PartFrame,
}


def protocol_json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the protocol, for clients in other languages: an object with `requests` and `replies` by
    action, `frames` by type, and `part`, a piece of a long request. `core.chunks.chunk_json_schema` has the chunks."""
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
