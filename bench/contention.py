"""A state store with DynamoDB's limits on one item, in simulated time that advances only when all tasks wait.

- A transaction holds its items for `HELD_S`, including those that it only checks. Another transaction, or a write of one
  item, that meets a held item is rejected
  (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html#transaction-conflict-handling).
  Each of its items has its own reason, so a failed condition on another item is reported too
  (https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_CancellationReason.html).
- An item takes 1,000 write units a second, because a partition takes no more and an item is in one partition
  (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html).

Rejected requests are retried as the DynamoDB store retries them, with the same number of attempts and the same pauses.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from helix import MemoryStateStore
from helix.adapters.aws.dynamodb import FIRST_PAUSE_S, LONGEST_PAUSE_S, TRIES
from helix.core.errors import ConditionFailedError, ContentionError
from helix.core.json import dumps
from helix.ports.state_store import Key, Operation, Put, Row, Value

HELD_S = 0.01
READ_S = 0.004
ITEM_UNITS = 1_000
BEGUN = 1_750_003_198.5
"""1.5 s before the start of an hour (Unix seconds)."""


class LoopClock:
    """The time of the running loop."""

    def now(self) -> float:
        return BEGUN + asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Contended(MemoryStateStore):
    """`writes[key][second]`: the requests that wrote or checked the item, including those rejected because of it."""

    def __init__(self, seed: int = 11) -> None:
        super().__init__()
        self._held: dict[Key, float] = {}
        self._units: Counter[tuple[Key, int]] = Counter()
        self._dice = random.Random(seed)
        self.writes: defaultdict[Key, Counter[int]] = defaultdict(Counter)
        self.conflicts = self.throttled = 0

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        await asyncio.sleep(READ_S)
        return await super().get(keys)

    async def query(self, *args: Any, **options: Any) -> list[Row]:
        await asyncio.sleep(READ_S)
        return await super().query(*args, **options)

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        for attempt in range(TRIES):
            if self._admitted(operations):
                await super().transact(name, operations)
                await asyncio.sleep(HELD_S if len(operations) > 1 else READ_S)
                return
            await self._judge(name, operations)
            await asyncio.sleep(READ_S + min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**attempt) * self._dice.random())
        raise ContentionError(f"transaction {name!r} met others {TRIES} times")

    def _admitted(self, operations: Sequence[Operation]) -> bool:
        now = asyncio.get_running_loop().time()
        second = int(now)
        for operation in operations:
            self.writes[operation.key][second] += 1
        if any(self._held.get(operation.key, 0.0) > now for operation in operations):
            self.conflicts += 1
            return False
        units = {(operation.key, second): _units(operation, len(operations)) for operation in operations}
        if any(self._units[place] + number > ITEM_UNITS for place, number in units.items()):
            self.throttled += 1
            return False
        self._units.update(units)
        if len(operations) > 1:
            self._held |= {operation.key: now + HELD_S for operation in operations}
        return True

    async def _judge(self, name: str, operations: Sequence[Operation]) -> None:
        now = asyncio.get_running_loop().time()
        for index, operation in enumerate(operations):
            if operation.when is not None and self._held.get(operation.key, 0.0) <= now:
                (value,) = await super().get([operation.key])
                if not operation.when.holds(value):
                    raise ConditionFailedError(name, index)

    def hottest(self) -> tuple[Key, int]:
        """Return the item with the most writes in one second."""
        return max(((key, max(seconds.values())) for key, seconds in self.writes.items()), key=lambda one: one[1])


def _units(operation: Operation, operations: int) -> int:
    size = len(dumps(operation.value)) if isinstance(operation, Put) else 1
    return (2 if operations > 1 else 1) * -(-size // 1024)


async def at_rate(rate: float, times: int, work: Callable[[int], Awaitable[None]]) -> list[float]:
    """Start `work` `times` times, `rate` a second at random moments. Return the duration of each call, in seconds."""
    loop, dice, took = asyncio.get_running_loop(), random.Random(7), list[float]()

    async def one(n: int, moment: float) -> None:
        await asyncio.sleep(moment)
        begun = loop.time()
        await work(n)
        took.append(loop.time() - begun)

    await asyncio.gather(*(one(n, dice.random() * times / rate) for n in range(times)))
    return sorted(took)


def simulated(work: Coroutine[Any, Any, Any]) -> Any:
    """Run `work` in simulated time: its computation takes no time, and every wait ends at once."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time advances only when all tasks wait, and then jumps to the next timer."""

    def __init__(self) -> None:
        self._passed = 0.0
        super().__init__(_Selector(self._pass))

    def time(self) -> float:
        return self._passed

    def _pass(self, seconds: float) -> None:
        self._passed += seconds


class _Selector(selectors.DefaultSelector):
    def __init__(self, wait: Callable[[float], None]) -> None:
        super().__init__()
        self._wait = wait

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if not events:
            assert timeout is not None, "all tasks wait, and no timer is set"
            self._wait(timeout)
        return events
