"""Run a runtime in its own process, to be killed: `python -m tests.support.fleet_runtime FOLDER`. It serves `steady`, and
prints a line when it does. With a second argument it does not shut the runtime down: `raise` raises, and `forever` waits
forever. With `elsewhere` its rows say that it is on another machine."""

from __future__ import annotations

import asyncio
import socket
import sys

from tests.support import worker_agents

from helix.fleet import AgentRuntime, ResourceConfig, RuntimeConfig


async def main(folder: str, end: str = "") -> None:
    if end == "elsewhere":
        socket.gethostname = lambda: "another machine"
    model = "import:tests.support.worker_agents:model"
    config = RuntimeConfig(store=f"{folder}/helix.db", logs=f"{folder}/logs", model=model, hot_reload=False)
    runtime = AgentRuntime(config)
    await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(shutdown_timeout=5))
    await runtime.start()
    print(*await runtime.start_agent("steady"), flush=True)
    if end == "raise":
        raise RuntimeError("the program failed")
    if end == "forever":
        await asyncio.Event().wait()
    await runtime.wait_for_shutdown()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
