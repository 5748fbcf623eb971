"""The service of a store on this machine, for the console: the gateway on loopback, with all sessions of the store.

Law: whoever may open the file operates it, so all sessions are shown; the token is this process's own, so that nobody else
on the machine gets them. Without agents it only looks: what would need one is refused.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from helix.console.server import Service, random_code
from helix.gateway.authoriser import Authoriser, Proof, refusal
from helix.gateway.loopback import LoopbackGateway
from helix.ports.clock import Clock
from helix.runtime.executor import Executor


class OneToken(Authoriser):
    """Takes the holder of one token, as the operator."""

    def __init__(self, clock: Clock, token: str) -> None:
        super().__init__(clock, anonymous=True)
        self._token = token

    async def prove(self, token: str | None) -> Proof:
        if token is None or not hmac.compare_digest(token.encode("utf-8", "replace"), self._token.encode()):
            raise refusal("it is not this console's")
        return await super().prove(None)


@asynccontextmanager
async def serving(executor: Executor, place: str) -> AsyncIterator[Service]:
    """Until the block ends. The agents are those of the executor's registry."""
    token = random_code()
    authoriser = OneToken(executor.engine.clock, token)
    async with LoopbackGateway(executor, authoriser=authoriser, operator=True) as served:
        yield Service(served.url, token, place, executor.registry.registered_types())
