"""The fleet of a deployed stage, seen from a process with neither its agents nor its executor, but with its rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.support.delivery_stage import Json, Stage, event_of
from tests.support.torn_store import Torn
from tests.support_run import agent

from helix import MemoryStateStore, ScriptedModel
from helix.core.agents import AnyAgent
from helix.core.errors import AgentNotFoundError, InvalidScaleError
from helix.core.health import HealthCheck
from helix.engine.history import session_key
from helix.fleet.decisions import DecisionLog
from helix.fleet.deployed import DeployedRuntime
from helix.fleet.health import HealthChecker
from helix.fleet.rows import FLEET
from helix.ports.state_store import Delete, Operation, Row, Update
from helix.services.open_runs import PARTITIONS, partition_name


def fleet(*agents: AnyAgent) -> tuple[Stage, DeployedRuntime]:
    on = Stage(ScriptedModel(["Done."], repeat=True), *agents)
    return on, DeployedRuntime(on.store, clock=on.clock)


async def begin(on: Stage, who: AnyAgent, times: int) -> list[Any]:
    return [await on.executor.execute(who, f"message {n}") for n in range(times)]


def event(on: Stage, handle: Any) -> Json:
    return event_of(next(part for part in on.held.starts if part.run_id == handle.run_id))


async def status_of(on: Stage, handle: Any) -> str:
    return (await on.executor.sessions.get_run(handle.session_id, handle.run_id)).status


async def test_status_tells_the_limit_and_the_runs_at_work() -> None:
    worker = agent("worker", resources={"max": 2})
    on, runtime = fleet(worker)
    assert (await runtime.get_agent_status("worker"))["status"] == "not_found"
    handles = await begin(on, worker, 3)
    told = await runtime.get_agent_status("worker")
    assert (told["status"], told["instances"]) == ("running", 2)
    assert [process["process_id"] for process in told["processes"]] == [handle.run_id for handle in handles[:2]]
    assert [found["agent_id"] for found in await runtime.list_agents()] == ["worker"]


@pytest.mark.parametrize(("resources", "known"), [({"min": 1, "max": 2}, {"max_instances": 2}), ({}, {})])
async def test_status_invents_no_resources(resources: Json, known: Json) -> None:
    """The rows have at most the maximum of the definition, also after an operator changed the agent."""
    worker = agent("worker", resources=resources)
    on, runtime = fleet(worker)
    (first,) = await begin(on, worker, 1)
    await on.end(event(on, first))
    assert (await runtime.get_agent_status("worker"))["resources"] == known
    await runtime.scale_agent("worker", 2)
    assert (await runtime.get_agent_status("worker"))["resources"] == known
    assert [found["resources"] for found in await runtime.list_agents()] == [known]


async def test_stop_interrupts_what_works_and_keeps_what_waits_for_start() -> None:
    worker = agent("worker", resources={"max": 1})
    on, runtime = fleet(worker)
    first, second = await begin(on, worker, 2)
    assert await runtime.stop_agent("worker") == 1
    told = await on.deliver("call_model", event(on, first))
    await on.deliver("finish_run", told)
    assert await status_of(on, first) == "interrupted" and await status_of(on, second) == "running"
    assert [part.run_id for part in on.held.starts] == [first.run_id], "no run is admitted while it is stopped"
    assert (await runtime.get_agent_status("worker"))["status"] == "stopped"
    await runtime.start_agent("worker")
    on.clock.ahead_s += 60
    await on.deliver("sweep")
    assert on.held.starts[-1].run_id == second.run_id
    await on.end(event(on, second))
    assert await status_of(on, second) == "completed"


async def test_lost_readiness_stops_admission_until_every_check_is_well_again() -> None:
    worker = agent("worker", resources={"max": 2})
    on, runtime = fleet(worker)
    (first,) = await begin(on, worker, 1)
    await on.end(event(on, first))
    well = {"database": False, "search": False}
    health = HealthChecker(on.store, clock=on.clock, on_change=runtime.apply_health)
    for name in well:
        check = HealthCheck(name=name, check_fn=lambda name=name: (well[name], "down"), failure_threshold=1)
        await health.register_check("worker", check)
    await health.check_health("worker", run=True)
    (waits,) = await begin(on, worker, 1)
    assert (await runtime.get_agent_status("worker"))["instances"] == 0
    assert [part.run_id for part in on.held.starts] == [first.run_id]

    well["search"] = True
    await health.check_health("worker", run=True)
    assert (await runtime.get_agent_status("worker"))["instances"] == 0, "the database is still down"
    well["database"] = True
    await health.check_health("worker", run=True)
    assert (await runtime.get_agent_status("worker"))["instances"] == 2
    on.clock.ahead_s += 60
    await on.deliver("sweep")
    assert on.held.starts[-1].run_id == waits.run_id
    told = await DecisionLog(on.store, on.clock, on.engine.ids).history("worker")
    assert [(row.rule, row.before, row.after) for row in told] == [("health", 2, 0), ("health", 0, 2)]
    assert told[0].reason.endswith("is unhealthy: down") and "is healthy" in told[1].reason


async def test_readiness_opens_nothing_that_a_person_closed_or_opened() -> None:
    worker = agent("worker", resources={"max": 3})
    on, runtime = fleet(worker)
    await begin(on, worker, 1)
    well = [False]
    health = HealthChecker(on.store, clock=on.clock, on_change=runtime.apply_health)
    await health.register_check("worker", HealthCheck(name="door", check_fn=lambda: well[0], failure_threshold=1))
    await health.check_health("worker", run=True)
    await runtime.scale_agent("worker", 1)
    well[0] = True
    await health.check_health("worker", run=True)
    assert (await runtime.get_agent_status("worker"))["instances"] == 1

    await runtime.stop_agent("worker")
    for answer in (False, True):
        well[0] = answer
        await health.check_health("worker", run=True)
    assert (await runtime.get_agent_status("worker"))["status"] == "stopped"


async def test_who_stops_an_agent_while_its_readiness_comes_back_has_the_last_word() -> None:
    worker = agent("worker", resources={"max": 3})
    store = Torn()
    on = Stage(ScriptedModel(["Done."], repeat=True), worker, store=store)
    runtime = DeployedRuntime(store, clock=on.clock)
    await begin(on, worker, 1)
    well = [False]
    health = HealthChecker(store, clock=on.clock, on_change=runtime.apply_health)
    await health.register_check("worker", HealthCheck(name="door", check_fn=lambda: well[0], failure_threshold=1))
    await health.check_health("worker", run=True)
    well[0] = True
    store.at, store.then = FLEET, lambda: runtime.stop_agent("worker")
    await health.check_health("worker", run=True)
    assert store.then is None, "it was stopped once its entry had been read"
    assert (await runtime.get_agent_status("worker"))["status"] == "stopped"


async def test_force_aborts_what_works_and_what_waits() -> None:
    worker = agent("worker", resources={"max": 1})
    on, runtime = fleet(worker)
    first, second = await begin(on, worker, 2)
    assert await runtime.stop_agent("worker", force=True) == 2
    await on.deliver("finish_run", await on.deliver("call_model", event(on, first)))
    on.clock.ahead_s += 60
    await on.deliver("sweep")
    assert [await status_of(on, handle) for handle in (first, second)] == ["failed", "failed"]
    assert await runtime.stop_agent("worker", force=True) == 0


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(("damage", "stopped"), [({"turn": "one"}, 3), ({"status": 7}, 2), ({}, 2)])
async def test_a_session_that_cannot_be_read_keeps_no_other_from_being_stopped(
    force: bool, damage: Json, stopped: int
) -> None:
    worker = agent("worker", resources={"max": 3})
    on, runtime = fleet(worker)
    handles = await begin(on, worker, 3)
    in_order = [row.key.sort for n in range(PARTITIONS) for row in await on.store.query("control", partition_name(n))]
    damaged, *others = sorted(handles, key=lambda handle: in_order.index(handle.run_id))
    key = session_key(damaged.session_id)
    await on.store.transact("damage", [Update(key, set=damage) if damage else Delete(key)])
    assert await runtime.stop_agent("worker", force=force) == stopped
    for handle in others:
        await on.deliver("finish_run", await on.deliver("call_model", event(on, handle)))
        assert await status_of(on, handle) == ("failed" if force else "interrupted")


async def test_scale_moves_the_limit_within_the_agents_bounds() -> None:
    worker = agent("worker", resources={"max": 3})
    on, runtime = fleet(worker)
    await begin(on, worker, 1)
    await runtime.scale_agent("worker", instances=1)
    assert (await runtime.get_agent_status("worker"))["instances"] == 1
    with pytest.raises(InvalidScaleError, match="0 to 3 instances, not 4"):
        await runtime.scale_agent("worker", instances=4)
    with pytest.raises(AgentNotFoundError, match="there are: worker"):
        await runtime.scale_agent("nobody", instances=1)


async def test_restart_interrupts_and_takes_in_again() -> None:
    worker = agent("worker", resources={"max": 1})
    on, runtime = fleet(worker)
    (first,) = await begin(on, worker, 1)
    await runtime.restart_agent("worker")
    await on.deliver("finish_run", await on.deliver("call_model", event(on, first)))
    assert await status_of(on, first) == "interrupted"
    (second,) = await begin(on, worker, 1)
    await on.end(event(on, second))
    assert await status_of(on, second) == "completed"


async def test_what_a_person_changed_is_in_the_history() -> None:
    worker = agent("worker", resources={"max": 3})
    on, runtime = fleet(worker)
    await begin(on, worker, 1)
    await runtime.scale_agent("worker", instances=1)
    await runtime.scale_agent("worker", instances=1)
    await runtime.stop_agent("worker")
    history = await DecisionLog(on.store, on.clock, on.engine.ids).history("worker")
    assert [(row.before, row.after, row.rule, row.applied) for row in history] == [
        (3, 1, "operator", True),
        (1, 0, "operator", True),
    ]
    assert "stopped" in history[-1].reason


class Meanwhile(MemoryStateStore):
    """A store in which something happens once, before a transaction of that name. It counts the reads of the index of open
    runs."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, Callable[[], Awaitable[Any]]] = {}
        self.looks = 0

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        if (first := self.before.pop(name, None)) is not None:
            await first()
        await super().transact(name, operations)

    async def query(self, table: Any, partition: str, **options: Any) -> list[Row]:
        self.looks += partition.startswith("open-runs#")
        return await super().query(table, partition, **options)


