"""Stream managers for stages that stream without Kinesis, and for stages that switch to or from Kinesis.

Law: an append is acknowledged once the log has it. So processes with either manager can work side by side, and
alongside processes in the previous mode. Records that were acknowledged to a writer's predecessor are in the log, or at
an earlier position in Kinesis.
"""

from __future__ import annotations

from collections.abc import Sequence

from botocore.exceptions import ClientError

from helix.adapters.aws.kinesis import KinesisStreams
from helix.adapters.system import random_share
from helix.core.errors import StoreError
from helix.core.sequencer import StreamRecord
from helix.services.segments import SegmentStreams

TAKEN_S, LOOK_S = 10.0, 0.05
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.64
GONE = frozenset({"ResourceNotFoundException", "AccessDeniedException", "KMSAccessDeniedException"})


class DirectStreams(SegmentStreams):
    """Streams whose records are appended to the log directly. They require a `clock`. Each append is a write to
    DynamoDB, even one that loses a race. So writers that collide pause for a random time ("full jitter")."""

    coalesces = True
    """True, because DynamoDB charges for each append."""

    async def _conflicted(self, times: int) -> None:
        assert self._clock is not None
        await self._clock.sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**times) * random_share())


class AwaitedStreams(KinesisStreams):
    """Streams that are appended through Kinesis. Each append waits until the log has its records. If the stage no
    longer has a chunk stream, all acknowledged records are in the log already, so these records are appended to the
    log."""

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        try:
            await super().append(stream_id, records)
        except StoreError as error:
            if not _stream_is_gone(error):
                raise
            await self._log.append(stream_id, records)
            return
        until = self._clock.now() + TAKEN_S
        while not await self._log.has(stream_id, records):
            if self._clock.now() > until:
                raise StoreError(f"project_stream has not taken the records of stream {stream_id!r} in {TAKEN_S:g} s")
            await self._clock.sleep(LOOK_S)


def _stream_is_gone(error: StoreError) -> bool:
    cause = error.__cause__
    return isinstance(cause, ClientError) and cause.response["Error"]["Code"] in GONE
