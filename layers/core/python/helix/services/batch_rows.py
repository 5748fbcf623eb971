"""Keys and reads of the rows of batches (docs/protocol.md#batches).

    control  batches                <queue>            the queue
    control  batches                <queue>/<name>     a batch of the queue
    control  batch-calls#<queue>    <call>             a call that waits
    control  batch-bodies#<queue>   <call>             its request

A claim names its call as `<queue>/<call>`.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

from helix.core.batch_rows import Batch, BatchedCall, BatchQueue
from helix.core.json import JsonObject, dumps
from helix.core.session_row import SessionRow
from helix.ports.state_store import Damaged, Delete, Key, Operation, Put, StateStore, Value, When
from helix.services.paging import pages

PARTITION = "batches"
UNSENT = When(equal={"batch": None, "ended": None})
"""The condition that a call is in no batch and has not ended."""


def queue_of(queue: BatchQueue) -> str:
    """Return the name of the queue, which follows from its content."""
    return hashlib.sha256(dumps([queue.agent, queue.place]).encode()).hexdigest()[:24]


def call_id_of(session_id: str, attempt_id: str) -> str:
    """Return the id under which a provider knows the call: 40 letters and digits."""
    return hashlib.sha256(dumps([session_id, attempt_id]).encode()).hexdigest()[:40]


def queue_put(name: str, queue: BatchQueue) -> Put:
    return Put(Key("control", PARTITION, name), queue.dump())


def batch_key(queue: str, name: str) -> Key:
    return Key("control", PARTITION, f"{queue}/{name}")


def call_key(queue: str, call: str) -> Key:
    return Key("control", f"batch-calls#{queue}", call)


def body_key(queue: str, call: str) -> Key:
    return Key("control", f"batch-bodies#{queue}", call)


def key_of(reference: str) -> Key:
    """Return the key of the call that a claim names."""
    queue, _, call = reference.partition("/")
    return call_key(queue, call)


def call_puts(reference: str, call: BatchedCall, body: JsonObject) -> list[Operation]:
    """Put the call and its request."""
    queue, _, ident = reference.partition("/")
    return [Put(call_key(queue, ident), call.dump()), Put(body_key(queue, ident), {"body": body})]


def call_deletes(reference: str, when: When | None = None) -> list[Operation]:
    """Delete the call and its request, on that condition."""
    queue, _, ident = reference.partition("/")
    return [Delete(call_key(queue, ident), when), Delete(body_key(queue, ident))]


def call_taken(session: SessionRow) -> list[Operation]:
    """Return the operations that accompany the answer to the session's step. They delete its call, if that was in a
    batch."""
    claim = session.claim
    return [] if claim is None or not claim.batch else call_deletes(claim.batch)


def read_call(key: Key, value: Value) -> BatchedCall:
    return BatchedCall.read(key.partition, key.sort, value)


async def find_call(store: StateStore, reference: str) -> BatchedCall | None:
    """Return the call that a claim names. None: it is not there, so it was never sent or its answer was taken."""
    key = key_of(reference)
    (value,) = await store.get([key])
    return None if value is None else read_call(key, value)


async def find_queue(store: StateStore, reference: str) -> BatchQueue | None:
    """Return the queue of the call that a claim names. None: it is not there."""
    key = Key("control", PARTITION, reference.partition("/")[0])
    (value,) = await store.get([key])
    return None if value is None else BatchQueue.read(key.partition, key.sort, value)


async def read_queues(store: StateStore) -> tuple[dict[str, BatchQueue], dict[tuple[str, str], Batch]]:
    """Return the queues by name, and the batches by queue and name. Rows that cannot be read are left out."""
    queues: dict[str, BatchQueue] = {}
    batches: dict[tuple[str, str], Batch] = {}
    async for rows in pages(store, PARTITION):
        for row in rows:
            if isinstance(row.value, Damaged):
                continue
            queue, _, name = row.key.sort.partition("/")
            if name:
                batches[queue, name] = Batch.read(row.key.partition, row.key.sort, row.value)
            else:
                queues[queue] = BatchQueue.read(row.key.partition, row.key.sort, row.value)
    return queues, batches


async def read_calls(store: StateStore, queue: str) -> AsyncIterator[list[tuple[str, BatchedCall]]]:
    """Yield pages of the calls of a queue that wait or whose answer was not taken yet, by id."""
    async for rows in pages(store, f"batch-calls#{queue}"):
        yield [(row.key.sort, read_call(row.key, row.value)) for row in rows if not isinstance(row.value, Damaged)]
