"""The rights of operators over the socket: read the fleet, and change the limit of a budget. Other users have neither."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.support_gateway import BRISK, PATIENCE_S, check_frame, executor_of, key_for, keyed
from tests.support_run import agent

from helix import LocalExecutor
from helix.adapters.system import SystemIds
from helix.client import HelixClient
from helix.core.delivery import Delivery
from helix.core.errors import AgentNotFoundError, BudgetExceededError, InvalidInputError, NotAllowedError
from helix.core.health import HealthCheck
from helix.core.json import JsonObject
from helix.core.resources import ResourceConfig
from helix.core.scaling import ScalingDecision
from helix.fleet.budgets import BudgetManager
from helix.fleet.control import FleetControl
from helix.fleet.decisions import DecisionLog
from helix.fleet.health import HealthChecker
from helix.fleet.health_rows import set_ready
from helix.fleet.process_info import ProcessInfo, ProcessStatus
from helix.fleet.rows import put_process
from helix.gateway.loopback import LoopbackGateway
from helix.services.row_slots import RowSlots
from helix.services.slot_rows import Candidate
from helix.sessions.sweep import sweep

FLEET = ("alone", "helper", "other")
MORE = ResourceConfig(min_instances=0, max_instances=5)


@pytest_asyncio.fixture
async def executor() -> AsyncIterator[LocalExecutor]:
    agents = [agent(name) for name in FLEET[:2]]
    agents.append(agent("other", resources={"min": 1, "max": 3}))
    async with executor_of(["Hello."] * 9, *agents) as made:
        yield made


@pytest_asyncio.fixture
async def service(executor: LocalExecutor) -> AsyncIterator[LoopbackGateway]:
    async with LoopbackGateway(executor, authoriser=keyed(executor)) as served:
        yield served


def client(service: LoopbackGateway, key: str) -> HelixClient:
    return HelixClient(service.url, key, settings=BRISK)


async def fleet(of: HelixClient, **asked: Any) -> Any:
    found = await of.get_fleet(**asked)
    check_frame({"v": 1, "type": "reply", "id": "r", "action": "get_fleet", "result": found})
    return found


async def test_who_has_no_operators_key_neither_reads_the_fleet_nor_changes_a_budget(
    executor: LocalExecutor, service: LoopbackGateway
) -> None:
    budgets = BudgetManager(executor.store)
    await budgets.set_budget(10, "total", tenant="ada")
    plain, operators = await key_for(executor, "ada"), await key_for(executor, "ada", operator=True)
    async with client(service, plain) as ada:
        assert (await ada.whoami())["operator"] is False
        for refused in (ada.get_fleet(), ada.change_budget("tenant:ada/total/tokens", 10**6)):
            with pytest.raises(NotAllowedError, match="for operators"):
                await refused
        assert [one.limit for one in await budgets.list_budgets()] == [10]
        assert (await ada.authenticate(operators))["operator"] is True
        assert (await ada.whoami())["operator"] is True
        assert [one["agent"] for one in (await fleet(ada))["agents"]] == [*FLEET]
        assert (await ada.authenticate(plain))["operator"] is False, "the right is that of the newest proof"
        with pytest.raises(NotAllowedError):
            await ada.get_fleet()


async def test_an_operators_key_gives_nobody_elses_sessions(executor: LocalExecutor, service: LoopbackGateway) -> None:
    async with client(service, await key_for(executor, "bob")) as bob:
        await (await bob.run("helper", "hi")).result(PATIENCE_S)
    async with client(service, await key_for(executor, "ada", operator=True)) as ada:
        assert (await ada.list_sessions())["sessions"] == []
        with pytest.raises(InvalidInputError):
            await ada.list_sessions(user="bob")


async def test_the_fleet_says_who_waits_what_is_ill_and_why_a_limit_moved(
    executor: LocalExecutor, service: LoopbackGateway
) -> None:
    store, clock = executor.store, executor.engine.clock
    slots = RowSlots(store)
    log = DecisionLog(store, clock, SystemIds())
    await slots.set_limit("helper", 0)
    checker = HealthChecker(store, clock=clock)
    closed = HealthCheck(name="desk", failure_threshold=1, check_fn=lambda: (False, "closed"))
    await checker.register_check("helper", closed)
    await checker.check_health("helper", run=True)
    for after in (3, 2, 1):
        await log.record("helper", ScalingDecision(before=after + 1, after=after, rule="quiet", reason=f"to {after}"))
    async with client(service, await key_for(executor, "ada", operator=True)) as ada:
        for n in range(3):
            await slots.admit(Candidate("helper", f"run{n}", f"ses{n}", clock.now() + n), default=None)
        found = await fleet(ada, agent="helper", waiting=2, decisions=2)
        (one,) = found["agents"]
        assert (one["status"], one["limit"], one["running"], one["queued"]) == ("stopped", 0, 0, 3)
        assert [run["run_id"] for run in one["waiting"]] == ["run0", "run1"]
        assert 0 <= found["now"] - one["waiting"][0]["since"] < PATIENCE_S
        assert [(row["after"], row["reason"], row["action"]) for row in one["decisions"]] == [
            (1, "to 1", "down"),
            (2, "to 2", "down"),
        ]
        assert [(check["check"], check["status"], check["message"]) for check in one["checks"]] == [
            ("desk", "unhealthy", "closed")
        ]
        assert (found["queued"], found["ready"], found["cursor"]) == (3, True, None)
        with pytest.raises(AgentNotFoundError, match="'nobody'"):
            await ada.get_fleet(agent="nobody")


async def test_a_closed_service_and_a_process_that_is_gone_show_as_such(
    executor: LocalExecutor, service: LoopbackGateway
) -> None:
    store, clock = executor.store, executor.engine.clock
    await set_ready(store, clock, False, "a move")
    await sweep(executor.engine, Delivery("d", clock.now() + 60))
    for name, pid in (("here", os.getpid()), ("gone", 2**22 + 1)):
        info = {"name": "helper", "pid": pid, "status": ProcessStatus.RUNNING, "host": socket.gethostname()}
        await put_process(store, "helper", ProcessInfo(process_id=name, memory_mb=64, **info), clock.now())
    async with client(service, await key_for(executor, "ada", operator=True)) as ada:
        found = await fleet(ada, agent="helper")
    assert (found["ready"], found["reason"]) == (False, "a move")
    assert 0 <= found["now"] - found["swept_at"] < PATIENCE_S
    processes = {one["process_id"]: one for one in found["agents"][0]["processes"]}
    assert {name: (one["status"], one["pid"]) for name, one in processes.items()} == {
        "here": ("running", os.getpid()),
        "gone": ("stopped", None),
    }


async def test_pages_have_each_agent_once_with_its_bounds(executor: LocalExecutor, service: LoopbackGateway) -> None:
    control = FleetControl(executor.store, executor.engine.clock, known={"other": MORE})
    await control.scale("other", 2)
    async with client(service, await key_for(executor, "ada", operator=True)) as ada:
        found, after = [], None
        while True:
            page = await fleet(ada, limit=1, after=after)
            found += page["agents"]
            if (after := page["cursor"]) is None:
                break
    assert [one["agent"] for one in found] == [*FLEET]
    assert [one["stopped_by"] for one in found] == [None] * 3
    other = found[-1]
    assert (other["wanted"], other["min_instances"], other["max_instances"]) == (2, 1, 3), "of its definition"
    assert [found[0][name] for name in ("wanted", "max_instances", "limit", "running")] == [None] * 4


async def test_an_agent_that_a_budget_stopped_names_it(executor: LocalExecutor, service: LoopbackGateway) -> None:
    slots = RowSlots(executor.store)
    await slots.set_limit("other", 2)
    assert await slots.change_limit("other", 2, 0, stopped_by="budget global/day/micros")
    async with client(service, await key_for(executor, "ada", operator=True)) as ada:
        (found,) = (await fleet(ada, agent="other"))["agents"]
    assert (found["status"], found["stopped_by"]) == ("stopped", "budget global/day/micros")


async def test_a_budget_that_stopped_a_run_is_raised_and_the_run_goes_on(
    executor: LocalExecutor, service: LoopbackGateway
) -> None:
    """The other fields of the budget do not change."""
    budgets = BudgetManager(executor.store)
    await budgets.set_budget(5, "total", tenant="ada", on_exceeded="pause", warning=0.5, critical=0.6)
    name = "tenant:ada/total/tokens"
    async with client(service, await key_for(executor, "ada", operator=True)) as ada:
        handle = await ada.run("helper", "hi")
        assert (await handle.result(PATIENCE_S)).completion_reason == BudgetExceededError.code
        changed = await ada.change_budget(name, 100_000)
        check_frame({"v": 1, "type": "reply", "id": "r", "action": "change_budget", "result": changed})
        assert changed == {"budget": name, "unit": "tokens", "limit": 100_000}
        assert (await (await handle.resume()).result(PATIENCE_S)).text == "Hello."
        (stored,) = await budgets.list_budgets()
        assert (stored.limit, stored.on_exceeded, stored.warning, stored.critical) == (100_000, "pause", 0.5, 0.6)
        for wrong, limit in (("tenant:ada/total/micros", 1), (name, 0.5)):
            with pytest.raises(InvalidInputError):
                await ada.change_budget(wrong, limit)
        await budgets.set_budget(1.5, "day", unit="usd")
        assert await ada.change_budget("global/day/micros", 2.25) == {
            "budget": "global/day/micros",
            "unit": "usd",
            "limit": 2.25,
        }
        listed: Any = (await ada.get_budgets(handle.session_id))["budgets"]
        assert {one["scope"]: one["limit"] for one in listed}["global"] == 2.25, "operators see shared amounts"


async def test_an_operator_finds_the_executions_and_the_log_of_a_run(
    executor: LocalExecutor, service: LoopbackGateway
) -> None:
    async with client(service, await key_for(executor, "ada", operator=True)) as ada:
        handle = await ada.run("helper", "hi")
        await handle.result(PATIENCE_S)
        place: JsonObject = {"session_id": handle.session_id}
        found = await ada.ask("get_executions", place)
        assert found == {
            "session_id": handle.session_id,
            "run_id": handle.run_id,
            "stage": None,
            "executions": [],
            "log_groups": None,
            "logs_url": None,
        }
        backend = service.gateway.backend
        backend.stage, backend.machine = (
            "blue",
            "arn:aws:states:eu-west-1:123456789012:stateMachine:helix-blue-{profile}",
        )
        found = await ada.ask("get_executions", place)
        check_frame({"v": 1, "type": "reply", "id": "r", "action": "get_executions", "result": found})
        arn = f"arn:aws:states:eu-west-1:123456789012:execution:helix-blue-default:{handle.run_id}"
        home = "https://eu-west-1.console.aws.amazon.com"
        url = f"{home}/states/home?region=eu-west-1#/v2/executions/details/{arn}"
        assert found["executions"] == [{"part": 1, "arn": arn, "url": url}]
        groups = "$3FlogGroupNameFilter$3D%2Faws%2Flambda%2Fhelix-blue-"
        assert found["logs_url"] == f"{home}/cloudwatch/home?region=eu-west-1#logsV2:log-groups{groups}"
        assert (await ada.authenticate(await key_for(executor, "ada")))["operator"] is False
        with pytest.raises(NotAllowedError, match="for operators"):
            await ada.ask("get_executions", place)
