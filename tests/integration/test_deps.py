"""Dependencies of tools: made once, lazily, shared by calls that run at once, and closed with their executor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest
from tests.support_run import PATIENCE_S, Gate, World, a_tool, agent, call, calls, history, play, results

from helix import (
    Agent,
    AgentClient,
    AgentRegistry,
    LocalExecutor,
    ScriptedModel,
    ToolContext,
    create_sub_agent_tool,
    tool,
)

WHO: ContextVar[str] = ContextVar("who", default="nobody")
ONE, TWO = calls(call("use")), calls(call("use"), call("use"))


class Pools:
    """Makes pools, and records what happens to them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.tasks: list[Any] = []
        self.users: list[str] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        self.log.append("opened")
        self.tasks.append(asyncio.current_task())
        self.users.append(WHO.get())
        await asyncio.sleep(0)  # a real pool connects here, and other calls get their turn
        yield f"pool {self.log.count('opened')}"
        self.tasks.append(asyncio.current_task())
        self.log.append("closed")


@pytest.fixture
def pools() -> Pools:
    return Pools()


@tool
async def use(ctx: ToolContext[Any, str]) -> str:
    """Use the pool."""
    return ctx.deps


def user(pools: Pools, name: str = "helper", **fields: Any) -> Agent[Any, Any]:
    return agent(name, tools=[use], deps=pools.open, **fields)


async def told(executor: LocalExecutor, who: Agent[Any, Any], **options: Any) -> list[str]:
    handle, result, _ = await play(executor, who, **options)
    assert result.status == "completed", result
    return results(await history(executor, handle.session_id))


async def test_all_calls_of_a_process_share_one_value_which_closes_with_the_executor(
    world: World, pools: Pools
) -> None:
    executor = world.executor([TWO, ONE, "Done.", TWO, "Done."])
    who = user(pools)
    WHO.set("ann")
    assert await told(executor, who) == ["pool 1"] * 3
    assert await told(executor, who) == ["pool 1"] * 2
    assert pools.log == ["opened"]
    await executor.close()
    assert pools.log == ["opened", "closed"]
    assert pools.tasks[0] is pools.tasks[1] is not None, "a cancel scope must be left in the task that entered it"
    assert pools.users == ["nobody"], "the value belongs to no run"


async def test_nothing_is_made_before_a_tool_that_takes_a_context(world: World, pools: Pools) -> None:
    @tool
    async def plain() -> str:
        """Need nothing."""
        return "plain"

    who = agent(tools=[plain, use], deps=pools.open)
    executor = world.executor([calls(call("plain")), "Done.", "Hello.", ONE, "Done."])
    assert await told(executor, who) == ["plain"]
    assert await told(executor, who) == [] and pools.log == []
    assert await told(executor, who) == ["pool 1"]


class Connection:
    """A pool as in asyncpg: it can be awaited or entered, and only the latter closes it."""

    def __init__(self) -> None:
        self.state = "new"
        self.loop = asyncio.get_running_loop()

    async def __aenter__(self) -> Connection:
        self.state = "entered"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.state = "closed"

    def __await__(self) -> Iterator[Any]:
        raise AssertionError("it was awaited")


async def test_a_value_that_is_a_context_manager_is_entered_and_left(world: World) -> None:
    made: list[Connection] = []

    def connect() -> Connection:
        made.append(Connection())
        return made[-1]

    seen = a_tool("use", lambda given, ctx: ctx.deps.state)
    executor = world.executor([ONE, "Done."])
    assert await told(executor, agent(tools=[seen], deps=connect)) == ["entered"]
    await executor.close()
    assert [one.state for one in made] == ["closed"]


async def test_an_async_function_returns_the_value_itself(world: World) -> None:
    async def connect() -> Connection:
        return Connection()

    seen = a_tool("use", lambda given, ctx: ctx.deps.state)
    executor = world.executor([ONE, "Done."])
    assert await told(executor, agent(tools=[seen], deps=connect)) == ["new"]


