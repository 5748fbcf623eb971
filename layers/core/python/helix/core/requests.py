"""The requests of the WebSocket protocol, version 1. `core.protocol` parses them, `core.replies` has their results.

Law: the models are closed, and every field is bounded.
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
"""An idempotency key. Repeating a request with the same key, from any connection, has no second effect."""
LOWEST_PRIORITY: Final = -999


def _modest(priority: int) -> int:
    if not LOWEST_PRIORITY <= priority <= 0:
        raise ValueError(f"a client's priority is {LOWEST_PRIORITY} to 0; only the service sets a higher one")
    return priority


Priority: TypeAlias = Annotated[int, AfterValidator(_modest)]
Limit: TypeAlias = Annotated[int, Field(ge=1, le=PAGE)]


class _Request(Record):
    """The fields of all requests."""

    v: Literal[1]
    """The version of the protocol."""
    id: Id
    """The client's id for the request. The reply or error repeats it."""


class _OfSession(_Request):
    session_id: SessionId
    """The session that the request is about."""


class Authenticate(_Request):
    """Renew the connection's credentials with a new token of the same user, or query the identity of the caller.

    Result: `{"principal", "expires_at", "operator", "prefix"}`. Session ids that a client chooses begin with `prefix`.
    """

    action: Literal["authenticate"]
    """The name of this action."""
    token: Token | None = None
    """A new token of the same user. None: change nothing and return the identity of the caller."""


class Run(_Request):
    """Start a run in a new session, or send the next message to an existing one. Give `message` or `input`, not both.

    Result: `{"session_id", "run_id", "turn", "stream_id", "after", "replay"}`. The run's messages have sequences above
    `after`. If `replay` is true, some of them were stored before the subscription took effect: `subscribe` with this
    `after`.
    """

    action: Literal["run"]
    """The name of this action."""
    agent: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    """The name of a registered agent."""
    message: Text | None = None
    """The user's text."""
    message_id: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    """The front end's id of the message, stored as `metadata.id`."""
    input: JsonObject | None = None
    """The parameters of a function agent. A chat agent accepts `{"message": ...}` here."""
    state: JsonObject | None = None
    """An object whose fields are merged into the session's custom state."""
    session_id: SessionId | None = None
    """An existing session, or the id of a new one. None: the service creates a session.

    The id of a new session must begin with the caller's prefix (see `Authenticate`).
    """
    tags: list[Annotated[str, StringConstraints(max_length=256)]] = Field(default_factory=list, max_length=50)
    """The tags of a new session. An existing session keeps its own."""
    metadata: JsonObject = Field(default_factory=dict)
    """The metadata of a new session. An existing session keeps its own."""
    priority: Priority | None = None
    """The priority of the session's runs while they wait for a slot. Higher priorities go first.

    Clients may only set 0 or less. None: an existing session keeps its priority, and a new one gets 0.
    """
    key: Key | None = None
    """An idempotency key: repeating the request returns the run that was started with the same key.

    Without a key, the same applies to a repeated `id` on the same connection.
    """
    edits: bool = False
    """Whether the message replaces the earlier message with the same `message_id`.

    If that is the latest message and its text is unchanged, no run starts: the result names the run that answered it.
    """
    subscribe: bool = True
    """Whether to send the run's messages to this connection."""

    @model_validator(mode="after")
    def _one_input(self) -> Run:
        if (self.message is None) == (self.input is None):
            raise ValueError("give message, or input, and not both")
        if self.edits and None in (self.message_id, self.session_id):
            raise ValueError("edits needs message_id and session_id: which message to edit")
        return self


class _GoOn(_OfSession):
    message: Text | None = None
    """The next user message. None: the session continues without one."""
    key: Key | None = None
    """An idempotency key, as in `Run`."""
    subscribe: bool = True
    """Whether to send the run's messages to this connection."""


