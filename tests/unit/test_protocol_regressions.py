"""Defects that the protocol machine (or its author, while writing it) found in the engine, each as a readable scenario."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel
from tests.properties.protocol_play import SETTINGS

from helix.adapters.memory import MemoryStateStore
from helix.adapters.models.scripted import ScriptedModel
from helix.adapters.row_budgets import RowBudgets
from helix.adapters.segments import SegmentStreams
from helix.core.agents import Agent, AnyAgent
from helix.core.budget import BudgetDefinition
from helix.core.config import LLMConfig
from helix.core.context import ToolContext
from helix.core.errors import AgentAlreadyRunningError, SessionExistsError, WorkInProgressError
from helix.core.periods import TokenPeriod
from helix.core.rows import CallRow, SessionRow, StopRow
from helix.core.tools import create_sub_agent_tool, tool
from helix.engine.announcing import announce_claim
from helix.engine.answers import Confirmation, answer
from helix.engine.call_model import call_model
from helix.engine.call_tool import call_tool, view_step
from helix.engine.children import start_child
from helix.engine.claiming_calls import claimed, longest, may_start
from helix.engine.claims import Claimed, ClaimInput, claim
from helix.engine.copies import clone_session, delete_session
from helix.engine.delivery import Delivery, Lease
from helix.engine.ends import abort, fail_lapsed, finish_run
from helix.engine.engine import Engine, Outcome, Worst
from helix.engine.history import session_key
from helix.engine.hooks import HookManager
from helix.engine.loop import run_loop
from helix.engine.run_stream import RunStream
from helix.engine.stops import StopWatch
from helix.ports.budgets import Demand
from helix.ports.state_store import Operation, Update


class Answer(BaseModel):
    answer: str


@tool(on_unknown="retry", timeout_s=20)
async def free(ctx: ToolContext) -> str:
    """Does no harm."""
    return "free done"


@tool(require_approval=True)
async def gated(ctx: ToolContext) -> str:
    """Needs a person."""
    return "gated done"


CONFIG = LLMConfig(model="scripted")
HELPER: AnyAgent = Agent(name="helper", system_prompt="help", tools=[gated], output_schema=Answer, llm_config=CONFIG)
SOLO: AnyAgent = Agent(name="solo", system_prompt="work", tools=[free, gated], llm_config=CONFIG)
BOSS: AnyAgent = Agent(
    name="boss", system_prompt="lead", tools=[free, gated, create_sub_agent_tool(HELPER)], llm_config=CONFIG
)


class Clock:
    time = 1000.0

    def now(self) -> float:
        self.time += 0.001
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


class Ids:
    n = 0

    def new(self, prefix: str) -> str:
        self.n += 1
        return f"{prefix}_{self.n:026d}"


class Between(MemoryStateStore):
    """Something happens between what a verb read and what it writes: right before the transaction of that name."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, Any] = {}

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        happens = self.before.pop(name, None)
        if happens is not None:
            await happens()
        await super().transact(name, operations)


