"""The base of all executors: agents' sessions and runs, wherever they are executed.

Law: every operation that a caller may perform on a session is implemented once, here. Runtimes differ only in `_begin`,
`_delivery` and the wait for the end of a run.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeVar

from helix.core.agents import Agent, AnyAgent
from helix.core.claim_plan import lapsed, mode_after_lapse
from helix.core.delivery import Delivery
from helix.core.errors import (
    AgentAlreadyRunningError,
    CallerError,
    InvalidInputError,
    RunNotFoundError,
    SessionNotFoundError,
    StaleStateError,
)
from helix.core.files import Content
from helix.core.frontend_tools import GivenTool
from helix.core.handles import (
    AgentExecutionHandle,
    AgentResult,
    Confirmation,
    ResumeMode,
    RetryMode,
    check_mode,
)
from helix.core.inbox import MessageWithdrawnError, WhenRunning
from helix.core.initial import AgentInput, Input
from helix.core.json import JsonObject
from helix.core.run_settings import GivenSettings
from helix.core.status import ClaimMode
from helix.core.wire import StreamMessage
from helix.engine.claims.claim import claim
from helix.engine.claims.confirm import Answered, answer, wake_parents
from helix.engine.inbox import leave_message, show_waiting
from helix.engine.runs.ends import children_left, fail_lapsed, leave_children, sweep_session
from helix.engine.runs.housekeeping import unfinished
from helix.engine.seen import Newest
from helix.runtime.handle import ExecutorHandle, ended_by, find_run, read_run, result_of, wait_run
from helix.runtime.message_files import start_with_files
from helix.runtime.session_verbs import SessionVerbs
from helix.services.claim_input import ClaimInput, Opening, check_branch, check_input, check_key, check_session_id
from helix.services.file_inputs import ReadFile, read_input, read_message
from helix.services.request_keys import keyed_run

StateT = TypeVar("StateT")
OutputT = TypeVar("OutputT")


class Executor(SessionVerbs):
    """A base class that runs agents, and reads and changes their sessions. See `LocalExecutor` and
    `StepFunctionsExecutor`."""

    async def _check_room(self, agent: AnyAgent, mode: ClaimMode, session_id: str | None) -> None:
        """Raise `QueueFullError` if a run that is claimed in this mode could neither start nor wait."""
        return

    @abstractmethod
    async def close(self) -> None:
        """Close the store, and stop what this process executes."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @abstractmethod
    def _raise_if_lost(self, run_id: str) -> None:
        """Raise if waiting for the run would never end."""

    async def wait_result(
        self, agent: Agent[Any, OutputT], session_id: str, run_id: str, timeout_s: float | None
    ) -> AgentResult[OutputT]:
        """Return the result of the run once it is no longer running (`wait_run`). Raises `TimeoutError`, and
        `RunStoppedError` if this process abandoned the run."""
        async with asyncio.timeout(timeout_s):
            idle = partial(self._complete_effects, session_id)
            run = await wait_run(self.store, self.sessions, session_id, run_id, self._raise_if_lost, idle)
        return await result_of(ended_by(self.engine, agent, run), self.sessions, run)

    # --- starting runs --------------------------------------------------------------------------------------------

    async def execute(
        self,
        agent: Agent[StateT, OutputT],
        input: Input | Content,
        *,
        session_id: str | None = None,
        branch: Mapping[str, str] | None = None,
        user_id: str | None = None,
        tags: list[str] | None = None,
        metadata: JsonObject | None = None,
        run_id: str | None = None,
        priority: int | None = None,
        key: str | None = None,
        when_running: WhenRunning = "refuse",
        tools: Sequence[GivenTool] | None = None,
        settings: GivenSettings | None = None,
    ) -> AgentExecutionHandle[OutputT]:
        """Start a run in a new session, or with the next message of a session that is not running.

        input: a message, or a mapping with `message` and `state`. A message is a string, or a list of strings and files:
            `Text`, `Image`, `Audio`, `Document`, `File`, bytes and paths.
        branch: a mapping with `from_session_id`, and `checkpoint_id` if that is not the latest. It first creates a new
            session from that checkpoint of another session.
        run_id: the id of the run (default: a new one, see `core.row_keys.make_run_id`).
        user_id: the caller, and the owner of a new session. With it, every method that accepts it raises
            `SessionNotFoundError` for another user's session. Without it, the owner is not checked.
        key: the idempotency key of this request, unique across users and methods. A repeat with the same key, from any
            process and for at least `request_keys.HOLDS_S`, starts nothing. It returns the handle of the run that the
            first request started.
        priority: the place in the queue when runs wait for slots, from -999 to 999; higher goes first. It applies to
            this run and to later runs of the session. The default for a new session is 0.
        when_running: what happens if the session is running. `refuse` raises `AgentAlreadyRunningError`; only one of
            several callers wins. With the other values the message waits in the session's inbox, without `state`.
            `steer`: the working run sees it before its next model call, and the handle is that of the current run.
            `queue`: it gets a run of its own after the working run. `interrupt`: it stops the working run, and then gets
            a run of its own. The handle waits for that run. A paused session keeps the messages that `steer` and `queue`
            until its calls are answered. `handle.queued_id` names a message that waits, for `withdraw`.
        tools: tools that the caller executes, for this run and the runs that continue it without a message: `FrontendTool`,
            or mappings with `name`, `description` and `parameters`. The agent must accept them (`Agent.frontend_tools`).
            The run pauses at a call, which `handle.answer` answers. A message that steers does not change the run's tools.
        settings: `RunSettings` or a mapping, which override the agent's settings for the same runs as `tools`.

        Raises `FrontendToolError` for a tool that the agent does not accept, `DefinitionError` for a setting that does
        not exist, and `InvalidInputError` for one that is not valid or that the agent's model refuses.
        Raises `QueueFullError` if the queue of the agent's waiting runs is full, and `InboxFullError` if too many
        messages wait in the session.
        """
        asked, files = await read_input(agent, input)
        self.agents.know(agent)
        if (known := await self._find_keyed_run(agent, key, user_id)) is not None:
            return known
        if session_id is not None:
            check_session_id(session_id)
        if branch is not None:
            check_branch(branch)
            if session_id is not None and await self.sessions.exists(session_id):
                raise InvalidInputError(f"branch makes a new session, and {session_id!r} exists: leave session_id out")
            await self._check_user(branch["from_session_id"], user_id)
            await self._check_room(agent, "execute", None)
            copied = await self.branch(branch["from_session_id"], branch.get("checkpoint_id"), session_id=session_id)
            session_id = copied.session_id
        target = self.engine.ids.new("ses") if session_id is None else session_id
        ask = ClaimInput(
            "execute",
            asked.message,
            asked.state or None,
            metadata=asked.metadata,
            run_id=run_id,
            opening=Opening(user_id=user_id, tags=tags or [], metadata=metadata or {}),
            priority=priority,
            key=key,
            when_running=when_running,
            tools=self.agents.declare(agent, tools, settings),
            made=session_id is None,
        )
        return await self.start_run(agent, target, ask, files)

    async def resume(
        self,
        agent: Agent[StateT, OutputT],
        session_id: str,
        *,
        mode: ResumeMode = "continue",
        message: Content | AgentInput | None = None,
        checkpoint_id: str | None = None,
        confirmation: Confirmation | None = None,
        user_id: str | None = None,
        key: str | None = None,
        tools: Sequence[GivenTool] | None = None,
        settings: GivenSettings | None = None,
    ) -> AgentExecutionHandle[OutputT]:
        """Continue an interrupted or paused session with a new run, or rewind to a checkpoint.

        continue: execute the pending calls, then continue the agent's loop.
        with_message: close the pending calls, then add a new message.
        with_confirmation: answer a pending call (in this session or in a sub-agent).
        from_checkpoint: time travel, even for completed and failed sessions. Later messages can still be reached through
            their own checkpoints.

        A session whose process died continues here once its lease has expired. For the other parameters see `execute`.
        Without `message`, `tools` and `settings`, the run keeps those of the run that it continues. A repeated answer
        raises `CallNotPendingError`, even under a key.
        """
        self.agents.know(agent)
        check_mode(mode, ResumeMode)
        if (known := await self._find_keyed_run(agent, key, user_id)) is not None:
            return known
        await self._check_user(session_id, user_id)
        if message is not None and mode == "continue":
            mode = "with_message"
        if checkpoint_id is not None and mode in ("continue", "with_message"):
            mode = "from_checkpoint"
        if confirmation is not None or mode == "with_confirmation":
            if confirmation is None:
                raise InvalidInputError("with_confirmation needs a confirmation: which call, approved or not")
            await self.answer(agent, session_id, confirmation)
            return await self.get_handle(agent, session_id)
        session = await self.engine.history.existing(session_id)
        claim_mode: ClaimMode = mode
        if lapsed(session, self.engine.clock.now()):
            claim_mode = mode_after_lapse(mode)
            if claim_mode != "takeover":
                await self._begin_each(await fail_lapsed(self.engine, agent, session_id, self._delivery()))
        text, files = await read_message(message)
        declared, opening = self.agents.declare(agent, tools, settings), Opening(user_id=user_id)
        ask = ClaimInput(claim_mode, text, checkpoint_id=checkpoint_id, opening=opening, key=key, tools=declared)
        return await self.start_run(agent, session_id, ask, files)

    async def retry(
        self,
        agent: Agent[StateT, OutputT],
        session_id: str,
        *,
        mode: RetryMode = "from_checkpoint",
        message: Content | AgentInput | None = None,
        user_id: str | None = None,
        key: str | None = None,
        tools: Sequence[GivenTool] | None = None,
        settings: GivenSettings | None = None,
    ) -> AgentExecutionHandle[OutputT]:
        """Try a failed session again with a fresh step budget, from its last checkpoint or from the failed run's start.

        With a message, it replaces the failed run's unanswered message. Without one, no step that was paid for and no
        finished call is repeated. For `user_id` and `key` see `execute`, for `tools` and `settings` see `resume`.
        """
        self.agents.know(agent)
        check_mode(mode, RetryMode)
        if (known := await self._find_keyed_run(agent, key, user_id)) is not None:
            return known
        await self._check_user(session_id, user_id)
        await self._begin_each(await fail_lapsed(self.engine, agent, session_id, self._delivery()))
        claim_mode: ClaimMode = "retry" if mode == "from_checkpoint" else "from_start"
        text, files = await read_message(message)
        declared, opening = self.agents.declare(agent, tools, settings), Opening(user_id=user_id)
        ask = ClaimInput(claim_mode, text, opening=opening, key=key, tools=declared)
        return await self.start_run(agent, session_id, ask, files)

    async def answer(
        self, agent: AnyAgent, session_id: str, confirmation: Confirmation, *, user_id: str | None = None
    ) -> Answered:
        """Answer a waiting call, in this session or in a sub-agent. The runs that can continue are started here. The first
        answer wins; later ones raise `CallNotPendingError`."""
        self.agents.know(agent)
        await self._check_user(session_id, user_id)
        delivery = self._delivery()
        answered = await answer(self.engine, agent, session_id, confirmation, delivery)
        if answered.claimed is not None:
            target = agent.find_agent(answered.claimed.session.agent_type) or agent
            await self._begin(target, answered.claimed, delivery)
            await self._begin_each(await wake_parents(self.engine, answered.claimed.session, delivery), delivery)
        return answered

    async def start_run(
        self, agent: Agent[Any, OutputT], session_id: str, ask: ClaimInput, files: Sequence[ReadFile] = ()
    ) -> AgentExecutionHandle[OutputT]:
        """Start the run that `ask` describes. `files`: the files of its message, which are stored first."""
        check_input(session_id, replace(ask, files=[file.part for file in files]))
        if not files:
            return await self._start(agent, session_id, ask)
        return await start_with_files(
            self.engine, agent, session_id, ask, files, lambda held: self._start(agent, session_id, held)
        )

    async def _start(
        self, agent: Agent[Any, OutputT], session_id: str, ask: ClaimInput
    ) -> AgentExecutionHandle[OutputT]:
        while True:
            if ask.when_running != "refuse":
                left = 0 if ask.made else await self._leave(agent, session_id, ask)
                if not isinstance(left, int):
                    return left
                ask = replace(ask, version=left)
            try:
                return await self._claim(agent, session_id, ask)
            except AgentAlreadyRunningError as running:
                if ask.when_running == "refuse" or running.run_id == ask.run_id:
                    raise
            except StaleStateError:
                if ask.when_running == "refuse" or ask.holds:
                    raise

    async def _leave(
        self, agent: Agent[Any, OutputT], session_id: str, ask: ClaimInput
    ) -> AgentExecutionHandle[OutputT] | int:
        """Leave the message in the session's inbox. If nothing prevents a run for it, return the session's version, as
        `leave_message` does."""
        delivery = self._delivery()
        try:
            left = await leave_message(self.engine, agent, session_id, ask, delivery)
        except CallerError:  # another delivery of the same request may have won
            if (known := await self._find_keyed_run(agent, ask.key, ask.opening.user_id)) is None:
                raise
            return known
        if isinstance(left, int):
            return left
        if left.claimed is not None:
            await self._begin(agent, left.claimed, delivery)
        await show_waiting(self.engine, agent, session_id, left.message.id, left.message)
        return ExecutorHandle(self, agent, session_id, left.run_id, left.message.id)

    async def _claim(
        self, agent: Agent[Any, OutputT], session_id: str, ask: ClaimInput
    ) -> AgentExecutionHandle[OutputT]:
        await self._check_room(agent, ask.mode, session_id)
        delivery = self._delivery()
        seen = Newest(None) if ask.made else await self._recover(agent, session_id, ask.mode, delivery)
        left = await children_left(self.engine, seen.session, ask)
        try:
            claimed = await claim(self.engine, agent, session_id, ask, delivery, seen)
        except CallerError:  # another delivery of the same request may have won
            if (known := await self._find_keyed_run(agent, ask.key, ask.opening.user_id)) is None:
                raise
            return known
        await self._begin(agent, claimed, delivery)
        await leave_children(self.engine, agent, left, delivery)
        return ExecutorHandle(self, agent, session_id, claimed.run.run_id)

    async def _find_keyed_run(
        self, agent: Agent[Any, OutputT], key: str | None, user_id: str | None
    ) -> AgentExecutionHandle[OutputT] | None:
        """Return the handle of the run that was started under the key, or None."""
        check_key(key)
        known = await keyed_run(self.store, key) if key is not None else None
        if known is None:
            return None
        try:
            handle = await self.get_handle(agent, known.session_id, known.run_id, user_id=user_id)
        except RunNotFoundError:
            if known.queued_id is None:
                raise
            raise MessageWithdrawnError(known.session_id, known.run_id) from None
        handle.queued_id = known.queued_id
        return handle

    async def _check_user(self, session_id: str, user_id: str | None) -> None:
        """Raise an error for an id that is not valid, or for a session that does not belong to this user."""
        check_session_id(session_id)
        if user_id is not None:
            session = await self.engine.history.session(session_id)
            if session is None or not await self.engine.history.belongs(session, user_id):
                raise SessionNotFoundError(session_id)

    async def _recover(self, agent: AnyAgent, session_id: str, mode: ClaimMode, delivery: Delivery) -> Newest:
        """Return the session and its newest runs, after completing the effects of dead processes. A dead run fails if a
        new message follows it."""
        seen = await self.engine.history.newest(session_id)
        if mode in ("execute", "from_checkpoint") and seen.session and lapsed(seen.session, self.engine.clock.now()):
            await self._begin_each(await fail_lapsed(self.engine, agent, session_id, self._delivery()))
            seen = await self.engine.history.newest(session_id)
        await self._begin_each(await sweep_session(self.engine, agent, session_id, delivery, seen=seen))
        if any(run.arrived and run.effects == "open" for run in seen.runs):  # the effects may have changed the session
            return await self.engine.history.newest(session_id)
        return seen

    # --- controlling and watching ---------------------------------------------------------------------------------

    async def get_handle(
        self, agent: Agent[Any, OutputT], session_id: str, run_id: str | None = None, *, user_id: str | None = None
    ) -> AgentExecutionHandle[OutputT]:
        """Return a handle of a run by ids (default: the session's current run)."""
        self.agents.know(agent)
        await self._check_user(session_id, user_id)
        session = await self.sessions.get(session_id)
        await self._complete_effects(session_id)
        if run_id is not None:
            await find_run(self.sessions, session_id, run_id)
        return ExecutorHandle(self, agent, session_id, run_id or session.current_run_id)

    async def stream_messages(
        self, session_id: str, run_id: str, *, after: int | None = None
    ) -> AsyncIterator[StreamMessage]:
        """Yield the messages of the run and its sub-agents, without gaps, from its beginning to its end."""

        async def idle() -> None:
            self._raise_if_lost(run_id)
            await self._complete_effects(session_id)

        async for message in read_run(self.streams, self.sessions, session_id, run_id, after, idle):
            yield message

    async def _complete_effects(self, session_id: str) -> None:
        """Complete the effects of a run whose worker died after the run's end, because readers of its stream wait for
        them."""
        if (session := await unfinished(self.engine, session_id)) is None:
            return
        agent = self.agents.named(session.agent_type)
        await self._begin_each(await sweep_session(self.engine, agent, session_id, self._delivery()))
