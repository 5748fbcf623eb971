"""`LLMConfig(response_cache=...)`: a bought answer is returned again within the loop, but only to the same tenant and for
the same question."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support_litellm import Serve, serve  # noqa: F401
from tests.support_run import World, a_tool, agent, call, calls, play, text_of

from helix import Agent, LiteLLMAdapter, LLMConfig, MemoryStateStore, ScriptedModel
from helix.adapters.models.catalog import LitellmCatalog
from helix.adapters.models.litellm import load_litellm
from helix.adapters.system import SystemClock
from helix.core.caching import CacheStrategy, ResponseCacheConfig
from helix.core.measures import Measures
from helix.core.messages import AssistantMessage
from helix.core.periods import TokenPeriod
from helix.core.routes import Route
from helix.core.usage import Usage
from helix.fleet.budgets import BudgetManager
from helix.ports.model import Question
from helix.services.row_cache import CacheEntry, RowCache
from helix.testing.clocks import ShiftedClock
from helix.testing.openai_server import HttpFailure, ModelAnswer, ModelUsage, word_vector

PAID = Usage(prompt_tokens=100, completion_tokens=20, cost_micros=1_500, calls=1)


class Noted:
    """An implementation of `Metrics` that records values."""

    def __init__(self) -> None:
        self.all: list[Measures] = []

    def record(self, measures: Measures) -> None:
        self.all.append(measures)

    def total(self, name: str) -> float:
        return sum(measures.values.get(name, 0) for measures in self.all)


def says(*entries: Any) -> ScriptedModel:
    """Return a model with these answers."""

    def one(entry: Any) -> Any:
        if isinstance(entry, str):
            return {"content": entry, "model": "m", "usage": PAID}
        return {"model": "m", "usage": PAID, **entry}

    return ScriptedModel([one(entry) for entry in entries], model="m")


def settings(policy: dict[str, Any] | None = None, **config: Any) -> LLMConfig:
    return LLMConfig(**{"model": "m", "temperature": 0, **config}, response_cache=ResponseCacheConfig(**(policy or {})))


def careful(cache: dict[str, Any] | None = None, /, **fields: Any) -> Agent[Any, Any]:
    fields.setdefault("llm_config", settings(cache))
    return agent("careful", **fields)


async def test_a_second_question_is_answered_without_the_model(world: World) -> None:
    """The second answer has the same output, stop reason and model, and is streamed. It used no tokens, and is marked as
    cached."""
    metrics = Noted()
    model = says("the answer")
    first = await play(world.executor(model, metrics=metrics), careful(), "what?")
    executor = world.executor(model, metrics=metrics)  # as another process would ask
    handle, result, chunks = await play(executor, careful(), "what?")
    assert len(model.requests) == 1
    assert result.output == first[1].output == "the answer" and text_of(chunks) == "the answer"
    assert first[1].usage == PAID and result.usage == Usage()
    before = (await executor.sessions.get_messages(first[0].session_id)).messages[-1]
    after = (await executor.sessions.get_messages(handle.session_id)).messages[-1]
    assert isinstance(before, AssistantMessage) and isinstance(after, AssistantMessage)
    assert before.metadata == {"model": "m", "stop_reason": "end_turn"}
    assert after.metadata == {**before.metadata, "cached": True}
    assert (metrics.total("CacheMisses"), metrics.total("CacheHits"), metrics.total("CacheSavedUsd")) == (1, 1, 0.0015)
    assert metrics.total("ModelCalls") == 1


async def test_it_is_off_unless_asked_for(quick_world: World) -> None:
    model = says("one", "two")
    executor = quick_world.executor(model)
    who = agent(llm_config=LLMConfig(model="m", temperature=0))
    assert [(await play(executor, who, "q"))[1].output for _ in range(2)] == ["one", "two"]


class Wanted(BaseModel):
    text: str


class Other(BaseModel):
    text: str
    more: int = 0


def looked(result: str) -> Any:
    return a_tool("look", lambda _arguments, _context: result)


CHANGES: dict[str, dict[str, Any]] = {
    "prompt": {"system_prompt": "You help otherwise."},
    "model": {"llm_config": settings(model="n")},
    "sampling": {"llm_config": settings({"sampled": True}, temperature=0.5)},
    "length": {"llm_config": settings(max_output_tokens=9)},
    "stop": {"llm_config": settings(stop=["x"])},
    "options": {"llm_config": settings(provider_options={"seed": 1})},
    "strict": {"llm_config": settings(strict_output=True)},
    "tools": {"tools": [looked("x")]},
    "described": {"tools": [a_tool("look", lambda _a, _c: "x", description="Looks closer.")]},
    "parameters": {"tools": [a_tool("look", lambda _a, _c: "x", input_schema=Wanted)]},
    "output": {"output_schema": Wanted},
    "other output": {"output_schema": Other},
}


@pytest.mark.parametrize("change", CHANGES)
async def test_whatever_changes_the_answer_is_another_question(quick_world: World, change: str) -> None:
    """This is the bug of the sources: their key lacked the temperature, the tools, the schema and the system prompt."""
    executor = quick_world.executor(says("first"))
    await play(executor, careful(), "q")
    answer = {"output": {"text": "second"}, "type": "structured_output"} if "output" in change else "second"
    model = ScriptedModel([answer], model="n" if change == "model" else "m")
    await play(quick_world.executor(model), careful(**CHANGES[change]), "q")
    assert len(model.requests) == 1


async def test_the_conversation_is_part_of_the_question(quick_world: World) -> None:
    """The same last message after another beginning is another question. The same conversation is the same question."""
    model = says("a", "b", "c", "d")
    executor = quick_world.executor(model)
    handle, *_ = await play(executor, careful(), "one")
    await play(executor, careful(), "two", session_id=handle.session_id)
    other, *_ = await play(executor, careful(), "three")
    _, result, _ = await play(executor, careful(), "two", session_id=other.session_id)
    assert result.output == "d" and len(model.requests) == 4
    again, *_ = await play(executor, careful(), "one")
    _, result, _ = await play(executor, careful(), "two", session_id=again.session_id)
    assert result.output == "b" and len(model.requests) == 4


async def test_settings_without_effect_do_not_matter(quick_world: World) -> None:
    """Timeouts, retries, the provider's own prompt cache and the retention time of answers do not change the key."""
    model = says("a")
    executor = quick_world.executor(model)
    await play(executor, careful(), "q")
    other = settings({"ttl_s": 60}, timeout_s=5, max_retries=0, cache=True, fallbacks=["z"])
    assert (await play(executor, careful(llm_config=other), "q"))[1].output == "a"