async def test_a_sync_function_is_called_in_the_event_loop(world: World) -> None:
    async def same(given: Any, ctx: Any) -> bool:
        return ctx.deps is asyncio.get_running_loop()

    executor = world.executor([ONE, "Done."])
    assert await told(executor, agent(tools=[a_tool("use", same)], deps=asyncio.get_running_loop)) == ["true"]


async def test_a_failure_fails_the_call_and_the_next_call_tries_again(world: World) -> None:
    tries: list[int] = []

    async def connect() -> str:
        tries.append(1)
        await asyncio.sleep(0)
        if len(tries) < 2:
            raise ConnectionRefusedError("port 5432")
        return "pool"

    executor = world.executor([TWO, ONE, "Done."])
    first, second, third = await told(executor, agent(tools=[use], deps=connect))
    error = "the dependencies of agent 'helper' could not be made: ConnectionRefusedError: port 5432"
    assert json.loads(first) == json.loads(second) == {"error": error, "code": "dependency_failed"}
    assert (third, len(tries)) == ("pool", 2)


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), TimeoutError("late")])
async def test_every_failure_is_the_calls_own(world: World, error: BaseException) -> None:
    def connect() -> str:
        raise error

    executor = world.executor([ONE, "Done."])
    (content,) = await told(executor, agent(tools=[use], deps=connect))
    assert json.loads(content)["code"] == "dependency_failed"
    assert f"could not be made: {type(error).__name__}" in content


async def test_the_retries_of_a_tool_include_its_dependencies(world: World) -> None:
    tries: list[int] = []

    def connect() -> str:
        tries.append(1)
        if len(tries) < 2:
            raise ConnectionRefusedError("port 5432")
        return "pool"

    again = a_tool("use", lambda given, ctx: ctx.deps, retries=1)
    executor = world.executor([ONE, "Done."])
    assert await told(executor, agent(tools=[again], deps=connect)) == ["pool"]


async def test_a_call_waits_as_long_as_its_timeout_and_later_calls_get_the_value(world: World) -> None:
    gate, made = Gate(), 0

    async def connect() -> str:
        nonlocal made
        made += 1
        await gate.wait()
        return "pool"

    async def opened(request: Any) -> Any:
        gate.open()
        return calls(call("patient"))

    hasty = a_tool("hasty", lambda given, ctx: ctx.deps, timeout_s=0.05)
    patient = a_tool("patient", lambda given, ctx: ctx.deps)
    executor = world.executor([calls(call("hasty")), opened, "Done."])
    first, second = await told(executor, agent(tools=[hasty, patient], deps=connect))
    assert json.loads(first) == {
        "error": "the dependencies of agent 'helper' were not ready after 0.05 s",
        "code": "dependency_failed",
    }
    assert (second, made) == ("pool", 1)


async def test_a_run_that_is_aborted_while_it_waits_takes_nothing_from_others(world: World) -> None:
    gate = Gate()

    async def connect() -> str:
        await gate.wait()
        return "pool"

    who = agent(tools=[use], deps=connect)
    executor = world.executor({"helper": [ONE, ONE, "Done."]})
    first = await executor.execute(who, "go")
    await gate.reached()
    second = await executor.execute(who, "go")
    task = executor._tasks[first.run_id]
    task.cancel()
    await asyncio.wait({task})
    gate.open()
    assert (await second.result(PATIENCE_S)).status == "completed"
    assert results(await history(executor, second.session_id)) == ["pool"] and gate.times == 1


async def test_close_ends_a_function_that_still_waits(world: World) -> None:
    gate = Gate()
    ended: list[str] = []

    async def connect() -> str:
        try:
            await gate.wait()
        finally:
            ended.append("ended")
        return "pool"

    executor = world.executor([ONE, "Done."])
    await executor.execute(agent(tools=[use], deps=connect), "go")
    await gate.reached()
    async with asyncio.timeout(PATIENCE_S):
        await executor.close()
    assert ended == ["ended"]


