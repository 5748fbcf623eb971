"""Routing never chooses an instance that is too small. Cost, speed and load decide among the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from helix import Agent, DefinitionError, LLMConfig, Route, RouteOption, define_agent
from helix.adapters.models.catalog import LitellmCatalog
from helix.compat.routing import ContextWindowManager, ModelVariantRouter, RequestRouter, get_request_router
from helix.core.errors import ContextTooLargeError, InvalidInputError
from helix.core.routing import (
    BALANCED,
    SPEED,
    InstanceInfo,
    ModelVariant,
    Need,
    by_cost,
    by_score,
    by_speed,
    fits,
    ranked,
    score,
)

QUESTION = [{"role": "user", "content": "Summarize this document..."}]


def instance(name: str, window: int | None = 10_000, **fields: Any) -> InstanceInfo:
    return InstanceInfo(instance_id=name, model=fields.pop("model", name), max_context_tokens=window, **fields)


# --- sizes ---


@pytest.mark.parametrize(
    ("tokens", "variant"),
    [
        (0, ModelVariant.SMALL),
        (4_096, ModelVariant.SMALL),
        (4_097, ModelVariant.MEDIUM),
        (32_768, ModelVariant.MEDIUM),
        (32_769, ModelVariant.LARGE),
        (131_072, ModelVariant.LARGE),
        (131_073, ModelVariant.XLARGE),
        (10**9, ModelVariant.XLARGE),
    ],
)
def test_bounds_belong_to_their_class(tokens: int, variant: ModelVariant) -> None:
    assert ModelVariant.of(tokens) is variant


def test_classes_are_ordered_by_rank_and_not_by_word() -> None:
    """Sorted as strings, "large" comes before "medium" and "small"."""
    assert [v.rank for v in ModelVariant] == [0, 1, 2, 3]
    assert sorted(ModelVariant) != sorted(ModelVariant, key=lambda variant: variant.rank)


# --- the defects of the sources, by name ---


async def test_50000_tokens_do_not_pick_a_window_of_4096() -> None:
    """Compared as strings, "small" >= "large" was true."""
    manager = ContextWindowManager()
    await manager.register_instance("small", "chat-agent", "gpt-3.5-turbo", 4_096)
    await manager.register_instance("medium", "chat-agent", "gpt-4", 8_192)
    await manager.register_instance("large", "chat-agent", "gpt-4o", 128_000)
    found = await manager.get_best_instance(required_context_tokens=50_000)
    assert found is not None and found.instance_id == "large"


async def test_the_sources_own_example_finds_nothing() -> None:
    """The only instance has 8,192 tokens, and 50,000 are requested."""
    manager = ContextWindowManager()
    await manager.register_instance(instance_id="inst-1", agent_id="chat-agent", model="gpt-4", max_context_tokens=8192)
    assert await manager.get_best_instance(50_000, prefer_model="gpt-4", prefer_cost=True) is None


async def test_nothing_that_fits_is_an_error_and_no_fallback() -> None:
    router = RequestRouter()
    await router.manager.register_instance("inst-1", "chat-agent", "gpt-4", 8192)
    with pytest.raises(ContextTooLargeError) as error:
        await router.route([{"role": "user", "content": "word " * 20_000}], "gpt-4", 500)
    assert error.value.largest == 8192 and error.value.needed > 20_000


async def test_registering_again_replaces() -> None:
    """The sources' manager listed the instance twice."""
    manager = ContextWindowManager()
    for window in (8_192, 32_000):
        await manager.register_instance("inst-1", "chat-agent", "gpt-4", window)
    assert [i.max_context_tokens for i in manager.instances] == [32_000]


async def test_prefer_speed_is_not_ignored() -> None:
    manager = ContextWindowManager()
    await manager.register_instance("cheap", "a", "openai/gpt-4o-mini")
    await manager.register_instance("quick", "a", "openai/gpt-4o")
    await manager.update_instance_load("cheap", 0.0, 0, 9_000)
    await manager.update_instance_load("quick", 0.0, 0, 300)
    router = RequestRouter(manager)
    by_speed = await router.route(QUESTION, "gpt", 500, prefer_cost=False, prefer_speed=True)
    by_cost = await router.route(QUESTION, "gpt", 500)
    assert (by_speed.instance_id, by_cost.instance_id) == ("quick", "cheap")
    assert by_speed.estimated_latency_ms == 300


# --- scores ---


def test_the_parts_of_a_score() -> None:
    """An exact class gives 20 points. Deductions are 10 per class above, 30 per full load, 2 per waiting request (10 at
    most), 1 per second of latency and 5 for each multiple of the cheapest price."""
    need = Need(3_000)
    exact = instance("a", 4_000, input_usd=1.0, output_usd=0.0)
    cheapest = exact.cost_usd(need)

    def points(other: InstanceInfo, weights: Any = BALANCED) -> float:
        return score(other, need, weights, cheapest_usd=cheapest)

    assert points(exact) == 20
    assert points(replace(exact, max_context_tokens=100_000)) == -20
    assert points(replace(exact, load=0.5)) == 5
    assert points(replace(exact, queue_depth=3)) == 14 and points(replace(exact, queue_depth=99)) == 0
    assert points(replace(exact, avg_latency_ms=2_500)) == 17.5
    assert points(replace(exact, avg_latency_ms=2_500), SPEED) == 12.5
    assert points(replace(exact, input_usd=3.0)) == 10 and points(replace(exact, input_usd=3.0), SPEED) == 20
    assert points(replace(exact, bonus=1.5)) == 21.5


