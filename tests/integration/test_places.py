"""`LocalExecutor(max_runs=...)`: further runs wait in order and claim nothing. If too many wait, a run is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import httpx
import pytest
from tests.support.asgi_server import serving

import helix.http
from helix import Agent, LLMConfig, LocalExecutor, MemoryStateStore, ScriptedModel, ToolContext, tool
from helix.core.errors import AgentAlreadyRunningError, InvalidInputError, QueueFullError
from helix.core.steps import AnyStepResult, TextStepResult
from helix.ports.model import LLMGenerateInput
from helix.ports.state_store import Key, Value

AGENT = Agent(name="desk", system_prompt="Answer.", llm_config=LLMConfig(model="scripted"))


class Gate:
    """A model that answers when the gate is open. `begun` are its requests in order, and `most` is the largest number of
    concurrent ones."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.begun: list[str] = []
        self.most = self._now = 0

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        self.begun.append(request.messages[-1].content or "")
        self._now += 1
        self.most = max(self.most, self._now)
        await self.open.wait()
        await asyncio.sleep(0.01)
        self._now -= 1
        return TextStepResult(content="Done.")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


def make(model: Gate, **options: int | None) -> LocalExecutor:
    return LocalExecutor(MemoryStateStore(), model=model, **options)  # type: ignore[arg-type]


async def test_they_wait_in_order_and_have_claimed_nothing() -> None:
    model = Gate()
    async with make(model, max_runs=2) as executor:

        async def run(number: int) -> str:
            handle = await executor.execute(AGENT, f"message {number}", session_id=f"s{number}")
            return (await handle.result()).status

        runs = [asyncio.create_task(run(number)) for number in range(6)]
        await until(lambda: executor.waiting == 4)
        await until(lambda: len(model.begun) == 2)
        assert not await executor.sessions.exists("s2")
        model.open.set()
        assert await asyncio.gather(*runs) == ["completed"] * 6
        assert model.begun == [f"message {number}" for number in range(6)] and model.most == 2
        assert executor.waiting == 0


async def test_none_is_any_number() -> None:
    model = Gate()
    async with make(model, max_runs=None) as executor:
        handles = await asyncio.gather(*(executor.execute(AGENT, "Hello.") for _ in range(700)))
        await until(lambda: len(model.begun) == 700)
        model.open.set()
        assert {(await handle.result()).status for handle in handles} == {"completed"}


async def test_where_too_many_wait_the_next_is_refused_by_name() -> None:
    model = Gate()
    async with make(model, max_runs=1, max_waiting=1) as executor:
        first = await executor.execute(AGENT, "first")
        second = asyncio.create_task(executor.execute(AGENT, "second"))
        await until(lambda: executor.waiting == 1)
        with pytest.raises(QueueFullError, match="agent 'desk' is busy: 1 runs wait") as refused:
            await executor.execute(AGENT, "third", session_id="third")
        assert (refused.value.queued, refused.value.limit) == (1, 1)
        assert not await executor.sessions.exists("third")
        model.open.set()
        assert (await first.result()).status == (await (await second).result()).status == "completed"
        assert (await (await executor.execute(AGENT, "third", session_id="third")).result()).status == "completed"


async def test_bad_input_does_not_wait() -> None:
    model = Gate()
    async with make(model, max_runs=1) as executor:
        first = await executor.execute(AGENT, "first")
        async with asyncio.timeout(5):
            with pytest.raises(InvalidInputError, match="metadata"):
                await executor.execute(AGENT, "second", metadata={"at": float("nan")})
        model.open.set()
        assert (await first.result()).status == "completed"


async def test_who_gives_up_leaves_the_line() -> None:
    model = Gate()
    async with make(model, max_runs=1) as executor:
        first = await executor.execute(AGENT, "first")
        waiting = [asyncio.create_task(executor.execute(AGENT, name)) for name in ("second", "third")]
        await until(lambda: executor.waiting == 2)
        waiting[0].cancel()
        await until(lambda: executor.waiting == 1)
        model.open.set()
        await first.result()
        await (await waiting[1]).result()
        assert model.begun == ["first", "third"]


async def test_a_claim_that_is_refused_gives_its_place_back() -> None:
    model = Gate()
    async with make(model, max_runs=2) as executor:
        first = await executor.execute(AGENT, "first", session_id="s")
        for _ in range(3):
            with pytest.raises(AgentAlreadyRunningError):
                await executor.execute(AGENT, "again", session_id="s")
        second = await executor.execute(AGENT, "second")
        model.open.set()
        assert (await first.result()).status == (await second.result()).status == "completed"


class FarStore(MemoryStateStore):
    """A store that answers some milliseconds later, so that requests overtake one another."""

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        found = await super().get(keys)
        await asyncio.sleep(0.005)
        return found


async def test_a_request_that_comes_twice_at_once_holds_one_place() -> None:
    model = Gate()
    async with LocalExecutor(FarStore(), model=model, max_runs=3) as executor:
        handles = await asyncio.gather(*(executor.execute(AGENT, "first", key="same") for _ in range(3)))
        assert len({handle.run_id for handle in handles}) == 1
        others = [await asyncio.wait_for(executor.execute(AGENT, name), 5) for name in ("second", "third")]
        waiting = asyncio.create_task(executor.execute(AGENT, "fourth"))
        await until(lambda: executor.waiting == 1)
        model.open.set()
        for handle in (handles[0], *others, await waiting):
            assert (await handle.result()).status == "completed"
        assert model.begun == ["first", "second", "third", "fourth"]


async def test_what_a_run_starts_works_on_its_place() -> None:
    executor: LocalExecutor

    @tool
    async def ask_below(ctx: ToolContext) -> str:
        """Ask another agent."""
        return str((await (await executor.execute(below, "Below?")).result()).output)

    below = Agent(name="below", system_prompt="Answer.", llm_config=LLMConfig(model="scripted"))
    above = Agent(name="above", system_prompt="Ask.", tools=[ask_below], llm_config=LLMConfig(model="scripted"))
    models = {
        "above": ScriptedModel([{"tool_calls": [{"name": "ask_below", "arguments": {}}]}, "Asked."]),
        "below": ScriptedModel(["From below."]),
    }
    async with LocalExecutor(MemoryStateStore(), model=lambda agent: models[agent.name], max_runs=1) as executor:
        async with asyncio.timeout(5):
            assert (await (await executor.execute(above, "Go.")).result()).status == "completed"
        assert executor.waiting == 0


async def test_a_server_lets_requests_wait_and_refuses_what_is_too_much() -> None:
    model = Gate()
    async with make(model, max_runs=1, max_waiting=1) as executor, serving(helix.http.app(executor, [AGENT])) as url:
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as client:

            def post(message: str) -> asyncio.Task[httpx.Response]:
                return asyncio.create_task(client.post("/desk/chunks", json={"message": message}))

            first = post("first")
            await until(lambda: model.begun == ["first"])
            second = post("second")
            await until(lambda: executor.waiting == 1)
            third = await post("third")
            assert third.status_code == 429 and third.json()["error"]["code"] == "queue_full"
            model.open.set()
            assert [(await task).status_code for task in (first, second)] == [200, 200]
            assert model.begun == ["first", "second"]
