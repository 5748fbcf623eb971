"""Puts of one stream name the put before them, so Kinesis keeps their order."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from helix import MemoryStateStore
from helix.adapters.aws import kinesis
from helix.adapters.aws.kinesis import KinesisStreams
from helix.adapters.system import SystemClock
from helix.services.segments import SegmentStreams
from helix.testing.contracts.streams import started, text

pytestmark = pytest.mark.asyncio


class Client:
    """A client that answers with growing positions. Puts raise `faults` in turn. `known` is the first position that it
    accepts."""

    def __init__(self) -> None:
        self.puts: list[dict[str, Any]] = []
        self.faults: list[Exception] = []
        self.known = 0

    def put_record(self, **request: Any) -> dict[str, Any]:
        self.puts.append(request)
        if self.faults:
            raise self.faults.pop(0)
        if int(request.get("SequenceNumberForOrdering", self.known)) < self.known:
            raise ClientError({"Error": {"Code": "InvalidArgumentException", "Message": "no such"}}, "PutRecord")
        return {"SequenceNumber": str(10**55 + len(self.puts))}

    @property
    def order(self) -> list[str | None]:
        return [put.get("SequenceNumberForOrdering") for put in self.puts]


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def streams(client: Client) -> KinesisStreams:
    return KinesisStreams(client, "chunks", SegmentStreams(MemoryStateStore()), SystemClock())


def position(n: int) -> str:
    return str(10**55 + n)


async def test_each_put_names_the_one_before_it(client: Client, streams: KinesisStreams) -> None:
    for stream in ("ses_1", "ses_1", "ses_2", "ses_1"):
        await streams.append(stream, [started()])
    assert client.order == [None, position(1), None, position(2)]


async def test_a_put_that_is_repeated_names_the_same(client: Client, streams: KinesisStreams) -> None:
    """The response to the first try was lost, so its position is unknown. The next put still names the last known
    position."""
    await streams.append("ses_1", [started()])
    client.faults = [ReadTimeoutError(endpoint_url="https://kinesis")]
    await streams.append("ses_1", [text(0, "a")])
    await streams.append("ses_1", [text(1, "b")])
    assert client.order == [None, position(1), position(1), position(3)]


async def test_a_position_of_an_earlier_stream_is_forgotten(client: Client, streams: KinesisStreams) -> None:
    await streams.append("ses_1", [started()])
    client.known = 10**55 + 2
    await streams.append("ses_1", [text(0, "a")])
    await streams.append("ses_1", [text(1, "b")])
    assert client.order == [None, position(1), None, position(3)]


async def test_few_positions_are_kept(client: Client, streams: KinesisStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinesis, "KNOWN_POSITIONS", 2)
    for stream in ("ses_1", "ses_2", "ses_3", "ses_3", "ses_1"):
        await streams.append(stream, [started()])
    assert client.order == [None, None, None, position(3), None]
