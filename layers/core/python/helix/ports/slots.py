"""Slots: how many root runs of an agent may run at once, and who waits (PROTOCOL 10)."""

from __future__ import annotations

from typing import Protocol


class Slots(Protocol):
    async def take(self, agent_type: str, limit: int, run_id: str, *, priority: int = 0, order: str = "") -> bool:
        """True: `run_id` has a slot (also if it had one). False: it holds a ticket and waits; lower `priority` numbers
        go first, then lower `order`. Never refused for good: a later `release` grants the slot to the first ticket."""
        ...

    async def release(self, agent_type: str, limit: int, run_id: str) -> str | None:
        """Give up the slot, or the ticket. Returns the run that got the slot and must be started now, if any. Idempotent:
        a run that holds neither changes nothing."""
        ...

    async def owners(self, agent_type: str) -> dict[int, str]:
        """Slot number -> owner run."""
        ...

    async def waiting(self, agent_type: str) -> list[str]:
        """Runs with tickets, first in line first."""
        ...