class Resume(_GoOn):
    """Continue an interrupted or paused session, or go back to a checkpoint. Result: as for `Run`."""

    action: Literal["resume"]
    """The name of this action."""
    mode: Literal["continue", "with_message", "from_checkpoint"] = "continue"
    """How to continue.

    continue: execute pending calls, then continue. A `message` makes it `with_message`, a `checkpoint_id` makes it
        `from_checkpoint`.
    with_message: close pending calls, then take the new `message`.
    from_checkpoint: go back to `checkpoint_id` and continue from there.
    """
    checkpoint_id: Name | None = None
    """The checkpoint to go back to."""


class Retry(_GoOn):
    """Retry a failed session. Result: as for `Run`."""

    action: Literal["retry"]
    """The name of this action."""
    mode: Literal["from_checkpoint", "from_start"] = "from_checkpoint"
    """Where to restart: at the last committed step, or at the beginning of the failed run."""


class _Stop(_OfSession):
    run_id: RunId | None = None
    """The run to stop. None: the session's current run."""
    reason: Reason | None = None
    """The reason, stored with the run."""


class Interrupt(_Stop):
    """Ask a run to stop. `resume` continues it. Result: `{"interrupted"}`, which is false if the run had already
    ended."""

    action: Literal["interrupt"]
    """The name of this action."""


class Abort(_Stop):
    """Fail a run permanently. Idempotent. Result: `{}`."""

    action: Literal["abort"]
    """The name of this action."""


class AnswerAction(_OfSession):
    """Answer a pending call, in the session or in one of its sub-agents. Only the first response counts.

    Result: as for `Run`, with `run_id` being the session's current run. `resumed` tells whether the response started a
    run.
    """

    action: Literal["answer"]
    """The name of this action."""
    tool_call_id: Name
    """The `call_id` of a call in `pending`."""
    approved: bool = True
    """Whether the call is approved. False denies it."""
    data: JsonValue = None
    """The data of the response, as in `helix.core.handles.Confirmation`."""
    reason: Reason | None = None
    """The reason for a denial, which the model sees."""
    arguments: JsonObject | None = None
    """The arguments to execute an approved call with. None keeps the model's arguments.

    If they do not match the tool's schema, the request is refused and the call stays pending.
    """
    subscribe: bool = True
    """Whether to send the run's messages to this connection."""


class _OfStream(_Request):
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


class GetSession(_OfSession):
    """Read a session, with further parts on request.

    Result: `{"session", "can_resume"}`, and the parts requested by the fields below. While the current run waits for a
    slot, `"queued"` has its `{"place", "expires_at", "reason"}`. The run in place 1 is the agent's next to start.
    """

    action: Literal["get_session"]
    """The name of this action."""
    run_id: RunId | None = None
    """The run whose result to add as `"run"`. Its status is `running` if it has not ended."""
    messages: int = Field(default=0, ge=0, le=PAGE)
    """The number of messages to add as `"messages"`: the newest ones, or those before `before`."""
    before: int | None = Field(default=None, ge=0)
    """The exclusive upper index of these messages. None: the newest messages."""
    runs: int = Field(default=0, ge=0, le=PAGE)
    """The number of runs to add as `"runs"`: the newest ones, or those before `runs_before`."""
    runs_before: RunId | None = None
    """The id of a run: only older runs are returned. None: the newest runs."""
    sub_sessions: bool = False
    """Whether to add the sub-agents' sessions as `"sub_sessions"`."""
    snapshot: bool = False
    """Whether to add the conversation as `"snapshot"`, with the stream sequence from which to continue."""
    newest: int | None = Field(default=None, ge=1, le=PAGE)
    """The number of newest messages in the snapshot. None: all messages."""


