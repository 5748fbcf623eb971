"""Executor: sessions and runs of agents, whoever executes them.

Law: everything a caller does with sessions is here, once; the runtimes differ in how a claimed run begins (`_begin`), who
acts (`_delivery`) and how its end is waited for.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self, TypeVar, get_args

from helix.core.agents import Agent, AnyAgent
from helix.core.chunks import StreamChunk
from helix.core.claiming import lapsed
from helix.core.errors import AgentNotFoundError, InvalidInputError
from helix.core.initial import Input, parse_input
from helix.core.json import JsonObject
from helix.core.status import ENDS
from helix.core.wire import StreamMessage
from helix.engine.answers import Answered, Confirmation, answer, wake_parents
from helix.engine.claim_checks import check_input
from helix.engine.claims import Claimed, ClaimInput, Opening, claim
from helix.engine.copies import clone_session, delete_session
from helix.engine.delivery import Delivery
from helix.engine.ends import abort, fail_lapsed, interrupt, leave_children, sweep_session
from helix.engine.engine import Engine
from helix.engine.sessions import CanResumeResult, Sessions, SessionState
from helix.engine.snapshots import SessionSnapshot, read_snapshot
from helix.runtime.agents import Agents
from helix.runtime.handle import AgentExecutionHandle, AgentResult, ResumeMode, RetryMode
from helix.runtime.watching import read_run, result_of, wait_run

StateT = TypeVar("StateT")
OutputT = TypeVar("OutputT")


class Executor(ABC):
    """`execute`, `resume`, `retry`, `answer`, `interrupt`, `abort`, and the sessions behind them. See `LocalExecutor` and
    `StepFunctionsExecutor`."""

    def __init__(self, engine: Engine, agents: Agents) -> None:
        self.engine = engine
        self.agents = agents
        self.registry = agents.registry
        self.store, self.streams = engine.store, engine.streams
        self.sessions = Sessions(engine.store)

    @abstractmethod
    async def _begin(self, agent: AnyAgent, claimed: Claimed, delivery: Delivery) -> None:
        """Execute the claimed run, here or elsewhere; return once it is on its way."""

    async def _check_room(self, agent: AnyAgent, mode: str, session_id: str | None) -> None:
        """Raise `QueueFullError` where a run that is claimed so could neither work nor wait."""
        return

    @abstractmethod
    async def close(self) -> None:
        """Let go of the store, and of what this process executes."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @abstractmethod
    def _delivery(self) -> Delivery:
        """Who acts now, and until when."""

    @abstractmethod
    def _gave_up(self, run_id: str) -> None:
        """Raise where waiting for the run would be waiting for ever."""

    async def wait_result(
        self, agent: Agent[Any, OutputT], session_id: str, run_id: str, timeout_s: float | None
    ) -> AgentResult[OutputT]:
        """The result of the run once it no longer runs; a superseded run reports how it stopped. Raises `TimeoutError`,
        and `RunStoppedError` where this process gave the run up."""
        async with asyncio.timeout(timeout_s):
            run = await wait_run(self.store, self.sessions, session_id, run_id, self._gave_up)
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
    ) -> AgentExecutionHandle[OutputT]:
        """Start a run: a new session, or the next message of one that is not running.

        input: a message, or `{"message": ..., "state": {...}}`. branch: `{"from_session_id": ..., "checkpoint_id": ...}`
        makes a new session from another's checkpoint (default its latest) first. run_id: the id of the run (default a new
        one, see `core.row_keys.make_run_id`); a repeat of the claim finds it as the session's.
        priority: where runs wait for slots, a higher one goes first (-999 to 999; a new session has 0): this run, and those
        of the session after it.
        Raises `AgentAlreadyRunningError` if the session is running: exactly one of several callers wins; `QueueFullError`
        if as many runs of the agent wait for a slot as may.
        """
        asked = parse_input(agent, input)
        self.agents.know(agent)
        if branch is not None:
            if not {"from_session_id"} <= set(branch) <= {"from_session_id", "checkpoint_id"}:
                raise InvalidInputError(
                    f"branch has {sorted(branch)}: give from_session_id, and checkpoint_id if you like"
                )
            if session_id is not None and await self.sessions.exists(session_id):
                raise InvalidInputError(f"branch makes a new session, and {session_id!r} exists: leave session_id out")
            await self._check_room(agent, "execute", None)
            copied = await self.branch(branch["from_session_id"], branch.get("checkpoint_id"), session_id=session_id)
            session_id = copied.session_id
        session_id = session_id or self.engine.ids.new("ses")
        opening = Opening(user_id=user_id, tags=tags or [], metadata=metadata or {})
        ask = ClaimInput(
            "execute",
            asked.message,
            asked.state or None,
            metadata=asked.metadata,
            run_id=run_id,
            opening=opening,
            priority=priority,
        )
        return await self._claim(agent, session_id, ask)

    async def resume(
        self,
        agent: Agent[StateT, OutputT],
        session_id: str,
        *,
        mode: ResumeMode = "continue",
        message: str | None = None,
        checkpoint_id: str | None = None,
        confirmation: Confirmation | None = None,
        run_id: str | None = None,
    ) -> AgentExecutionHandle[OutputT]:
        """Go on with an interrupted or paused session as a new run, or rewind to a checkpoint.

        continue: execute what is pending, then loop. with_message: close what is pending, then a new message.
        with_confirmation: answer a pending call (here or in a sub-agent). from_checkpoint: time travel, also from
        completed and failed sessions; later messages stay reachable by their own checkpoints.
        A session whose process died goes on here once its lease has lapsed.
        """
        self.agents.know(agent)
        _check_mode(mode, ResumeMode)
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
        if lapsed(session, self.engine.clock.now()):
            if mode == "continue":
                return await self._claim(agent, session_id, ClaimInput("takeover", run_id=run_id))
            await fail_lapsed(self.engine, agent, session_id, self._delivery())
            mode_after = "execute" if mode == "with_message" else mode
            ask = ClaimInput(mode_after, message, checkpoint_id=checkpoint_id, run_id=run_id)
            return await self._claim(agent, session_id, ask)
        ask = ClaimInput(mode, message, checkpoint_id=checkpoint_id, run_id=run_id)
        return await self._claim(agent, session_id, ask)

    async def retry(
        self,
        agent: Agent[StateT, OutputT],
        session_id: str,
        *,
        mode: RetryMode = "from_checkpoint",
        message: str | None = None,
        run_id: str | None = None,
    ) -> AgentExecutionHandle[OutputT]:
        """Try a failed session again with a fresh step budget: from its last checkpoint, or from the failed run's start.

        With a message, the failed run's unanswered message is replaced; without, nothing is repeated that was bought.
        """
        self.agents.know(agent)
        _check_mode(mode, RetryMode)
        await fail_lapsed(self.engine, agent, session_id, self._delivery())
        claim_mode = "retry" if mode == "from_checkpoint" else "from_start"
        return await self._claim(agent, session_id, ClaimInput(claim_mode, message, run_id=run_id))

    async def answer(self, agent: AnyAgent, session_id: str, confirmation: Confirmation) -> Answered:
        """Answer a call that waits, here or in a sub-agent. The runs that can go on are started here. First answer wins;
        later ones raise `CallNotPendingError`."""
        self.agents.know(agent)
        delivery = self._delivery()
        answered = await answer(self.engine, agent, session_id, confirmation, delivery)
        if answered.claimed is not None:
            target = agent.find_agent(answered.claimed.session.agent_type) or agent
            await self._begin(target, answered.claimed, delivery)
            for parent in await wake_parents(self.engine, answered.claimed.session, delivery):
                await self._begin(self.agents.named(parent.session.agent_type), parent, delivery)
        return answered

    async def _claim(
        self, agent: Agent[Any, OutputT], session_id: str, ask: ClaimInput
    ) -> AgentExecutionHandle[OutputT]:
        check_input(session_id, ask)
        await self._check_room(agent, ask.mode, session_id)
        delivery = self._delivery()
        if ask.mode == "execute":
            await self._revive(agent, session_id)
        for other in await sweep_session(self.engine, agent, session_id, delivery):
            await self._begin(self.agents.named(other.session.agent_type), other, self._delivery())
        await leave_children(self.engine, agent, session_id, ask, delivery)
        claimed = await claim(self.engine, agent, session_id, ask, delivery)
        await self._begin(agent, claimed, delivery)
        return AgentExecutionHandle(self, agent, session_id, claimed.run.run_id)

    async def _revive(self, agent: AnyAgent, session_id: str) -> None:
        """A new message to a session whose process died: its run failed, and the message follows."""
        session = await self.engine.history.session(session_id)
        if session is not None and session.status == "running":
            await fail_lapsed(self.engine, agent, session_id, self._delivery())

    # --- controlling and watching ---------------------------------------------------------------------------------

    async def get_handle(
        self, agent: Agent[Any, OutputT], session_id: str, run_id: str | None = None
    ) -> AgentExecutionHandle[OutputT]:
        """A handle of a run by ids (default: the session's current run)."""
        self.agents.know(agent)
        session = await self.sessions.get(session_id)
        await self._tidy(session_id)
        if run_id is not None:
            await self.sessions.get_run(session_id, run_id)
        return AgentExecutionHandle(self, agent, session_id, run_id or session.current_run_id)

    async def interrupt(self, session_id: str, reason: str | None = None, *, run_id: str | None = None) -> bool:
        """Ask the run to stop; from any process. False if it does not run."""
        return await interrupt(self.engine, session_id, run_id, reason)

    async def abort(
        self, agent: AnyAgent, session_id: str, reason: str | None = None, *, run_id: str | None = None
    ) -> None:
        """Fail the running session (with `run_id`: if that is its run) for good, its sub-agents too."""
        self.agents.know(agent)
        for other in await abort(self.engine, agent, session_id, reason, self._delivery(), run_id=run_id):
            await self._begin(self.agents.named(other.session.agent_type), other, self._delivery())

    async def can_resume(self, session_id: str) -> CanResumeResult:
        """Whether `resume` would go on with the session here: its agent must be known to this executor."""
        found = await self.sessions.can_resume(session_id, now=self.engine.clock.now())
        if found.can_resume:
            try:
                self.agents.named((await self.sessions.get(session_id)).agent_type)
            except AgentNotFoundError:
                return CanResumeResult(can_resume=False, reason="agent_not_registered")
        return found

    async def get_snapshot(self, session_id: str) -> SessionSnapshot:
        """The conversation at its newest checkpoint, and the sequence after which the stream goes on from there."""
        return await read_snapshot(self.sessions, self.streams, session_id)

    async def branch(
        self, from_session_id: str, checkpoint_id: str | None = None, *, session_id: str | None = None
    ) -> SessionState:
        """A new session with another's messages and state up to a checkpoint (default its latest)."""
        target = session_id or self.engine.ids.new("ses")
        await clone_session(self.engine, from_session_id, target, from_checkpoint_id=checkpoint_id)
        return await self.sessions.get(target)

    async def clone_session(
        self,
        source: str,
        target: str,
        *,
        from_checkpoint_id: str | None = None,
        from_message_index: int | None = None,
    ) -> SessionState:
        """Copy a session, or its first messages, to a new id. See `helix.engine.copies.clone_session`."""
        await clone_session(
            self.engine, source, target, from_checkpoint_id=from_checkpoint_id, from_message_index=from_message_index
        )
        return await self.sessions.get(target)

    async def delete(self, session_id: str) -> bool:
        """Delete the session, its sub-agents' sessions and its stream. Raises `AgentAlreadyRunningError` while it runs."""
        return await delete_session(self.engine, session_id)

    async def stream_run(self, session_id: str, run_id: str, *, after: int | None = None) -> AsyncIterator[StreamChunk]:
        async for message in self.stream_messages(session_id, run_id, after=after):
            if message.kind == "chunk":
                yield message.parsed()

    async def stream_messages(
        self, session_id: str, run_id: str, *, after: int | None = None
    ) -> AsyncIterator[StreamMessage]:
        """Messages of the run and of the sub-agents under it, gapless from its beginning to its end."""

        async def idle() -> None:
            self._gave_up(run_id)
            await self._tidy(session_id)

        async for message in read_run(self.streams, self.sessions, session_id, run_id, after, idle):
            yield message

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _tidy(self, session_id: str) -> None:
        """Complete the effects of a run whose worker died behind its end: who reads its stream waits for them."""
        session = await self.engine.history.session(session_id)
        if session is None or session.status not in ENDS:
            return
        run = await self.engine.history.run(session_id, session.run_id) if session.run_id else None
        silent_since = self.engine.clock.now() - self.engine.settings.lease_s
        if run is None or run.effects == "done" or (run.ended_at or 0) > silent_since:
            return
        for other in await sweep_session(
            self.engine, self.agents.named(session.agent_type), session_id, self._delivery()
        ):
            await self._begin(self.agents.named(other.session.agent_type), other, self._delivery())


def _check_mode(mode: str, modes: Any) -> None:
    if mode not in get_args(modes):
        raise InvalidInputError(f"mode is {mode!r}: use one of {', '.join(get_args(modes))}")
