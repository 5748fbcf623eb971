"""The state store on Redis, for several machines that share one, without a cloud.

Law: a transaction is one script, executed atomically by one primary, and sent once. If its reply is lost, it is unknown
whether it was executed, and `StoreError` says so. Reads are retried. Durability depends on Redis's configuration
(docs/guide/durability.md explains it).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError

from helix._log import get_logger
from helix.adapters.redis.batches import Batches, Command
from helix.adapters.redis.scripts import PURGE, QUERY, TEXTS, TRANSACT, Script
from helix.adapters.redis.subscriptions import Subscriptions
from helix.adapters.redis.texts import index_of, row_of, text, texts, value_of
from helix.core.errors import ConditionFailedError, InvalidInputError, StoreError
from helix.ports.state_store import (
    HEARTBEAT,
    Key,
    Operation,
    Put,
    Row,
    Table,
    Update,
    Value,
    Watch,
    When,
    check_keys,
    check_operations,
    check_range,
)
from helix.services.segments import SegmentStreams

T = TypeVar("T")
PAGE_ROWS = 256
PAGE_BYTES = 1_000_000  # of one reply: all other clients wait while Redis builds it
PURGED_ALONG = 8  # the expired rows that a transaction deletes: more than it creates, so they do not pile up
PURGED_AT_ONCE = 500
READ_TRIES = 3

logger = get_logger("helix.redis")


class RedisStateStore:
    """The store at `url`, as redis-py reads it: `redis://[user:password@]host:port/db`, `rediss://` (TLS),
    `unix://path`.

    It needs one primary, with or without replicas. A cluster does not work, because its transactions are limited to one
    hash slot. Redis 6.2 or later is required. prefix: the beginning of every key; stores with different prefixes share
    nothing. replicas: the number of replicas that must have a transaction before it is acknowledged (`WAIT`); otherwise
    `StoreError` is raised. timeout_s: the limit for connecting, and for each reply. connections: the limit on open
    connections. Commands that are sent at the same moment share one, so a few are enough. A store belongs to one event
    loop.

    A transaction also deletes a few rows that expired by Redis's clock (`StateStore.purge`).

    Raises `StoreError` if Redis cannot be reached, or would lose rows: a cluster, or a server that evicts.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "helix",
        replicas: int = 0,
        timeout_s: float = 10.0,
        connections: int = 8,
    ) -> None:
        if not prefix or ":" in prefix:
            raise InvalidInputError(f"prefix is {prefix!r}; it must not be empty or contain a colon")
        if connections < 3:
            raise InvalidInputError(
                f"connections is {connections}; it must be 3 or more, because notifications and heartbeats take one each"
            )
        self._url, self._prefix, self._replicas, self._timeout_s = url, prefix, replicas, timeout_s
        self._connections, self._closed, self._checked = connections, False, False
        self._redis: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._subscriptions: Subscriptions | None = None
        self._batches: Batches | None = None
        self._heartbeats: Batches | None = None
        try:
            kwargs = self._make_pool().connection_kwargs
        except ValueError as error:
            raise InvalidInputError(f"this is not the URL of a Redis server: {error}") from error
        server = kwargs.get("path") or f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}"
        self.place = f"{server}/{kwargs.get('db', 0)}"

    # --- verbs ----------------------------------------------------------------------------------------------------

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        if not keys:
            return []
        check_keys(keys)
        names = [row_of(self._prefix, key) for key in keys]

        if len(names) == 1:
            rows = await self._read(("HGETALL", names[0]))
        else:
            *_, found = await self._read(("MULTI",), *(("HGETALL", name) for name in names), ("EXEC",))
            rows = [dict(zip(fields[::2], fields[1::2], strict=True)) for fields in found]
        return [value_of(key, row) for key, row in zip(keys, rows, strict=True)]

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
        index = index_of(self._prefix, table, partition)
        low, high = f"[{start}" if start else "-", "+" if end is None else f"({end}"
        rows: list[Row] = []
        while limit is None or len(rows) < limit:
            size = PAGE_ROWS if limit is None else min(PAGE_ROWS, limit - len(rows))
            near, far = (high, low) if reverse else (low, high)
            there, *page = await self._read_page(index, [near, far, "1" if reverse else "0", size, PAGE_BYTES])
            for sort, fields in zip(page[::2], page[1::2], strict=True):
                hash_ = dict(zip(fields[::2], fields[1::2], strict=True))
                key = Key(table, partition, sort.decode())
                rows.append(Row(key, value_of(key, hash_) or {}))
            if there < size and len(page) == 2 * there:
                break
            last = f"({rows[-1].key.sort}"
            low, high = (low, last) if reverse else (last, high)
        return rows

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        check_operations(name, operations)
        keys: list[str] = []
        asked: list[str | int] = [PURGED_ALONG]
        for operation in operations:
            keys += (
                row_of(self._prefix, operation.key),
                index_of(self._prefix, operation.key.table, operation.key.partition),
            )
            asked += _describe_operation(operation)
        keys.append(f"{self._prefix}:expiries")
        try:
            refused = await self._commit(name, _script_command(TRANSACT, keys, asked))
        except (RedisError, OSError) as error:
            raise self._error(f"transaction {name!r}", error) from error
        if refused >= 0:
            raise ConditionFailedError(name, refused)

    async def purge(self, now: float) -> int:
        gone, page = 0, PURGED_AT_ONCE
        asked = _script_command(PURGE, [f"{self._prefix}:expiries"], [repr(float(now)), PURGED_AT_ONCE])
        while page == PURGED_AT_ONCE:
            page = int((await self._read(asked))[0])  # harmless if it is sent again
            gone += page
        return gone

    @contextlib.contextmanager
    def watch(self, table: Table, partition: str) -> Iterator[Watch]:
        self._bind_to_loop()
        assert self._subscriptions is not None
        with self._subscriptions.watch(index_of(self._prefix, table, partition), (table, partition)) as watch:
            yield watch

    async def close(self) -> None:
        self._closed = True
        redis, subscriptions, self._redis, self._subscriptions = self._redis, self._subscriptions, None, None
        if subscriptions is not None and self._loop is asyncio.get_running_loop():
            for batches in (self._batches, self._heartbeats):
                assert batches is not None
                await batches.close()
            await subscriptions.close()
            await redis.aclose()

    # --- commands -------------------------------------------------------------------------------------------------

    async def _read_page(self, index: str, asked: list[str | int]) -> list[Any]:
        found: list[Any] = (await self._read(_script_command(QUERY, [index], asked)))[0]
        return found

    async def _read(self, *commands: Command) -> list[Any]:
        for attempt in range(READ_TRIES):
            try:
                return await self._execute(await self._client(), *commands)
            except (RedisError, OSError) as error:
                lost = isinstance(error, (RedisConnectionError, ConnectionError))
                if not lost or attempt + 1 == READ_TRIES:
                    raise self._error("reading", error) from error
                await asyncio.sleep(0.02 * 4**attempt)
        raise AssertionError("unreachable")

    async def _execute(self, batches: Batches, *commands: Command) -> list[Any]:
        """Run commands. Scripts are sent by their hash. If the server does not know a script, it has executed nothing, and
        the script is sent in full."""
        try:
            return await batches.send_commands(*commands)
        except NoScriptError:
            return await batches.send_commands(*map(_with_script_text, commands))

    async def _commit(self, name: str, script: Command) -> int:
        work = await self._client()
        batches = self._heartbeats if name == HEARTBEAT and self._heartbeats is not None else work
        if not self._replicas:
            return int((await self._execute(batches, script))[0])
        # `WAIT` applies to the writes of its own connection.
        wait = ("WAIT", self._replicas, int(self._timeout_s * 500))
        refused, reached = await batches.send_commands(_with_script_text(script), wait)
        if refused < 0 and reached < self._replicas:
            raise RedisError(f"executed, but only {reached} of {self._replicas} replicas have it")
        return int(refused)

    async def _client(self) -> Batches:
        self._bind_to_loop()
        if not self._checked:
            await self._check(self._redis)
        assert self._batches is not None
        return self._batches

    def _bind_to_loop(self) -> None:
        """Create the connections of this event loop. Those of a loop that has ended are abandoned."""
        if self._closed:
            raise StoreError(f"the Redis store {self.place} is closed")
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None and not self._loop.is_closed():
            raise StoreError(f"the Redis store {self.place} is in use in another event loop: make one for each")
        pool = self._make_pool()
        self._loop, self._redis, self._subscriptions = loop, Redis.from_pool(pool), Subscriptions(pool)
        self._batches = Batches(self._redis, self._connections - 2)
        self._heartbeats = Batches(self._redis, 1)

    def _make_pool(self) -> Any:
        return BlockingConnectionPool.from_url(
            self._url,
            max_connections=self._connections,
            timeout=self._timeout_s,
            socket_timeout=self._timeout_s,
            socket_connect_timeout=self._timeout_s,
            protocol=2,
            retry=Retry(NoBackoff(), 0),  # a repeated transaction might be executed twice
        )

    async def _check(self, redis: Any) -> None:
        """Refuse a server that would lose rows, as far as it reports that. Warn if it loses rows when it restarts."""
        try:
            info = await _cancellable(redis.info())
        except ResponseError as error:  # a user without permission to ask may still read and write
            logger.info("the configuration of Redis at %s cannot be read: %s", self.place, error)
            self._checked = True
            return
        if self._checked:  # by another task
            return
        policy = str(info.get("maxmemory_policy", "noeviction"))
        if info.get("redis_mode") == "cluster":
            raise StoreError(f"Redis at {self.place} is a cluster: transactions span its slots; use a single primary")
        if int(info.get("maxmemory", 0)) and policy.startswith("allkeys"):
            raise StoreError(f"Redis at {self.place} evicts rows ({policy}): set maxmemory-policy noeviction")
        self._checked = True
        if not int(info.get("aof_enabled", 0)):
            logger.warning(
                "Redis at %s loses the writes since its last snapshot when it restarts: set appendonly yes",
                self.place,
            )

    def _error(self, what: str, error: BaseException) -> StoreError:
        return StoreError(f"Redis at {self.place}, {what}: {error or type(error).__name__}")


