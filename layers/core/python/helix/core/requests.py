"""The requests of the WebSocket protocol, version 1: what a client may ask for (`core.protocol` reads them).

Law: closed models, every field bounded. `core.replies` has the result of each.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, get_args

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from helix.core.json import JsonObject, JsonValue
from helix.core.messages import Record
from helix.core.status import SessionStatus

PAGE: Final = 100
MAX_REQUEST_PARTS: Final = 16

ID: Final = r"^[A-Za-z0-9_.:-]{1,64}$"
Id: TypeAlias = Annotated[str, StringConstraints(pattern=ID)]
SessionId: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:@+=-]{1,256}$")]
RunId: TypeAlias = SessionId
Name: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=512)]
Text: TypeAlias = Annotated[str, StringConstraints(min_length=1)]
Reason: TypeAlias = Annotated[str, StringConstraints(max_length=2000)]
Token: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=8192)]
Key: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=128)]
"""An idempotency key: a repeat with the same key, from any connection, has no second effect."""
LOWEST_PRIORITY: Final = -999


def _modest(priority: int) -> int:
    if not LOWEST_PRIORITY <= priority <= 0:
        raise ValueError(f"a client's priority is {LOWEST_PRIORITY} to 0; only the service sets a higher one")
    return priority


Priority: TypeAlias = Annotated[int, AfterValidator(_modest)]
Limit: TypeAlias = Annotated[int, Field(ge=1, le=PAGE)]


class _Request(Record):
    """`id` is the client's own name of the request: it comes back with the answer."""

    v: Literal[1]
    id: Id


class _OfSession(_Request):
    session_id: SessionId


class Authenticate(_Request):
    """A new proof of the same principal; without a token: who this connection is.
    Result: `{"principal", "expires_at", "prefix"}`; session ids of one's own choice begin with `prefix`."""

    action: Literal["authenticate"]
    token: Token | None = None


class Run(_Request):
    """A new session, or the next message of one. `message`, or `input` with a function agent's parameters.

    `session_id` of a session that does not exist must begin with the principal's prefix (see `Authenticate`).
    `key` makes repeats harmless: a repeat returns the run that was started under it. Without a key, that holds for
    the same request on the same connection. `priority`: where runs wait for slots, a higher one goes first. A client may
    set 0 or less. `message_id`: what a front end calls its message; stored as `metadata.id`. `edits`: it takes the place of
    the one with that id, unless that is the newest and has the same text: then the present run answers.
    Result: `{"session_id", "run_id", "turn", "stream_id", "after", "replay"}`: the run's messages have sequences above
    `after`; where `replay` is true some were there before the subscription: subscribe after `after`.
    """

    action: Literal["run"]
    agent: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    message: Text | None = None
    message_id: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    input: JsonObject | None = None
    state: JsonObject | None = None
    session_id: SessionId | None = None
    tags: list[Annotated[str, StringConstraints(max_length=256)]] = Field(default_factory=list, max_length=50)
    metadata: JsonObject = Field(default_factory=dict)
    priority: Priority | None = None
    key: Key | None = None
    edits: bool = False
    subscribe: bool = True

    @model_validator(mode="after")
    def _one_input(self) -> Run:
        if (self.message is None) == (self.input is None):
            raise ValueError("give message, or input, and not both")
        if self.edits and None in (self.message_id, self.session_id):
            raise ValueError("edits needs message_id and session_id: which message to edit")
        return self


class _GoOn(_OfSession):
    message: Text | None = None
    key: Key | None = None
    subscribe: bool = True


class Resume(_GoOn):
    """Result as of `Run`."""

    action: Literal["resume"]
    mode: Literal["continue", "with_message", "from_checkpoint"] = "continue"
    checkpoint_id: Name | None = None


class Retry(_GoOn):
    """Result as of `Run`."""

    action: Literal["retry"]
    mode: Literal["from_checkpoint", "from_start"] = "from_checkpoint"


class _Stop(_OfSession):
    """The run: default the current one."""

    run_id: RunId | None = None
    reason: Reason | None = None


class Interrupt(_Stop):
    """Result: `{"interrupted"}`: false if the run does not run any more."""

    action: Literal["interrupt"]


class Abort(_Stop):
    """Result: `{}`. Idempotent."""

    action: Literal["abort"]