@given(
    st.lists(
        st.tuples(st.integers(1, 300_000) | st.none(), st.floats(0, 1), st.integers(0, 50), st.booleans()), max_size=8
    ),
    st.integers(0, 300_000),
    st.integers(0, 5_000),
    st.sampled_from(["score", "cost", "speed"]),
)
def test_whatever_is_chosen_fits(
    offered: list[tuple[int | None, float, int, bool]], prompt: int, answer: int, how: str
) -> None:
    need = Need(prompt, answer)
    all_ = [instance(str(n), w, load=ld, queue_depth=q, healthy=h) for n, (w, ld, q, h) in enumerate(offered)]
    fitting = [i for i in all_ if i.healthy and (i.max_context_tokens is None or i.max_context_tokens >= need.total)]
    if not fitting:
        with pytest.raises(ContextTooLargeError):
            ranked(all_, need)
        return
    order = {"score": by_score(all_, need, BALANCED), "cost": by_cost(need), "speed": by_speed(need)}[how]
    found = ranked(all_, need, order)
    assert sorted(i.instance_id for i in found) == sorted(i.instance_id for i in fitting)
    known = [i.max_context_tokens is not None for i in found]
    assert known == sorted(known, reverse=True)
    if how == "score" and not any(i.bonus for i in found):
        scores = [
            score(i, need, BALANCED, cheapest_usd=min(i.cost_usd(need) for i in all_))
            for i in found
            if i.max_context_tokens is not None
        ]
        assert scores == sorted(scores, reverse=True)


def test_an_unknown_price_is_the_dearest() -> None:
    need = Need(1_000, 100)
    found = ranked([instance("unknown"), instance("known", input_usd=3e-5, output_usd=6e-5)], need, by_cost(need))
    assert [i.instance_id for i in found] == ["known", "unknown"]


@pytest.mark.parametrize("fields", [{"available": False}, {"healthy": False}])
def test_an_error_names_the_largest_that_could_be_had(fields: dict[str, bool]) -> None:
    out_of_reach = instance("large", 200_000, max_output_tokens=9_000, **fields)
    with pytest.raises(ContextTooLargeError) as error:
        ranked([out_of_reach, instance("small", 4_000, max_output_tokens=500)], Need(5_000))
    assert (error.value.largest, error.value.longest) == (4_000, 500)


def test_something_free_beside_something_paid() -> None:
    need = Need(1_000)
    both = [instance("paid", input_usd=1e-6, output_usd=0.0), instance("free", input_usd=0.0, output_usd=0.0)]
    assert ranked(both, need, by_score(both, need, BALANCED))[0].instance_id == "free"


def test_the_longest_answer_counts_too() -> None:
    assert not fits(instance("a", max_output_tokens=400), Need(10, 500))
    with pytest.raises(ContextTooLargeError, match="longest answer 400"):
        ranked([instance("a", max_output_tokens=400)], Need(10, 500))


# --- the manager and the routers ---


async def test_load_and_health_decide_between_equals() -> None:
    manager = ContextWindowManager()
    for name in "abc":
        await manager.register_instance(name, "agent", "gpt-4o", 100_000)
    await manager.update_instance_load("a", 0.9, 8, 100)
    await manager.update_instance_load("b", 0.1, 0, 100)
    await manager.update_instance_load("c", 0.0, 0, 10, healthy=False)
    found = await manager.get_best_instance(50_000)
    assert found is not None and found.instance_id == "b"
    assert await manager.unregister_instance("b") and not await manager.unregister_instance("b")
    statistics = await manager.get_statistics()
    assert statistics == {
        "total_instances": 2,
        "available_instances": 1,
        "by_variant": {"large": 2},
        "average_load": 0.9,
        "queue_depth": 8,
    }


async def test_a_preferred_model_is_a_wish() -> None:
    manager = ContextWindowManager()
    await manager.register_instance("one", "a", "openai/gpt-4o", 128_000)
    await manager.register_instance("two", "a", "anthropic/claude-sonnet-4-5", 128_000)
    wished = await manager.get_best_instance(50_000, prefer_model="claude", prefer_cost=False)
    assert wished is not None and wished.instance_id == "two"
    await manager.unregister_instance("two")
    instead = await manager.get_best_instance(50_000, prefer_model="claude")
    assert instead is not None and instead.instance_id == "one"


