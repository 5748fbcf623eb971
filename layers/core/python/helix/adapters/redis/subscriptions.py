"""Notifications of changes, through one connection that subscribes to the watched partitions.

Law: no change is missed. A subscription begins when the server confirms it, which is after `watch` returned. So the
confirmation counts as a change, and the waiter reads again. Messages published while the connection was lost are
missed, and every confirmation of the new connection counts as a change. A partition that is no longer watched stays
subscribed until others displace it. So a reader that reads, waits and reads again is not woken needlessly each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Any

from redis.exceptions import RedisError

from helix._log import get_logger
from helix.adapters.watching import LocalWatch, Place, Watchers

PING_S = 10.0
SILENCE_S = 30.0  # a connection that does not answer a ping for this long is dead, whatever TCP reports
IDLE = 256
RECONNECT_S = (0.05, 0.1, 0.25, 0.5, 1.0)

logger = get_logger("helix.redis")


class Subscriptions:
    """The watches of one store in one event loop. `pool` is its connection pool; one of its connections is kept."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._watchers = Watchers()
        self._places: dict[bytes, Place] = {}
        self._holders: Counter[bytes] = Counter()
        self._idle: OrderedDict[bytes, None] = OrderedDict()
        self._asked: set[bytes] = set()
        self._wanting = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def watch(self, channel: str, place: Place) -> Iterator[LocalWatch]:
        name = channel.encode()
        self._places[name] = place
        self._holders[name] += 1
        self._idle.pop(name, None)
        if name not in self._asked:
            self._wanting.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(
                self._stay_connected(), name="helix:redis-subscriptions"
            )
        try:
            with self._watchers.watch(place) as watch:
                yield watch
        finally:
            self._release(name)

    async def close(self) -> None:
        if self._task is not None:
            await _end(self._task)
            self._task = None

    def _release(self, name: bytes) -> None:
        self._holders[name] -= 1
        if self._holders[name]:
            return
        del self._holders[name]
        self._idle[name] = None
        while len(self._idle) > IDLE:
            crowded_out, _ = self._idle.popitem(last=False)
            del self._places[crowded_out]
            self._wanting.set()

    # --- the connection -------------------------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        """Stay connected until closed."""
        failures = 0
        while True:
            try:
                connection = await self._pool.get_connection()
                try:
                    failures = 0
                    await self._receive(connection)
                finally:
                    await connection.disconnect(nowait=True)  # never return it to the pool with a subscription
                    await self._pool.release(connection)
            except (RedisError, OSError) as error:
                if failures == 0:
                    logger.info("the connection for notifications of changes was lost: %s", error)
            await asyncio.sleep(RECONNECT_S[min(failures, len(RECONNECT_S) - 1)])
            failures += 1

    async def _receive(self, connection: Any) -> None:
        self._asked = set()
        self._wanting.set()
        asking = asyncio.create_task(self._ask(connection))
        try:
            while True:
                async with asyncio.timeout(SILENCE_S):
                    answer = await connection.read_response(timeout=math.inf, push_request=True)
                if isinstance(answer, list) and answer[0] in (b"message", b"subscribe"):
                    place = self._places.get(answer[1])
                    if place is not None:
                        self._watchers.wake([place])
        finally:
            await _end(asking)

    async def _ask(self, connection: Any) -> None:
        """Subscribe to newly watched partitions, unsubscribe from others, and ping in between."""
        while True:
            self._wanting.clear()
            wanted = set(self._places)
            for verb, names in (("SUBSCRIBE", wanted - self._asked), ("UNSUBSCRIBE", self._asked - wanted)):
                if names:
                    await connection.send_command(verb, *names, check_health=False)
            self._asked = wanted
            try:
                async with asyncio.timeout(PING_S):
                    await self._wanting.wait()
            except TimeoutError:
                await connection.send_command("PING", check_health=False)


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel the task repeatedly until it ends, because `asyncio.wait_for` can lose a cancellation in Python 3.11.
    redis-py uses it to send."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=0.1)
    if not task.cancelled():
        task.exception()  # retrieved: if asking failed, listening fails with the same error
