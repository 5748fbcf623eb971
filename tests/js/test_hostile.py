"""Both clients behind one hostile proxy, in seeded scenarios. Each receives the exact sequence of the log, or a typed
error."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.support.hostile_proxy import CuttingProxy, HostileSockets
from tests.support_gateway import WORDS, executor_of
from tests.support_run import a_tool, agent, call, calls

from helix import LocalExecutor, ScriptedModel
from helix.adapters.models.scripted import Entry
from helix.client import ClientSettings, HelixClient
from helix.core.errors import HelixError
from helix.gateway.loopback import LoopbackGateway

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SEEDS = int(os.environ.get("HELIX_EXAMPLES") or 150)
BRISK = {
    "request": 3.0,
    "open": 2.0,
    "give_up": 10.0,
    "backoff": 0.01,
    "backoff_max": 0.05,
    "reorder": 0.01,
    "quiet": 0.1,
}
MS = {"requestMs": 3_000, "openMs": 2_000, "giveUpMs": 10_000, "backoffMs": 10, "backoffMaxMs": 50}
MS |= {"reorderMs": 10, "quietMs": 100}
AT_ONCE = 10
Played = list[dict[str, Any]] | str
Play = Callable[[list[str]], Awaitable[list[Played]]]
"""Follow runs through these URLs to their ends, concurrently. Return the messages of each run, or the code of its error."""


def a_service(dice: random.Random) -> LocalExecutor:
    size = dice.choice([10, 3_000, 70_000])
    tool = a_tool("look", lambda args, ctx: "ß" * size)
    script: list[Entry] = [calls(call("look"), content=WORDS[: dice.randrange(1, 300)]), calls(call("look")), WORDS]
    return executor_of(ScriptedModel(script, delta_chars=dice.randrange(6, 80)), agent("helper", tools=[tool]))


class Scenario:
    def __init__(self, seed: int) -> None:
        self.seed, self.dice = seed, random.Random(seed)
        self.executor, self.sockets = a_service(self.dice), HostileSockets(self.dice)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        gateway = LoopbackGateway(self.executor, sockets=self.sockets)
        async with self.executor, gateway:
            async with CuttingProxy(int(gateway.url.rpartition(":")[2]), self.dice) as self.proxy:
                yield f"ws://127.0.0.1:{self.proxy.port}"

    async def check(self, seen: list[dict[str, Any]]) -> None:
        log = await self.executor.streams.read(seen[0]["session_id"], 0, 10_000)
        assert seen == [message.model_dump(mode="json") for message in log], f"seed {self.seed}"
        listed = (await self.executor.sessions.list_sessions()).sessions
        assert [session.turn for session in listed] == [1], f"seed {self.seed}: one run was asked for"


async def play_all(play: Play) -> None:
    hurt, failed = 0, list[str]()
    for first in range(0, SEEDS, AT_ONCE):
        scenarios = [Scenario(seed) for seed in range(first, first + AT_ONCE)]
        async with AsyncExitStack() as stack:
            urls = [await stack.enter_async_context(scenario.served()) for scenario in scenarios]
            for scenario, seen in zip(scenarios, await play(urls), strict=True):
                if isinstance(seen, str):
                    failed.append(f"seed {scenario.seed}: {seen}")
                else:
                    await scenario.check(seen)
                hurt += bool(scenario.sockets.harmed or scenario.proxy.cut)
    assert hurt > SEEDS * 0.9, "the proxy is hostile"
    assert len(failed) < SEEDS * 0.03, f"nearly all come to their end, but {failed}"


async def test_the_typescript_client(typescript: Any) -> None:
    async def play(urls: list[str]) -> list[Played]:
        about = [{"url": url, "agent": "helper", "message": "go", "settings": MS} for url in urls]
        found = await typescript("playAll", plays=about)
        return [str(one["error"]["code"]) if "error" in one else one["messages"] for one in found]

    await play_all(play)


async def test_the_python_client() -> None:
    given: dict[str, Any] = {f"{name}_s": value for name, value in BRISK.items()}
    settings = ClientSettings(**given)

    async def one(url: str) -> Played:
        try:
            async with HelixClient(url, settings=settings) as client:
                messages = await (await client.run("helper", "go")).messages()
                return [message.model_dump(mode="json") async for message in messages]
        except (HelixError, TimeoutError) as error:
            return type(error).__name__

    async def play(urls: list[str]) -> list[Played]:
        return list(await asyncio.gather(*map(one, urls)))

    await play_all(play)
