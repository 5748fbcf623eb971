"""A run from its caller's point of view: the same handle and result, wherever the run is executed and however it is
reached.

Law: a handle consists only of ids and a way to reach the service. Dropping it loses nothing: the run continues.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field

from helix.core.chunks import StreamChunk
from helix.core.errors import InvalidInputError
from helix.core.files import Content
from helix.core.inbox import WaitingMessage
from helix.core.json import JsonObject, JsonValue
from helix.core.messages import Message, Record
from helix.core.partial_output import OutputDiscarded, OutputItem, output_items, partial_outputs
from helix.core.rows import ErrorInfo, Pending
from helix.core.status import AgentStatus, EndStatus, SessionStatus, SubSessionStatus
from helix.core.usage import Usage
from helix.core.wire import StreamMessage

if TYPE_CHECKING:
    from helix.core.agents import AnyAgent  # clients work without agents

OutputT = TypeVar("OutputT")
ResumeMode = Literal["continue", "with_message", "with_confirmation", "from_checkpoint"]
RetryMode = Literal["from_checkpoint", "from_start"]
CanResumeReason = Literal[
    "running", "completed", "failed_use_retry", "aborted", "not_found", "pending_confirmation", "agent_not_registered"
]


def check_mode(mode: str, modes: Any) -> None:
    """Raise `InvalidInputError` if the mode is not one of `modes`: `ResumeMode` or `RetryMode`."""
    if mode not in get_args(modes):
        raise InvalidInputError(f"mode is {mode!r}: use one of {', '.join(get_args(modes))}")


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A person's or client's response to a pending call."""

    tool_call_id: str
    """The `call_id` of a call in `pending`, in this session or in a sub-agent's."""
    approved: bool = True
    """Whether the call is approved. False denies it or, for an unknown outcome, reports what really happened."""
    data: JsonValue = None
    """The data of the response. Its meaning depends on what the call waits for.

    An approval: a JSON object that the tool reads as `ctx.confirmation`.
    A client tool: its result.
    A question: the answer. Several questions of one call: a list with an answer to each, in their order.
    An unknown outcome, with `approved=False`: what really happened. With None, the model is told that the outcome is
    unknown.
    """
    reason: str | None = None
    """The reason for a denial, which the model sees."""
    arguments: JsonObject | None = None
    """The arguments to execute an approved call with. None keeps the model's arguments."""
    by: str | None = None
    """The user who responds, as the service identified them. It is stored with the response. A client cannot set it: a
    service takes the user from the request's proof. None if the service does not identify its users."""
    round: int | None = None
    """The `round` of the questions that the response answers. If the call asks other questions by now, the response is
    refused. None: it answers whatever the call asks."""


class CanResumeResult(Record):
    """The answer to whether `resume` would continue a session."""

    model_config = ConfigDict(extra="ignore")

    can_resume: bool
    """True if `resume` would continue the session. With the reason `pending_confirmation`, it needs a response to a
    call."""
    reason: CanResumeReason | None = None
    """Why the session cannot be resumed, or what resuming it requires. None if it can be resumed as it is.

    pending_confirmation: the session can be resumed with a response to a pending call.
    failed_use_retry: the session failed. `retry` continues it.
    """


def with_parameters(agent: AnyAgent, pending: Sequence[Pending]) -> list[Pending]:
    """Return the calls, adding the JSON schema of the arguments where the agent has the tool."""
    tools = [agent.find_tool(call.tool_name) for call in pending]
    return [
        call if tool is None else call.model_copy(update={"parameters": tool.parameters})
        for call, tool in zip(pending, tools, strict=True)
    ]


