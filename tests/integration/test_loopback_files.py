"""The addresses on this machine for the bytes of files: refusals that a page can read, a slow store, and many addresses."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from helix.adapters.system import SystemIds
from helix.gateway import loopback_files
from helix.gateway.loopback_files import LoopbackFiles
from helix.testing.clocks import ShiftedClock

pytestmark = pytest.mark.timeout(30)
PAGE = "http://localhost:3000"


@asynccontextmanager
async def serving(clock: ShiftedClock | None = None) -> AsyncIterator[LoopbackFiles]:
    files = LoopbackFiles(clock or ShiftedClock(), SystemIds())
    try:
        yield files
    finally:
        await asyncio.to_thread(files.close)


async def ask(url: str, method: str, body: bytes | None = None, origin: str = PAGE) -> tuple[int, str | None, str]:
    """Return the status, the origin that may read the response, and its text."""

    def send() -> tuple[int, str | None, str]:
        with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)) as connection:
            connection.request(method, urlsplit(url).path, body=body, headers={"Origin": origin})
            response = connection.getresponse()
            return response.status, response.getheader("Access-Control-Allow-Origin"), response.read().decode()

    return await asyncio.to_thread(send)


async def keep(data: bytes) -> None:
    assert data == b"abc"


async def read() -> bytes:
    return b"abc"


async def test_a_page_can_read_why_it_is_refused() -> None:
    clock = ShiftedClock()
    async with serving(clock) as files:
        target, source = files.receive_at(keep, 3, 900), files.offer_at(read, "a.txt", 900)
        assert await ask(target.url, "PUT", b"abc") == (200, PAGE, "")
        assert (await ask(target.url, "PUT", b"abcd"))[:2] == (400, PAGE)
        assert (await ask(target.url, "GET"))[:2] == (405, PAGE)
        assert (await ask(source, "PUT", b"abc"))[:2] == (405, PAGE)
        status, origin, text = await ask(files.origin + "/unknown", "GET")
        assert (status, origin) == (403, PAGE) and "ask for a new one" in text
        clock.ahead_s += 901
        assert (await ask(target.url, "PUT", b"abc"))[:2] == (403, PAGE)
        assert (await ask(target.url, "PUT", b"abc", "https://evil.example"))[:2] == (403, None)


async def test_a_store_that_is_too_slow_is_stopped_and_may_be_asked_again(monkeypatch: Any) -> None:
    monkeypatch.setattr(loopback_files, "STORED_S", 0.1)
    stopped = asyncio.Event()

    async def hang(data: bytes) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    async with serving() as files:
        status, origin, text = await ask(files.receive_at(hang, 3, 900).url, "PUT", b"abc")
        assert (status, origin) == (503, PAGE) and "try again" in text
        await asyncio.wait_for(stopped.wait(), 5)


async def test_the_number_of_addresses_has_a_limit(monkeypatch: Any) -> None:
    monkeypatch.setattr(loopback_files, "MAX_ADDRESSES", 3)
    clock = ShiftedClock()
    async with serving(clock) as files:
        urls = [files.offer_at(read, None, 900) for _ in range(5)]
        assert [files.find(url.rpartition("/")[2]) is not None for url in urls] == [False, False, True, True, True]
        clock.ahead_s += 901
        files.offer_at(read, None, 900)
        assert len(files._addresses) == 1
