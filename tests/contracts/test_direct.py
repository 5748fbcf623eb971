"""Run the stream contract on moto without Kinesis, and with both ways during a migration."""

from __future__ import annotations

import asyncio

import pytest
from tests.contracts.segments import SegmentLogContract
from tests.integration.test_streaming_switch import Stage
from tests.support.aws_resources import CLOCK

from helix.adapters.aws.direct import DirectStreams
from helix.adapters.aws.dynamodb import DynamoDBStateStore
from helix.ports.streams import StreamManager
from helix.services.segments import SegmentStreams
from helix.testing.contracts import StreamManagerContract
from helix.testing.contracts.streams import S, committed, everything, started, text

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class TestDirect(StreamManagerContract):
    @pytest.fixture
    def streams(self, store: DynamoDBStateStore) -> DirectStreams:
        return DirectStreams(store, clock=CLOCK)

    @pytest.fixture
    def other(self, store: DynamoDBStateStore) -> DirectStreams:
        return DirectStreams(store, clock=CLOCK)

    async def test_forty_tools_append_at_once(self, store: DynamoDBStateStore) -> None:
        """Each tool runs in a function of its own. All its records arrive complete, and the sequences are dense."""
        await DirectStreams(store, clock=CLOCK).append(S, [started()])

        async def tool(n: int) -> None:
            streams = DirectStreams(store, clock=CLOCK)
            for part in range(2):
                given = text(part, f"{n}.{part}").model_copy(
                    update={"kind": "call", "call_id": f"c{n}", "mark": "committed" if part else None}
                )
                await streams.append(S, [given])

        await asyncio.gather(*(tool(n) for n in range(40)))
        found = [str(m.chunk["delta"]) for m in await everything(DirectStreams(store, clock=CLOCK)) if m.chunk]
        assert sorted(found) == sorted(f"{n}.{part}" for n in range(40) for part in range(2))
        assert all(found.index(f"{n}.0") < found.index(f"{n}.1") for n in range(40))

    async def test_a_cold_process_goes_on_where_another_stopped(self, store: DynamoDBStateStore) -> None:
        """After a worker died in mid-attempt, readers learn that its text was discarded."""
        await DirectStreams(store, clock=CLOCK).append(S, [started(), text(0, "half of")])
        await DirectStreams(store, clock=CLOCK).append(S, [text(0, "all of it", attempt=2), committed(1, attempt=2)])
        found = await everything(DirectStreams(store, clock=CLOCK))
        assert [m.chunk["type"] for m in found if m.chunk] == [
            "text_delta",
            "step_discarded",
            "text_delta",
            "step_committed",
        ]


class TestDirectLog(SegmentLogContract):
    @pytest.fixture
    def log(self, store: DynamoDBStateStore) -> SegmentStreams:
        return DirectStreams(store, clock=CLOCK)

    @pytest.fixture
    def other(self, store: DynamoDBStateStore) -> SegmentStreams:
        return DirectStreams(store, clock=CLOCK)


class TestBoth(StreamManagerContract):
    """Acknowledged records are in the log although Kinesis delivers late. The stores are in memory."""

    @pytest.fixture
    def stage(self) -> Stage:
        return Stage()

    @pytest.fixture
    def streams(self, stage: Stage) -> StreamManager:
        return stage.process("both")

    @pytest.fixture
    def other(self, stage: Stage) -> StreamManager:
        return stage.process("both")
