"""Machines kept ready for an agent, beside the limit of what it may run."""

from __future__ import annotations

from typing import Protocol


class Capacity(Protocol):
    async def set_instances(self, agent: str, instances: int) -> None:
        """Keep this number ready from now on; 0 keeps none. Idempotent. Does nothing for an agent that has no machines of
        its own. Ready machines make runs begin sooner; how many may run is the admission limit's to say, so nobody fails
        when these are late. Raises `StoreError` when it is unknown whether it was heard."""
        ...


class NoCapacity:
    """For agents that share machines, which come as they are needed."""

    async def set_instances(self, agent: str, instances: int) -> None:
        return
