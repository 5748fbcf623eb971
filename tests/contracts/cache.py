"""Contract of `RowCache`: a lookup gives the right answer or none, and the size limit holds under concurrent callers."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pytest

from helix.core.caching import CacheEvictionPolicy
from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject
from helix.ports.clock import Clock
from helix.ports.model import Question
from helix.services.embeddings import Embed
from helix.services.row_cache import CacheEntry, Known, RowCache

T = "tenant"


@dataclass
class Steps:
    """A clock that advances by a second at each reading. It is ahead of real time so that no store expires rows by it."""

    at: float = 4_000_000_000.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        self.at += 1
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class MakeCache(Protocol):
    """A factory of caches. Each call returns the cache of one more process on the same data."""

    def __call__(
        self,
        *,
        max_size: int = ...,
        policy: CacheEvictionPolicy = ...,
        embed: Embed | None = ...,
        clock: Clock | None = ...,
    ) -> RowCache: ...


def asked(name: str, threshold: float | None = None, context: str = "c", text: str = "") -> Question:
    def digest(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    if threshold is None:
        return Question(digest(name))
    return Question(digest(f"{context}/{text or name}"), threshold, digest(context), text or name)


def known(text: str, micros: int = 0, tokens: int = 0) -> Known:
    return Known({"text": text}, "model", tokens, 1, micros)


async def given(cache: RowCache, name: str, tenant: str = T) -> str | None:
    found = await cache.get(tenant, asked(name))
    return None if found is None else str(found.known.answer["text"])


async def directions(texts: Sequence[str]) -> list[list[float]]:
    """Embed the text of an angle in degrees as a vector of that direction."""
    from math import cos, pi, sin

    angles = [float(text) * pi / 180 for text in texts]
    return [[3 * cos(angle), 3 * sin(angle)] for angle in angles]


class ResponseCacheContract:
    """Expects the fixture `make_cache`."""

    pytestmark = pytest.mark.asyncio

    async def test_what_was_stored_is_given(self, make_cache: MakeCache) -> None:
        """The whole answer and its usage are returned to every caller, even if the answer is large or has unusual
        characters."""
        cache = make_cache(clock=Steps())
        answer: JsonObject = {"text": "é\u0000" + "x" * 500_000, "n": [1, 2.5, None, {"a": []}]}
        assert await cache.get(T, asked("q")) is None
        await cache.put(T, asked("q"), Known(answer, "m", 3, 4, 5), None)
        found = await make_cache(clock=Steps()).get(T, asked("q"))
        assert found is not None and found.known == Known(answer, "m", 3, 4, 5)
        assert found.similarity == 1 and found.expires_at is None

    async def test_another_question_is_not_known(self, make_cache: MakeCache) -> None:
        cache = make_cache(clock=Steps())
        await cache.put(T, asked("q"), known("a"), 100)
        assert await given(cache, "Q") is None
        assert await given(cache, "q") == "a"

    async def test_tenants_see_nothing_of_each_other(self, make_cache: MakeCache) -> None:
        """One tenant's full cache or clearing does not affect another tenant."""
        cache = make_cache(max_size=1, clock=Steps())
        await cache.put("a", asked("q"), known("of a"), None)
        await cache.put("a#b", asked("q"), known("of a#b"), None)
        assert await given(cache, "q", "b") is None
        assert (await given(cache, "q", "a"), await given(cache, "q", "a#b")) == ("of a", "of a#b")
        assert await cache.clear("a") == 1
        assert (await given(cache, "q", "a"), await given(cache, "q", "a#b")) == (None, "of a#b")

    async def test_what_has_expired_is_never_given(self, make_cache: MakeCache) -> None:
        """An expired answer is not returned, whether or not it was removed yet, and its question can be stored again."""
        clock = Steps()
        cache = make_cache(clock=clock)
        await cache.put(T, asked("q"), known("old"), 50)
        assert await given(cache, "q") == "old"
        clock.at += 50
        assert not await cache.entries(T)
        assert await given(cache, "q") is None
        await cache.put(T, asked("q"), known("new"), 50)
        assert await given(cache, "q") == "new"

    async def test_a_later_answer_takes_the_place(self, make_cache: MakeCache) -> None:
        """A new answer replaces the one of the same question without evicting another entry, and its TTL starts anew."""
        clock = Steps()
        cache = make_cache(max_size=2, clock=clock)
        await cache.put(T, asked("r"), known("other"), None)
        await cache.put(T, asked("q"), known("first"), 10)
        await cache.put(T, asked("q"), known("second"), 1000)
        clock.at += 100
        assert (await given(cache, "q"), await given(cache, "r")) == ("second", "other")

    @pytest.mark.parametrize(
        ("policy", "uses", "goes"),
        [
            (CacheEvictionPolicy.LRU, "bacd", "b"),
            (CacheEvictionPolicy.LFU, "aabbddc", "c"),
            (CacheEvictionPolicy.COST_BASED, "aacd", "a"),
            (CacheEvictionPolicy.TTL, "dda", "d"),
        ],
    )
    async def test_who_goes_where_it_is_full(
        self, make_cache: MakeCache, policy: CacheEvictionPolicy, uses: str, goes: str
    ) -> None:
        """LRU evicts b (unused for longest), LFU c (used least), COST_BASED a (saves least) and TTL d (expires first)."""
        cache = make_cache(max_size=4, policy=policy, clock=Steps())
        for name, micros, ttl_s in [("a", 1, 900), ("b", 9, None), ("c", 5, 800), ("d", 7, 700)]:
            await cache.put(T, asked(name), known(name, micros), ttl_s)
        for name in uses:
            assert await given(cache, name) == name
        await cache.put(T, asked("e"), known("e", 100), 1000)
        left = {str(entry.known.answer["text"]) for entry in await cache.entries(T)}
        assert left == set("abcde") - {goes}

    async def test_tokens_stand_for_an_unknown_price(self, make_cache: MakeCache) -> None:
        """If no price is known, the answer with the fewest tokens is evicted."""
        cache = make_cache(max_size=2, policy=CacheEvictionPolicy.COST_BASED, clock=Steps())
        await cache.put(T, asked("long"), known("long", tokens=900), None)
        await cache.put(T, asked("short"), known("short", tokens=9), None)
        await cache.put(T, asked("third"), known("third", tokens=90), None)
        assert (await given(cache, "long"), await given(cache, "short")) == ("long", None)

    async def test_hits_are_counted(self, make_cache: MakeCache) -> None:
        cache = make_cache(clock=Steps())
        await cache.put(T, asked("q"), known("a"), None)
        for _ in range(3):
            await given(cache, "q")
        (entry,) = await cache.entries(T)
        assert entry.hits == 3 and entry.used_at > entry.created_at

    async def test_the_size_holds_whoever_writes_at_once(self, make_cache: MakeCache) -> None:
        """Sixteen writers on two caches never exceed the size, and a full cache stays full."""
        caches = [make_cache(max_size=5), make_cache(max_size=5)]
        names = [f"q{n}" for n in range(16)]
        await asyncio.gather(*(caches[n % 2].put(T, asked(name), known(name), 100) for n, name in enumerate(names)))
        entries = await caches[0].entries(T)
        assert len(entries) == 5
        assert {str(e.known.answer["text"]) for e in entries} <= set(names)
        await caches[1].put(T, asked("one more"), known("one more"), 100)
        assert len(await caches[0].entries(T)) == 5

    async def test_writers_of_one_question_leave_one_entry(self, make_cache: MakeCache) -> None:
        """Concurrent answers to one question take one place, so the cache can hold another entry."""
        caches = [make_cache(max_size=2), make_cache(max_size=2)]
        for _ in range(2):
            await asyncio.gather(*(caches[n % 2].put(T, asked("q"), known(f"a{n}"), 100) for n in range(8)))
        assert len(await caches[0].entries(T)) == 1
        await caches[0].put(T, asked("r"), known("b"), 100)
        assert await given(caches[1], "q") in {f"a{n}" for n in range(8)}
        assert await given(caches[1], "r") == "b"

    async def test_an_entry_is_whole_or_not_there(self, make_cache: MakeCache) -> None:
        """Concurrent readers and writers and a clear of a small cache: each question gets its own answer or none."""
        clock = Steps()  # no two uses have the same time, so the oldest is always one entry
        caches = [make_cache(max_size=3, clock=clock), make_cache(max_size=3, clock=clock)]

        async def use(cache: RowCache, start: int) -> None:
            for step in range(8):
                name = f"q{(start + step) % 6}"
                assert await given(cache, name) in (name, None)
                await cache.put(T, asked(name), known(name), 10_000)
                assert await given(cache, name) in (name, None)

        await asyncio.gather(*(use(caches[n % 2], n) for n in range(6)), caches[0].clear(T))
        assert len(await caches[0].entries(T)) <= 3
        for name in ("x", "y", "z"):  # its count is still right
            await caches[1].put(T, asked(name), known(name), 10_000)
        assert [await given(caches[0], name) for name in ("x", "y", "z")] == ["x", "y", "z"]
        assert len(await caches[0].entries(T)) == 3

    async def test_clearing(self, make_cache: MakeCache) -> None:
        """Clearing removes all or only expired entries, returns their number and frees their places."""
        clock = Steps()
        cache = make_cache(max_size=60, clock=clock)
        for n in range(60):
            await cache.put(T, asked(f"q{n}"), known("a"), 10_000 if n % 2 else 100)
        clock.at += 200
        assert await cache.clear(T, expired_only=True) == 30
        assert await cache.clear(T, expired_only=True) == 0
        assert {e.expires_at is not None and e.expires_at > clock.at for e in await cache.entries(T)} == {True}
        assert await cache.clear(T) == 30
        assert not await cache.entries(T)
        for n in range(60):
            await cache.put(T, asked(f"r{n}"), known("a"), None)
        assert len(await cache.entries(T)) == 60

    async def test_a_question_may_be_worded_otherwise(self, make_cache: MakeCache) -> None:
        """The most similar question of the same context is found if it reaches the threshold. An exact match is
        preferred."""
        cache = make_cache(embed=directions, clock=Steps())
        for angle in ("0", "30", "90"):
            await cache.put(T, asked("", 0.9, text=angle), known(angle), None)
        found = await cache.get(T, asked("", 0.9, text="20"))
        assert found is not None and found.known.answer == {"text": "30"}
        assert 0.984 < found.similarity < 0.986
        assert await cache.get(T, asked("", 0.99, text="20")) is None
        assert await cache.get(T, asked("", 0.9, text="60")) is None
        same = await cache.get(T, asked("", 0.9, text="0"))
        assert same is not None and same.similarity == 1 and same.known.answer == {"text": "0"}

    async def test_nothing_is_alike_in_another_context(self, make_cache: MakeCache) -> None:
        """Similar questions are not found in another context, for another tenant or after they expired."""
        clock = Steps()
        cache = make_cache(embed=directions, clock=clock)
        await cache.put(T, asked("", 0.5, context="c", text="0"), known("a"), 100)
        assert await cache.get(T, asked("", 0.5, context="d", text="0")) is None
        assert await cache.get("another", asked("", 0.5, context="c", text="1")) is None
        assert await cache.get(T, asked("", 0.5, context="c", text="1")) is not None
        clock.at += 100
        assert await cache.get(T, asked("", 0.5, context="c", text="1")) is None

    async def test_likeness_needs_an_embedding_function(self, make_cache: MakeCache) -> None:
        """A failing embedding function only disables similarity; the call still succeeds."""
        with pytest.raises(InvalidInputError, match="embedding"):
            await make_cache().get(T, asked("", 0.9, text="0"))

        async def broken(texts: Sequence[str]) -> list[list[float]]:
            raise OSError("no network")

        cache = make_cache(embed=broken)
        await cache.put(T, asked("", 0.9, text="0"), known("a"), 100)
        assert await cache.get(T, asked("", 0.9, text="1")) is None
        found: CacheEntry | None = await cache.get(T, asked("", 0.9, text="0"))
        assert found is not None and found.known.answer == {"text": "a"}
