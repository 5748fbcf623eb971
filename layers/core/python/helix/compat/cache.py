"""A response cache for code that calls models itself. Agents use `LLMConfig.response_cache` instead.

Law: the cache key includes everything that the caller passes: messages, model and every parameter. Answers that were
sampled or call tools are stored only if the cache was created with that option.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

from helix.adapters.models.catalog import LitellmCatalog
from helix.adapters.system import SystemClock
from helix.core.caching import CacheEvictionPolicy, CacheStrategy, check_strategy, digest
from helix.core.errors import InvalidInputError
from helix.core.json import JsonValue
from helix.ports.catalog import ModelCatalog
from helix.ports.clock import Clock
from helix.ports.model import Question
from helix.ports.state_store import StateStore
from helix.runtime.stores import MEMORY, open_store
from helix.services.embeddings import Embed
from helix.services.row_cache import CacheEntry, Known, RowCache
from helix.workers.tasks import end_tasks

Chat = Sequence[Mapping[str, Any]]
Parameters = Mapping[str, Any]
DEFAULT_SIZE = 1000
KindT = TypeVar("KindT", bound=StrEnum)


class AnswerCache:
    """A cache of at most `max_size` answers, created by `create_cache`.

    default_ttl: seconds; None keeps answers until they are evicted.
    store: the store of the answers. Default: this process's memory.
    tenant: isolates the entries of different tenants in one store.
    embedding, threshold: for `SEMANTIC`.
    sampled, tool_calls: whether to store answers of these kinds, too.
    catalog: prices, for the savings of a hit.

    This object counts hits, misses and dollars; the entries are in the store. Raises `InvalidInputError` for a strategy
    that would return wrong answers, for `SEMANTIC` without an embedding function, and for numbers out of range.
    """

    def __init__(
        self,
        max_size: int = DEFAULT_SIZE,
        strategy: CacheStrategy | str = CacheStrategy.EXACT,
        eviction_policy: CacheEvictionPolicy | str = CacheEvictionPolicy.LRU,
        default_ttl: float | None = None,
        *,
        store: StateStore | None = None,
        tenant: str = "",
        embedding: Embed | None = None,
        threshold: float = 0.95,
        sampled: bool = False,
        tool_calls: bool = False,
        catalog: ModelCatalog | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._strategy = check_strategy(_parse_enum(CacheStrategy, strategy))
        self._policy = _parse_enum(CacheEvictionPolicy, eviction_policy)
        semantic = self._strategy is CacheStrategy.SEMANTIC
        if semantic and embedding is None:
            raise InvalidInputError(
                "cache strategy 'semantic' needs an embedding function: give `embedding`, or use 'exact'"
            )
        if not 0 < threshold <= 1:
            raise InvalidInputError(f"threshold is {threshold}: it must be above 0 and at most 1")
        self._ttl = None if default_ttl is None else _check_above_zero("default_ttl", default_ttl)
        self._threshold, self._max_size = threshold if semantic else None, max_size
        self._tenant, self._sampled, self._tool_calls = f"calls:{tenant}", sampled, tool_calls
        self._clock, self._catalog = clock or SystemClock(), catalog or LitellmCatalog()
        where: dict[str, Any] = {"embed": embedding if semantic else None, "clock": self._clock}
        self._rows = RowCache(store or open_store(MEMORY), max_size=max_size, policy=self._policy, **where)
        self._counts: Counter[str] = Counter()
        self._cleanup: asyncio.Task[None] | None = None

    async def get(self, messages: Chat, model: str, parameters: Parameters | None = None) -> JsonValue:
        """Return the answer that was passed to `set`. None if it is not stored or has expired."""
        found = await self._rows.get(self._tenant, self._question(messages, model, parameters))
        if found is None:
            self._counts["misses"] += 1
            return None
        known = found.known
        self._counts.update(hits=1, saved_tokens=known.input_tokens + known.output_tokens, micros=known.micros)
        return known.answer["answer"]

    async def set(
        self,
        messages: Chat,
        model: str,
        response: JsonValue,
        parameters: Parameters | None = None,
        input_tokens: int = 0,
        output_tokens: int = 0,
        ttl: float | None = None,
    ) -> bool:
        """Store an answer for `ttl` seconds (default: `default_ttl`). Its tokens determine the savings of a hit. Returns
        False without storing it if the answer was sampled or calls tools and the cache does not store such answers. Raises
        `InvalidInputError` for a ttl that is not greater than 0."""
        lasting = self._ttl if ttl is None else _check_above_zero("ttl", ttl)
        if not self._may_store(response, parameters or {}):
            return False
        dollars = self._catalog.info(model).cost_usd(input_tokens, output_tokens) or 0
        known = Known({"answer": response}, model, input_tokens, output_tokens, round(dollars * 1_000_000))
        await self._rows.put(self._tenant, self._question(messages, model, parameters), known, lasting)
        return True

    def get_hit_rate(self) -> float:
        """Return the hit rate (0 to 1) of this object's lookups, or 0 before the first."""
        asked = self._counts["hits"] + self._counts["misses"]
        return self._counts["hits"] / asked if asked else 0.0

    async def get_statistics(self) -> dict[str, Any]:
        """Return the cache's statistics. `saved_usd` is the list price of the reused answers."""
        return {
            "size": len(await self._rows.entries(self._tenant)),
            "max_size": self._max_size,
            "strategy": str(self._strategy),
            "eviction_policy": str(self._policy),
            "hit_rate": self.get_hit_rate(),
            **{name: self._counts[name] for name in ("hits", "misses", "saved_tokens")},
            "saved_usd": self._counts["micros"] / 1_000_000,
        }

    async def get_top_entries(self, limit: int = 10) -> list[CacheEntry]:
        """Return the most reused entries, most often reused first."""
        entries = await self._rows.entries(self._tenant)
        return sorted(entries, key=lambda entry: (-entry.hits, entry.created_at))[:limit]

    async def clear(self) -> int:
        """Remove all entries and return their number. The counts of hits and misses are reset."""
        self._counts.clear()
        return await self._rows.clear(self._tenant)

    async def clear_expired(self) -> int:
        """Remove expired entries and return their number. Expired entries are never returned, even if this is not
        called."""
        return await self._rows.clear(self._tenant, expired_only=True)

    def start_cleanup_task(self, interval: float = 300) -> asyncio.Task[None]:
        """Remove expired entries every `interval` seconds, until `stop_cleanup_task`. There is one task at a time; a second
        call returns the existing one."""
        _check_above_zero("interval", interval)
        if self._cleanup is None or self._cleanup.done():
            self._cleanup = asyncio.get_running_loop().create_task(self._clean(interval), name="helix:cache-cleanup")
        return self._cleanup

    async def stop_cleanup_task(self) -> None:
        task, self._cleanup = self._cleanup, None
        if task is not None:
            await end_tasks(task)

    async def _clean(self, interval: float) -> None:
        while True:
            await self._clock.sleep(interval)
            await self.clear_expired()

    def _question(self, messages: Chat, model: str, parameters: Parameters | None) -> Question:
        plain = [dict(message) for message in messages]
        around = {"call": model, "parameters": dict(parameters or {})}
        exact = digest({**around, "messages": plain})
        last = plain[-1] if plain else {}
        text = last.get("content")
        threshold = self._threshold
        if threshold is None or last.get("role") != "user" or not isinstance(text, str):
            return Question(exact)
        context = digest({**around, "messages": plain[:-1], "last": {**last, "content": None}})
        return Question(exact, threshold, context, text)

    def _may_store(self, response: JsonValue, parameters: Parameters) -> bool:
        sampled = parameters.get("temperature") not in (None, 0)
        return (self._sampled or not sampled) and (self._tool_calls or not _calls_tools(response))


