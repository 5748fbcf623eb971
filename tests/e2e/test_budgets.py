"""Budgets in the deployed app: 64 runs at once against a budget for 10, and what is refused goes on after a raise."""

from __future__ import annotations

import asyncio

import pytest
from tests.e2e.cloud_executor import AdminApplication
from tests.support.cloud_agents.cast import thrifty
from tests.support.cloud_agents.plans import plan, say
from tests.support.offline_cloud import CloudForTests

from helix.core.messages import SystemMessage, UserMessage
from helix.core.rows import SessionRow
from helix.engine.history import session_key
from helix.engine.worst_case import prompt_tokens
from helix.fleet.alerts import untold_alerts
from helix.fleet.budgets import BudgetManager, TokenPeriod

pytestmark = pytest.mark.timeout(600)

RUNS, FOR, AT_ONCE = 64, 10, 8
CRASHED, EXCEEDED = "runtime_crash", "budget_exceeded"
ASKED = plan(say("word " * 39 + "last"))
"""Of so many letters that the answer takes all that its agent may say."""
ANSWER = 200
USED = 20 + ANSWER
WORST = prompt_tokens([SystemMessage(content=str(thrifty.system_prompt)), UserMessage(content=ASKED)], []) + ANSWER


async def spent(budgets: BudgetManager) -> int:
    """With what is set aside."""
    return (await budgets.check_budget("thrifty"))["thrifty_total"]["current_tokens"]


async def ends(application: AdminApplication, sessions: list[str]) -> list[SessionRow]:
    """The sessions when all have ended: one look a second at all of them, so that nobody's run waits for the looking."""
    async with asyncio.timeout(250):
        while True:
            values = await application.store.get([session_key(name) for name in sessions])
            found = [SessionRow.model_validate(value) for value in values]
            if all(session.status != "running" for session in found):
                return found
            await asyncio.sleep(1)


async def test_64_runs_at_once_against_a_budget_for_10(cloud: CloudForTests) -> None:
    """Functions of many processes draw from one row: spent never passes the line, and all that was not used comes back."""
    application = AdminApplication(cloud)
    budgets, executor = BudgetManager(application.store), application.executor
    limit = FOR * WORST
    await budgets.set_budget(limit, TokenPeriod.TOTAL, "thrifty")

    async def watch() -> None:
        while True:
            assert await spent(budgets) <= limit
            await asyncio.sleep(0.5)

    watching = asyncio.ensure_future(watch())
    handles = await asyncio.gather(*(executor.execute(thrifty, ASKED) for _ in range(RUNS)))
    names, accidents = [handle.session_id for handle in handles], 0
    ended = await ends(application, names)
    while crashed := [session for session in ended if session.error is not None and session.error.code == CRASHED]:
        accidents += len(crashed)  # the emulator was too busy for them: no run of its own is lost by that
        await asyncio.gather(*(executor.retry(thrifty, session.session_id) for session in crashed[:AT_ONCE]))
        ended = await ends(application, names)
    assert not watching.done(), "the line was never passed"
    watching.cancel()

    done = [session for session in ended if session.status == "completed"]
    refused = [session for session in ended if session.error is not None and session.error.code == EXCEEDED]
    assert len(done) + len(refused) == RUNS and all(s.error.recoverable for s in refused if s.error is not None)
    assert (len(done) >= FOR or accidents) and len(done) <= limit // USED
    async with asyncio.timeout(60):  # the effects of the last run come after its result
        while await spent(budgets) != len(done) * USED and not accidents:
            await asyncio.sleep(0.5)
    assert len(done) * USED <= await spent(budgets) <= limit, "what the dead had set aside is assumed spent"
    alerts = await untold_alerts(budgets.store)
    own = [alert.level for alert in alerts if alert.agent_id == "thrifty"]
    assert len(own) == len(set(own)) and "exceeded" in own

    await budgets.set_budget(2 * limit, TokenPeriod.TOTAL, "thrifty")
    again = await executor.retry(thrifty, refused[0].session_id)
    assert (await again.result(timeout_s=60)).status == "completed"