async def test_an_error_at_the_end_is_logged_and_the_rest_is_closed(
    world: World, pools: Pools, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[str]:
        yield "broken"
        raise OSError("the server is gone")

    executor = world.executor({"helper": [ONE, "Done."], "other": [ONE, "Done."]})
    assert await told(executor, user(pools)) == ["pool 1"]
    assert await told(executor, agent("other", tools=[use], deps=broken)) == ["broken"]
    await executor.close()
    assert pools.log == ["opened", "closed"] and "OSError at test_deps.py" in caplog.text


def test_an_executor_that_is_not_closed_closes_them_with_its_event_loop(pools: Pools) -> None:
    executor = LocalExecutor(":memory:", model=ScriptedModel([ONE, "Done.", ONE, "Done."]), registry=AgentRegistry())

    async def once() -> list[str]:
        return await told(executor, user(pools))

    assert asyncio.run(once()) == ["pool 1"]
    assert pools.log == ["opened", "closed"]
    assert asyncio.run(once()) == ["pool 2"], "the first belonged to an event loop that has ended"


async def test_each_agent_has_its_own_and_agents_of_one_function_share(world: World, pools: Pools) -> None:
    others = Pools()
    finder, checker = user(others, "finder"), user(pools, "checker")
    boss = agent("boss", tools=[use, create_sub_agent_tool(finder), create_sub_agent_tool(checker)], deps=pools.open)
    asked = calls(call("use"), *(call(f"subagent__{name}", message="go") for name in ("finder", "checker")))

    def repeat(request: Any) -> Any:
        return request.messages[-1].content + f" of {'boss' if len(request.tools) > 1 else 'a sub-agent'}"

    model = ScriptedModel({"boss": [asked, "Done."], "finder": [ONE, repeat], "checker": [ONE, repeat]})
    executor = world.executor(model)
    assert await told(executor, boss) == ["pool 1", "pool 1 of a sub-agent", "pool 1 of a sub-agent"]
    assert (pools.log, others.log) == (["opened"], ["opened"])


async def test_a_test_overrides_them(world: World, pools: Pools) -> None:
    who = user(pools)
    executor = world.executor([ONE, "Done."] * 4)
    with who.override(deps="fake"):
        assert await told(executor, who) == ["fake"]
        with pytest.raises(RuntimeError), who.override(deps=None):
            assert await told(executor, who) == ["null"]
            raise RuntimeError
        assert await told(executor, who) == ["fake"]
    assert pools.log == []
    assert await told(executor, who) == ["pool 1"]


async def test_a_tool_of_an_agent_without_dependencies_fails_with_the_remedy(world: World) -> None:
    executor = world.executor([ONE, "Done."])
    (content,) = await told(executor, agent(tools=[use]))
    assert json.loads(content) == {
        "error": "agent 'helper' has no dependencies: define it with deps=, a function that makes them",
        "code": "dependency_failed",
    }


async def test_a_function_agent_has_them_too(world: World, pools: Pools) -> None:
    @AgentClient(registry=AgentRegistry()).agent("greeter", deps=pools.open)
    async def greeter(name: str, ctx: ToolContext[Any, str]) -> str:
        return f"Hello, {name}, from {ctx.deps}"

    _, result, _ = await play(world.executor(), greeter, "Ann")
    assert result.output == "Hello, Ann, from pool 1"


async def test_a_function_that_takes_secret_reads_secrets(world: World) -> None:
    def connect(secret: Callable[[str], str]) -> str:
        return f"pool of {secret('DB')}"

    executor = world.executor([ONE, "Done."], secrets={"DB": "s3cret"})
    assert await told(executor, agent(tools=[use], deps=connect)) == ["pool of s3cret"]


async def test_a_missing_secret_fails_the_run_as_it_does_in_a_tool(world: World) -> None:
    @asynccontextmanager
    async def connect(secret: Callable[[str], str]) -> AsyncIterator[str]:
        yield secret("DB")

    executor = world.executor([ONE, "Done."], secrets={})
    _, result, _ = await play(executor, agent(tools=[use], deps=connect))
    assert (result.status, result.error_code) == ("failed", "fatal_tool_error")
    assert "there is no secret 'DB'" in (result.error or "")