@dataclass(frozen=True, slots=True)
class CacheWarmer:
    """Fills a cache before it is used."""

    cache: AnswerCache
    """The cache to fill."""
    call: Callable[[Chat, str], Awaitable[tuple[JsonValue, int, int]]]
    """A function `call(messages, model)` that returns an answer, its input tokens and its output tokens."""

    async def warm(self, questions: Iterable[Chat], model: str, parameters: Parameters | None = None) -> int:
        """Ask the questions that are not cached yet, one by one, and return how many were asked. An error of `call` is
        raised and stops the warming."""
        asked = 0
        for messages in questions:
            if await self.cache.get(messages, model, parameters) is None:
                answer, input_tokens, output_tokens = await self.call(messages, model)
                await self.cache.set(messages, model, answer, parameters, input_tokens, output_tokens)
                asked += 1
        return asked


create_cache = AnswerCache


@cache
def get_response_cache() -> AnswerCache:
    """Return the process-wide in-memory cache."""
    return create_cache()


def _parse_enum(kind: type[KindT], value: KindT | str) -> KindT:
    try:
        return kind(value)
    except ValueError:
        raise InvalidInputError(f"{value!r} is not a {kind.__name__}; use one of {', '.join(kind)}") from None


def _calls_tools(response: JsonValue) -> bool:
    """Return whether an answer in a provider's format, or its message, contains tool calls."""
    if not isinstance(response, dict):
        return False
    choices: Any = response.get("choices") or []
    messages: list[Any] = [choice.get("message") or {} for choice in choices if isinstance(choice, dict)]
    return any(part.get("tool_calls") or part.get("function_call") for part in [response, *messages])


def _check_above_zero(name: str, value: float) -> float:
    if not 0 < value < float("inf"):
        raise InvalidInputError(f"{name} is {value}: it must be a number above 0")
    return value
