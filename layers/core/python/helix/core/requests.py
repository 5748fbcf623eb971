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
"""An idempotency key. A repeat with the same key, from any connection, has no second effect."""
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
    """The client's own name for the request. The reply, or the error, has it too."""


class _OfSession(_Request):
    session_id: SessionId
    """The session that the request is about."""


class Authenticate(_Request):
    """Renew the connection's proof with a new token of the same user, or ask whose connection this is.

    Result: `{"principal", "expires_at", "operator", "prefix"}`. Session ids that a client chooses begin with `prefix`.
    """

    action: Literal["authenticate"]
    """The name of this action."""
    token: Token | None = None
    """A new token of the same user. None: change nothing and report whose connection this is."""


class Run(_Request):
    """Start a run: in a new session, or with the next message of an existing one. Give `message` or `input`, not both.

    Result: `{"session_id", "run_id", "turn", "stream_id", "after", "replay"}`. The run's messages have sequences above
    `after`. If `replay` is true, some of them were stored before the subscription: subscribe after `after`.
    """

    action: Literal["run"]
    """The name of this action."""
    agent: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    """The name of a registered agent."""
    message: Text | None = None
    """The user's text."""
    message_id: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    """The front end's id of the message. The stored message has it as `metadata.id`."""
    input: JsonObject | None = None
    """The parameters of a function agent. A chat agent takes `{"message": ...}` here."""
    state: JsonObject | None = None
    """An object that is merged over the session's custom state, key by key."""
    session_id: SessionId | None = None
    """An existing session, or the id of a new one. None: the service makes a session.

    The id of a new session must begin with the caller's prefix (see `Authenticate`).
    """
    tags: list[Annotated[str, StringConstraints(max_length=256)]] = Field(default_factory=list, max_length=50)
    """The tags of a new session. An existing session keeps its own."""
    metadata: JsonObject = Field(default_factory=dict)
    """The metadata of a new session. An existing session keeps its own."""
    priority: Priority | None = None
    """The priority of the session's runs that wait for a slot: a higher one goes first.

    A client may set 0 or less. None: an existing session keeps its priority, a new one has 0.
    """
    key: Key | None = None
    """A name that makes repeats harmless: a repeat returns the run that was started under the same key.

    Without a key, the same holds for a repeat with the same `id` on the same connection.
    """
    edits: bool = False
    """Whether the message replaces the one with the same `message_id`.

    If that is the newest message and has the same text, nothing starts: the result names the run that answered it.
    """
    subscribe: bool = True
    """Whether this connection is sent the run's messages."""

    @model_validator(mode="after")
    def _one_input(self) -> Run:
        if (self.message is None) == (self.input is None):
            raise ValueError("give message, or input, and not both")
        if self.edits and None in (self.message_id, self.session_id):
            raise ValueError("edits needs message_id and session_id: which message to edit")
        return self


class _GoOn(_OfSession):
    message: Text | None = None
    """The user's next text. None: the session continues without one."""
    key: Key | None = None
    """A name that makes repeats harmless, as in `Run`."""
    subscribe: bool = True
    """Whether this connection is sent the run's messages."""


class Resume(_GoOn):
    """Continue an interrupted or paused session, or go back to a checkpoint. The result is that of `Run`."""

    action: Literal["resume"]
    """The name of this action."""
    mode: Literal["continue", "with_message", "from_checkpoint"] = "continue"
    """The way to continue.

    continue: execute pending calls, then continue. A `message` makes it `with_message`, a `checkpoint_id` makes it
        `from_checkpoint`.
    with_message: close pending calls, then take the new `message`.
    from_checkpoint: go back to `checkpoint_id` and continue from there.
    """
    checkpoint_id: Name | None = None
    """The checkpoint to go back to."""


class Retry(_GoOn):
    """Try a failed session again. The result is that of `Run`."""

    action: Literal["retry"]
    """The name of this action."""
    mode: Literal["from_checkpoint", "from_start"] = "from_checkpoint"
    """The place to start from: the last committed step, or the beginning of the failed run."""


