"""Ends tasks reliably, and waits for the first of several awaitables."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

AGAIN_S = 1.0


async def end_tasks(*tasks: asyncio.Task[Any]) -> None:
    """Cancel the tasks, and return once they have ended. Their exceptions are dropped. The cancellation is repeated each
    second, because `asyncio.wait_for`, which libraries also use, can lose a cancellation in Python 3.11."""
    for task in tasks:
        task.cancel()
    left = {task for task in tasks if not task.done()}
    while left:
        _, left = await asyncio.wait(left, timeout=AGAIN_S)
        for task in left:
            task.cancel()
    for task in tasks:
        if not task.cancelled():
            task.exception()


async def first_of(*waits: Awaitable[object], timeout_s: float | None = None) -> None:
    """Return once one of `waits` is done or has failed, or after `timeout_s`. The other coroutines are then cancelled, but
    tasks continue."""
    own = [asyncio.ensure_future(wait) for wait in waits if not isinstance(wait, asyncio.Future)]
    given = [wait for wait in waits if isinstance(wait, asyncio.Future)]
    try:
        await asyncio.wait({*own, *given}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(*own)
