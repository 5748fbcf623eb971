"""Find and delete the stored data of a user (docs/guide/cli.md#forget).

`helix.sessions.deletion` deletes the sessions. This module knows all other places, and counts their rows before the
deletion and again afterwards. It writes these rows to the control table:

    forget#<user> / <session id>   the sub-agents' sessions and all their runs; written before the deletion

Law: `note` is called before the first deletion, so the next command finds the data that a failed one left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from helix.core.budget import KEEP_S
from helix.core.periods import TokenPeriod, window_at
from helix.core.row_keys import SESSION
from helix.engine.claims.claim_rows import user_key
from helix.ports.blobs import Blobs
from helix.ports.clock import Clock
from helix.ports.objects import Objects
from helix.ports.state_store import Delete, Key, Operation, Put, Row, StateStore
from helix.services import budget_rows, slot_rows, usage_counters
from helix.services.blob_rows import blob_owner
from helix.services.owner_blobs import OwnerBlobs
from helix.services.row_budgets import RowBudgets
from helix.services.row_cache import RowCache
from helix.services.row_slots import RowSlots
from helix.services.session_index import facets_partition, index_partition
from helix.sessions.exports import children_of

T = TypeVar("T")
AT_ONCE = 16
PAGE = 50
UNITS = ("micros", "tokens")
"""The units of budgets. The name of each window contains one of them."""


@dataclass(slots=True)
class UserData:
    """The stored data of a user, as keys and counts."""

    sessions: list[str] = field(default_factory=list)
    """The user's root sessions, including those of notes from earlier commands."""
    below: list[str] = field(default_factory=list)
    """The sessions of their sub-agents."""
    runs: list[str] = field(default_factory=list)
    """The ids of the runs of all these sessions."""
    stored: dict[str, int] = field(default_factory=dict)
    """The number of sessions and of their rows, streams and objects: `sessions`, `below`, `rows`, `streams`, `objects`."""
    rows: dict[str, list[Key]] = field(default_factory=dict)
    """The keys of rows outside of sessions, by kind: `usage`, `budgets`, `draws`, `alerts`; and `facets` of the user's
    sessions in the table of sessions."""
    candidates: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The stored values of runs that hold (`slots`) or wait for (`tickets`) a slot."""
    cached: int = 0
    """The number of cached answers."""
    files: int = 0
    """The number of files, without those that sessions of other users hold."""

    def counts(self) -> dict[str, int]:
        return {
            "sessions": self.stored.get("sessions", 0),
            "sub-agents' sessions": self.stored.get("below", 0),
            "rows of sessions": self.stored.get("rows", 0),
            "rows of streams": self.stored.get("streams", 0),
            "objects": self.stored.get("objects", 0),
            "rows of facets": len(self.rows["facets"]),
            "usage rows": len(self.rows["usage"]),
            "budgets and windows": len(self.rows["budgets"]),
            "draws of runs": len(self.rows["draws"]),
            "alerts": len(self.rows["alerts"]),
            "slots": len(self.candidates["slots"]),
            "tickets": len(self.candidates["tickets"]),
            "cached answers": self.cached,
            "files": self.files,
        }


class UserDataDeletion:
    """The deletion of a user's data. `blobs`: the bytes of files; None if the store does not have a place for them."""

    def __init__(self, store: StateStore, objects: Objects, blobs: Blobs | None, user: str, clock: Clock) -> None:
        self._store, self._objects, self._user, self._clock = store, objects, user, clock
        self._files = None if blobs is None else OwnerBlobs(store, blobs, clock, blob_owner(user, ""))
        self._scope = f"tenant:{user}"

    async def find_data(self) -> UserData:
        """Find all data that exists now, including sessions in notes from earlier commands."""
        held = UserData()
        await self._read_sessions(held)
        ids = {*held.sessions, *held.below}
        facets = await self._store.query("sessions", facets_partition(self._user))
        held.rows["facets"] = [row.key for row in facets]
        held.rows["usage"] = [row.key for row in await self._query(usage_counters.partition(self._scope))]
        scope = Key("control", usage_counters.SCOPES, self._scope)
        held.rows["usage"] += await self._existing([scope])
        held.rows["budgets"] = await self._budgets()
        held.rows["draws"] = [
            row.key for rows in await self._each(held.runs, budget_rows.run_draws) for row in rows if _is_draw(row)
        ]
        held.rows["alerts"] = [
            row.key
            for partition in (budget_rows.ALERTS, budget_rows.UNPUBLISHED)
            for row in await self._query(partition)
            if row.value.get("scope") in {self._scope, *(f"session:{session_id}" for session_id in ids)}
        ]
        types = [name for name in await RowSlots(self._store).counters() if name is not None]
        for kind, partition in (("slots", slot_rows.slots), ("tickets", slot_rows.tickets)):
            pages = await self._each(types, partition)
            held.candidates[kind] = [r.value for rows in pages for r in rows if r.value.get("session_id") in ids]
        held.files = 0 if self._files is None else await self._files.count(ids)
        held.cached = len(await self._query(f"cache#{self._user}", start="e#", end="e$"))
        return held

    async def note(self, held: UserData) -> None:
        """Store the facts that cannot be found after the sessions are deleted."""
        for session_id in held.sessions:
            tree = await self._tree(session_id)
            if tree is not None:
                value = {"below": tree[0], "runs": tree[1]}
                await self._store.transact("note_forgetting", [Put(self._note(session_id), value)])

    async def delete(self, held: UserData) -> None:
        """Delete everything except the sessions, which must already be deleted. Idempotent."""
        for session_id in held.sessions:
            if await self._store.get([Key("sessions", session_id, SESSION)]) == [None]:
                await self._objects.clear(session_id)
                entry = Key("sessions", index_partition(self._user), session_id)
                await self._store.transact("forget_entry", [Delete(entry)])
        for session_id in held.below:
            if await self._store.get([Key("sessions", session_id, SESSION)]) == [None]:
                await self._objects.clear(session_id)
        if self._files is not None:
            await self._files.delete()
        slots = RowSlots(self._store)
        for value in (*held.candidates["slots"], *held.candidates["tickets"]):
            await slots.release(slot_rows.candidate(value))
        await RowBudgets(self._store).forget(self._scope)
        await RowCache(self._store, clock=self._clock).clear(self._user)
        left = [key for kind in ("facets", "usage", "draws", "alerts") for key in held.rows[kind]]
        left += [key for key in held.rows["budgets"] if key.partition != budget_rows.DEFINITIONS]
        for some in _pages([*dict.fromkeys(left)]):
            gone: list[Operation] = [Delete(key) for key in some]
            await self._store.transact("forget_rows", gone)

    async def close(self) -> None:
        """Delete the notes and the user's name, once all other data is deleted."""
        keys = [row.key for row in await self._query(f"forget#{self._user}")]
        for some in _pages([*keys, user_key(self._user)]):
            gone: list[Operation] = [Delete(key) for key in some]
            await self._store.transact("end_forgetting", gone)

    # --- reading -------------------------------------------------------------------------------------------------------

    async def _read_sessions(self, held: UserData) -> None:
        listed = [row.key.sort for row in await self._store.query("sessions", index_partition(self._user))]
        notes = {row.key.sort: row.value for row in await self._query(f"forget#{self._user}")}
        held.sessions = list(dict.fromkeys([*listed, *notes]))
        below: list[str] = []
        runs: list[str] = []
        for session_id in held.sessions:
            note = notes.get(session_id, {"below": [], "runs": []})
            tree = await self._tree(session_id) or ([], [])
            below += [*note["below"], *tree[0]]
            runs += [*note["runs"], *tree[1]]
        held.below, held.runs = list(dict.fromkeys(below)), list(dict.fromkeys(runs))
        rows = await self._each([*held.sessions, *held.below], lambda name: name, table="sessions")
        streams = await self._each(held.sessions, lambda name: name, table="streams")
        there = len([session_id for session_id in held.sessions if session_id in listed])
        held.stored = {
            "sessions": there,
            "below": len([found for found in rows[len(held.sessions) :] if found]),
            "rows": sum(map(len, rows)),
            "streams": sum(1 for found in streams for row in found if "buried_at" not in row.value),
        }
        counts = await self._gather(self._objects.count, [*held.sessions, *held.below])
        held.stored["objects"] = sum(counts)

    async def _tree(self, session_id: str) -> tuple[list[str], list[str]] | None:
        """Return the sub-agents' sessions below a session, and the runs of all these sessions. None if the session has no
        rows."""
        below: list[str] = []
        runs: list[str] = []
        left = [session_id]
        while left:
            rows = await self._store.query("sessions", left.pop())
            runs += [row.key.sort[2:] for row in rows if row.key.sort.startswith("r#")]
            found = [child for child in children_of(rows) if child not in below]
            below += found
            left += found
        return (below, runs) if below or runs else None

    async def _budgets(self) -> list[Key]:
        """Return the keys of the budget definitions, and of the windows of each period that are still stored."""
        found = await self._existing([budget_rows.scope_key(self._scope)])
        names: list[str] = []
        now = self._clock.now()
        for period in TokenPeriod:
            at = now
            while True:
                window = window_at(period, at)
                names += [f"{self._scope}/{period}/{unit}/{window.key}" for unit in UNITS]
                if window.end is None or window.start < now - KEEP_S:
                    break
                at = window.start - 1
        rows = await self._each(names, lambda name: f"budget#{name}")
        return found + [row.key for page in rows for row in page]

    async def _existing(self, keys: Sequence[Key]) -> list[Key]:
        values = await self._store.get(keys)
        return [key for key, value in zip(keys, values, strict=True) if value is not None]

    async def _query(self, partition: str, **bounds: Any) -> list[Row]:
        return await self._store.query("control", partition, **bounds)

    async def _each(
        self, names: Sequence[str], partition: Callable[[str], str], *, table: Any = "control"
    ) -> list[list[Row]]:
        return await self._gather(lambda name: self._store.query(table, partition(name)), names)

    async def _gather(self, read: Callable[[str], Awaitable[T]], names: Iterable[str]) -> list[T]:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> T:
            async with gate:
                return await read(name)

        return list(await asyncio.gather(*map(one, names)))

    def _note(self, session_id: str) -> Key:
        return Key("control", f"forget#{self._user}", session_id)


def _is_draw(row: Row) -> bool:
    return row.key.sort.startswith("draw#")


def _pages(keys: Sequence[Key]) -> Iterable[Sequence[Key]]:
    return (keys[start : start + PAGE] for start in range(0, len(keys), PAGE))
