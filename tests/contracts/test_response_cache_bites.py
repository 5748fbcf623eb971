"""The contract of the response cache detects defects: each broken cache fails the matching test, and a sound one fails
none."""

import asyncio
from typing import Any

import pytest
from tests.contracts.cache import ResponseCacheContract
from tests.support.broken import caches
from tests.support.broken.stores import ChecksThenWrites

from helix.adapters.system import SystemClock
from helix.core.errors import HelixError
from helix.services.row_cache import RowCache

BROKEN = {
    "ForgetsTheTenant": "test_tenants_see_nothing_of_each_other",
    "ClearsTheNeighboursToo": "test_tenants_see_nothing_of_each_other",
    "KnowsTooLittle": "test_another_question_is_not_known",
    "NeverExpires": "test_what_has_expired_is_never_given",
    "CutsAnswers": "test_what_was_stored_is_given",
    "KeepsTheFirst": "test_a_later_answer_takes_the_place",
    "EvictsWhereOneIsReplaced": "test_a_later_answer_takes_the_place",
    "EvictsTheOldest": "test_who_goes_where_it_is_full",
    "EvictsTheUnused": "test_who_goes_where_it_is_full",
    "EvictsTheDearest": "test_who_goes_where_it_is_full",
    "EvictsTheLastToExpire": "test_who_goes_where_it_is_full",
    "PricesNothing": "test_tokens_stand_for_an_unknown_price",
    "CountsNoHits": "test_hits_are_counted",
    "CountsTooEarly": "test_the_size_holds_whoever_writes_at_once",
    "CountsTwice": "test_writers_of_one_question_leave_one_entry",
    "ForgetsToCountDown": "test_who_goes_where_it_is_full",
    "ClearsEverything": "test_clearing",
    "TakesTheFirstThatIsAlike": "test_a_question_may_be_worded_otherwise",
    "IgnoresTheThreshold": "test_a_question_may_be_worded_otherwise",
    "IgnoresTheContext": "test_nothing_is_alike_in_another_context",
    "GuessesWithoutEmbedding": "test_likeness_needs_an_embedding_function",
}
LAWS = [name for name in dir(ResponseCacheContract) if name.startswith("test_")]


async def broken(law: str, kind: type[RowCache], store: Any) -> bool:
    """Return whether a cache of that kind on the store fails the test in a regular way, for any of its parameters."""
    test = getattr(ResponseCacheContract(), law)
    marks = [m for m in getattr(test, "pytestmark", ()) if m.name == "parametrize"]
    for case in [case for mark in marks for case in mark.args[1]] or [()]:
        fresh = store()
        try:
            async with asyncio.timeout(20):
                await test(lambda fresh=fresh, **options: kind(fresh, **{"clock": SystemClock(), **options}), *case)
        except (AssertionError, HelixError, TimeoutError, pytest.fail.Exception):
            return True
    return False


@pytest.mark.parametrize(("name", "law"), BROKEN.items())
async def test_a_broken_cache_fails_its_law(name: str, law: str) -> None:
    assert await broken(law, getattr(caches, name), caches.Unhurried)


async def test_a_cache_on_a_store_that_judges_too_early_fails() -> None:
    assert await broken("test_the_size_holds_whoever_writes_at_once", RowCache, ChecksThenWrites)


@pytest.mark.parametrize("law", LAWS)
async def test_the_sound_one_fails_none(law: str) -> None:
    assert not await broken(law, RowCache, caches.Unhurried)


def test_every_law_has_one_that_breaks_it() -> None:
    proven_by_races = {"test_an_entry_is_whole_or_not_there"}
    assert set(LAWS) - set(BROKEN.values()) == proven_by_races