class World:
    """Lambda-style deliveries of one engine, by hand."""

    def __init__(self, script: Any) -> None:
        self.store, self.clock = Between(), Clock()
        model = ScriptedModel(script, by="position")
        agents = {agent.name: agent for agent in (SOLO, BOSS, HELPER)}
        self.engine = Engine(
            store=self.store,
            streams=SegmentStreams(self.store),
            clock=self.clock,
            ids=Ids(),
            models=lambda agent: model,
            agents=lambda name: agents[name],
            hooks=HookManager(None),
            budgets=RowBudgets(self.store),
            settings=SETTINGS,
        )
        self.owners = 0

    def delivery(self, seconds: float = 30) -> Delivery:
        self.owners += 1
        return Delivery(f"lambda{self.owners}", self.clock.time + seconds)

    def worker(self) -> Delivery:
        self.owners += 1
        lease = Lease(self.clock.time + SETTINGS.lease_s)
        return Delivery(f"worker{self.owners}", self.clock.time + 3600, lease)

    async def claim(
        self, agent: AnyAgent, mode: str = "execute", message: str | None = None, *, delivery: Delivery | None = None
    ) -> Claimed:
        return await claim(self.engine, agent, "s", ClaimInput(mode, message), delivery or self.delivery())

    async def stream(self, run_id: str) -> RunStream:
        session = await self.session()
        return RunStream(self.engine.streams, self.clock, session, run_id, session.turn)

    async def model(self, agent: AnyAgent, run_id: str, step: int, delivery: Delivery | None = None) -> Outcome:
        stream = await self.stream(run_id)
        given = delivery or self.delivery()
        outcome = await call_model(self.engine, agent, "s", run_id, step, given, stream, StopWatch())
        await stream.close()
        return outcome

    async def tool(
        self, agent: AnyAgent, run_id: str, step: int, call_id: str, delivery: Delivery | None = None
    ) -> str:
        stream = await self.stream(run_id)
        view = await view_step(self.engine, "s", run_id, step)
        assert view is not None
        told = await call_tool(self.engine, agent, view, call_id, delivery or self.delivery(), stream, StopWatch())
        await stream.close()
        return told

    async def session(self, session_id: str = "s") -> SessionRow:
        return await self.engine.history.existing(session_id)

    async def call(self, place: int) -> CallRow:
        session = await self.session()
        rows = await self.engine.history.entries(
            "s", await self.engine.history.lineage("s", session.lineage), 0, session.count
        )
        row = rows[place]
        assert isinstance(row, CallRow)
        return row

    async def tool_ends(self) -> list[str]:
        messages = await self.engine.streams.read("s")
        chunks = [m.chunk for m in messages if m.chunk is not None]
        return [chunk["tool_call_id"] for chunk in chunks if chunk["type"] == "tool_end"]  # type: ignore[misc]

    async def remaining(self) -> int:
        (state,) = await self.engine.budgets.get([MONEY.window(0)[0]])
        return MONEY.limit if state is None else state.remaining


MONEY = BudgetDefinition(scope="global", period=TokenPeriod.TOTAL, unit="micros", limit=1000)


class Death(BaseException):
    """The process dies here."""


def budgeted(script: Any) -> World:
    world = World(script)
    world.engine.worst_case = lambda request: Worst(tokens=50, micros=5)
    return world


def kid(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "name": "subagent__helper", "arguments": {"message": "go"}}


def calls(*names: str) -> dict[str, Any]:
    return {"tool_calls": [{"id": f"call_{i}", "name": name, "arguments": {}} for i, name in enumerate(names)]}


async def test_closing_a_step_keeps_a_result_that_came_after_it_was_read() -> None:
    """result_immutable: the claim of a new message read the call as running, its result arrived, then the claim wrote."""
    working, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def slow(ctx: ToolContext) -> str:
        """Takes its time."""
        working.set()
        await go_on.wait()
        return "slow done"

    agent: AnyAgent = Agent(name="solo", system_prompt="work", tools=[slow], llm_config=CONFIG)
    world = World([calls("slow"), "later"])
    run = (await world.claim(agent, message="go")).run.run_id
    await world.model(agent, run, 1)
    at_work = asyncio.create_task(world.tool(agent, run, 1, "call_0"))
    await working.wait()
    await abort(world.engine, agent, "s", None, world.delivery())

    async def result_arrives() -> None:
        go_on.set()
        assert await at_work == "done"

    world.store.before["claim_execute"] = result_arrives
    claimed_run = await world.claim(agent, message="go on")
    row = await world.call(2)
    assert (row.by, row.content) == ("tool", "slow done")
    stream = await world.stream(claimed_run.run.run_id)
    announce_claim(stream, claimed_run)
    await stream.close()
    assert await world.tool_ends() == ["call_0"]  # told by the run that closed the step: no turn was open when it came


async def test_an_answer_that_came_in_between_is_not_closed_over() -> None:
    world = World([calls("gated"), "later"])
    run = (await world.claim(SOLO, message="go")).run.run_id
    await world.model(SOLO, run, 1)
    await world.tool(SOLO, run, 1, "call_0")
    await abort(world.engine, SOLO, "s", None, world.delivery())

    async def denied() -> None:
        await answer(world.engine, SOLO, "s", Confirmation("call_0", approved=False), world.delivery())

    world.store.before["claim_execute"] = denied
    await world.claim(SOLO, message="go on")
    assert (await world.call(2)).by == "answer"


async def test_an_answer_beside_a_working_run_is_told_by_its_fold() -> None:
    world = World([calls("gated", "free"), "done"])
    run = (await world.claim(SOLO, message="go")).run.run_id
    await world.model(SOLO, run, 1)
    await world.tool(SOLO, run, 1, "call_0")
    await answer(world.engine, SOLO, "s", Confirmation("call_0", approved=False), world.delivery())
    await world.tool(SOLO, run, 1, "call_1")
    await world.model(SOLO, run, 2)
    assert sorted(await world.tool_ends()) == ["call_0", "call_1"]


