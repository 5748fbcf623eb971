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
from helix.ports.state_store import StateStore


@asynccontextmanager
async def desk_of(place: Place) -> AsyncIterator[tuple[FleetDesk, StateStore]]:
    """What is wanted of worker processes, and their store."""
    async with opened(place) as store:
        clock = SystemClock()
        yield FleetDesk(store, clock, slots=RowSlots(store), log=DecisionLog(store, clock, SystemIds())), store


def scale(place: Place, agent: str, instances: int) -> int:
    async def act() -> None:
        if place.stage is not None:
            async with opened(place) as store:
                await DeployedRuntime(store).scale_agent(agent, instances)
            return
        async with desk_of(place) as (desk, _):
            await desk.scale(agent, instances)

    asyncio.run(act())
    say(f"{agent} has {count(instances, 'instance')} now; what is at work goes on")
    return COMPLETED


def stop(place: Place, agent: str, force: bool) -> int:
    async def act() -> int | None:
        """How many runs were told; None: their runtime tells them."""
        if place.stage is not None:
            async with opened(place) as store:
                return await DeployedRuntime(store).stop_agent(agent, force)
        async with desk_of(place) as (desk, store):
            await desk.stop(agent, force=force)
            if (await desk.status(agent))["supervisor"] is not None:
                return None
            return await DeployedRuntime(store).tell_to_stop(agent, force)

    told = asyncio.run(act())
    done = "aborted" if force else "interrupted"
    if told is None:
        say(f"{agent} takes in no runs; its runtime stops those at work ({done})")
    else:
        say(f"{agent} takes in no runs; {count(told, 'run')} at work {'is' if told == 1 else 'are'} being {done}")
    return COMPLETED


def start(place: Place, agent: str) -> int:
    async def act() -> None:
        if place.stage is not None:
            async with opened(place) as store:
                await DeployedRuntime(store).start_agent(agent)
            return
        async with desk_of(place) as (desk, _):
            await desk.start(agent)

    asyncio.run(act())
    say(f"{agent} takes in runs; those that wait are started in their order")
    return COMPLETED


def restart(place: Place, agent: str) -> int:
    async def act() -> bool:
        if place.stage is not None:
            async with opened(place) as store:
                await DeployedRuntime(store).restart_agent(agent)
            return True
        async with desk_of(place) as (desk, _):
            await desk.restart(agent)
            return (await desk.status(agent))["supervisor"] is not None

    supervised = asyncio.run(act())
    if place.stage is not None:
        say(f"{agent}: runs at work are being interrupted, and new ones are taken in")
    else:
        say(f"{agent} is started anew" + ("" if supervised else " once a runtime looks after it (helix fleet serve)"))
    return COMPLETED
