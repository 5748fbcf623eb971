"""The response cache as rows of any state store, one partition per tenant.

    e#<digest>            an entry; `rank` says where its index row is
    i#<rank>#<digest>     one index row per entry, in the order of eviction
    v#<context>#<digest>  the question's vector, for questions that may be worded differently
    count                 the number of index rows

Law: `count` is the number of index rows, because every transaction that adds or removes one changes it. Eviction
follows the rank, so a recent use protects an entry. A lookup reads one row and a hit moves one index row, however full
the cache is. Only `entries` and `clear` read the whole tenant. A table's own TTL may remove entries but leave their
index rows, which are evicted in due course.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helix.core.caching import CacheEvictionPolicy
from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject
from helix.ports.clock import Clock
from helix.ports.model import Question
from helix.ports.state_store import ABSENT, Delete, Key, Operation, Put, Row, StateStore, Update, Value, When
from helix.services.committing import refused
from helix.services.embeddings import Embed, Vectors, find_nearest, pack_vector

DEFAULT_SIZE = 10_000
PUT_TRIES = 200
"""The number of refusals after which an answer is not stored. The only cost is a cache miss."""
TRIES = 4
"""The number of attempts to count a hit. If many hits conflict, a lost count does no harm."""
PAGE = 24
NEVER = 10**18 - 1


@dataclass(frozen=True, slots=True)
class Known:
    """An answer and its cost."""

    answer: JsonObject
    """The answer as JSON, in the form that the caller stored."""
    model: str
    """The model that produced the answer."""
    input_tokens: int = 0
    """The input tokens of the call, which a hit saves."""
    output_tokens: int = 0
    """The output tokens of the call."""
    micros: int = 0
    """The cost of the call in millionths of a US dollar. 0 if the price is not known."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A stored answer. Times are in Unix seconds."""

    key: str
    """The digest of the exact question."""
    known: Known
    """The answer and its cost."""
    created_at: float
    """The time when the answer was stored."""
    used_at: float
    """The time of the last hit before this lookup. Before the first hit, it is the time when the answer was stored."""
    expires_at: float | None
    """The time when the answer expires. None if it never expires."""
    hits: int = 0
    """The number of hits before this lookup."""
    similarity: float = 1.0
    """The cosine similarity of the question and the stored one. 1 for the exact question."""


