"""State stores that break one law each. They prove that the contracts detect defects:
`tests/contracts/test_contracts_bite.py` runs each against the law that it breaks, and the law must fail.

The defects are those that real adapters had: a missing condition, a check before the write instead of in it, one page taken
for all rows, an alias instead of a copy. More of them are in `reads` (stores), `services` (streams, budgets), `slots`,
`pipes` (logs, sockets) and `caches`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic_core import from_json

from helix.adapters.memory import MemoryStateStore
from helix.core.errors import ConditionFailedError, InvalidInputError
from helix.ports.state_store import Check, Delete, Key, Operation, Put, Update, Value, When, expired


class IgnoresConditions(MemoryStateStore):
    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        plain = [_free(o) for o in operations]
        await super().transact(name, [o for o in plain if not isinstance(o, Check)] or plain)


class IgnoresAbsent(MemoryStateStore):
    """Overwrites on put-if-absent."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await super().transact(name, [_free(o) if _absent_put(o) else o for o in operations])


class WritesBeforeItFails(MemoryStateStore):
    """Writes one operation after the other, so that those before the refused one stay."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        for index, operation in enumerate(operations):
            try:
                await super().transact(name, [operation])
            except ConditionFailedError:
                raise ConditionFailedError(name, index) from None


class ChecksThenWrites(MemoryStateStore):
    """Checks the conditions, and writes a moment later, when they may no longer hold."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        values = await self.get([o.key for o in operations])
        for index, (operation, value) in enumerate(zip(operations, values, strict=True)):
            if operation.when is not None and not operation.when.holds(value):
                raise ConditionFailedError(name, index)
        await asyncio.sleep(0)
        plain = [o if isinstance(o, Check) else _free(o) for o in operations]
        await super().transact(name, [o for o in plain if not isinstance(o, Check)] or plain)


class ForgetsChecks(MemoryStateStore):
    """Checks the conditions of the rows that it writes in the transaction, but those of other rows before it."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        checks = [o for o in operations if isinstance(o, Check)]
        for check, value in zip(checks, await self.get([c.key for c in checks]), strict=True):
            if not check.when.holds(value):
                raise ConditionFailedError(name, list(operations).index(check))
        await asyncio.sleep(0)
        if len(checks) < len(operations):
            await super().transact(name, [o for o in operations if not isinstance(o, Check)])


class LosesAdditions(MemoryStateStore):
    """Reads for `add`, and writes the sum a moment later."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        plain: list[Operation] = []
        for operation in operations:
            if isinstance(operation, Update) and operation.add:
                (value,) = await self.get([operation.key])
                sums = {field: ((value or {}).get(field) or 0) + n for field, n in operation.add.items()}
                operation = replace(operation, add={}, set={**operation.set, **sums})
            plain.append(operation)
        await asyncio.sleep(0)
        await super().transact(name, plain)


class NoneIsNotMissing(MemoryStateStore):
    """Does not let `equal` to None match a missing field."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        values = await self.get([o.key for o in operations])
        for index, (operation, value) in enumerate(zip(operations, values, strict=True)):
            wanted = operation.when.equal if operation.when is not None else {}
            if value is not None and any(v is None and field not in value for field, v in wanted.items()):
                raise ConditionFailedError(name, index)
        await super().transact(name, operations)


class NoneIsAnything(MemoryStateStore):
    """Leaves `equal` to None out of the condition."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await super().transact(
            name, [_with(o, equal=lambda given: {k: v for k, v in given.items() if v is not None}) for o in operations]
        )


class MissingIsZero(MemoryStateStore):
    """Compares a missing field as 0."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        values = await self.get([o.key for o in operations])
        lenient = []
        for operation, value in zip(operations, values, strict=True):

            def known(bounds: Any, value: Value | None = value) -> dict[str, Any]:
                return {k: v for k, v in bounds.items() if (value or {}).get(k) is not None}

            lenient.append(_with(operation, below=known) if value is not None else operation)
        await super().transact(name, lenient)


class BelowIncludesItsBound(MemoryStateStore):
    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await super().transact(
            name, [_with(o, below=lambda bounds: {k: v + 1e-9 for k, v in bounds.items()}) for o in operations]
        )


class OneConditionIsEnough(MemoryStateStore):
    """Ignores the bounds if an `equal` holds."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await super().transact(
            name,
            [_with(o, below=lambda _: {}, at_least=lambda _: {}) if o.when and o.when.equal else o for o in operations],
        )


