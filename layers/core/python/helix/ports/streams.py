"""The stream of a root session: an ordered, replayable log of chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from helix.core.sequencer import StreamRecord
from helix.core.wire import StreamInfo, StreamMessage


class StreamManager(Protocol):
    """The log of all streams."""

    coalesces: bool
    """Whether the log charges for each append. Writers then batch chunks for up to 125 ms. They send text to other logs
    immediately."""

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        """Append records to the log as one entry, and return once it is durable. The first record of a stream creates
        the stream.

        A worker has only one append in flight, so its records stay in order. Appending the same records again, after a
        lost response, is harmless: the sequencer drops duplicates by number, as it drops records of dead attempts and
        superseded runs. Raises `StoreError` if the log could not be reached; append the same records again in that
        case.
        """
        ...

    async def read(self, stream_id: str, after: int = 0, limit: int = 1000) -> list[StreamMessage]:
        """Return at most about `limit` messages with `sequence > after`, in ascending order without gaps. Empty at the
        end of the log."""
        ...

    async def wait(self, stream_id: str, after: int, timeout_s: float) -> None:
        """Wait until messages after `after` may exist, or until `timeout_s` seconds have passed. May return early."""
        ...

    async def info(self, stream_id: str) -> StreamInfo | None:
        """Return the state of the stream, or None if it does not exist. A stream exists from the claim of its root
        session's first run. Until the first message arrives, `latest_sequence` is 0."""
        ...

    async def delete(self, stream_id: str) -> None:
        """Remove the whole stream. Idempotent."""
        ...
