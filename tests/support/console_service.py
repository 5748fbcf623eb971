"""Services for the console that a test kills and starts again, in processes of their own.

Law: a killed service ends as after a power failure of its process: nothing is flushed or closed. A new one is forked from a
process that has imported everything, because tests start many.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support_run import agent

from helix import LocalExecutor
from helix.console.here import OneToken
from helix.core.messages import UserMessage
from helix.core.registry import AgentRegistry
from helix.core.steps import AnyStepResult, TextStepResult
from helix.engine.engine import Settings
from helix.gateway.loopback import LoopbackGateway
from helix.ports.model import LLMGenerateInput

PIECE_S = 0.03


class Echo:
    """A model that answers with the last message, word by word."""

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        (*_, last) = (message for message in request.messages if isinstance(message, UserMessage))
        text = f"You said {last.content}"
        for word in text.split(" "):
            await asyncio.sleep(PIECE_S)
            assert request.callbacks.on_text_delta is not None
            if (waiting := request.callbacks.on_text_delta(f"{word} ")) is not None:
                await waiting
        return TextStepResult(content=text)


async def _serve(db: str) -> None:
    registry = AgentRegistry()
    registry.replace(agent("helper"))
    async with LocalExecutor(db, model=Echo(), registry=registry, settings=Settings(claim_s=1)) as executor:
        authoriser = OneToken(executor.engine.clock, "token")
        async with LoopbackGateway(executor, authoriser=authoriser, operator=True) as served:
            print(os.getpid(), served.url.rpartition(":")[2], flush=True)
            await asyncio.Event().wait()


def main(db: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in sys.stdin:
        if os.fork() == 0:
            asyncio.run(_serve(db))


class Services:
    """Starts services on one store. At most one runs at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = 0

    async def start(self) -> int:
        """Start a service, and return its port."""
        assert self._process.stdin is not None and self._process.stdout is not None and self.pid == 0
        self._process.stdin.write(b"start\n")
        self.pid, port = map(int, (await self._process.stdout.readline()).split())
        return port

    def kill(self) -> None:
        pid, self.pid = self.pid, 0
        if pid:
            os.kill(pid, signal.SIGKILL)


@asynccontextmanager
async def services(db: str) -> AsyncIterator[Services]:
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "tests.support.console_service", db]
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    made = Services(process)
    try:
        yield made
    finally:
        made.kill()
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


if __name__ == "__main__":
    main(sys.argv[1])
