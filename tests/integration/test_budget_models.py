"""Budgets over real HTTP with litellm. Each test covers a known way of exceeding a proxy's budget, and names it.

They are: concurrent callers; streamed usage that is dropped, wrong, repeated or late; and attempts that are repeated and
billed. A call is never charged less than its provider may bill.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from tests import support_litellm
from tests.support_budgets import left, manager, worker
from tests.support_litellm import MODEL, FakeClock, Serve, openai_event, request
from tests.support_run import World

from helix import LLMConfig, LocalExecutor
from helix.adapters.models.litellm import LiteLLMAdapter
from helix.core.budget import BudgetDefinition
from helix.core.messages import SystemMessage, UserMessage
from helix.core.periods import TokenPeriod
from helix.core.steps import ErrorStepResult, TextStepResult
from helix.core.usage import Usage
from helix.engine.engine import Settings
from helix.engine.money.bounds import prompt_tokens
from helix.ports.model import Allowance
from helix.testing.loopback_server import LoopbackServer, RecordedRequest, Responder
from helix.testing.openai_server import CutAfter, HttpFailure, ModelAnswer, ModelUsage

serve = support_litellm.serve
clock = support_litellm.clock

TOTAL = TokenPeriod.TOTAL
ANSWER = 50
"""The maximum length of answers, in tokens."""
QUICK = Settings(stop_poll_s=0.05, worst_case_margin_percent=0)


class Bench:
    """An executor whose agent asks an OpenAI model, with budgets in tokens and dollars."""

    def __init__(self, world: World, clock: FakeClock, **fields: Any) -> None:
        self.executor: LocalExecutor = world.executor(LiteLLMAdapter(clock=clock), settings=QUICK)
        settings = {"model": MODEL, "max_output_tokens": ANSWER, "max_retries": 2, **fields}
        self.who = worker(llm_config=LLMConfig.model_validate(settings))
        self.tokens: BudgetDefinition | None = None
        self.dollars: BudgetDefinition | None = None

    async def bound(self, tokens: int = 1_000_000, usd: float = 10.0) -> None:
        self.tokens = await manager(self.executor).set_budget(tokens, TOTAL)
        self.dollars = await manager(self.executor).set_budget(usd, TOTAL, unit="usd")

    async def run(self) -> Any:
        handle = await self.executor.execute(self.who, "go")
        return await handle.result(timeout_s=30)

    async def charged(self) -> tuple[int, int]:
        """Return the (tokens, micro-dollars) charged so far."""
        assert self.tokens is not None and self.dollars is not None
        tokens, dollars = await left(self.executor, self.tokens), await left(self.executor, self.dollars)
        return tokens[0] - tokens[1], dollars[0] - dollars[1]

    def worst(self) -> int:
        """Return the maximum tokens of one attempt."""
        return prompt_tokens([SystemMessage(content="You help."), UserMessage(content="go")], []) + ANSWER


@pytest.fixture
def bench(quick_world: World, clock: FakeClock) -> Bench:
    return Bench(quick_world, clock)


async def test_the_race_of_many_callers(bench: Bench, serve: Serve) -> None:
    """All callers see that there is money, but each draws in its own transaction before the model is asked."""
    server = serve(*[ModelAnswer(text="done", usage=ModelUsage(60, ANSWER), delay_s=0.01)] * 16)
    worst = bench.worst()
    await bench.bound(tokens=3 * worst)
    results = await asyncio.gather(*(bench.run() for _ in range(16)))
    done = [r for r in results if r.status == "completed"]
    assert {r.error_code for r in results if r.status != "completed"} == {"budget_exceeded"}
    assert 1 <= len(done) == len(server.requests) <= 3
    tokens, _ = await bench.charged()
    assert tokens == len(done) * (60 + ANSWER) <= 3 * worst


async def test_streamed_usage_that_is_told_is_charged(bench: Bench, serve: Serve) -> None:
    serve(ModelAnswer(text="done", usage=ModelUsage(1000, 500)))
    await bench.bound()
    assert (await bench.run()).status == "completed"
    assert await bench.charged() == (1500, 450)


async def test_streamed_usage_that_is_dropped(bench: Bench, serve: Serve) -> None:
    """litellm estimates the usage in this case. The budgets charge the reservation instead."""
    serve(ModelAnswer(text="some words of an answer", usage=None))
    await bench.bound()
    result = await bench.run()
    assert result.status == "completed"
    assert (await bench.charged())[0] == 2 * bench.worst()


@pytest.mark.parametrize("usage", [ModelUsage(0, 0), ModelUsage(0, 7), ModelUsage(10, 0)], ids=str)
async def test_streamed_usage_that_is_wrong(bench: Bench, serve: Serve, usage: ModelUsage) -> None:
    """A call never has an empty prompt, and a call that returned text never has an empty answer."""
    serve(ModelAnswer(text="some words of an answer", usage=usage))
    await bench.bound()
    assert (await bench.run()).status == "completed"
    tokens, micros = await bench.charged()
    assert tokens == 2 * bench.worst() and micros > 0


async def streaming(monkeypatch: pytest.MonkeyPatch, bench: Bench, events: list[bytes | float], **fields: Any) -> Any:
    """Run against a server that streams these events, and return the result. A number is a pause in seconds."""

    async def answer(request: RecordedRequest, responder: Responder) -> None:
        await responder.start(200, {"content-type": "text/event-stream"})
        for event in events:
            if isinstance(event, float):
                await asyncio.sleep(event)
            else:
                await responder.send(event)
        await responder.send(b"data: [DONE]\n\n")
        await responder.end()

    await bench.bound()
    with LoopbackServer(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.origin)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        return await bench.run()


def usage_event(prompt: int, completion: int) -> bytes:
    usage = ModelUsage(prompt, completion).wire()
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage}
    return f"data: {json.dumps(chunk)}\n\n".encode()


async def test_streamed_usage_that_comes_late(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Usage that arrives after the finish and a silence is counted."""
    events: list[bytes | float] = [
        openai_event({"content": "done"}),
        openai_event({}, "stop"),
        0.2,
        usage_event(100, 20),
    ]
    assert (await streaming(monkeypatch, bench, events)).status == "completed"
    assert (await bench.charged())[0] == 120


