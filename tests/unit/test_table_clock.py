"""`TableClock` reads the time from DynamoDB's responses. A slow response does not give it a wrong time."""

from __future__ import annotations

from email.utils import formatdate
from typing import Any

import botocore.session
import pytest
from botocore.awsrequest import AWSResponse

from helix.adapters.aws.clock import TableClock
from helix.testing.clocks import SetClock

NOW = 1_795_000_000.25
NEAR_S = 2.5


class Raw:
    def __init__(self, body: bytes) -> None:
        self.body = body

    def stream(self, *_: Any, **__: Any) -> Any:
        yield self.body


class Server:
    """A client's server in place of DynamoDB. It has a clock of its own, and the machine waits `wait_s` for each
    response."""

    def __init__(self, machine: SetClock) -> None:
        self.machine, self.ahead_s, self.wait_s, self.date = machine, 0.0, 0.01, ""
        self.clock = TableClock(machine)
        session = botocore.session.get_session()
        self.clock.follow(session)
        self.client: Any = session.create_client(
            "dynamodb", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
        )
        self.client.meta.events.register("before-send.dynamodb", self._answer)

    def _answer(self, request: Any, **_: Any) -> AWSResponse:
        at = formatdate(self.machine.now() + self.ahead_s, usegmt=True)
        self.machine.advance(self.wait_s)
        return AWSResponse(request.url, 200, {"Date": self.date or at}, Raw(b"{}"))

    def ask(self) -> None:
        self.client.get_item(TableName="t", Key={"pk": {"S": "a"}})


@pytest.fixture
def machine() -> SetClock:
    return SetClock(NOW)


@pytest.fixture
def server(machine: SetClock) -> Server:
    return Server(machine)


@pytest.fixture
def clock(server: Server) -> TableClock:
    return server.clock


@pytest.mark.parametrize("ahead_s", [300.0, -300.0, 4.0, -4.0, 86_400.0])
def test_a_wrong_clock_is_corrected(clock: TableClock, machine: SetClock, server: Server, ahead_s: float) -> None:
    server.ahead_s = ahead_s
    server.ask()
    assert clock.now() == pytest.approx(machine.now() + ahead_s, abs=NEAR_S)
    server.ahead_s = 0.0  # the machine's clock was corrected
    server.ask()
    assert clock.now() == pytest.approx(machine.now(), abs=NEAR_S)


@pytest.mark.parametrize("off_s", [0.0, 0.9, -0.9])
def test_a_right_clock_is_not_moved(clock: TableClock, machine: SetClock, server: Server, off_s: float) -> None:
    server.ahead_s = off_s
    for _ in range(20):
        server.ask()
        machine.advance(0.13)
        assert clock.now() == pytest.approx(machine.now(), abs=0.0001)


def test_a_process_that_stands_still_during_a_call_learns_nothing(
    clock: TableClock, machine: SetClock, server: Server
) -> None:
    server.wait_s = 3600.0
    server.ask()
    assert clock.now() == pytest.approx(machine.now(), abs=0.0001)


@pytest.mark.parametrize("date", ["soon", "Mon, 99 Foo 2026"])
def test_a_date_that_cannot_be_read_is_left_alone(
    clock: TableClock, machine: SetClock, server: Server, date: str
) -> None:
    server.date = date
    server.ask()
    assert clock.now() == machine.now()
