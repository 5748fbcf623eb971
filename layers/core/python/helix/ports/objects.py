"""Storage for data that is too large for rows, grouped by the partition of the rows."""

from __future__ import annotations

from typing import Protocol


class Objects(Protocol):
    async def count(self, partition: str) -> int: ...

    async def clear(self, partition: str) -> None:
        """Delete all objects of the partition. Idempotent."""
        ...


class NoObjects:
    """An implementation of `Objects` for stores that keep all data in their rows."""

    async def count(self, partition: str) -> int:
        return 0

    async def clear(self, partition: str) -> None:
        return
