"""A process dies at every write while another system ends its call: the result is never lost, and never applied twice. If
guards judge it, no other result is ever applied than the one that they let pass."""

from __future__ import annotations

from contextlib import suppress

import pytest
from pydantic import JsonValue
from tests.support.journal import Journal
from tests.support.usage_invariants import find_usage_problems
from tests.support_crash import CONFIG, LONG, LoggedModel, Notes, S, call, choose, executor, fresh, model, quiet, settle

from helix import Agent, CallEndedError, Guard, LocalExecutor, MemoryStateStore, Replace, ToolContext, tool
from helix.core.guards import GuardContext
from helix.core.messages import ToolResultMessage
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.testing.crash import CrashPoints, Point, crash_everywhere

TOKENS: list[str] = []
WORKERS: list[LocalExecutor] = []
EARLY: list[bool] = []
JUDGED: list[JsonValue] = []


@tool(later=True)
async def ship(ctx: ToolContext[Notes]) -> None:
    """Ship, and let the other system end the call, at once in some tests."""
    ctx.update_state(lambda notes: notes.seen.append("shipped"))
    TOKENS.append(await ctx.later(heartbeat_s=LONG * 3))
    if EARLY:
        await WORKERS[-1].complete_call(TOKENS[0], "shipped")


def judge(value: JsonValue, context: GuardContext) -> Replace:
    JUDGED.append(value)
    return Replace("clean")


def shop(*guards: Guard) -> Agent:
    return Agent(name="shop", system_prompt="Ship.", tools=[ship], state_schema=Notes, llm_config=CONFIG, guards=guards)


@pytest.fixture(autouse=True)
def fresh_log() -> None:
    fresh()
    for each in (TOKENS, WORKERS, EARLY, JUDGED):
        each.clear()


def scripted() -> LoggedModel:
    return model(shop=[{"tool_calls": [call("ship")]}, "Shipped."])


async def report(workers: LocalExecutor) -> None:
    """Report the result with the first token, as a system that repeats its request until it is acknowledged."""
    if TOKENS:
        await workers.complete_call(TOKENS[0], "shipped")
        await quiet(workers)


async def verdicts(store: StateStore) -> int:
    """Return the number of stored verdicts."""
    return sum(len(row.value.get("verdicts", [])) for row in await store.query("sessions", S))


async def everywhere(who: Agent, wanted: str = "shipped") -> list[Point]:
    """Crash at every write. `wanted`: the result that the model reads."""

    async def acting(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        TOKENS.clear()
        JUDGED.clear()
        WORKERS.append(executor(store, streams, scripted()))
        await (await WORKERS[-1].execute(who, "begin", session_id=S)).result()
        await report(WORKERS[-1])
        assert await settle(WORKERS[-1], who, S) == "completed"

    async def recover(store: StateStore, streams: StreamManager, point: Point) -> None:
        journal = Journal()
        await journal.check(store, streams, S)
        judged = len(JUDGED) if await verdicts(store) else None
        workers = executor(store, streams, scripted(), LONG)
        WORKERS.append(workers)
        workers.agents.know(who)
        await report(workers)
        if await workers.sessions.load(S) is None:
            await (await workers.execute(who, "begin", session_id=S)).result()
        while (await workers.sessions.get(S)).status != "completed":
            if (await workers.sessions.get(S)).status != "paused":
                await (await workers.resume(who, S)).result(timeout_s=20)
            await quiet(workers)
            await report(workers)
        await workers.get_handle(who, S)
        await journal.check(store, streams, S, at_rest=True)
        assert not await find_usage_problems(store, S)
        messages = (await workers.sessions.get_messages(S, limit=100)).messages
        assert [each.content for each in messages if isinstance(each, ToolResultMessage)] == [wanted], point
        assert judged in (None, len(JUDGED)), point  # no guard judges again what it has a stored verdict about
        assert "shipped" in JUDGED or not who.guards, point
        for token in TOKENS:
            await workers.complete_call(token, "shipped")
            with suppress(CallEndedError):
                await workers.complete_call(token, "forged")
                raise AssertionError("another result was accepted")

    return await crash_everywhere(MemoryStateStore, acting, recover, choose=choose)


async def test_a_result_that_comes_while_the_run_is_paused() -> None:
    names = {name for name, _ in await everywhere(shop())}
    assert {"transact:call_later:before", "transact:call_later:after", "transact:call_result:before"} <= names


async def test_a_result_that_comes_while_the_tool_runs() -> None:
    EARLY.append(True)
    names = {name for name, _ in await everywhere(shop())}
    assert {"transact:end_call_early:after", "transact:call_result:before"} <= names


async def test_a_result_that_guards_judge_while_the_run_is_paused() -> None:
    names = {name for name, _ in await everywhere(shop(Guard(name="g", result=judge)), "clean")}
    assert {"transact:claim_call:after", "transact:call_result:before", "transact:call_result:after"} <= names


async def test_a_result_that_guards_judge_while_the_tool_runs() -> None:
    EARLY.append(True)
    names = {name for name, _ in await everywhere(shop(Guard(name="g", result=judge)), "clean")}
    assert {"transact:end_call_early:after", "transact:claim_call:after", "transact:call_result:before"} <= names