class RowCache:
    """A response cache. Tenants never see each other's entries, and an entry is stored completely or not at all.

    An expired answer is never returned, however late it is removed. A tenant has at most `max_size` entries, however
    many callers write at once. `policy` is the eviction policy. `embed` turns strings into vectors, for questions that
    may be worded differently. Raises `InvalidInputError` for a size below 1.
    """

    def __init__(
        self,
        store: StateStore,
        *,
        max_size: int = DEFAULT_SIZE,
        policy: CacheEvictionPolicy = CacheEvictionPolicy.LRU,
        embed: Embed | None = None,
        clock: Clock,
    ) -> None:
        if max_size < 1:
            raise InvalidInputError(f"max_size is {max_size}: it must be at least 1")
        self._store = store
        self._max_size = max_size
        self._policy = policy
        self._vectors = None if embed is None else Vectors(embed)
        self._clock = clock

    async def get(self, tenant: str, question: Question) -> CacheEntry | None:
        """Return the answer to exactly this question. With a threshold, fall back to the most similar question in the
        same context. A hit counts as a use of the entry. Raises `InvalidInputError` for a threshold without an
        embedding function."""
        self._check(question)
        found = await self._fresh(tenant, question.exact)
        similarity = 1.0
        if found is None and question.threshold is not None:
            near = await self._nearest(tenant, question, question.threshold)
            if near is not None:
                digest, similarity = near
                found = await self._fresh(tenant, digest)
        if found is None:
            return None
        await self._note_use(found)
        return _entry(found, similarity)

    async def put(self, tenant: str, question: Question, known: Known, ttl_s: float | None) -> None:
        """Store the answer for `ttl_s` seconds (None: it never expires). It replaces an earlier answer to the same
        question. A full cache evicts exactly one entry, or none if the answer replaces another."""
        self._check(question)
        now = self._clock.now()
        expires = None if ttl_s is None else now + ttl_s
        vector = None
        if self._vectors is not None and question.threshold is not None:
            vector = await self._vectors.of(question.text)
        value: Value = {
            "answer": known.answer,
            "model": known.model,
            "input": known.input_tokens,
            "output": known.output_tokens,
            "micros": known.micros,
            "at": now,
            "used": now,
            "expires": expires,
            "hits": 0,
            "context": "" if vector is None else question.context,
        }
        value["rank"] = self._rank(value)
        key = _key(tenant, f"e#{question.exact}")
        ops: list[Operation] = []
        if vector is not None:
            row = {"vector": pack_vector(vector), "expires": expires}
            ops.append(Put(_vector_key(tenant, question.context, question.exact), _lasting(row, expires)))
        for _ in range(PUT_TRIES):
            old, count = await self._store.get([key, _count(tenant)])
            if old is None and count is not None and count["entries"] >= self._max_size:
                await self._evict(tenant, count["entries"])
                continue
            if vector is None and old is not None:
                value["context"] = old["context"]  # the entry keeps its stored vector
            when = ABSENT if old is None else When(equal={"rank": old["rank"]})
            written: list[Operation] = [Put(key, _lasting(value, expires), when), *ops]
            index = _index(tenant, value["rank"], question.exact)
            written.append(Put(index, {"digest": question.exact, "expires": expires}))
            if old is None:
                written.append(self._one_more(tenant, count))
            elif old["rank"] != value["rank"]:
                written.append(_unindex(tenant, old["rank"], question.exact))
            if await refused(self._store, "cache_put", written) is None:
                return

    async def entries(self, tenant: str) -> Sequence[CacheEntry]:
        """Return all entries that have not expired. This reads the whole tenant, so it is meant for interactive use and
        reports."""
        now = self._clock.now()
        rows = await self._store.query("control", _partition(tenant), start="e#", end="e$")
        return [_entry(row) for row in rows if not _expired(row.value, now)]

    async def clear(self, tenant: str, *, expired_only: bool = False) -> int:
        """Remove all entries of the tenant, or only the expired ones. Return their number."""
        now, removed, start = self._clock.now(), 0, "i#"
        while True:
            rows = await self._store.query("control", _partition(tenant), start=start, end="i$", limit=PAGE)
            if not rows:
                return removed
            going = [row for row in rows if not expired_only or _expired(row.value, now)]
            if going and not await self._remove(tenant, going):
                continue  # some were used in the meantime and have moved: read again
            removed += len(going)
            start = rows[-1].key.sort + "\x00"

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _fresh(self, tenant: str, digest: str) -> Row | None:
        """Return the entry, or remove it if it has expired."""
        key = _key(tenant, f"e#{digest}")
        (value,) = await self._store.get([key])
        if value is None:
            return None
        if _expired(value, self._clock.now()):
            await self._remove(tenant, [Row(_index(tenant, value["rank"], digest), {"digest": digest})])
            return None
        return Row(key, value)

    async def _nearest(self, tenant: str, question: Question, threshold: float) -> tuple[str, float] | None:
        vector = None if self._vectors is None else await self._vectors.of(question.text)
        if vector is None:
            return None
        prefix = f"v#{question.context}"
        rows = await self._store.query("control", _partition(tenant), start=f"{prefix}#", end=f"{prefix}$")
        now = self._clock.now()
        others = ((_digest(row.key), row.value["vector"]) for row in rows if not _expired(row.value, now))
        return find_nearest(vector, others, threshold)

    async def _note_use(self, row: Row) -> None:
        """Count one hit, and move the entry to its new rank."""
        tenant, digest = row.key.partition.partition("#")[2], _digest(row.key)
        value: Value | None = row.value
        for _ in range(TRIES):
            if value is None:
                return
            after = {"hits": value["hits"] + 1, "used": self._clock.now()}
            rank = self._rank({**value, **after})
            ops: list[Operation] = [
                Update(
                    row.key,
                    set={**after, "rank": rank},
                    when=When(equal={"rank": value["rank"], "hits": value["hits"]}),
                )
            ]
            if rank != value["rank"]:
                ops.append(_unindex(tenant, value["rank"], digest))
                ops.append(Put(_index(tenant, rank, digest), {"digest": digest, "expires": value["expires"]}))
            if await refused(self._store, "cache_use", ops) is None:
                return
            (value,) = await self._store.get([row.key])

    # --- evicting -----------------------------------------------------------------------------------------------------

    async def _evict(self, tenant: str, counted: int) -> None:
        rows = await self._store.query("control", _partition(tenant), start="i#", end="i$", limit=1)
        if rows:
            await self._remove(tenant, rows)
            return
        # Index rows were removed by hand, so the count is too high. Without a correction, every put would wait forever.
        recount = Put(_count(tenant), {"entries": 0}, When(equal={"entries": counted}))
        await refused(self._store, "cache_recount", [recount])

    async def _remove(self, tenant: str, indexed: Sequence[Row]) -> bool:
        """Remove these index rows, and the entries that still have these ranks. False if an index row was already
        gone."""
        digests = [row.value["digest"] for row in indexed]
        values = await self._store.get([_key(tenant, f"e#{digest}") for digest in digests])
        ops: list[Operation] = [Update(_count(tenant), add={"entries": -len(indexed)})]
        for row, digest, value in zip(indexed, digests, values, strict=True):
            ops.append(Delete(row.key, When(equal={"digest": digest})))
            if value is not None and _index(tenant, value["rank"], digest) == row.key:
                ops.append(Delete(_key(tenant, f"e#{digest}"), When(equal={"rank": value["rank"]})))
                if value["context"]:
                    ops.append(Delete(_vector_key(tenant, value["context"], digest)))
        return await refused(self._store, "cache_remove", ops) is None

    def _one_more(self, tenant: str, count: Value | None) -> Operation:
        if count is None:
            return Put(_count(tenant), {"entries": 1}, ABSENT)
        return Update(_count(tenant), add={"entries": 1}, when=When(below={"entries": self._max_size}))

    def _rank(self, value: Value) -> str:
        """Return the entry's rank in the eviction order; the lowest rank is evicted first. Numbers are padded, so that
        they sort correctly as strings."""
        used = f"{int(value['used'] * 1_000_000):018d}"
        match self._policy:
            case CacheEvictionPolicy.LRU:
                return used
            case CacheEvictionPolicy.LFU:
                return f"{value['hits']:012d}.{used}"
            case CacheEvictionPolicy.COST_BASED:
                saves = value["micros"] or value["input"] + value["output"]
                return f"{saves:018d}.{int(value['at'] * 1_000_000):018d}"
            case CacheEvictionPolicy.TTL:
                expires = NEVER if value["expires"] is None else int(value["expires"] * 1_000_000)
                return f"{expires:018d}.{int(value['at'] * 1_000_000):018d}"

    def _check(self, question: Question) -> None:
        if question.threshold is not None and self._vectors is None:
            raise InvalidInputError(
                "cache strategy 'semantic' needs an embedding function: give the cache one, or use 'exact'"
            )


