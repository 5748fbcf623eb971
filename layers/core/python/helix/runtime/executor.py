"""Executor: sessions and runs of agents, wherever they are executed.

Law: every operation of a caller on a session is implemented once, here. Runtimes differ only in `_begin`, `_delivery`
and the wait for the end of a run.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self, TypeVar

from helix.core.agents import Agent, AnyAgent
from helix.core.claim_plan import lapsed, mode_after_lapse
from helix.core.delivery import Delivery
from helix.core.errors import AgentNotFoundError, CallerError, InvalidInputError, SessionNotFoundError
from helix.core.handles import (
    AgentExecutionHandle,
    AgentResult,
    CanResumeResult,
    Confirmation,
    ResumeMode,
    RetryMode,
    SessionSnapshot,
    SessionState,
    check_mode,
)
from helix.core.initial import Input, parse_input
from helix.core.json import JsonObject
from helix.core.status import ENDS, ClaimMode
from helix.core.wire import StreamMessage
from helix.engine.claims.claim import Claimed, claim
from helix.engine.claims.confirm import Answered, answer, wake_parents
from helix.engine.engine import Engine
from helix.engine.runs.ends import abort, children_left, fail_lapsed, interrupt, leave_children, sweep_session
from helix.engine.runs.housekeeping import name_checkpoint
from helix.engine.seen import Newest
from helix.runtime.agent_models import Agents
from helix.runtime.handle import ExecutorHandle, read_run, result_of, wait_run
from helix.services.claim_input import ClaimInput, Opening, check_branch, check_input, check_key, check_session_id
from helix.services.request_keys import keyed_run
from helix.sessions.copies import clone_session
from helix.sessions.deletion import delete_session, expire_all
from helix.sessions.read import Sessions
from helix.sessions.snapshots import read_snapshot

StateT = TypeVar("StateT")
OutputT = TypeVar("OutputT")


class Executor(ABC):
    """A base class that runs agents, and reads and changes their sessions. See `LocalExecutor` and
    `StepFunctionsExecutor`."""

    def __init__(self, engine: Engine, agents: Agents) -> None:
        self.engine = engine
        self.agents = agents
        self.registry = agents.registry
        self.store, self.streams = engine.store, engine.streams
        self.sessions = Sessions(engine.store)

    @abstractmethod
    async def _begin(self, agent: AnyAgent, claimed: Claimed, delivery: Delivery) -> None:
        """Execute the claimed run, here or elsewhere. Return once its execution has been started."""

    async def _check_room(self, agent: AnyAgent, mode: ClaimMode, session_id: str | None) -> None:
        """Raise `QueueFullError` if a run that is claimed in this mode could neither work nor wait."""
        return

    @abstractmethod
    async def close(self) -> None:
        """Close the store, and stop what this process executes."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @abstractmethod
    def _delivery(self) -> Delivery:
        """Return the delivery for the current call, with its deadline."""

    @abstractmethod
    def _raise_if_lost(self, run_id: str) -> None:
        """Raise if waiting for the run would never end."""

    async def wait_result(
        self, agent: Agent[Any, OutputT], session_id: str, run_id: str, timeout_s: float | None
    ) -> AgentResult[OutputT]:
        """Return the result of the run once it no longer runs (`wait_run`). Raises `TimeoutError`, and `RunStoppedError`
        if this process gave up the run."""
        async with asyncio.timeout(timeout_s):
            run = await wait_run(self.store, self.sessions, session_id, run_id, self._raise_if_lost)
        return await result_of(agent, self.sessions, run)

    # --- starting runs --------------------------------------------------------------------------------------------

    async def execute(
        self,
        agent: Agent[StateT, OutputT],
        input: Input,
        *,
        session_id: str | None = None,
        branch: Mapping[str, str] | None = None,
        user_id: str | None = None,
        tags: list[str] | None = None,
        metadata: JsonObject | None = None,
        run_id: str | None = None,
        priority: int | None = None,
        key: str | None = None,
    ) -> AgentExecutionHandle[OutputT]:
        """Start a run of a new session, or with the next message of a session that is not running.

        input: a message, or a mapping with `message` and `state`.
        branch: a mapping with `from_session_id`, and `checkpoint_id` if that is not the latest. It first makes a new
            session from that checkpoint of another session.
        run_id: the id of the run (default: a new one, see `core.row_keys.make_run_id`).
        user_id: the caller, and the owner of a new session. With it, every verb that takes it raises
            `SessionNotFoundError` for another user's session. Without it the owner is not checked.
        key: the idempotency key of this request, unique over users and verbs. A repeat under it, from any process and
            for at least `request_keys.HOLDS_S`, starts nothing. It returns the handle of the run that the first request
            started.
        priority: the place in the queue when runs wait for slots, from -999 to 999; higher goes first. It applies to
            this run and to later runs of the session. A new session has 0.

        Raises `AgentAlreadyRunningError` if the session is running: exactly one of several callers wins. Raises
        `QueueFullError` if the queue of the agent's waiting runs is full.
        """
        asked = parse_input(agent, input)
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
        made = session_id is None
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
            made=made,
        )
        return await self.start_run(agent, target, ask)

    async def resume(
        self,
        agent: Agent[StateT, OutputT],
        session_id: str,
        *,
        mode: ResumeMode = "continue",
        message: str | None = None,
        checkpoint_id: str | None = None,
        confirmation: Confirmation | None = None,
        user_id: str | None = None,
        key: str | None = None,
    ) -> AgentExecutionHandle[OutputT]:
        """Continue an interrupted or paused session with a new run, or rewind to a checkpoint.

        continue: execute the pending calls, then continue the agent's loop.
        with_message: close the pending calls, then add a new message.
        with_confirmation: answer a pending call (here or in a sub-agent).
        from_checkpoint: time travel, also for completed and failed sessions. Later messages stay reachable by their own
            checkpoints.

        A session whose process died continues here once its lease has expired. For `user_id` and `key` see `execute`. A
        repeated answer raises `CallNotPendingError`, even under a key.
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
                await fail_lapsed(self.engine, agent, session_id, self._delivery())
        ask = ClaimInput(claim_mode, message, checkpoint_id=checkpoint_id, opening=Opening(user_id=user_id), key=key)
        return await self.start_run(agent, session_id, ask)

    async def retry(
        self,
        agent: Agent[StateT, OutputT],
        session_id: str,
        *,
        mode: RetryMode = "from_checkpoint",
        message: str | None = None,
        user_id: str | None = None,
        key: str | None = None,
    ) -> AgentExecutionHandle[OutputT]:
        """Try a failed session again with a fresh step budget, from its last checkpoint or from the failed run's start.

        With a message, it replaces the failed run's unanswered message. Without one, no bought step or finished call is
        repeated. For `user_id` and `key` see `execute`.
        """
        self.agents.know(agent)
        check_mode(mode, RetryMode)
        if (known := await self._find_keyed_run(agent, key, user_id)) is not None:
            return known
        await self._check_user(session_id, user_id)
        await fail_lapsed(self.engine, agent, session_id, self._delivery())
        claim_mode: ClaimMode = "retry" if mode == "from_checkpoint" else "from_start"
        return await self.start_run(
            agent, session_id, ClaimInput(claim_mode, message, opening=Opening(user_id=user_id), key=key)
        )

    async def answer(
        self, agent: AnyAgent, session_id: str, confirmation: Confirmation, *, user_id: str | None = None
    ) -> Answered:
        """Answer a waiting call, here or in a sub-agent. The runs that can continue are started here. The first answer
        wins; later ones raise `CallNotPendingError`."""
        self.agents.know(agent)
        await self._check_user(session_id, user_id)
        delivery = self._delivery()
        answered = await answer(self.engine, agent, session_id, confirmation, delivery)
        if answered.claimed is not None:
            target = agent.find_agent(answered.claimed.session.agent_type) or agent
            await self._begin(target, answered.claimed, delivery)
            for parent in await wake_parents(self.engine, answered.claimed.session, delivery):
                await self._begin(self.agents.named(parent.session.agent_type), parent, delivery)
        return answered

    async def start_run(
        self, agent: Agent[Any, OutputT], session_id: str, ask: ClaimInput
    ) -> AgentExecutionHandle[OutputT]:
        check_input(session_id, ask)
        return await self._start(agent, session_id, ask)

    async def _start(
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
        return None if known is None else await self.get_handle(agent, known.session_id, known.run_id, user_id=user_id)

    async def _check_user(self, session_id: str, user_id: str | None) -> None:
        """Raise `InvalidInputError` if the id is not valid, and `SessionNotFoundError` if the session does not belong
        to this user."""
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
            await fail_lapsed(self.engine, agent, session_id, delivery)
            seen = await self.engine.history.newest(session_id)
        for other in await sweep_session(self.engine, agent, session_id, delivery, seen=seen):
            await self._begin(self.agents.named(other.session.agent_type), other, self._delivery())
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
            await self.sessions.get_run(session_id, run_id)
        return ExecutorHandle(self, agent, session_id, run_id or session.current_run_id)

    async def interrupt(self, session_id: str, reason: str | None = None, *, run_id: str | None = None) -> bool:
        """Ask the run to stop, from any process. Return False if it is not running."""
        return await interrupt(self.engine, session_id, run_id, reason)

    async def abort(
        self, agent: AnyAgent, session_id: str, reason: str | None = None, *, run_id: str | None = None
    ) -> None:
        """Fail a running, paused or interrupted session for good, with its sub-agents. With `run_id`, only if that is
        its current run. A session that has ended stays as it is."""
        self.agents.know(agent)
        for other in await abort(self.engine, agent, session_id, reason, self._delivery(), run_id=run_id):
            await self._begin(self.agents.named(other.session.agent_type), other, self._delivery())

    async def can_resume(self, session_id: str) -> CanResumeResult:
        """Check whether `resume` can continue the session here. Its agent must be known to this executor."""
        found = await self.sessions.can_resume(session_id, now=self.engine.clock.now())
        if found.can_resume:
            try:
                self.agents.named((await self.sessions.get(session_id)).agent_type)
            except AgentNotFoundError:
                return CanResumeResult(can_resume=False, reason="agent_not_registered")
        return found

    async def get_snapshot(self, session_id: str, *, newest: int | None = None) -> SessionSnapshot:
        """Return the conversation at its newest checkpoint, and the place where the stream continues. newest: the limit
        of messages, counted from the end."""
        return await read_snapshot(self.sessions, self.streams, session_id, newest)

    async def branch(
        self, from_session_id: str, checkpoint_id: str | None = None, *, session_id: str | None = None
    ) -> SessionState:
        """Make a new session with another's messages and state up to a checkpoint (default: its latest)."""
        target = session_id if session_id is not None else self.engine.ids.new("ses")
        await clone_session(self.engine, from_session_id, target, from_checkpoint_id=checkpoint_id)
        return await self.sessions.get(target)

    async def clone_session(
        self, source: str, target: str, *, from_checkpoint_id: str | None = None, from_message_index: int | None = None
    ) -> SessionState:
        """Copy a session, or its first messages, to a new id. See `helix.sessions.copies.clone_session`."""
        await clone_session(
            self.engine, source, target, from_checkpoint_id=from_checkpoint_id, from_message_index=from_message_index
        )
        return await self.sessions.get(target)

    async def name_checkpoint(self, session_id: str, checkpoint_id: str, name: str | None) -> None:
        """Give the checkpoint a name, which keeps it whatever `Settings.keep_checkpoints` says. None removes the name.
        Raises `CheckpointNotFoundError`."""
        await name_checkpoint(self.engine, session_id, checkpoint_id, name)

    async def delete(self, session_id: str) -> bool:
        """Delete the session, its sub-agents' sessions and its stream. Raises `AgentAlreadyRunningError` while it
        runs."""
        return await delete_session(self.engine, session_id)

    async def expire(self) -> int:
        """Delete the sessions that were not used for `Settings.session_ttl_s`, and expired rows (`StateStore.purge`).
        Return the number of sessions. Fleets and deployments do this on their own."""
        return await expire_all(self.engine, self._delivery())

    async def stream_messages(
        self, session_id: str, run_id: str, *, after: int | None = None
    ) -> AsyncIterator[StreamMessage]:
        """Yield the messages of the run and its sub-agents, gapless from its beginning to its end."""

        async def idle() -> None:
            self._raise_if_lost(run_id)
            await self._complete_effects(session_id)

        async for message in read_run(self.streams, self.sessions, session_id, run_id, after, idle):
            yield message

    # --- internal -------------------------------------------------------------------------------------------------

    async def _complete_effects(self, session_id: str) -> None:
        """Complete the effects of a run whose worker died after the run's end, because readers of its stream wait for
        them."""
        session = await self.engine.history.session(session_id)
        if session is None or session.status not in ENDS:
            return
        run = await self.engine.history.run(session_id, session.run_id) if session.run_id else None
        silent_since = self.engine.clock.now() - self.engine.settings.claim_s
        if run is None or run.effects == "done" or (run.ended_at or 0) > silent_since:
            return
        agent = self.agents.named(session.agent_type)
        for other in await sweep_session(self.engine, agent, session_id, self._delivery()):
            await self._begin(self.agents.named(other.session.agent_type), other, self._delivery())
