"""Commands that want something of an agent: scale, stop, start, restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from helix.adapters.row_slots import RowSlots
from helix.adapters.system import SystemClock, SystemIds
from helix.cli.formats import count
from helix.cli.places import Place, opened
from helix.cli.refusal import COMPLETED
from helix.cli.views import say
from helix.fleet.decisions import DecisionLog
from helix.fleet.deployed import DeployedRuntime
from helix.fleet.desk import FleetDesk


@asynccontextmanager
async def _at(place: Place) -> AsyncIterator[tuple[FleetDesk, DeployedRuntime]]:
    """What is wanted of the agents there, and their runs."""
    async with opened(place) as store:
        clock, deployed = SystemClock(), DeployedRuntime(store)
        if place.stage is not None:
            yield await deployed.desk(), deployed
        else:
            log = DecisionLog(store, clock, SystemIds())
            yield FleetDesk(store, clock, slots=RowSlots(store), log=log), deployed


def scale(place: Place, agent: str, instances: int) -> int:
    async def act() -> None:
        async with _at(place) as (desk, _):
            await desk.scale(agent, instances)

    asyncio.run(act())
    kept = f"has {count(instances, 'instance')} now"
    if instances == 0:
        kept = "keeps none ready, and the first run begins one (`helix fleet stop` lets none begin)"
    say(f"{agent} {kept}; what is at work goes on")
    return COMPLETED


def stop(place: Place, agent: str, force: bool) -> int:
    async def act() -> int | None:
        """How many runs were told; None: their runtime tells them."""
        async with _at(place) as (desk, deployed):
            await desk.stop(agent, force=force)
            supervised = (await desk.status(agent))["supervisor"] is not None
            return None if supervised else await deployed.tell_to_stop(agent, force)

    told = asyncio.run(act())
    done = "aborted" if force else "interrupted"
    if told is None:
        say(f"{agent} takes in no runs; its runtime stops those at work ({done})")
    else:
        say(f"{agent} takes in no runs; {count(told, 'run')} at work {'is' if told == 1 else 'are'} being {done}")
    return COMPLETED


def start(place: Place, agent: str) -> int:
    async def act() -> None:
        async with _at(place) as (desk, _):
            await desk.start(agent)

    asyncio.run(act())
    say(f"{agent} takes in runs; those that wait are started in their order")
    return COMPLETED


def restart(place: Place, agent: str) -> int:
    async def act() -> str:
        async with _at(place) as (desk, deployed):
            if place.stage is not None:
                await deployed.restart_agent(agent)
                return f"{agent}: runs at work are being interrupted, and new ones are taken in"
            await desk.restart(agent)
            supervised = (await desk.status(agent))["supervisor"] is not None
            later = "" if supervised else " once a runtime looks after it (helix fleet serve)"
            return f"{agent} is started anew{later}"

    say(asyncio.run(act()))
    return COMPLETED