class ListSessions(_Request):
    """List the caller's root sessions, newest id first. Operators see the sessions of all users, or of `user`.

    Result: `{"sessions", "cursor", "damaged"}`. A page may be short even if there are more sessions. Fields other than
    `limit`, `after`, `user` and `titles` are filters.
    """

    action: Literal["list_sessions"]
    """The name of this action."""
    limit: Limit = 20
    """The maximum number of sessions on the page."""
    after: Name | None = None
    """The `cursor` of the previous page. None for the first page."""
    user: Name | None = None
    """The user whose sessions to list. Only operators may name another user."""
    status: SessionStatus | None = None
    """The status of the sessions."""
    agent: Name | None = None
    """The name of the sessions' agent."""
    tag: Name | None = None
    """A tag of the sessions."""
    since: float | None = None
    """The earliest time of the last change, in Unix seconds."""
    waiting: bool = False
    """Whether to list only sessions that wait for a person."""
    text: Annotated[str, Field(max_length=200)] | None = None
    """Search words. Each must occur in the id, the agent, the tags, the status or the beginning of the first message.

    The search ignores case.
    """
    titles: bool = False
    """Whether to add a `title` to each session: the beginning of its first message."""


class ListCheckpoints(_OfSession):
    """List the checkpoints of a session, newest first and without states. Result: `{"checkpoints", "cursor"}`."""

    action: Literal["list_checkpoints"]
    """The name of this action."""
    limit: Limit = 20
    """The maximum number of checkpoints on the page."""
    after: Name | None = None
    """The `cursor` of the previous page, or the id of any checkpoint. None for the first page."""


class GetCheckpoint(_OfSession):
    """Read a checkpoint. Result: `{"checkpoint"}`, as in `list_checkpoints` but with its `custom_state`."""

    action: Literal["get_checkpoint"]
    """The name of this action."""
    checkpoint_id: Name | None = None
    """The checkpoint to read. None: the latest."""


class DiffCheckpoints(_OfSession):
    """Compare two checkpoints of a session.

    Result: `{"before", "after", "patches", "messages", "offset", "added", "removed"}`. `before` and `after` are the ids
    of the checkpoints. The RFC 6902 `patches` turn the first state into the second. `messages` is a page of the
    messages that only the second checkpoint has. `added` counts the messages that only the second checkpoint has,
    `removed` those that only the first has.
    """

    action: Literal["diff_checkpoints"]
    """The name of this action."""
    before: Name
    """The first checkpoint."""
    checkpoint_id: Name | None = None
    """The second checkpoint. None: the latest."""
    offset: int = Field(default=0, ge=0)
    """The index of the first added message to return."""
    limit: Limit = 20
    """The maximum number of added messages to return."""


class GetStep(_OfSession):
    """Explain how a step was bought: its attempts, the text that each one showed, and the results of its calls.

    Result: `helix.core.reports.StepFound`.
    """

    action: Literal["get_step"]
    """The name of this action."""
    step: Annotated[int, Field(ge=1)]
    """The number of the step. After a rewind, two steps may share a number: the newest one is returned, or that of
    `run_id`."""
    run_id: RunId | None = None
    """The run that the step belongs to. None: the newest step with this number."""


class GetCost(_OfSession):
    """Return the itemized cost of a session and its sub-agents' sessions.

    Result: `{"session_id", "usd", "services", "agrees", "prices", "left_out", "lines"}`. Refused for sessions with more
    than 20,000 rows.
    """

    action: Literal["get_cost"]
    """The name of this action."""


class GetBudgets(_OfSession):
    """Read the budgets that apply to a session, in their current windows.

    Result: `{"session_id", "budgets"}`. A budget's `run` is the amount that the session's current run has spent and
    reserved. Only operators see the amounts of a budget that spans all users or a whole agent.
    """

    action: Literal["get_budgets"]
    """The name of this action."""


class ChangeBudget(_Request):
    """Change the limit of a budget. Operators only. Result: `{"budget", "unit", "limit"}`.

    The new limit applies from the next model call. The rest of the budget's definition is unchanged.
    """

    action: Literal["change_budget"]
    """The name of this action."""
    budget: Name
    """The name of the budget, as `get_budgets` lists it."""
    limit: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """The new limit, in the budget's unit: US dollars or tokens."""


