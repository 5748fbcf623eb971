"""The ledger of a session: a line for every billed attempt in all its sub-agents, and their sum."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.delivery_stage import Stage
from tests.support_run import Gate, Text, World, a_tool, agent, call, calls, gated, play, result_of

from helix import MemoryStateStore, create_sub_agent_tool
from helix.core import aws_prices
from helix.core.context import ToolContext
from helix.core.delivery import Delivery
from helix.core.errors import SessionNotFoundError, WorkInProgressError
from helix.core.ledger import NANOS, Ledger, Line
from helix.core.row_keys import run_sort
from helix.core.steps import ErrorStepResult
from helix.core.usage import Usage
from helix.engine.history import row_key, session_key
from helix.engine.runs.ends import abort
from helix.fleet.budgets import BudgetManager
from helix.infra.verbs import SIZES
from helix.ports.state_store import Delete, Update
from helix.sessions.ledger import ledger
from helix.sessions.ledger_aws import MEMORY_GB, OTHER_MEMORY_GB

ECHO = a_tool("echo", lambda given, context: given.text, input_schema=Text)


def paid(entry: Any, micros: int, **usage: Any) -> dict[str, Any]:
    entry = {"content": entry} if isinstance(entry, str) else entry
    used = {"prompt_tokens": 10, "completion_tokens": 5, "cost_micros": micros, "calls": 1, **usage}
    return {**entry, "usage": used}


def brief(book: Ledger, service: str) -> list[tuple[str, int | None, int | None, int, str]]:
    """Return (what, step, attempt, micro-dollars, basis) of a service's lines."""
    return [(x.what, x.step, x.attempt, x.nanos // 1000, x.basis) for x in book.lines if x.service == service]


def assert_sound(book: Ledger) -> None:
    assert book.nanos == sum(line.nanos for line in book.lines) == sum(book.by_service().values())
    assert all(line.how for line in book.lines if line.basis == "estimated"), "an estimate names its source"


async def test_every_attempt_is_a_line_and_the_runs_rows_agree(world: World) -> None:
    failed = ErrorStepResult(error="no", code="overloaded", usage=Usage(prompt_tokens=7, cost_micros=70, calls=1))
    executor = world.executor([paid(calls(call("echo", text="a")), 300), failed, paid("done", 500)])
    handle, result, _ = await play(executor, who := agent(tools=[ECHO]))
    assert result.status == "failed"
    await result_of(await executor.retry(who, handle.session_id))
    book = await ledger(executor.store, handle.session_id)
    assert brief(book, "Model") == [
        ("scripted", 1, 1, 300, "measured"),
        ("scripted, failed", 2, 1, 70, "measured"),
        ("scripted", 2, 1, 500, "measured"),
    ]
    assert [line.how for line in book.lines] == ["", "overloaded", ""]
    assert book.agrees and book.nanos == 870_000
    assert {line.service for line in book.lines} == {"Model"}, "a local run has no platform cost"
    assert book.left_out == ()
    assert_sound(book)
    runs = (await executor.sessions.list_runs(handle.session_id)).runs
    assert book.nanos == sum(run.usage.cost_micros for run in runs) * 1000


async def test_sub_agents_and_tools_are_in_it_once(world: World) -> None:
    async def looks(arguments: Any, context: ToolContext[Any]) -> str:
        context.record_usage(Usage(prompt_tokens=3, cost_micros=40, calls=1))
        return "seen"

    inner = agent("inner", tools=[a_tool("look", looks)], output_schema=Text)
    outer = agent("outer", tools=[create_sub_agent_tool(inner)])
    script = {
        "outer": [paid(calls(call("subagent__inner", message="find")), 100), paid("done", 200)],
        "inner": [paid(calls(call("look")), 10), paid(calls(call("__finish__", text="x")), 20)],
    }
    executor = world.executor(script)
    handle, _, _ = await play(executor, outer)
    book = await ledger(executor.store, handle.session_id)
    assert brief(book, "Tool") == [("look", 1, None, 40, "measured")]
    assert book.nanos == 370_000 and book.agrees
    assert len({line.session_id for line in book.lines}) == 2
    (run,) = (await executor.sessions.list_runs(handle.session_id)).runs
    assert book.nanos == run.usage.cost_micros * 1000, "the root's own row has its sub-agents in it"
    assert_sound(book)
    part = await ledger(executor.store, handle.session_id, most=1)
    assert part.left_out == ("1 sub-agents' sessions or more, beyond the first 1",)


async def test_a_sub_agents_session_that_is_not_there_ends_no_ledger(quick_world: World) -> None:
    inner = agent("inner", output_schema=Text)
    outer = agent("outer", tools=[create_sub_agent_tool(inner)])
    asked = [call("subagent__inner", message=text) for text in "ab"]
    answer = paid(calls(call("__finish__", text="x")), 20)
    executor = quick_world.executor({"outer": [paid(calls(*asked), 100), paid("done", 200)], "inner": [answer] * 2})
    handle, _, _ = await play(executor, outer)
    whole = await ledger(executor.store, handle.session_id)
    first, second = list(dict.fromkeys(x.session_id for x in whole.lines if x.session_id != handle.session_id))
    await executor.store.transact("gone", [Delete(session_key(first))])
    book = await ledger(executor.store, handle.session_id)
    assert {line.session_id for line in book.lines} == {handle.session_id, second}


async def test_a_price_that_is_not_known_is_said(world: World) -> None:
    executor = world.executor([paid("done", 0, priced=False)])
    handle, _, _ = await play(executor, agent())
    (line,) = (await ledger(executor.store, handle.session_id)).lines
    assert (line.nanos, line.basis) == (0, "estimated") and "the price of this model is not known" in line.how


@pytest.mark.parametrize("reserved", [False, True])
async def test_an_attempt_of_which_nobody_heard_again_is_its_reservation(reserved: bool) -> None:
    async def stuck(request: Any) -> Any:
        await asyncio.Event().wait()

    who = agent()
    made = Stage([stuck, paid("done", 500)], who)
    if reserved:
        await BudgetManager(made.store).set_budget(1000.0, "total", unit="usd")
    event = await made.begin(who)
    with pytest.raises(WorkInProgressError):
        await made.deliver("call_model", event, left_s=15.05)
    made.clock.ahead_s += 60
    await made.deliver("finish_run", await made.follow(event))
    book = await ledger(made.store, event["session_id"])
    dead, answered = [line for line in book.lines if line.service == "Model"]
    assert (dead.what, dead.attempt, dead.basis) == ("scripted, dead", 1, "estimated")
    assert (dead.nanos > 0) is reserved and ("worst case" in dead.how) is reserved
    assert (answered.attempt, answered.nanos, answered.basis) == (2, 500_000, "measured")
    assert book.agrees


async def test_a_call_that_its_run_did_not_outlive_is_a_line() -> None:
    """Its worker died and no worker took it over, and then the run was aborted."""
    gate, who = Gate(), agent("helper")
    stage = Stage([gated(gate, "never")], who)
    event = await stage.begin(who)
    thinking = asyncio.create_task(stage.deliver("call_model", event))
    await gate.reached()
    thinking.cancel()
    await asyncio.wait({thinking})
    await abort(stage.engine, who, event["session_id"], "no", Delivery("a", 1e12))
    book = await ledger(stage.store, event["session_id"])
    assert [(line.step, line.attempt, line.what) for line in book.lines] == [(1, 1, "scripted, cancelled")]
    assert book.agrees


async def test_books_that_know_of_more_are_a_line(world: World) -> None:
    executor = world.executor([paid("done", 500)])
    handle, _, _ = await play(executor, agent())
    run = await executor.engine.history.run(handle.session_id, handle.run_id)

    async def say(micros: int) -> Ledger:
        usage = run.usage.model_copy(update={"cost_micros": micros})
        told = run.model_copy(update={"usage": usage}).model_dump(mode="json", include={"usage"})
        row = Update(row_key(handle.session_id, run_sort(handle.run_id)), set=told)
        await executor.store.transact("tamper", [row])
        return await ledger(executor.store, handle.session_id)

    more = await say(650)
    assert not more.agrees and more.nanos == 650_000
    assert brief(more, "Books") == [("difference to the runs' rows", None, None, 150, "estimated")]
    less = await say(400)
    assert not less.agrees and less.nanos == 500_000, "the paid amount stays"
    assert less.lines[-1].how == "the rows of its runs say $0.000400, its calls $0.000500"
    assert_sound(more)


async def test_a_deployed_session_pays_the_platform_too() -> None:
    who = agent(tools=[ECHO])
    made = Stage([paid(calls(call("echo", text="a")), 300), paid("done", 500)], who)
    told = await made.follow(await made.begin(who))
    await made.deliver("finish_run", told)
    book = await ledger(made.store, told["session_id"], deployed=True)
    assert_sound(book)

    def line(service: str, what: str) -> Line:
        (found,) = [x for x in book.lines if (x.service, x.what) == (service, what)]
        return found

    states = line("Step Functions", "transitions")
    assert (states.quantity, states.basis, states.run_id) == (6, "counted", told["run_id"])
    assert states.nanos == round(6 * aws_prices.TRANSITION * NANOS) == 150_000
    assert [line("Lambda", verb).quantity for verb in ("call_model", "call_tool", "finish_run")] == [2, 1, 1]
    assert line("Lambda", "call_model, time").basis == "estimated"
    session = await made.session(told)
    assert line("DynamoDB", "writes: session row").quantity == 2 * session.version
    assert line("Kinesis", "puts").basis == line("API Gateway", "messages").basis == "estimated"
    assert book.by_service()["Model"] == 800_000
    assert {"Step Functions", "Lambda", "DynamoDB", "Kinesis", "API Gateway"} <= set(book.by_service())
    assert book.left_out
    without = await ledger(made.store, told["session_id"], deployed=True, streaming="direct")
    assert without.by_service().keys() == book.by_service().keys() - {"Kinesis"}, "nothing is put on Kinesis"
    dumped = book.dump()
    assert dumped["usd"] == pytest.approx(sum(x["usd"] for x in dumped["lines"]))


def test_functions_have_the_memory_that_the_ledger_counts_with() -> None:
    for verb, size in SIZES.items():
        if verb != "health":  # it is charged to no session
            assert size.memory_mb / 1024 == MEMORY_GB.get(verb, OTHER_MEMORY_GB), verb


async def test_a_session_that_is_not_there_has_no_ledger() -> None:
    with pytest.raises(SessionNotFoundError):
        await ledger(MemoryStateStore(), "nobody")
