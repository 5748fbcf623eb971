"""Budgets in the deployed app: 64 concurrent runs against a budget for 10. Refused runs continue after a raise."""

from __future__ import annotations

import asyncio
from math import ceil

import pytest
from tests.e2e.cloud_executor import AdminApplication
from tests.support.cloud_agents.cast import thrifty
from tests.support.cloud_agents.plans import plan, say
from tests.support.offline_cloud import CloudForTests

from helix.core.messages import SystemMessage, UserMessage
from helix.core.periods import TokenPeriod
from helix.core.session_row import SessionRow
from helix.engine.engine import Settings
from helix.engine.history import session_key
from helix.engine.money.bounds import prompt_tokens
from helix.fleet.budgets import BudgetManager
from helix.services.session_calls import session_calls

pytestmark = pytest.mark.timeout(600)

RUNS, FOR, AT_ONCE = 64, 10, 8
CRASHED, EXCEEDED = "runtime_crash", "budget_exceeded"
ASKED = plan(say("word " * 39 + "last"))
"""A prompt whose answer is as long as its agent allows."""
ANSWER = 200
USED = 20 + ANSWER
BOUND = prompt_tokens([SystemMessage(content=str(thrifty.system_prompt)), UserMessage(content=ASKED)], []) + ANSWER
WORST = ceil(BOUND * (100 + Settings().worst_case_margin_percent) / 100)


async def spent(budgets: BudgetManager) -> int:
    """Return the tokens spent and reserved."""
    return (await budgets.check_budget("thrifty"))["thrifty_total"]["current_tokens"]


async def ends(application: AdminApplication, sessions: list[str]) -> list[SessionRow]:
    """Return the sessions when all runs have ended. All of them are read once a second, so that the reads do not delay any
    run. Runs that crashed because the emulator was busy are retried, a few at a time."""
    async with asyncio.timeout(400):
        while True:
            values = await application.store.get([session_key(name) for name in sessions])
            found = [SessionRow.at(name, value or {}) for name, value in zip(sessions, values, strict=True)]
            if all(session.status != "running" for session in found):
                crashed = [session for session in found if session.error is not None and session.error.code == CRASHED]
                if not crashed:
                    return found
                again = (application.executor.retry(thrifty, session.session_id) for session in crashed[:AT_ONCE])
                await asyncio.gather(*again)
            await asyncio.sleep(1)


def had_an_accident(cloud: CloudForTests, session_id: str) -> bool:
    """Return whether the emulator reports a failed or timed out task in an execution of the session."""
    events = [event for one in cloud.executions(session_id) for event in cloud.history(one["executionArn"])]
    return any(event["type"].endswith(("Failed", "TimedOut", "Aborted")) for event in events)


async def test_64_runs_at_once_against_a_budget_for_10(cloud: CloudForTests) -> None:
    """Functions in many processes draw from one row. The tokens spent never exceed the limit, and unused reservations are
    returned. A call whose worker disappeared is assumed to have spent its reservation, and takes the place of an answered
    call."""
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
    ended = await ends(application, [handle.session_id for handle in handles])
    assert not watching.done(), "the limit was never exceeded"
    watching.cancel()

    done = [session.session_id for session in ended if session.status == "completed"]
    refused = [session for session in ended if session.error is not None and session.error.code == EXCEEDED]
    assert len(done) + len(refused) == RUNS and all(s.error.recoverable for s in refused if s.error is not None)
    calls = [call for session in ended for call in await session_calls(application.store, session.session_id)]
    assert sorted(call.session_id for call in calls if call.outcome == "answered") == sorted(done), "bought once"
    unheard = [call for call in calls if call.outcome != "answered"]
    assert all(had_an_accident(cloud, call.session_id) for call in unheard)
    assert len(done) + len(unheard) >= FOR and len(done) <= limit // USED
    least, most = len(done) * USED, len(done) * USED + len(unheard) * WORST
    async with asyncio.timeout(60):  # the effects of the last run are applied after its result is visible
        while not least <= await spent(budgets) <= most:
            await asyncio.sleep(0.5)
    own = [alert.level for alert in await budgets.get_alerts(agent_id="thrifty")]
    assert len(own) == len(set(own)) and "exceeded" in own

    await budgets.set_budget(2 * limit, TokenPeriod.TOTAL, "thrifty")
    await executor.retry(thrifty, refused[0].session_id)
    [again] = await ends(application, [refused[0].session_id])
    assert again.status == "completed"