class _Stop(_OfSession):
    run_id: RunId | None = None
    """The run to stop. None: the session's current run."""
    reason: Reason | None = None
    """The reason, which is stored with the run."""


class Interrupt(_Stop):
    """Ask a run to stop. `resume` continues it. Result: `{"interrupted"}`, which is false if the run had ended."""

    action: Literal["interrupt"]
    """The name of this action."""


class Abort(_Stop):
    """Fail a run for good. Idempotent. Result: `{}`."""

    action: Literal["abort"]
    """The name of this action."""


class AnswerAction(_OfSession):
    """Answer a call that waits for a person, in the session or in a sub-agent below it. The first answer counts.

    The result is that of `Run`, where `run_id` is the session's current run. `resumed` says whether the answer started a
    run.
    """

    action: Literal["answer"]
    """The name of this action."""
    tool_call_id: Name
    """The `call_id` of a call in `pending`."""
    approved: bool = True
    """Whether the call is approved. False denies it."""
    data: JsonValue = None
    """The data of the answer, as in `helix.core.handles.Confirmation`."""
    reason: Reason | None = None
    """The reason for a denial, which the model sees."""
    arguments: JsonObject | None = None
    """The arguments that an approved call is executed with. None: those of the model.

    If they do not fit the tool's schema, the request is refused and the call continues to wait.
    """
    subscribe: bool = True
    """Whether this connection is sent the run's messages."""


class _OfStream(_Request):
    session_id: SessionId | None = None
    """The session whose stream is meant. Give this or `stream_id`, not both."""
    stream_id: SessionId | None = None
    """The stream. Give this or `session_id`, not both."""

    @model_validator(mode="after")
    def _one_stream(self) -> _OfStream:
        if (self.session_id is None) == (self.stream_id is None):
            raise ValueError("give session_id, or stream_id, and not both")
        return self


class Subscribe(_OfStream):
    """Send the stored messages of a stream after a sequence, and then the new ones.

    Result: `{"stream_id", "caught_up", "complete"}`. Stored messages up to `caught_up` have been sent. If `complete` is
    false, there are more: subscribe again with `caught_up` as `after`.
    """

    action: Literal["subscribe"]
    """The name of this action."""
    after: int = Field(default=0, ge=0)
    """The last sequence that the client has. 0: send the stream from its beginning."""


class Unsubscribe(_OfStream):
    """Stop sending the messages of a stream. Result: `{"stream_id"}`."""

    action: Literal["unsubscribe"]
    """The name of this action."""


class GetSession(_OfSession):
    """Read a session, and more of it on request.

    Result: `{"session", "can_resume"}`, and the parts that the fields below ask for. While the current run waits for a
    slot, `"queued"` has its `{"place", "expires_at", "reason"}`. Place 1 is the next of its agent to start.
    """

    action: Literal["get_session"]
    """The name of this action."""
    run_id: RunId | None = None
    """The run whose end is added as `"run"`. Its status is `running` if it has not ended."""
    messages: int = Field(default=0, ge=0, le=PAGE)
    """The number of messages to add as `"messages"`: the newest ones, or those before `before`."""
    before: int | None = Field(default=None, ge=0)
    """The index after the last of these messages. None: the newest messages."""
    runs: int = Field(default=0, ge=0, le=PAGE)
    """The number of runs to add as `"runs"`: the newest ones, or those before `runs_before`."""
    runs_before: RunId | None = None
    """The run after the last of these runs, which are newest first. None: the newest runs."""
    sub_sessions: bool = False
    """Whether to add the sessions of the sub-agents as `"sub_sessions"`."""
    snapshot: bool = False
    """Whether to add the conversation as `"snapshot"`, with the sequence from which the stream continues it."""
    newest: int | None = Field(default=None, ge=1, le=PAGE)
    """The number of newest messages in the snapshot. None: all messages."""