class SessionState(Record):
    """The committed state of a session, after its last run or during its current run. Times are in Unix seconds."""

    model_config = ConfigDict(extra="ignore")

    session_id: str
    """The id of the session."""
    agent_type: str
    """The name of the session's own agent, which never changes."""
    active_agent: str = ""
    """The name of the agent that makes the next step: the session's own, or the one that was handed over to. Empty if the
    service is older than handoffs."""
    stream_id: str
    """The stream of the session's chunks. It has the id of the session, or of its root session for a sub-agent."""
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
    custom_state: JsonObject
    """The custom state that tools have committed."""
    checkpoint_id: str
    """The newest checkpoint."""
    output: JsonValue = None
    """The output of the last run, as JSON. None if the run did not complete, or completed with text only."""
    error: ErrorInfo | None = None
    """The error that the last run ended with. None if it did not fail."""
    pending: list[Pending] = Field(default_factory=list)
    """The calls of a paused or interrupted session that wait for a response, here or in a sub-agent's session."""
    inbox: list[WaitingMessage] = Field(default_factory=list)
    """The messages that wait for the session's run, in the order of their arrival. Empty in lists of sessions."""
    usage: Usage = Usage()
    """The usage of all runs."""
    aborted: bool = False
    """Whether the session was aborted. It then accepts a new message, but no retry."""
    abort_reason: str | None = None
    """The reason that the caller of `abort` gave."""
    parent_session_id: str | None = None
    """The session that a sub-agent works for. None for a root session."""
    forked_from: JsonObject | None = None
    """The origin of a branch or clone: `session_id` and `checkpoint_id`. None for other sessions."""
    user_id: str | None = None
    """The owner of the session. None if it was made without a user."""
    tags: list[str] = Field(default_factory=list)
    """The session's tags."""
    metadata: JsonObject = Field(default_factory=dict)
    """The metadata that the session was created with."""
    title: str = ""
    """The title that a person gave the session. Empty without one."""
    in_batch: bool = False
    """Whether the current run waits for a provider's batch."""
    lease_expires: float = 0
    """The time when the worker's lease on an in-process run expires. 0 for other runs, and after the run has ended."""
    created_at: float = 0
    """The time when the session was created."""
    updated_at: float = 0
    """The time of the last change."""


class SubSessionRef(Record):
    """A reference to a sub-agent's session, as its parent sees it."""

    session_id: str
    """The session of the sub-agent."""
    agent_type: str
    """The name of the sub-agent."""
    parent_tool_call_id: str
    """The parent's tool call that started the sub-agent."""
    status: SubSessionStatus
    """The status of the session. `deleted`: its rows were deleted. `not_started`: the call has not started it yet."""


class SessionSnapshot(Record):
    """The conversation at a checkpoint, and the stream position from which to continue."""

    session_id: str
    """The session of the snapshot."""
    run_id: str
    """The current or last run of the session. Empty in a copy that has not run yet."""
    status: SessionStatus
    """The status of the session at the time of the read. It may be newer than the checkpoint."""
    checkpoint_id: str
    """The checkpoint that `messages` and `custom_state` belong to: the newest one on the stream."""
    sequence: int
    """The stream sequence that matches the snapshot. Read the stream after it."""
    messages: list[Message]
    """The messages at the checkpoint, oldest first: all of them, or only the newest ones if the caller asked for
    that."""
    offset: int = 0
    """The index in the conversation of the first message in `messages`."""
    custom_state: JsonObject
    """The custom state at the checkpoint."""
    pending: list[Pending] = Field(default_factory=list)
    """The pending calls at the time of the read."""
    inbox: list[WaitingMessage] = Field(default_factory=list)
    """The messages that wait for the session's run, at the time of the read."""


class AgentResult(BaseModel, Generic[OutputT]):
    """The result of a run that has ended."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="ignore")

    session_id: str
    """The session of the run."""
    run_id: str
    """The id of the run."""
    status: EndStatus
    """How the run ended."""
    output: OutputT | None = None
    """The output of a completed run. None if the run did not complete.

    It is an instance of the agent's output schema, or its JSON when read over a socket. Without a schema it is the last
    text, or the result of a tool with `finish_with`.
    """
    text: str | None = None
    """The text of a completed run's last answer. None if that answer had no text."""
    error: str | None = None
    """The message of the error that a failed run ended with. None for other runs."""
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
    usage: Usage = Field(default_factory=Usage)
    """The usage of the run, including its sub-agents."""
    steps: int = 0
    """The number of steps that the run took."""


