"""Warm capacity: machines that are kept ready for an agent, independent of its concurrency limit."""

from __future__ import annotations

from typing import Protocol


class Capacity(Protocol):
    async def set_instances(self, agent: str, instances: int) -> None:
        """Keep this number of machines ready from now on; 0 keeps none. Idempotent. Does nothing for an agent without
        its own machines.

        Ready machines let runs start faster. The admission limit alone decides how many runs may be active, so runs do
        not fail if machines become ready late. Raises `StoreError` if it is unknown whether the request was received.
        """
        ...


class NoCapacity:
    """An implementation of `Capacity` for agents on shared machines, which start on demand."""

    async def set_instances(self, agent: str, instances: int) -> None:
        return