class AnswerAction(_OfSession):
    """A person's word on a call that waits, in the session or in a sub-agent below it; the first one counts. `arguments`
    of an approval take the place of the model's; they fit the tool's schema, or the call waits on.
    Result: as of `Run`, `run_id` being the session's current run, and `resumed`: whether the answer started one."""

    action: Literal["answer"]
    tool_call_id: Name
    approved: bool = True
    data: JsonValue = None
    reason: Reason | None = None
    arguments: JsonObject | None = None
    subscribe: bool = True


class _OfStream(_Request):
    session_id: SessionId | None = None
    stream_id: SessionId | None = None

    @model_validator(mode="after")
    def _one_stream(self) -> _OfStream:
        if (self.session_id is None) == (self.stream_id is None):
            raise ValueError("give session_id, or stream_id, and not both")
        return self


class Subscribe(_OfStream):
    """Be sent what is on the stream after the sequence `after`, and what comes.
    Result: `{"stream_id", "caught_up", "complete"}`: what was stored up to `caught_up` has been sent; where `complete`
    is false there is more: subscribe again after it."""

    action: Literal["subscribe"]
    after: int = Field(default=0, ge=0)


class Unsubscribe(_OfStream):
    """Result: `{"stream_id"}`."""

    action: Literal["unsubscribe"]


class GetSession(_OfSession):
    """Result: `{"session", "can_resume"}`, and where its run waits for a slot `"queued"`: `{"place", "expires_at"}`, 1
    being the next of its agent to go; with `run_id` also `"run"`: how that run ended (status `running` if it has
    not), with `messages` and `runs` the newest that many of these, with `sub_sessions` those of its sub-agents, and with
    `snapshot` the conversation and where the stream goes on from it, of which `newest` asks for the last messages only."""

    action: Literal["get_session"]
    run_id: RunId | None = None
    messages: int = Field(default=0, ge=0, le=PAGE)
    before: int | None = Field(default=None, ge=0)  # index behind the last of these messages; default: the newest
    runs: int = Field(default=0, ge=0, le=PAGE)
    sub_sessions: bool = False
    snapshot: bool = False
    newest: int | None = Field(default=None, ge=1, le=PAGE)


class ListSessions(_Request):
    """One's own root sessions, newest id first; an operator's are those of all users, or of `user`. The other fields are
    filters; `since` is the Unix time of the last change; each word of `text` must be in the id, the agent, the tags, the
    status or the beginning of the first message, whatever its case. Result: `{"sessions", "cursor", "damaged"}`, with
    `titles` each with its first message's beginning; `cursor` is the next page's `after`: a page may be short although
    there is more."""

    action: Literal["list_sessions"]
    limit: Limit = 20
    after: Name | None = None
    user: Name | None = None
    status: SessionStatus | None = None
    agent: Name | None = None
    tag: Name | None = None
    since: float | None = None
    waiting: bool = False
    text: Annotated[str, Field(max_length=200)] | None = None
    titles: bool = False


class ListCheckpoints(_OfSession):
    """Newest first, without states. Result: `{"checkpoints", "cursor"}`."""

    action: Literal["list_checkpoints"]
    limit: Limit = 20
    after: Name | None = None


class GetCheckpoint(_OfSession):
    """A checkpoint with its custom state; default the latest. Result: `{"checkpoint"}`, as of `list_checkpoints`, with
    `custom_state`."""

    action: Literal["get_checkpoint"]
    checkpoint_id: Name | None = None


class DiffCheckpoints(_OfSession):
    """What changed from the checkpoint `before` to `checkpoint_id` (default the latest). Result: `{"before", "after"}`, the
    ids; `"patches"`: RFC 6902, from the one state to the other; `"messages"`: those that are in the second only, from
    `offset` on, at most `limit`; `"added"`, `"removed"`: how many messages are in the second or in the first only."""

    action: Literal["diff_checkpoints"]
    before: Name
    checkpoint_id: Name | None = None
    offset: int = Field(default=0, ge=0)
    limit: Limit = 20


class GetStep(_OfSession):
    """How a step was bought: each attempt with what it showed and what became of it, and what became of its calls. A number
    comes again after a rewind: then the newest is meant, or that of `run_id`. Result: `helix.core.reports.StepFound`."""

    action: Literal["get_step"]
    step: Annotated[int, Field(ge=1)]
    run_id: RunId | None = None


class GetCost(_OfSession):
    """What the session cost, with its sub-agents', line by line. Result: `{"session_id", "usd", "services", "agrees",
    "prices", "left_out", "lines"}`. Refused for a session of more than 20,000 rows."""

    action: Literal["get_cost"]


