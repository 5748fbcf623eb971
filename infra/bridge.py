"""A forwarder from a port on the container bridge to the same port on loopback, so that containers can reach it.

Law: it listens only at the bridge's address, and only while the `async with` block runs. Other machines cannot connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network

LOOPBACK = "127.0.0.1"
PIECE = 64 * 1024
_ADDRESS = "{{with index .IPAM.Config 0}}{{.Gateway}} {{.Subnet}}{{end}}"


class BridgeError(RuntimeError):
    """The bridge cannot be used. The message says what is missing."""


def bridge_address() -> str:
    """Return this machine's address on Docker's default bridge, such as 172.17.0.1. Raises `BridgeError`."""
    command = ["docker", "network", "inspect", "bridge", "--format", _ADDRESS]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise BridgeError("docker is not installed, and `sam local` needs it") from None
    if done.returncode or not done.stdout.strip():
        raise BridgeError(f"the Docker engine does not answer: {done.stderr.strip() or 'it has no bridge'}")
    *gateway, subnet = done.stdout.split()
    # A restarted engine may list only the subnet. The gateway is the first address in it.
    return gateway[0] if gateway else str(ip_network(subnet)[1])


@asynccontextmanager
async def forward_bridge(address: str, port: int) -> AsyncIterator[bool]:
    """Forward connections at `address`:`port` to loopback's `port`. Yields False without forwarding if the bridge is not on
    this machine, as with Docker Desktop, whose containers can reach loopback directly. Raises `BridgeError`."""
    try:
        server = await asyncio.start_server(
            lambda reader, writer: _forward_connection(reader, writer, port), address, port
        )
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise BridgeError(f"cannot listen at {address}:{port}: {error.strerror}") from error
        yield False
        return
    try:
        yield True
    finally:
        server.close()


async def _forward_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    try:
        inner_reader, inner_writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_copy_bytes(reader, inner_writer), _copy_bytes(inner_reader, writer))


async def _copy_bytes(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy bytes until the source ends, or either side hangs up."""
    with contextlib.suppress(ConnectionError):
        while piece := await source.read(PIECE):
            target.write(piece)
            await target.drain()
    with contextlib.suppress(ConnectionError):
        target.close()
        await target.wait_closed()
