"""The state store on DynamoDB: three tables, a transaction for several rows, one conditional write for a single one.

Law: conditions are DynamoDB's own, so they hold between any number of Lambdas; what DynamoDB refuses for contention
(conflicts, throttling) is repeated with jitter, what it refuses by a condition is answered with its index.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from helix.adapters.aws.items import attribute, decode, encode
from helix.adapters.aws.overflow import Overflow
from helix.core.errors import ConditionFailedError, StoreError
from helix.ports.clock import Clock
from helix.ports.state_store import (
    Check,
    Delete,
    Key,
    Operation,
    Put,
    Row,
    Table,
    Update,
    Value,
    Watch,
    When,
    check_operations,
)

TRIES = 8
BATCH_KEYS = 100
_RETRY = frozenset(
    {
        "TransactionConflict",
        "TransactionConflictException",
        "TransactionInProgressException",
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "ThrottlingError",
        "ThrottlingException",
        "RequestLimitExceeded",
        "InternalServerError",
        "ServiceUnavailable",
    }
)


class DynamoDBStateStore:
    """`tables` names the three tables (partition key `pk`, sort key `sk`, both strings). `overflow` holds what exceeds an
    item; without it such a row is refused. `poll_s` is how often a watch looks again: DynamoDB tells nobody."""

    def __init__(
        self,
        client: Any,
        tables: Mapping[Table, str],
        *,
        clock: Clock,
        overflow: Overflow | None = None,
        poll_s: float = 0.25,
    ) -> None:
        self._client, self._tables, self._clock = client, tables, clock
        self._overflow, self._poll_s = overflow, poll_s

    # --- reading --------------------------------------------------------------------------------------------------

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        if not keys:
            return []
        if len(keys) == 1:
            key = keys[0]
            answer = await self._call("get_item", TableName=self._tables[key.table], Key=_key(key), ConsistentRead=True)
            return [await self._decode(answer.get("Item"))]
        found: dict[tuple[str, str, str], dict[str, Any]] = {}
        unique = list(dict.fromkeys(keys))
        for start in range(0, len(unique), BATCH_KEYS):
            wanted: dict[str, Any] = {}
            for key in unique[start : start + BATCH_KEYS]:
                place = wanted.setdefault(self._tables[key.table], {"Keys": [], "ConsistentRead": True})
                place["Keys"].append(_key(key))
            pause = 0.05
            while wanted:
                answer = await self._call("batch_get_item", RequestItems=wanted)
                for table, items in answer["Responses"].items():
                    for item in items:
                        found[table, item["pk"]["S"], item["sk"]["S"]] = item
                wanted = answer.get("UnprocessedKeys") or {}
                if wanted:
                    await self._clock.sleep(pause)
                    pause = min(1.0, pause * 2)
        return [await self._decode(found.get((self._tables[k.table], k.partition, k.sort))) for k in keys]

    async def query(
        self,
        table: Table,
        partition: str,
        *,
        start: str = "",
        end: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        condition, values = "pk = :p", {":p": {"S": partition}}
        if end is not None:
            # BETWEEN is inclusive: the end itself is dropped below.
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
                cursor["Limit"] = limit - len(rows) + 1  # one more: the end itself may be among them
            answer = await self._call(
                "query",
                TableName=self._tables[table],
                KeyConditionExpression=condition,
                ExpressionAttributeValues=values,
                ConsistentRead=True,
                ScanIndexForward=not reverse,
                **cursor,
            )
            for item in answer["Items"]:
                sort = item["sk"]["S"]
                if sort != end and (limit is None or len(rows) < limit):
                    rows.append(Row(Key(table, partition, sort), await self._decode(item) or {}))
            if "LastEvaluatedKey" not in answer or (limit is not None and len(rows) >= limit):
                return rows
            cursor = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def watch(self, table: Table, partition: str) -> AbstractContextManager[Watch]:
        return self._watch()

    @contextlib.contextmanager
    def _watch(self) -> Iterator[Watch]:
        yield _Polling(self._clock, self._poll_s)

    async def close(self) -> None:
        return None

    # --- writing --------------------------------------------------------------------------------------------------

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        check_operations(name, operations)
        prepared = [await self._prepare(operation) for operation in operations]
        for attempt in range(TRIES):
            try:
                if len(prepared) == 1:
                    await self._single(*prepared[0])
                else:
                    await self._call("transact_write_items", TransactItems=[{k: v} for k, v in prepared])
                return
            except ClientError as error:
                refused = _refused(error)
                if refused is not None:
                    raise ConditionFailedError(name, refused) from None
                if attempt + 1 == TRIES or not _again(error):
                    raise StoreError(f"DynamoDB transaction {name!r}: {error}") from error
                # Spread by the clock's own fraction: two writers that collided do not collide again in step.
                await self._clock.sleep(0.02 * 2**attempt * (0.5 + self._clock.now() % 1))

    async def _single(self, kind: str, request: dict[str, Any]) -> None:
        """One row needs no transaction, which would cost twice as much."""
        match kind:
            case "Put":
                await self._call("put_item", **request)
            case "Update":
                await self._call("update_item", **request)
            case "Delete":
                await self._call("delete_item", **request)
            case _:  # a check alone: read it in a transaction of one
                await self._call("transact_write_items", TransactItems=[{kind: request}])

    async def _prepare(self, operation: Operation) -> tuple[str, dict[str, Any]]:
        request: dict[str, Any] = {"TableName": self._tables[operation.key.table]}
        terms = _Terms()
        match operation:
            case Put():
                fields = await asyncio.to_thread(encode, operation.value, self._offload(operation.key))
                request["Item"] = _key(operation.key) | fields
                kind = "Put"
            case Update():
                parts = [f"{terms.name(n)} = {terms.value(attribute(v))}" for n, v in operation.set.items()]
                parts += [
                    f"{terms.name(n)} = if_not_exists({terms.name(n)}, {terms.value({'N': '0'})})"
                    f" + {terms.value({'N': str(v)})}"
                    for n, v in operation.add.items()
                ]
                request["Key"] = _key(operation.key)
                if parts:
                    request["UpdateExpression"] = "SET " + ", ".join(parts)
                kind = "Update" if parts else "ConditionCheck"
            case Delete():
                request["Key"] = _key(operation.key)
                kind = "Delete"
            case Check():
                request["Key"] = _key(operation.key)
                kind = "ConditionCheck"
        condition = _condition(operation.when, terms, must_exist=isinstance(operation, Update))
        if condition:
            request["ConditionExpression"] = condition
        return kind, request | terms.attributes()

    def _offload(self, key: Key) -> Any:
        return None if self._overflow is None else self._overflow.writer(key)

    async def _decode(self, item: dict[str, Any] | None) -> Value | None:
        if item is None:
            return None
        fetch = None if self._overflow is None else self._overflow.read
        if any(bytes(a["B"])[:1] == b"s" for a in item.values() if "B" in a):
            return await asyncio.to_thread(decode, item, fetch)
        return decode(item, fetch)

    async def _call(self, verb: str, **request: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = await asyncio.to_thread(getattr(self._client, verb), **request)
            return answer
        except BotoCoreError as error:
            raise StoreError(f"DynamoDB {verb}: {error}") from error
        except ClientError as error:
            if verb in ("get_item", "batch_get_item", "query"):
                raise StoreError(f"DynamoDB {verb}: {error}") from error
            raise


class _Polling:
    def __init__(self, clock: Clock, poll_s: float) -> None:
        self._clock, self._poll_s = clock, poll_s

    async def changed(self, timeout_s: float) -> None:
        await self._clock.sleep(min(timeout_s, self._poll_s))


class _Terms:
    """Names and values of an expression; every name goes through a placeholder, since many are reserved words."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}

    def name(self, name: str) -> str:
        place = f"#n{list(self.names.values()).index(name)}" if name in self.names.values() else f"#n{len(self.names)}"
        self.names[place] = name
        return place

    def value(self, value: Any) -> str:
        place = f":v{len(self.values)}"
        self.values[place] = value
        return place

    def attributes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.names:
            found["ExpressionAttributeNames"] = self.names
        if self.values:
            found["ExpressionAttributeValues"] = self.values
        return found


