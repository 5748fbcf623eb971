"""Writes the chunks of a run. Records are numbered per writer, and one flush is in flight at a time.

Law: a flush is one append of records in order, repeated unchanged until the log confirms it. After a cancelled flush,
the next one begins with the same records. Only records that are in the log are acknowledged.

Words (text chunks) go to the log immediately. Chunks that arrive while an append is in flight join the next one, so
batches grow with the load. A log that charges for each append (`StreamManager.coalesces`) receives words at intervals.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple
from weakref import WeakKeyDictionary

from helix.core.chunk_envelope import ChunkBase
from helix.core.chunks import OutputDeltaChunk, TextDeltaChunk, ThinkingChunk, UnknownChunk
from helix.core.errors import AccessDeniedError, InvalidInputError, StoreError
from helix.core.json import JsonObject
from helix.core.sequencer import Mark, StreamRecord
from helix.core.session_row import SessionRow
from helix.ports.clock import Clock
from helix.ports.streams import StreamManager

FIRST_S, LONGEST_S, FLUSH_BYTES = 0.05, 0.125, 4096
PATIENCE_S, MOST_PATIENCE_S = 0.002, 0.064
WORDS_PER_S, OTHERS_PER_S, BURST = 600, 50, 50
"""The maximum number of appends per second for words and for other chunks in one event loop, and the size of a burst.
These appends take about a fifth of a CPU core, and all runs share them."""
SHARED_S = 1.0
"""The maximum time that chunks without words wait for their turn. The flush at the end of their step includes them."""
READER_TURNS = 4
"""The number of event loop iterations that a reader needs to take the flushed records and pass them on."""
TRIES = 6
Kind = Literal["run", "attempt", "call", "fold", "inbox"]


class Writer(NamedTuple):
    """The source of records, which numbers them: an attempt at a step, one claim on a call, or the run itself."""

    kind: Kind
    """The kind of writer, as in `StreamRecord`. `fold` writes the result of committing a step, and `inbox` a waiting
    message."""
    step: int = 0
    """The step that the writer works on. 0 for the run itself."""
    attempt: int = 0
    """The number of the attempt at the step, or of the claim on the call."""
    call_id: str | None = None
    """The tool call. None unless `kind` is `call`."""


class Boundary(NamedTuple):
    """The beginning or the end of an attempt, a call or a turn."""

    mark: Mark | None
    """The kind of boundary. None for a record inside a turn."""
    last: tuple[int, int] | None = None
    """The (step, attempt) that was staged or committed last. The sequencer uses it to close an open attempt."""
    status: str | None = None
    """The session's status at the end of the turn. None for other records."""
    error: str | None = None
    """The message of the error that ended the turn. None if there was no error."""
    seen: tuple[int, float] | None = None
    """For the start of a run: the end of the stream that its claim saw, as the last sequence and its time. None if
    unknown."""


RUN = Writer("run")


class _Slots:
    """The times at which appends may begin: `rate` per second, after a burst."""

    def __init__(self, rate: float) -> None:
        self._rate, self._next = rate, 0.0

    def take(self, now: float) -> float:
        """Return the next time for an append, which is now if there were few recent appends."""
        self._next = max(self._next, now - BURST / self._rate) + 1 / self._rate
        return max(now, self._next)

    def are_free(self, now: float) -> bool:
        return self._next + 1 / self._rate <= now


class _Shared:
    """The limits shared by the streams of one event loop."""

    _of: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self.words, self.others = _Slots(WORDS_PER_S), _Slots(OTHERS_PER_S)

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> _Shared:
        return cls._of.setdefault(loop, cls())


