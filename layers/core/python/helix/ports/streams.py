"""The stream of a root session: an ordered, replayable log of chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from helix.core.sequencer import StreamRecord
from helix.core.wire import StreamInfo, StreamMessage


class StreamManager(Protocol):
    """A log that charges for each append says `coalesces = True`: writers then collect chunks for up to 125 ms. Others get
    words at once."""

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        """Hand records to the log as one entry and return once it is durable. The stream is made by its first record.

        A worker has one append in flight, in order. Appending the same records again (a lost answer) is harmless: the
        sequencer drops them by their numbers, as it drops records of dead attempts and superseded runs.
        Raises `StoreError` when the log could not be reached; append the same records again then.
        """
        ...

    async def read(self, stream_id: str, after: int = 0, limit: int = 1000) -> list[StreamMessage]:
        """Messages with `sequence > after`, dense and ascending, at most about `limit`; empty at the end of the log."""
        ...

    async def wait(self, stream_id: str, after: int, timeout_s: float) -> None:
        """Return when messages after `after` may be there, or after `timeout_s` seconds. May return early."""
        ...

    async def info(self, stream_id: str) -> StreamInfo | None:
        """None if the stream does not exist. It is there from the claim of its root session's first run on: until the first
        message comes, `latest_sequence` is 0."""
        ...

    async def delete(self, stream_id: str) -> None:
        """Remove the whole stream; idempotent."""
        ...
