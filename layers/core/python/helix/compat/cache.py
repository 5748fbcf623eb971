"""A cache of answers for code that calls models itself; agents have theirs in `LLMConfig.response_cache`.

Law: the key is made of everything the caller gives: messages, model and every parameter. What is sampled or calls tools is
kept only where the cache is made to.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

from helix.core.caching import CacheEvictionPolicy, CacheStrategy, check_strategy, digest
from helix.core.errors import InvalidInputError
from helix.core.json import JsonValue
from helix.ports.catalog import ModelCatalog
from helix.ports.clock import Clock
from helix.ports.model import Question
from helix.ports.state_store import StateStore
from helix.runtime.catalog import LitellmCatalog
from helix.runtime.local import open_store
from helix.runtime.system import SystemClock
from helix.services.nearest import Embed
from helix.services.row_cache import CacheEntry, Known, RowCache
from helix.workers.tasks import end_tasks

Chat = Sequence[Mapping[str, Any]]
Parameters = Mapping[str, Any]
DEFAULT_SIZE = 1000
KindT = TypeVar("KindT", bound=StrEnum)


class AnswerCache:
    """A cache of at most `max_size` answers, as `create_cache` makes it.

    default_ttl: seconds; None keeps answers until they are evicted. store: where the answers are; default this process's
    memory. tenant: caches of two tenants in one store share nothing. embedding, threshold: for `SEMANTIC`. sampled,
    tool_calls: also keep such answers. catalog: prices, for what a hit saves. Counts of hits, misses and dollars are this
    object's own; entries are the store's. Raises `InvalidInputError` for a strategy that answers wrongly, for `SEMANTIC`
    without an embedding function, and for numbers out of range.
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
        self._strategy = check_strategy(_named(CacheStrategy, strategy))
        self._policy = _named(CacheEvictionPolicy, eviction_policy)
        semantic = self._strategy is CacheStrategy.SEMANTIC
        if semantic and embedding is None:
            raise InvalidInputError(
                "cache strategy 'semantic' needs an embedding function: give `embedding`, or use 'exact'"
            )
        if not 0 < threshold <= 1:
            raise InvalidInputError(f"threshold is {threshold}: it must be above 0 and at most 1")
        self._ttl = None if default_ttl is None else _above_zero("default_ttl", default_ttl)
        self._threshold, self._max_size = threshold if semantic else None, max_size
        self._tenant, self._sampled, self._tool_calls = f"calls:{tenant}", sampled, tool_calls
        self._clock, self._catalog = clock or SystemClock(), catalog or LitellmCatalog()
        where: dict[str, Any] = {"embed": embedding if semantic else None, "clock": self._clock}
        self._rows = RowCache(store or open_store(":memory:"), max_size=max_size, policy=self._policy, **where)
        self._counts: Counter[str] = Counter()
        self._cleanup: asyncio.Task[None] | None = None

    async def get(self, messages: Chat, model: str, parameters: Parameters | None = None) -> JsonValue:
        """The answer as it was given to `set`; None where there is none, or it has expired."""
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
        """Keep an answer for `ttl` seconds (default: the cache's own). The tokens it took say what a hit saves. False, and
        nothing kept, where it was sampled or calls tools and the cache does not keep such answers. Raises
        `InvalidInputError` for a ttl that is not above 0."""
        lasting = self._ttl if ttl is None else _above_zero("ttl", ttl)
        if not self._wanted(response, parameters or {}):
            return False
        dollars = self._catalog.info(model).cost_usd(input_tokens, output_tokens) or 0
        known = Known({"answer": response}, model, input_tokens, output_tokens, round(dollars * 1_000_000))
        await self._rows.put(self._tenant, self._question(messages, model, parameters), known, lasting)
        return True

    def get_hit_rate(self) -> float:
        """0 to 1 of this object's look-ups; 0 before the first."""
        asked = self._counts["hits"] + self._counts["misses"]
        return self._counts["hits"] / asked if asked else 0.0

    async def get_statistics(self) -> dict[str, Any]:
        """`saved_usd` is what the answers that were given again had cost, by list price."""
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
        """Those that were given again most often first."""
        entries = await self._rows.entries(self._tenant)
        return sorted(entries, key=lambda entry: (-entry.hits, entry.created_at))[:limit]

    async def clear(self) -> int:
        """Remove all; how many they were. The counts of hits and misses start anew."""
        self._counts.clear()
        return await self._rows.clear(self._tenant)

    async def clear_expired(self) -> int:
        """Remove what has expired; how many they were. Nothing expired is ever given, with or without it."""
        return await self._rows.clear(self._tenant, expired_only=True)

    def start_cleanup_task(self, interval: float = 300) -> asyncio.Task[None]:
        """Remove what has expired every `interval` seconds, until `stop_cleanup_task`. One at a time: a second call answers
        the task that is there."""
        _above_zero("interval", interval)
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

    def _wanted(self, response: JsonValue, parameters: Parameters) -> bool:
        sampled = parameters.get("temperature") not in (None, 0)
        return (self._sampled or not sampled) and (self._tool_calls or not _calls_tools(response))


@dataclass(frozen=True, slots=True)
class CacheWarmer:
    """Fills a cache before it is asked: `call(messages, model)` gives an answer and its tokens."""

    cache: AnswerCache
    call: Callable[[Chat, str], Awaitable[tuple[JsonValue, int, int]]]

    async def warm(self, questions: Iterable[Chat], model: str, parameters: Parameters | None = None) -> int:
        """Ask for what is not there yet, one after the other; how many were asked for. What `call` raises ends it."""
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
    """This process's cache, in its memory."""
    return create_cache()


def _named(kind: type[KindT], value: KindT | str) -> KindT:
    try:
        return kind(value)
    except ValueError:
        raise InvalidInputError(f"{value!r} is no {kind.__name__}: there are {', '.join(kind)}") from None


def _calls_tools(response: JsonValue) -> bool:
    """Whether an answer as providers give it, or its message, asks for tools."""
    if not isinstance(response, dict):
        return False
    choices: Any = response.get("choices") or []
    messages: list[Any] = [choice.get("message") or {} for choice in choices if isinstance(choice, dict)]
    return any(part.get("tool_calls") or part.get("function_call") for part in [response, *messages])


def _above_zero(name: str, value: float) -> float:
    if not 0 < value < float("inf"):
        raise InvalidInputError(f"{name} is {value}: it must be a number above 0")
    return value
