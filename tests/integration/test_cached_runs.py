"""Runs with many calls in each step, against servers that keep a prompt cache by each provider's rules."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.support.prompt_cache_servers import (
    CLAUDE,
    CONVERSE,
    NOVA,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    CachingServer,
    Provider,
    converse_blocks,
    desk,
    looking,
    messages_blocks,
)

from helix import AgentResult, LocalExecutor, MemoryStateStore, ModelAdapter
from helix.adapters.models.litellm import load_litellm

STEPS = 4
PROVIDERS = {provider.dialect.model: provider for provider in (CLAUDE, CONVERSE, NOVA, OPENAI_RESPONSES, OPENAI_CHAT)}
QUICK, SLOW = 5.0, 1200.0


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Import litellm first. It takes seconds, for which no test's timeout is meant."""
    load_litellm()


async def run(server: CachingServer, turns: int = 1, **settings: Any) -> AgentResult[Any]:
    """Run the agent in one session, and return the last turn's result."""
    agent = desk(server, **settings)
    async with LocalExecutor(MemoryStateStore(), model=ModelAdapter()) as executor:
        for _ in range(turns):
            result = await (await executor.execute(agent, "Look all orders up.", session_id="s")).result()
            assert result.status == "completed", result.error
    return result


@pytest.mark.parametrize("model", PROVIDERS)
async def test_each_request_reads_all_that_the_one_before_it_sent(model: str) -> None:
    """A step adds 24 blocks, which is more than the lookback."""
    with CachingServer(PROVIDERS[model], looking(STEPS), QUICK) as server:
        result = await run(server, turns=2)
    assert len(server.counts) == STEPS + 1
    for before, after in pairwise(server.counts):
        assert after.read >= before.total - 128
    assert result.usage.cached_tokens == server.counts[-1].read


@pytest.mark.parametrize("provider", [CLAUDE, CONVERSE], ids=["anthropic", "bedrock"])
async def test_litellm_reads_as_much(provider: Provider) -> None:
    with CachingServer(provider, looking(STEPS), QUICK) as server:
        await run(server, adapter="litellm")
    assert len(server.counts) == STEPS
    for before, after in pairwise(server.counts):
        assert after.read == before.total


@pytest.mark.parametrize("provider", [CLAUDE, CONVERSE], ids=["anthropic", "bedrock"])
async def test_an_hour_outlives_twenty_minutes_and_costs_twice_the_input(provider: Provider) -> None:
    shares, costs = list[float](), list[int]()
    for cache in ("auto", "1h"):
        with CachingServer(provider, looking(STEPS), SLOW) as server:
            result = await run(server, cache=cache)
        shares.append(server.read_share)
        costs.append(result.usage.cost_micros)
    assert shares[0] == 0 and shares[1] > 0.5 and costs[1] < costs[0]


@pytest.mark.parametrize("model", [NOVA.dialect.model, "bedrock/us.anthropic.claude-3-7-sonnet-20250219-v1:0"])
async def test_a_model_without_an_hour_is_asked_for_its_own_lifetime(model: str) -> None:
    """Bedrock refuses the lifetime for these models."""
    with CachingServer(CONVERSE, looking(STEPS), QUICK) as server:
        await run(server, model=model, cache="1h")
    assert "ttl" not in str([request.json for request in server.requests]) and server.read_share > 0.5


@pytest.mark.parametrize("provider", [CLAUDE, CONVERSE], ids=["anthropic", "bedrock"])
@pytest.mark.parametrize("adapter", ["native", "litellm"])
async def test_all_four_marks_are_used_and_last_equally_long(provider: Provider, adapter: str) -> None:
    with CachingServer(provider, looking(STEPS), QUICK) as server:
        await run(server, adapter=adapter, cache="1h")
    blocks = messages_blocks if provider is CLAUDE else converse_blocks
    first, *later = [[block.mark for block in blocks(request.json)] for request in server.requests]
    assert [mark for mark in first if mark] == ["1h"] * 3
    for marks, (before, _) in zip(later, pairwise([first, *later]), strict=True):
        assert [mark for mark in marks if mark] == ["1h"] * 4
        assert marks[0] == marks[1] == marks[len(before) - 1] == marks[-1] == "1h"


async def test_without_the_cache_nothing_is_read() -> None:
    for provider in (CLAUDE, CONVERSE, NOVA):
        with CachingServer(provider, looking(STEPS), QUICK) as server:
            await run(server, cache=False)
        assert server.read_share == 0 and not any(counts.written for counts in server.counts)


@pytest.mark.parametrize("provider", [OPENAI_RESPONSES, OPENAI_CHAT], ids=["responses", "chat"])
async def test_the_key_is_that_of_the_session_and_its_copies(provider: Provider) -> None:
    async with (
        CachingServer(provider, looking(2), QUICK) as server,
        LocalExecutor(MemoryStateStore(), model=ModelAdapter()) as executor,
    ):
        agent = desk(server)

        async def keys(session_id: str) -> set[str]:
            seen = len(server.requests)
            assert (
                await (await executor.execute(agent, "Look.", session_id=session_id)).result()
            ).status == "completed"
            return {request.json["prompt_cache_key"] for request in server.requests[seen:]}

        (key,) = await keys("ada@example.com")
        assert key.isalnum() and len(key) <= 64 and await keys("ada@example.com") == {key}
        branch = (await executor.branch("ada@example.com")).session_id
        copy = (await executor.branch(branch)).session_id
        assert await keys(branch) == await keys(copy) == {key} != await keys("eva@example.com")


@pytest.mark.parametrize("provider", [OPENAI_RESPONSES, OPENAI_CHAT], ids=["responses", "chat"])
async def test_a_key_keeps_busy_sessions_on_their_machines(provider: Provider) -> None:
    """Two sessions make 20 requests a minute, which is more than one machine takes."""
    shares = []
    for cache in (False, "auto"):
        async with (
            CachingServer(provider, looking(12), 3.0) as server,
            LocalExecutor(MemoryStateStore(), model=ModelAdapter()) as executor,
        ):
            agent = desk(server, cache=cache)
            handles = [await executor.execute(agent, f"Look up those of customer {n}.") for n in range(2)]
            assert [(await handle.result()).status for handle in handles] == ["completed"] * 2
            shares.append(server.read_share)
    assert shares[0] < shares[1] - 0.02
