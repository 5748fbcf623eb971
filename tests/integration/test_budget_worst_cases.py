"""The worst case of a call is a real bound: the request is limited to it, and unknown values count at their most
expensive."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support_budgets import Prices, asks, config, left, manager, says, worker
from tests.support_run import World, a_tool, call, play

from helix import LocalExecutor
from helix.adapters.models.file_parts import RequestFiles
from helix.adapters.models.litellm import load_litellm
from helix.adapters.models.openai_form import to_messages, to_tools
from helix.core.messages import (
    AnyMessage,
    AssistantMessage,
    SystemMessage,
    ThinkingContent,
    ToolCallRequest,
    UserMessage,
)
from helix.core.periods import TokenPeriod
from helix.engine.engine import Settings
from helix.engine.money.bounds import prompt_tokens
from helix.ports.model import LLMGenerateInput, ToolSpec

TOTAL = TokenPeriod.TOTAL
SMALL = Settings(stop_poll_s=0.01, default_output_tokens=1000, least_output_tokens=100, worst_case_margin_percent=0)


def executor_of(world: World, script: Any, **options: Any) -> LocalExecutor:
    options.setdefault("catalog", Prices())
    return world.executor(script, settings=SMALL, **options)


async def sent(world: World, *, bounded: bool = True, catalog: Any = None, **fields: Any) -> LLMGenerateInput:
    """Return the request that the model gets for an agent with these settings."""
    executor = executor_of(world, [says("done", 10)], catalog=catalog or Prices())
    if bounded:
        await manager(executor).set_budget(10_000_000, TOTAL)
        await manager(executor).set_budget(1000, TOTAL, unit="usd")
    who = worker(llm_config=config(**fields))
    await play(executor, who)
    (request,) = executor.agents.model_of(who).requests  # type: ignore[attr-defined]
    return request


async def test_a_bounded_call_says_how_long_its_answer_may_be(quick_world: World) -> None:
    """This makes the worst case a bound. Calls without a budget are sent unchanged."""
    assert (await sent(quick_world)).config.max_output_tokens == 1000
    assert (await sent(quick_world, max_output_tokens=70)).config.max_output_tokens == 70
    assert (await sent(quick_world, max_output_tokens=7000)).config.max_output_tokens == 7000
    assert (await sent(quick_world, catalog=Prices(longest=300))).config.max_output_tokens == 300


async def test_an_unbounded_call_is_sent_as_it_is(quick_world: World) -> None:
    request = await sent(quick_world, bounded=False)
    assert (request.config.max_output_tokens, request.allowance) == (None, None)


async def test_provider_options_that_limit_the_answer_are_counted_with(quick_world: World) -> None:
    """They override the config, so the reservation uses them. `n` answers count n times."""
    own = await sent(quick_world, provider_options={"max_completion_tokens": 200})
    assert own.config.max_output_tokens is None and own.allowance is not None
    three = await sent(quick_world, provider_options={"max_completion_tokens": 200, "n": 3})
    assert three.allowance is not None
    assert three.allowance.attempt_tokens - own.allowance.attempt_tokens == 400
    thinking = await sent(quick_world, provider_options={"thinking": {"type": "enabled", "budget_tokens": 5000}})
    assert thinking.config.max_output_tokens == 6000


async def test_the_dearest_of_model_and_fallbacks_counts(quick_world: World) -> None:
    alone, with_dear = await sent(quick_world), await sent(quick_world, fallbacks=["dear"])
    assert alone.allowance is not None and with_dear.allowance is not None
    assert with_dear.allowance.attempt_micros == 10 * alone.allowance.attempt_micros
    assert with_dear.allowance.attempt_tokens == alone.allowance.attempt_tokens


async def test_an_unknown_price_is_the_ceiling(quick_world: World) -> None:
    """The ceiling of all prices is used."""
    request = await sent(quick_world, fallbacks=["unheard-of"])
    allowance = request.allowance
    assert allowance is not None and allowance.attempt_micros == 100 * allowance.attempt_tokens
    unpriced = await sent(quick_world, catalog=Prices(None))
    assert unpriced.allowance is not None
    assert unpriced.allowance.attempt_micros == 100 * unpriced.allowance.attempt_tokens


async def test_two_attempts_are_set_aside_where_there_is_plenty(quick_world: World) -> None:
    """One attempt may break off and be repeated. Near the limit, or without repeats, one attempt is reserved."""
    plenty = (await sent(quick_world, max_retries=3)).allowance
    once = (await sent(quick_world, max_retries=0)).allowance
    assert plenty is not None and once is not None
    assert (plenty.tokens, plenty.micros) == (2 * plenty.attempt_tokens, 2 * plenty.attempt_micros)
    assert (once.tokens, once.micros) == (once.attempt_tokens, once.attempt_micros)


async def test_near_the_line_an_answer_may_be_shorter(quick_world: World) -> None:
    """The answer is shortened down to `least_output_tokens`. Below that the call is refused."""
    executor = executor_of(quick_world, [says("short", 10), says("never", 10)])
    budgets = manager(executor)
    who = worker()
    prompt = prompt_tokens([SystemMessage(content="You help."), UserMessage(content="go")], [])
    budget = await budgets.set_budget(prompt + 150, TOTAL)
    assert (await play(executor, who))[1].output == "short"
    (request,) = executor.agents.model_of(who).requests  # type: ignore[attr-defined]
    assert request.config.max_output_tokens == 150
    assert await left(executor, budget) == (prompt + 150, prompt + 140)
    await budgets.set_budget(prompt + 10 + 99, TOTAL)
    assert (await play(executor, who))[1].error_code == "budget_exceeded"


async def test_dollars_shorten_an_answer_too(quick_world: World) -> None:
    """The remaining dollars after the prompt buy output tokens at their price. The tighter of two budgets decides."""
    executor = executor_of(quick_world, [says("short", 10)])
    who = worker()
    prompt = prompt_tokens([SystemMessage(content="You help."), UserMessage(content="go")], [])
    await manager(executor).set_budget((prompt + 2 * 300) / 1e6, TOTAL, unit="usd")
    await manager(executor).set_budget(prompt + 900, TOTAL)
    await play(executor, who)
    (request,) = executor.agents.model_of(who).requests  # type: ignore[attr-defined]
    assert request.config.max_output_tokens == 300


@pytest.mark.parametrize(
    "options", [{"max_tokens": 1000}, {"thinking": {"budget_tokens": 100}}, {"reasoning_effort": "low"}]
)
async def test_an_answer_that_needs_its_room_is_not_cut(quick_world: World, options: dict[str, Any]) -> None:
    executor = executor_of(quick_world, [says("never", 10)])
    await manager(executor).set_budget(500, TOTAL)
    _, result, _ = await play(executor, worker(llm_config=config(provider_options=options)))
    assert result.error_code == "budget_exceeded"


async def test_an_answer_that_the_line_cut_off_is_the_budgets_failure(quick_world: World) -> None:
    """A truncated answer is not stored. After a raise the run buys it again, at its full length."""
    cut = {"error": "cut", "code": "max_tokens", "stop_reason": "max_tokens", "usage": says("", 50)["usage"]}
    executor = executor_of(quick_world, [asks(10, call("look")), cut, says("whole", 10)])
    budgets = manager(executor)
    await budgets.set_budget(2500, TOTAL)
    handle, result, _ = await play(executor, worker(tools=[a_tool("look", lambda given, ctx: "seen")], max_steps=3))
    assert (result.status, result.error_code) == ("failed", "max_tokens"), "the answer has its full length"
    executor = executor_of(quick_world, [cut, says("whole", 10)])
    await manager(executor).set_budget(500, TOTAL, session="tight")
    handle = await executor.execute(worker(), "go", session_id="tight")
    result = await handle.result(timeout_s=10)
    assert (result.error_code, result.recoverable) == ("budget_exceeded", True)
    await manager(executor).set_budget(5000, TOTAL, session="tight")
    assert (await (await handle.retry()).result(timeout_s=10)).output == "whole"


# --- a provider that bills more than the bound ------------------------------------------------------------------------

PROMPT = prompt_tokens([SystemMessage(content="You help."), UserMessage(content="go")], [])
BOUND = PROMPT + 100
BILLED = -(-BOUND * 11 // 10)


async def test_a_provider_that_bills_a_tenth_more_does_not_pass_the_line(quick_world: World) -> None:
    """A budget for ten calls as they are billed lets ten concurrent calls through, because the reservation has a margin."""
    executor = quick_world.executor([says("done", BILLED)] * 24, catalog=Prices())
    budgets = manager(executor)
    await budgets.set_budget(10 * BILLED, TOTAL)
    who = worker(llm_config=config(max_output_tokens=100))
    handles = await asyncio.gather(*(executor.execute(who, "go") for _ in range(24)))
    results = await asyncio.gather(*(handle.result(timeout_s=30) for handle in handles))
    assert sum(result.status == "completed" for result in results) == 10
    assert (await budgets.check_budget())["global_total"]["current_tokens"] == 10 * BILLED


async def test_a_call_billed_far_beyond_its_bound_holds_the_next_one_back(quick_world: World) -> None:
    """It is charged as billed. The run's next call and all other calls must fit into the rest."""
    executor = quick_world.executor([asks(10_000, call("look")), says("never", 1)], catalog=Prices())
    budgets = manager(executor)
    await budgets.set_budget(10_000, TOTAL)
    who = worker(tools=[a_tool("look", lambda given, ctx: "seen")], llm_config=config(max_output_tokens=100))
    _, result, _ = await play(executor, who)
    assert result.error_code == "budget_exceeded"
    assert (await budgets.check_budget())["global_total"]["current_tokens"] == 10_000
    _, result, _ = await play(executor, worker(llm_config=config(max_output_tokens=100)))
    assert result.error_code == "budget_exceeded"


