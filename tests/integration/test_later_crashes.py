"""A process dies at every write while another system ends its call: the result is never lost, and never applied twice."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.support.journal import Journal
from tests.support.usage_invariants import find_usage_problems
from tests.support_crash import CONFIG, LONG, LoggedModel, Notes, S, call, choose, executor, fresh, model, quiet, settle

from helix import Agent, CallEndedError, LocalExecutor, MemoryStateStore, ToolContext, tool
from helix.core.messages import ToolResultMessage
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.testing.crash import CrashPoints, Point, crash_everywhere

TOKENS: list[str] = []
WORKERS: list[LocalExecutor] = []
EARLY: list[bool] = []


@tool(later=True)
async def ship(ctx: ToolContext[Notes]) -> None:
    """Ship, and let the other system end the call, at once in some tests."""
    ctx.update_state(lambda notes: notes.seen.append("shipped"))
    TOKENS.append(await ctx.later(heartbeat_s=LONG * 3))
    if EARLY:
        await WORKERS[-1].complete_call(TOKENS[0], "shipped")


shop = Agent(name="shop", system_prompt="Ship.", tools=[ship], state_schema=Notes, llm_config=CONFIG)


@pytest.fixture(autouse=True)
def fresh_log() -> None:
    fresh()
    for each in (TOKENS, WORKERS, EARLY):
        each.clear()


def scripted() -> LoggedModel:
    return model(shop=[{"tool_calls": [call("ship")]}, "Shipped."])


async def report(workers: LocalExecutor) -> None:
    """Report the result with the first token, as a system that repeats its request until it is acknowledged."""
    if TOKENS:
        await workers.complete_call(TOKENS[0], "shipped")
        await quiet(workers)


async def everywhere() -> list[Point]:
    async def acting(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        TOKENS.clear()
        WORKERS.append(executor(store, streams, scripted()))
        await (await WORKERS[-1].execute(shop, "begin", session_id=S)).result()
        await report(WORKERS[-1])
        assert await settle(WORKERS[-1], shop, S) == "completed"

    async def recover(store: StateStore, streams: StreamManager, point: Point) -> None:
        journal = Journal()
        await journal.check(store, streams, S)
        workers = executor(store, streams, scripted(), LONG)
        WORKERS.append(workers)
        workers.agents.know(shop)
        await report(workers)
        if await workers.sessions.load(S) is None:
            await (await workers.execute(shop, "begin", session_id=S)).result()
        while (await workers.sessions.get(S)).status != "completed":
            if (await workers.sessions.get(S)).status != "paused":
                await (await workers.resume(shop, S)).result(timeout_s=20)
            await quiet(workers)
            await report(workers)
        await workers.get_handle(shop, S)
        await journal.check(store, streams, S, at_rest=True)
        assert not await find_usage_problems(store, S)
        messages = (await workers.sessions.get_messages(S, limit=100)).messages
        assert [each.content for each in messages if isinstance(each, ToolResultMessage)] == ["shipped"], point
        for token in TOKENS:
            await workers.complete_call(token, "shipped")
            with suppress(CallEndedError):
                await workers.complete_call(token, "forged")
                raise AssertionError("another result was accepted")

    return await crash_everywhere(MemoryStateStore, acting, recover, choose=choose)


async def test_a_result_that_comes_while_the_run_is_paused() -> None:
    names = {name for name, _ in await everywhere()}
    assert {"transact:call_later:before", "transact:call_later:after", "transact:call_result:before"} <= names


async def test_a_result_that_comes_while_the_tool_runs() -> None:
    EARLY.append(True)
    names = {name for name, _ in await everywhere()}
    assert {"transact:end_call_early:after", "transact:call_result:before"} <= names
