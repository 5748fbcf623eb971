"""The state store on DynamoDB. It has three tables, and writes several rows in one transaction, or a single row with a
conditional write. Small rows of a session are packed into its `session` row (`helix.adapters.aws.packing`).

Law: conditions are DynamoDB's own, so they hold across any number of Lambdas. A write that DynamoDB refuses because of
contention (conflicts, throttling) is retried after a random pause ("full jitter"). If a condition fails, the write
raises an error with the operation's index.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from helix.adapters.aws.calls import denial
from helix.adapters.aws.expressions import Terms, condition, update
from helix.adapters.aws.items import (
    LEAST_OFFLOADED,
    attribute,
    decode,
    encode,
    item_bytes,
    largest_field,
    offload_field,
    offload_fields,
    pointers,
)
from helix.adapters.aws.overflow import Overflow
from helix.adapters.aws.packing import PackingStore
from helix.adapters.system import random_share
from helix.core.errors import ConditionFailedError, ContentionError, InvalidInputError, ObjectGoneError, StoreError
from helix.core.row_keys import SESSION
from helix.ports.clock import Clock
from helix.ports.state_store import (
    HEARTBEAT,
    Damaged,
    Delete,
    Key,
    Operation,
    Put,
    Row,
    Table,
    Update,
    Value,
    Watch,
    check_keys,
    check_operations,
    check_range,
    expiry,
)

T = TypeVar("T")
TRIES = 12
"""The maximum number of attempts of a write. If a hundred transactions of 10 ms each compete for one row, the last one
takes a second."""
READS = 8
"""The maximum number of reads of a row whose object in S3 is missing."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0
BATCH_KEYS = 100
HEARTBEATS = 2
"""The number of connections that are reserved for heartbeats, so that heartbeats never wait for other calls."""
KEY_BYTES = 64  # the approximate size of a session row's key
MAX_TRANSACTION_BYTES = 3_800_000  # DynamoDB's 4 MB, minus keys and conditions
LAST_ROWS: Mapping[Table, str] = {"sessions": SESSION}  # deleting one also deletes its partition's objects
_UNSURE = frozenset({"InternalServerError", "ServiceUnavailable"})
_BUSY = ("TransactionConflict", "TransactionInProgress", "ProvisionedThroughputExceeded", "Throttling")
_RETRY = _UNSURE | {*_BUSY, *(f"{name}Exception" for name in _BUSY), "ThrottlingError", "RequestLimitExceeded"}


