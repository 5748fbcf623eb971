"""Draws and returns that conflict on a budget's rows until the store gives up. They wait, or the budget refuses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pytest
from tests.support.delivery_stage import Stage
from tests.support_budgets import WORST, says
from tests.support_run import agent

from helix import LLMConfig, MemoryStateStore
from helix.core.errors import ContentionError, WorkInProgressError
from helix.core.periods import TokenPeriod
from helix.engine.engine import Worst
from helix.fleet.budgets import BudgetManager
from helix.ports.state_store import Operation
from helix.services import committing
from helix.services.committing import ATTEMPTS, CONFLICTS, Again, repeat_attempt
from helix.testing.invariants import check_session

EACH = 60
HELPER = agent("helper", llm_config=LLMConfig(model="scripted", max_retries=0))


class Crowded(MemoryStateStore):
    """A store that refuses transactions of this name several times, as DynamoDB's store does when other writers are
    faster."""

    def __init__(self, crowded: str, times: int) -> None:
        super().__init__()
        self.crowded, self.times = crowded, times

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        if name == self.crowded and self.times:
            self.times -= 1
            raise ContentionError(f"transaction {name!r} met others")
        await super().transact(name, operations)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "FIRST_PAUSE_S", 0.001)


async def staged(store: Crowded, limit: int = 10 * WORST) -> tuple[Stage, BudgetManager]:
    stage, budgets = Stage([says("done", EACH)], HELPER, store=store), BudgetManager(store)
    stage.engine.worst_case = lambda request: Worst(WORST, WORST)
    await budgets.set_budget(limit, TokenPeriod.TOTAL)
    return stage, budgets


@pytest.mark.parametrize("name", ["draw", "return_draw"])
async def test_a_few_conflicts_are_waited_for(name: str) -> None:
    stage, budgets = await staged(Crowded(name, CONFLICTS - 1))
    event = await stage.begin(HELPER)
    await stage.end(event)
    assert (await stage.session(event)).status == "completed"
    assert (await budgets.check_budget())["global_total"]["current_tokens"] == EACH
    await check_session(stage.store, stage.engine.streams, event["session_id"], at_rest=True)


@pytest.mark.parametrize("name", ["open_budget", "draw"])
async def test_after_more_of_them_the_delivery_is_repeated(name: str) -> None:
    stage, budgets = await staged(Crowded(name, 2 * CONFLICTS))
    event, deliveries = await stage.begin(HELPER), 0
    while True:
        deliveries += 1
        try:
            await stage.end(event)
            break
        except WorkInProgressError as held:
            assert "a budget of session" in str(held)
            assert (await stage.session(event)).status == "running"
    assert deliveries == (3 if name == "draw" else 2 * CONFLICTS + 1)
    assert (await stage.session(event)).status == "completed"
    assert (await budgets.check_budget())["global_total"]["current_tokens"] == EACH


async def test_a_budget_that_ran_out_meanwhile_refuses_the_run() -> None:
    stage, budgets = await staged(Crowded("draw", CONFLICTS))
    event = await stage.begin(HELPER)
    with pytest.raises(WorkInProgressError):
        await stage.deliver("call_model", event)
    await budgets.set_budget(WORST - 1, TokenPeriod.TOTAL)
    await stage.end(event)
    session = await stage.session(event)
    assert session.status == "failed" and session.error is not None and session.error.code == "budget_exceeded"


async def test_a_writer_that_is_always_overtaken_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "LONGEST_PAUSE_S", 0.0)
    attempts = 0

    async def overtaken() -> Literal[Again.AGAIN]:
        nonlocal attempts
        attempts += 1
        return Again.AGAIN

    with pytest.raises(ContentionError, match="'run'"):
        await repeat_attempt("run", overtaken)
    assert attempts == ATTEMPTS