class RunStream:
    """The chunks of one run that one worker writes. Create it in a running event loop; any thread may call `put`."""

    def __init__(self, streams: StreamManager, clock: Clock, session: SessionRow, run_id: str, turn: int) -> None:
        self._streams, self._clock = streams, clock
        self.stream_id, self.session_id = session.stream_id, session.session_id
        self.run_id, self.turn, self.agent_type = run_id, turn, session.agent_type
        self.created_at = session.created_at
        self._pending: list[StreamRecord] = []
        self._last: Writer | None = None
        self._bytes, self._words = 0, False
        self._next: dict[Writer, int] = {}
        self._lock = asyncio.Lock()
        self._coalesces = streams.coalesces
        self._timer: asyncio.Task[None] | None = None
        self._sleeping = False
        self._interval = 0.0
        self._due: float | None = None
        self._patience = 0.0
        self._failure: Exception | None = None
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._shared = _Shared.of(self._loop)

    def put(
        self, writer: Writer, chunks: Sequence[ChunkBase] = (), *, version: int = 0, boundary: Boundary | None = None
    ) -> None:
        """Add chunks from one writer, and fill in their envelopes. They are flushed soon, and `flush` waits for that.
        Chunks of an unknown type are refused, because only readers use them."""
        for chunk in chunks:
            if isinstance(chunk, UnknownChunk):
                raise InvalidInputError(f"chunks {chunks!r} are not all of a known type")
        if threading.get_ident() == self._thread:
            self._put(writer, chunks, version, boundary)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, but an abandoned tool still writes
                self._loop.call_soon_threadsafe(self._put, writer, chunks, version, boundary)

    def _put(self, writer: Writer, chunks: Sequence[ChunkBase], version: int, boundary: Boundary | None) -> None:
        now = self._clock.now()
        bodies = [self._body(writer, chunk, now) for chunk in chunks]
        plain = boundary is None and writer.kind in ("attempt", "call")
        if plain and writer == self._last:
            self._pending[-1].chunks.extend(bodies)
        else:
            n = self._next.get(writer, 0)
            self._next[writer] = n + 1
            record = StreamRecord(
                session_id=self.session_id,
                run_id=self.run_id,
                turn=self.turn,
                created_at=self.created_at,
                agent_type=self.agent_type,
                n=n,
                version=version,
                **writer._asdict(),
                **(boundary._asdict() if boundary is not None else {}),
                chunks=bodies,
                time=now,
            )
            self._pending.append(record)
            self._last = writer if plain else None
        self._schedule()

    def _body(self, writer: Writer, chunk: ChunkBase, now: float) -> JsonObject:
        text: str | None = None
        if isinstance(chunk, TextDeltaChunk | OutputDeltaChunk):  # most chunks, and a model dump is the slowest part
            text = chunk.delta
            body: JsonObject = {"delta": text}
        else:
            body = chunk.model_dump(mode="json", exclude_defaults=True)
            if isinstance(chunk, ThinkingChunk):
                text = chunk.content
        body["type"] = chunk.type  # type: ignore[attr-defined]
        body["session_id"] = body["agent_id"] = self.session_id
        body["run_id"], body["agent_type"] = self.run_id, self.agent_type
        body["step"], body["attempt"], body["timestamp"] = writer.step, writer.attempt, now
        self._words = self._words or text is not None
        self._bytes += 200 + len(text or "")
        return body

    def relief(self) -> Awaitable[None] | None:
        """Return an awaitable that is done once the words are in the log. It is for a model adapter that has blocked
        the event loop for a while. None if nothing is late, or in other threads, which do not block the loop."""
        if self._due is None or threading.get_ident() != self._thread:
            return None
        return _Relief(self._relieve) if self._loop.time() - self._due >= self._patience else None

    async def _relieve(self) -> None:
        """Flush the first words immediately, and later ones less and less often, so an adapter that never lets the
        event loop run causes few appends."""
        self._patience = min(MOST_PATIENCE_S, max(PATIENCE_S, 2 * self._patience))
        with contextlib.suppress(Exception):  # kept in _failure
            await self.flush()
        for _ in range(READER_TURNS):  # a flush may return without letting another task run
            await asyncio.sleep(0)

    async def flush(self) -> None:
        """Return once everything put so far is in the log. Raises `StoreError` if the log cannot be reached; every
        later call then raises it too."""
        async with self._lock:
            if self._failure is not None:
                raise self._failure
            records, self._pending, self._last = self._pending, [], None
            self._bytes, self._words, self._due = 0, False, None
            if not records:
                return
            try:
                await self._append(records)
            except asyncio.CancelledError:
                # The log may already have these records. The next flush starts with the same ones, which the log
                # recognizes by their numbers, and no later record overtakes them.
                self._pending[:0] = records
                raise
            except Exception as error:  # any kind: records that are not in the log must not count as written
                self._failure = error
                raise

    async def _append(self, records: list[StreamRecord]) -> None:
        for attempt in range(TRIES):
            try:
                await self._streams.append(self.stream_id, records)
                return
            except StoreError as error:
                if attempt + 1 == TRIES or isinstance(error, AccessDeniedError):
                    raise
                await self._clock.sleep(0.05 * 2**attempt)

    @property
    def _urgent(self) -> bool:
        """Whether to flush immediately. If appends are free, all words are urgent. Otherwise only the first words and
        every further 4 KB are."""
        first = not self._coalesces or self._interval == 0.0
        return (self._words and first) or self._bytes >= FLUSH_BYTES

    def _schedule(self) -> None:
        urgent = self._urgent
        if urgent and self._due is None:
            self._due = self._loop.time()
        if self._timer is not None and not self._timer.done():
            if not (urgent and self._sleeping):
                return
            self._timer.cancel()
        self._sleeping = False
        self._timer = self._loop.create_task(self._flushes())

    async def _flushes(self) -> None:
        """Flush until nothing is left. Urgent chunks go immediately. Others wait for 50 ms, or for up to 125 ms if the
        log coalesces. If the event loop makes many appends, they wait for up to a second."""
        while True:
            if not self._urgent:
                await self._others()
            if not self._pending:
                self._interval = 0.0
                return
            await self._slot()
            if self._coalesces:
                self._interval = min(LONGEST_S, max(FIRST_S, self._interval * 1.5))
            try:
                await self.flush()
            except Exception:
                return  # kept in _failure: the next awaited flush raises it
            if not self._pending:
                return

    async def _others(self) -> None:
        """Wait until chunks without words are due."""
        wait, waited = max(self._interval, FIRST_S), 0.0
        while waited < SHARED_S:
            self._sleeping = True
            await self._clock.sleep(wait)
            self._sleeping = False
            waited += wait
            if not self._pending or self._urgent:
                return
            if self._shared.others.are_free(self._loop.time()):
                break
            wait = min(2 * wait, SHARED_S - waited)
        self._shared.others.take(self._loop.time())

    async def _slot(self) -> None:
        """Wait if this event loop makes many appends. Words that arrive in the meantime join the append."""
        if self._due is None:
            return
        now = self._loop.time()
        if now - self._due < PATIENCE_S:
            self._patience = PATIENCE_S
        if not self._coalesces and (slot := self._shared.words.take(now)) > now:
            self._due = slot
            await self._clock.sleep(slot - now)

    async def close(self) -> None:
        """Flush the remaining chunks and stop the timer."""
        if self._timer is not None and not self._timer.done():
            self._timer.cancel()
        await self.flush()


class _Relief:
    """An awaitable that runs its callback when awaited. Unlike a coroutine, it may be dropped without a warning."""

    def __init__(self, call: Callable[[], Awaitable[None]]) -> None:
        self._call = call

    def __await__(self) -> Generator[Any, None, None]:
        return self._call().__await__()