class ListSessions(_Request):
    """List the caller's root sessions, newest id first. An operator gets those of all users, or of `user`.

    Result: `{"sessions", "cursor", "damaged"}`. A page may be short although there are more sessions. Fields other than
    `limit`, `after`, `user` and `titles` are filters.
    """

    action: Literal["list_sessions"]
    """The name of this action."""
    limit: Limit = 20
    """The largest number of sessions on the page."""
    after: Name | None = None
    """The `cursor` of the previous page. None: the first page."""
    user: Name | None = None
    """The user whose sessions are listed. Only an operator may name another user."""
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
    """Words that must all occur in the id, the agent, the tags, the status or the beginning of the first message.

    Case does not matter.
    """
    titles: bool = False
    """Whether to add a `title` to each session: the beginning of its first message."""


class ListCheckpoints(_OfSession):
    """List the checkpoints of a session, newest first and without states. Result: `{"checkpoints", "cursor"}`."""

    action: Literal["list_checkpoints"]
    """The name of this action."""
    limit: Limit = 20
    """The largest number of checkpoints on the page."""
    after: Name | None = None
    """The `cursor` of the previous page, or the id of any checkpoint. None: the first page."""


class GetCheckpoint(_OfSession):
    """Read a checkpoint. Result: `{"checkpoint"}`, as `list_checkpoints` has it, with its `custom_state`."""

    action: Literal["get_checkpoint"]
    """The name of this action."""
    checkpoint_id: Name | None = None
    """The checkpoint to read. None: the latest."""


class DiffCheckpoints(_OfSession):
    """Compare two checkpoints of a session.

    Result: `{"before", "after", "patches", "messages", "offset", "added", "removed"}`. `before` and `after` are the ids
    of the checkpoints. The RFC 6902 `patches` turn the first state into the second. `messages` is a page of those that
    only the second checkpoint has. `added` and `removed` count the messages that only the second, or only the first,
    has.
    """

    action: Literal["diff_checkpoints"]
    """The name of this action."""
    before: Name
    """The checkpoint to compare with."""
    checkpoint_id: Name | None = None
    """The second checkpoint. None: the latest."""
    offset: int = Field(default=0, ge=0)
    """The index of the first added message to return."""
    limit: Limit = 20
    """The largest number of added messages to return."""


class GetStep(_OfSession):
    """Explain how a step was bought: its attempts, what each showed, and the results of its calls.

    Result: `helix.core.reports.StepFound`.
    """

    action: Literal["get_step"]
    """The name of this action."""
    step: Annotated[int, Field(ge=1)]
    """The number of the step. After a rewind two steps may have it: the newest is meant, or that of `run_id`."""
    run_id: RunId | None = None
    """The run whose step is meant."""


class GetCost(_OfSession):
    """Compute the cost of a session and of its sub-agents' sessions, line by line.

    Result: `{"session_id", "usd", "services", "agrees", "prices", "left_out", "lines"}`. Refused for a session of more
    than 20,000 rows.
    """

    action: Literal["get_cost"]
    """The name of this action."""


class GetBudgets(_OfSession):
    """Read the budgets that bind a session, in their current windows.

    Result: `{"session_id", "budgets"}`. The `run` of a budget is what the session's current run has spent and set aside.
    Only an operator sees the amounts of a budget of all users, or of an agent.
    """

    action: Literal["get_budgets"]
    """The name of this action."""