class GetFleet(_Request):
    """Read the limits, queues, health and scaling decisions of the agents. Operators only.

    Result: `helix.core.reports.FleetFound`, with the agents sorted by name.
    """

    action: Literal["get_fleet"]
    """The name of this action."""
    limit: Limit = 20
    """The maximum number of agents on the page."""
    after: Name | None = None
    """The `cursor` of the previous page. None for the first page."""
    agent: Name | None = None
    """The agent to read. None: all agents."""
    waiting: Annotated[int, Field(ge=0, le=PAGE)] = 5
    """The maximum number of waiting runs to return for each agent."""
    decisions: Annotated[int, Field(ge=0, le=PAGE)] = 5
    """The maximum number of scaling decisions to return for each agent."""


class GetUsage(_Request):
    """Read the usage of a user. Result: `{"user", "since", "usd", "lines"}`."""

    action: Literal["get_usage"]
    """The name of this action."""
    user: Name | None = None
    """The user. None: the caller. Only operators may name another user, and they must name one."""
    hours: Annotated[int, Field(ge=1, le=168)] | None = None
    """The number of hours to include, counting the current hour. None: all usage so far."""


class ListAgents(_Request):
    """List the agents that `run` accepts, sorted by name. Result: `{"agents", "cursor"}`.

    Each agent has a `name`, a `description` and a `kind` (`chat` or `function`). `input` is the JSON schema of the
    fields that `run` accepts besides `agent`, and `output` that of the result's output.
    """

    action: Literal["list_agents"]
    """The name of this action."""
    limit: Limit = 20
    """The maximum number of agents on the page."""
    after: Name | None = None
    """The `cursor` of the previous page. None for the first page."""


class ReadStream(_OfSession):
    """Read a page of a session's stored stream. Result: `{"stream_id", "messages"}`."""

    action: Literal["read_stream"]
    """The name of this action."""
    after: int = Field(default=0, ge=0)
    """The sequence after which the page starts. 0: the beginning of the stream."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    """The maximum number of messages on the page."""


class ReadRows(_OfSession):
    """Read a page of the stored rows of a session, or of its stream.

    Result: `{"rows", "cursor"}`. Each row is `[sort, value]`.
    """

    action: Literal["read_rows"]
    """The name of this action."""
    stream: bool = False
    """Whether to read the rows of the stream instead of the session's."""
    after: Name | None = None
    """The `cursor` of the previous page. None for the first page."""
    limit: Limit = PAGE
    """The maximum number of rows on the page."""


class _Copy(_OfSession):
    checkpoint_id: Name | None = None
    """The checkpoint to copy from. None: the latest."""
    target: SessionId | None = None
    """The id of the new session, which must begin with the caller's prefix. None: the service generates one."""
    key: Key | None = None
    """An idempotency key: repeating the request returns the copy that was made with the same key."""


class Branch(_Copy):
    """Create a new session from a checkpoint. Result: `{"session_id"}`."""

    action: Literal["branch"]
    """The name of this action."""


class Clone(_Copy):
    """Copy a session up to a checkpoint or a message. Result: `{"session_id"}`."""

    action: Literal["clone"]
    """The name of this action."""
    message_index: int | None = Field(default=None, ge=0)
    """The number of messages to copy from the beginning. Fewer are copied if a call would lose its result.

    Give this or `checkpoint_id`, not both.
    """


class Delete(_OfSession):
    """Delete a session, its sub-agents' sessions and its stream. Result: `{"deleted"}`, which is always true."""

    action: Literal["delete"]
    """The name of this action."""


class Ping(_Request):
    """Keep the connection open. Result: `{"now"}`, the service's current time in Unix seconds."""

    action: Literal["ping"]
    """The name of this action."""


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
    def _counts(self) -> Part:
        if self.index >= self.total:
            raise ValueError("index is below total")
        return self