class AgentExecutionHandle(Protocol[OutputT]):
    """A handle to a run, returned by executors and `HelixClient`. Any process can recreate it from its two ids."""

    session_id: str
    """The session of the run."""
    run_id: str
    """The run that the handle follows and controls."""
    queued_id: str | None
    """The id under which the caller's message waits, for `withdraw`. None if the message started its run at once."""
    output_schema: type[BaseModel] | None = None
    """The output schema of the agent. None if the agent does not declare one, or if the handle does not know the agent."""

    async def messages(self, *, after: int | None = None) -> AsyncIterator[StreamMessage]:
        """Return the messages behind `stream` in wire format, including the message that ends the run."""
        ...

    async def stream(self, *, after: int | None = None) -> AsyncIterator[StreamChunk]:
        """Return each chunk of the run once: from the beginning or after a sequence, then live until the run ends."""
        return _chunks(await self.messages(after=after))

    async def partial_outputs(self, schema: type[BaseModel] | None = None) -> AsyncIterator[dict[str, Any]]:
        """Return the structured output each time that it has grown, from the beginning of the run, and the whole output
        last.

        Each value is the output so far, by field name, without the fields that have not arrived. A field has the type
        of the schema: a nested model appears when it is valid, a list grows by its elements, and a string or number
        that still arrives may be cut. `{}` follows if the answer was discarded or refused. `schema` is the agent's
        output schema where the handle does not know it, as with `HelixClient`; without it, the values are JSON.
        """
        return partial_outputs(_chunks(await self.messages()), self.session_id, schema or self.output_schema)

    async def output_items(
        self, field: str, schema: type[BaseModel] | None = None
    ) -> AsyncIterator[OutputItem | OutputDiscarded]:
        """Return each element of a list in the structured output once, as soon as it is complete.

        `OutputDiscarded` follows if the answer was discarded or refused. All elements before it are void, and the list
        starts again at index 0. `field` is a top-level field of the output. For `schema` see `partial_outputs`. Raises
        `InvalidInputError` if the schema does not have the list.
        """
        return output_items(_chunks(await self.messages()), self.session_id, schema or self.output_schema, field)

    async def result(self, timeout_s: float | None = None) -> AgentResult[OutputT]:
        """Wait until this run is completed, failed, interrupted or paused, and return its result. Raises
        `TimeoutError`."""
        ...

    async def interrupt(self, reason: str | None = None, *, wait: bool = False) -> bool:
        """Ask this run to stop as soon as it can. `resume` continues it with its state. Return False if it has ended.

        The request is durable, and the method returns immediately. With `wait` it returns once the run has stopped.
        """
        ...

    async def abort(self, reason: str | None = None) -> None:
        """Fail this run permanently. It cannot be resumed or retried, but a new message may follow.

        Idempotent. Has no effect on a run that has ended or was followed by another run.
        """
        ...

    async def get_state(self) -> SessionState:
        """Return the session's committed state. `Pending.parameters` has the JSON schema of a waiting call's arguments."""
        ...

    async def can_resume(self) -> CanResumeResult: ...

    async def answer(
        self,
        tool_call_id: str,
        *,
        approved: bool = True,
        data: JsonValue = None,
        reason: str | None = None,
        arguments: JsonObject | None = None,
        round: int | None = None,
    ) -> AgentExecutionHandle[OutputT]:
        """Answer a pending call, here or in a sub-agent, and return a handle to the session's current run.

        `Confirmation` explains the parameters. The first response wins; later ones raise `CallNotPendingError`.
        Arguments or answers that do not match their schema raise `InvalidInputError`, and the call stays pending.
        """
        return await self.resume(
            confirmation=Confirmation(tool_call_id, approved, data, reason, arguments, round=round)
        )

    async def resume(
        self,
        *,
        mode: ResumeMode = "continue",
        message: Content | None = None,
        checkpoint_id: str | None = None,
        confirmation: Confirmation | None = None,
    ) -> AgentExecutionHandle[OutputT]:
        """Continue the session in a new run. See `LocalExecutor.resume`."""
        ...

    async def retry(
        self, *, mode: RetryMode = "from_checkpoint", message: Content | None = None
    ) -> AgentExecutionHandle[OutputT]:
        """Try a failed session again. See `LocalExecutor.retry`."""
        ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}(session_id={self.session_id!r}, run_id={self.run_id!r})"


async def _chunks(messages: AsyncIterator[StreamMessage]) -> AsyncGenerator[StreamChunk, None]:
    async for message in messages:
        if message.kind == "chunk":
            yield message.parsed()