class ChangeBudget(_Request):
    """Change the limit of a budget. Operators only. Result: `{"budget", "unit", "limit"}`.

    The new limit holds from the next model call on. The rest of the budget's definition stays.
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
    """The largest number of agents on the page."""
    after: Name | None = None
    """The `cursor` of the previous page. None: the first page."""
    agent: Name | None = None
    """The only agent to read. None: all agents."""
    waiting: Annotated[int, Field(ge=0, le=PAGE)] = 5
    """The largest number of waiting runs to return for each agent."""
    decisions: Annotated[int, Field(ge=0, le=PAGE)] = 5
    """The largest number of scaling decisions to return for each agent."""


class GetUsage(_Request):
    """Read the usage of a user. Result: `{"user", "since", "usd", "lines"}`."""

    action: Literal["get_usage"]
    """The name of this action."""
    user: Name | None = None
    """The user. None: the caller. Only an operator may name another user, and has to name one."""
    hours: Annotated[int, Field(ge=1, le=168)] | None = None
    """The number of past hours to count, the current one included. None: all usage so far."""


class ListAgents(_Request):
    """List the agents that `run` accepts, sorted by name. Result: `{"agents", "cursor"}`.

    Each agent has a `name`, a `description` and a `kind` (`chat` or `function`). `input` is the JSON schema of the
    fields that `run` takes besides the agent, `output` that of the result's output.
    """

    action: Literal["list_agents"]
    """The name of this action."""
    limit: Limit = 20
    """The largest number of agents on the page."""
    after: Name | None = None
    """The `cursor` of the previous page. None: the first page."""


class ReadStream(_OfSession):
    """Read a page of a session's stored stream. Result: `{"stream_id", "messages"}`."""

    action: Literal["read_stream"]
    """The name of this action."""
    after: int = Field(default=0, ge=0)
    """The sequence after which the page begins. 0: the beginning of the stream."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    """The largest number of messages on the page."""


class ReadRows(_OfSession):
    """Read a page of the stored rows of a session, or of its stream.

    Result: `{"rows", "cursor"}`. Each row is `[sort, value]`.
    """

    action: Literal["read_rows"]
    """The name of this action."""
    stream: bool = False
    """Whether to read the rows of the stream in place of the session's."""
    after: Name | None = None
    """The `cursor` of the previous page. None: the first page."""
    limit: Limit = PAGE
    """The largest number of rows on the page."""


class _Copy(_OfSession):
    checkpoint_id: Name | None = None
    """The checkpoint to copy from. None: the latest."""
    target: SessionId | None = None
    """The id of the new session, which begins with the caller's prefix. None: the service makes one."""
    key: Key | None = None
    """A name that makes repeats harmless: a repeat returns the copy that was made under the same key."""


class Branch(_Copy):
    """Make a new session from a checkpoint. Result: `{"session_id"}`."""

    action: Literal["branch"]
    """The name of this action."""


class Clone(_Copy):
    """Copy a session up to a checkpoint or a message. Result: `{"session_id"}`."""

    action: Literal["clone"]
    """The name of this action."""
    message_index: int | None = Field(default=None, ge=0)
    """The number of first messages to copy. Fewer are copied where a call would lose its result.

    Give this or `checkpoint_id`, not both.
    """


class Delete(_OfSession):
    """Delete a session, its sub-agents' sessions and its stream. Result: `{"deleted"}`, which is always true."""

    action: Literal["delete"]
    """The name of this action."""


class Ping(_Request):
    """Keep the connection open. Result: `{"now"}`, the time of the service in Unix seconds."""

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
    """A part of a long request, for clients that cannot send a message in several frames, such as browsers."""

    v: Literal[1]
    """The version of the protocol."""
    type: Literal["part"]
    """The type of this message. Requests have an `action` in its place."""
    part: Id
    """The `id` of the request, which all its parts share."""
    index: Annotated[int, Field(ge=0)]
    """The place of this part, from 0 on."""
    total: Annotated[int, Field(ge=1, le=MAX_REQUEST_PARTS)]
    """The number of parts."""
    data: Text
    """A piece of the JSON text of the request. All pieces, joined in the order of `index`, are the text."""

    @model_validator(mode="after")
    def _counts(self) -> Part:
        if self.index >= self.total:
            raise ValueError("index is below total")
        return self
