"""Model calls in the providers' batches: what is sent, what it costs, and that nothing is bought twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from tests.support.batch_servers import EXPIRES, AnthropicBatchServer, BatchServer, OpenAIBatchServer, Refuses
from tests.support_run import World, chunks_of, eventually, history, text_of, told

from helix import Agent, LLMConfig, LocalExecutor, ReminderContext, tool
from helix.adapters.models.adapter import ModelAdapter
from helix.adapters.models.pricing import Tokens, price
from helix.cli.sessions.page import print_page, read_page
from helix.client import HelixClient
from helix.core.budget import BudgetDefinition
from helix.core.errors import DefinitionError
from helix.core.tools import create_sub_agent_tool
from helix.engine.engine import Settings
from helix.gateway.loopback import LoopbackGateway
from helix.services.batch_rows import read_queues
from helix.testing.openai_server import ModelAnswer, ModelToolCall

QUICK = Settings(stop_poll_s=0.01, batch_gather_s=0.05, batch_poll_s=0.02, claim_s=2, skew_s=0.1)
GPT, CLAUDE = "openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5"
PATIENCE_S = 60.0  # a first call imports the provider's package


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def plays(body: dict[str, Any]) -> ModelAnswer:
    """Ask for one call, then answer with the number of messages."""
    items = body.get("messages") or body.get("input")
    assert isinstance(items, list)
    said = [item for item in items if item.get("role") != "system" and "<reminder>" not in str(item)]
    if len(said) == 1:
        return ModelAnswer(tool_calls=[ModelToolCall("add", {"a": 1, "b": 2})])
    return ModelAnswer(text="three")


def adder(model: str = GPT, **fields: Any) -> Agent[Any, Any]:
    config = LLMConfig(model=model, **fields.pop("config", {}))
    return Agent(name="adder", system_prompt="Add.", tools=[add], llm_config=config, batch=True, **fields)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    started: list[BatchServer] = []

    def start(kind: type[BatchServer] = OpenAIBatchServer, play: Any = plays, **options: Any) -> BatchServer:
        server = kind(play, **options).start()
        started.append(server)
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        return server

    yield start
    for server in started:
        server.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


async def left_over(executor: LocalExecutor) -> list[str]:
    """Return the partitions of rows that batches have left behind, except the queues."""
    queues, batches = await read_queues(executor.store)
    parts = [f"batch-{kind}#{queue}" for queue in queues for kind in ("calls", "bodies")]
    return [*(name for _, name in batches), *[p for p in parts if await executor.store.query("control", p)]]


def an_executor(world: World, **options: Any) -> LocalExecutor:
    options.setdefault("settings", QUICK)
    return world.executor(ModelAdapter(), **options)


@pytest.mark.parametrize(
    ("kind", "model", "config"),
    [
        (OpenAIBatchServer, GPT, {"api": "chat"}),
        (OpenAIBatchServer, GPT, {"api": "responses"}),
        (AnthropicBatchServer, CLAUDE, {}),
    ],
)
async def test_a_run_of_two_steps_takes_two_batches_at_half_the_price(
    file_world: World, provider: Any, kind: type[BatchServer], model: str, config: dict[str, Any]
) -> None:
    server = provider(kind)
    executor = an_executor(file_world)
    handle = await executor.execute(adder(model, config=config), "What is 1 + 2?")
    result = await handle.result(PATIENCE_S)
    assert (result.status, result.text, result.steps) == ("completed", "three", 2)
    assert len(server.batches) == 2
    assert set(server.executed.values()) == {1} and len(server.executed) == 2
    assert told(await history(executor, handle.session_id))[1:] == [
        "assistant: [add]",
        "tool: 3",
        "assistant: three",
    ]
    full = price(model, Tokens(10, 5), {}).cost_micros
    assert result.usage.cost_micros == 2 * ((full + 1) // 2) > 0
    assert (result.usage.calls, result.usage.unknown_calls) == (2, 0)
    assert await left_over(executor) == []
    assert text_of(await chunks_of(handle)) == "three"


async def test_many_runs_share_a_batch_and_no_task_waits(world: World, provider: Any) -> None:
    server = provider(looks=10_000)
    executor = an_executor(world)
    who = adder()
    handles = [await executor.execute(who, f"go {n}") for n in range(30)]
    await until(lambda: sum(len(batch.requests) for batch in server.batches.values()) == 30)
    await until(lambda: not executor._tasks)
    assert len(server.batches) < 10
    server.looks = 1
    results = await asyncio.gather(*(handle.result(PATIENCE_S) for handle in handles))
    assert {result.text for result in results} == {"three"}
    assert set(server.executed.values()) == {1} and len(server.executed) == 60


@pytest.mark.parametrize(("kind", "model"), [(OpenAIBatchServer, GPT), (AnthropicBatchServer, CLAUDE)])
async def test_a_batch_that_was_sent_before_a_crash_is_found_and_not_sent_again(
    world: World, provider: Any, kind: type[BatchServer], model: str
) -> None:
    """The provider has made the batch, but the worker never learned its id."""
    server = provider(kind, loses=1)
    executor = an_executor(world)
    handle = await executor.execute(adder(model), "go")
    if kind is AnthropicBatchServer:  # its batches have no name: the ids of the requests show once it has ended
        await until(lambda: bool(server.batches))
        await asyncio.sleep(0.2)
        assert len(server.batches) == 1
        server._execute(server.batches["batch_0"])
    result = await handle.result(PATIENCE_S)
    assert (result.status, len(server.batches)) == ("completed", 2)
    assert set(server.executed.values()) == {1} and result.usage.calls == 2


@pytest.mark.parametrize(("kind", "model"), [(OpenAIBatchServer, GPT), (AnthropicBatchServer, CLAUDE)])
async def test_an_expired_call_goes_into_the_next_batch(
    world: World, provider: Any, kind: type[BatchServer], model: str
) -> None:
    expired: list[str] = []

    def play(body: dict[str, Any]) -> Any:
        if len(expired) < 2:
            expired.append("once")
            return EXPIRES
        return plays(body)

    server = provider(kind, play)
    executor = an_executor(world)
    result = await (await executor.execute(adder(model), "go")).result(PATIENCE_S)
    assert (result.status, len(server.batches), result.usage.calls) == ("completed", 4, 2)
    assert set(server.executed.values()) == {1} and await left_over(executor) == []


async def test_a_call_that_expires_too_often_fails_the_run(world: World, provider: Any) -> None:
    server = provider(play=lambda body: EXPIRES)
    executor = an_executor(world)
    result = await (await executor.execute(adder(config={"max_retries": 1}), "go")).result(PATIENCE_S)
    assert (result.status, result.error_code, len(server.batches)) == ("failed", "batch_expired", 2)
    assert result.usage.cost_micros == 0 and await left_over(executor) == []


@pytest.mark.parametrize(
    ("kind", "model", "refusal", "code", "batches"),
    [
        (OpenAIBatchServer, GPT, Refuses(400, "invalid_request_error"), "bad_request", 1),
        (OpenAIBatchServer, GPT, Refuses(429, "tokens", "rate_limit_exceeded"), "rate_limited", 2),
        (AnthropicBatchServer, CLAUDE, Refuses(400, "invalid_request_error"), "bad_request", 1),
        (AnthropicBatchServer, CLAUDE, Refuses(529, "overloaded_error"), "server_error", 2),
    ],
)
async def test_a_refused_request_is_repeated_only_if_that_may_help(
    quick_world: World, provider: Any, kind: type[BatchServer], model: str, refusal: Refuses, code: str, batches: int
) -> None:
    server = provider(kind, lambda body: refusal)
    executor = an_executor(quick_world)
    who = adder(model, config={"max_retries": 1})
    result = await (await executor.execute(who, "go")).result(PATIENCE_S)
    assert (result.status, result.error_code, len(server.batches)) == ("failed", code, batches)


async def test_a_refused_batch_fails_its_calls(quick_world: World, provider: Any) -> None:
    server = provider()
    server.refuses_batches = (400, "no batches for you")
    executor = an_executor(quick_world)
    result = await (await executor.execute(adder(), "go")).result(PATIENCE_S)
    assert (result.status, result.error_code) == ("failed", "bad_request")
    server.refuses_batches, server.problem = None, "invalid_json_line"
    result = await (await executor.execute(adder(), "go")).result(PATIENCE_S)
    assert (result.status, result.error_code) == ("failed", "invalid_json_line")
    assert await left_over(executor) == []


async def test_a_batch_without_credentials_fails_its_calls(
    quick_world: World, provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = provider()
    monkeypatch.delenv("OPENAI_API_KEY")
    executor = an_executor(quick_world)
    result = await (await executor.execute(adder(), "go")).result(PATIENCE_S)
    assert (result.status, result.error_code, server.batches) == ("failed", "authentication", {})


async def test_an_interrupt_takes_back_a_call_that_was_not_sent(world: World, provider: Any) -> None:
    server = provider()
    executor = an_executor(world, settings=replace(QUICK, batch_gather_s=600))
    handle = await executor.execute(adder(), "go")
    await until(lambda: not executor._tasks)
    assert await handle.interrupt("enough")
    result = await handle.result(PATIENCE_S)
    assert (result.status, result.usage.calls, server.batches) == ("interrupted", 0, {})
    assert await left_over(executor) == []
    row = await executor.sessions.get_run(handle.session_id, handle.run_id)
    assert row.claim is None and not row.parts


async def test_what_was_sent_before_an_interrupt_is_paid_and_counted_once(world: World, provider: Any) -> None:
    server = provider(looks=10_000)
    executor = an_executor(world)
    handle = await executor.execute(adder(), "go")
    await until(lambda: len(server.batches) == 1)
    await handle.interrupt()
    result = await handle.result(PATIENCE_S)
    assert result.status == "interrupted"
    server.looks = 1

    async def is_counted() -> bool:
        row = await executor.sessions.get_run(handle.session_id, handle.run_id)
        return row.late_calls == 1 and await left_over(executor) == []

    await eventually(is_counted)
    row = await executor.sessions.get_run(handle.session_id, handle.run_id)
    assert row.late_tokens == 15 and row.late_micros > 0
    resumed = await (await executor.resume(adder(), handle.session_id)).result(PATIENCE_S)
    assert (resumed.status, len(server.batches)) == ("completed", 3)  # the interrupted step is bought anew


async def test_an_abort_ends_a_run_that_waits(quick_world: World, provider: Any) -> None:
    provider(looks=10_000)
    executor = an_executor(quick_world)
    handle = await executor.execute(adder(), "go")
    await until(lambda: not executor._tasks)
    await executor.abort(adder(), handle.session_id, "no longer needed")
    assert (await handle.result(PATIENCE_S)).error_code == "aborted"


async def test_another_process_sends_and_collects_what_a_dead_one_left(file_world: World, provider: Any) -> None:
    server = provider()
    first = an_executor(file_world, settings=replace(QUICK, batch_gather_s=600))
    handle = await first.execute(adder(), "go")
    await until(lambda: not first._tasks)
    await first.close()
    second = an_executor(file_world)
    second.agents.know(adder())
    async with second:
        again = await second.get_handle(adder(), handle.session_id, handle.run_id)
        result = await again.result(PATIENCE_S)
    assert (result.status, result.run_id, len(server.batches)) == ("completed", handle.run_id, 2)


async def test_an_answer_is_read_as_it_was_asked_for(file_world: World, provider: Any) -> None:
    """The agent was deployed with another model of another provider while its call waited."""
    gpt, claude = provider(), provider(AnthropicBatchServer)
    first = an_executor(file_world, settings=replace(QUICK, batch_gather_s=600))
    handle = await first.execute(adder(), "go")
    await until(lambda: not first._tasks)
    await first.close()
    second, changed = an_executor(file_world), adder(CLAUDE)
    second.agents.know(changed)
    async with second:
        again = await second.get_handle(changed, handle.session_id, handle.run_id)
        result = await again.result(PATIENCE_S)
        assert (result.status, result.text) == ("completed", "three")
        models = [m.metadata["model"] for m in await history(second, handle.session_id) if m.role == "assistant"]
    assert models == [GPT, CLAUDE] and len(gpt.batches) == len(claude.batches) == 1


async def test_a_reminder_that_fails_later_does_not_lose_a_paid_answer(world: World, provider: Any) -> None:
    """It is asked once for each call, and not again when the answer is taken."""
    server, asked = provider(), list[int]()

    def late(context: ReminderContext) -> str:
        if context.step in asked:
            raise ConnectionError("no clock")
        asked.append(context.step)
        return "It is late."

    executor = an_executor(world)
    handle = await executor.execute(adder(reminders=[late]), "go")
    result = await handle.result(PATIENCE_S)
    assert (result.status, result.text) == ("completed", "three")
    assert set(server.executed.values()) == {1} and len(server.executed) == 2


async def test_a_budget_reserves_half_and_keeps_it_while_the_call_waits(world: World, provider: Any) -> None:
    server = provider(looks=10_000)
    executor = an_executor(world)
    budget = BudgetDefinition.model_validate(
        {"scope": "agent:adder", "period": "day", "unit": "micros", "limit": 10_000}
    )
    await executor.engine.budgets.define(budget, executor.engine.clock.now())
    name = budget.window(executor.engine.clock.now())[0]

    async def remaining() -> int:
        (state,) = await executor.engine.budgets.get([name])
        return 10_000 if state is None else state.remaining

    who = adder(config={"max_output_tokens": 1000})
    handle = await executor.execute(who, "go")
    await until(lambda: not executor._tasks)
    session = await executor.engine.history.session(handle.session_id)
    assert session is not None and session.claim is not None
    assert (await executor.sessions.get(handle.session_id)).in_batch
    whole = 1.1 * 0.6 * 1000  # the answer's price at full length, with the margin
    assert whole / 2 <= session.claim.micros < whole
    assert await remaining() < 10_000
    server.looks = 1
    result = await handle.result(PATIENCE_S)
    assert result.status == "completed"
    assert await remaining() == 10_000 - result.usage.cost_micros


async def test_what_batches_do_not_support_is_refused_by_name(quick_world: World, provider: Any) -> None:
    provider()
    executor = an_executor(quick_world)
    with pytest.raises(DefinitionError, match="sub-agent 'adder' has batch=True"):
        Agent(name="boss", system_prompt="Lead.", tools=[create_sub_agent_tool(adder())], model=GPT)
    with pytest.raises(DefinitionError, match="batch: must be True or False"):
        Agent(name="boss", system_prompt="Lead.", model=GPT, batch="yes")  # type: ignore[arg-type]
    for config, said in (
        ({"provider_options": {"api_key": "sk-secret"}}, "'api_key' cannot be stored"),
        ({"adapter": "litellm"}, "has no batches here"),
    ):
        result = await (await executor.execute(adder(config=config), "go")).result(PATIENCE_S)
        assert (result.status, result.error_code) == ("failed", "batch_unsupported")
        assert said in (result.error or "")
    scripted = quick_world.executor(["never"], settings=QUICK)
    result = await (await scripted.execute(adder(), "go")).result(PATIENCE_S)
    assert (result.status, result.error_code) == ("failed", "batch_unsupported")


async def test_show_says_that_a_run_waits_for_a_batch(quick_world: World, provider: Any) -> None:
    provider()
    executor = an_executor(quick_world, settings=replace(QUICK, batch_gather_s=600))
    handle = await executor.execute(adder(), "go")
    await until(lambda: not executor._tasks)
    async with LoopbackGateway(executor) as gateway, await HelixClient.connect(gateway.url) as client:
        page = await read_page(client, handle.session_id, None)
    printed = StringIO()
    print_page(Console(file=printed, width=200), page, executor.engine.clock.now())
    assert "waits for a batch of the model's provider" in printed.getvalue()


async def test_a_deleted_session_leaves_nothing_behind(quick_world: World, provider: Any) -> None:
    server = provider(looks=10_000)
    executor = an_executor(quick_world)
    handle = await executor.execute(adder(), "go")
    await until(lambda: len(server.batches) == 1)
    await executor.abort(adder(), handle.session_id)
    await executor.delete(handle.session_id)
    server.looks = 1

    async def is_clean() -> bool:
        return await left_over(executor) == []

    await eventually(is_clean)
