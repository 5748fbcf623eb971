"""Reads snapshots: the conversation at a checkpoint, and the matching position in the stream.

Law: the messages of a snapshot plus the chunks after its `sequence` make up the whole session, without duplicates. A
client shows the snapshot first and then follows the stream.
"""

from __future__ import annotations

from typing import Final

from helix.core.chunks import CheckpointCreatedChunk
from helix.core.errors import CheckpointNotFoundError
from helix.core.handles import SessionSnapshot, SessionState
from helix.core.wire import StreamMessage
from helix.ports.streams import StreamManager
from helix.sessions.read import Sessions

TRIES, WAIT_S = 20, 0.25
PAGE: Final = 500
"""The number of messages that are read at once, from the end of the stream."""


async def read_snapshot(
    sessions: Sessions, streams: StreamManager, session_id: str, newest: int | None = None
) -> SessionSnapshot:
    """Return the snapshot at the newest checkpoint on the stream, from the stream of the session's last known run.
    `newest` limits it to that many of the newest messages; by default it has all messages. Raises
    `SessionNotFoundError`."""
    for _ in range(TRIES):
        try:
            return await _read(sessions, streams, session_id, newest)
        except CheckpointNotFoundError:  # deleted in the meantime, or before the stream reached it: a newer one follows
            stream_id = (await sessions.get(session_id)).stream_id
            info = await streams.info(stream_id)
            await streams.wait(stream_id, info.latest_sequence if info is not None else 0, WAIT_S)
    return await _read(sessions, streams, session_id, newest)


async def _read(sessions: Sessions, streams: StreamManager, session_id: str, newest: int | None) -> SessionSnapshot:
    session = await sessions.get(session_id)
    point, place = session.checkpoint_id, 0
    if session.current_run_id:
        place = await _begin(sessions, streams, session)
        if (reported := await _last_checkpoint(streams, session, place)) is not None:
            point, place = reported
    checkpoint = await sessions.get_checkpoint(session_id, point)
    offset = 0 if newest is None else max(0, checkpoint.count - newest)
    return SessionSnapshot(
        session_id=session_id,
        run_id=session.current_run_id,
        status=session.status,
        checkpoint_id=point,
        sequence=place,
        messages=[*await sessions.get_checkpoint_messages(session_id, point, offset=offset)],
        offset=offset,
        custom_state=checkpoint.state or {},
        pending=session.pending,
        inbox=session.inbox,
    )


async def _last_checkpoint(streams: StreamManager, session: SessionState, begin: int) -> tuple[str, int] | None:
    """Return the session's newest checkpoint on the stream after `begin`, with its sequence. A page is read from the end of
    the stream first, because the newest checkpoint is near it."""
    info = await streams.info(session.stream_id)
    end = info.latest_sequence if info is not None else 0
    while end > begin:
        start = max(begin, end - PAGE)
        position, found = start, None
        while position < end and (page := await streams.read(session.stream_id, position, end - position)):
            position = page[-1].sequence
            found = next((seen for message in reversed(page) if (seen := _checkpoint_of(message, session))), found)
        if found is not None:
            return found
        end = start
    return None


def _checkpoint_of(message: StreamMessage, session: SessionState) -> tuple[str, int] | None:
    if message.session_id != session.session_id or (message.chunk or {}).get("type") != "checkpoint_created":
        return None
    chunk = message.parsed()
    return (chunk.checkpoint_id, message.sequence) if isinstance(chunk, CheckpointCreatedChunk) else None


async def _begin(sessions: Sessions, streams: StreamManager, session: SessionState) -> int:
    """Return a sequence after which the stream contains the session's last run. If the log lags behind the rows, the
    sequence that the claim saw may be too early, and the last run on the stream may be the previous one."""
    if session.stream_id == session.session_id:
        info = await streams.info(session.stream_id)
        return info.began if info is not None else 0
    return (await sessions.get_run(session.session_id, session.current_run_id)).start_sequence