async def test_of_two_who_want_something_else_the_last_word_is_in_force() -> None:
    """One operator is stopped between the other's request and its limit. The agent stays closed."""
    worker, store = agent("worker", resources={"max": 3}), Meanwhile()
    on = Stage(ScriptedModel(["Done."], repeat=True), worker, store=store)
    runtime = DeployedRuntime(store, clock=on.clock)
    await begin(on, worker, 1)
    store.before["set_limit"] = lambda: runtime.stop_agent("worker")
    await runtime.scale_agent("worker", instances=2)
    assert (await runtime.get_agent_status("worker"))["instances"] == 0
    store.before["set_limit"] = lambda: runtime.stop_agent("worker")
    await runtime.start_agent("worker")
    assert (await runtime.get_agent_status("worker"))["instances"] == 0


async def test_listing_many_agents_reads_the_open_runs_once() -> None:
    store, many = Meanwhile(), [agent(f"worker_{n}", resources={"max": 1}) for n in range(10)]
    on = Stage(ScriptedModel(["Done."], repeat=True), *many, store=store)
    for who in many:
        await begin(on, who, 2)
    store.looks = 0
    listed = await DeployedRuntime(store, clock=on.clock).list_agents()
    assert [len(found["processes"]) for found in listed] == [1] * 10
    assert store.looks == PARTITIONS