async def test_users_see_nothing_of_each_other(world: World) -> None:
    model = says("for ada", "for bob")
    executor = world.executor(model)
    outputs = [(await play(executor, careful(), "q", user_id=user))[1].output for user in ("ada", "bob", "ada", "bob")]
    assert outputs == ["for ada", "for bob", "for ada", "for bob"]


@pytest.mark.parametrize("temperature", [None, 0.7])
async def test_sampled_answers_are_not_kept_unless_told(quick_world: World, temperature: float | None) -> None:
    """A default temperature samples, too, and so does a temperature among the provider's options."""
    executor = quick_world.executor(says("one", "two", "three", "four", "five"))
    sampled = careful(llm_config=settings(temperature=temperature))
    assert [(await play(executor, sampled, "q"))[1].output for _ in range(2)] == ["one", "two"]
    hidden = careful(llm_config=settings(provider_options={"temperature": 1}))
    assert [(await play(executor, hidden, "q"))[1].output for _ in range(2)] == ["three", "four"]
    told = careful(llm_config=settings({"sampled": True}, temperature=temperature))
    assert [(await play(executor, told, "q"))[1].output for _ in range(2)] == ["five", "five"]


async def test_answers_that_call_tools_are_not_kept_unless_told(world: World) -> None:
    """If the setting allows it, the tool runs again under a new call id, and the answer to its result is cached as well."""
    ran: list[str] = []
    look = a_tool("look", lambda _arguments, context: ran.append(context.tool_call_id) or "seen")
    model = says(calls(call("look")), "done", calls(call("look")), calls(call("look")), "done again")
    executor = world.executor(model)
    for _ in range(2):  # the last answer of a turn answers the same question both times, and is cached
        _, result, _ = await play(executor, careful(tools=[look]), "q")
        assert result.output == "done"
    assert len(model.requests) == 3 and len(ran) == 2
    told = careful({"tool_calls": True}, tools=[look])
    for _ in range(3):
        _, result, _ = await play(executor, told, "q")
        assert result.output == "done"
    assert len(model.requests) == 4 and len(ran) == 5


