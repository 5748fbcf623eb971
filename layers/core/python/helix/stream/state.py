"""Custom state on the stream: a writer of state patches, and a projector that follows the state by applying them.

Law: a projector that starts from the state at sequence s and applies every later `state_patch` of its session holds the
committed state. If the stream alone is not enough (`stream_resync`, or a patch that does not apply), it reloads the
state.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from helix.core.chunks import StatePatchChunk, StreamChunk, StreamResyncChunk
from helix.core.errors import InvalidInputError, StaleStateError
from helix.core.json import JsonObject
from helix.core.patches import apply, equals_json, json_copy
from helix.core.sequencer import StreamRecord
from helix.ports.clock import Clock
from helix.ports.streams import StreamManager
from helix.stream.filters import closing_source

ProjectedT = TypeVar("ProjectedT")


class CustomStateStreamer:
    """Writes `state_patch` chunks in addition to those that the engine writes when a step commits.

    It writes within one step of one run, like a tool call. Create one per step, and after a crash one with a higher
    `attempt`. Patches are written in order. A patch that could not be written (`StoreError`) is kept, and is written
    before the next one or by `flush()`. Do not emit it again.
    """

    def __init__(self, stream_manager: StreamManager, stream_id: str, clock: Clock, record: StreamRecord) -> None:
        self._manager, self._stream_id, self._clock, self._record = stream_manager, stream_id, clock, record
        self._unwritten: deque[StreamRecord] = deque()
        self._next = 0
        self._one_in_flight = asyncio.Lock()

    async def emit_patch(self, patches: Sequence[Mapping[str, Any]]) -> None:
        """Write RFC 6902 operations to the stream. They are durable on return. Without operations, no chunk is
        written."""
        if patches:
            self._unwritten.append(self._make_record([json_copy(patch) for patch in patches]))
            self._next += 1
        await self.flush()

    async def flush(self) -> None:
        """Write the patches that could not be written earlier."""
        async with self._one_in_flight:
            while self._unwritten:
                await self._manager.append(self._stream_id, [self._unwritten[0]])
                self._unwritten.popleft()

    def _make_record(self, patches: list[JsonObject]) -> StreamRecord:
        base, now = self._record, self._clock.now()
        chunk = StatePatchChunk(
            session_id=base.session_id,
            run_id=base.run_id,
            agent_id=base.session_id,
            agent_type=base.agent_type,
            step=base.step,
            attempt=base.attempt,
            timestamp=now,
            patches=patches,
        )
        chunks = [chunk.model_dump(mode="json", exclude={"sequence"})]
        return base.model_copy(update={"n": self._next, "time": now, "chunks": chunks})


def create_state_streamer(
    *,
    stream_manager: StreamManager,
    stream_id: str,
    clock: Clock,
    run_id: str,
    turn: int,
    step: int,
    agent_type: str,
    session_id: str | None = None,
    attempt: int = 1,
    writer: str = "state",
) -> CustomStateStreamer:
    """Create a streamer. `session_id` is the agent's own session, by default the stream's root session. `writer`
    distinguishes this streamer from other writers of the step."""
    record = StreamRecord(
        session_id=session_id or stream_id,
        run_id=run_id,
        turn=turn,
        agent_type=agent_type,
        kind="call",
        step=step,
        attempt=attempt,
        call_id=writer,
    )
    return CustomStateStreamer(stream_manager, stream_id, clock, record)


@dataclass(frozen=True, slots=True)
class StateProjection(Generic[ProjectedT]):
    """A projection of the state to the value of interest."""

    project: Callable[[JsonObject], ProjectedT]
    """A pure function from the state's JSON to the projected value."""


def create_state_projection(project: Callable[[JsonObject], ProjectedT]) -> StateProjection[ProjectedT]:
    return StateProjection(project)


class Snapshot(NamedTuple):
    """A committed state and its position on the stream."""

    state: JsonObject
    """The custom state, including every `state_patch` up to and including `sequence`."""
    sequence: int = 0
    """The sequence of the last chunk whose patch is in the state. 0 for the beginning of the stream."""


LoadSnapshot: TypeAlias = Callable[[], Awaitable[Snapshot]]


class StreamProjector(Generic[ProjectedT]):
    """Follows the state of one session, starting at `snapshot`. Patches of other sessions on the stream are ignored.

    `load_snapshot` reloads the state when the stream requires it. Without it, a `StaleStateError` is raised in that
    case.
    """

    def __init__(
        self,
        projection: StateProjection[ProjectedT],
        snapshot: Snapshot,
        *,
        session_id: str,
        load_snapshot: LoadSnapshot | None = None,
    ) -> None:
        self._projection, self._session_id, self._load = projection, session_id, load_snapshot
        self._state, self._sequence = json_copy(snapshot.state), snapshot.sequence
        self._seen = self.value

    @property
    def value(self) -> ProjectedT:
        """The current projected value. The caller may modify it."""
        return self._projection.project(self.state)

    @property
    def state(self) -> JsonObject:
        """A copy of the current state."""
        copy: JsonObject = json_copy(self._state)
        return copy

    async def feed(self, chunk: StreamChunk) -> bool:
        """Process one chunk. Return whether it changed the projected value."""
        if chunk.session_id != self._session_id or 0 < chunk.sequence <= self._sequence:
            return False
        if isinstance(chunk, StatePatchChunk):
            try:
                self._state = apply(self._state, chunk.patches)
            except InvalidInputError as error:
                await self._reload(error)
        elif isinstance(chunk, StreamResyncChunk):
            await self._reload(None)
        else:
            return False
        self._sequence = max(self._sequence, chunk.sequence)
        value = self.value
        if equals_json(value, self._seen):  # type: ignore[arg-type]  # for other types it uses == too
            return False
        self._seen = value
        return True

    async def project(self, stream: AsyncIterable[StreamChunk]) -> AsyncGenerator[ProjectedT, None]:
        """Yield the projected value after each change. Before the first change, read `value`."""
        async with closing_source(stream):
            async for chunk in stream:
                if await self.feed(chunk):
                    yield self.value

    async def _reload(self, cause: Exception | None) -> None:
        if self._load is None:
            raise StaleStateError(
                f"the stream cannot go on with the state of {self._session_id!r}: load it again, or give load_snapshot"
            ) from cause
        snapshot = await self._load()
        self._state, self._sequence = json_copy(snapshot.state), snapshot.sequence