async def test_streamed_usage_that_comes_too_late(
    quick_world: World, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adapter does not wait forever. After its patience the usage counts as missing."""
    bench = Bench(quick_world, clock, stall_timeout_s=0.1)
    events: list[bytes | float] = [
        openai_event({"content": "done"}),
        openai_event({}, "stop"),
        1.0,
        usage_event(100, 20),
    ]
    assert (await streaming(monkeypatch, bench, events)).status == "completed"
    assert (await bench.charged())[0] == 2 * bench.worst()


async def test_streamed_usage_that_is_told_again_and_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event has the total so far, so the last one counts and they are not added up."""
    events = [
        openai_event({"content": "do"}),
        usage_event(100, 1),
        openai_event({"content": "ne"}),
        usage_event(100, 2),
    ]
    events += [openai_event({}, "stop"), usage_event(100, 3)]
    assert (await streaming(monkeypatch, bench, events)).status == "completed"  # type: ignore[arg-type]
    assert (await bench.charged())[0] == 103


async def test_a_repeated_attempt_is_billed(bench: Bench, serve: Serve) -> None:
    """The first stream broke off, so it may be billed for its maximum length. The second is billed for its reported
    usage."""
    server = serve(ModelAnswer(text="so far", fault=CutAfter(1)), ModelAnswer(text="done", usage=ModelUsage(60, 10)))
    await bench.bound()
    assert (await bench.run()).output == "done"
    assert len(server.requests) == 2
    tokens, _ = await bench.charged()
    assert tokens == 2 * bench.worst() >= bench.worst() + 70


async def test_no_attempt_is_repeated_that_the_budget_does_not_cover(bench: Bench, serve: Serve) -> None:
    """The budget had room for one attempt, which may have been billed. The run fails, and may be retried after a raise."""
    server = serve(ModelAnswer(text="so far", fault=CutAfter(1)), ModelAnswer(text="done", usage=ModelUsage(60, 10)))
    worst = bench.worst()
    await bench.bound(tokens=worst + worst // 2)
    result = await bench.run()
    assert (result.status, result.error_code, len(server.requests)) == ("failed", "connection_error", 1)
    assert (await bench.charged())[0] == worst


async def test_an_attempt_that_was_refused_costs_nothing(bench: Bench, serve: Serve) -> None:
    """A 429 or a 503 is not billed, so the attempt is repeated whatever is left."""
    refused = [HttpFailure(status=429), HttpFailure(status=503)]
    server = serve(*refused, ModelAnswer(text="done", usage=ModelUsage(60, 10)))
    await bench.bound(tokens=bench.worst() + 1)
    assert (await bench.run()).output == "done"
    assert len(server.requests) == 3
    assert (await bench.charged())[0] == 70


async def test_a_dearer_fallback_is_within_the_reservation(quick_world: World, clock: FakeClock, serve: Serve) -> None:
    """The reservation is that of the most expensive model, so that it covers the answer of any of them."""
    serve(HttpFailure(status=401), ModelAnswer(text="done", usage=ModelUsage(60, ANSWER)))
    bench = Bench(quick_world, clock, fallbacks=["openai/gpt-4"], max_retries=0)
    await bench.bound(usd=0.03)
    assert (await bench.run()).output == "done"
    _, micros = await bench.charged()
    assert micros == 60 * 30 + ANSWER * 60, "gpt-4 is 30 and 60 dollars a million"


async def test_a_model_without_a_price_is_charged_the_ceiling(
    quick_world: World, clock: FakeClock, serve: Serve
) -> None:
    serve(ModelAnswer(text="done", usage=ModelUsage(60, 10)))
    bench = Bench(quick_world, clock, model="openai/my-own")
    await bench.bound()
    assert (await bench.run()).output == "done"
    assert await bench.charged() == (70, 70 * QUICK.worst_case_micros_per_token)


# --- the adapter alone ------------------------------------------------------------------------------------------------

ONE = Allowance(tokens=100, micros=1000, attempt_tokens=100, attempt_micros=1000)
TWO = Allowance(tokens=200, micros=2000, attempt_tokens=100, attempt_micros=1000)


@pytest.mark.parametrize(("allowance", "attempts"), [(None, 4), (ONE, 1), (TWO, 2)])
async def test_attempts_that_break_off_use_up_the_allowance(
    serve: Serve, clock: FakeClock, allowance: Allowance | None, attempts: int
) -> None:
    server = serve(*[ModelAnswer(text="so far", fault=CutAfter(1))] * 6)
    result = await LiteLLMAdapter(clock=clock).generate_step(replace(request(max_retries=3), allowance=allowance))
    assert isinstance(result, ErrorStepResult) and result.retryable
    assert len(server.requests) == attempts == result.usage.unknown_calls == result.usage.calls


async def test_a_fallback_is_an_attempt_too(serve: Serve, clock: FakeClock) -> None:
    server = serve(ModelAnswer(text="so far", fault=CutAfter(1)), "never")
    asked = replace(request(max_retries=0, fallbacks=["openai/gpt-4o"]), allowance=ONE)
    result = await LiteLLMAdapter(clock=clock).generate_step(asked)
    assert isinstance(result, ErrorStepResult) and len(server.requests) == 1


async def test_a_call_that_is_cut_by_its_deadline_is_of_unknown_usage(serve: Serve) -> None:
    serve(ModelAnswer(text="a long answer", delay_s=5))
    result = await LiteLLMAdapter().generate_step(request(deadline_s=0.5))
    assert isinstance(result, ErrorStepResult)
    assert (result.code, result.usage.unknown_calls) == ("deadline_exceeded", 1)


async def test_nobody_listening_is_not_billed(serve: Serve) -> None:
    serve().stop()
    result = await LiteLLMAdapter().generate_step(request(max_retries=0))
    assert result.usage == Usage()


async def test_a_told_answer_is_a_known_one(serve: Serve) -> None:
    serve(ModelAnswer(text="done", usage=ModelUsage(60, 10)))
    result = await LiteLLMAdapter().generate_step(request())
    assert isinstance(result, TextStepResult) and result.usage.unknown_calls == 0