async def test_calls_that_no_tool_takes_are_not_kept(quick_world: World) -> None:
    """Such calls are not cached even if calls may be cached, because the model would never be asked again."""
    look = a_tool("look", lambda arguments, _context: arguments.text, input_schema=Wanted)
    unknown, invalid, right = calls(call("unknown")), calls(call("look", text=3)), calls(call("look", text="x"))
    for wrong in (unknown, invalid):
        model = says(wrong, "no", right, "yes")
        executor = quick_world.executor(model)
        who = careful({"tool_calls": True}, tools=[look])
        assert [(await play(executor, who, str(wrong)))[1].output for _ in range(3)] == ["no", "yes", "yes"]


async def test_outputs_are_kept_where_they_are_valid(quick_world: World) -> None:
    """An output that its schema refuses is returned to the model, and is not cached."""
    wrong, right = calls(call("__finish__", text=3)), calls(call("__finish__", text="fine"))
    model = says(wrong, right, wrong, right)
    executor = quick_world.executor(model)
    outputs = [(await play(executor, careful(output_schema=Wanted), "q"))[1].output for _ in range(2)]
    assert outputs == [Wanted(text="fine")] * 2
    assert len(model.requests) == 3  # the invalid output was asked for again, and the next one was cached
    words = says("mere words", right, right)
    executor = quick_world.executor(words)
    assert [(await play(executor, careful(output_schema=Wanted), "r"))[1].output for _ in range(2)] == outputs
    assert len(words.requests) == 3  # text instead of the required output is not cached either
    only = says(right)
    executor = quick_world.executor(only)
    assert [(await play(executor, careful(output_schema=Wanted), "p"))[1].output for _ in range(2)] == outputs
    assert len(only.requests) == 1


async def test_failures_and_cut_answers_are_never_kept(quick_world: World) -> None:
    cut = {"content": "half", "stop_reason": "max_tokens"}
    model = says({"error": "no", "code": "server_error"}, cut, {"content": ""}, "whole")
    executor = quick_world.executor(model)
    statuses = [(await play(executor, careful(), "q"))[1].status for _ in range(5)]
    assert statuses == ["failed", "failed", "completed", "completed", "completed"]
    assert len(model.requests) == 4


async def test_an_answer_of_another_model_is_not_kept(quick_world: World, serve: Serve) -> None:  # noqa: F811
    """The answer of a fallback, given while the model was unavailable, is not the model's answer."""
    await asyncio.to_thread(load_litellm)
    server = serve(HttpFailure(status=400), "of the fallback", "of the model")
    executor = quick_world.executor(LiteLLMAdapter())
    who = careful(llm_config=settings(model="openai/gpt-4o", fallbacks=["openai/gpt-4o-mini"]))
    outputs = [(await play(executor, who, "q"))[1].output for _ in range(3)]
    assert outputs == ["of the fallback", "of the model", "of the model"]
    assert [request.json["model"] for request in server.requests] == ["gpt-4o", "gpt-4o-mini", "gpt-4o"]


async def test_what_it_saved_is_what_it_cost(quick_world: World, serve: Serve) -> None:  # noqa: F811
    """The saving is computed from the provider's usage and litellm's prices: 1,000 and 500 tokens of gpt-4o are 7,500
    millionths of a dollar."""
    await asyncio.to_thread(load_litellm)
    serve(ModelAnswer(text="x", usage=ModelUsage(1000, 500)))
    metrics = Noted()
    executor = quick_world.executor(LiteLLMAdapter(), metrics=metrics)
    who = careful(llm_config=settings(model="openai/gpt-4o"))
    for _ in range(3):
        await play(executor, who, "q")
    assert metrics.total("CacheSavedUsd") == pytest.approx(0.015)
    assert metrics.total("CostUsd") == pytest.approx(0.0075)


async def test_time_is_looked_at_when_it_is_read(world: World) -> None:
    clock = ShiftedClock()
    executor = world.executor(says("old", "new"), clock=clock)
    who = careful({"ttl_s": 600})
    assert (await play(executor, who, "q"))[1].output == "old"
    clock.ahead_s = 590
    assert (await play(executor, who, "q"))[1].output == "old"
    clock.ahead_s = 601
    assert (await play(executor, who, "q"))[1].output == "new"


