"""The handle of a run, and functions that watch a run from any process: they wait until it stops, or read its messages
in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from helix.core.agents import Agent, AnyAgent
from helix.core.errors import AgentNotFoundError, OperatorError, RunNotFoundError
from helix.core.files import Content
from helix.core.handles import (
    AgentExecutionHandle,
    AgentResult,
    CanResumeResult,
    Confirmation,
    ResumeMode,
    RetryMode,
    SessionState,
    with_parameters,
)
from helix.core.inbox import MessageWithdrawnError, WaitingMessage
from helix.core.json import dumps
from helix.core.rows import Pending
from helix.core.run_row import RunRow
from helix.core.status import end_status
from helix.core.wire import StreamMessage, one_run
from helix.engine.engine import Engine
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.sessions.read import Sessions
from helix.stream.notebook import show_in_cell

if TYPE_CHECKING:
    from helix.runtime.executor import Executor


OutputT = TypeVar("OutputT")
LOOK_S = 1.0


class RunStoppedError(OperatorError):
    """Raised if the process that executed the run abandoned it because its store or its stream failed. `__cause__`
    holds the reason."""

    code = "run_stopped"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} stopped in this process and nothing recorded is lost: resume its session")


async def find_run(sessions: Sessions, session_id: str, run_id: str) -> RunRow | WaitingMessage:
    """Return the run's row, or the message of the run if it still waits. Raises `RunNotFoundError`."""
    try:
        return await sessions.get_run(session_id, run_id)
    except RunNotFoundError:
        for message in await sessions.get_inbox(session_id):
            if message.run_id == run_id:
                return message
        return await sessions.get_run(session_id, run_id)  # the message may have been delivered in between


async def wait_begun(sessions: Sessions, session_id: str, run_id: str, idle: Callable[[], Awaitable[None]]) -> RunRow:
    """Return the run's row once the run has begun. Raises `RunNotFoundError`, which is a `MessageWithdrawnError` if its
    message was taken back in the meantime. `idle` is called before each wait, and may raise."""
    waited = False
    with sessions.store.watch("sessions", session_id) as watch:
        while True:
            try:
                found = await find_run(sessions, session_id, run_id)
            except RunNotFoundError:
                if waited:
                    raise MessageWithdrawnError(session_id, run_id) from None
                raise
            if isinstance(found, RunRow):
                return found
            waited = True
            await idle()
            await watch.changed(LOOK_S)


async def wait_run(
    store: StateStore,
    sessions: Sessions,
    session_id: str,
    run_id: str,
    look: Callable[[str], None],
    idle: Callable[[], Awaitable[None]],
) -> RunRow:
    """Return the run's row once the run is no longer running. A superseded run reports how it stopped, or the run that
    aborted it. `look` is called before each wait, and `idle` before each wait for a run that has not begun. Both may
    raise."""
    with store.watch("sessions", session_id) as watch:
        run = await wait_begun(sessions, session_id, run_id, idle)
        while run.status == "running":
            look(run_id)
            await watch.changed(LOOK_S)
            run = await sessions.get_run(session_id, run_id)
    if run.status == "superseded":
        last = await sessions.get_current_run(session_id)
        run = last if last.mode == "abort" and last.previous_run_id == run_id else run
    return run


async def read_run(
    streams: StreamManager,
    sessions: Sessions,
    session_id: str,
    run_id: str,
    after: int | None,
    idle: Callable[[], Awaitable[None]],
) -> AsyncIterator[StreamMessage]:
    """Yield the messages of the run and its sub-agents, from its beginning (or after a sequence) to its end. `idle` is
    called while no message arrives, and may raise. Raises `RunNotFoundError` if the session is deleted."""
    run = await wait_begun(sessions, session_id, run_id, idle)
    stream_id = (await sessions.get(session_id)).stream_id
    sequence = run.start_sequence if after is None else after
    # If the log lagged behind the rows, the claim saw an earlier end of it. Messages since then belong to earlier runs.
    judge = one_run(session_id, run.turn, begun=after is not None)
    while True:
        messages = await streams.read(stream_id, sequence)
        for message in messages:
            sequence = message.sequence
            verdict = judge(message)
            if verdict in ("show", "last"):
                yield message
            if verdict in ("last", "over"):
                return
        if not messages:
            await sessions.get_run(session_id, run_id)  # raises if the session was deleted
            await idle()
        await streams.wait(stream_id, sequence, LOOK_S)  # returns at once if there is more


