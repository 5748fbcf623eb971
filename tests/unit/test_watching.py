"""Watches on a store that other processes write to: one poll serves all watches of an event loop, with pauses between
wake-ups."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

from helix.adapters.watching import POLL_S, REST_S, Watchers

SLACK_S = 0.001
"""An asyncio timer may fire one tick of its clock early."""


async def test_many_watches_are_polled_for_together() -> None:
    asked: list[float] = []

    def poll() -> int:
        asked.append(time.monotonic())
        return 0

    watchers = Watchers(poll)

    async def wait(n: int) -> None:
        with watchers.watch(("streams", f"s{n}")) as watch:
            await watch.changed(0.1)

    await asyncio.gather(*(wait(n) for n in range(20)))
    assert len(asked) > 3
    assert all(b - a >= POLL_S - SLACK_S for a, b in pairwise(asked[1:]))
    await asyncio.sleep(3 * POLL_S)
    count = len(asked)
    await asyncio.sleep(3 * POLL_S)
    assert len(asked) == count, "no watch is open"


async def test_what_others_write_wakes_with_a_rest_in_between() -> None:
    version = 0

    def poll() -> int:
        nonlocal version
        version += 1  # another process writes all the time
        return version

    watchers, woken = Watchers(poll), list[float]()
    with watchers.watch(("streams", "s")) as watch, watchers.watch(("sessions", "s")) as other:
        async with asyncio.timeout(10):
            for _ in range(5):
                await watch.changed(10)
                woken.append(time.monotonic())
            await other.changed(10)
    assert all(b - a >= REST_S - SLACK_S for a, b in pairwise(woken))


async def test_a_change_during_the_rest_is_not_forgotten() -> None:
    version = 0
    watchers = Watchers(lambda: version)
    with watchers.watch(("streams", "s")) as watch:
        async with asyncio.timeout(10):
            for _ in range(3):
                version += 1  # right after the last wake-up
                await watch.changed(10)


async def test_a_second_loop_has_a_poll_of_its_own() -> None:
    version = 0
    watchers = Watchers(lambda: version)

    async def wait() -> None:
        with watchers.watch(("streams", "s")) as watch:
            await watch.changed(10)

    with watchers.watch(("streams", "s")) as watch:
        there = asyncio.ensure_future(asyncio.to_thread(asyncio.run, wait()))
        await asyncio.sleep(3 * POLL_S)
        version += 1
        async with asyncio.timeout(10):
            await watch.changed(10)
            await there
