"""`helix fleet serve`: a runtime in this terminal, until Ctrl-C."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from helix.cli.agents import load_agent
from helix.cli.formats import count
from helix.cli.refusal import COMPLETED
from helix.cli.views import say
from helix.fleet.config import DEVELOPMENT, RuntimeConfig
from helix.fleet.runtime import AgentRuntime
from helix.runtime.settings import ProcessSettings


def serve(
    settings: ProcessSettings, db: str, agents: Sequence[str], model: str | None, workers: int, watch: bool
) -> int:
    files = [Path(where) for where in (place.partition(":")[0] for place in agents) if where.endswith(".py")]
    folders = sorted({str(file.parent) for file in files})
    config = RuntimeConfig(
        environment=DEVELOPMENT if watch else "production",
        watch_paths=folders or ["."],
        max_workers=workers,
        store=db,
        model=model,
    )
    asyncio.run(_serve(config, agents, settings.agents))
    return COMPLETED


async def _serve(config: RuntimeConfig, agents: Sequence[str], listed: tuple[str, ...]) -> None:
    runtime = AgentRuntime(config)
    async with runtime:
        for place in agents:
            agent = load_agent(place, listed)
            name = agent.name
            await runtime.register_agent(name, place if ":" in place else agent)
            processes = await runtime.start_agent(name)
            say(f"{name}: {count(len(processes), 'worker process')} ({', '.join(processes)})")
        say(f"serving from {config.store!r}; logs are in {config.logs!r}; Ctrl-C ends it, runs are kept")
        await runtime.wait_for_shutdown()
    say("ended")
