"""Requests that start, continue, stop or answer a run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from helix.core.file_checks import MAX_FILES
from helix.core.files import FilePart
from helix.core.frontend_tools import MAX_FRONTEND_TOOLS, FrontendTool
from helix.core.inbox import WhenRunning
from helix.core.json import JsonObject, JsonValue
from helix.core.request_fields import (
    BaseRequest,
    CallError,
    Key,
    Name,
    Priority,
    Reason,
    RunId,
    SessionId,
    SessionRequest,
    Text,
    Token,
)
from helix.core.run_settings import RunSettings

Tools = Annotated[list[FrontendTool], Field(max_length=MAX_FRONTEND_TOOLS)]
"""The tools that a run declares."""


class Run(BaseRequest):
    """Start a run in a new session, or send the next message to an existing one. Give `message` or `input`, not both.

    Result: `{"session_id", "run_id", "turn", "stream_id", "after", "replay"}`. The run's messages have sequences above
    `after`. If `replay` is true, some of them were stored before the subscription took effect: `subscribe` with this
    `after`. If the message waits for a run that works, the result has its `queued_id` too. `turn` is 0 if the message's
    own run has not begun.
    """

    action: Literal["run"]
    """The name of this action."""
    agent: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    """The name of a registered agent."""
    message: Text | None = None
    """The user's text. It may be left out if there are `files`."""
    files: list[FilePart] = Field(default_factory=list, max_length=MAX_FILES)
    """The files of the message, each with its position in the text: as `finish_upload` returned them, or at a URL."""
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
    when_running: WhenRunning = "refuse"
    """The handling of the message if the session is running.

    refuse: the request is refused with `agent_already_running`.
    steer: the working run sees the message before its next model call. The result names the current run.
    queue: the message gets a run of its own when the working run has ended.
    interrupt: stops the working run; the message then gets a run of its own.
    A message that waits has no `state`. An edit of a message in history is refused while the session is running.
    """
    edits: bool = False
    """Whether the message replaces the earlier message with the same `message_id`.

    If that is the latest message and its text is unchanged, no run starts: the result names the run that answered it.
    """
    tools: Tools = Field(default_factory=list)
    """Tools that the client executes, for this run and the runs that continue it without a message.

    The run pauses at a call, and `answer` has the result. The agent must accept them.
    """
    settings: RunSettings | None = None
    """The run's own settings, which override those of the agent. They hold for the same runs as `tools`."""
    subscribe: bool = True
    """Whether to send the run's messages to this connection."""

    @model_validator(mode="after")
    def _one_input(self) -> Run:
        if (self.message is None and not self.files) == (self.input is None):
            raise ValueError("give message, or input, and not both")
        if self.edits and None in (self.message_id, self.session_id):
            raise ValueError("edits needs message_id and session_id: which message to edit")
        if self.when_running != "refuse" and self.state:
            raise ValueError("a message that may wait has no state: leave when_running out")
        return self


class _GoOn(SessionRequest):
    message: Text | None = None
    """The text of the next user message. None, without `files`: the session continues without one."""
    files: list[FilePart] = Field(default_factory=list, max_length=MAX_FILES)
    """The files of the message, as in `Run`."""
    key: Key | None = None
    """An idempotency key, as in `Run`."""
    tools: Tools = Field(default_factory=list)
    """As in `Run`. Without `message`, `tools` and `settings`, the run keeps those of the run that it continues."""
    settings: RunSettings | None = None
    """As in `Run`."""
    subscribe: bool = True
    """Whether to send the run's messages to this connection."""


class Resume(_GoOn):
    """Continue an interrupted or paused session, or go back to a checkpoint. Result: as for `Run`."""

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
    """Retry a failed session. Result: as for `Run`."""

    action: Literal["retry"]
    """The name of this action."""
    mode: Literal["from_checkpoint", "from_start"] = "from_checkpoint"
    """The place to restart: the last committed step, or the beginning of the failed run."""


class _Stop(SessionRequest):
    run_id: RunId | None = None
    """The run to stop. None: the session's current run."""
    reason: Reason | None = None
    """The reason, stored with the run."""


class Withdraw(SessionRequest):
    """Take back a message that waits in the inbox of a session. Result: `{"withdrawn"}`.

    It is `withdrawn`, or `delivered` if the message is in history already, or `not_found` if no such message waits.
    """

    action: Literal["withdraw"]
    """The name of this action."""
    queued_id: Name
    """The `id` of a message in `inbox`."""


class Interrupt(_Stop):
    """Ask a run to stop. `resume` continues it. Result: `{"interrupted"}`, which is false if the run had already
    ended."""

    action: Literal["interrupt"]
    """The name of this action."""


class Abort(_Stop):
    """Fail a run permanently. Idempotent. Result: `{}`."""

    action: Literal["abort"]
    """The name of this action."""


class AnswerAction(SessionRequest):
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
    round: int | None = None
    """The `round` of the questions that `data` answers. If the call asks other questions by now, the request is refused."""
    subscribe: bool = True
    """Whether to send the run's messages to this connection."""


class ReportCall(BaseRequest):
    """Report the result of a call that ends elsewhere, its failure, or a heartbeat. Result: `{"expires_at"}`.

    The token is the only credential: the caller need not own the session. The same result again is acknowledged.
    """

    action: Literal["report_call"]
    """The name of this action."""
    token: Token
    """The token of the call (`helix.core.context.ToolContext.later`)."""
    data: JsonValue = None
    """The result, unless `error` or `heartbeat` is given."""
    error: CallError | None = None
    """The error message of a call that failed."""
    heartbeat: bool = False
    """Whether the call is still at work. It then waits on."""

    @model_validator(mode="after")
    def _one_report(self) -> ReportCall:
        if sum((self.data is not None, self.error is not None, self.heartbeat)) > 1:
            raise ValueError("give one of data, error and heartbeat")
        return self
