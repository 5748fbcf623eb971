"""Slots and tickets as rows of any state store (PROTOCOL 10).

Law: a slot has one owner; a ticket is put only while every slot is taken; a release passes the slot to the first ticket
in the same transaction, so no wake-up is lost.
"""

from __future__ import annotations

from helix.core.errors import ConditionFailedError, InvalidInputError
from helix.ports.state_store import ABSENT, Check, Delete, Key, Operation, Put, Row, StateStore, Update, When

MAX_SLOTS = 90  # a ticket checks every slot in one transaction


class RowSlots:
    def __init__(self, store: StateStore) -> None:
        self._store = store

    async def take(self, agent_type: str, limit: int, run_id: str, *, priority: int = 0, order: str = "") -> bool:
        if not 0 <= limit <= MAX_SLOTS:
            raise InvalidInputError(f"limit of agent {agent_type!r} is {limit}; it must be between 0 and {MAX_SLOTS}")
        if not -1000 < priority < 1000:
            raise InvalidInputError(f"priority is {priority}; it must be between -999 and 999")
        while True:
            slots, tickets = await self._read(agent_type)
            if run_id in slots.values():
                return True
            mine = next((t for t in tickets if t.value["run_id"] == run_id), None)
            if (mine is None and not tickets) or (mine is not None and tickets[0].key == mine.key):
                free = next((n for n in range(limit) if slots.get(n) is None), None)
                if free is not None:
                    if await self._grab(agent_type, free, free in slots, run_id, mine):
                        return True
                    continue
            if mine is not None:
                return False
            if await self._queue(
                agent_type, limit, slots, tickets, run_id, f"t#{priority + 1000:04d}#{order}#{run_id}"
            ):
                return False

    async def _grab(self, agent_type: str, number: int, exists: bool, run_id: str, ticket: Row | None) -> bool:
        when = When(equal={"owner": None}) if exists else ABSENT
        ops: list[Operation] = [Put(_slot(agent_type, number), {"owner": run_id}, when)]
        if ticket is not None:
            ops.append(Delete(ticket.key, When(equal={"run_id": run_id})))
        return await self._commit("take_slot", ops)

    async def _queue(
        self, agent_type: str, limit: int, slots: dict[int, str | None], tickets: list[Row], run_id: str, sort: str
    ) -> bool:
        """A ticket, on condition that what kept the run waiting still does: all slots taken, or others before it."""
        ops: list[Operation] = [Put(Key("control", _partition(agent_type), sort), {"run_id": run_id}, ABSENT)]
        free = [n for n in range(limit) if slots.get(n) is None]
        if free:
            ops.append(Check(tickets[0].key, When(equal={"run_id": tickets[0].value["run_id"]})))
        else:
            ops += [Check(_slot(agent_type, n), When(equal={"owner": slots[n]})) for n in range(limit)]
        return await self._commit("take_ticket", ops)

    async def release(self, agent_type: str, limit: int, run_id: str) -> str | None:
        while True:
            slots, tickets = await self._read(agent_type)
            mine = next((t for t in tickets if t.value["run_id"] == run_id), None)
            if mine is not None:
                await self._commit("drop_ticket", [Delete(mine.key, When(equal={"run_id": run_id}))])
                continue
            number = next((n for n, owner in slots.items() if owner == run_id), None)
            if number is None:
                return await self._pass_on(agent_type, limit, slots, tickets)
            heir = tickets[0] if tickets and number < limit else None
            owner = heir.value["run_id"] if heir is not None else None
            ops: list[Operation] = [
                Update(_slot(agent_type, number), set={"owner": owner}, when=When(equal={"owner": run_id}))
            ]
            if heir is not None:
                ops.append(Delete(heir.key, When(equal={"run_id": owner})))
            if await self._commit("release_slot", ops):
                if heir is None and (again := await self._read(agent_type))[1]:
                    return await self._pass_on(agent_type, limit, *again)
                return owner

    async def _pass_on(
        self, agent_type: str, limit: int, slots: dict[int, str | None], tickets: list[Row]
    ) -> str | None:
        """A free slot and a first ticket belong together: whoever sees both joins them."""
        free = next((n for n in range(limit) if slots.get(n) is None), None)
        if free is None or not tickets:
            return None
        run_id: str = tickets[0].value["run_id"]
        return run_id if await self._grab(agent_type, free, free in slots, run_id, tickets[0]) else None

    async def owners(self, agent_type: str) -> dict[int, str]:
        slots, _ = await self._read(agent_type)
        return {n: owner for n, owner in slots.items() if owner is not None}

    async def waiting(self, agent_type: str) -> list[str]:
        _, tickets = await self._read(agent_type)
        return [t.value["run_id"] for t in tickets]

    async def _read(self, agent_type: str) -> tuple[dict[int, str | None], list[Row]]:
        rows = await self._store.query("control", _partition(agent_type))
        slots = {int(r.key.sort[2:]): r.value.get("owner") for r in rows if r.key.sort.startswith("s#")}
        return slots, [r for r in rows if r.key.sort.startswith("t#")]

    async def _commit(self, name: str, ops: list[Operation]) -> bool:
        try:
            await self._store.transact(name, ops)
            return True
        except ConditionFailedError:
            return False


def _partition(agent_type: str) -> str:
    return f"slots#{agent_type}"


def _slot(agent_type: str, number: int) -> Key:
    return Key("control", _partition(agent_type), f"s#{number:04d}")
