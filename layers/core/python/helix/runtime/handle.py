"""The handle of a run: plain ids and an executor; any process can make one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from helix.core.agents import Agent
from helix.core.chunks import StreamChunk
from helix.core.rows import Pending
from helix.core.usage import Usage
from helix.core.wire import StreamMessage
from helix.engine.answers import Confirmation
from helix.engine.sessions import CanResumeResult, SessionState

if TYPE_CHECKING:
    from helix.runtime.executor import Executor

OutputT = TypeVar("OutputT")
ResumeMode = Literal["continue", "with_message", "with_confirmation", "from_checkpoint"]
RetryMode = Literal["from_checkpoint", "from_start"]


class AgentResult(BaseModel, Generic[OutputT]):
    """How a run ended. `output` is an instance of the agent's output schema, or JSON, or for agents without a schema the
    last text. `error` is set for failed runs; `pending` lists what a paused one waits for."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    session_id: str
    run_id: str
    status: str
    output: OutputT | None = None
    text: str | None = None
    error: str | None = None
    error_code: str | None = None
    recoverable: bool = True
    pending: list[Pending] = Field(default_factory=list)
    completion_reason: str | None = None
    usage: Usage = Field(default_factory=Usage)
    steps: int = 0


class AgentExecutionHandle(Generic[OutputT]):
    """A run of a session, from anywhere. Nothing is lost when it is dropped: the run goes on."""

    def __init__(self, executor: Executor, agent: Agent[Any, OutputT], session_id: str, run_id: str) -> None:
        self._executor, self._agent = executor, agent
        self.session_id, self.run_id = session_id, run_id

    def __repr__(self) -> str:
        return f"AgentExecutionHandle(session_id={self.session_id!r}, run_id={self.run_id!r})"

    async def stream(self, *, after: int | None = None) -> AsyncIterator[StreamChunk]:
        """The run's chunks, replayed from its beginning (or after a sequence) and then live, each once, to its end."""
        return self._executor.stream_run(self.session_id, self.run_id, after=after)

    async def messages(self, *, after: int | None = None) -> AsyncIterator[StreamMessage]:
        """Like `stream`, in wire form, the end message included."""
        return self._executor.stream_messages(self.session_id, self.run_id, after=after)

    async def result(self, timeout_s: float | None = None) -> AgentResult[OutputT]:
        """Wait until this run no longer runs: completed, failed, interrupted or paused. Raises TimeoutError."""
        return await self._executor.wait_result(self._agent, self.session_id, self.run_id, timeout_s)

    async def interrupt(self, reason: str | None = None, *, wait: bool = False) -> bool:
        """Ask this run to stop at its next point; state is kept and `resume` goes on. False if it does not run any more.

        The request is durable and returns at once; with `wait` the return comes when the run has stopped.
        """
        asked = await self._executor.interrupt(self.session_id, reason, run_id=self.run_id)
        if asked and wait:
            await self.result()
        return asked

    async def abort(self, reason: str | None = None) -> None:
        """Fail this run for good: no resume, no retry; a new message may follow. Idempotent; a run that has ended, or
        that another one followed, is left alone."""
        await self._executor.abort(self._agent, self.session_id, reason, run_id=self.run_id)

    async def get_state(self) -> SessionState:
        """The session's committed state."""
        return await self._executor.sessions.get(self.session_id)

    async def can_resume(self) -> CanResumeResult:
        return await self._executor.can_resume(self.session_id)

    async def resume(
        self,
        *,
        mode: ResumeMode = "continue",
        message: str | None = None,
        checkpoint_id: str | None = None,
        confirmation: Confirmation | None = None,
    ) -> AgentExecutionHandle[OutputT]:
        """Go on as a new run; see `LocalExecutor.resume`."""
        return await self._executor.resume(
            self._agent,
            self.session_id,
            mode=mode,
            message=message,
            checkpoint_id=checkpoint_id,
            confirmation=confirmation,
        )

    async def retry(
        self, *, mode: RetryMode = "from_checkpoint", message: str | None = None
    ) -> AgentExecutionHandle[OutputT]:
        """Try a failed session again; see `LocalExecutor.retry`."""
        return await self._executor.retry(self._agent, self.session_id, mode=mode, message=message)
