"""Run the API Gateway sockets over real HTTP against its management API as AWS documents it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from tests.support.management_api import ManagementApi

from helix.adapters.aws.sockets import AT_ONCE, ApiGatewaySockets
from helix.core.errors import StoreError
from helix.testing.contracts import SocketsContract

DEADLINE_S = 1.5


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Iterator[ManagementApi]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ManagementApi() as api:
        yield api


@pytest.fixture
def sockets(peers: ManagementApi) -> Iterator[ApiGatewaySockets]:
    made = ApiGatewaySockets(peers.client(DEADLINE_S), deadline_s=DEADLINE_S)
    yield made
    made.close()


class TestManagementApi(SocketsContract):
    @pytest.mark.parametrize("status", [429, 504])
    async def test_who_is_asked_too_often_is_slow(
        self, sockets: ApiGatewaySockets, peers: ManagementApi, status: int
    ) -> None:
        name = await peers.connect()
        peers.answers[name] = status
        assert await sockets.post(name, b"?") == "slow"

    async def test_a_refusal_of_the_caller_is_named(self, sockets: ApiGatewaySockets, peers: ManagementApi) -> None:
        """A 403 is an error of the caller and tells nothing about the connection."""
        name = await peers.connect()
        peers.answers[name] = 403
        with pytest.raises(StoreError, match="ForbiddenException"):
            await sockets.post(name, b"?")
        with pytest.raises(StoreError, match="ForbiddenException"):
            await sockets.drop(name)


class Stuck:
    """A client of the management API whose posts to the connection `stuck` hang."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def post_to_connection(self, ConnectionId: str, Data: bytes) -> None:
        if ConnectionId == "stuck":
            self.ended.wait(60)

    def close(self) -> None:
        self.ended.set()


async def test_posts_that_were_given_up_early_leave_threads_for_others() -> None:
    """`project_stream` waits for a socket for less time than the post's own deadline."""
    client = Stuck()
    sockets = ApiGatewaySockets(client, deadline_s=60)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await sockets.post("stuck", b"?")

    for _ in range(2):
        await asyncio.gather(*(give_up() for _ in range(AT_ONCE)))
    async with asyncio.timeout(10):
        assert await sockets.post("quick", b"?") == "sent"
    client.close()
    sockets.close()


async def test_nobody_listens() -> None:
    with ManagementApi() as api:
        client = api.client(DEADLINE_S)
    sockets = ApiGatewaySockets(client, deadline_s=DEADLINE_S)
    with pytest.raises(StoreError):
        await sockets.post("c", b"?")
    sockets.close()
