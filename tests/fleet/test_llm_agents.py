"""register_llm_agent: the model, the longest answer and the hourly budget apply in every worker process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.fleet.conftest import MakeRuntime
from tests.support import worker_agents
from tests.support_fleet import PATIENCE_S

from helix.core.errors import DefinitionError
from helix.core.periods import TokenPeriod
from helix.fleet import TokenAlert, get_token_budget_manager
from helix.fleet.rows import read_entry


async def test_model_and_longest_answer_are_those_asked_for(runtime_of: MakeRuntime) -> None:
    """The agent's own settings ask for 5,000 tokens of another model."""
    runtime = runtime_of()
    await runtime.register_llm_agent("steady", worker_agents.steady, "small", max_tokens=321)
    await runtime.start()
    result = await (await runtime.execute("steady", "notes 0")).result(PATIENCE_S)
    assert result.output == "Done with small in 321."


async def test_a_longer_answer_than_the_agents_own_is_not_granted(runtime_of: MakeRuntime) -> None:
    runtime = runtime_of()
    await runtime.register_llm_agent("steady", worker_agents.steady, "small", max_tokens=9000)
    await runtime.start()
    result = await (await runtime.execute("steady", "notes 0")).result(PATIENCE_S)
    assert result.output == "Done with small in 5000."


async def test_the_hours_budget_stops_all_runs_of_the_agent(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    """A call of a model without a known price reserves the upper limit, so a budget below one call lets no call through."""
    runtime = runtime_of()
    await runtime.register_llm_agent("steady", worker_agents.steady, "small", cost_budget=0.0001)
    await runtime.register_agent("free", worker_agents.steady)
    await runtime.start()
    result = await (await runtime.execute("steady", "notes 2")).result(PATIENCE_S)
    assert (result.status, result.error_code) == ("failed", "budget_exceeded")
    assert worker_agents.logged(tmp_path) == []
    assert (await (await runtime.execute("free", "notes 1")).result(PATIENCE_S)).status == "completed"
    (told,) = (await runtime.budgets.check_budget("steady", TokenPeriod.HOURLY)).values()
    assert (told["unit"], told["budget_limit"]) == ("usd", 0.0001)
    # after raising the budget, the next run works
    await runtime.budgets.set_budget(100.0, TokenPeriod.HOURLY, "steady", unit="usd")
    assert (await (await runtime.execute("steady", "notes 1")).result(PATIENCE_S)).status == "completed"
    entry = await read_entry(runtime.store, "steady")
    assert entry is not None and (entry.model, entry.max_tokens, entry.cost_budget) == ("small", 2000, 0.0001)


async def test_a_callback_hears_of_what_a_worker_process_raised(runtime_of: MakeRuntime) -> None:
    """The callback is a function that is registered with the process's manager, as in the sources."""
    runtime = runtime_of(sweep_s=0.1)
    await runtime.register_llm_agent("steady", worker_agents.steady, "small", cost_budget=0.0001)
    heard: asyncio.Queue[TokenAlert] = asyncio.Queue()
    get_token_budget_manager().register_alert_callback(heard.put)
    await runtime.start()
    await (await runtime.execute("steady", "notes 0")).result(PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S):
        alert = await heard.get()
    assert (alert.level, alert.agent_id) == ("exceeded", "steady")


async def test_what_could_not_be_enforced_is_refused(runtime_of: MakeRuntime) -> None:
    """A function's own model calls are invisible to the runtime, so it cannot enforce a budget for them."""
    runtime = runtime_of()
    with pytest.raises(DefinitionError, match="register it with register_agent"):
        await runtime.register_llm_agent("plain", worker_agents.plain, "small")
    for wrong in ({"model": ""}, {"model": "m", "max_tokens": 0}, {"model": "m", "cost_budget": 0}):
        with pytest.raises(DefinitionError):
            await runtime.register_llm_agent("steady", worker_agents.steady, **wrong)
