"""The console's service for a store on this machine: the gateway on loopback, with all sessions in the store.

Law: a user who can open the store is its operator, so the console shows all sessions. The token is random and known only to
this process, so that other users on the machine cannot read the sessions. Without agents, the service can only show
sessions, and refuses requests that need an agent.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from helix.adapters.system import SystemIds
from helix.console.server import Service
from helix.gateway.authoriser import Authoriser, Proof, refusal
from helix.gateway.loopback import LoopbackGateway
from helix.ports.clock import Clock
from helix.ports.ids import new_secret
from helix.runtime.executor import Executor


class OneToken(Authoriser):
    """An authoriser that accepts a single token and treats its holder as the operator."""

    def __init__(self, clock: Clock, token: str) -> None:
        super().__init__(clock, anonymous=True)
        self._token = token

    async def prove(self, token: str | None) -> Proof:
        if token is None or not hmac.compare_digest(token.encode("utf-8", "replace"), self._token.encode()):
            raise refusal("it is not a token of this console")
        return await super().prove(None)


@asynccontextmanager
async def serve_console(executor: Executor, place: str) -> AsyncIterator[Service]:
    """Serve the executor's store until the block ends, with the agents of its registry."""
    token = new_secret(SystemIds())
    authoriser = OneToken(executor.engine.clock, token)
    async with LoopbackGateway(executor, authoriser=authoriser, operator=True) as served:
        yield Service(served.url, token, place, executor.registry.registered_types(), served.files.origin)
