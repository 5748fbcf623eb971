"""The stream manager for the cloud. Writers put records into Kinesis, `project_stream` admits them to the log, and
readers read the log.

Law: an append is acknowledged once Kinesis has it, in order. Its records are in the log a moment later. So a reader may
lag behind the appended records. `info` returns the state of the log, which excludes records that are still on their way
to it. Each put names the one before it (`SequenceNumberForOrdering`). Without that, Kinesis orders records only by
arrival time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from helix.adapters.aws.calls import call
from helix.adapters.aws.overflow import DAY_S, Overflow
from helix.core.errors import AccessDeniedError, StoreError
from helix.core.log_records import pack
from helix.core.sequencer import StreamRecord
from helix.core.wire import StreamInfo, StreamMessage
from helix.ports.clock import Clock
from helix.ports.state_store import Key
from helix.services.segments import SegmentStreams

TRIES = 3
KNOWN_POSITIONS = 1024


class KinesisStreams:
    """A `StreamManager`. `client` is a boto3 Kinesis client. `overflow` stores records larger than Kinesis accepts;
    without it they are refused with `InvalidInputError`."""

    coalesces: bool = True
    """True, because Kinesis charges for each record."""

    def __init__(
        self, client: Any, stream_name: str, log: SegmentStreams, clock: Clock, *, overflow: Overflow | None = None
    ) -> None:
        self._client, self._stream_name, self._log, self._clock = client, stream_name, log, clock
        self._overflow = overflow
        self._positions: OrderedDict[str, str] = OrderedDict()

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        offload = None if self._overflow is None else self._overflow.writer(Key("streams", stream_id, "records"), DAY_S)
        # One at a time: a batch may accept a later record and refuse an earlier one.
        for data in await asyncio.to_thread(lambda: list(pack(stream_id, records, offload))):
            await self._put(stream_id, data)

    async def read(self, stream_id: str, after: int = 0, limit: int = 1000) -> list[StreamMessage]:
        return await self._log.read(stream_id, after, limit)

    async def wait(self, stream_id: str, after: int, timeout_s: float) -> None:
        await self._log.wait(stream_id, after, timeout_s)

    async def info(self, stream_id: str) -> StreamInfo | None:
        return await self._log.info(stream_id)

    async def delete(self, stream_id: str) -> None:
        await self._log.delete(stream_id)

    async def _put(self, stream_id: str, data: bytes) -> None:
        """Put one record, with retries, so that a flush of several records continues where it stopped. If the retries
        fail, the writer repeats the whole flush, and the sequencer recognizes the records that it already has."""
        what = f"Kinesis put_record on {self._stream_name!r}"
        record: dict[str, Any] = {"StreamName": self._stream_name, "PartitionKey": stream_id, "Data": data}
        for attempt in range(TRIES):
            before = self._positions.get(stream_id)
            order = {"SequenceNumberForOrdering": before} if before else {}
            try:
                # If the stream was recreated, Kinesis does not know the position and refuses it.
                unknown = {"InvalidArgumentException"} if before else set()
                answer = await call(self._client, "put_record", what, unknown, **record, **order)
                if answer is None:
                    answer = await call(self._client, "put_record", what, **record)
                self._remember(stream_id, answer["SequenceNumber"])
                return
            except StoreError as error:
                if attempt + 1 == TRIES or isinstance(error, AccessDeniedError):
                    raise
                await self._clock.sleep(0.05 * 2**attempt)

    def _remember(self, stream_id: str, position: str) -> None:
        """Remember the latest position. The runs of a stream share it, and their puts may return in any order."""
        self._positions[stream_id] = max(position, self._positions.get(stream_id, "0"), key=int)
        self._positions.move_to_end(stream_id)
        if len(self._positions) > KNOWN_POSITIONS:
            self._positions.popitem(last=False)
