"""The objects that actions work on, and the ownership of sessions.

Law: a session belongs to the principal for whom its root was created (a stream has the id of its root session). For other
principals it does not exist: they get the same error, word for word, as for a missing session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from helix.core.agents import AnyAgent
from helix.core.errors import (
    AgentNotFoundError,
    DamagedRowError,
    InvalidInputError,
    NotAllowedError,
    SessionNotFoundError,
)
from helix.core.registry import AgentFactoryContext, AgentRegistry
from helix.core.session_row import SessionRow
from helix.engine.history import DELETING, History
from helix.gateway.authoriser import Authoriser, prefix_of
from helix.gateway.connections import Connection, Connections
from helix.ports.clock import Clock
from helix.ports.function_logs import Logs
from helix.ports.sockets import Sockets
from helix.ports.state_store import Key, Value
from helix.runtime.executor import Executor
from helix.services.row_slots import RowSlots
from helix.services.session_index import index_partition
from helix.sessions.users import list_users

if TYPE_CHECKING:
    from helix.gateway.loopback_files import LoopbackFiles

GET_PAGE = 50


def index_entry(user: str | None, session_id: str) -> Key:
    return Key("sessions", index_partition(user), session_id)


class Backend:
    """The backend of a process. registry: the agents that clients may name, by default the executor's. streaming: the
    setting of the deployed stage. None on a developer's machine, where no platform costs arise. stage, machine: the name
    of the stage and the ARN of its state machines, as in `CloudSettings`. None and "" on a developer's machine.
    logs: the logs of the stage's functions. None on a developer's machine.
    served_files: the server of uploads and downloads, for stores that are not in S3."""

    operates: ClassVar[bool] = False
    """Whether all callers are operators."""

    def __init__(
        self,
        executor: Executor,
        sockets: Sockets,
        authoriser: Authoriser,
        *,
        connections: Connections | None = None,
        registry: AgentRegistry | None = None,
        clock: Clock | None = None,
        streaming: str | None = None,
        stage: str | None = None,
        machine: str = "",
        logs: Logs | None = None,
        served_files: LoopbackFiles | None = None,
    ) -> None:
        self.streaming, self.served_files = streaming, served_files
        self.stage, self.machine, self.logs = stage, machine, logs
        self.executor, self.sockets, self.authoriser = executor, sockets, authoriser
        self.clock, self.ids = clock or executor.engine.clock, executor.engine.ids
        self.connections = connections or Connections(executor.store, self.clock)
        self.registry = registry or executor.registry
        self.history = History(executor.store)
        self.slots = executor.engine.slots or RowSlots(executor.store)

    def is_operator(self, caller: Connection) -> bool:
        """Whether the caller may read the fleet and change budgets. This does not grant access to others' sessions."""
        return self.operates or caller.operator

    def check_operator(self, caller: Connection) -> None:
        """Raise `NotAllowedError` unless the caller is an operator."""
        if not self.is_operator(caller):
            raise NotAllowedError("this is for operators: use a key that was made with --operator")

    # --- sessions and their owners --------------------------------------------------------------------------------------

    async def get_owned(self, principal: str | None, session_id: str, *, deleting: bool = False) -> SessionRow:
        """Return the session's row. With `deleting`, this includes a session whose deletion has begun. Raises
        `SessionNotFoundError` if it does not exist or belongs to another principal."""
        row = await self.find(principal, session_id, deleting=deleting)
        if row is None:
            raise SessionNotFoundError(session_id)
        return row

    async def find(self, principal: str | None, session_id: str, *, deleting: bool = False) -> SessionRow | None:
        """Return the session's row, or None if it does not exist or belongs to another principal. Raises
        `DamagedRowError` if the principal's own row cannot be read."""
        try:
            row = await self.history.session(session_id)
        except DamagedRowError:
            if await self.get_entry(principal, session_id) is None:
                return None
            raise
        if row is None or not await self.history.belongs(row, principal):
            return None
        return row if row.status != DELETING or deleting else None

    async def get_entry(self, principal: str | None, session_id: str) -> Value | None:
        """Return the entry of a root session in its owner's list, which shows the owner even if its row cannot be
        read."""
        (entry,) = await self.executor.store.get([index_entry(principal, session_id)])
        return entry

    async def check_free(self, session_id: str) -> None:
        """Refuse the id of another principal's session, because that session must not get this principal's message."""
        if await self.history.session(session_id) is not None:
            raise SessionNotFoundError(session_id)

    def check_prefix(self, principal: str | None, session_id: str) -> None:
        """Refuse an id that does not begin with the principal's prefix. Another principal may have taken it, and the caller
        must not learn that. So the error says that the session does not exist."""
        prefix = prefix_of(principal)
        if not session_id.startswith(prefix):
            raise SessionNotFoundError(session_id, prefix)

    async def users(self, principal: str | None, wanted: str | None) -> list[str | None]:
        """Return the users whose sessions the principal may list. `wanted` limits them to this user."""
        if wanted not in (None, principal):
            raise InvalidInputError(f"user is {wanted!r}; this connection lists the sessions of its own user only")
        return [principal]

    def user(self, principal: str | None, wanted: str | None) -> str:
        """Return the user whose usage to show: the principal itself. Raises `InvalidInputError` if `wanted` is another
        user, or if there is no principal."""
        if wanted not in (None, principal):
            raise InvalidInputError(f"user is {wanted!r}; this connection sees the usage of its own user only")
        if principal is None:
            raise InvalidInputError("usage is counted for each user: connect with a token")
        return principal

    # --- agents -----------------------------------------------------------------------------------------------------------

    def agent(self, name: str, principal: str | None, session_id: str | None = None) -> AnyAgent:
        """Return the agent with that name. Raises `AgentNotFoundError`, which does not list other agents."""
        context = AgentFactoryContext(session_id=session_id, user_id=principal)
        try:
            return self.registry.resolve(name, context)
        except AgentNotFoundError:
            raise AgentNotFoundError(f"there is no agent {name!r} here") from None

    async def agent_of(self, row: SessionRow, principal: str | None) -> AnyAgent:
        """Return the agent of a session. A sub-agent is found in the agent of its root session."""
        if row.parent is None:
            return self.agent(row.agent_type, principal, row.session_id)
        root = await self.history.existing(row.stream_id)
        agent = self.agent(root.agent_type, principal, root.session_id)
        return agent.find_agent(row.agent_type) or self.agent(row.agent_type, principal, row.session_id)


