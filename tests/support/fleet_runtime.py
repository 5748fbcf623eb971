"""A runtime in a process of its own, to be killed: `python -m tests.support.fleet_runtime FOLDER`. Serves `steady`, and
prints a line when it does."""

from __future__ import annotations

import asyncio
import sys

from tests.support import worker_agents

from helix.fleet import AgentRuntime, ResourceConfig, RuntimeConfig


async def main(folder: str) -> None:
    model = "import:tests.support.worker_agents:model"
    config = RuntimeConfig(store=f"{folder}/helix.db", logs=f"{folder}/logs", model=model, hot_reload=False)
    runtime = AgentRuntime(config)
    await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(shutdown_timeout=5))
    await runtime.start()
    print(*await runtime.start_agent("steady"), flush=True)
    await runtime.wait_for_shutdown()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
