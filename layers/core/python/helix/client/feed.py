"""Follows streams, with a feed for each reader, the subscriptions they need, and requests for missing messages.

Law: a feed delivers each message once, in the order of sequences, without gaps. Missing messages are requested again.
If the log itself has lost its beginning, a `stream_resync` takes the place of the lost messages. Each stream has at
most one open request, from the earliest position that one of its feeds needs. A new connection asks for all streams
that still have readers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from helix.client.link import ClientSettings
from helix.core.errors import CallerError, HelixError
from helix.core.json import JsonObject
from helix.core.wire import Judge, StreamMessage, Verdict, is_resync
from helix.ports.clock import Clock


class Feed:
    """The messages of a stream for one reader, after the sequence `after`.

    `judge` gets each message once, in order. `limit` is the number of messages that are kept while the reader does not
    read. Later messages are dropped, and requested again when the reader continues.
    """

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
        """Whether later messages have arrived before the next one."""
        return bool(self._early) and not self.done

    @property
    def full(self) -> bool:
        return len(self._ready) >= self._limit

    def add_messages(self, messages: Iterable[StreamMessage]) -> None:
        """Accept messages that have arrived, in any order."""
        if self.done:
            return
        for message in messages:
            if message.sequence > self.position:
                self._early[message.sequence] = message
        self._advance()
        if len(self._early) > self._limit:  # keep the nearest, so that messages that close the gap always have room
            self._early = dict(sorted(self._early.items())[: self._limit])
            self.dropped = True

    def fail(self, error: Exception) -> None:
        self.error = error
        self._end()

    def _end(self) -> None:
        self.done = True
        self._over.set()
        self._changed.set()

    async def ended(self, wait_s: float) -> bool:
        """Return whether the last message arrives within `wait_s` seconds. The reader may not have read it yet."""
        try:
            async with asyncio.timeout(wait_s):
                await self._over.wait()
        except TimeoutError:
            return False
        return True

    def _advance(self) -> None:
        while self._early and not self.done and not self.full:
            message = self._early.pop(self.position + 1, None) or self._take_resync()
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

    def _take_resync(self) -> StreamMessage | None:
        lost = [sequence for sequence, message in self._early.items() if is_resync(message)]
        if not lost:
            return None
        message = self._early[max(lost)]
        self._early = {s: m for s, m in self._early.items() if s > message.sequence}
        return message

    async def next(self, wait_s: float) -> StreamMessage | None:
        """Return the next message. Return None at the end, or if no message arrives within `wait_s` seconds (see
        `done`)."""
        if not self._ready and not self.done:
            self._changed.clear()
            with suppress(TimeoutError):  # a message may arrive while the timeout fires
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
        if self._ready:
            return self._ready.popleft()
        if self.error is not None:
            raise self.error
        return None

    @property
    def has_ready(self) -> bool:
        """Whether messages are ready to be read."""
        return bool(self._ready)


def whole_stream(message: StreamMessage) -> Verdict:
    """Show every message, for readers that follow a stream across its runs."""
    return "show"


def skip_until(after: int, judge: Judge) -> Judge:
    """Return a judge that skips the messages up to the sequence `after`, and is otherwise like `judge`."""

    def judged(message: StreamMessage) -> Verdict:
        verdict = judge(message)
        if message.sequence > after:
            return verdict
        return {"show": "skip", "last": "over"}.get(verdict, verdict)  # type: ignore[return-value]

    return judged


logger = logging.getLogger("helix.client")
MAX_STREAMS = 24
"""The maximum number of subscriptions that a connection keeps. The service allows a few more."""
EARLY = 4_000
SLOWEST_S = 5.0

Ask = Callable[[str, JsonObject], Awaitable[JsonObject]]


class Following:
    """The feeds of a link's readers, and the subscriptions they need. `ask` sends a request. `spawn` starts a task."""

    def __init__(self, ask: Ask, spawn: Callable[[Any], object], clock: Clock, settings: ClientSettings) -> None:
        self._ask, self._spawn, self._clock, self._settings = ask, spawn, clock, settings
        self._feeds: dict[str, list[Feed]] = {}
        self._subscribed: dict[str, None] = {}
        self._asking: dict[str, bool] = {}
        self._starting = 0
        self._early: deque[StreamMessage] = deque(maxlen=EARLY)  # only the newest; readers notice older ones as a gap

    # --- for readers --------------------------------------------------------------------------------------------------

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Keep all messages that arrive in the block, which requests a run. The run's first messages may arrive before
        its stream is known."""
        self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1
            if not self._starting:
                self._early.clear()

    def add(self, stream_id: str, after: int, judge: Judge, *, subscribed: bool) -> Feed:
        """Add a feed of the stream after the sequence `after`. `subscribed`: the service already sends the messages
        that follow."""
        feed = Feed(stream_id, after, judge, self._settings.buffer)
        self._feeds.setdefault(stream_id, []).append(feed)
        self._offer(feed, [message for message in self._early if message.stream_id == stream_id])
        self._subscribed[stream_id] = None
        if not subscribed:
            self.catch_up(feed)
        return feed

    async def read(self, feed: Feed) -> AsyncIterator[StreamMessage]:
        """Yield the feed's messages until it ends. A feed can be read once."""
        try:
            while True:
                message = await feed.next(self._settings.quiet_s)
                if message is not None:
                    yield message
                elif feed.done:
                    return
                else:
                    self.catch_up(feed)
                if feed.dropped and not feed.has_ready:
                    feed.dropped = False
                    self.catch_up(feed)
        finally:
            self._leave(feed)

    async def make_room(self) -> None:
        """Unsubscribe from streams without readers if there are many, so that another stream can be added."""
        if len(self._subscribed) < MAX_STREAMS:
            return
        for stream_id in list(self._subscribed):
            # Looked up at each turn, because other callers act during the request.
            if stream_id not in self._subscribed or stream_id in self._feeds or stream_id in self._asking:
                continue
            del self._subscribed[stream_id]
            try:
                await self._ask("unsubscribe", {"stream_id": stream_id})
            except CallerError:
                logger.debug("stream %s is gone", stream_id)

    def _leave(self, feed: Feed) -> None:
        feeds = self._feeds.get(feed.stream_id, [])
        if feed in feeds:
            feeds.remove(feed)
        if not feeds:
            self._feeds.pop(feed.stream_id, None)

    # --- for the link -------------------------------------------------------------------------------------------------

    def on_open(self) -> None:
        """Subscribe again to all streams with readers, because a new connection has no subscriptions."""
        self._subscribed = dict.fromkeys(self._feeds)
        for feeds in list(self._feeds.values()):
            self.catch_up(feeds[0])

    def on_messages(self, stream_id: str, messages: list[StreamMessage]) -> None:
        for feed in list(self._feeds.get(stream_id, ())):
            self._offer(feed, messages)
        if self._starting:  # also messages that a reader got, because the new run may be on the same stream
            self._early.extend(messages)

    def on_lagging(self, stream_id: str) -> None:
        for feed in self._feeds.get(stream_id, ())[:1]:
            self.catch_up(feed)

    def on_stream_fail(self, stream_id: str, error: Exception) -> None:
        """Fail the readers of this stream."""
        for feed in list(self._feeds.get(stream_id, ())):
            feed.fail(error)
            self._leave(feed)

    def has_readers(self, stream_id: str) -> bool:
        """Return whether the stream has readers."""
        return stream_id in self._feeds

    def on_fail(self, error: Exception) -> None:
        """Fail all readers. The link calls this once, when it gives up."""
        for feeds in self._feeds.values():
            for feed in feeds:
                feed.fail(error)
        self._feeds.clear()

    def _offer(self, feed: Feed, messages: list[StreamMessage]) -> None:
        feed.add_messages(messages)
        if feed.done:
            self._leave(feed)
        elif feed.has_gap and feed.stream_id not in self._asking:
            self._spawn(self._catch_up(feed.stream_id, self._settings.reorder_s))

    # --- requests for missing messages --------------------------------------------------------------------------------

    def catch_up(self, feed: Feed) -> None:
        """Ask now for the messages that follow the earliest position of the stream's feeds."""
        if feed.stream_id in self._asking:
            self._asking[feed.stream_id] = True  # ask once more when the current request is done
        else:
            self._spawn(self._catch_up(feed.stream_id, 0))

    async def _catch_up(self, stream_id: str, delay_s: float) -> None:
        if stream_id in self._asking:
            return
        self._asking[stream_id] = delay_s == 0
        pause_s, reached, slowest = self._settings.reorder_s, -1, None
        try:
            await self._clock.sleep(delay_s)
            while feeds := [feed for feed in self._feeds.get(stream_id, ()) if not feed.done]:
                if not self._asking[stream_id] and not any(feed.has_gap for feed in feeds):
                    return
                self._asking[stream_id] = False
                last = min(feeds, key=lambda feed: feed.position)
                moves = last is not slowest or last.position > reached  # a new reader may begin earlier than the others
                pause_s = self._settings.reorder_s if moves else min(SLOWEST_S, pause_s * 2)
                position = reached = last.position
                slowest = last
                try:
                    await self._replay(stream_id, position)
                except TimeoutError:
                    self._asking[stream_id] = True
                await self._clock.sleep(pause_s)
        except HelixError as error:
            self.on_stream_fail(stream_id, error)
        finally:
            del self._asking[stream_id]

    async def _replay(self, stream_id: str, after: int) -> None:
        while True:
            self._subscribed[stream_id] = None
            answer = await self._ask("subscribe", {"stream_id": stream_id, "after": after})
            await asyncio.sleep(0)  # first process the messages that came with the reply
            if answer.get("complete", True):
                return
            after = int(str(answer["caught_up"]))
