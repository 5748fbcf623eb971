"""The verbs that read and change sessions without starting a run for a caller."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from contextlib import suppress

from helix.core.agents import AnyAgent
from helix.core.delivery import Delivery
from helix.core.elsewhere import CallEnding
from helix.core.errors import AgentNotFoundError
from helix.core.files import FilePart
from helix.core.handles import CanResumeResult, SessionSnapshot, SessionState
from helix.core.inbox import Withdrawn
from helix.core.json import JsonValue
from helix.engine.claims.claim import Claimed
from helix.engine.claims.confirm import wake_parents
from helix.engine.claims.elsewhere import end_call, prolong_call
from helix.engine.engine import Engine
from helix.engine.inbox import show_waiting, withdraw
from helix.engine.row_requests import ask_for_summary, change_tags, rename
from helix.engine.runs.ends import abort, interrupt
from helix.engine.runs.housekeeping import name_checkpoint
from helix.runtime.agent_models import Agents
from helix.runtime.message_files import read_file
from helix.sessions.copies import clone_session
from helix.sessions.deletion import delete_session, expire_all
from helix.sessions.read import Sessions
from helix.sessions.snapshots import read_snapshot


class SessionVerbs(ABC):
    """The base of `Executor`: stops, copies and deletes sessions."""

    def __init__(self, engine: Engine, agents: Agents) -> None:
        self.engine = engine
        self.agents = agents
        self.registry = agents.registry
        self.store, self.streams = engine.store, engine.streams
        self.sessions = Sessions(engine.store)

    @abstractmethod
    async def _begin(self, agent: AnyAgent, claimed: Claimed, delivery: Delivery) -> None:
        """Execute the claimed run, here or elsewhere. Return once its execution has been started."""

    @abstractmethod
    def _delivery(self) -> Delivery:
        """Return the delivery for the current call, with its deadline."""

    async def _begin_each(self, claims: Iterable[Claimed], delivery: Delivery | None = None) -> None:
        """Begin the claimed runs. delivery: None for a new one each."""
        for claimed in claims:
            agent = self.agents.named(claimed.session.agent_type)
            await self._begin(agent, claimed, delivery or self._delivery())

    async def interrupt(self, session_id: str, reason: str | None = None, *, run_id: str | None = None) -> bool:
        """Ask the run to stop, from any process. Return False if it is not running."""
        return await interrupt(self.engine, session_id, run_id, reason)

    async def withdraw(self, session_id: str, queued_id: str) -> Withdrawn:
        """Take back a message that waits in the session's inbox. Return `withdrawn`, or `delivered` if it is in history
        already, or `not_found` if no such message waits."""
        outcome = await withdraw(self.engine, session_id, queued_id)
        if outcome == "withdrawn":
            with suppress(AgentNotFoundError):  # then readers of the stream see it when they load the session
                agent = self.agents.named((await self.sessions.get(session_id)).agent_type)
                await show_waiting(self.engine, agent, session_id, queued_id, None)
        return outcome

    async def abort(
        self, agent: AnyAgent, session_id: str, reason: str | None = None, *, run_id: str | None = None
    ) -> None:
        """Fail a running, paused or interrupted session permanently, with its sub-agents. With `run_id`, do so only if
        that is its current run. A session that has ended stays as it is."""
        self.agents.know(agent)
        await self._begin_each(await abort(self.engine, agent, session_id, reason, self._delivery(), run_id=run_id))

    async def complete_call(self, token: str, value: JsonValue = None) -> None:
        """End a call that ends elsewhere (`ToolContext.later`) with its result, of at most 100,000 bytes. The run that goes
        on is started here.

        The same result again changes nothing. Raises `InvalidCallTokenError` if no call has the token, `CallEndedError` if
        the call has ended otherwise, and `InvalidInputError` if the result is too large or does not fit the tool.
        """
        await self._end_call(token, CallEnding(value))

    async def fail_call(self, token: str, error: str) -> None:
        """End a call that ends elsewhere with an error message for the model. Raises like `complete_call`."""
        await self._end_call(token, CallEnding(error=error))

    async def prolong_call(self, token: str) -> float | None:
        """Record a heartbeat of a call that ends elsewhere. Return the time (Unix seconds) when its wait ends without
        another one. None: never, or its tool still runs. Raises like `complete_call`."""
        return await prolong_call(self.engine, token)

    async def _end_call(self, token: str, ending: CallEnding) -> None:
        delivery = self._delivery()
        answered = await end_call(self.engine, token, ending, delivery)
        if answered.claimed is not None:
            woken = await wake_parents(self.engine, answered.claimed.session, delivery)
            await self._begin_each([answered.claimed, *woken], delivery)

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
        """Return the conversation at its newest checkpoint, and the position where the stream continues. newest: the
        maximum number of messages, counted from the end."""
        return await read_snapshot(self.sessions, self.streams, session_id, newest)

    async def compact(self, session_id: str, focus: str = "") -> None:
        """Request that the session's next step first replace the beginning of the conversation with a summary, if there
        is enough to summarise. This does not start a run. focus: the aspects that the summary should focus on, in at
        most 1,000 characters. The last request wins."""
        await ask_for_summary(self.engine, session_id, focus)

    async def rename(self, session_id: str, title: str) -> str:
        """Give the session a title of at most 120 characters, at any time, and return it as stored: on one line. A run that
        works is not disturbed. An empty title removes it; the session then has that of its first message again."""
        return await rename(self.engine, session_id, title)

    async def change_tags(
        self, session_id: str, *, add: Collection[str] = (), remove: Collection[str] = ()
    ) -> list[str]:
        """Remove tags of the session and add others, at any time, and return its tags as stored. A run that works is not
        disturbed. Sub-agents that start later inherit the tags. Raises `InvalidInputError` for more than 50 tags, and for
        one of more than 256 characters."""
        return await change_tags(self.engine, session_id, add, remove)

    async def branch(
        self, from_session_id: str, checkpoint_id: str | None = None, *, session_id: str | None = None
    ) -> SessionState:
        """Create a new session with another's messages and state up to a checkpoint (default: its latest)."""
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
        """Name the checkpoint. A named checkpoint is kept regardless of `Settings.keep_checkpoints`. None removes the
        name. Raises `CheckpointNotFoundError`."""
        await name_checkpoint(self.engine, session_id, checkpoint_id, name)

    async def read_file(self, session_id: str, file: FilePart) -> bytes:
        """Return the bytes of a file that a message or a result of the session names. Raises `FileMissingError`."""
        return await read_file(self.engine, session_id, file)

    async def delete(self, session_id: str) -> bool:
        """Delete the session, its sub-agents' sessions and its stream. Raises `AgentAlreadyRunningError` while it
        runs."""
        return await delete_session(self.engine, session_id)

    async def expire(self) -> int:
        """Delete the sessions that have not been used for `Settings.session_ttl_s`, expired rows (`StateStore.purge`),
        and files that no session holds. Return the number of sessions. Fleets and deployments do this on their own."""
        expired = await expire_all(self.engine, self._delivery())
        if self.engine.files is not None:
            await self.engine.files.collector.collect()
        return expired
