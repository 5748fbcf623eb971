"""`Agent(model=Route(...))`: every call uses a model that the prompt and its answer fit into, chosen by price, speed and
the rest of the budgets."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.support_litellm import Serve, serve  # noqa: F401
from tests.support_run import World, a_tool, agent, call, calls, play

from helix import Agent, LiteLLMAdapter, LLMConfig, ScriptedModel
from helix.adapters.models.catalog import LitellmCatalog
from helix.adapters.models.litellm import load_litellm
from helix.core.messages import AssistantMessage
from helix.core.periods import TokenPeriod
from helix.core.routes import Route, RouteOption
from helix.core.usage import Usage
from helix.fleet.budgets import BudgetManager
from helix.runtime.models import OneModel
from helix.testing.openai_server import HttpFailure

CENT = 1e-6
CATALOG = LitellmCatalog(
    prices={"small": (1 * CENT, 2 * CENT), "cheap": (2 * CENT, 4 * CENT), "dear": (20 * CENT, 40 * CENT)},
    limits={"small": (2_000, 1_000), "cheap": (20_000, 4_000), "dear": (200_000, 8_000)},
)
ALL = ["dear", "cheap", "small"]


def answers(*entries: Any) -> ScriptedModel:
    """Return answers that are named after the asked model."""
    texts = entries or ("answer",)

    def named(entry: Any) -> Any:
        return lambda request: (
            {"content": entry, "model": request.config.model, "usage": Usage(calls=1)}
            if isinstance(entry, str)
            else entry
        )

    return ScriptedModel([named(entry) for entry in texts], repeat=True)


def routed(*models: Any, tools: Any = (), max_output_tokens: int | None = None, **route: Any) -> Agent[Any, Any]:
    config = LLMConfig(model=Route(models=list(models or ALL), **route), max_output_tokens=max_output_tokens)
    return agent("router", llm_config=config, tools=list(tools))


def words(tokens: int) -> str:
    return "word " * tokens


async def asked(world: World, who: Agent[Any, Any], message: str = "hi", **options: Any) -> Any:
    """Return the settings of the one model call."""
    model = answers()
    executor = world.executor(model, catalog=CATALOG, **options)
    _, result, _ = await play(executor, who, message)
    assert result.status == "completed", result.error
    return model.requests[0].config


@pytest.mark.parametrize(("tokens", "chosen"), [(10, "small"), (1_200, "small"), (1_700, "cheap"), (30_000, "dear")])
async def test_the_cheapest_model_that_fits_is_asked(quick_world: World, tokens: int, chosen: str) -> None:
    """The prompt and the room for the answer (500 tokens) must fit together. The other models are fallbacks, cheapest
    first."""
    config = await asked(quick_world, routed(prefer="cost"), words(tokens))
    assert config.model == chosen
    by_price = ["small", "cheap", "dear"]
    assert config.fallbacks == by_price[by_price.index(chosen) + 1 :]


async def test_the_length_of_the_answer_counts(quick_world: World) -> None:
    """1,900 tokens fit a window of 2,000, and no answer is longer than its model allows."""
    assert (await asked(quick_world, routed(prefer="cost", max_output_tokens=1_900))).model == "cheap"
    assert (await asked(quick_world, routed(prefer="cost", max_output_tokens=5_000))).model == "dear"


async def test_the_model_is_chosen_anew_for_each_call(world: World) -> None:
    """A tool's long result moves the next call to a larger window. The messages name the models that wrote them."""
    read = a_tool("read", lambda _arguments, _context: words(3_000))
    model = answers(calls(call("read")), "done")
    executor = world.executor(model, catalog=CATALOG)
    handle, result, _ = await play(executor, routed(prefer="cost", tools=[read]))
    assert result.status == "completed"
    assert [request.config.model for request in model.requests] == ["small", "cheap"]
    messages = (await executor.sessions.get_messages(handle.session_id)).messages
    assert isinstance(messages[-1], AssistantMessage) and messages[-1].metadata["model"] == "cheap"


async def test_what_fits_nowhere_fails_by_name_and_can_be_retried(world: World) -> None:
    """The error `context_too_large` names the required size and the largest window, and no model is asked. A larger model
    in the agent fixes it."""
    model = answers()
    executor = world.executor(model, catalog=CATALOG)
    handle, result, _ = await play(executor, routed("small", "cheap"), words(30_000))
    assert result.status == "failed" and result.error is not None
    assert result.error_code == "context_too_large"
    assert "the largest window is 20000" in result.error and "about 30" in result.error
    assert model.requests == []
    again = await executor.retry(routed("small", "cheap", "dear"), handle.session_id)
    assert (await again.result(timeout_s=10)).status == "completed"
    assert model.requests[-1].config.model == "dear"


async def test_speed_is_what_was_told_or_seen(quick_world: World) -> None:
    """The option's `latency_ms` counts first, then the latency that this process measured, and one second before any
    measurement."""
    slow, quick = RouteOption(model="cheap", latency_ms=3_000), RouteOption(model="dear", latency_ms=200)
    assert (await asked(quick_world, routed(slow, quick, prefer="speed"))).model == "dear"

    async def wait(request: Any) -> Any:
        await executor.engine.clock.sleep(0.02)
        return {"content": "x", "model": request.config.model}

    model = ScriptedModel([wait], repeat=True)
    executor = quick_world.executor(model, catalog=CATALOG)
    route = routed(RouteOption(model="cheap"), RouteOption(model="dear", latency_ms=500), prefer="speed")
    for _ in range(2):
        await play(executor, route)
    assert [request.config.model for request in model.requests] == ["dear", "dear"]
    executor.engine.latencies["cheap"] = 5.0
    await play(executor, route)
    assert model.requests[-1].config.model == "cheap"
    assert 5 < executor.engine.latencies["cheap"] < 10_000