async def test_windows_and_prices_come_from_the_catalog() -> None:
    """Values given by the caller override the catalog."""
    manager = ContextWindowManager({"gpt-4": 9_000})
    known = await manager.register_instance("a", "agent", "openai/gpt-4o")
    assert known.max_context_tokens == 128_000 and known.input_usd == 2.5e-6
    assert (await manager.register_instance("b", "agent", "gpt-4")).max_context_tokens == 9_000
    assert (await manager.register_instance("c", "agent", "gpt-4", 5_000)).max_context_tokens == 5_000


async def test_a_decision_says_what_and_why() -> None:
    """The cost is that of 10 counted input tokens and 500 requested output tokens, at 1 and 2 dollars per million."""
    catalog = LitellmCatalog(prices={"gpt-4o-mini": (1e-6, 2e-6)})
    router = RequestRouter(ContextWindowManager(catalog=catalog), count=lambda messages, model: 10)
    decision = await router.route(QUESTION, "gpt-4o-mini", 500)
    assert decision.model == "gpt-4o-mini" and decision.variant is ModelVariant.LARGE and not decision.fallback
    assert decision.estimated_cost == pytest.approx(10 * 1e-6 + 500 * 2e-6)
    assert "510 tokens" in decision.reason
    assert (await router.route(QUESTION, "mystery")).estimated_cost is None


async def test_the_need_is_prompt_and_answer() -> None:
    """Without `max_tokens`, room for 500 tokens is reserved."""
    router = RequestRouter(count=lambda messages, model: 600)
    await router.manager.register_instance("a", "agent", "m", 1_100)
    assert (await router.route(QUESTION, "m")).instance_id == "a"
    with pytest.raises(ContextTooLargeError):
        await router.route(QUESTION, "m", 501)


async def test_another_model_than_asked_for_is_a_fallback() -> None:
    router = RequestRouter()
    await router.manager.register_instance("a", "agent", "gpt-4o", 128_000)
    decision = await router.route(QUESTION, "claude", 500)
    assert decision.fallback and decision.model == "gpt-4o" and "'claude'" in decision.reason


async def test_numbers_that_cannot_be() -> None:
    manager = ContextWindowManager()
    await manager.register_instance("a", "agent", "m", 100)
    with pytest.raises(InvalidInputError):
        await manager.register_instance("b", "agent", "m", 0)
    for bad in ({"load": 1.1}, {"load": -0.1}, {"load": 0, "queue_depth": -1}, {"load": 0, "avg_latency_ms": -1}):
        with pytest.raises(InvalidInputError, match="load is from 0 to 1"):
            await manager.update_instance_load("a", **bad)
    with pytest.raises(InvalidInputError, match="'unknown'"):
        await manager.update_instance_load("unknown", 0.5)
    with pytest.raises(InvalidInputError):
        await manager.get_best_instance(-1)
    with pytest.raises(InvalidInputError):
        await RequestRouter(manager).route(QUESTION, "m", 0)
    with pytest.raises(InvalidInputError, match="nothing to route to"):
        await ModelVariantRouter().route(Need(1))


def test_one_router_per_process() -> None:
    assert get_request_router() is get_request_router()


# --- the definition ---


def test_a_route_is_data_and_part_of_the_agent() -> None:
    route = Route(models=["a", RouteOption(model="b", window=9, latency_ms=5, bonus=1)], degrade_at="warning")
    assert Route.model_validate_json(route.model_dump_json()) == route
    config = LLMConfig(model=route)
    assert config.model == "a" and config.route == route
    assert LLMConfig(route=route) == config  # type: ignore[call-arg]
    assert list(LLMConfig(model=route, fallbacks=["c", "a"]).models) == ["a", "b", "c"]
    assert LLMConfig.model_validate_json(config.model_dump_json()) == config


def test_both_ways_to_name_the_model() -> None:
    def made(**fields: Any) -> Agent[Any, Any]:
        return Agent(name="a", system_prompt="p", **fields)

    route = Route(models=["a", "b"])
    short, long = made(model=route), made(llm_config=LLMConfig(model=route))
    assert short.llm_config == long.llm_config and short.fingerprint() == long.fingerprint()
    assert made(model="a").llm_config == LLMConfig(model="a")
    other = made(model=Route(models=["a", "b"], prefer="cost"))
    assert len({made(model="a").fingerprint(), short.fingerprint(), other.fingerprint()}) == 3
    assert replace(short, name="b").llm_config == short.llm_config
    assert define_agent(name="a", system_prompt="p", model="a").llm_config == LLMConfig(model="a")
    for fields in ({"model": "a", "llm_config": LLMConfig(model="a")}, {"model": " "}, {"model": 3}):
        with pytest.raises(DefinitionError) as error:
            made(**fields)
        assert error.value.field == "model"


@pytest.mark.parametrize(
    "fields",
    [
        {"models": []},
        {"models": ["a", "a"]},
        {"models": ["a"], "prefer": "luck"},
        {"models": [""]},
        {"models": ["a"], "x": 1},
    ],
)
def test_a_route_that_is_none(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Route(**fields)


def test_two_routes_at_once() -> None:
    with pytest.raises(ValidationError, match="two routes"):
        LLMConfig(model=Route(models=["a"]), route=Route(models=["b"]))
