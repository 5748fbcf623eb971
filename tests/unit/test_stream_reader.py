"""A stream reader replays stored messages and then follows live ones: in order, without a gap, and each once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support_streams import STREAM, MemoryStreams, Run

from helix.core.chunks import UnknownChunk
from helix.core.errors import StreamNotFoundError
from helix.core.wire import StreamMessage, is_stream_end
from helix.stream.filters import collect_all, collect_text, filter_by_type
from helix.stream.reader import StreamReader, chunks_of, create_reader, read_stream


def shown(messages: list[StreamMessage]) -> list[Any]:
    return [(m.chunk or {}).get("delta") or (m.chunk or {}).get("type") or m.status for m in messages]


async def recorded(page: int = 1000) -> tuple[MemoryStreams, Run]:
    streams = MemoryStreams(page)
    run = Run(streams)
    await run.start()
    for letter in "abc":
        await run.text(letter)
    await run.commit()
    return streams, run


async def ended(page: int = 1000, status: str = "completed") -> MemoryStreams:
    streams, run = await recorded(page)
    await run.end(status)
    return streams


ALL = ["a", "b", "c", "step_committed", "completed"]


@pytest.mark.parametrize("page", [1, 2, 1000])
@pytest.mark.parametrize("after", range(6))
async def test_replay(page: int, after: int) -> None:
    messages = await collect_all(read_stream(await ended(page), STREAM, from_sequence=after))
    assert shown(messages) == ALL[after:]
    assert [message.sequence for message in messages] == list(range(after + 1, 6))


async def test_replay_then_live() -> None:
    streams, run = await recorded()
    reading = asyncio.create_task(collect_all(read_stream(streams, STREAM, from_sequence=1)))
    await streams.idle()
    await run.text("d", step=2)
    await streams.idle()
    await run.commit(step=2)
    await run.end()
    assert shown(await reading) == ["b", "c", "step_committed", "d", "step_committed", "completed"]


async def test_a_live_reader_reads_once_for_what_comes() -> None:
    streams, run = await recorded()
    reading = asyncio.create_task(collect_all(read_stream(streams, STREAM, from_sequence=3)))
    await streams.idle()
    before = streams.reads
    for letter in "defg":
        await run.text(letter, step=2)
        await streams.idle()
    assert streams.reads - before == 4
    await run.end()
    assert shown(await reading)[1:5] == ["d", "e", "f", "g"]


@pytest.mark.parametrize("status", ["completed", "failed", "paused", "interrupted"])
async def test_each_end_ends_the_reading(status: str) -> None:
    assert shown(await collect_all(read_stream(await ended(status=status), STREAM)))[-1] == status


async def test_a_childs_end_does_not() -> None:
    streams, run = await recorded()
    child = Run(streams, session="child")
    await child.start()
    await child.end("failed")
    await run.text("d", step=2)
    await run.end()
    assert shown(await collect_all(read_stream(streams, STREAM)))[4:] == ["failed", "d", "step_discarded", "completed"]


async def test_the_end_of_an_earlier_run_is_history() -> None:
    streams = await ended()
    second = Run(streams, turn=2)
    await second.start()
    await second.text("x")
    reading = asyncio.create_task(collect_all(read_stream(streams, STREAM)))
    await streams.idle()
    await second.commit()
    await second.end("paused")
    assert shown(await reading) == [*ALL, "x", "step_committed", "paused"]


async def test_until_waits_for_a_run_that_has_not_begun() -> None:
    streams = await ended()
    mine = lambda m: is_stream_end(m) and m.turn == 2 and m.session_id == STREAM  # noqa: E731
    reading = asyncio.create_task(collect_all(read_stream(streams, STREAM, from_sequence=5, until=mine)))
    await streams.idle()
    second = Run(streams, turn=2)
    await second.start()
    await second.text("x")
    await second.end()
    third = Run(streams, turn=3)
    await third.start()
    await third.text("y")
    assert shown(await reading) == ["x", "step_discarded", "completed"]


async def test_until_waits_for_a_stream_that_does_not_exist_yet() -> None:
    streams = MemoryStreams()
    reading = asyncio.create_task(collect_all(read_stream(streams, STREAM, until=is_stream_end)))
    await streams.idle()
    run = Run(streams)
    await run.start()
    await run.end()
    assert shown(await reading) == ["completed"]


async def test_follow_goes_on_after_the_end() -> None:
    streams = await ended()
    reader = await create_reader(streams, STREAM, from_sequence=4, follow=True)
    assert reader is not None
    assert (await anext(reader)).kind == "end"
    more = asyncio.create_task(anext(reader))
    await streams.idle()
    second = Run(streams, turn=2)
    await second.start()
    await second.text("x")
    assert (await more).sequence == 6
    await reader.close()


async def test_no_stream_no_reader() -> None:
    assert await create_reader(MemoryStreams(), "nope") is None
    with pytest.raises(StreamNotFoundError, match="nope"):
        await collect_all(read_stream(MemoryStreams(), "nope"))


async def test_a_stream_deleted_while_read() -> None:
    streams, _ = await recorded()
    for patience in ({}, {"follow": True}):
        reading = asyncio.create_task(collect_all(read_stream(streams, STREAM, **patience)))  # type: ignore[arg-type]
        await streams.idle()
        kept = streams.heads.copy(), streams.logs.copy()
        await streams.delete(STREAM)
        with pytest.raises(StreamNotFoundError):
            await reading
        streams.heads, streams.logs = kept


async def test_a_reader_knows_where_it_is() -> None:
    streams, run = await recorded()
    reader = await create_reader(streams, STREAM, from_sequence=2)
    assert reader is not None
    assert (reader.current_sequence, reader.latest_sequence, reader.total_chunks) == (2, 4, 4)
    await anext(reader)
    assert (reader.current_sequence, reader.latest_sequence, reader.total_chunks) == (3, 4, 4)
    await run.text("d", step=2)
    await run.end()
    rest = [message async for message in reader]
    assert (reader.current_sequence, reader.latest_sequence, reader.total_chunks) == (7, 7, 6)
    assert shown(rest) == ["step_committed", "d", "step_discarded", "completed"]
    resumed = await create_reader(streams, STREAM, from_sequence=reader.current_sequence)
    assert resumed is not None and [message async for message in resumed] == []


async def test_close_ends_a_reading_that_waits() -> None:
    streams, _ = await recorded()
    reader = await create_reader(streams, STREAM, from_sequence=4)
    assert isinstance(reader, StreamReader)
    reading = asyncio.create_task(collect_all(reader.chunks()))
    await streams.idle()
    await reader.close()
    await reader.close()
    assert await reading == []
    with pytest.raises(StopAsyncIteration):
        await anext(reader)


async def test_cancelling_the_consumer_is_not_closing() -> None:
    streams, _ = await recorded()
    reader = await create_reader(streams, STREAM, from_sequence=4)
    assert reader is not None
    reading = asyncio.create_task(collect_all(reader))
    await streams.idle()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_an_expired_beginning_is_said_instead_of_skipped() -> None:
    streams = await ended()
    streams.expire(STREAM, 3)
    messages = await collect_all(read_stream(streams, STREAM, from_sequence=1))
    assert shown(messages) == ["stream_resync", "step_committed", "completed"]
    assert [message.sequence for message in messages] == [3, 4, 5]
    assert messages[0].parsed().sequence == 3


async def test_a_stream_whose_messages_are_all_gone_ends() -> None:
    streams = await ended()
    streams.expire(STREAM, 99)
    messages = await collect_all(read_stream(streams, STREAM))
    assert [(message.sequence, shown([message])[0]) for message in messages] == [(5, "stream_resync")]


async def test_a_gap_that_closes_on_a_second_look_is_none() -> None:
    class Late(MemoryStreams):
        async def read(self, stream_id: str, after: int = 0, limit: int = 1000) -> list[StreamMessage]:
            messages = await super().read(stream_id, after, limit)
            if self.reads == 1:
                del messages[1]
            return messages * 2 if self.reads == 2 else messages

    streams = Late()
    streams.heads, streams.logs = (done := await ended()).heads, done.logs
    assert shown(await collect_all(read_stream(streams, STREAM))) == ALL


async def test_unknown_chunks_pass() -> None:
    streams, run = await recorded()
    await run.put("attempt", {"type": "from_the_future", "x": [1]}, step=2, attempt=1)
    await run.end()
    chunks = await collect_all(filter_by_type(chunks_of(read_stream(streams, STREAM)), ["from_the_future"]))
    assert isinstance(chunks[0], UnknownChunk) and chunks[0].model_extra == {"x": [1]} and chunks[0].sequence == 5


async def test_text_through_reader_and_filter() -> None:
    streams, run = await recorded()
    await run.text("dead", step=2)
    await run.text("alive", step=2, attempt=2)
    await run.commit(step=2, attempt=2)
    await run.end()
    assert await collect_text(chunks_of(read_stream(streams, STREAM))) == "abcalive"


async def test_many_readers_of_a_live_stream_see_the_same() -> None:
    streams, run = await recorded(page=2)
    readings = [asyncio.create_task(collect_all(read_stream(streams, STREAM, from_sequence=n % 5))) for n in range(20)]
    for number in range(30):
        await run.text(str(number), step=2)
        await asyncio.sleep(0)
    await run.end()
    for number, reading in enumerate(readings):
        assert [message.sequence for message in await reading] == list(range(number % 5 + 1, 37))
