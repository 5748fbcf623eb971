"""Run a server in its own process, which a test kills: `python -m tests.support.http_server DATABASE`. It prints its
port."""

from __future__ import annotations

import asyncio
import socket
import sys

import uvicorn
from tests.support.cloud_agents.cast import CAST
from tests.support.cloud_agents.planned import PlannedModel

import helix.http
from helix import LocalExecutor
from helix.engine.engine import Settings


async def main(database: str) -> None:
    async with LocalExecutor(database, model=PlannedModel(), settings=Settings(claim_s=1)) as executor:
        app = helix.http.app(executor, CAST, heartbeat_s=0.2)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            print(listener.getsockname()[1], flush=True)
            await uvicorn.Server(uvicorn.Config(app, log_config=None)).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
