"""The cache for code that calls models itself: its names, and the defects of the sources."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from helix import MemoryStateStore, SQLiteStateStore
from helix.adapters.models.catalog import LitellmCatalog
from helix.compat.cache import (
    AnswerCache,
    CacheWarmer,
    create_cache,
    get_response_cache,
)
from helix.core.caching import CacheEvictionPolicy, CacheStrategy
from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject
from helix.testing.clocks import SetClock
from helix.testing.openai_server import word_vector

MESSAGES = [{"role": "user", "content": "What is 2+2?"}]


def asked(text: str, system: str = "Be brief.") -> list[dict[str, Any]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": text}]


async def embed(texts: Any) -> list[list[float]]:
    return [word_vector(text) for text in texts]


@pytest.fixture
def clock() -> SetClock:
    return SetClock(4_000_000_000.0)


async def test_as_the_sources_show_it() -> None:
    cache = create_cache(
        max_size=1000, strategy=CacheStrategy.EXACT, eviction_policy=CacheEvictionPolicy.LRU, default_ttl=3600
    )
    assert await cache.get(MESSAGES, model="gpt-4") is None
    await cache.set(MESSAGES, model="gpt-4", response={"content": "4"}, input_tokens=10, output_tokens=1)
    assert await cache.get(MESSAGES, model="gpt-4") == {"content": "4"}
    assert cache.get_hit_rate() == 0.5


# --- the defects of the sources, by name ---


@pytest.mark.parametrize(
    "parameters",
    [
        {"temperature": 0, "top_p": 0.5},
        {"temperature": 0, "frequency_penalty": 1},
        {"temperature": 0, "max_tokens": 5},
        {"tools": [{"name": "look"}], "temperature": 0},
        {"response_format": {"type": "json_object"}, "temperature": 0},
        {},
    ],
)
async def test_every_parameter_is_part_of_the_key(parameters: dict[str, Any]) -> None:
    """The sources' key did not include temperature, top_p and penalties."""
    cache = create_cache()
    await cache.set(MESSAGES, "gpt-4", "4", {"temperature": 0})
    assert await cache.get(MESSAGES, "gpt-4", parameters) is None
    assert await cache.get(MESSAGES, "gpt-4", {"temperature": 0}) == "4"


async def test_the_order_of_parameters_is_not() -> None:
    cache = create_cache()
    await cache.set(MESSAGES, "gpt-4", "4", {"a": 1, "b": {"c": 2, "d": 3}})
    assert await cache.get([dict(reversed(MESSAGES[0].items()))], "gpt-4", {"b": {"d": 3, "c": 2}, "a": 1}) == "4"


async def test_overwriting_at_capacity_evicts_nobody() -> None:
    cache = create_cache(max_size=2)
    for text in ("a", "b", "b", "b"):
        await cache.set(asked(text), "m", text)
    assert [await cache.get(asked(text), "m") for text in "ab"] == ["a", "b"]


async def test_cost_based_eviction_does_not_crash() -> None:
    """The cache evicts the answer that saves least by list price."""
    cache = create_cache(max_size=2, eviction_policy=CacheEvictionPolicy.COST_BASED)
    await cache.set(asked("cheap"), "gpt-4o-mini", "cheap", input_tokens=1_000, output_tokens=100)
    await cache.set(asked("dear"), "gpt-4", "dear", input_tokens=100, output_tokens=10)
    await cache.set(asked("more"), "gpt-4o", "more", input_tokens=1_000, output_tokens=100)
    assert await cache.get(asked("cheap"), "gpt-4o-mini") is None
    assert await cache.get(asked("dear"), "gpt-4") == "dear"


async def test_statistics_with_entries_do_not_crash() -> None:
    """The saved amount is what the answers had cost: gpt-4 at 30 and 60 dollars per million tokens."""
    cache = create_cache(max_size=7, eviction_policy=CacheEvictionPolicy.LFU)
    await cache.set(MESSAGES, "gpt-4", "4", input_tokens=1_000, output_tokens=500)
    for _ in range(2):
        await cache.get(MESSAGES, "gpt-4")
    await cache.get(asked("other"), "gpt-4")
    assert await cache.get_statistics() == {
        "size": 1,
        "max_size": 7,
        "strategy": "exact",
        "eviction_policy": "lfu",
        "hits": 2,
        "misses": 1,
        "hit_rate": 2 / 3,
        "saved_tokens": 3_000,
        "saved_usd": pytest.approx(0.12),
    }


@pytest.mark.parametrize("strategy", [CacheStrategy.PREFIX, CacheStrategy.HYBRID])
def test_strategies_that_answer_another_question_are_refused(strategy: CacheStrategy) -> None:
    with pytest.raises(InvalidInputError, match=f"'{strategy.value}' is refused: .*(other's answer|another question)"):
        create_cache(strategy=strategy)


async def test_semantic_is_not_the_last_message_alone() -> None:
    """The sources' SEMANTIC matched any conversation that ended with the same words."""
    cache = create_cache(strategy=CacheStrategy.SEMANTIC, embedding=embed, threshold=0.9)
    await cache.set(asked("What is the capital of France?"), "m", "Paris")
    assert await cache.get(asked("the capital of France is what"), "m") == "Paris"
    assert await cache.get(asked("What is the capital of France?", "Answer in rhymes."), "m") is None
    assert await cache.get(asked("What is the capital of France?")[1:], "m") is None
    assert await cache.get(asked("What is the capital of France?"), "m", {"tools": [{"name": "look"}]}) is None
    assert await cache.get(asked("What is the capital of France?"), "n") is None
    assert await cache.get(asked("What do people in Lyon eat?"), "m") is None
    named = [{**asked("x")[0]}, {"role": "user", "content": "What is the capital of France?", "name": "ada"}]
    assert await cache.get(named, "m") is None


