"""The replies of the WebSocket protocol about sessions, their runs and their checkpoints.

Law: a field of a `PartialReply` that has its default may be left out. The other fields are always there.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import ConfigDict, Field

from helix.core.handles import CanResumeResult, SessionSnapshot, SessionState, SubSessionRef
from helix.core.json import JsonObject, JsonValue
from helix.core.messages import Message, Record
from helix.core.rows import ErrorInfo, Pending
from helix.core.run_row import RunRow
from helix.core.status import AgentStatus, EndStatus, SessionStatus
from helix.core.usage import Usage


class PartialReply(Record):
    """A model whose fields with defaults may be left out."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)


class Queued(Record):
    """The queue position of a run that waits for a slot."""

    place: int
    """The position in the agent's queue. Position 1 gets the next free slot."""
    expires_at: float
    """The time when the wait times out and the run is ended, in Unix seconds."""
    reason: str | None
    """Why a budget has stopped the agent, so that none of its runs start. None if the agent merely has no free slot."""


class RunFound(PartialReply):
    """The result of a run, as in `helix.AgentResult`. While it is `running`, fields from `output` on are left out."""

    session_id: str
    """The session of the run."""
    run_id: str
    """The run that the request named."""
    status: Literal["running"] | EndStatus
    """The status of the run. `running` also means that it waits for a slot, or its message for another run."""
    turn: int
    """The number of the run in its session, starting at 1. 0 if its message still waits in `inbox`."""
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
    agent: str = ""
    """The name of the agent that ended the run. The output is of its schema."""
    usage: Usage = Usage()
    """The usage of the run, including its sub-agents."""
    steps: int = 0
    """The number of steps that the run took."""


class SessionFound(PartialReply):
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


class ListedSession(PartialReply):
    """A `SessionState` without `custom_state`, `output` and `inbox`, and with a title. Times are in Unix seconds."""

    session_id: str
    """The id of the session."""
    agent_type: str
    """The name of the session's own agent, which never changes."""
    active_agent: str
    """The name of the agent that makes the next step: the session's own, or the one that was handed over to."""
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
    """The session's tags."""
    metadata: JsonObject
    """The metadata that the session was created with."""
    in_batch: bool = False
    """Whether the current run waits for a provider's batch."""
    lease_expires: float
    """The time when the worker's lease on an in-process run expires. 0 for other runs, and after the run has ended."""
    created_at: float
    """The time when the session was created."""
    updated_at: float
    """The time of the last change."""
    title: str = ""
    """The title that a person gave the session. Without one, the beginning of the first message, at most 80 characters, if
    the request asked for `titles`."""


class FacetCounts(Record):
    """The numbers of sessions by value, at most 100 values each. A facet is counted among the sessions that match all
    other filters."""

    COUNTED: ClassVar = ("agent", "user", "status", "tag", "tool", "error")

    sessions: int
    """The number of sessions that were compared with the filters: at most the newest 10,000 after `after`."""
    complete: bool
    """Whether these were all sessions."""
    agent: dict[str, int]
    """The number of sessions of each agent."""
    user: dict[str, int]
    """The number of sessions of each user."""
    status: dict[str, int]
    """The number of sessions with each status."""
    tag: dict[str, int]
    """The number of sessions with each tag."""
    tool: dict[str, int]
    """The number of sessions whose model called each tool."""
    error: dict[str, int]
    """The number of sessions whose last run ended with each error code."""


class SessionList(PartialReply):
    """The result of `list_sessions`."""

    sessions: list[ListedSession]
    """A page of sessions, newest id first. It may be short or empty even if there are more."""
    cursor: str | None
    """The value of `after` for the next page. None on the last page."""
    damaged: list[str]
    """The ids of sessions on this page whose rows cannot be read."""
    facets: FacetCounts | None = None
    """The counts. Present only if the request asked for `facets`."""


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
    view: int
    """The session version in the key of the view that the model was shown. 0: it was shown the whole history."""
    active_agent: str
    """The agent that makes the next step. Empty before the first handoff: the session's own agent."""
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


class Execution(Record):
    """An execution in Step Functions. A long run is carried out by several, one after the other."""

    part: int
    """The number of the execution within its run, starting at 1."""
    arn: str
    """The ARN of the execution."""
    url: str | None
    """The address in the AWS console. None in a partition without a known console."""


class ExecutionsFound(Record):
    """The result of `get_executions`. AWS deletes an execution 90 days after its end, and the addresses stay."""

    session_id: str
    """The requested session."""
    run_id: str
    """The run that the executions carry out."""
    stage: str | None
    """The name of the stage, for `helix logs --stage`. None on a developer's machine."""
    executions: list[Execution]
    """The executions, oldest first. Only the last one if the run changed to another agent's functions. Empty without a
    stage."""
    log_groups: str | None
    """The beginning of the names of the stage's log groups. None without a stage."""
    logs_url: str | None
    """The address of these log groups in the AWS console. None without a stage or a known console."""


class ExportLine(Record):
    """A row as a line of an export."""

    sort: str
    """The sort key of the row."""
    line: str
    """The JSON text of the line, in ASCII."""


class ExportPage(Record):
    """A page of rows as lines of an export."""

    head: str
    """The first line of an export of this session."""
    lines: list[ExportLine]
    """The rows. Request heads that several pages have belong into an export once."""
    children: list[str]
    """The sub-agents' sessions that these rows name."""
    files: list[str]
    """The hashes of the stored files that these rows name."""


class LogLine(Record):
    """A line of a function's log."""

    at: float
    """The time of the line, in Unix seconds."""
    function: str
    """The function that wrote the line, without the prefix of its stage, such as `call_model`."""
    level: str
    """The level of the line: `DEBUG`, `INFO`, `WARNING`, `ERROR` or `CRITICAL`. `INFO` if the line does not have one."""
    text: str
    """The message with its fields, or the metrics, on one line. After 2,500 bytes it is cut, and ends with `…`."""


class LogsFound(Record):
    """The result of `get_logs`."""

    session_id: str
    """The requested session."""
    run_id: str
    """The run that the lines name."""
    lines: list[LogLine]
    """A page of lines, sorted by time. Lines of later pages may be earlier, because each function has its own log."""
    cursor: str | None
    """The value of `after` for the next page. None on the last page."""


class RowPage(Record):
    """The result of `read_rows`."""

    rows: list[tuple[str, JsonObject]]
    """A page of stored rows, sorted by key. Each row is `[sort, value]`: its sort key and its JSON value. Request heads
    (`q#<id>`) that all sessions share are included beside the rows that name them, so two pages may have the same
    one."""
    cursor: str | None
    """The value of `after` for the next page. None on the last page."""
    export: ExportPage | None = None
    """With `lines`, the rows as lines of an export, and `rows` is empty. None without."""


class Renamed(Record):
    """The result of `rename`."""

    title: str
    """The title as stored. Empty if the session has none."""


class TagsChanged(Record):
    """The result of `change_tags`."""

    tags: list[str]
    """The session's tags as stored."""


class Copied(Record):
    """The result of `branch` and `clone`."""

    session_id: str
    """The new session."""


class Deleted(Record):
    """The result of `delete`."""

    deleted: Literal[True]
    """Always true: a session that does not exist is an error."""
