"""Stream managers and budgets that break one law each: the third part of `broken`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.broken.stores import ChecksThenWrites

from helix.adapters.memory import MemoryStateStore
from helix.core.budget import BudgetDefinition, TokenAlert
from helix.core.sequencer import StreamRecord
from helix.core.wire import StreamInfo, StreamMessage
from helix.ports.state_store import Delete, Key, Operation, Put, Row, Update
from helix.services.budget_rows import Demand
from helix.services.row_budgets import RowBudgets
from helix.services.segment_rows import segment_messages
from helix.services.segments import SegmentStreams

# --- streams ----------------------------------------------------------------------------------------------------------


class _Streams(SegmentStreams):
    """Streams in their own kind of store."""

    kind: type[MemoryStateStore] = MemoryStateStore

    def __init__(self) -> None:
        super().__init__(self.kind())
        self._turn = 0


class _Unfenced(MemoryStateStore):
    """Puts segments without checking whether their place is free."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await asyncio.sleep(0)
        await super().transact(name, [Put(o.key, o.value) if isinstance(o, Put) else o for o in operations])


class LeavesCoalescingOpen(_Streams):
    """Does not say whether an append has a price."""

    coalesces: Any = None


class AppendsWithoutComparing(_Streams):
    """Lets two writers put the same segment. The later one stays, and the stream has lost chunks."""

    kind = _Unfenced


class ComparesTooEarly(_Streams):
    """Checks whether the place is free, and puts the segment a moment later."""

    kind = ChecksThenWrites


class ForgetsNumbers(_Streams):
    """Takes a resend for a new record, and numbers it anew."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: Counter[Any] = Counter()

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        fresh = []
        for record in records:
            writer = (
                stream_id,
                record.session_id,
                record.turn,
                record.kind,
                record.step,
                record.attempt,
                record.call_id,
            )
            fresh.append(record.model_copy(update={"n": self._counts[writer]}))
            self._counts[writer] += 1
        await super().append(stream_id, fresh)


class ForgetsAttempts(_Streams):
    """Takes all attempts at a step for one writer."""

    def __init__(self) -> None:
        super().__init__()
        self._n = 0

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        self._n += 1
        alike = [r.model_copy(update={"attempt": 1, "n": self._n} if r.kind == "attempt" else {}) for r in records]
        await super().append(stream_id, alike)


class ForgetsTurns(_Streams):
    """Takes late chunks of an older run for those of the newest run."""

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        self._turn = max([self._turn, *(r.turn for r in records)])
        await super().append(stream_id, [r.model_copy(update={"turn": self._turn}) for r in records])


class SkipsPartsOfSegments(_Streams):
    """Starts a read at the next whole segment."""

    async def read(self, stream_id: str, after: int = 0, limit: int = 1000) -> list[StreamMessage]:
        rows = await self._store.query("streams", stream_id, start=f"s#{after + 1:012d}")
        found = [message for row in rows for message in segment_messages(row)]
        return found[:limit]


class ReadsOnePageOfStream(_Streams):
    """Ends the log after its first 200 segments."""

    async def read(self, stream_id: str, after: int = 0, limit: int = 1000) -> list[StreamMessage]:
        first = await super().read(stream_id, 0, 10_000)
        return [message for message in first if message.sequence > after][:limit]


class ReadsThePast(_Streams):
    """Never reads anything twice, so a reader misses later changes."""

    def __init__(self) -> None:
        super().__init__()
        self._pages: dict[Any, list[StreamMessage]] = {}

    async def read(self, stream_id: str, after: int = 0, limit: int = 1000) -> list[StreamMessage]:
        key = (stream_id, after, limit)
        if key not in self._pages:
            self._pages[key] = await super().read(stream_id, after, limit)
        return self._pages[key]


class SleepsThrough(_Streams):
    """Ends a `wait` only with its timeout."""

    async def wait(self, stream_id: str, after: int, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)


class WaitsAfterReading(_Streams):
    """Does not check in `wait` whether there is something already."""

    async def wait(self, stream_id: str, after: int, timeout_s: float) -> None:
        with self._store.watch("streams", stream_id) as watch:
            await watch.changed(timeout_s)


class IsAlwaysActive(_Streams):
    async def info(self, stream_id: str) -> StreamInfo | None:
        info = await super().info(stream_id)
        return None if info is None else info.model_copy(update={"status": "active"})


class KnowsEveryStream(_Streams):
    """Treats a stream that does not exist as an empty one."""

    async def info(self, stream_id: str) -> StreamInfo | None:
        none = StreamInfo(
            stream_id=stream_id, status="active", latest_sequence=0, total_chunks=0, created_at=0, updated_at=0
        )
        return await super().info(stream_id) or none


class LetsTheEndBeRepeated(_Streams):
    """Announces every repeated end again, and what follows it as well."""

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        self._turn += 1
        await super().append(stream_id, [r.model_copy(update={"turn": self._turn}) for r in records])


class DeletesAllButTheLast(_Streams):
    async def delete(self, stream_id: str) -> None:
        rows = await self._store.query("streams", stream_id)
        for row in rows[:-1]:
            await self._store.transact("delete", [Delete(row.key)])


class RemembersDeletedStreams(_Streams):
    """Reads the head of a stream once, and trusts it forever."""

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        known = self._ends.get(stream_id)
        if known is not None and known.head.sequence:
            records = [r.model_copy(update={"kind": "fold", "mark": None, "version": 10**6}) for r in records]
        await super().append(stream_id, records)


# --- budgets ----------------------------------------------------------------------------------------------------------


class _Budgets(RowBudgets):
    """Budgets in their own kind of store."""

    kind: type[MemoryStateStore] = MemoryStateStore

    def __init__(self) -> None:
        super().__init__(self.kind())

    async def drawn(self, run_id: str) -> list[Row]:
        return await self._store.query("control", f"run#{run_id}")


class _Lenient(MemoryStateStore):
    """Ignores lower bounds."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await asyncio.sleep(0)
        await super().transact(
            name,
            [Update(o.key, o.set, o.add) if isinstance(o, Update) and name == "draw" else o for o in operations],
        )