async def test_the_end_of_a_run_that_never_spoke_does_not_make_the_stream_forget() -> None:
    """The effects of an aborted run told what was untold before its turn had begun on the stream: with nothing to say
    where the turn stood, the stream forgot which calls had ended, and told them again."""
    world = World([calls("free", "gated"), "done"])
    run = (await world.claim(SOLO, message="go")).run.run_id
    await world.model(SOLO, run, 1)
    await world.tool(SOLO, run, 1, "call_0")
    await world.tool(SOLO, run, 1, "call_1")
    await world.model(SOLO, run, 2)
    await finish_run(world.engine, SOLO, "s", run, world.delivery())
    await answer(world.engine, SOLO, "s", Confirmation("call_1"), world.delivery())  # its claimer dies here
    await abort(world.engine, SOLO, "s", None, world.delivery())
    last = await world.claim(SOLO, message="go on")
    stream = await world.stream(last.run.run_id)
    announce_claim(stream, last)
    await stream.close()
    assert sorted(await world.tool_ends()) == ["call_0", "call_1"]


async def test_a_session_without_a_lease_does_not_lapse() -> None:
    """Deliveries with deadlines execute it: no process may take it over, fail it, or delete it while it runs."""
    world = World(["hello"])
    await world.claim(SOLO, message="go")
    world.clock.time += 1000
    with pytest.raises(AgentAlreadyRunningError):
        await world.claim(SOLO, "takeover", delivery=world.worker())
    assert not await fail_lapsed(world.engine, SOLO, "s", world.worker())
    with pytest.raises(AgentAlreadyRunningError):
        await delete_session(world.engine, "s")
    assert (await world.session()).status == "running"


async def test_a_renewed_lease_keeps_its_session_from_being_deleted() -> None:
    world = World(["hello"])
    await world.claim(SOLO, message="go", delivery=world.worker())
    world.clock.time += 20

    async def heartbeat() -> None:
        update = Update(session_key("s"), set={"lease_expires": world.clock.time + 15})
        await world.store.transact("heartbeat", [update])

    world.store.before["begin_delete"] = heartbeat
    with pytest.raises(AgentAlreadyRunningError):
        await delete_session(world.engine, "s")


@pytest.mark.parametrize("transaction", ["draw", "claim_step"])
async def test_a_block_drawn_for_a_refused_claim_returns(transaction: str) -> None:
    """budget_exact: the run was aborted, its effects included, right before the draw or right after it."""
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
    assert await world.remaining() == 1000 - 10  # what was set aside for the dead call is assumed spent: two attempts'


async def test_a_draw_that_finds_a_new_budget_is_completed() -> None:
    """Budget `b` was made between the first try of draw (run, 1) and its repeat."""
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


async def test_a_child_that_was_taken_over_has_not_failed() -> None:
    """The run of its dead worker is failed, but the child goes on: its parent is told once, by the run that ends it."""
    world = World({"boss": [{"tool_calls": [kid("call_0")]}], "helper": [calls("gated")]})
    run = (await world.claim(BOSS, message="go", delivery=world.worker())).run.run_id
    await world.model(BOSS, run, 1)
    await world.tool(BOSS, run, 1, "call_0")
    view = await view_step(world.engine, "s", run, 1)
    assert view is not None
    request, ref = view.rows.answer.tool_calls[0], view.rows.answer.children["call_0"]
    started = await start_child(world.engine, BOSS, view, request, ref, world.worker())
    assert isinstance(started, Claimed)
    world.clock.time += 20
    taken = await claim(world.engine, HELPER, ref.session_id, ClaimInput("takeover"), world.worker())
    assert taken.ended == started.run.run_id
    await finish_run(world.engine, HELPER, ref.session_id, taken.ended, world.worker())
    again = await view_step(world.engine, "s", run, 1)
    assert again is not None and again.rows.calls[0] is not None and again.rows.calls[0].state == "claimed"


