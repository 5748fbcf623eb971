"""Wake-ups inside one process: waiters for changes of a partition, and their notification."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

Place = tuple[str, str]


class LocalWatch:
    """`poll`, if given, is asked every `poll_s` seconds whether another process wrote."""

    def __init__(self, poll: Callable[[], object] | None, poll_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._poll, self._poll_s = poll, poll_s
        self._seen = poll() if poll else None

    def wake(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """`loop` is the caller's own: in the same loop no other thread need be woken."""
        if loop is self._loop:
            self._event.set()
            return
        with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits there any more
            self._loop.call_soon_threadsafe(self._event.set)

    async def changed(self, timeout_s: float) -> None:
        deadline = self._loop.time() + timeout_s
        while not self._event.is_set():
            left = deadline - self._loop.time()
            if left <= 0:
                return
            with contextlib.suppress(TimeoutError):  # not wait_for, which can lose a cancellation in Python 3.11
                async with asyncio.timeout(min(left, self._poll_s) if self._poll else left):
                    await self._event.wait()
            if self._poll and (now := self._poll()) != self._seen:
                self._seen = now
                return
        self._event.clear()


class Watchers:
    """The watches of one store. `wake` may be called from any thread."""

    def __init__(self, poll: Callable[[], object] | None = None, poll_s: float = 0.02) -> None:
        self._watches: defaultdict[Place, set[LocalWatch]] = defaultdict(set)
        self._lock = threading.Lock()
        self._poll, self._poll_s = poll, poll_s

    @contextlib.contextmanager
    def watch(self, place: Place) -> Iterator[LocalWatch]:
        watch = LocalWatch(self._poll, self._poll_s)
        with self._lock:
            self._watches[place].add(watch)
        try:
            yield watch
        finally:
            with self._lock:
                self._watches[place].discard(watch)
                if not self._watches[place]:
                    del self._watches[place]

    def wake(self, places: Iterable[Place]) -> None:
        if not self._watches:
            return
        with self._lock:
            woken = [watch for place in set(places) for watch in self._watches.get(place, ())]
        if woken:
            loop = asyncio._get_running_loop()
            for watch in woken:
                watch.wake(loop)
