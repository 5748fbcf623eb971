"""Small rows of a partition packed into its head row, which is the `session` row. DynamoDB charges per row, and twice
as much in a transaction.

A transaction that puts the head and other rows of its partition is one conditional put if those rows are `new`
(`Put.new`). Their values are stored in the head, under `packed`. When space runs short, a later put of the head moves
them to their own rows. Each move is a plain put, made before the put that removes the row from the pack. Operations
that `may_precede` the transaction are also written before it.

Law: packing is invisible to callers. The packed row is the authoritative one. A crash between the two puts leaves a
copy under the row's own key, and that copy is ignored. Every write that packs, changes or drops a packed row is
conditional on `pack`, the number of the last such write. A move never replaces a newer value, because a moved row keeps
the number of the write that packed it (`packed_at`).
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from helix.adapters.aws.packs import (
    AT,
    HEAD,
    KINDS,
    NUMBER,
    PACKED,
    Pack,
    PackedRow,
    Plan,
    can_locate,
    head_key,
    is_head,
    is_new_and_small,
    is_packable,
    is_small,
    pack_fields,
    with_pack_number,
    without_pack_number,
)
from helix.core.errors import ConditionFailedError
from helix.ports.clock import Clock
from helix.ports.state_store import (
    ABSENT,
    Check,
    Damaged,
    Delete,
    Key,
    Operation,
    Put,
    Row,
    StateStore,
    Table,
    Update,
    Value,
    Watch,
    When,
    applied,
    check_operations,
)

ROOM = 1000
"""The size limit of the head including its packed rows, in bytes. It is below the 1,024 bytes that one write unit
covers."""
GROWTH = 60
"""The bytes by which the head may grow until the run ends, without a move."""
CACHED = 4_096
"""The maximum number of packs in memory, at 1 KB each. One process works on fewer runs than that."""
FRESH_S = 5.0
"""The maximum age of a remembered pack that is used to move rows, in seconds. The limit keeps a worker that was paused
from restoring rows that have since been deleted."""


class _StaleError(Exception):
    """Raised if the remembered pack refuses an operation. The caller reads the pack and plans again."""


class PackingStore:
    """A `StateStore` on top of another one. `weigh` returns the size of a value as stored there, in bytes."""

    def __init__(self, inner: StateStore, weigh: Callable[[Value], int], clock: Clock) -> None:
        self._inner, self._weigh, self._clock = inner, weigh, clock
        self._packs: OrderedDict[str, Pack] = OrderedDict()

    # --- reading --------------------------------------------------------------------------------------------------

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        partitions = dict.fromkeys(key.partition for key in keys if is_packable(key))
        every = [*keys, *(head for partition in partitions if (head := head_key(partition)) not in keys)]
        values = await self._inner.get(every)
        packs = {
            k.partition: self._extract_pack(k, value) for k, value in zip(every, values, strict=True) if is_head(k)
        }
        found = [self._value_of(key, value, packs) for key, value in zip(keys, values, strict=False)]
        # A row that is neither packed nor under its own key may have been moved between the two reads.
        lost = [
            place
            for place, key in enumerate(keys)
            if found[place] is None and is_packable(key) and packs[key.partition].number is not None
        ]
        again = await self._inner.get([keys[place] for place in lost]) if lost else []
        for place, value in zip(lost, again, strict=True):
            found[place] = without_pack_number(value)
        return found

    def _value_of(self, key: Key, value: Value | None, packs: dict[str, Pack]) -> Value | None:
        if not is_packable(key):
            return value
        held = packs[key.partition].rows.get(key.sort)
        return without_pack_number(value) if held is None else copy.deepcopy(held.value)

    async def query(
        self,
        table: Table,
        partition: str,
        *,
        start: str = "",
        end: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
        known_head: bool = False,
    ) -> list[Row]:
        def within(sort: str) -> bool:
            return start <= sort and (end is None or sort < end)

        async def stored() -> list[Row]:
            return await self._inner.query(table, partition, start=start, end=end, limit=limit, reverse=reverse)

        # Session ids never contain `#`, so a partition with one is an index.
        if (
            table != "sessions"
            or "#" in partition
            or not any(start < f"{kind[0]}$" and (end is None or end > kind) for kind in KINDS)
        ):
            others = await stored()
            for row in filter(lambda row: is_head(row.key), others):
                self._extract_pack(row.key, row.value)
            return others
        packed: dict[str, PackedRow] = {}
        # The head is read before the rows that it may have moved: they come after it in a reversed query, which
        # DynamoDB reads in that order. Otherwise the pack is read first: rows that have left it are under their own
        # keys by then.
        rows: Sequence[Row] | None = await stored() if reverse and within(HEAD) else None
        if rows is None or (len(rows) == limit and not any(is_head(row.key) for row in rows)):
            pack = self._packs.get(partition) if known_head else None
            packed |= (pack or await self._read_pack(partition)).rows
            rows = await stored()
        found: dict[str, Row] = {}
        for row in rows:
            if is_head(row.key):
                packed |= self._extract_pack(row.key, row.value).rows
            elif is_packable(row.key):
                without_pack_number(row.value)
            found[row.key.sort] = row
        for sort in filter(within, packed):
            found[sort] = Row(Key(table, partition, sort), copy.deepcopy(packed[sort].value))
        ordered = sorted(found.values(), key=lambda row: row.key.sort.encode(), reverse=reverse)
        return ordered if limit is None else ordered[:limit]

    def watch(self, table: Table, partition: str) -> AbstractContextManager[Watch]:
        return self._inner.watch(table, partition)

    async def purge(self, now: float) -> int:
        return await self._inner.purge(now)

    async def close(self) -> None:
        await self._inner.close()

    # --- writing --------------------------------------------------------------------------------------------------

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        check_operations(name, operations)
        while True:
            try:
                plan = await self._make_plan(name, operations)
            except _StaleError:
                continue
            except ConditionFailedError as error:
                raise ConditionFailedError(name, await self._first_refused(operations[: error.index + 1])) from None
            try:
                moves = [self._unpack_row(key, held) for key, held in plan.moves]
                await asyncio.gather(*moves, *(self._inner.transact(f"{name}_early", [one]) for one in plan.early))
                if plan.operations:
                    await self._inner.transact(name, plan.operations)
            except ConditionFailedError as error:
                if await self._has_changed(plan, plan.operations[error.index].key):
                    continue
                origin = plan.origins[error.index]
                assert origin is not None, "a write on a pack was refused, although no other writer changed it"
                raise ConditionFailedError(name, origin) from None
            except BaseException:
                for partition in plan.after:
                    self._packs.pop(partition, None)
                raise
            for partition, pack in plan.after.items():
                self._remember(partition, pack)
            return

    async def _first_refused(self, operations: Sequence[Operation]) -> int:
        """Return the index of the first refused operation. The caller knows that the last one is refused. The
        conditions of unpacked rows are checked here, because the store has not checked them."""
        values = await self.get([operation.key for operation in operations[:-1]])
        for index, (operation, value) in enumerate(zip(operations, values, strict=False)):
            missing = value is None and isinstance(operation, Update)
            if missing or (operation.when is not None and not operation.when.holds(value)):
                return index
        return len(operations) - 1

    async def _make_plan(self, name: str, operations: Sequence[Operation]) -> Plan:
        plan = Plan()
        groups: dict[str, dict[int, Operation]] = {}
        for place, operation in enumerate(operations):
            if is_head(operation.key) or is_packable(operation.key):
                groups.setdefault(operation.key.partition, {})[place] = operation
            else:
                plan.add(operation, place)
        for partition, group in groups.items():
            await self._plan_partition(name, plan, partition, group)
        return plan.sort_operations()

    async def _plan_partition(self, name: str, plan: Plan, partition: str, group: dict[int, Operation]) -> None:
        place = next((place for place, operation in group.items() if is_head(operation.key)), None)
        head = None if place is None else group.pop(place)
        if head is not None and not group and isinstance(head, (Update, Check)):
            plan.add(head, place)
            return
        if isinstance(head, Put) and head.when is not None and head.when.absent:
            pack = Pack(self._clock.now(), known=True)  # otherwise the put is refused
        else:
            pack = plan.before[partition] = await self._find_pack(partition, head, list(group.values()))
        rows, touched, new = dict(pack.rows), False, list[int]()
        for index, operation in group.items():
            sort, held = operation.key.sort, pack.rows.get(operation.key.sort)
            if held is None:
                if isinstance(operation, Put) and isinstance(head, Put) and is_new_and_small(operation):
                    rows[sort], new = pack.pack_row(operation.value), [*new, index]
                else:
                    plan.add(operation, index)
                continue
            touched = True
            try:
                value = applied(name, index, operation, lambda held=held: held.value)  # type: ignore[misc]
            except ConditionFailedError:
                if pack.known:
                    self._packs.pop(partition)
                    raise _StaleError from None
                raise
            if value is not None and is_small(value):
                rows[sort] = pack.pack_row(value) if value != held.value else held
            else:  # replaces the copy that a crash may have left
                del rows[sort]
                gone = replace(operation, when=None) if isinstance(operation, Delete) else Delete(operation.key)
                plan.add(gone if value is None else Put(operation.key, value), index)
        if len(new) == 1 and isinstance(head, Put) and self._weigh({**head.value, PACKED: rows}) > ROOM - GROWTH:
            # Including one row in the transaction costs one call. For two rows, moves cost fewer units.
            alone = group[new[0]]
            del rows[alone.key.sort]
            plan.add(alone, new[0])
        self._plan_head(plan, pack, head_key(partition), (place, head, touched), rows)

    def _plan_head(
        self,
        plan: Plan,
        pack: Pack,
        key: Key,
        about: tuple[int | None, Operation | None, bool],
        rows: dict[str, PackedRow],
    ) -> None:
        """Add the operation on the head to the plan. `about`: the index of the caller's operation on the head, that
        operation, and whether another operation touches a packed row."""
        place, head, touched = about
        after = Pack(self._clock.now(), pack.number, rows, there=True, known=True)
        when = with_pack_number(None if head is None else head.when, pack)
        match head:
            case Put(value=value):
                plan.moves.extend(
                    (key._replace(sort=sort), held) for sort, held in self._evict_rows(value, after, pack)
                )
                if pack.known and plan.moves and self._clock.now() - pack.at > FRESH_S:
                    self._packs.pop(key.partition)
                    raise _StaleError
                if rows or pack.number is not None:
                    after.number = pack.next_number
                plan.add(Put(key, {**value, **pack_fields(after)}, when), place)
            case Delete():
                plan.moves.extend((key._replace(sort=sort), held) for sort, held in rows.items())
                after = Pack(self._clock.now(), known=True)
                plan.add(Delete(key, when), place)
            case _ if rows != pack.rows:
                after.number = pack.next_number
                given = head if isinstance(head, Update) else Update(key)
                plan.add(Update(key, {**given.set, PACKED: {}, **pack_fields(after)}, given.add, when), place)
            case Update() if touched:
                plan.add(replace(head, when=when), place)
            case _ if touched:
                plan.add(Check(key, when or When()), place)
            case _:
                if head is not None:
                    plan.add(head, place)
                return  # nothing requires the pack to be unchanged
        plan.after[key.partition] = after

    def _evict_rows(self, value: Value, after: Pack, before: Pack) -> list[tuple[str, PackedRow]]:
        """Return the rows that leave `after` for lack of room, oldest first, with a run's row last. Rows that this
        write packs stay."""
        old = [item for item in after.rows.items() if item[1].number != before.next_number]
        old.sort(key=lambda item: (item[0].startswith("r#"), item[1].number))
        left = []
        while old and self._weigh({**value, **pack_fields(after)}) > ROOM:
            left.append(old.pop(0))
            del after.rows[left[-1][0]]
        return left

    async def _unpack_row(self, key: Key, held: PackedRow) -> None:
        """Put a packed row under its own key, unless a newer value is there."""
        value = {**held.value, AT: held.number}
        for when in (ABSENT, When(below={AT: held.number})):
            with contextlib.suppress(ConditionFailedError):
                await self._inner.transact("unpack", [Put(key, value, when)])
                return

    async def _has_changed(self, plan: Plan, key: Key) -> bool:
        """Return whether the pack has been written since the plan was made, which may explain the refusal."""
        before = plan.before.get(key.partition) if key.table == "sessions" else None
        if before is None:
            return False
        now = await self._read_pack(key.partition)
        return (now.number, now.there) != (before.number, before.there)

    # --- packs ----------------------------------------------------------------------------------------------------

    async def _find_pack(self, partition: str, head: Operation | None, others: Sequence[Operation]) -> Pack:
        """Return the remembered pack if it suffices; a write that is based on an old pack is refused. Otherwise read
        the pack."""
        pack = self._packs.get(partition)
        enough = isinstance(head, Put) or (
            not isinstance(head, Delete) and pack is not None and all(can_locate(o, pack) for o in others)
        )
        return pack if pack is not None and enough else await self._read_pack(partition)

    async def _read_pack(self, partition: str) -> Pack:
        key = head_key(partition)
        (value,) = await self._inner.get([key])
        return replace(self._extract_pack(key, value), known=False)

    def _extract_pack(self, key: Key, value: Value | None) -> Pack:
        """Extract the pack from the head that was read, and remember it."""
        if value is None or isinstance(value, Damaged):
            pack = Pack(self._clock.now(), known=True, damaged=value is not None)
        else:
            packed = value.pop(PACKED, {})
            rows = {sort: PackedRow(*held) for sort, held in packed.items()}
            pack = Pack(self._clock.now(), value.pop(NUMBER, None), rows, there=True, known=True)
        self._remember(key.partition, pack)
        return pack

    def _remember(self, partition: str, pack: Pack) -> None:
        """Remember a pack. A slow read may return an older pack than the remembered one. In that case neither is known
        to be the latest, so both are dropped."""
        before = self._packs.pop(partition, None)
        if pack.damaged or (before is not None and (before.number or 0) > (pack.number or 0)):
            return
        self._packs[partition] = pack
        while len(self._packs) > CACHED:
            self._packs.popitem(last=False)
