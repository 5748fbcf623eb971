"""DynamoDB's rule of conflicts, which no local emulator implements. Time passes only while every task waits.

A transaction holds its items until it has ended, including those that it only checks. Another transaction that meets one of
them is refused with `TransactionCanceledException`, and a write of a single item with `TransactionConflictException`. No
request waits
(https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html#transaction-conflict-handling).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from bench.contention import VirtualLoop

HELD_S = 0.01
"""The time for which a transaction holds its items, which is that of a transaction on DynamoDB."""
SINGLE = ("PutItem", "UpdateItem", "DeleteItem")
BEGUN = 1_750_000_000.0


class Conflicts:
    """Conflicts that are injected into a botocore client of DynamoDB. `refused` counts the refused requests by
    operation."""

    def __init__(self, client: Any, now: Callable[[], float]) -> None:
        self._now, self._held = now, dict[tuple[str, str], float]()
        self.refused: dict[str, int] = {}
        client.meta.events.register("before-call.dynamodb", self._send)

    def _send(self, model: Any, params: Any, **_: Any) -> Any:
        operation, body = model.name, json.loads(params["body"])
        if operation == "TransactWriteItems":
            items = [_place(next(iter(item.values()))) for item in body["TransactItems"]]
        elif operation in SINGLE:
            items = [_place(body)]
        else:
            return None
        met = [self._held.get(item, 0.0) > self._now() for item in items]
        if any(met):
            self.refused[operation] = self.refused.get(operation, 0) + 1
            return _refusal(operation, met)
        if operation == "TransactWriteItems":
            self._held |= dict.fromkeys(items, self._now() + HELD_S)
        return None


def _place(request: Any) -> tuple[str, str]:
    key = request.get("Key") or {name: request["Item"][name] for name in ("pk", "sk")}
    return request["TableName"], json.dumps(key, sort_keys=True)


def _refusal(operation: str, met: list[bool]) -> Any:
    code = "TransactionCanceledException" if operation == "TransactWriteItems" else "TransactionConflictException"
    reasons = [{"Code": "TransactionConflict" if one else "None"} for one in met]
    error = {"Error": {"Code": code, "Message": "Transaction is ongoing for the item"}}
    return SimpleNamespace(status_code=400), {**error, "CancellationReasons": reasons, "ResponseMetadata": {}}


class LoopClock:
    """The time of the running loop."""

    def now(self) -> float:
        return BEGUN + asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def played(work: Coroutine[Any, Any, None]) -> None:
    """Run `work`. Its work takes no time, including that of threads, and its waits end at once."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner, threads_here():
        runner.get_loop().set_default_executor(_Here(1))
        runner.run(work)


def threads_here() -> AbstractContextManager[Any]:
    """Replace the threads of stores that are created within the context."""
    return patch("helix.adapters.aws.dynamodb.ThreadPoolExecutor", _Here)


class _Here(ThreadPoolExecutor):
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future
