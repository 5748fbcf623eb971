"""Run every AWS adapter over real HTTP on MiniStack. `test_dynamodb.py` and `test_kinesis.py` run the contracts on moto.
Each emulator is lenient in other ways."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.contracts.budgets import BudgetsContract
from tests.contracts.segments import SegmentLogContract
from tests.contracts.slots import SlotsContract
from tests.support.aws_resources import (
    BUCKET,
    CHUNKS,
    Pump,
    PumpedStreams,
    fresh,
    make_projector,
    make_store,
    make_tables,
)
from tests.support.aws_servers import MiniStack
from tests.support.ministack_sockets import SocketApi

from helix.adapters.aws.dynamodb import DynamoDBStateStore
from helix.adapters.aws.sockets import ApiGatewaySockets
from helix.ports.sockets import Sockets
from helix.services.row_budgets import RowBudgets
from helix.services.row_slots import RowSlots
from helix.services.segments import SegmentStreams
from helix.testing.contracts import SocketsContract, StateStoreContract, StreamManagerContract
from helix.testing.contracts.sockets import Peers

pytestmark = pytest.mark.slow  # the same contracts run on moto in `make test`


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniStack]:
    with MiniStack(tmp_path_factory.mktemp("ministack")) as made:
        yield made


@pytest.fixture(scope="module")
def clients(server: MiniStack) -> dict[str, Any]:
    made = {name: server.client(name) for name in ("dynamodb", "s3", "kinesis")}
    made["s3"].create_bucket(Bucket=BUCKET)
    return made


@pytest.fixture
def prefix(clients: dict[str, Any]) -> str:
    """The name prefix of tables that no other test uses."""
    found = fresh()
    make_tables(clients["dynamodb"], found)
    return found


@pytest.fixture
def store(clients: dict[str, Any], prefix: str) -> DynamoDBStateStore:
    return make_store(clients["dynamodb"], clients["s3"], prefix)


@pytest.fixture
def second(clients: dict[str, Any], prefix: str) -> DynamoDBStateStore:
    return make_store(clients["dynamodb"], clients["s3"], prefix)


class TestStore(StateStoreContract):
    purges = False

    @pytest.fixture
    def other(self, second: DynamoDBStateStore) -> DynamoDBStateStore:
        return second


class TestStreams(StreamManagerContract):
    @pytest.fixture
    def pump(self, clients: dict[str, Any], prefix: str, store: DynamoDBStateStore, second: DynamoDBStateStore) -> Pump:
        chunks = f"{CHUNKS}-{prefix}"
        clients["kinesis"].create_stream(StreamName=chunks, ShardCount=2)
        clients["kinesis"].get_waiter("stream_exists").wait(StreamName=chunks, WaiterConfig={"Delay": 1})
        return Pump(clients["kinesis"], [make_projector(store), make_projector(second)], chunks)

    @pytest.fixture
    def streams(self, clients: dict[str, Any], store: DynamoDBStateStore, pump: Pump) -> PumpedStreams:
        return PumpedStreams(pump, clients["kinesis"], SegmentStreams(store))

    @pytest.fixture
    def other(self, clients: dict[str, Any], second: DynamoDBStateStore, pump: Pump) -> PumpedStreams:
        return PumpedStreams(pump, clients["kinesis"], SegmentStreams(second))


class TestLog(SegmentLogContract):
    @pytest.fixture
    def log(self, store: DynamoDBStateStore) -> SegmentStreams:
        return SegmentStreams(store)

    @pytest.fixture
    def other(self, second: DynamoDBStateStore) -> SegmentStreams:
        return SegmentStreams(second)


class TestSockets(SocketsContract):
    @pytest.fixture
    async def peers(self, server: MiniStack) -> AsyncIterator[SocketApi]:
        made = SocketApi(server)
        yield made
        await made.close()

    @pytest.fixture
    def sockets(self, peers: SocketApi) -> Iterator[ApiGatewaySockets]:
        made = ApiGatewaySockets(peers.client(1.0), deadline_s=1.0)
        yield made
        made.close()

    @pytest.mark.skip(reason="MiniStack takes every frame at once, however slow its reader: see test_sockets.py")
    async def test_a_slow_one_holds_up_nobody(self, sockets: Sockets, peers: Peers) -> None: ...


class TestBudgets(BudgetsContract):
    @pytest.fixture
    def budgets(self, store: DynamoDBStateStore) -> RowBudgets:
        return RowBudgets(store)

    @pytest.fixture
    def other(self, second: DynamoDBStateStore) -> RowBudgets:
        return RowBudgets(second)


class TestSlots(SlotsContract):
    @pytest.fixture
    def slots(self, store: DynamoDBStateStore) -> RowSlots:
        return RowSlots(store)

    @pytest.fixture
    def other(self, second: DynamoDBStateStore) -> RowSlots:
        return RowSlots(second)