class DrawsWithoutCondition(_Budgets):
    kind = _Lenient


class DrawsAgain(_Budgets):
    """Draws again when a draw is repeated."""

    def __init__(self) -> None:
        super().__init__()
        self._n = 10**6

    async def draw(self, run_id: str, n: int, demands: Sequence[Demand]) -> dict[str, int] | None:
        self._n += 1
        return await super().draw(run_id, self._n, demands)


class DrawsOneByOne(_Budgets):
    """Draws from several budgets one after the other."""

    async def draw(self, run_id: str, n: int, demands: Sequence[Demand]) -> dict[str, int] | None:
        drawn: dict[str, int] = {}
        for demand in demands:
            one = await super().draw(run_id, n, [demand])
            if one is None:
                return None
            drawn |= one
        return drawn


class DrawsLessThanTheEstimate(_Budgets):
    async def draw(self, run_id: str, n: int, demands: Sequence[Demand]) -> dict[str, int] | None:
        states = await self.get([d.budget for d in demands])
        rests = [0 if s is None else s.remaining for s in states]
        lower = [
            Demand(d.budget, d.unit, min(d.estimate, max(0, r)), d.wish) for d, r in zip(demands, rests, strict=True)
        ]
        return await super().draw(run_id, n, lower)


class GivesBackAgain(_Budgets):
    """Returns the money again when a return is repeated."""

    async def give_back(self, run_id: str, used: Mapping[str, int], **options: Any) -> None:
        for row in await self.drawn(run_id):
            await self._store.transact("reopen", [Update(row.key, set={"state": "open"})])
        await super().give_back(run_id, used)


class GivesBackEverything(_Budgets):
    async def give_back(self, run_id: str, used: Mapping[str, int], **options: Any) -> None:
        await super().give_back(run_id, {})


class GivesBackTheWhole(_Budgets):
    """Returns the whole draw if a part was requested."""

    async def give_back(self, run_id: str, used: Mapping[str, int], **options: Any) -> None:
        await super().give_back(run_id, used)


class ForgetsSilently(_Budgets):
    """Removes a scope without telling the processes that know its budgets."""

    async def forget(self, scope: str) -> None:
        await self._store.transact("forget", [Delete(Key("control", "budgets", scope))])


class GivesBackBlindly(_Budgets):
    """Does not charge usage beyond the draws."""

    async def give_back(self, run_id: str, used: Mapping[str, int], **options: Any) -> None:
        drawn: Counter[str] = Counter()
        for row in await self.drawn(run_id):
            drawn[row.value["budget"]] += row.value["amount"]
        await super().give_back(run_id, {budget: min(amount, drawn[budget]) for budget, amount in used.items()})


class _Unguarded(MemoryStateStore):
    """Puts a window whatever the definitions are by then."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await super().transact(name, operations[1:] if name == "open_budget" else operations)


class OpensWhatItRead(_Budgets):
    """Opens a window with a limit that was replaced meanwhile."""

    kind = _Unguarded


class ForgetsAlerts(_Budgets):
    """Raises an alert each time that a level is reached."""

    async def alert(self, budget: str, alert: TokenAlert, expires: int) -> bool:
        await self._store.transact(
            "forget", [Update(Key("control", f"budget#{budget}", "budget"), set={"warning_at": None})]
        )
        return await super().alert(budget, alert, expires)


class DefinesWithoutCondition(_Budgets):
    """Loses one of two concurrent definitions."""

    kind = ChecksThenWrites


class LimitsStartAnew(_Budgets):
    """Forgets what was drawn when the limit changes."""

    async def define(self, definition: BudgetDefinition, now: float) -> int:
        count = await super().define(definition, now)
        limit = {"unit": definition.unit, "limit": definition.limit, "remaining": definition.limit}
        row = Put(Key("control", f"budget#{definition.window(now)[0]}", "budget"), limit)
        await self._store.transact("reset", [row])
        return count
