"""`helix fleet serve`: serve agents with a runtime in this terminal, until Ctrl-C.

Law: the agents' modules are imported before the runtime installs its signal handlers, so that Ctrl-C can stop a hanging
import.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from helix.cli.agent_lookup import load_agent
from helix.cli.options import Db, Model, settings
from helix.cli.output import say
from helix.cli.view.base import model_in_words
from helix.cli.view.formats import count
from helix.core.agents import AnyAgent
from helix.runtime.models import choose_model
from helix.runtime.settings import DEFAULT_DB
from helix.workers.config import DEVELOPMENT, RuntimeConfig
from helix.workers.runtime import AgentRuntime


def serve(
    agents: Annotated[
        list[str], typer.Argument(metavar="AGENT...", help="One or more of module:name or path/file.py:name")
    ],
    model: Model = None,
    workers: Annotated[int, typer.Option("--workers", min=1, max=100, help="Worker processes at most")] = 10,
    watch: Annotated[bool, typer.Option("--watch/--no-watch", help="Restart when the agents' files change")] = False,
    db: Db = DEFAULT_DB,
) -> None:
    loaded = {place: load_agent(place, settings().agents) for place in agents}
    files = [Path(where) for where in (place.partition(":")[0] for place in agents) if where.endswith(".py")]
    config = RuntimeConfig(
        environment=DEVELOPMENT if watch else "production",
        watch_paths=sorted({str(file.parent) for file in files}) or ["."],
        max_workers=workers,
        store=db,
        model=model,
    )
    asyncio.run(_serve(config, loaded))


async def _serve(config: RuntimeConfig, agents: Mapping[str, AnyAgent]) -> None:
    runtime = AgentRuntime(config)
    async with runtime:
        for place, agent in agents.items():
            name = agent.name
            await runtime.register_agent(name, place if ":" in place else agent)
            choice = choose_model(agent, config.model, os.environ)
            if choice.missing is None:
                say(f"{name}: model: {model_in_words(choice)}")
            else:
                say(
                    f"{name}: model: each agent's own, and {choice.missing} is not set: its calls will fail; set it and "
                    "serve again, or use --model demo"
                )
            processes = await runtime.start_agent(name)
            say(f"{name}: {count(len(processes), 'worker process')} ({', '.join(processes)})")
        say(f"serving from {config.store!r}; logs are in {config.logs!r}; Ctrl-C stops it; runs are kept")
        await runtime.wait_for_shutdown()
    say("ended")
