"""Requests that read, copy and delete sessions."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from helix.core.request_fields import (
    PAGE,
    BaseRequest,
    Key,
    Limit,
    Name,
    RunId,
    SessionId,
    SessionRequest,
    Token,
    UnixTime,
)
from helix.core.status import SessionStatus


class GetSession(SessionRequest):
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


class ListSessions(BaseRequest):
    """List the caller's root sessions, newest id first. Operators see the sessions of all users, or of `user`.

    Result: `{"sessions", "cursor", "damaged"}`, and `"facets"` on request. A page may be short even if there are more
    sessions. Fields other than `limit`, `after`, `user`, `titles` and `facets` are filters.
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
    tool: Name | None = None
    """The name of a tool that the model of the sessions has called."""
    error: Name | None = None
    """The code of the error that ended the sessions' last run."""
    cost_from: Annotated[int, Field(ge=0)] | None = None
    """The lowest cost of the sessions, in micro-dollars."""
    cost_to: Annotated[int, Field(ge=0)] | None = None
    """The highest cost of the sessions, in micro-dollars."""
    since: float | None = None
    """The earliest time of the last change, in Unix seconds."""
    until: float | None = None
    """The latest time of the last change, in Unix seconds."""
    waiting: bool = False
    """Whether to list only sessions that wait for a person."""
    text: Annotated[str, Field(max_length=200)] | None = None
    """Search words. Each must occur in the id, the agent, the tags, the status, the title that a person gave, or the
    first 80 characters of the first message. Other messages are not searched.

    The search ignores case.
    """
    titles: bool = False
    """Whether a session without a given title has the beginning of its first message as its `title`."""
    facets: bool = False
    """Whether to count the sessions by agent, user, status, tag, tool and error."""


class ListCheckpoints(SessionRequest):
    """List the checkpoints of a session, newest first and without states. Result: `{"checkpoints", "cursor"}`."""

    action: Literal["list_checkpoints"]
    """The name of this action."""
    limit: Limit = 20
    """The maximum number of checkpoints on the page."""
    after: Name | None = None
    """The `cursor` of the previous page, or the id of any checkpoint. None for the first page."""


class GetCheckpoint(SessionRequest):
    """Read a checkpoint. Result: `{"checkpoint"}`, as in `list_checkpoints` but with its `custom_state`."""

    action: Literal["get_checkpoint"]
    """The name of this action."""
    checkpoint_id: Name | None = None
    """The checkpoint to read. None: the latest."""


class DiffCheckpoints(SessionRequest):
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


class Compare(SessionRequest):
    """Compare two runs side by side, or two whole sessions: what was asked and answered, their steps and their states.

    Result: `helix.core.comparison.Comparison`. A run is compared together with the runs that it continues.
    """

    action: Literal["compare"]
    """The name of this action."""
    run_id: RunId | None = None
    """The run of `session_id`. None: the whole session."""
    other_session_id: SessionId
    """The session of the other side. It may be the same session."""
    other_run_id: RunId | None = None
    """The run of `other_session_id`. None: the whole session."""


class GetStep(SessionRequest):
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


class GetContext(SessionRequest):
    """Read what the model was shown at a step: the messages, and which ones were hidden or cleared.

    Result: `helix.core.context_replies.ContextFound`.
    """

    action: Literal["get_context"]
    """The name of this action."""
    step: Annotated[int, Field(ge=1)] | None = None
    """The number of the step. None: the next step, as it would be shown now."""
    run_id: RunId | None = None
    """The run that bought the step. None: the step of the present history."""


class GetCost(SessionRequest):
    """Return the itemized cost of a session and its sub-agents' sessions.

    Result: `{"session_id", "usd", "services", "agrees", "prices", "left_out", "lines"}`. Refused for sessions with more
    than 20,000 rows.
    """

    action: Literal["get_cost"]
    """The name of this action."""


class GetExecutions(SessionRequest):
    """Return the executions in Step Functions that carry out a run, and where its log is. Operators only.

    Result: `{"session_id", "run_id", "stage", "executions", "log_groups", "logs_url"}`. On a developer's machine there
    is no stage, and no execution.
    """

    action: Literal["get_executions"]
    """The name of this action."""
    run_id: RunId | None = None
    """The run. None: the session's current or last run."""


class GetLogs(SessionRequest):
    """Read a page of the log lines that name a run, from the logs of the functions that carry out runs. Operators only.

    Result: `{"session_id", "run_id", "lines", "cursor"}`. The functions' logs are read one after the other, for some
    seconds, so a page may be short or empty even if there are more lines. Refused where runs are not carried out by the
    functions of a stage.
    """

    action: Literal["get_logs"]
    """The name of this action."""
    run_id: RunId | None = None
    """The run. None: the session's current or last run."""
    since: UnixTime | None = None
    """The earliest time of the lines, in Unix seconds. None: a minute before the run began."""
    until: UnixTime | None = None
    """The latest time of the lines, in Unix seconds. None: five minutes after the run's end, or now."""
    after: Token | None = None
    """The `cursor` of the previous page, whose request had the same fields. None for the first page. It expires after
    24 hours."""
    limit: Limit = PAGE
    """The maximum number of lines on the page."""


class ReadRows(SessionRequest):
    """Read a page of the stored rows of a session, or of its stream.

    Result: `{"rows", "cursor"}`. Each row is `[sort, value]`. With `lines`, the result has them in `export` instead.
    """

    action: Literal["read_rows"]
    """The name of this action."""
    stream: bool = False
    """Whether to read the rows of the stream instead of the session's."""
    after: Name | None = None
    """The `cursor` of the previous page. None for the first page."""
    limit: Limit = PAGE
    """The maximum number of rows on the page."""
    lines: bool = False
    """Whether to return the rows as lines of an export, which keep each number as it is stored."""


class Compact(SessionRequest):
    """Ask that the session's next step first replaces the beginning of the conversation by a summary. Idempotent; the
    last focus counts. Result: `{}`."""

    action: Literal["compact"]
    """The name of this action."""
    focus: Annotated[str, Field(max_length=1000)] = ""
    """The topic that the summary should pay attention to. Empty for no particular focus."""


class Rename(SessionRequest):
    """Give a session a title. Idempotent, and without any effect on a run. Result: `{"title"}`, as stored."""

    action: Literal["rename"]
    """The name of this action."""
    title: Annotated[str, Field(max_length=1000)]
    """The title, of at most 120 characters on one line. Empty: the title is removed."""


Tag: TypeAlias = Annotated[str, Field(min_length=1, max_length=1000)]


class ChangeTags(SessionRequest):
    """Add and remove tags of a session. Idempotent, and without any effect on a run. Result: `{"tags"}`, as stored."""

    action: Literal["change_tags"]
    """The name of this action."""
    add: list[Tag] = Field(default_factory=list, max_length=50)
    """The tags to add, of at most 256 characters on one line each. A session has at most 50."""
    remove: list[Tag] = Field(default_factory=list, max_length=50)
    """The tags to remove first. Tags that the session does not have are ignored."""


class _Copy(SessionRequest):
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


class Delete(SessionRequest):
    """Delete a session, its sub-agents' sessions and its stream. Result: `{"deleted"}`, which is always true."""

    action: Literal["delete"]
    """The name of this action."""
