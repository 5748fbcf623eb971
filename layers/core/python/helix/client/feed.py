"""Feed: one reader's part of a stream, in order and without a repeat, whatever the socket did to it.

Law: messages leave in the order of their sequences, each once, none left out; what is missing is asked for. Only where
the log itself has lost its beginning does a `stream_resync` stand for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Literal

from helix.core.wire import StreamMessage

Verdict = Literal["show", "skip", "last", "over"]
"""What a message is to a reader: to be shown, not its own, shown and the last, or a sign that the end has passed."""
Judge = Callable[[StreamMessage], Verdict]


class Feed:
    """`after`: the sequence behind which it begins. `judge` sees each message once, in order. `limit`: messages kept for
    a reader that does not read; beyond it they are forgotten, and asked for when the reader comes."""

    def __init__(self, stream_id: str, after: int, judge: Judge, limit: int) -> None:
        self.stream_id = stream_id
        self.position = after
        self.done = False
        self.error: Exception | None = None
        self._judge, self._limit = judge, limit
        self._early: dict[int, StreamMessage] = {}
        self._ready: deque[StreamMessage] = deque()
        self.dropped = False
        self._changed, self._over = asyncio.Event(), asyncio.Event()

    @property
    def has_gap(self) -> bool:
        """Whether later messages are here, and the next one is not."""
        return bool(self._early) and not self.done

    @property
    def full(self) -> bool:
        return len(self._ready) >= self._limit

    def offer(self, messages: Iterable[StreamMessage]) -> None:
        """Take what a frame has brought."""
        if self.done:
            return
        for message in messages:
            if message.sequence > self.position and len(self._early) < self._limit:
                self._early[message.sequence] = message
        self._advance()

    def fail(self, error: Exception) -> None:
        self.error = error
        self._end()

    def _end(self) -> None:
        self.done = True
        self._over.set()
        self._changed.set()

    async def ended(self, wait_s: float) -> bool:
        """Whether the last message is here, within `wait_s` seconds, read or not."""
        try:
            async with asyncio.timeout(wait_s):
                await self._over.wait()
        except TimeoutError:
            return False
        return True

    def _advance(self) -> None:
        while self._early and not self.done and not self.full:
            message = self._early.pop(self.position + 1, None) or self._resync()
            if message is None:
                return
            self.position = message.sequence
            verdict = self._judge(message)
            if verdict in ("show", "last"):
                self._ready.append(message)
            if verdict in ("last", "over"):
                self._end()
            self._changed.set()
        if self.full and not self.done:
            self.dropped = True
        if self.full or self.done:
            self._early = {}

    def _resync(self) -> StreamMessage | None:
        """The word of the log that everything before is lost: it is in no run's name."""
        lost = [sequence for sequence, message in self._early.items() if _is_resync(message)]
        if not lost:
            return None
        message = self._early[max(lost)]
        self._early = {s: m for s, m in self._early.items() if s > message.sequence}
        return message

    async def next(self, wait_s: float) -> StreamMessage | None:
        """The next message; None at the end, or if none came in `wait_s` seconds (see `done`)."""
        if not self._ready and not self.done:
            self._changed.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                return None
        if self._ready:
            return self._ready.popleft()
        if self.error is not None:
            raise self.error
        return None

    @property
    def waiting(self) -> bool:
        """Whether there is something to read."""
        return bool(self._ready)


def _is_resync(message: StreamMessage) -> bool:
    return message.run_id == "" and (message.chunk or {}).get("type") == "stream_resync"


def whole_stream(message: StreamMessage) -> Verdict:
    """For whoever follows a stream across its runs."""
    return "show"


def one_run(session_id: str, turn: int) -> Judge:
    """For whoever follows one run: from the session's first message of that turn to its end, the sub-agents' messages
    between included. A later turn means that the run was taken over, and has no end of its own."""
    begun = False

    def judge(message: StreamMessage) -> Verdict:
        nonlocal begun
        if _is_resync(message):
            return "show"
        own = message.session_id == session_id
        if own and message.turn > turn:
            return "over"
        if own and message.turn == turn:
            begun = True
            return "show" if message.kind == "chunk" else "last"
        return "show" if begun and not own else "skip"

    return judge


async def messages_of(
    feed: Feed, quiet_s: float, catch_up: Callable[[Feed], None], leave: Callable[[Feed], None]
) -> AsyncIterator[StreamMessage]:
    """The feed to its end. `catch_up` asks for what may be missing, `leave` says that nobody reads any more."""
    try:
        while True:
            message = await feed.next(quiet_s)
            if message is not None:
                yield message
            elif feed.done:
                return
            else:
                catch_up(feed)
            if feed.dropped and not feed.waiting:
                feed.dropped = False
                catch_up(feed)
    finally:
        leave(feed)


def behind(after: int, judge: Judge) -> Judge:
    """The same, without what has been seen already."""

    def judged(message: StreamMessage) -> Verdict:
        verdict = judge(message)
        if message.sequence > after:
            return verdict
        return {"show": "skip", "last": "over"}.get(verdict, verdict)  # type: ignore[return-value]

    return judged
