"""Machines that are kept ready for an agent, besides the limit of its runs."""

from __future__ import annotations

from typing import Protocol


class Capacity(Protocol):
    async def set_instances(self, agent: str, instances: int) -> None:
        """Keep this number of machines ready from now on; 0 keeps none. Idempotent. Does nothing for an agent without
        machines of its own.

        Ready machines make runs begin sooner. The admission limit decides how many runs may work, so no run fails if
        machines are late. Raises `StoreError` if it is unknown whether the request was received.
        """
        ...


class NoCapacity:
    """Implements `Capacity` for agents on shared machines, which are started as needed."""

    async def set_instances(self, agent: str, instances: int) -> None:
        return
