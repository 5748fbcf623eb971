"""The bridge to containers, here between two addresses of loopback."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from helix.infra.bridge import BridgeError, bridge_address, forward_bridge

OURS, NOBODY_S = "127.0.0.2", "203.0.113.1"


async def _shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(100_000):
        writer.write(piece.upper())
        await writer.drain()
    writer.close()


async def test_connections_are_carried_both_ways_until_either_side_hangs_up() -> None:
    server = await asyncio.start_server(_shout, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, forward_bridge(OURS, port) as carried:
        assert carried
        reader, writer = await asyncio.open_connection(OURS, port)
        said = b"a" * 1_000_000
        writer.write(said)
        assert await reader.readexactly(len(said)) == said.upper()
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()


async def test_where_nobody_listens_the_connection_ends() -> None:
    server = await asyncio.start_server(_shout, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    async with forward_bridge(OURS, port):
        reader, writer = await asyncio.open_connection(OURS, port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


async def test_an_address_of_another_machine_carries_nothing() -> None:
    async with forward_bridge(NOBODY_S, 4577) as carried:
        assert not carried


async def test_a_port_that_is_taken_is_said() -> None:
    server = await asyncio.start_server(_shout, OURS, 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(BridgeError, match=f"cannot listen at {OURS}:{port}"):
            async with forward_bridge(OURS, port):
                pass


def test_without_docker_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BridgeError, match="docker is not installed"):
        bridge_address()