def _partition(tenant: str) -> str:
    return f"cache#{tenant}"


def _key(tenant: str, sort: str) -> Key:
    return Key("control", _partition(tenant), sort)


def _count(tenant: str) -> Key:
    return _key(tenant, "count")


def _index(tenant: str, rank: str, digest: str) -> Key:
    return _key(tenant, f"i#{rank}#{digest}")


def _vector_key(tenant: str, context: str, digest: str) -> Key:
    return _key(tenant, f"v#{context}#{digest}")


def _unindex(tenant: str, rank: str, digest: str) -> Delete:
    return Delete(_index(tenant, rank, digest), When(equal={"digest": digest}))


def _digest(key: Key) -> str:
    return key.sort.rpartition("#")[2]


def _expired(value: Value, now: float) -> bool:
    return value["expires"] is not None and value["expires"] <= now


def _lasting(value: Value, expires: float | None) -> Value:
    """Add the TTL attribute by which a table deletes rows itself. It is one day late, so that clock skew does not
    matter."""
    return value if expires is None else {**value, "ttl": int(expires) + 86_400}


def _entry(row: Row, similarity: float = 1.0) -> CacheEntry:
    value = row.value
    return CacheEntry(
        key=_digest(row.key),
        known=Known(value["answer"], value["model"], value["input"], value["output"], value["micros"]),
        created_at=value["at"],
        used_at=value["used"],
        expires_at=value["expires"],
        hits=value["hits"],
        similarity=similarity,
    )
