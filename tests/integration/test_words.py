"""A model's text reaches its reader as soon as it is streamed, whatever the model leaves to the event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support_run import World, agent

from helix import LocalExecutor, MemoryStateStore
from helix.core.steps import AnyStepResult, TextStepResult
from helix.core.wire import StreamMessage
from helix.ports.model import LLMGenerateInput
from helix.services.segments import SegmentStreams
from helix.stream.reader import create_reader

PLENTY = 20_000


class Talker:
    """A model that never yields to the event loop, and stops once its reader has received something."""

    def __init__(self, awaits: bool = True) -> None:
        self.awaits, self.said, self.heard = awaits, 0, 0

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        assert request.callbacks.on_text_delta is not None and request.callbacks.on_thinking is not None
        waiting: Any = request.callbacks.on_thinking("Hm.", False)
        while not self.heard and self.said < PLENTY:
            if waiting is not None and self.awaits:
                await waiting
            waiting = request.callbacks.on_text_delta("word ")
            self.said += 1
        return TextStepResult(content="word " * self.said)


@pytest.mark.parametrize("by", ["handle", "reader"])
async def test_a_reader_hears_a_model_that_never_yields(world: World, by: str) -> None:
    model = Talker()
    executor = world.executor(model)
    handle = await executor.execute(agent(), "go")
    messages: Any = await handle.messages()
    if by == "reader":
        messages = await create_reader(executor.streams, handle.session_id)
    async with asyncio.timeout(60):
        async for message in messages:
            model.heard += message.kind == "chunk" and message.chunk["type"] == "text_delta"
    assert model.heard == model.said < PLENTY
    assert (await handle.result()).output == "word " * model.said


async def test_a_model_need_not_wait_for_its_words(quick_world: World) -> None:
    model = Talker(awaits=False)
    handle = await quick_world.executor(model).execute(agent(), "go")
    async with asyncio.timeout(60):
        found = [m.sequence async for m in await handle.messages() if m.chunk and m.chunk["type"] == "text_delta"]
    assert len(found) == model.said == PLENTY
    assert found == list(range(found[0], found[0] + PLENTY))


class Conversation:
    """A model that sends the next word when the reader has the previous one."""

    def __init__(self, words: int) -> None:
        self.words, self.heard = words, asyncio.Semaphore(0)

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        assert request.callbacks.on_text_delta is not None
        for _ in range(self.words):
            waiting = request.callbacks.on_text_delta("word ")
            if waiting is not None:
                await waiting
            await self.heard.acquire()
        return TextStepResult(content="word " * self.words)


class CountedReads(SegmentStreams):
    reads = 0

    async def read(self, stream_id: str, after: int = 0, limit: int = 1000) -> list[StreamMessage]:
        self.reads += 1
        return await super().read(stream_id, after, limit)


async def test_a_handle_reads_once_for_each_word() -> None:
    store, model = MemoryStateStore(), Conversation(50)
    streams = CountedReads(store)
    async with LocalExecutor(store, model=model, streams=streams) as executor, asyncio.timeout(60):
        handle = await executor.execute(agent(), "go")
        async for message in await handle.messages():
            if message.chunk and message.chunk["type"] == "text_delta":
                model.heard.release()
    assert model.words < streams.reads < model.words + 10