def check_root(row: SessionRow) -> None:
    """Refuse a sub-agent's session, for actions that apply only to root sessions."""
    if row.parent is not None:
        raise InvalidInputError(f"session {row.session_id!r} is a sub-agent's: act on its root, {row.stream_id!r}")


FOREVER = 253_402_300_799.0
"""The end of the year 9999 in Unix seconds. JSON has no infinity."""
OPERATOR = Connection("operator", None, FOREVER, 0.0)
"""The caller who runs the service. This is the command line on its own store, or an AWS caller that IAM allows to
invoke the function."""


class OperatorBackend(Backend):
    """A backend for operators. They see and act on the sessions of all users, and may choose any free id."""

    operates = True

    async def find(self, principal: str | None, session_id: str, *, deleting: bool = False) -> SessionRow | None:
        row = await self.history.session(session_id)
        return None if row is None or (row.status == DELETING and not deleting) else row

    async def get_entry(self, principal: str | None, session_id: str) -> Value | None:
        keys = [index_entry(user, session_id) for user in await self.users(None, None)]
        for start in range(0, len(keys), GET_PAGE):
            for entry in await self.executor.store.get(keys[start : start + GET_PAGE]):
                if entry is not None:
                    return entry
        return None

    async def check_free(self, session_id: str) -> None:
        return

    def check_prefix(self, principal: str | None, session_id: str) -> None:
        return

    async def users(self, principal: str | None, wanted: str | None) -> list[str | None]:
        return [None, *await list_users(self.executor.store)] if wanted is None else [wanted]

    def user(self, principal: str | None, wanted: str | None) -> str:
        if wanted is None:
            raise InvalidInputError("an operator has no usage of their own: name a user")
        return wanted

    async def agent_of(self, row: SessionRow, principal: str | None) -> AnyAgent:
        return await super().agent_of(row, row.user_id)