def test_semantic_needs_an_embedding_function() -> None:
    with pytest.raises(InvalidInputError, match="embedding function"):
        create_cache(strategy=CacheStrategy.SEMANTIC)


# --- entries ---


async def test_sampled_and_tool_calling_answers_are_not_kept_unless_told() -> None:
    message: JsonObject = {"role": "assistant", "tool_calls": [{"id": "1"}]}
    responses: list[JsonObject] = [message, {"choices": [{"message": message}]}, {"function_call": {"name": "look"}}]
    for response in responses:
        cache, told = create_cache(), create_cache(tool_calls=True)
        assert not await cache.set(MESSAGES, "m", response) and await cache.get(MESSAGES, "m") is None
        assert await told.set(MESSAGES, "m", response) and await told.get(MESSAGES, "m") == response
    warm = {"temperature": 0.7}
    cache, told = create_cache(), create_cache(sampled=True)
    assert not await cache.set(MESSAGES, "m", "x", warm) and await cache.get(MESSAGES, "m", warm) is None
    assert await told.set(MESSAGES, "m", "x", warm) and await told.get(MESSAGES, "m", warm) == "x"


async def test_times(clock: SetClock) -> None:
    """The entry's own TTL overrides the cache's. A TTL must be finite and above 0."""
    cache = create_cache(default_ttl=100, clock=clock)
    await cache.set(asked("default"), "m", "x")
    await cache.set(asked("own"), "m", "x", ttl=500)
    await create_cache(clock=clock).set(asked("ever"), "m", "x")
    clock.advance(100)
    assert [await cache.get(asked(name), "m") for name in ("default", "own")] == [None, "x"]
    for bad in (0, -1, float("inf"), float("nan")):
        with pytest.raises(InvalidInputError):
            await cache.set(MESSAGES, "m", "x", ttl=bad)
        with pytest.raises(InvalidInputError):
            create_cache(default_ttl=bad)


async def test_tenants_share_a_store_and_nothing_else(tmp_path: Path) -> None:
    store = SQLiteStateStore(tmp_path / "helix.db")
    ada, bob = (create_cache(store=store, tenant=name) for name in ("ada", "bob"))
    await ada.set(MESSAGES, "m", "of ada")
    assert await bob.get(MESSAGES, "m") is None
    assert await create_cache(store=store, tenant="ada").get(MESSAGES, "m") == "of ada"
    assert (await bob.clear(), await ada.clear()) == (0, 1)
    await store.close()


async def test_the_most_used() -> None:
    cache = create_cache()
    for text, uses in (("a", 1), ("b", 3), ("c", 0)):
        await cache.set(asked(text), "m", text)
        for _ in range(uses):
            await cache.get(asked(text), "m")
    top = await cache.get_top_entries(2)
    assert [(entry.known.answer["answer"], entry.hits) for entry in top] == [("b", 3), ("a", 1)]


async def test_the_cleaner(clock: SetClock) -> None:
    """The cleaner runs at every interval until it is stopped, and only once even if it is started repeatedly."""
    store = MemoryStateStore()
    cache = create_cache(default_ttl=200, clock=clock, store=store)
    await cache.set(MESSAGES, "m", "x")
    task = cache.start_cleanup_task(300)
    assert cache.start_cleanup_task(300) is task
    while not clock.sleepers:
        await asyncio.sleep(0)
    with store.watch("control", "cache#calls:") as seen:
        clock.advance(300)
        while await store.query("control", "cache#calls:", start="e#"):
            await seen.changed(5)
    await cache.stop_cleanup_task()
    assert task.cancelled()
    with pytest.raises(InvalidInputError):
        cache.start_cleanup_task(0)


async def test_warming_asks_for_what_is_not_known() -> None:
    called: list[str] = []

    async def call(messages: Any, model: str) -> tuple[str, int, int]:
        called.append(messages[-1]["content"])
        return f"answer to {called[-1]}", 10, 5

    cache = create_cache(catalog=LitellmCatalog(prices={"m": (1e-6, 1e-6)}))
    await cache.set(asked("known"), "m", "old")
    warmer = CacheWarmer(cache, call)
    assert await warmer.warm([asked("known"), asked("new"), asked("new")], "m") == 1
    assert called == ["new"] and await cache.get(asked("new"), "m") == "answer to new"


async def test_one_cache_per_process() -> None:
    assert get_response_cache() is get_response_cache() and isinstance(get_response_cache(), AnswerCache)


def test_numbers_that_cannot_be() -> None:
    for bad in ({"max_size": 0}, {"threshold": 0.0}, {"threshold": 1.1}):
        with pytest.raises(InvalidInputError):
            create_cache(**bad)


def test_strategies_and_policies_have_names() -> None:
    assert create_cache(strategy="exact", eviction_policy="lfu")
    with pytest.raises(InvalidInputError, match="'prefix' is refused"):
        create_cache(strategy="prefix")
    with pytest.raises(InvalidInputError, match="needs an embedding function"):
        create_cache(strategy="semantic")
    with pytest.raises(InvalidInputError, match="'fuzzy' is not a CacheStrategy; use one of exact"):
        create_cache(strategy="fuzzy")
    with pytest.raises(InvalidInputError, match="'oldest' is not a CacheEvictionPolicy; use one of lru"):
        create_cache(eviction_policy="oldest")
