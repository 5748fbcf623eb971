"""Small functions over chunk streams: filter, combine, slice and collect.

Law: each function preserves the order of chunks, and reads from its source only on demand. It closes the source when it
ends or is closed. (If you leave a loop early, `async with contextlib.aclosing(...)` closes it immediately.)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from helix.core.chunks import StepCommittedChunk, StepDiscardedChunk, StreamChunk, TextDeltaChunk
from helix.core.errors import InvalidInputError

T = TypeVar("T")


def filter_by_agent_id(stream: AsyncIterable[StreamChunk], agent_id: str) -> AsyncGenerator[StreamChunk, None]:
    """Yield the chunks of one session. The agent id is the session id of the agent that emits the chunk."""
    return filter_with(stream, lambda chunk: chunk.agent_id == agent_id)


def filter_by_agent_type(stream: AsyncIterable[StreamChunk], agent_type: str) -> AsyncGenerator[StreamChunk, None]:
    return filter_with(stream, lambda chunk: chunk.agent_type == agent_type)


def filter_by_type(stream: AsyncIterable[StreamChunk], types: Collection[str]) -> AsyncGenerator[StreamChunk, None]:
    """Yield the chunks whose `type` is in `types`, which may include unknown types."""
    wanted = _types(types)
    return filter_with(stream, lambda chunk: chunk.type in wanted)


def exclude_types(stream: AsyncIterable[StreamChunk], types: Collection[str]) -> AsyncGenerator[StreamChunk, None]:
    unwanted = _types(types)
    return filter_with(stream, lambda chunk: chunk.type not in unwanted)


async def filter_with(stream: AsyncIterable[T], predicate: Callable[[T], bool]) -> AsyncGenerator[T, None]:
    async with closing_source(stream):
        async for item in stream:
            if predicate(item):
                yield item


def take(stream: AsyncIterable[T], n: int) -> AsyncGenerator[T, None]:
    """Yield the first `n` items, and read no further."""
    return _take(stream, _count(n))


def skip(stream: AsyncIterable[T], n: int) -> AsyncGenerator[T, None]:
    """Yield all items except the first `n`."""
    return _skip(stream, _count(n))


async def combine_streams(*streams: AsyncIterable[T]) -> AsyncGenerator[T, None]:
    """Yield the items of all streams in order of arrival, until all have ended. If one fails, the others are cancelled
    and its error is raised."""
    arrived: asyncio.Queue[T | _Ended] = asyncio.Queue()
    room = asyncio.Semaphore(len(streams) or 1)

    async def pump(stream: AsyncIterable[T]) -> None:
        async with closing_source(stream):
            async for item in stream:
                await room.acquire()
                arrived.put_nowait(item)

    tasks = [asyncio.create_task(pump(stream)) for stream in streams]
    for task in tasks:
        task.add_done_callback(lambda task: arrived.put_nowait(_Ended(task)))
    try:
        running = len(tasks)
        while running:
            item = await arrived.get()
            if isinstance(item, _Ended):
                item.task.result()
                running -= 1
            else:
                room.release()
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def collect_text(stream: AsyncIterable[StreamChunk], agent_id: str | None = None) -> str:
    """Return all text except what a `step_discarded` retracted. Without `agent_id`, the result includes the text of
    sub-agents."""
    texts: list[str] = []
    provisional: dict[tuple[str, int, int], list[int]] = {}
    async with closing_source(stream):
        async for chunk in stream:
            attempt = (chunk.session_id or chunk.agent_id, chunk.step, chunk.attempt)
            if isinstance(chunk, TextDeltaChunk) and agent_id in (None, chunk.agent_id):
                provisional.setdefault(attempt, []).append(len(texts))
                texts.append(chunk.delta)
            elif isinstance(chunk, StepCommittedChunk):
                provisional.pop(attempt, None)
            elif isinstance(chunk, StepDiscardedChunk):
                for index in provisional.pop(attempt, []):
                    texts[index] = ""
    return "".join(texts)


async def collect_all(stream: AsyncIterable[T]) -> list[T]:
    async with closing_source(stream):
        return [item async for item in stream]


class _Ended:
    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task


async def _take(stream: AsyncIterable[T], n: int) -> AsyncGenerator[T, None]:
    async with closing_source(stream):
        if n == 0:
            return
        async for item in stream:
            yield item
            n -= 1
            if n == 0:
                return


async def _skip(stream: AsyncIterable[T], n: int) -> AsyncGenerator[T, None]:
    async with closing_source(stream):
        async for item in stream:
            if n > 0:
                n -= 1
            else:
                yield item


@asynccontextmanager
async def closing_source(stream: Any) -> AsyncGenerator[None, None]:
    """Close the source afterwards if it can be closed: a generator can, an iterable that creates generators cannot."""
    try:
        yield
    finally:
        aclose = getattr(stream, "aclose", None)
        if aclose is not None:
            await aclose()


def _types(types: Collection[str]) -> frozenset[str]:
    if isinstance(types, str):
        raise InvalidInputError(f"types is {types!r}: give a list of chunk types")
    return frozenset(types)


def _count(n: int) -> int:
    if n < 0:
        raise InvalidInputError(f"n is {n}: it must be 0 or more")
    return n
