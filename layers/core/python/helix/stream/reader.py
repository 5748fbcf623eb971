"""Reads a stream: stored messages, then live ones, as one sequence without gaps or duplicates.

Law: sequences strictly ascend. If the log has lost messages (its beginning expires), a `stream_resync` fills the gap.
By default a reader stops at the end of the root session's last run. An end message that is followed by later messages
is history, and is passed on like any other message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import TypeAlias

from helix.core.chunks import StreamChunk
from helix.core.errors import StreamNotFoundError
from helix.core.json import JsonObject
from helix.core.wire import StreamInfo, StreamMessage
from helix.ports.streams import StreamManager
from helix.stream.filters import closing_source

WAIT_S = 15.0
Until: TypeAlias = Callable[[StreamMessage], bool]


async def read_stream(
    manager: StreamManager,
    stream_id: str,
    *,
    from_sequence: int = 0,
    until: Until | None = None,
    follow: bool = False,
) -> AsyncGenerator[StreamMessage, None]:
    """Yield the messages after `from_sequence`, stored ones first, then live.

    With `until`, reading stops after the first message for which it returns true. Nothing else stops it, so the
    expected run may begin later. With `follow`, reading continues until the caller stops it.

    Raises `StreamNotFoundError` if the stream does not exist. With `until` or `follow`, it waits for the stream
    instead.
    """
    messages = read_with_idle(
        manager, stream_id, from_sequence=from_sequence, until=until, follow=follow, idle_s=WAIT_S
    )
    async with aclosing(messages):
        async for message in messages:
            if message is not None:
                yield message


async def read_with_idle(
    manager: StreamManager,
    stream_id: str,
    *,
    from_sequence: int = 0,
    until: Until | None = None,
    follow: bool = False,
    idle_s: float,
) -> AsyncGenerator[StreamMessage | None, None]:
    """Yield like `read_stream`, and also yield None after each wait of at most `idle_s`, so that the caller can send a
    heartbeat."""
    position, patient = from_sequence, until is not None or follow
    suspect = -1  # the position after which messages were once missing; they are reread before a gap is reported
    while True:
        page = await manager.read(stream_id, position)
        for message in page:
            if message.sequence <= position:
                continue
            if message.sequence > position + 1:
                if suspect != position:
                    suspect = position
                    break
                yield _resync(stream_id, message.session_id, message.sequence - 1)
            position = message.sequence
            yield message
            if until is not None and until(message):
                return
        info = await manager.info(stream_id)
        if page and (info is None or info.latest_sequence > position):
            continue
        if info is None:
            if not patient or position:
                raise StreamNotFoundError(f"stream {stream_id!r} does not exist or has expired: start from the session")
        elif info.latest_sequence > position:
            if suspect == position:
                position = info.latest_sequence
                yield _resync(stream_id, stream_id, position)
                continue
            suspect = position
        elif not patient and info.status != "active":
            return
        await manager.wait(stream_id, position, idle_s)
        yield None


async def read_page(manager: StreamManager, stream_id: str, after: int, limit: int) -> list[StreamMessage]:
    """Return at most `limit` messages after `after`. A `stream_resync` replaces messages that the log has lost."""
    page = await manager.read(stream_id, after, limit)
    if _has_gap(after, page):
        page = await manager.read(stream_id, after, limit)  # read again before a gap is reported
    found, position = list[StreamMessage](), after
    for message in page:
        if message.sequence > position + 1:
            found.append(_resync(stream_id, message.session_id, message.sequence - 1))
        position = message.sequence
        found.append(message)
    return found[:limit]


def _has_gap(after: int, page: Sequence[StreamMessage]) -> bool:
    return bool(page) and page[-1].sequence - after != len(page)


async def chunks_of(messages: AsyncIterable[StreamMessage]) -> AsyncGenerator[StreamChunk, None]:
    """Yield the parsed chunks among `messages`, as input for the filters. Chunk types of a later version become
    `UnknownChunk`."""
    async with closing_source(messages):
        async for message in messages:
            if message.kind == "chunk":
                yield message.parsed()


class StreamReader:
    """A reader of a stream. Use `async for message in reader`; `close()` ends it, even from another task."""

    def __init__(self, info: StreamInfo, messages: AsyncGenerator[StreamMessage, None], from_sequence: int) -> None:
        self._info, self._messages = info, messages
        self._current, self._chunks = from_sequence, info.total_chunks
        self._pending: asyncio.Future[StreamMessage] | None = None
        self._closed = False

    @property
    def current_sequence(self) -> int:
        """The sequence of the last message read. Pass it as `from_sequence` to a later reader."""
        return self._current

    @property
    def latest_sequence(self) -> int:
        """The last sequence of the stream that is known to this reader."""
        return max(self._info.latest_sequence, self._current)

    @property
    def total_chunks(self) -> int:
        """The number of chunks on the stream as far as this reader has seen it, including those before its start."""
        return self._chunks

    def chunks(self) -> AsyncGenerator[StreamChunk, None]:
        """Return the rest of the messages as parsed chunks."""
        return chunks_of(self)

    def __aiter__(self) -> AsyncIterator[StreamMessage]:
        return self

    async def __anext__(self) -> StreamMessage:
        if self._closed:
            raise StopAsyncIteration
        self._pending = asyncio.ensure_future(anext(self._messages))
        try:
            message = await self._pending
        except asyncio.CancelledError:
            if self._closed:
                raise StopAsyncIteration from None
            raise
        finally:
            self._pending = None
        self._current = message.sequence
        if message.kind == "chunk" and message.sequence > self._info.latest_sequence:
            self._chunks += 1
        return message

    async def close(self) -> None:
        """Stop reading. Idempotent."""
        self._closed = True
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.gather(self._pending, return_exceptions=True)
        await self._messages.aclose()

    aclose = close


ResumableStreamReader: TypeAlias = StreamReader


async def create_reader(
    manager: StreamManager,
    stream_id: str,
    *,
    from_sequence: int = 0,
    until: Until | None = None,
    follow: bool = False,
) -> StreamReader | None:
    """Return a reader that starts after `from_sequence` (see `read_stream`). None if the stream does not exist."""
    info = await manager.info(stream_id)
    if info is None:
        return None
    messages = read_stream(manager, stream_id, from_sequence=from_sequence, until=until, follow=follow)
    return StreamReader(info, messages, from_sequence)


def _resync(stream_id: str, session_id: str, sequence: int) -> StreamMessage:
    """Return a message that replaces all missing messages up to `sequence`, and takes that sequence itself."""
    chunk: JsonObject = {"type": "stream_resync", "reason": "messages have expired", "from_sequence": sequence}
    chunk |= {"session_id": session_id, "agent_id": session_id}
    return StreamMessage(
        stream_id=stream_id, session_id=session_id, run_id="", sequence=sequence, kind="chunk", chunk=chunk
    )
