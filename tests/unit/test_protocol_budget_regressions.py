"""Defects of budgets in the engine that the protocol machine, or its author while writing it, found. Each is a scenario."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support_protocol import MONEY, SOLO, Death, World

from helix.adapters.memory import MemoryStateStore
from helix.engine.engine import Worst
from helix.engine.runs.ends import abort
from helix.services.budget_rows import Demand
from helix.services.row_budgets import RowBudgets
from helix.sessions.deletion import delete_session


def budgeted(script: Any) -> World:
    world = World(script)
    world.engine.worst_case = lambda request: Worst(tokens=50, micros=5)
    return world


@pytest.mark.parametrize("transaction", ["draw", "claim_step"])
async def test_a_block_drawn_for_a_refused_claim_returns(transaction: str) -> None:
    """The guarantee is budget_exact. The run was aborted, including its effects, right before or right after the draw."""
    world = budgeted(["hello"])
    run = (await world.claim(SOLO, message="go")).run.run_id
    await world.engine.budgets.define(MONEY, world.clock.now())

    async def aborted() -> None:
        await abort(world.engine, SOLO, "s", None, world.delivery())

    world.store.before[transaction] = aborted
    await world.model(SOLO, run, 1)
    assert await world.remaining() == 1000


async def test_a_block_whose_worker_died_before_the_claim_returns_with_the_run() -> None:
    world = budgeted(["hello"])
    run = (await world.claim(SOLO, message="go")).run.run_id
    await world.engine.budgets.define(MONEY, world.clock.now())

    async def dies() -> None:
        raise Death

    world.store.before["claim_step"] = dies
    with pytest.raises(Death):
        await world.model(SOLO, run, 1)
    assert await world.remaining() < 1000
    await abort(world.engine, SOLO, "s", None, world.delivery())
    assert await world.remaining() == 1000


async def test_deleting_a_session_returns_what_its_dead_worker_drew() -> None:
    world = budgeted(["hello"])
    run = (await world.claim(SOLO, message="go", delivery=world.worker())).run.run_id
    await world.engine.budgets.define(MONEY, world.clock.now())

    async def dies() -> None:
        raise Death

    world.store.before["commit"] = dies
    with pytest.raises(Death):
        await world.model(SOLO, run, 1)
    world.clock.time += 100
    assert await delete_session(world.engine, "s")
    assert await world.remaining() == 1000 - 10  # the reserve for the dead call, two attempts, is assumed spent


async def test_a_draw_that_finds_a_new_budget_is_completed() -> None:
    """Budget `b` was created between the first try of draw (run, 1) and its repeat."""
    budgets = RowBudgets(MemoryStateStore())
    made = [MONEY.model_copy(update={"scope": scope, "limit": 100}) for scope in ("agent:a", "agent:b")]
    a, b = (definition.window(0)[0] for definition in made)
    assert await budgets.open(made[0], 0, await budgets.define(made[0], 0))
    assert await budgets.draw("run", 1, [Demand(a, "micros", 5, 5)]) == {a: 5}
    assert await budgets.open(made[1], 0, await budgets.define(made[1], 0))
    both = [Demand(a, "micros", 5, 5), Demand(b, "micros", 7, 7)]
    assert await budgets.draw("run", 1, both) == {a: 5, b: 7}
    await budgets.give_back("run", {a: 2})
    await budgets.give_back("run", {a: 2})
    states = await budgets.get([a, b])
    assert [s.remaining for s in states if s is not None] == [98, 100]