class GetBudgets(_OfSession):
    """The budgets that bind the session, in their present windows. `run`: what its current run has spent and set aside.
    Budgets of all users, or of an agent, show no amounts but to an operator. Result: `{"session_id", "budgets"}`."""

    action: Literal["get_budgets"]


class ChangeBudget(_Request):
    """For operators: another limit, in the budget's unit, for a `budget` that `get_budgets` lists; all else of it stays. It
    holds from the next model call on. Result: `{"budget", "unit", "limit"}`."""

    action: Literal["change_budget"]
    budget: Name
    limit: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class GetFleet(_Request):
    """For operators: limits, queues, health, and why limits moved, of agents by name, or of one `agent`. `waiting`,
    `decisions`: at most so many of each agent. Result: `helix.core.reports.FleetFound`."""

    action: Literal["get_fleet"]
    limit: Limit = 20
    after: Name | None = None
    agent: Name | None = None
    waiting: Annotated[int, Field(ge=0, le=PAGE)] = 5
    decisions: Annotated[int, Field(ge=0, le=PAGE)] = 5


class GetUsage(_Request):
    """What a user has used: the caller; an operator names a `user`. `hours`: the number of past hours, the present one
    included; default ever. Result: `{"user", "since", "usd", "lines"}`."""

    action: Literal["get_usage"]
    user: Name | None = None
    hours: Annotated[int, Field(ge=1, le=168)] | None = None


class ListAgents(_Request):
    """The agents that `run` takes, by name. Result: `{"agents", "cursor"}`; `cursor` is the next page's `after`. Of each:
    `name`, `description`, `kind` (`chat` or `function`), `input` and `output`: JSON schemas of what `run` takes besides
    the agent, and of the result's output."""

    action: Literal["list_agents"]
    limit: Limit = 20
    after: Name | None = None


class ReadStream(_OfSession):
    """A page of the stored stream behind the sequence `after`. Result: `{"stream_id", "messages"}`."""

    action: Literal["read_stream"]
    after: int = Field(default=0, ge=0)
    limit: Annotated[int, Field(ge=1, le=1000)] = 200


class ReadRows(_OfSession):
    """A page of a session's stored rows, or with `stream` of its stream's. Result: `{"rows", "cursor"}`, each
    `[sort, value]`; `cursor` is the next page's `after`."""

    action: Literal["read_rows"]
    stream: bool = False
    after: Name | None = None
    limit: Limit = PAGE


class _Copy(_OfSession):
    checkpoint_id: Name | None = None
    target: SessionId | None = None
    key: Key | None = None


class Branch(_Copy):
    """A new session from a checkpoint (default the latest). Result: `{"session_id"}`; `target` names it, see `Run`."""

    action: Literal["branch"]


class Clone(_Copy):
    """A copy up to a checkpoint or message. Result: `{"session_id"}`; `target` names it, see `Run`."""

    action: Literal["clone"]
    message_index: int | None = Field(default=None, ge=0)


class Delete(_OfSession):
    """Result: `{"deleted": true}`."""

    action: Literal["delete"]


class Ping(_Request):
    """Keeps the connection open. Result: `{"now"}`, the server's Unix seconds."""

    action: Literal["ping"]


AnyRequest: TypeAlias = (
    Authenticate
    | Run
    | Resume
    | Retry
    | Interrupt
    | Abort
    | AnswerAction
    | Subscribe
    | Unsubscribe
    | GetSession
    | ListSessions
    | ListCheckpoints
    | GetCheckpoint
    | DiffCheckpoints
    | GetStep
    | GetCost
    | GetBudgets
    | ChangeBudget
    | GetUsage
    | GetFleet
    | ListAgents
    | ReadStream
    | ReadRows
    | Branch
    | Clone
    | Delete
    | Ping
)
Request = Annotated[AnyRequest, Field(discriminator="action")]
ACTIONS: Final = frozenset(get_args(cls.model_fields["action"].annotation)[0] for cls in get_args(AnyRequest))


class Part(Record):
    """A piece of the JSON text of a request, for clients that cannot send a message in several frames: browsers. `part`
    names the request on its connection."""

    v: Literal[1]
    type: Literal["part"]
    part: Id
    index: Annotated[int, Field(ge=0)]
    total: Annotated[int, Field(ge=1, le=MAX_REQUEST_PARTS)]
    data: Text

    @model_validator(mode="after")
    def _counts(self) -> Part:
        if self.index >= self.total:
            raise ValueError("index is below total")
        return self