class _Items:
    """The rows of a store, each in its own item."""

    def __init__(
        self,
        client: Any,
        tables: Mapping[Table, str],
        *,
        clock: Clock,
        overflow: Overflow | None,
        poll_s: float,
        jitter: Callable[[], float],
    ) -> None:
        self._client, self._tables, self._clock = client, tables, clock
        self._overflow, self._poll_s, self._jitter = overflow, poll_s, jitter
        others = max(1, client.meta.config.max_pool_connections - HEARTBEATS)
        self._threads = ThreadPoolExecutor(others, thread_name_prefix="helix-dynamodb")
        self._for_heartbeats = ThreadPoolExecutor(HEARTBEATS, thread_name_prefix="helix-dynamodb-heartbeat")

    # --- reading --------------------------------------------------------------------------------------------------

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        check_keys(keys)
        if not keys:
            return []
        if len(keys) == 1:
            key = keys[0]
            answer = await self._call("get_item", TableName=self._tables[key.table], Key=_key(key), ConsistentRead=True)
            return await self._decode(key.table, [answer["Item"]]) if "Item" in answer else [None]
        items: dict[Key, dict[str, Any]] = {}
        names = {name: table for table, name in self._tables.items()}
        unique = list(dict.fromkeys(keys))
        for start in range(0, len(unique), BATCH_KEYS):
            wanted: dict[str, Any] = {}
            for key in unique[start : start + BATCH_KEYS]:
                place = wanted.setdefault(self._tables[key.table], {"Keys": [], "ConsistentRead": True})
                place["Keys"].append(_key(key))
            pause = 0.05
            while wanted:
                answer = await self._call("batch_get_item", RequestItems=wanted)
                for name, page in answer["Responses"].items():
                    items |= {Key(names[name], item["pk"]["S"], item["sk"]["S"]): item for item in page}
                wanted = answer.get("UnprocessedKeys") or {}
                if wanted:
                    await self._clock.sleep(pause)
                    pause = min(1.0, pause * 2)
        found: dict[Key, Value | None] = {}
        for table in {key.table for key in items}:
            mine = [key for key in items if key.table == table]
            found |= dict(zip(mine, await self._decode(table, [items[key] for key in mine]), strict=True))
        values: list[Value | None] = []
        for place, key in enumerate(keys):  # each caller owns its values, so a key that is requested twice yields two
            values.append(copy.deepcopy(found.get(key)) if key in keys[:place] else found.get(key))
        return values

    async def query(
        self,
        table: Table,
        partition: str,
        *,
        start: str = "",
        end: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
        known_head: bool = False,
    ) -> list[Row]:
        check_range(partition, start, end)
        condition, values = "pk = :p", {":p": {"S": partition}}
        if end is not None:
            # BETWEEN is inclusive, so the end itself is dropped below.
            condition += " AND sk BETWEEN :a AND :b"
            values |= {":a": {"S": start or "\x00"}, ":b": {"S": end}}
            if end < (start or "\x00"):
                return []
        elif start:
            condition += " AND sk >= :a"
            values[":a"] = {"S": start}
        rows: list[Row] = []
        cursor: dict[str, Any] = {}
        while True:
            if limit is not None:
                cursor["Limit"] = limit - len(rows) + (end is not None)  # the end itself may be included
            answer = await self._call(
                "query",
                TableName=self._tables[table],
                KeyConditionExpression=condition,
                ExpressionAttributeValues=values,
                ConsistentRead=True,
                ScanIndexForward=not reverse,
                **cursor,
            )
            page = [item for item in answer["Items"] if item["sk"]["S"] != end]
            page = page if limit is None else page[: limit - len(rows)]
            for item, value in zip(page, await self._decode(table, page), strict=True):
                if value is not None:
                    rows.append(Row(Key(table, partition, item["sk"]["S"]), value))
            if "LastEvaluatedKey" not in answer or (limit is not None and len(rows) >= limit):
                return rows
            cursor = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    async def purge(self, now: float) -> int:
        """Leave expired rows to the tables' own TTL, which reads the `ttl` attribute and does not charge for writes."""
        return 0

    def watch(self, table: Table, partition: str) -> AbstractContextManager[Watch]:
        return contextlib.nullcontext(_Polling(self._clock, self._poll_s))

    async def close(self) -> None:
        return None

    # --- writing --------------------------------------------------------------------------------------------------

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        check_operations(name, operations)
        threads = self._for_heartbeats if name == HEARTBEAT else self._threads
        prepared = await _run_in(threads, lambda: [self._prepare(operation) for operation in operations])
        if len(prepared) > 1:
            await self._fit_transaction(name, operations, prepared)
        if self._overflow is not None:
            for operation in operations:
                if isinstance(operation, Delete) and operation.key.sort == LAST_ROWS.get(operation.key.table):
                    # The objects are deleted before the partition's last row, so that a retry after a crash still finds
                    # that row and continues.
                    await _run_in(threads, self._overflow.clear, operation.key.partition)
        unsure = False
        for attempt in range(TRIES):
            try:
                if len(prepared) == 1:
                    await self._write_single(threads, *prepared[0])
                else:
                    items = [{kind: request} for kind, request in prepared]
                    await self._call("transact_write_items", threads, TransactItems=items)
                return
            except ClientError as error:
                refused = _find_failed_condition(error)
                # A write that botocore retried, or that failed in DynamoDB, may collide with its own first attempt.
                unsure = unsure or error.response["Error"]["Code"] in _UNSURE
                unsure = unsure or (refused is not None and len(prepared) == 1 and _was_retried(error))
                if refused is not None and not unsure:
                    raise ConditionFailedError(name, refused) from None
                if _is_too_large(error):
                    raise InvalidInputError(f"transaction {name!r}: {error}") from error
                again = refused is None and _is_retryable(error)
                if not again or attempt + 1 == TRIES:
                    kind = ContentionError if again and not unsure else StoreError
                    raise kind(f"DynamoDB transaction {name!r}: {error}") from error
                await self._clock.sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**attempt) * self._jitter())

    async def _write_single(self, threads: ThreadPoolExecutor, kind: str, request: dict[str, Any]) -> None:
        """Write a single row without a transaction, which would cost twice as much."""
        if kind == "ConditionCheck":  # a single check needs a transaction
            await self._call("transact_write_items", threads, TransactItems=[{kind: request}])
        else:
            await self._call(f"{kind.lower()}_item", threads, **request)

    def _prepare(self, operation: Operation) -> tuple[str, dict[str, Any]]:
        key, terms = _key(operation.key), Terms()
        request: dict[str, Any] = {"TableName": self._tables[operation.key.table], "Key": key}
        kind = "Delete" if isinstance(operation, Delete) else "ConditionCheck"
        if isinstance(operation, Put):
            del request["Key"]
            kind, request["Item"] = "Put", key | encode(operation.value, self._offload(operation))
        elif isinstance(operation, Update):
            fields = {name: attribute(value) for name, value in operation.set.items()}
            offload_fields(fields, self._offload(operation))
            if expression := update(fields, operation.add, terms):
                kind, request["UpdateExpression"] = "Update", expression
        wanted = condition(operation.when, terms, must_exist=isinstance(operation, Update))
        if wanted:
            request["ConditionExpression"] = wanted
        return kind, request | terms.attributes()

    async def _fit_transaction(
        self, name: str, operations: Sequence[Operation], prepared: Sequence[tuple[str, dict[str, Any]]]
    ) -> None:
        """Move fields to S3, largest first, until the rows of a transaction fit within its limit."""
        items = [request.get("Item") for _, request in prepared]
        total = sum(item_bytes(item) for item in items if item is not None)
        while total > MAX_TRANSACTION_BYTES:
            found = [(largest_field(item), place) for place, item in enumerate(items) if item is not None]
            (weight, field), place = max(found, key=lambda one: one[0][0])
            item, offload = items[place], self._offload(operations[place])
            if weight < LEAST_OFFLOADED or item is None or offload is None:
                raise InvalidInputError(
                    f"transaction {name!r} has {total} bytes; DynamoDB takes {MAX_TRANSACTION_BYTES}"
                    + ("" if self._overflow else ", and no bucket is configured")
                )
            total -= await _run_in(self._threads, offload_field, item, field, offload)

    def _offload(self, operation: Operation) -> Any:
        ttl = expiry(operation.value) if isinstance(operation, Put) else None
        lasts_s = None if ttl is None else ttl - self._clock.now()
        return None if self._overflow is None else self._overflow.writer(operation.key, lasts_s)

    async def _decode(self, table: Table, items: Sequence[dict[str, Any]]) -> list[Value | None]:
        """Return the rows' values, fetching those in S3 concurrently. None: the row has since been deleted."""
        fetch = None if self._overflow is None else self._overflow.read
        return await asyncio.gather(*(self._decode_row(table, item, fetch) for item in items))

    async def _decode_row(self, table: Table, item: dict[str, Any], fetch: Any) -> Value | None:
        """Return a row's value. If its object is gone, the row was deleted or rewritten since it was read, so it is
        read again."""
        for attempt in range(READS):
            if not pointers(item):
                return _decode_value(table, item)
            try:
                return await _run_in(self._threads, _decode_value, table, item, fetch)
            except ObjectGoneError:
                if attempt + 1 == READS:
                    raise
            key = {name: item[name] for name in ("pk", "sk")}
            answer = await self._call("get_item", TableName=self._tables[table], Key=key, ConsistentRead=True)
            if "Item" not in answer:
                return None
            item = answer["Item"]
            await self._clock.sleep(0.02 * 2**attempt)
        raise AssertionError("unreachable")

    async def _call(self, verb: str, threads: ThreadPoolExecutor | None = None, **request: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = await _run_in(threads or self._threads, getattr(self._client, verb), **request)
            return answer
        except BotoCoreError as error:
            raise StoreError(f"DynamoDB {verb}: {error}") from error
        except ClientError as error:
            if (denied := denial(error, request)) is not None:
                raise denied from error
            if verb in ("get_item", "batch_get_item", "query"):
                raise StoreError(f"DynamoDB {verb}: {error}") from error
            raise


class DynamoDBStateStore(PackingStore):
    """A store on three tables. `tables` contains their names (partition key `pk`, sort key `sk`, both strings).

    It makes at most as many concurrent calls as the client has connections (`max_pool_connections`: boto3 makes 10 by
    default). `overflow` stores values that do not fit in an item; without it, such a row is refused. `poll_s` is the
    interval at which a watch polls, because DynamoDB sends no notifications. `jitter` returns a random share of the
    pause before a retry, from 0 to 1, so that writers that collided retry at different times.
    """

    def __init__(
        self,
        client: Any,
        tables: Mapping[Table, str],
        *,
        clock: Clock,
        overflow: Overflow | None = None,
        poll_s: float = 0.25,
        jitter: Callable[[], float] = random_share,
    ) -> None:
        items = _Items(client, tables, clock=clock, overflow=overflow, poll_s=poll_s, jitter=jitter)
        super().__init__(items, _weight, clock)


async def _run_in(threads: ThreadPoolExecutor, work: Callable[..., T], *given: Any, **named: Any) -> T:
    call = partial(copy_context().run, work, *given, **named)
    return await asyncio.get_running_loop().run_in_executor(threads, call)


def _weight(value: Value) -> int:
    return item_bytes({name: attribute(field) for name, field in value.items()}) + KEY_BYTES


class _Polling:
    def __init__(self, clock: Clock, poll_s: float) -> None:
        self._clock, self._poll_s = clock, poll_s

    async def changed(self, timeout_s: float) -> None:
        await self._clock.sleep(min(timeout_s, self._poll_s))


def _key(key: Key) -> dict[str, Any]:
    return {"pk": {"S": key.partition}, "sk": {"S": key.sort}}


def _find_failed_condition(error: ClientError) -> int | None:
    """Return the index of the operation whose condition failed, or None. After a conflict, DynamoDB has not evaluated
    any condition."""
    code = error.response["Error"]["Code"]
    if code == "ConditionalCheckFailedException":
        return 0
    if code != "TransactionCanceledException":
        return None
    codes = [reason.get("Code") for reason in error.response.get("CancellationReasons", [])]
    if "ConditionalCheckFailed" not in codes:
        return None
    return codes.index("ConditionalCheckFailed")


def _is_retryable(error: ClientError) -> bool:
    code = error.response["Error"]["Code"]
    if code == "TransactionCanceledException":
        codes = {reason.get("Code") for reason in error.response.get("CancellationReasons", [])} - {"None", None}
        return bool(codes) and codes <= _RETRY
    return code in _RETRY


def _was_retried(error: ClientError) -> bool:
    return bool(error.response.get("ResponseMetadata", {}).get("RetryAttempts"))


def _is_too_large(error: ClientError) -> bool:
    """Return whether the item was refused because of its size. A retry would be refused too."""
    reasons = {reason.get("Code") for reason in error.response.get("CancellationReasons", [])}
    return error.response["Error"]["Code"] == "ValidationException" or "ValidationError" in reasons


def _decode_value(table: Table, item: dict[str, Any], fetch: Any = None) -> Value:
    try:
        return decode(item, fetch)
    except (ValueError, TypeError, RecursionError, zlib.error) as error:
        return Damaged(Key(table, *(str(next(iter(item[name].values()))) for name in ("pk", "sk"))), error)
