"""The sockets of API Gateway, over real HTTP, against its management API as it is documented."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.management_api import ManagementApi

from helix.adapters.aws.sockets import ApiGatewaySockets
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
        """It says nothing about the connection."""
        name = await peers.connect()
        peers.answers[name] = 403
        with pytest.raises(StoreError, match="ForbiddenException"):
            await sockets.post(name, b"?")
        with pytest.raises(StoreError, match="ForbiddenException"):
            await sockets.drop(name)


async def test_nobody_listens() -> None:
    with ManagementApi() as api:
        client = api.client(DEADLINE_S)
    sockets = ApiGatewaySockets(client, deadline_s=DEADLINE_S)
    with pytest.raises(StoreError):
        await sockets.post("c", b"?")
    sockets.close()
