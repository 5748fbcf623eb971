"""The row operations of deliveries, by verb, compared with the rights of the deployed functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tests.properties.protocol_world import ACTOR
from tests.support.rights import CHECK, DELETE, GET, GET_SEVERAL, PUT, QUERY, TABLE, UPDATE

from helix.adapters.memory import MemoryStateStore
from helix.ports.state_store import Key, Operation, Row, Table, Value

VERBS = {"model": "call_model", "tools": "call_tool", "child": "start_run", "finish": "finish_run"}
ACTIONS = {"Put": PUT, "Update": UPDATE, "Delete": DELETE, "Check": CHECK}
TABLES = ("sessions", "control")
"""The tables that are compared. If chunks pass through Kinesis, another function writes the rows of streams."""

done: dict[str, set[tuple[str, str]]] = defaultdict(set)
"""The table and action of each operation, by verb."""


class RecordedStore(MemoryStateStore):
    """The table below the packing. The operations that reach it are those that DynamoDB would get."""

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        _note([key.table for key in keys], GET if len(keys) == 1 else GET_SEVERAL)
        return await super().get(keys)

    async def query(self, table: Table, partition: str, **options: Any) -> list[Row]:
        _note([table], QUERY)
        return await super().query(table, partition, **options)

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        for operation in operations:
            _note([operation.key.table], ACTIONS[type(operation).__name__])
        await super().transact(name, operations)


def _note(tables: Sequence[str], action: str) -> None:
    actor = ACTOR.get()
    if actor is None or actor.deadline is None:  # a process, which has no role
        return
    _, *words = actor.name.split(".")
    named = (words[1:] or words or [""])[0]
    if (verb := VERBS.get(named, named)) in TABLE:
        done[verb] |= {(table, action) for table in tables if table in TABLES}


def check_rights() -> None:
    """Raise `AssertionError` with the operations of a verb that its function has no right to."""
    missing = {
        verb: sorted(lacks)
        for verb, wanted in done.items()
        if (lacks := {(table, action) for table, action in wanted if action not in TABLE[verb].get(table, ())})
    }
    assert not missing, f"see infra/functions.py: {missing}"