def ended_by(engine: Engine, own: AnyAgent, run: RunRow) -> AnyAgent:
    """Return the agent that ended the run of a session of `own`. If it is not known here, `own` stands in for it, except
    for an output, which is of its schema: then this raises `AgentNotFoundError`."""
    try:
        return engine.find_agent(own, run.active_agent)
    except AgentNotFoundError:
        if run.status == "completed" and run.output is not None:
            raise
        return own


async def result_of(agent: Agent[Any, OutputT], sessions: Sessions, run: RunRow) -> AgentResult[OutputT]:
    """Return the result from the run's row. `agent`: the agent that ended the run."""
    text = await sessions.last_text(run) if run.status == "completed" else None
    return make_result(agent, run, text, await sessions.run_pending(run))


def make_result(
    agent: Agent[Any, OutputT], run: RunRow, text: str | None, pending: list[Pending]
) -> AgentResult[OutputT]:
    """Build the result. Its output is an instance of the agent's schema."""
    output: Any = run.output
    schema: Any = agent.output_schema
    if run.status == "completed" and schema is not None and output is not None:
        output = schema.model_validate_json(dumps(output), by_alias=True, by_name=True)
    return AgentResult[Any](
        session_id=run.session_id,
        run_id=run.run_id,
        status=end_status(run.status, run.completion_reason),
        output=output if output is not None or schema is not None else text,
        text=text,
        error=run.error.message if run.error else None,
        error_code=run.error.code if run.error else None,
        recoverable=run.error.recoverable if run.error else True,
        pending=with_parameters(agent, pending),
        completion_reason=run.completion_reason,
        agent=run.active_agent or run.agent_type,
        usage=run.usage,
        steps=run.steps,
    )


class ExecutorHandle(AgentExecutionHandle[OutputT]):
    _ipython_display_ = show_in_cell

    def __init__(
        self,
        executor: Executor,
        agent: Agent[Any, OutputT],
        session_id: str,
        run_id: str,
        queued_id: str | None = None,
    ) -> None:
        self._executor, self._agent = executor, agent
        self.session_id, self.run_id, self.queued_id = session_id, run_id, queued_id
        schema: Any = agent.output_schema
        self.output_schema = schema

    async def messages(self, *, after: int | None = None) -> AsyncIterator[StreamMessage]:
        return self._executor.stream_messages(self.session_id, self.run_id, after=after)

    async def result(self, timeout_s: float | None = None) -> AgentResult[OutputT]:
        return await self._executor.wait_result(self._agent, self.session_id, self.run_id, timeout_s)

    async def interrupt(self, reason: str | None = None, *, wait: bool = False) -> bool:
        asked = await self._executor.interrupt(self.session_id, reason, run_id=self.run_id)
        if asked and wait:
            await self.result()
        return asked

    async def abort(self, reason: str | None = None) -> None:
        await self._executor.abort(self._agent, self.session_id, reason, run_id=self.run_id)

    async def get_state(self) -> SessionState:
        state = await self._executor.sessions.get(self.session_id)
        active = self._agent
        with suppress(AgentNotFoundError):
            active = self._executor.engine.find_agent(self._agent, state.active_agent)
        return state.model_copy(update={"pending": with_parameters(active, state.pending)})

    async def can_resume(self) -> CanResumeResult:
        return await self._executor.can_resume(self.session_id)

    async def resume(
        self,
        *,
        mode: ResumeMode = "continue",
        message: Content | None = None,
        checkpoint_id: str | None = None,
        confirmation: Confirmation | None = None,
    ) -> AgentExecutionHandle[OutputT]:
        given: dict[str, Any] = {"message": message, "checkpoint_id": checkpoint_id, "confirmation": confirmation}
        return await self._executor.resume(self._agent, self.session_id, mode=mode, **given)

    async def retry(
        self, *, mode: RetryMode = "from_checkpoint", message: Content | None = None
    ) -> AgentExecutionHandle[OutputT]:
        return await self._executor.retry(self._agent, self.session_id, mode=mode, message=message)
