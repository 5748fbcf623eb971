"""The count of changes of budget definitions, which each step reads. Steps read copies of the row.

Law: a change writes the row and all copies in one transaction (`row_budgets`), so any copy says whether something
changed. Before this version has made its first change there are no copies. A process then reads the row itself, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from helix.ports.state_store import Key, StateStore, Value
from helix.services.budget_rows import VERSION, version_copy


class BudgetChanges:
    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._uncopied: int | None = None

    async def read(self, session_id: str, keys: Sequence[Key]) -> tuple[list[Value | None], int]:
        """Return the rows, and the count, in one read."""
        copy, first = version_copy(crc32(session_id.encode())), self._uncopied is None
        *values, version = await self._store.get([*keys, *([VERSION] if first else []), copy])
        if first:
            self._uncopied = _count(values.pop())
        return values, _count(version) or self._uncopied or 0


def _count(value: Value | None) -> int:
    return int(value["n"]) if value is not None else 0
