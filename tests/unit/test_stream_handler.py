"""The HTTP side of a stream: server-sent events that resume after the last one received."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.support_streams import STREAM, HandClock, MemoryStreams, Run

from helix.core.errors import InvalidInputError
from helix.core.wire import StreamMessage
from helix.stream.handler import StreamResponse, create_resumable_stream_handler, extract_resume_position


async def recorded(*, end: str | None = "completed") -> tuple[MemoryStreams, Run]:
    streams = MemoryStreams()
    run = Run(streams)
    await run.start()
    await run.text("a\n\u2028\x85b")
    await run.commit()
    if end:
        await run.end(end)
    return streams, run


async def get(streams: MemoryStreams, resume_at: Any = 0, **options: Any) -> StreamResponse:
    handler = create_resumable_stream_handler(stream_manager=streams, clock=HandClock(), **options)
    return await handler.handle(stream_id=STREAM, resume_at=resume_at)


async def text_of(response: StreamResponse) -> str:
    return b"".join([part async for part in response.body]).decode()


def events(text: str) -> list[dict[str, str]]:
    """Parse events as a browser does. Python has more line ends than SSE, so the data must not contain those."""
    assert text.splitlines() == text.split("\n")[:-1]
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


async def test_events() -> None:
    streams, _ = await recorded()
    response = await get(streams)
    assert response.status == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    got = events(await text_of(response))
    assert [(event["id"], event["event"]) for event in got] == [("1", "chunk"), ("2", "chunk"), ("3", "end")]
    messages = [StreamMessage.model_validate(json.loads(event["data"])) for event in got]
    assert messages == streams.logs[STREAM]


@pytest.mark.parametrize(
    ("resume_at", "ids"), [(0, "123"), (1, "23"), ("2", "3"), (None, "123"), ("junk", "123"), (-4, "123")]
)
async def test_resuming(resume_at: Any, ids: str) -> None:
    streams, _ = await recorded()
    assert [event["id"] for event in events(await text_of(await get(streams, resume_at)))] == list(ids)


@pytest.mark.parametrize("status", ["completed", "failed", "paused", "interrupted"])
@pytest.mark.parametrize("resume_at", [3, 4, 99])
async def test_nothing_more_will_come(status: str, resume_at: int) -> None:
    streams, _ = await recorded(end=status)
    response = await get(streams, resume_at)
    assert response.status == 204 and await text_of(response) == ""


async def test_no_such_stream() -> None:
    response = await get(MemoryStreams())
    assert response.status == 404
    assert json.loads(await text_of(response))["error"]["code"] == "stream_not_found"


async def test_live_events_follow_the_stored_ones() -> None:
    streams, run = await recorded(end=None)
    reading = asyncio.create_task(text_of(await get(streams, 1)))
    await streams.idle()
    await run.text("c", step=2)
    await run.end("failed", error="boom")
    got = events(await reading)
    assert [event["event"] for event in got] == ["chunk", "chunk", "chunk", "fail"]
    assert json.loads(got[-1]["data"])["error"] == "boom"


async def test_a_stream_that_goes_on_after_a_pause_does_not_get_204() -> None:
    streams, _ = await recorded(end="paused")
    second = Run(streams, turn=2)
    await second.start()
    response = await get(streams, 3)
    assert response.status == 200
    await second.end()
    assert [event["event"] for event in events(await text_of(response))] == ["end"]


async def test_an_id_of_another_stream_gets_everything() -> None:
    streams, run = await recorded(end=None)
    response = await get(streams, 500)
    await run.end()
    assert [event["id"] for event in events(await text_of(response))] == ["1", "2", "3"]


async def test_silence_is_broken_by_heartbeats() -> None:
    class Silent(MemoryStreams):
        """A stream whose waits take their full timeout on the hand clock. The fourth wait ends the run."""

        waits = 0

        async def wait(self, stream_id: str, after: int, timeout_s: float) -> None:
            self.waits += 1
            clock.time += timeout_s if self.waits != 2 else 1.0  # a wait may return early
            if self.waits == 4:
                await run.end()

    clock, streams = HandClock(), Silent()
    run = Run(streams)
    await run.start()
    await run.text("a")
    handler = create_resumable_stream_handler(stream_manager=streams, clock=clock, heartbeat_s=20)
    body = (await handler.handle(stream_id=STREAM)).body
    parts = [part.decode() async for part in body]
    assert [part.split("\n")[0] for part in parts] == ["id: 1", *[": heartbeat"] * 3, "id: 2", "id: 3"]
    assert clock.now() == 1000 + 61


async def test_a_deleted_stream_ends_the_body() -> None:
    streams, _ = await recorded(end=None)
    reading = asyncio.create_task(text_of(await get(streams)))
    await streams.idle()
    await streams.delete(STREAM)
    assert len(events(await reading)) == 2


async def test_closing_the_body_stops_the_reading() -> None:
    streams, _ = await recorded(end=None)
    body = (await get(streams)).body
    await anext(body)
    await body.aclose()
    assert [part async for part in body] == []


async def test_heartbeats_need_a_time() -> None:
    with pytest.raises(InvalidInputError, match="heartbeat_s"):
        await get(MemoryStreams(), heartbeat_s=0)


GARBAGE = [
    None,
    "",
    "abc",
    "-1",
    -1,
    "1.5",
    1.5,
    "4_2",
    "+3",
    "٣",
    "²",
    "9" * 5000,
    True,
    [],
    {},
    b"\xff",
    "1\n2",
    object(),
]


@pytest.mark.parametrize(
    ("given", "position"),
    [("42", 42), (" 7 ", 7), (b"8", 8), (42, 42), ("0", 0), ("007", 7), *((garbage, 0) for garbage in GARBAGE)],
)
def test_resume_positions(given: object, position: int) -> None:
    assert extract_resume_position(given) == position