async def _cancellable(asking: Awaitable[T]) -> T:
    """Raise a cancellation that `asyncio.wait_for` has lost, as it can in Python 3.11. redis-py uses it to send."""
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        return await asking
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError


def _script_command(script: Script, keys: Sequence[str], asked: Sequence[str | int]) -> Command:
    return ("EVALSHA", script.sha, len(keys), *keys, *asked)


def _with_script_text(command: Command) -> Command:
    return ("EVAL", TEXTS[str(command[1])], *command[2:]) if command[0] == "EVALSHA" else command


def _describe_operation(operation: Operation) -> list[str | int]:
    """Return the operation in the form that `TRANSACT` takes."""
    when = operation.when or When()
    condition = "none" if operation.when is None else "absent" if when.absent else "there"
    reported: list[str | int] = [type(operation).__name__.lower(), operation.key.sort, condition]
    for wanted in ({}, {}, {}) if when.absent else (when.equal, when.at_least, when.below):
        reported += (len(wanted), *texts(wanted))
    match operation:
        case Put():
            reported += (len(operation.value), *texts(operation.value), 0)
        case Update():
            reported += (len(operation.set), *texts(operation.set), len(operation.add))
            for name, amount in operation.add.items():
                reported += (name, text(amount))
        case _:
            reported += (0, 0)
    return reported


def open_redis(url: str) -> RedisStateStore:
    """Return the store at a URL, with the defaults of `RedisStateStore`. It connects when it is first used."""
    return RedisStateStore(url)


def redis_streams(store: RedisStateStore, **options: Any) -> SegmentStreams:
    """Return the `StreamManager` on a Redis store: segments, as on every other store. `options` are those of
    `SegmentStreams`. Appends are one conditional put, which wakes a waiting reader."""
    return SegmentStreams(store, **options)
