"""Locked clients call moto one at a time and otherwise behave like boto3's clients."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from tests.support.aws_resources import make_tables, moto, tables

from helix.testing.aws import LockedClient

WAIT_S = 0.2


def meet(wrap: Callable[[Any], Any]) -> bool:
    """Return whether calls of two clients are ever in moto at the same time. Each call waits there for the other."""
    meeting, met = threading.Barrier(2), threading.Event()

    def wait(**_: Any) -> None:
        try:
            meeting.wait(WAIT_S)
            met.set()
        except threading.BrokenBarrierError:
            return

    with moto():
        clients = [boto3.client(name) for name in ("dynamodb", "s3")]
        for client in clients:
            client.meta.events.register("before-call", wait)
        dynamodb, s3 = (wrap(client) for client in clients)
        with ThreadPoolExecutor(2) as threads:
            for done in [threads.submit(dynamodb.list_tables), threads.submit(s3.list_buckets)]:
                done.result()
    return met.is_set()


def test_calls_of_locked_clients_never_overlap() -> None:
    assert not meet(LockedClient)
    assert meet(lambda client: client), "without the lock they do"


def test_a_locked_client_has_errors_and_waiters_of_its_client() -> None:
    with moto() as clients:
        dynamodb = clients["dynamodb"]
        make_tables(dynamodb)
        with pytest.raises(dynamodb.exceptions.ResourceInUseException):
            make_tables(dynamodb)
        dynamodb.get_waiter("table_exists").wait(TableName=tables()["sessions"])
        assert dynamodb.meta.region_name == "us-east-1"
        assert dynamodb.list_tables.__name__ == "list_tables"
