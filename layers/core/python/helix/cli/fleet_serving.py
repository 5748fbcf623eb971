"""`helix fleet serve`: a runtime in this terminal, until Ctrl-C.

Law: the agents' modules are imported before the runtime listens to signals, so that Ctrl-C ends one that never comes to its
end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from helix.cli.agents import load_agent
from helix.cli.formats import count
from helix.cli.refusal import COMPLETED
from helix.cli.views import say
from helix.core.agents import AnyAgent
from helix.fleet.config import DEVELOPMENT, RuntimeConfig
from helix.fleet.runtime import AgentRuntime
from helix.runtime.models import choose_model
from helix.runtime.settings import ProcessSettings


def serve(
    settings: ProcessSettings, db: str, agents: Sequence[str], model: str | None, workers: int, watch: bool
) -> int:
    loaded = {place: load_agent(place, settings.agents) for place in agents}
    files = [Path(where) for where in (place.partition(":")[0] for place in agents) if where.endswith(".py")]
    folders = sorted({str(file.parent) for file in files})
    config = RuntimeConfig(
        environment=DEVELOPMENT if watch else "production",
        watch_paths=folders or ["."],
        max_workers=workers,
        store=db,
        model=model,
    )
    asyncio.run(_serve(config, loaded))
    return COMPLETED


async def _serve(config: RuntimeConfig, agents: Mapping[str, AnyAgent]) -> None:
    runtime = AgentRuntime(config)
    async with runtime:
        for place, agent in agents.items():
            name = agent.name
            await runtime.register_agent(name, place if ":" in place else agent)
            missing = choose_model(agent, None, os.environ).missing if config.model is None else None
            if missing is not None:
                say(
                    f"{missing} is not set: model calls of {name} will fail; set it and serve again, or add --model demo"
                )
            processes = await runtime.start_agent(name)
            say(f"{name}: {count(len(processes), 'worker process')} ({', '.join(processes)})")
        say(f"serving from {config.store!r}; logs are in {config.logs!r}; Ctrl-C ends it, runs are kept")
        await runtime.wait_for_shutdown()
    say("ended")