async def test_what_is_billed_beyond_the_bound_at_no_known_price_is_charged_too(quick_world: World) -> None:
    executor = quick_world.executor([says("done", 3 * BOUND, 0, priced=False)], catalog=Prices(None))
    budgets = manager(executor)
    await budgets.set_budget(1, TOTAL, unit="usd")
    await play(executor, worker(llm_config=config(max_output_tokens=100)))
    spent = (await budgets.check_budget())["global_total_usd"]["current_usd"]
    assert spent == pytest.approx(3 * BOUND * 100 / 1e6, rel=0.01)


# --- the bound of a prompt --------------------------------------------------------------------------------------------


@given(texts=st.lists(st.text(max_size=200), min_size=1, max_size=6))
def test_a_prompts_bytes_are_more_than_its_tokens(texts: list[str]) -> None:
    """The bound is compared with a real byte tokenizer, for any text."""
    call_ = ToolCallRequest(id="call_1", name="look", arguments={"text": texts[0]})
    messages: list[AnyMessage] = [SystemMessage(content="Do."), *(UserMessage(content=text) for text in texts)]
    messages.append(AssistantMessage(content=texts[0], tool_calls=[call_], thinking=[ThinkingContent(text=texts[-1])]))
    tools = [ToolSpec("look", texts[0], {"type": "object", "properties": {"text": {"type": "string"}}})]
    files = RequestFiles(LLMGenerateInput(messages, tools, config(), "s", "a"), "gpt-4o", "chat")
    told = to_messages(messages, "gpt-4o", "openai", files)
    counted = load_litellm().token_counter(model="gpt-4o", messages=told, tools=to_tools(tools, strict={}))
    thought = len(load_litellm().encoding.encode(texts[-1], disallowed_special=()))
    assert prompt_tokens(messages, tools) >= counted + thought
