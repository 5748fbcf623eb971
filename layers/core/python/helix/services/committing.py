"""Transactions that return a refusal as a result, and retries for writers that contend for the same rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Literal, TypeVar
from zlib import crc32

from helix.core.errors import ConditionFailedError, ContentionError
from helix.ports.state_store import Operation, StateStore

T = TypeVar("T")
CONFLICTS, ATTEMPTS = 4, 100
"""The maximum number of attempts that the store gives up because of conflicts (a few seconds each), and the maximum
number of attempts in total. Their pauses add up to about 100 s."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0


class Again(Enum):
    """The result of an attempt that must read again, because other writers have changed the rows that it read."""

    AGAIN = "again"


async def refused(store: StateStore, name: str, operations: Sequence[Operation]) -> int | None:
    """Commit the transaction. Return None if it was written, otherwise the index of the first operation whose condition
    did not hold."""
    try:
        await store.transact(name, operations)
    except ConditionFailedError as error:
        return error.index
    return None


async def repeat_attempt(writer: str, attempt: Callable[[], Awaitable[T | Literal[Again.AGAIN]]]) -> T:
    """Repeat `attempt` until it has a result: first immediately, then after increasing pauses that differ between
    writers. Raises `ContentionError` after `CONFLICTS` attempts that the store gave up, or `ATTEMPTS` attempts in
    total."""
    conflicts = 0
    for number in range(ATTEMPTS):
        try:
            found = await attempt()
        except ContentionError:
            conflicts += 1
            if conflicts == CONFLICTS:
                raise
        else:
            if found is not Again.AGAIN:
                return found
        share = crc32(f"{writer}#{number}".encode()) / 2**32
        await asyncio.sleep(share * min(LONGEST_PAUSE_S, FIRST_PAUSE_S * (2**number - 1)))
    raise ContentionError(f"{writer!r} lost to other writers {ATTEMPTS} times: try again")