async def test_an_answer_that_is_known_needs_no_budget(world: World) -> None:
    """A cached answer reserves and spends nothing. An exhausted budget still allows it, and refuses a new question."""
    executor = world.executor(says("known"), catalog=LitellmCatalog(prices={"m": (1e-6, 1e-6)}))
    await play(executor, careful(), "q", user_id="ada")
    manager = BudgetManager(executor.store)
    await manager.set_budget(0.000001, TokenPeriod.DAILY, tenant="ada", unit="usd")
    assert (await play(executor, careful(), "q", user_id="ada"))[1].output == "known"
    _, refused, _ = await play(executor, careful(), "another", user_id="ada")
    assert refused.error_code == "budget_exceeded"


class Broken:
    """A cache that fails."""

    async def get(self, tenant: str, question: Question) -> CacheEntry | None:
        raise OSError("the cache is away")

    async def put(self, *_: Any) -> None:
        raise OSError("the cache is away")

    async def entries(self, tenant: str) -> list[CacheEntry]:
        return []

    async def clear(self, tenant: str, *, expired_only: bool = False) -> int:
        return 0


async def test_a_cache_that_fails_costs_a_model_call(quick_world: World, caplog: pytest.LogCaptureFixture) -> None:
    executor = quick_world.executor(says("one", "two"), cache=Broken())
    assert [(await play(executor, careful(), "q"))[1].output for _ in range(2)] == ["one", "two"]
    assert len([line for line in caplog.messages if "the response cache failed" in line]) == 4


async def test_questions_worded_otherwise(quick_world: World) -> None:
    """With `semantic`, the same words in another order match after the same conversation, but only with an embedding
    function."""

    async def embed(texts: Any) -> list[list[float]]:
        return [word_vector(text) for text in texts]

    alike = careful({"strategy": CacheStrategy.SEMANTIC, "threshold": 0.9})
    cache = RowCache(MemoryStateStore(), embed=embed, clock=SystemClock())
    executor = quick_world.executor(says("Paris", "Rome", "x"), cache=cache)
    assert (await play(executor, alike, "What is the capital of France?"))[1].output == "Paris"
    assert (await play(executor, alike, "The capital of France is what?"))[1].output == "Paris"
    assert (await play(executor, alike, "And of Italy, please tell me now"))[1].output == "Rome"
    other = careful({"strategy": CacheStrategy.SEMANTIC}, system_prompt="Lie.")
    assert (await play(executor, other, "What is the capital of France?"))[1].output == "x"
    _, result, _ = await play(quick_world.executor(says("x")), alike, "What?")
    assert result.error_code == "invalid_input" and "embedding function" in str(result.error)


async def test_with_a_route_the_chosen_model_is_part_of_the_question(quick_world: World) -> None:
    """The cached answer of one model is not used for another model."""
    catalog = LitellmCatalog(limits={"m": (2_000, None), "n": (50_000, None)}, prices={"m": (0, 0), "n": (1, 1)})
    config = settings(model=Route(models=["m", "n"], prefer="cost"))
    model = says("short")
    executor = quick_world.executor(model, catalog=catalog)
    for _ in range(2):
        assert (await play(executor, careful(llm_config=config), "q"))[1].output == "short"
    assert len(model.requests) == 1


async def test_a_crash_after_the_answer_does_not_buy_it_again(tmp_path: Path) -> None:
    """The answer is cached before it is staged, so the worker that takes over finds it."""
    world = World("sqlite", tmp_path)
    executor = world.executor(says("bought once"))
    transact = executor.store.transact

    async def dies(name: str, operations: Any) -> None:
        if name == "commit":
            raise OSError("the process is gone")
        await transact(name, operations)

    executor.store.transact = dies  # type: ignore[method-assign]
    handle = await executor.execute(careful(), "q")
    with pytest.raises(Exception, match="stopped"):
        await handle.result(timeout_s=10)
    await executor.close()
    model = says()
    survivor = world.executor(model, clock=ShiftedClock(60))
    resumed = await survivor.resume(careful(), handle.session_id)
    assert (await resumed.result(timeout_s=10)).output == "bought once"
    assert model.requests == []
    await world.close()
