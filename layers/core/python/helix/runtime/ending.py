"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN_S = 1.0


async def end_tasks(*tasks: asyncio.Task[Any]) -> None:
    """Cancel them, and return once they have ended; what they raised is dropped. Asked again each second, because
    `asyncio.wait_for`, with which libraries wait too, can lose a cancellation in Python 3.11."""
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
