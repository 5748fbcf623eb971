"""Connections to a provider are reused, so a later call needs no new one."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import pytest
from tests.support.model_dialects import ANTHROPIC, BEDROCK, OPENAI, Dialect, Says
from tests.support_litellm import request

from helix.adapters.models.adapter import ModelAdapter
from helix.core.steps import ErrorStepResult, TextStepResult


@contextlib.asynccontextmanager
async def provider(dialect: Dialect, *, ends: bool = True) -> AsyncIterator[tuple[str, list[int]]]:
    """Start a provider. Return its address, and the number of calls on each connection. `ends` says whether it marks the
    end of an answer."""
    carried: list[int] = []
    open_ones: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = len(carried)
        carried.append(0)
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {dialect.content_type}\r\ntransfer-encoding: chunked\r\n\r\n"
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                found = re.search(rb"content-length: (\d+)", (await reader.readuntil(b"\r\n\r\n")).lower())
                assert found is not None
                await reader.readexactly(int(found[1]))
                carried[place] += 1
                writer.write(head.encode())
                for part in dialect.say(Says("fine", stop="end_turn")):
                    writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                    await writer.drain()
                if ends:
                    writer.write(b"0\r\n\r\n")
        writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.add(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", carried
    server.close()
    for task in open_ones:
        task.cancel()
    await asyncio.gather(*open_ones)


@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC, BEDROCK], ids=lambda dialect: dialect.name)
async def test_calls_one_after_the_other_share_a_connection(dialect: Dialect) -> None:
    """With Bedrock, the end of a call must not close a connection that was returned to its pool, which may have lent it
    again."""
    adapter = ModelAdapter()
    async with provider(dialect) as (address, carried):
        options = dialect.options(address)
        asked = request(model=dialect.model, adapter="native", provider_options=options, max_retries=0)
        for _ in range(30):
            result = await adapter.generate_step(asked)
            assert isinstance(result, TextStepResult) and result.usage.unknown_calls == 0
        assert carried == [30]
    gone = await adapter.generate_step(asked)  # a connection that the provider closed is not used again
    assert isinstance(gone, ErrorStepResult)
    assert (gone.code, gone.usage.unknown_calls) == ("connection_error", 0)


async def test_an_answer_that_says_done_and_does_not_end_is_an_answer() -> None:
    adapter = ModelAdapter()
    async with provider(OPENAI, ends=False) as (address, carried):
        asked = request(model=OPENAI.model, adapter="native", provider_options=OPENAI.options(address), max_retries=0)
        for _ in range(2):
            result = await asyncio.wait_for(adapter.generate_step(asked), 30)
            assert isinstance(result, TextStepResult) and result.usage.unknown_calls == 0
        assert carried == [1, 1]
