"""Response caches that break one law each. The contract must detect every one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from helix.adapters.memory import MemoryStateStore
from helix.core.caching import CacheEvictionPolicy
from helix.ports.model import Question
from helix.ports.state_store import Key, Operation, StateStore, Update, Value
from helix.services.row_cache import CacheEntry, Known, RowCache


class Unhurried(MemoryStateStore):
    """A cache that lets other tasks go first at every call, as a remote store does."""

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        await asyncio.sleep(0)
        return await super().get(keys)

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await asyncio.sleep(0)
        await super().transact(name, operations)


class ForgetsTheTenant(RowCache):
    async def get(self, tenant: str, question: Question) -> CacheEntry | None:
        return await super().get("", question)

    async def put(self, tenant: str, question: Question, known: Known, ttl_s: float | None) -> None:
        await super().put("", question, known, ttl_s)


class ClearsTheNeighboursToo(RowCache):
    async def clear(self, tenant: str, *, expired_only: bool = False) -> int:
        await super().clear(f"{tenant}#b", expired_only=expired_only)
        return await super().clear(tenant, expired_only=expired_only)


class KnowsTooLittle(RowCache):
    """Leaves parts of the question out of the key."""

    async def get(self, tenant: str, question: Question) -> CacheEntry | None:
        return await super().get(tenant, replace(question, exact=""))

    async def put(self, tenant: str, question: Question, known: Known, ttl_s: float | None) -> None:
        await super().put(tenant, replace(question, exact=""), known, ttl_s)


class NeverExpires(RowCache):
    async def put(self, tenant: str, question: Question, known: Known, ttl_s: float | None) -> None:
        await super().put(tenant, question, known, None)


class CutsAnswers(RowCache):
    async def put(self, tenant: str, question: Question, known: Known, ttl_s: float | None) -> None:
        text = str(known.answer["text"])[:100_000]
        await super().put(tenant, question, replace(known, answer={**known.answer, "text": text}), ttl_s)


class KeepsTheFirst(RowCache):
    async def put(self, tenant: str, question: Question, known: Known, ttl_s: float | None) -> None:
        if await super().get(tenant, question) is None:
            await super().put(tenant, question, known, ttl_s)


class EvictsWhereOneIsReplaced(RowCache):
    """Evicts one more answer from a full cache with every answer that is replaced, as Teleon's cache does."""

    async def put(self, tenant: str, question: Question, known: Known, ttl_s: float | None) -> None:
        entries = await self.entries(tenant)
        if len(entries) >= self._max_size:
            await self._evict(tenant, len(entries))
        await super().put(tenant, question, known, ttl_s)


class _WithPolicy(RowCache):
    policy = CacheEvictionPolicy.LRU

    def __init__(self, store: StateStore, **options: Any) -> None:
        super().__init__(store, **options)
        self._policy = self.policy


class EvictsTheOldest(_WithPolicy):
    async def _note_use(self, row: Any) -> None:
        return


class EvictsTheUnused(_WithPolicy):
    policy = CacheEvictionPolicy.LFU


class EvictsTheDearest(RowCache):
    def _rank(self, value: Any) -> str:
        return super()._rank({**value, "micros": 10**9 - value["micros"]})


class EvictsTheLastToExpire(RowCache):
    def _rank(self, value: Any) -> str:
        expires = None if value["expires"] is None else 10**11 - value["expires"]
        return super()._rank({**value, "expires": expires})


class PricesNothing(RowCache):
    """Gives an answer no value if its price is unknown."""

    def _rank(self, value: Any) -> str:
        return super()._rank({**value, "input": 0, "output": 0})


class CountsTooEarly(RowCache):
    """Checks for free space, and writes a moment later."""

    def _one_more(self, tenant: str, count: Any) -> Operation:
        made: Any = super()._one_more(tenant, count)
        return replace(made, when=None)


class CountsTwice(RowCache):
    """Counts every put as one more answer, also a replacement."""

    async def put(self, tenant: str, question: Question, known: Known, ttl_s: float | None) -> None:
        there = await self._fresh(tenant, question.exact)
        await super().put(tenant, question, known, ttl_s)
        if there is not None:
            await self._store.transact(
                "twice", [Update(Key("control", f"cache#{tenant}", "count"), add={"entries": 1})]
            )


class ForgetsToCountDown(RowCache):
    """Keeps counting an answer that was removed."""

    async def _remove(self, tenant: str, indexed: Sequence[Any]) -> bool:
        removed = await super()._remove(tenant, indexed)
        if removed:
            back = Update(Key("control", f"cache#{tenant}", "count"), add={"entries": len(indexed)})
            await self._store.transact("back", [back])
        return removed


class CountsNoHits(RowCache):
    async def entries(self, tenant: str) -> Sequence[CacheEntry]:
        return [replace(entry, hits=0) for entry in await super().entries(tenant)]


class ClearsEverything(RowCache):
    async def clear(self, tenant: str, *, expired_only: bool = False) -> int:
        return await super().clear(tenant)


class TakesTheFirstThatIsAlike(RowCache):
    async def _nearest(self, tenant: str, question: Question, threshold: float) -> tuple[str, float] | None:
        found = await self.entries(tenant)
        best = await super()._nearest(tenant, question, threshold)
        return None if best is None else (min(found, key=lambda entry: entry.created_at).key, best[1])


class IgnoresTheThreshold(RowCache):
    async def _nearest(self, tenant: str, question: Question, threshold: float) -> tuple[str, float] | None:
        return await super()._nearest(tenant, question, -1)


class IgnoresTheContext(RowCache):
    """Looks only at the last message, as Teleon's SEMANTIC does."""

    async def get(self, tenant: str, question: Question) -> CacheEntry | None:
        return await super().get(tenant, replace(question, context="all"))

    async def put(self, tenant: str, question: Question, known: Known, ttl_s: float | None) -> None:
        await super().put(tenant, replace(question, context="all"), known, ttl_s)


class GuessesWithoutEmbedding(RowCache):
    def _check(self, question: Question) -> None:
        return
