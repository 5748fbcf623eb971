"""Wake-ups inside one process: waiters for changes to a partition, and their notification."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from weakref import WeakKeyDictionary

Place = tuple[str, str]
POLL_S = 0.005
REST_S = 0.015
"""The minimum time between two wake-ups for writes by other processes, whose partitions are unknown."""


class LocalWatch:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def wake(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Wake the waiter. `loop` is the caller's event loop. If the waiter is in the same loop, no other thread has to
        be woken."""
        if loop is self.loop:
            self._event.set()
            return
        with contextlib.suppress(RuntimeError):  # its loop is closed, so there is no waiter
            self.loop.call_soon_threadsafe(self._event.set)

    async def changed(self, timeout_s: float) -> None:
        if not self._event.is_set():
            with contextlib.suppress(TimeoutError):  # not wait_for, which can lose a cancellation in Python 3.11
                async with asyncio.timeout(timeout_s):
                    await self._event.wait()
        self._event.clear()


class _Polling:
    """A poller that checks whether another process wrote, once for all watches of an event loop. It runs as long as
    there are watches."""

    def __init__(self, poll: Callable[[], object]) -> None:
        self._poll = poll
        self._watches: set[LocalWatch] = set()
        self._seen: object = None
        self._woken = 0.0
        self._runs = False

    def add(self, watch: LocalWatch) -> None:
        self._watches.add(watch)
        if not self._runs:
            self._runs, self._seen = True, self._poll()
            watch.loop.call_later(POLL_S, self._poll_once)

    def discard(self, watch: LocalWatch) -> None:
        self._watches.discard(watch)

    def _poll_once(self) -> None:
        self._runs = bool(self._watches)
        if not self._runs:
            return
        loop = asyncio.get_running_loop()
        loop.call_later(POLL_S, self._poll_once)
        now = self._poll()
        if now != self._seen and loop.time() - self._woken >= REST_S:
            self._seen, self._woken = now, loop.time()
            for watch in self._watches:
                watch.wake(loop)


class Watchers:
    """The watches of one store. `wake` may be called from any thread. `poll`, if given, returns a value that changes
    when another process writes. It is called every 5 ms while there are watches."""

    def __init__(self, poll: Callable[[], object] | None = None) -> None:
        self._watches: defaultdict[Place, set[LocalWatch]] = defaultdict(set)
        self._lock = threading.Lock()
        self._poll = poll
        self._polled: WeakKeyDictionary[asyncio.AbstractEventLoop, _Polling] = WeakKeyDictionary()

    @contextlib.contextmanager
    def watch(self, place: Place) -> Iterator[LocalWatch]:
        watch = LocalWatch()
        with self._lock:
            self._watches[place].add(watch)
        polling = self._polling(watch.loop)
        try:
            if polling is not None:
                polling.add(watch)
            yield watch
        finally:
            if polling is not None:
                polling.discard(watch)
            with self._lock:
                self._watches[place].discard(watch)
                if not self._watches[place]:
                    del self._watches[place]

    def _polling(self, loop: asyncio.AbstractEventLoop) -> _Polling | None:
        if self._poll is None:
            return None
        with self._lock:
            if loop not in self._polled:
                self._polled[loop] = _Polling(self._poll)
            return self._polled[loop]

    def wake(self, places: Iterable[Place]) -> None:
        if not self._watches:
            return
        with self._lock:
            woken = [watch for place in set(places) for watch in self._watches.get(place, ())]
        if woken:
            loop = asyncio._get_running_loop()
            for watch in woken:
                watch.wake(loop)
