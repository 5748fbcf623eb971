"""What the actions act on, and whose sessions are whose.

Law: a session belongs to the principal that its root was made for (a stream has the id of its root session). For
anybody else it does not exist: the same error, word for word.
"""

from __future__ import annotations

from helix.core.agents import AnyAgent
from helix.core.errors import AgentNotFoundError, DamagedRowError, InvalidInputError, SessionNotFoundError
from helix.core.registry import AgentFactoryContext, AgentRegistry
from helix.core.rows import SessionRow
from helix.engine.history import DELETING, History
from helix.gateway.authoriser import Authoriser, prefix_of
from helix.gateway.connections import Connections
from helix.ports.clock import Clock
from helix.ports.sockets import Sockets
from helix.ports.state_store import Key, Value
from helix.runtime.executor import Executor


class Backend:
    """One for each process. registry: the agents that clients may name, default the executor's."""

    def __init__(
        self,
        executor: Executor,
        sockets: Sockets,
        authoriser: Authoriser,
        *,
        connections: Connections | None = None,
        registry: AgentRegistry | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.executor, self.sockets, self.authoriser = executor, sockets, authoriser
        self.clock, self.ids = clock or executor.engine.clock, executor.engine.ids
        self.connections = connections or Connections(executor.store, self.clock)
        self.registry = registry or executor.registry
        self.history = History(executor.store)

    # --- sessions and their owners --------------------------------------------------------------------------------------

    async def owned(self, principal: str | None, session_id: str, *, deleting: bool = False) -> SessionRow:
        """The session's row. `deleting`: one whose deletion has begun counts. Raises `SessionNotFoundError` where there
        is none, or it is another's."""
        row = await self.find(principal, session_id, deleting=deleting)
        if row is None:
            raise SessionNotFoundError(session_id)
        return row

    async def find(self, principal: str | None, session_id: str, *, deleting: bool = False) -> SessionRow | None:
        """None where there is none, or it is another's. Raises `DamagedRowError` for one's own that cannot be read."""
        try:
            row = await self.history.session(session_id)
        except DamagedRowError:
            if await self.listed(principal, session_id) is None:
                return None
            raise
        if row is None or not await self.history.belongs(row, principal):
            return None
        return row if row.status != DELETING or deleting else None

    async def listed(self, principal: str | None, session_id: str) -> Value | None:
        """The entry of a root session in its owner's list, which says whose it is where its row cannot be read."""
        (entry,) = await self.executor.store.get([Key("sessions", f"index#{principal or ''}", session_id)])
        return entry

    async def check_free(self, session_id: str) -> None:
        """A session that is not the principal's, whatever its id, must not be given the principal's message."""
        if await self.history.session(session_id) is not None:
            raise SessionNotFoundError(session_id)

    # --- agents -----------------------------------------------------------------------------------------------------------

    def agent(self, name: str, principal: str | None, session_id: str | None = None) -> AnyAgent:
        """The agent of that name. Raises `AgentNotFoundError`, which lists nothing."""
        context = AgentFactoryContext(session_id=session_id, user_id=principal)
        try:
            return self.registry.resolve(name, context)
        except AgentNotFoundError:
            raise AgentNotFoundError(f"there is no agent {name!r} here") from None

    async def agent_of(self, row: SessionRow, principal: str | None) -> AnyAgent:
        """The agent of a session: a sub-agent is found in its root's."""
        if row.parent is None:
            return self.agent(row.agent_type, principal, row.session_id)
        root = await self.history.existing(row.stream_id)
        agent = self.agent(root.agent_type, principal, root.session_id)
        return agent.find_agent(row.agent_type) or self.agent(row.agent_type, principal, row.session_id)


def check_wanted(principal: str | None, session_id: str) -> None:
    """A session's id may be chosen if it begins with the principal's prefix. Any other may be taken by somebody else, and
    who is refused it must not learn that: so the answer is that there is no such session."""
    if not session_id.startswith(prefix_of(principal)):
        raise SessionNotFoundError(session_id)


def check_root(row: SessionRow) -> None:
    """For what cannot be done with a sub-agent's session alone."""
    if row.parent is not None:
        raise InvalidInputError(f"session {row.session_id!r} is a sub-agent's: act on its root, {row.stream_id!r}")
