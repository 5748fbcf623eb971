"""Filters of chunk streams keep the order, close their sources and read only as much as requested."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from helix.core.chunks import (
    StepCommittedChunk,
    StepDiscardedChunk,
    StreamChunk,
    TextDeltaChunk,
    ToolStartChunk,
    parse_chunk,
)
from helix.core.errors import InvalidInputError
from helix.stream.filters import (
    collect_all,
    collect_text,
    combine_streams,
    exclude_types,
    filter_by_agent_id,
    filter_by_agent_type,
    filter_by_type,
    filter_with,
    skip,
    take,
)


def text(delta: str, session: str = "s", step: int = 1, attempt: int = 1, agent_type: str = "t") -> StreamChunk:
    where: Any = {
        "session_id": session,
        "agent_id": session,
        "step": step,
        "attempt": attempt,
        "agent_type": agent_type,
    }
    return TextDeltaChunk(delta=delta, **where)


CHUNKS: list[StreamChunk] = [
    text("a"),
    text("b", session="child", agent_type="u"),
    ToolStartChunk(tool_call_id="c", tool_name="n", session_id="s", agent_id="s", agent_type="t"),
    parse_chunk({"type": "from_the_future", "session_id": "s", "agent_id": "s", "agent_type": "t", "x": 1}),
    text("c"),
]


class Source:
    """A source that counts its reads and records whether it was closed."""

    def __init__(self, chunks: list[Any] = CHUNKS) -> None:
        self.read, self.closed, self.chunks = 0, False, chunks
        self.stream = self._run()

    async def _run(self) -> Any:
        try:
            for chunk in self.chunks:
                self.read += 1
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
        finally:
            self.closed = True


@pytest.mark.parametrize(
    ("filtered", "kept"),
    [
        (lambda s: filter_by_agent_id(s, "s"), [0, 2, 3, 4]),
        (lambda s: filter_by_agent_type(s, "u"), [1]),
        (lambda s: filter_by_type(s, ["text_delta"]), [0, 1, 4]),
        (lambda s: filter_by_type(s, {"from_the_future", "tool_start"}), [2, 3]),
        (lambda s: filter_by_type(s, []), []),
        (lambda s: exclude_types(s, ["text_delta"]), [2, 3]),
        (lambda s: filter_with(s, lambda chunk: chunk.type == "tool_start"), [2]),
        (lambda s: take(s, 2), [0, 1]),
        (lambda s: take(s, 0), []),
        (lambda s: take(s, 99), [0, 1, 2, 3, 4]),
        (lambda s: skip(s, 3), [3, 4]),
        (lambda s: skip(s, 99), []),
        (lambda s: combine_streams(s), [0, 1, 2, 3, 4]),
    ],
)
async def test_what_each_keeps(filtered: Any, kept: list[int]) -> None:
    source = Source()
    assert await collect_all(filtered(source.stream)) == [CHUNKS[index] for index in kept]
    assert source.closed or source.read == 0


@pytest.mark.parametrize(
    "filtered",
    [
        lambda s: filter_by_agent_id(s, "s"),
        lambda s: filter_by_type(s, ["text_delta"]),
        lambda s: exclude_types(s, []),
        lambda s: take(s, 3),
        lambda s: skip(s, 0),
        lambda s: combine_streams(s),
        lambda s: take(filter_with(skip(s, 0), lambda chunk: True), 4),
    ],
)
async def test_a_reader_that_stops_closes_the_source(filtered: Any) -> None:
    source = Source()
    async with aclosing(filtered(source.stream)) as stream:
        async for _ in stream:
            break
    assert source.closed and source.read <= 2


async def test_take_reads_no_more_than_it_gives() -> None:
    source = Source()
    assert len(await collect_all(take(source.stream, 2))) == 2
    assert source.read == 2 and source.closed


@pytest.mark.parametrize("n", [-1, -5])
def test_counts_are_not_negative(n: int) -> None:
    for cut in (take, skip):
        with pytest.raises(InvalidInputError, match="n is"):
            cut(Source().stream, n)


def test_types_are_a_list() -> None:
    with pytest.raises(InvalidInputError, match="list of chunk types"):
        filter_by_type(Source().stream, "text_delta")


async def test_an_iterable_without_aclose_will_do() -> None:
    class Numbers:
        def __aiter__(self) -> AsyncIterator[int]:
            return Source([1, 2, 3]).stream

    assert await collect_all(skip(Numbers(), 1)) == [2, 3]


# --- combine ---------------------------------------------------------------------------------------------------------


async def gated(name: str, gates: list[asyncio.Event]) -> Any:
    for number, gate in enumerate(gates):
        await gate.wait()
        yield f"{name}{number}"


async def test_combine_interleaves_by_arrival() -> None:
    a, b = [asyncio.Event(), asyncio.Event()], [asyncio.Event(), asyncio.Event()]
    got = []
    async with aclosing(combine_streams(gated("a", a), gated("b", b))) as stream:
        for gate in (b[0], a[0], a[1], b[1]):
            gate.set()
            got.append(await anext(stream))
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    assert got == ["b0", "a0", "a1", "b1"]


async def test_combine_of_nothing_is_empty() -> None:
    assert await collect_all(combine_streams()) == []


async def test_an_error_in_one_is_raised_after_the_rest_is_cancelled() -> None:
    closed = asyncio.Event()

    async def endless() -> Any:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.set()

    got: list[Any] = []
    with pytest.raises(LookupError, match="boom"):
        async for item in combine_streams(endless(), Source([2, LookupError("boom")]).stream):
            got.append(item)
    assert sorted(got) == [1, 2]
    assert closed.is_set()


async def test_a_cancelled_source_does_not_hang_the_rest() -> None:
    async def cancelled() -> Any:
        raise asyncio.CancelledError
        yield

    with pytest.raises(asyncio.CancelledError):
        await collect_all(combine_streams(cancelled(), gated("a", [asyncio.Event()])))


async def test_a_combined_stream_that_is_cancelled_leaves_no_task() -> None:
    reading = asyncio.Event()

    async def silent() -> Any:
        reading.set()
        await asyncio.Event().wait()
        yield

    async def read() -> None:
        await collect_all(combine_streams(gated("a", [asyncio.Event()]), silent()))

    task = asyncio.create_task(read())
    await reading.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_combine_does_not_run_ahead() -> None:
    sources = [Source(list(range(100))), Source(list(range(100)))]
    async with aclosing(combine_streams(*(source.stream for source in sources))) as stream:
        for _ in range(10):
            await anext(stream)
    assert sum(source.read for source in sources) <= 16


# --- text ------------------------------------------------------------------------------------------------------------


def mark(cls: Any, step: int = 1, attempt: int = 1, session: str = "s") -> StreamChunk:
    made: StreamChunk = cls(session_id=session, agent_id=session, step=step, attempt=attempt)
    return made


async def test_text_of_one_agent_or_all() -> None:
    assert await collect_text(Source().stream) == "abc"
    assert await collect_text(Source().stream, "s") == "ac"
    assert await collect_text(Source().stream, "child") == "b"


async def test_discarded_text_is_not_the_answer() -> None:
    chunks = [
        text("wrong "),
        text("[child] ", session="child"),
        mark(StepDiscardedChunk),
        text("right", attempt=2),
        mark(StepDiscardedChunk, attempt=9),
        text("!", attempt=2),
        mark(StepCommittedChunk, attempt=2),
    ]
    assert await collect_text(Source(chunks).stream, "s") == "right!"
    assert await collect_text(Source(chunks).stream) == "[child] right!"


async def test_a_later_run_does_not_take_back_what_was_committed() -> None:
    """A later run may use the same numbers of steps and attempts again."""
    chunks = [text("kept "), mark(StepCommittedChunk), text("dead"), mark(StepDiscardedChunk)]
    assert await collect_text(Source(chunks).stream) == "kept "


async def test_a_childs_discard_is_its_own() -> None:
    chunks = [text("mine"), text("its", session="child"), mark(StepDiscardedChunk, session="child")]
    assert await collect_text(Source(chunks).stream) == "mine"