class NamesTheWrongOperation(MemoryStateStore):
    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        try:
            await super().transact(name, operations)
        except ConditionFailedError:
            raise ConditionFailedError(name, 0) from None


class UpdatesMakeRows(MemoryStateStore):
    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        values = await self.get([o.key for o in operations])
        await super().transact(
            name,
            [
                Put(o.key, {**o.set, **o.add}) if isinstance(o, Update) and value is None and not o.when else o
                for o, value in zip(operations, values, strict=True)
            ],
        )


class UpdatesReplaceRows(MemoryStateStore):
    """Removes the fields that an update does not name."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        values = await self.get([o.key for o in operations])
        await super().transact(
            name,
            [
                Put(o.key, {**o.set, **{k: (value.get(k) or 0) + n for k, n in o.add.items()}}, o.when)
                if isinstance(o, Update) and value is not None
                else o
                for o, value in zip(operations, values, strict=True)
            ],
        )


class DeletesOnlyWhatIsThere(MemoryStateStore):
    """Refuses to delete a missing row."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await super().transact(
            name, [replace(o, when=When()) if isinstance(o, Delete) and o.when is None else o for o in operations]
        )


class TakesAnyNumber(MemoryStateStore):
    """Splits more than 100 operations into several transactions."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        for start in range(0, len(operations), 50):
            await super().transact(name, operations[start : start + 50])


class LooksForAnyKey(MemoryStateStore):
    """Searches for a key that no row can have, and reports that it is missing."""

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        try:
            return await super().get(keys)
        except InvalidInputError:
            return [None for _ in keys]


class WritesBadValuesLate(MemoryStateStore):
    """Detects a value that is not JSON after it has written the rows before it."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        if len(operations) > 1 and all(isinstance(o, Put) and o.when is None for o in operations[:-1]):
            await super().transact(name, operations[:-1])
            operations = operations[-1:]
        await super().transact(name, operations)


def _free(operation: Operation) -> Operation:
    """Return the operation without its condition."""
    return replace(operation, when=When()) if isinstance(operation, Check) else replace(operation, when=None)


def _absent_put(operation: Operation) -> bool:
    return isinstance(operation, Put) and operation.when is not None and operation.when.absent


def _with(operation: Operation, **parts: Any) -> Operation:
    """Return the operation with parts of its condition changed by these functions."""
    if operation.when is None:
        return operation
    return replace(
        operation, when=replace(operation.when, **{k: f(getattr(operation.when, k)) for k, f in parts.items()})
    )


class PurgesOnePage(MemoryStateStore):
    async def purge(self, now: float) -> int:
        gone = [key for key, text in self._rows.items() if expired(from_json(text), now)][:500]
        for key in gone:
            self._write(key, None)
        return len(gone)


class PurgesOneTable(MemoryStateStore):
    """Never deletes the expired rows of streams, as SQLite's store once did."""

    async def purge(self, now: float) -> int:
        gone = [key for key, text in self._rows.items() if key.table == "control" and expired(from_json(text), now)]
        for key in gone:
            self._write(key, None)
        return len(gone)


class TakesAnythingForATime(MemoryStateStore):
    """Accepts `true` and `null` as numbers."""

    async def purge(self, now: float) -> int:
        values = {key: from_json(text) for key, text in self._rows.items()}
        gone = [key for key, value in values.items() if "ttl" in value and (value["ttl"] in (None, True))]
        for key in gone:
            self._write(key, None)
        return await super().purge(now) + len(gone)


class ForgetsRenewals(MemoryStateStore):
    """Keeps an index of expiry times that only a new row enters."""

    def __init__(self) -> None:
        super().__init__()
        self._times: dict[Key, Any] = {}

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await super().transact(name, operations)
        for operation in operations:
            if isinstance(operation, Put) and "ttl" in operation.value:
                self._times.setdefault(operation.key, operation.value["ttl"])

    async def purge(self, now: float) -> int:
        gone = [key for key, at in self._times.items() if expired({"ttl": at}, now) and key in self._rows]
        for key in gone:
            self._write(key, None)
        return len(gone)
