"""A run as its caller sees it: one handle and one result, wherever the run is executed and however it is reached.

Law: a handle is plain ids and a way to reach the service. Nothing is lost when it is dropped: the run goes on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from helix.core.chunks import StreamChunk
from helix.core.json import JsonObject, JsonValue
from helix.core.messages import Message, Record
from helix.core.rows import ErrorInfo, Pending
from helix.core.status import AgentStatus, EndStatus, SessionStatus, SubSessionStatus
from helix.core.usage import Usage
from helix.core.wire import StreamMessage

if TYPE_CHECKING:
    from helix.core.agents import AnyAgent  # a client knows none

OutputT = TypeVar("OutputT")
ResumeMode = Literal["continue", "with_message", "with_confirmation", "from_checkpoint"]
RetryMode = Literal["from_checkpoint", "from_start"]
CanResumeReason = Literal[
    "running", "completed", "failed_use_retry", "aborted", "not_found", "pending_confirmation", "agent_not_registered"
]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """An answer: `approved`, or denied with a `reason`. `data` goes to the tool as `ctx.confirmation`; for a client tool
    it is the result, for an unknown outcome (denied, with data) what really happened. `arguments`: an approval executes the
    call with these in place of the model's; `by` is who changed them, stored with them."""

    tool_call_id: str
    approved: bool = True
    data: JsonValue = None
    reason: str | None = None
    arguments: JsonObject | None = None
    by: str | None = None


class CanResumeResult(Record):
    """`reason` says why not, or for a failed session which verb fits; `pending_confirmation`: it can, with an answer."""

    model_config = ConfigDict(extra="ignore")

    can_resume: bool
    reason: CanResumeReason | None = None


def with_parameters(agent: AnyAgent, pending: Sequence[Pending]) -> list[Pending]:
    """With the JSON schema of the arguments of those calls whose tools the agent has."""
    tools = [agent.find_tool(call.tool_name) for call in pending]
    return [
        call if tool is None else call.model_copy(update={"parameters": tool.parameters})
        for call, tool in zip(pending, tools, strict=True)
    ]


class SessionState(Record):
    """The committed state of a session: what a run left, or has reached so far."""

    model_config = ConfigDict(extra="ignore")

    session_id: str
    agent_type: str
    stream_id: str
    status: AgentStatus
    version: int
    current_run_id: str
    turn: int
    step_count: int
    message_count: int
    custom_state: JsonObject
    checkpoint_id: str
    output: JsonValue = None
    error: ErrorInfo | None = None
    pending: list[Pending] = Field(default_factory=list)
    usage: Usage = Usage()
    aborted: bool = False
    abort_reason: str | None = None
    parent_session_id: str | None = None
    forked_from: JsonObject | None = None
    user_id: str | None = None
    tags: list[str] = Field(default_factory=list)
    metadata: JsonObject = Field(default_factory=dict)
    lease_expires: float = 0
    created_at: float = 0
    updated_at: float = 0


class SubSessionRef(Record):
    """A sub-agent's session, as its parent knows it."""

    session_id: str
    agent_type: str
    parent_tool_call_id: str
    status: SubSessionStatus


class SessionSnapshot(Record):
    """`status` is the session's at the moment of reading; messages and state are those of `checkpoint_id`. `offset`: the
    place of the first of these messages in the session."""

    session_id: str
    run_id: str
    status: SessionStatus
    checkpoint_id: str
    sequence: int
    messages: list[Message]
    offset: int = 0
    custom_state: JsonObject
    pending: list[Pending] = Field(default_factory=list)


class AgentResult(BaseModel, Generic[OutputT]):
    """How a run ended. `output` is an instance of the agent's output schema (over a socket the JSON of one), or for agents
    without a schema the last text. `error` is set for failed runs; `pending` lists what a paused one waits for."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="ignore")

    session_id: str
    run_id: str
    status: EndStatus
    output: OutputT | None = None
    text: str | None = None
    error: str | None = None
    error_code: str | None = None
    recoverable: bool = True
    pending: list[Pending] = Field(default_factory=list)
    completion_reason: str | None = None
    usage: Usage = Field(default_factory=Usage)
    steps: int = 0


class AgentExecutionHandle(Protocol[OutputT]):
    """A run of a session. Executors and `HelixClient` give one; from two ids any process makes it again."""

    session_id: str
    run_id: str

    async def messages(self, *, after: int | None = None) -> AsyncIterator[StreamMessage]:
        """Like `stream`, in wire form, the end message included."""
        ...

    async def stream(self, *, after: int | None = None) -> AsyncIterator[StreamChunk]:
        """The run's chunks, replayed from its beginning (or after a sequence) and then live, each once, to its end."""
        return _chunks(await self.messages(after=after))

    async def result(self, timeout_s: float | None = None) -> AgentResult[OutputT]:
        """Wait until this run no longer runs: completed, failed, interrupted or paused. Raises `TimeoutError`."""
        ...

    async def interrupt(self, reason: str | None = None, *, wait: bool = False) -> bool:
        """Ask this run to stop at its next point; state is kept and `resume` goes on. False if it does not run any more.

        The request is durable and returns at once; with `wait` the return comes when the run has stopped.
        """
        ...

    async def abort(self, reason: str | None = None) -> None:
        """Fail this run for good: no resume, no retry; a new message may follow. Idempotent; a run that has ended, or
        that another one followed, is left alone."""
        ...

    async def get_state(self) -> SessionState:
        """The session's committed state. What waits has the JSON schema of its arguments (`Pending.parameters`)."""
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
    ) -> AgentExecutionHandle[OutputT]:
        """Answer a call that waits, here or in a sub-agent: a handle of the session's current run. The first answer wins,
        later ones raise `CallNotPendingError`. See `Confirmation`; arguments that do not fit the tool's schema raise
        `InvalidInputError`, and the call waits on."""
        return await self.resume(confirmation=Confirmation(tool_call_id, approved, data, reason, arguments))

    async def resume(
        self,
        *,
        mode: ResumeMode = "continue",
        message: str | None = None,
        checkpoint_id: str | None = None,
        confirmation: Confirmation | None = None,
    ) -> AgentExecutionHandle[OutputT]:
        """Go on as a new run; see `LocalExecutor.resume`."""
        ...

    async def retry(
        self, *, mode: RetryMode = "from_checkpoint", message: str | None = None
    ) -> AgentExecutionHandle[OutputT]:
        """Try a failed session again; see `LocalExecutor.retry`."""
        ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}(session_id={self.session_id!r}, run_id={self.run_id!r})"


async def _chunks(messages: AsyncIterator[StreamMessage]) -> AsyncIterator[StreamChunk]:
    async for message in messages:
        if message.kind == "chunk":
            yield message.parsed()