async def test_an_answer_finds_the_call_that_waits_although_an_ancestor_has_one_of_that_id() -> None:
    """Call ids are unique in their session only."""
    free_and_kid = {"tool_calls": [{"id": "call_0", "name": "free", "arguments": {}}, kid("call_1")]}
    world = World({"boss": [free_and_kid], "helper": [calls("gated")]})
    run = (await world.claim(BOSS, message="go", delivery=world.worker())).run.run_id
    await world.model(BOSS, run, 1)
    for call_id in ("call_0", "call_1"):
        await world.tool(BOSS, run, 1, call_id)
    view = await view_step(world.engine, "s", run, 1)
    assert view is not None
    ref = view.rows.answer.children["call_1"]
    started = await start_child(world.engine, BOSS, view, view.rows.answer.tool_calls[1], ref, world.worker())
    assert isinstance(started, Claimed)
    await run_loop(world.engine, HELPER, started, world.worker())
    answered = await answer(world.engine, BOSS, "s", Confirmation("call_0"), world.worker())
    assert answered.session_id == ref.session_id


async def test_a_claim_lasts_as_long_as_its_tool_may_take() -> None:
    """Every try and the waits between them, and some time to get started; after that the holder does not start it."""

    @tool(retries=2, timeout_s=10)
    async def tries(ctx: ToolContext) -> str:
        """Tries three times."""
        return "done"

    assert longest(tries) == 3 * 10 + 0.5 + 1
    delivery = Delivery("lambda", deadline=1000)
    row = CallRow(call_id="c", tool_name="tries", step=1, state="asked")
    taken = claimed(row, tries, delivery, "run", now=100, margin_s=5)
    assert taken.deadline == 100 + 31.5 + 5
    assert may_start(taken, tries, delivery, now=105)
    assert not may_start(taken, tries, delivery, now=106)
    at_the_end = claimed(row, tries, delivery, "run", now=990, margin_s=5)
    assert at_the_end.deadline == 1000 and may_start(at_the_end, tries, delivery, now=999)


async def test_a_step_that_only_missed_its_output_keeps_the_lease() -> None:
    """Heartbeats moved the lease while the model spoke: the commit must not move it back."""
    world = World({"helper": ["no output", "no output"]})
    run = (await world.claim(HELPER, message="go", delivery=world.worker())).run.run_id
    worker = world.worker()

    async def time_passes() -> None:
        world.clock.time += 100

    world.store.before["append_segment"] = time_passes
    await world.model(HELPER, run, 1, worker)
    session = await world.session()
    assert session.status == "running" and session.lease_expires > world.clock.time


async def test_a_session_is_not_made_over_what_a_dead_copy_left() -> None:
    """Leftover results would pass for those of the new session's first calls."""
    world = World([calls("free"), "done", calls("free"), "done"])
    run = (await world.claim(SOLO, message="go")).run.run_id
    await world.model(SOLO, run, 1)
    await world.tool(SOLO, run, 1, "call_0")
    await world.model(SOLO, run, 2)

    async def dies() -> None:
        raise Death

    world.store.before["finish_copy"] = dies
    with pytest.raises(Death):
        await clone_session(world.engine, "s", "copy")
    with pytest.raises(SessionExistsError):
        await claim(world.engine, SOLO, "copy", ClaimInput("execute", "hello"), world.delivery())
    world.clock.time += 1000
    await claim(world.engine, SOLO, "copy", ClaimInput("execute", "hello"), world.delivery())
    rows = await world.store.query("sessions", "copy", start="m#", end="m$")
    assert [row.value["kind"] for row in rows] == ["user"]


async def test_an_approved_call_that_is_given_back_stays_approved() -> None:
    """first_answer_wins: the worker claimed it, was told to stop before it started it, and gave the claim back."""
    world = World([calls("gated"), "done"])
    worker = world.worker()
    run = (await world.claim(SOLO, message="go", delivery=worker)).run.run_id
    await world.model(SOLO, run, 1, worker)
    await answer(world.engine, SOLO, "s", Confirmation("call_0"), worker)
    late = replace(worker, lease=Lease(world.clock.time - 1))
    with pytest.raises(WorkInProgressError):
        await world.tool(SOLO, run, 1, "call_0", late)
    view = await view_step(world.engine, "s", run, 1)
    assert view is not None
    stop = StopRow(run_id=run, stop="interrupt")
    stream = await world.stream(run)
    told = await call_tool(world.engine, SOLO, replace(view, stop=stop), "call_0", late, stream, StopWatch())
    again = await view_step(world.engine, "s", run, 1)
    assert again is not None and again.rows.calls[0] is not None
    assert (told, again.rows.calls[0].state) == ("skipped", "approved")
