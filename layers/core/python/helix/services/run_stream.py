"""Writing chunks: coalesced, numbered per writer, one flush in flight.

Law: a flush is one append of records in order, repeated unchanged until the log answers. Nothing is acknowledged that
the log does not have.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal, NamedTuple

from helix.core.chunks import ChunkBase, UnknownChunk
from helix.core.errors import InvalidInputError, StoreError
from helix.core.rows import SessionRow
from helix.core.sequencer import Mark, StreamRecord
from helix.ports.clock import Clock
from helix.ports.streams import StreamManager

FIRST_S, LONGEST_S, FLUSH_BYTES = 0.05, 0.25, 4096
TRIES = 6
Kind = Literal["run", "attempt", "call", "fold"]


class Writer(NamedTuple):
    """Who numbers its records: an attempt at a step, one claim of a call, or the run itself."""

    kind: Kind
    step: int = 0
    attempt: int = 0
    call_id: str | None = None

    @classmethod
    def of(cls, record: StreamRecord) -> Writer:
        return cls(record.kind, record.step, record.attempt, record.call_id)


@dataclass(frozen=True, slots=True)
class Boundary:
    """What a record marks: where an attempt, a call or a turn begins or ends. `last`: the step and attempt staged last."""

    mark: Mark | None
    last: tuple[int, int] | None = None
    status: str | None = None
    error: str | None = None


RUN = Writer("run")


class RunStream:
    """The chunks of one run by one worker. Make it inside a running event loop; `put` may be called from any thread."""

    def __init__(self, streams: StreamManager, clock: Clock, session: SessionRow, run_id: str, turn: int) -> None:
        self._streams, self._clock = streams, clock
        self.stream_id, self.session_id = session.stream_id, session.session_id
        self.run_id, self.turn, self.agent_type = run_id, turn, session.agent_type
        self._pending: list[StreamRecord] = []
        self._bytes = 0
        self._next: dict[Writer, int] = {}
        self._lock = asyncio.Lock()
        self._timer: asyncio.Task[None] | None = None
        self._interval = 0.0
        self._failure: StoreError | None = None
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def put(
        self, writer: Writer, chunks: Sequence[ChunkBase] = (), *, version: int = 0, boundary: Boundary | None = None
    ) -> None:
        """Add chunks of one writer; their envelope is filled in here. They are flushed soon; `flush` waits for it. A chunk
        of an unknown type is refused: that is for readers."""
        if any(isinstance(chunk, UnknownChunk) for chunk in chunks):
            raise InvalidInputError(f"chunks {chunks!r} are not all of a known type")
        add = partial(self._put, writer, chunks, version, boundary)
        if threading.get_ident() == self._thread:
            add()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: a tool that was given up on still talks
                self._loop.call_soon_threadsafe(add)

    def _put(self, writer: Writer, chunks: Sequence[ChunkBase], version: int, boundary: Boundary | None) -> None:
        now = self._clock.now()
        bodies = []
        for chunk in chunks:
            body = chunk.model_dump(mode="json", exclude_defaults=True)
            body |= {
                "type": chunk.type,  # type: ignore[attr-defined]
                "session_id": self.session_id,
                "run_id": self.run_id,
                "agent_id": self.session_id,
                "agent_type": self.agent_type,
                "step": writer.step,
                "attempt": writer.attempt,
                "timestamp": now,
            }
            bodies.append(body)
            self._bytes += 200 + len(getattr(chunk, "delta", ""))
        tail = self._pending[-1] if self._pending else None
        plain = boundary is None and writer.kind in ("attempt", "call")
        if plain and tail is not None and tail.mark is None and Writer.of(tail) == writer:
            tail.chunks.extend(bodies)
        else:
            n = self._next.get(writer, 0)
            self._next[writer] = n + 1
            at = boundary or Boundary(None)
            record = StreamRecord(
                session_id=self.session_id,
                run_id=self.run_id,
                turn=self.turn,
                agent_type=self.agent_type,
                n=n,
                version=version,
                **writer._asdict(),
                **asdict(at),
                chunks=bodies,
                time=now,
            )
            self._pending.append(record)
        text = any(getattr(c, "type", "") in ("text_delta", "thinking") for c in chunks)
        self._schedule(urgent=text and self._interval == 0.0)

    async def flush(self) -> None:
        """Return once the log has everything put so far. Raises `StoreError` if it cannot be reached."""
        async with self._lock:
            if self._failure is not None:
                raise self._failure
            records, self._pending, self._bytes = self._pending, [], 0
            if not records:
                return
            # Shielded: a cancelled writer must not lose or split a flush that the log may already have, nor let the
            # next one overtake it.
            append = asyncio.ensure_future(self._append(records))
            try:
                await asyncio.shield(append)
            except asyncio.CancelledError:
                await asyncio.wait({append})
                raise

    async def _append(self, records: list[StreamRecord]) -> None:
        for attempt in range(TRIES):
            try:
                await self._streams.append(self.stream_id, records)
                return
            except StoreError as error:
                if attempt + 1 == TRIES:
                    self._failure = error
                    raise
                await self._clock.sleep(0.05 * 2**attempt)

    def _schedule(self, urgent: bool) -> None:
        """The first text goes at once, then every 50 ms growing to 250 ms, or 4 KB."""
        if self._timer is not None and not self._timer.done() and not (urgent or self._bytes >= FLUSH_BYTES):
            return
        delay = 0.0 if urgent or self._bytes >= FLUSH_BYTES else max(self._interval, FIRST_S)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.create_task(self._later(delay))

    async def _later(self, delay: float) -> None:
        if delay:
            await self._clock.sleep(delay)
        self._interval = min(LONGEST_S, max(FIRST_S, self._interval * 1.5))
        had = bool(self._pending)
        try:
            await self.flush()
        except StoreError:
            return  # kept in _failure: the next flush that someone waits for raises it
        if not had:
            self._interval = 0.0

    async def close(self) -> None:
        """Flush what is left and stop the timer."""
        if self._timer is not None and not self._timer.done():
            self._timer.cancel()
        await self.flush()