def _condition(when: When | None, terms: _Terms, *, must_exist: bool) -> str:
    if when is None:
        return f"attribute_exists({terms.name('pk')})" if must_exist else ""
    if when.absent:
        return f"attribute_not_exists({terms.name('pk')})"
    parts = [f"attribute_exists({terms.name('pk')})"]
    for name, wanted in when.equal.items():
        place = terms.name(name)
        if wanted is None:
            parts.append(f"(attribute_not_exists({place}) OR {place} = {terms.value({'NULL': True})})")
        else:
            parts.append(f"{place} = {terms.value(attribute(wanted))}")
    parts += [f"{terms.name(n)} >= {terms.value(attribute(bound))}" for n, bound in when.at_least.items()]
    parts += [f"{terms.name(n)} < {terms.value(attribute(bound))}" for n, bound in when.below.items()]
    return " AND ".join(parts)


def _key(key: Key) -> dict[str, Any]:
    return {"pk": {"S": key.partition}, "sk": {"S": key.sort}}


def _refused(error: ClientError) -> int | None:
    """The index of the operation whose condition failed. A conflict anywhere means that nothing was judged."""
    code = error.response["Error"]["Code"]
    if code == "ConditionalCheckFailedException":
        return 0
    if code != "TransactionCanceledException":
        return None
    codes = [reason.get("Code") for reason in error.response.get("CancellationReasons", [])]
    if "ConditionalCheckFailed" not in codes:
        return None
    return codes.index("ConditionalCheckFailed")


def _again(error: ClientError) -> bool:
    code = error.response["Error"]["Code"]
    if code == "TransactionCanceledException":
        codes = {reason.get("Code") for reason in error.response.get("CancellationReasons", [])} - {"None", None}
        return bool(codes) and codes <= _RETRY
    return code in _RETRY