async def test_a_bonus_and_the_balance(quick_world: World) -> None:
    """`balanced` weighs price and speed. The developer's own bonus decides between equal options."""
    assert (await asked(quick_world, routed())).model == "small"
    liked = RouteOption(model="dear", bonus=1_000)
    assert (await asked(quick_world, routed(liked, "small"))).model == "dear"


async def test_a_window_that_nobody_knows_is_taken_last(quick_world: World) -> None:
    """An unknown window neither fails the call nor is preferred. An option may declare it."""
    config = await asked(quick_world, routed("mystery", "dear", prefer="cost"))
    assert (config.model, config.fallbacks) == ("dear", ["mystery"])
    assert (await asked(quick_world, routed("mystery", "small"), words(30_000))).model == "mystery"
    told = RouteOption(model="mystery", window=50_000)
    config = await asked(quick_world, routed(told, "dear", prefer="cost"), words(30_000))
    assert (config.model, config.fallbacks) == ("dear", ["mystery"])  # an unknown price counts as the most expensive
    assert (await asked(quick_world, routed(told, "dear", prefer="cost"), words(60_000))).fallbacks == []


@pytest.mark.parametrize(("degrade_at", "chosen"), [(None, "dear"), ("warning", "small"), ("critical", "dear")])
async def test_a_budget_at_its_warning_takes_the_cheapest(world: World, degrade_at: Any, chosen: str) -> None:
    """85 % of the tenant's daily budget are used. `degrade_at="warning"` takes the cheapest model that fits, without a more
    expensive fallback. A route with `critical` or without a level is unchanged."""
    executor = world.executor(answers(), catalog=CATALOG)
    manager = BudgetManager(executor.store)
    await manager.set_budget(10.0, TokenPeriod.DAILY, tenant="ada", unit="usd")
    spender = world.executor(
        [{"content": "x", "usage": Usage(prompt_tokens=1, cost_micros=8_500_000, calls=1), "model": "dear"}],
        catalog=CATALOG,
    )
    await play(spender, routed("dear"), user_id="ada")
    (status,) = (await manager.check_budget(tenant="ada")).values()
    assert status["alert_level"] == "warning"

    model = answers()
    fast = routed(RouteOption(model="dear", latency_ms=10), "small", prefer="speed", degrade_at=degrade_at)
    _, result, _ = await play(world.executor(model, catalog=CATALOG), fast, user_id="ada")
    assert result.status == "completed", result.error
    config = model.requests[0].config
    assert config.model == chosen
    assert config.fallbacks == ([] if chosen == "small" else ["small"])
    _, result, _ = await play(world.executor(model, catalog=CATALOG), fast, user_id="bob")
    assert model.requests[1].config.model == "dear"  # another tenant's budget


async def test_why_is_logged_and_told_to_hooks(quick_world: World, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []
    executor = quick_world.executor(
        answers(), catalog=CATALOG, hooks={"before_llm_call": lambda payload, context: told.append(payload["model"])}
    )
    with caplog.at_level(logging.INFO, logger="helix"):
        handle, _, _ = await play(executor, routed(prefer="cost"))
    assert told == ["small"]
    assert any(
        handle.run_id in line and "small by its route: the cheapest that fits" in line for line in caplog.messages
    )


async def test_settings_may_depend_on_the_state(quick_world: World) -> None:
    """A function of the state may return a route."""
    who = agent("router", llm_config=lambda state: LLMConfig(model=Route(models=ALL, prefer="cost")))
    assert (await asked(quick_world, who)).model == "small"


async def test_one_model_for_all_wins_over_a_route(quick_world: World) -> None:
    """The model of the command line is asked, whatever the route says about it."""
    inner = answers()
    executor = quick_world.executor(OneModel(inner, "mine"), catalog=CATALOG)
    _, result, _ = await play(executor, routed("small"), words(30_000))
    assert result.status == "completed" and inner.requests[0].config.model == "mine"
    assert inner.requests[0].config.fallbacks == [] and inner.requests[0].chosen == ""


async def test_real_models_over_http(quick_world: World, serve: Serve) -> None:  # noqa: F811
    """litellm asks the model that was chosen from its own table. 12,000 tokens do not fit gpt-4's 8,192. gpt-4o-mini is the
    cheapest model that they fit into, and if it fails, the next model is asked."""
    await asyncio.to_thread(load_litellm)
    server = serve("one", HttpFailure(status=400, message="no"), "two")
    executor = quick_world.executor(LiteLLMAdapter())
    route = Route(models=["openai/gpt-4", "openai/gpt-4o", "openai/gpt-4o-mini"], prefer="cost")
    who = Agent(name="real", system_prompt="You help.", model=route)
    _, result, _ = await play(executor, who, words(12_000))
    assert result.output == "one" and server.requests[0].json["model"] == "gpt-4o-mini"
    _, result, _ = await play(executor, who, words(12_000))
    assert result.output == "two"
    assert [request.json["model"] for request in server.requests] == ["gpt-4o-mini", "gpt-4o-mini", "gpt-4o"]
