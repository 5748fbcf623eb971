"""A transaction whose refusal is an answer."""

from __future__ import annotations

from collections.abc import Sequence

from helix.core.errors import ConditionFailedError
from helix.ports.state_store import Operation, StateStore


async def refused(store: StateStore, name: str, operations: Sequence[Operation]) -> int | None:
    """None where the transaction was written, else the index of the first operation whose condition did not hold."""
    try:
        await store.transact(name, operations)
    except ConditionFailedError as error:
        return error.index
    return None
