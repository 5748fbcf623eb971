"""DynamoDB on moto as the store of a walk: each process has a store of its own on the same tables, without threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.properties.protocol_packed import SKEWS, PackedStores, Skewed
from tests.support.aws_resources import fresh, make_tables, moto, tables
from tests.support.conflicts import threads_here

from helix.adapters.aws.dynamodb import DynamoDBStateStore

CLIENTS: list[dict[str, Any]] = []
"""Moto's clients, within `opened`."""


@contextmanager
def opened(kind: str) -> Iterator[None]:
    """Open what the stores of this kind need."""
    if kind != "dynamodb":
        yield
        return
    with moto() as clients:
        CLIENTS[:] = [clients]
        yield
        CLIENTS.clear()


class DynamoStores(PackedStores):
    """The stores of several processes. `memory` is the store behind the first one."""

    def __init__(self) -> None:
        super().__init__()
        prefix = fresh()
        dynamodb = CLIENTS[0]["dynamodb"]
        make_tables(dynamodb, prefix)
        with threads_here():
            self.stores = [DynamoDBStateStore(dynamodb, tables(prefix), clock=Skewed(self, skew)) for skew in SKEWS]
        self.memory = self.stores[0]  # type: ignore[assignment]
