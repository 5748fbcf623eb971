"""Helpers for testing agents on DynamoDB with moto, in one process: the lock that moto lacks, and the tables of a store."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from typing import Any, Final

from helix.ports.state_store import Table

_LOCK: Final = threading.RLock()
"""moto's state is global to the process, so all clients share one lock."""


class LockedClient:
    """A boto3 client whose calls run one at a time, across all locked clients of the process.

    `moto.mock_aws` does not lock. The store calls it from several threads, so without this lock conditional writes of
    concurrent runs are not atomic, and scans fail midway. Calls of a paginator or waiter are not locked.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found):
            return found

        @functools.wraps(found)
        def call(*given: Any, **named: Any) -> Any:
            with _LOCK:
                return found(*given, **named)

        return call


def create_tables(dynamodb: Any, tables: Mapping[Table, str]) -> None:
    """Create the tables of a `DynamoDBStateStore` under these names, with the key schema of a deployed stage."""
    keys = {"pk": "HASH", "sk": "RANGE"}
    for name in tables.values():
        dynamodb.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys.items()],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
            BillingMode="PAY_PER_REQUEST",
        )
