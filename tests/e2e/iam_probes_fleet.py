"""Probes of the functions that govern a fleet: slots, budgets, cached answers, `govern` and `health`.

`chief` has a limit of 0, so each of its runs waits in line once it is claimed. `helper` has a limit that no test reaches.
`govern` starts the runs that it grants, so executions of `crew` do run. They disturb no other probe.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.e2e.iam_bench import HEAVY, LARGE, Bench, Json, of_call, payload, probe
from tests.e2e.iam_probes import answered_below
from tests.e2e.iam_probes_sockets import message
from tests.support.cloud_agents.cast import DEEP
from tests.support.cloud_agents.plans import call, finish, plan, say, use
from tests.support.cloud_agents.tools import noise
from tests.support.offline_cloud import until

from helix.core.budget import MICROS, BudgetDefinition, TokenAlert
from helix.core.delivery import Position
from helix.core.periods import TokenPeriod
from helix.fleet.budgets import BudgetManager
from helix.ports.state_store import Delete, Key, Put
from helix.services.budget_rows import ALERTS, UNPUBLISHED, budget_key
from helix.services.row_cache import DEFAULT_SIZE
from helix.services.row_slots import RowSlots

HOUR = TokenPeriod.HOURLY


async def limit_agents(bench: Bench) -> None:
    """Set the limits that the probes of this module expect."""
    slots = RowSlots(bench.app.store)
    await slots.set_limit("chief", 0)
    await slots.set_limit("helper", 10_000)


# --- budgets and remembered answers --------------------------------------------------------------------------------------


@probe("call_model", control="BatchGetItem PutItem UpdateItem ConditionCheckItem")
async def a_step_within_a_budget(bench: Bench) -> Json:
    place = await bench.claimed(say("Paid."))
    await BudgetManager(bench.app.store).set_budget(10**9, TokenPeriod.TOTAL, session=place.session_id)
    return payload(place)


async def _asked_before(bench: Bench) -> Position:
    """Let one user of a tenant ask a question and get an answer, and claim a run that asks the same question."""
    tenant = bench.fresh()
    first, again = [await bench.claimed(say("The same."), agent="mindful", user_id=tenant) for _ in range(2)]
    await bench.bought(first)
    return again


@probe("call_model", control="GetItem DeleteItem")
async def an_answer_that_is_given_again(bench: Bench) -> Json:
    return payload(await _asked_before(bench))


@probe("call_model", control="Query")
async def an_answer_that_does_not_fit_into_the_cache(bench: Bench) -> Json:
    tenant = bench.fresh()
    full = Put(Key("control", f"cache#{tenant}", "count"), {"entries": DEFAULT_SIZE})
    await bench.app.store.transact("fill", [full])
    return payload(await bench.claimed(say("One more."), agent="mindful", user_id=tenant))


# --- slots and usage -----------------------------------------------------------------------------------------------------


@probe("finish_run", control="BatchGetItem Query")
async def an_end_of_a_run_with_a_slot(bench: Bench) -> Json:
    return payload(await bench.ended(agent="roomy"))


@probe("fail_run", control="BatchGetItem")
async def a_failure_of_a_run_with_a_slot(bench: Bench) -> Json:
    return payload(await bench.claimed(say("Never said."), agent="roomy"))


@probe("fail_run", control="Query")
async def a_failure_of_a_run_within_a_budget(bench: Bench) -> Json:
    place = await bench.claimed(use(call("look", topic="x")), say("Never said."))
    await BudgetManager(bench.app.store).set_budget(10**9, TokenPeriod.TOTAL, session=place.session_id)
    await bench.bought(place)
    return payload(place)


@probe("finish_run", control="ConditionCheckItem")
async def an_end_that_a_parent_without_a_slot_waits_for(bench: Bench) -> Json:
    return payload(await bench.to_the_end(await answered_below(bench, agent="chief")))


@probe("fail_run", control="ConditionCheckItem")
async def a_failure_that_a_parent_without_a_slot_waits_for(bench: Bench) -> Json:
    return payload(await answered_below(bench, agent="chief"))


@probe("start_run", control="BatchGetItem GetItem Query UpdateItem")
async def a_sub_agent_with_a_slot_that_has_ended(bench: Bench) -> Json:
    above, below, call_id = await bench.child(finish(summary="done"))
    await bench.bought(below)
    return of_call(above, call_id, token="nobody's")


@probe("sweep", sessions="BatchGetItem", control="BatchGetItem ConditionCheckItem")
async def a_run_that_got_no_place_in_the_line(bench: Bench) -> Json:
    """The process that claimed the run died before its admission, and other runs wait."""
    for _ in range(2):
        await bench.claimed(say("Never said."), agent="chief")
    slots, bench.engine.slots = bench.engine.slots, None
    place = await bench.claimed(say("Never said."), agent="chief")
    bench.engine.slots = slots
    await bench.old(place)
    return {}


@probe("ws_message", control="BatchGetItem UpdateItem ConditionCheckItem")
async def a_new_run_that_waits(bench: Bench) -> Json:
    return await message(bench, "run", agent="chief", message=plan(say("Never said.")))


@probe("ws_message", control="Query")
async def a_look_at_a_run_that_waits(bench: Bench) -> Json:
    place = await bench.claimed(say("Never said."), agent="chief")
    return await message(bench, "get_session", session_id=place.session_id)


# --- govern --------------------------------------------------------------------------------------------------------------


async def _line(bench: Bench, **options: Any) -> None:
    """Let enough runs of `crew` wait for `govern` to raise its limit, and remove all earlier decisions."""
    store, slots = bench.app.store, RowSlots(bench.app.store)
    await BudgetManager(store).remove_budget(HOUR, "crew", unit="usd")
    for waiting in await slots.queue("crew"):
        await slots.leave(waiting.candidate)
    for holder in await slots.holders("crew"):
        await slots.release(holder)
    await asyncio.to_thread(_rest, bench)
    await slots.set_limit("crew", 1)
    await bench.claimed(say("Never said."), agent="crew")
    for _ in range(DEEP):
        await bench.claimed(options.pop("first", say("Said at last.")), agent="crew", **options)
        options = {}
    await store.transact("forget", [Delete(Key("control", "scaling#crew", "state"))])


def _alarm(bench: Bench) -> Json:
    """Return an alarm about the line. The minute caches what it read from CloudWatch for five minutes, but an alarm reads
    it anew."""
    of = {"stage": "test", "agent": "crew"}
    trigger = {"Dimensions": [{"name": name, "value": value} for name, value in of.items()]}
    said = {"AlarmName": "helix-test-queue-depth-crew", "NewStateValue": "ALARM", "Trigger": trigger}
    return {"Records": [{"Sns": {"MessageId": bench.fresh(), "Message": json.dumps(said)}}]}


def _rest(bench: Bench) -> None:
    """Wait for the runs that were granted before, since each of them grants another one at its end."""

    def working() -> list[Json]:
        return bench.cloud.executions(status="RUNNING", profile="crew")

    try:
        until(lambda: not working(), "rest")
    except AssertionError as error:
        last = {each["name"]: bench.cloud.history(each["executionArn"])[-8:] for each in working()}
        raise AssertionError(f"{error}: {json.dumps(last, default=str, indent=1)}") from None


@probe(
    "govern",
    sessions="BatchGetItem GetItem Query",
    control="GetItem BatchGetItem Query PutItem UpdateItem ConditionCheckItem",
    chunks="PutRecord",
    machines="StartExecution",
    metrics="GetMetricData",
    aliases="PutProvisionedConcurrencyConfig",
)
async def a_line_that_is_long(bench: Bench) -> Json:
    await _line(bench)
    return _alarm(bench)


@probe("govern", sweep="InvokeFunction")
async def a_minute(bench: Bench) -> Json:
    await bench.claimed(agent="chief")  # at rest it would not start the sweep
    return {}


@probe("govern", objects="GetObject")
async def a_line_that_begins_with_a_large_run(bench: Bench) -> Json:
    """The line is read by a process that has read nothing from CloudWatch yet."""
    bench.cloud.cloud.retire_workers()
    state = {"notes": {"before": noise(LARGE)}}
    await _line(bench, first=say(noise(LARGE)), state=state, metadata=HEAVY)
    return {}


@probe("govern", aliases="DeleteProvisionedConcurrencyConfig")
async def a_budget_that_is_spent(bench: Bench) -> Json:
    await _line(bench)
    store = bench.app.store
    await BudgetManager(store).set_budget(1, HOUR, "crew", unit="usd")
    definition = BudgetDefinition(scope="agent:crew", period=HOUR, unit="micros", limit=MICROS)
    name, _ = definition.window(bench.app.clock.now())
    spent = {"unit": "micros", "limit": MICROS, "remaining": 0}
    await store.transact("spend", [Put(budget_key(name), spent)])
    return _alarm(bench)


@probe("govern", control="DeleteItem", notices="Publish")
async def an_alert_that_nobody_was_told(bench: Bench) -> Json:
    now = bench.app.clock.now()
    alert = TokenAlert(
        alert_id=bench.app.ids.new("alert"),
        level="warning",
        message="Most of it is spent.",
        scope="global",
        period=HOUR,
        window="now",
        unit="tokens",
        current=9,
        limit=10,
        utilization=0.9,
        timestamp=now,
    )
    value = alert.model_dump(mode="json")
    rows = [Put(Key("control", place, alert.alert_id), value) for place in (ALERTS, UNPUBLISHED)]
    await bench.app.store.transact("alert", rows)
    return {}


# --- health --------------------------------------------------------------------------------------------------------------


def _page(path: str, **headers: str) -> Json:
    return {"version": "2.0", "routeKey": f"GET /{path}", "headers": headers, "requestContext": {}}


@probe("health", control="GetItem BatchGetItem Query", sessions="GetItem")
async def a_look_at_the_stage(bench: Bench) -> Json:
    return _page("health")


@probe("health", token="GetSecretValue")
async def a_look_at_the_figures(bench: Bench) -> Json:
    """The figures are read by a process that has not read the token yet."""
    bench.cloud.cloud.retire_workers()
    return _page("metrics", authorization="Bearer none")
