"""Usage: every billed call is in one row, and every run is counted once, whatever dies or races."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.delivery_stage import Stage
from tests.support_measures import Heard, says, used
from tests.support_run import Gate, Text, World, a_tool, agent, call, calls, gated, play, result_of

from helix import LLMConfig, MemoryStateStore, create_sub_agent_tool
from helix.core.delivery import Delivery
from helix.core.errors import StoreError
from helix.core.row_keys import run_sort
from helix.core.usage import Usage
from helix.engine.history import row_key
from helix.engine.runs.ends import abort, finish_run
from helix.fleet.budgets import BudgetManager
from helix.ports.state_store import Delete, Key, Operation, Put, StateStore, Update
from helix.services.session_calls import ModelCall, session_calls
from helix.services.usage_counters import UsageCount, agent_scope, read_counts, read_scopes, read_totals, tenant_scope
from helix.testing.crash import Crash, CrashPoints


async def counted(store: StateStore, scope: str) -> dict[tuple[str, str], UsageCount]:
    """Return the scope's counts by (model, operation). They are of one hour, or of two if the test ran into the next."""
    found: dict[tuple[str, str], UsageCount] = {}
    for row in await read_counts(store, scope):
        assert (row.model, row.operation) not in found, "the test ran over the end of an hour"
        found[row.model, row.operation] = row
    totals = {(row.model, row.operation): replace(row, hour="") for row in await read_totals(store, scope)}
    assert totals == {key: replace(row, hour="") for key, row in found.items()}
    return found


def numbers(row: UsageCount) -> tuple[int, int, int, int, int]:
    return row.input, row.output, row.micros, row.calls, row.runs


def brief(made: ModelCall) -> tuple[int, int, str, int]:
    return made.step, made.attempt, made.outcome, made.usage.cost_micros


# --- roll-up ------------------------------------------------------------------------------------------------------------


async def test_a_run_is_counted_for_its_agent_and_its_tenant(world: World) -> None:
    who = agent("helper", tools=[a_tool("look", lambda _, __: "found")])
    script = [{**calls(call("look")), "usage": used(200, 20, 900).model_dump()}, says("Done.", used(300, 30, 1200))] * 2
    executor = world.executor(script)
    for _ in range(2):
        _, result, _ = await play(executor, who, user_id="ada")
        assert result.status == "completed"
    for scope in (agent_scope("helper"), tenant_scope("ada")):
        (row,) = (await counted(executor.store, scope)).values()
        assert (row.model, row.operation, row.agent) == ("scripted", "completion", "helper")
        assert numbers(row) == (1000, 100, 4200, 4, 2)
    assert await read_scopes(executor.store) == ["agent:helper", "tenant:ada"]


async def test_what_another_model_answered_is_counted_as_its(quick_world: World) -> None:
    who = agent("helper", tools=[a_tool("look", lambda _, __: "found")], llm_config=LLMConfig(model="dear"))
    first = {**calls(call("look")), "usage": used(200, 20, 900).model_dump(), "model": "dear"}
    executor = quick_world.executor([first, says("Done.", used(300, 30, 50), model="cheap")])
    handle, _result, _ = await play(executor, who)
    found = await counted(executor.store, agent_scope("helper"))
    assert numbers(found["dear", "completion"]) == (200, 20, 900, 1, 1)
    assert numbers(found["cheap", "completion"]) == (300, 30, 50, 1, 0)
    session = await executor.engine.history.existing(handle.session_id)
    assert session.run_parts == {"cheap": used(300, 30, 50)}, "a row names only models other than the agent's own"
    _, again, _ = await play(
        quick_world.executor([says("Done.", used(1, 1, 1), model="dear")]), who, session_id=handle.session_id
    )
    assert again.status == "completed"
    session = await executor.engine.history.existing(handle.session_id)
    assert not session.run_parts and "run_parts" not in session.dump()


async def test_a_sub_agent_is_counted_where_it_ran_and_not_again(quick_world: World) -> None:
    async def think(_: Any, context: Any) -> str:
        context.record_usage(used(7, 7, 7))
        return "thought"

    script = {
        "parent": [
            {**calls(call("subagent__child", text="do"), call("think")), "usage": used(10, 1, 5).model_dump()},
            says("All done.", used(10, 1, 5)),
        ],
        "child": [{"output": {"text": "done"}, "usage": used(70, 7, 35).model_dump()}],
    }
    tools = [create_sub_agent_tool(agent("child", output_schema=Text), Text), a_tool("think", think)]
    executor = quick_world.executor(script)
    handle, result, _ = await play(executor, agent("parent", tools=tools), user_id="ada")
    assert result.status == "completed"
    session = await executor.engine.history.existing(handle.session_id)
    assert session.usage.cost_micros == 5 + 5 + 7 + 35, "the root is charged for all of it"

    parent = await counted(executor.store, agent_scope("parent"))
    assert numbers(parent["scripted", "completion"]) == (20, 2, 10, 2, 1)
    assert numbers(parent["-", "tool"]) == (7, 7, 7, 1, 0)
    child = await counted(executor.store, agent_scope("child"))
    assert numbers(child["scripted", "completion"]) == (70, 7, 35, 1, 1)
    tenant = await read_totals(executor.store, tenant_scope("ada"))
    assert sorted((row.agent, row.micros) for row in tenant) == [("child", 35), ("parent", 7), ("parent", 10)]

    own = await session_calls(executor.store, handle.session_id)
    tree = await session_calls(executor.store, handle.session_id, children=True)
    assert [(c.agent_type, c.usage.cost_micros) for c in own] == [("parent", 5), ("parent", 5)]
    assert [c.agent_type for c in tree] == ["parent", "parent", "child"]


async def test_finishers_at_once_count_and_tell_of_a_run_once(world: World) -> None:
    executor = world.executor([says("Done.", used())])
    handle, _, _ = await play(executor, agent("helper"))
    key = await _reopen(executor.store, handle.session_id, handle.run_id)
    before = await counted(executor.store, agent_scope("helper"))
    heard = executor.engine.metrics = Heard()
    finishes = [
        finish_run(executor.engine, agent("helper"), handle.session_id, handle.run_id, Delivery("d", 1e12))
        for _ in range(8)
    ]
    await asyncio.gather(*finishes)
    assert (await executor.store.get([key]))[0]["effects"] == "done"  # type: ignore[index]
    after = await counted(executor.store, agent_scope("helper"))
    assert [numbers(row) for row in before.values()] == [(100, 10, 500, 1, 1)]
    assert [numbers(row) for row in after.values()] == [(200, 20, 1000, 2, 2)]
    assert heard.total("RunsCompleted") == 1, "one of them reports the end"


async def _reopen(store: StateStore, session_id: str, run_id: str) -> Any:
    """Reopen the run's effects, so that they are applied again."""
    key = row_key(session_id, run_sort(run_id))
    (value,) = await store.get([key])
    assert value is not None
    del value["effects"]
    await store.transact("reopen", [Put(key, value)])
    return key


AT_THE_COUNTING = ["effects_done:before", "effects_done:after"]


@pytest.mark.parametrize("place", AT_THE_COUNTING)
async def test_a_crash_at_the_counting_loses_and_doubles_nothing(place: str) -> None:
    who = agent("helper")
    stage = Stage([says("Done.", used())], who)
    last = await stage.follow(await stage.begin(who))
    points = CrashPoints(at=(f"transact:{place}", 0))
    engine = replace(stage.engine, store=points.store(stage.store))
    with pytest.raises(Crash):
        await finish_run(engine, who, last["session_id"], last["run_id"], Delivery("d", 1e12))
    for _ in range(2):
        await stage.deliver("finish_run", last)
    assert (await stage.run(last)).effects == "done"
    (row,) = (await counted(stage.store, agent_scope("helper"))).values()
    assert numbers(row) == (100, 10, 500, 1, 1)


@pytest.mark.parametrize("written_out", [{"effects": "open"}, {"late_calls": 0}, {"effects": "open", "late_calls": 0}])
async def test_a_default_that_is_written_out_is_the_default(written_out: dict[str, Any]) -> None:
    """Rows usually leave defaults out. A row that has them written out is closed and counted as any other, once."""
    who = agent("helper")
    stage = Stage([says("Done.", used())], who, store=Patience())
    last = await stage.follow(await stage.begin(who))
    await _write_out(stage.store, last["session_id"], last["run_id"], written_out)
    for _ in range(2):
        await stage.deliver("finish_run", last)
    assert (await stage.run(last)).effects == "done"
    (row,) = (await counted(stage.store, agent_scope("helper"))).values()
    assert numbers(row) == (100, 10, 500, 1, 1)


async def _write_out(store: StateStore, session_id: str, run_id: str, fields: dict[str, Any]) -> None:
    key = row_key(session_id, run_sort(run_id))
    assert not fields.keys() & (await store.get([key]))[0].keys()  # type: ignore[union-attr]
    await store.transact("write_out", [Update(key, set=fields)])


class Patience(MemoryStateStore):
    """A store that limits the number of requests. Without real waiting, no timeout would end an endless loop. Something may
    happen before a transaction of a name, once."""

    def __init__(self) -> None:
        super().__init__()
        self.tries: Counter[str] = Counter()
        self.before: dict[str, Callable[[], Awaitable[Any]]] = {}

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        if (first := self.before.pop(name, None)) is not None:
            await first()
        self.tries[name] += 1
        assert self.tries[name] <= 20, f"{name} is asked again and again"
        await super().transact(name, operations)


class LostAnswers:
    """A store that writes the named transactions but loses their answers, `times` times."""

    def __init__(self, inner: StateStore, name: str, times: int = 1) -> None:
        self._inner, self._name, self.left = inner, name, times

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)

    async def transact(self, name: str, operations: Any) -> None:
        await self._inner.transact(name, operations)
        if name == self._name and self.left:
            self.left -= 1
            raise StoreError("no answer")


async def test_a_write_whose_answer_was_lost_counts_once() -> None:
    who = agent("helper")
    stage = Stage([says("Done.", used())], who)
    last = await stage.follow(await stage.begin(who))
    lossy = LostAnswers(stage.store, "effects_done")
    engine = replace(stage.engine, store=lossy)
    await finish_run(engine, who, last["session_id"], last["run_id"], Delivery("d", 1e12))
    assert not lossy.left and (await stage.run(last)).effects == "done"
    (row,) = (await counted(stage.store, agent_scope("helper"))).values()
    assert numbers(row) == (100, 10, 500, 1, 1)


# --- calls without an answer --------------------------------------------------------------------------------------------


async def test_a_failed_call_has_a_row_and_its_run_is_counted(quick_world: World) -> None:
    failing = {"error": "broken", "code": "server_error", "usage": used(90, 0, 45).model_dump(), "model": "other"}
    executor = quick_world.executor([failing, says("Done.", used())])
    who = agent("helper")
    handle, result, _ = await play(executor, who)
    assert result.status == "failed"
    (row,) = await session_calls(executor.store, handle.session_id)
    assert brief(row) == (1, 1, "failed", 45) and (row.model, row.error) == ("other", "server_error")
    found = await counted(executor.store, agent_scope("helper"))
    assert found["other", "completion"].micros == 45 and found["scripted", "completion"].failed == 1
    again = await executor.retry(who, handle.session_id)
    assert (await result_of(again)).status == "completed"
    told = await session_calls(executor.store, handle.session_id)
    assert [(c.turn, *brief(c)) for c in told] == [(1, 1, 1, "failed", 45), (2, 1, 1, "answered", 500)]


async def test_a_call_that_a_stop_ended_has_a_row(quick_world: World) -> None:
    gate = Gate()
    executor = quick_world.executor([gated(gate, "late")])
    handle = await executor.execute(agent("helper"), "go")
    await gate.reached()
    await handle.interrupt("enough")
    assert (await result_of(handle)).status == "interrupted"
    (row,) = await session_calls(executor.store, handle.session_id)
    assert brief(row) == (1, 1, "cancelled", 0) and row.model == "scripted"


async def test_a_call_whose_worker_died_has_a_row_and_the_next_attempt_its_own() -> None:
    who = agent("helper")
    gate = Gate()
    stage = Stage([gated(gate, "never"), says("Done.", used())], who)
    event = await stage.begin(who)
    first = asyncio.create_task(stage.deliver("call_model", event, left_s=30))
    await gate.reached()
    first.cancel()
    await asyncio.wait({first})
    stage.clock.ahead_s = 60
    last = await stage.follow(event)
    await stage.deliver("finish_run", last)
    told = await session_calls(stage.store, event["session_id"])
    assert [brief(c) for c in told] == [(1, 1, "dead", 0), (1, 2, "answered", 500)]
    (row,) = (await counted(stage.store, agent_scope("helper"))).values()
    assert numbers(row) == (100, 10, 500, 1, 1)


@pytest.mark.parametrize(
    ("finished", "in_words"),
    [("before", False), ("meanwhile", False), ("meanwhile", True), ("after", False), ("after", True)],
)
async def test_an_answer_that_comes_too_late_is_counted_all_the_same(finished: str, in_words: bool) -> None:
    """The run is aborted while the model thinks. The answer is discarded, but it was billed. With `in_words`, the run's row
    writes out that its effects are open, which is the default."""
    who = agent("helper")
    gate = Gate()
    store = Patience()
    await BudgetManager(store).set_budget(10, "total", "helper", unit="usd")  # so that the call has a reservation
    late = [gated(gate, says("late", used(60, 6, 300)))]
    stage = Stage(late, who, store=store, stop_poll_s=1e6)  # this delivery does not see the stop
    event = await stage.begin(who)
    thinking = asyncio.create_task(stage.deliver("call_model", event))
    await gate.reached()
    if finished == "before":
        await abort(stage.engine, who, event["session_id"], "no", Delivery("a", 1e12))
    else:
        points = CrashPoints(at=("transact:effects_done:before", 0))
        engine = replace(stage.engine, store=points.store(stage.store))
        with pytest.raises(Crash):
            await abort(engine, who, event["session_id"], "no", Delivery("a", 1e12))
        if in_words:
            await _write_out(store, event["session_id"], event["run_id"], {"effects": "open"})
    if finished == "meanwhile":
        store.before["late_usage"] = lambda: stage.deliver("finish_run", event)
    gate.open()
    last = await thinking
    assert last["next"] == "finish"
    await stage.deliver("finish_run", last)
    (row,) = await session_calls(stage.store, event["session_id"])
    assert brief(row) == (1, 1, "lost", 300) and (row.assumed_micros, row.assumed_tokens) == (0, 0)
    (total,) = (await counted(stage.store, agent_scope("helper"))).values()
    assert numbers(total) == (60, 6, 300, 1, 1) and (total.assumed_micros, total.assumed_tokens) == (0, 0)
    assert total.failed == 0, "an abort is not a failure"


async def test_a_deploy_in_mid_run_parts_its_usage_by_model() -> None:
    look = a_tool("look", lambda _, __: "found")
    old = agent("helper", tools=[look], llm_config=LLMConfig(model="old"))
    new = agent("helper", tools=[look], llm_config=LLMConfig(model="new"))
    first = {**calls(call("look")), "usage": used(200, 20, 900).model_dump(), "model": "old"}
    stage = Stage([first, says("Done.", used(300, 30, 50), model="new")], old)
    event = await stage.begin(old)
    told = await stage.deliver("call_model", event)
    await stage.deliver("call_tool", told)
    stage.agents.know(new)
    last = await stage.follow({**told, "step": 2})
    assert [step for step, _ in (await stage.run(last)).editions] == [2]
    await stage.deliver("finish_run", last)
    found = await counted(stage.store, agent_scope("helper"))
    assert numbers(found["old", "completion"]) == (200, 20, 900, 1, 1)
    assert numbers(found["new", "completion"]) == (300, 30, 50, 1, 0)


async def test_a_copy_lists_only_what_it_bought_itself(quick_world: World) -> None:
    who = agent("helper")
    executor = quick_world.executor([says("One.", used()), says("Two.", used(1, 1, 1))])
    handle, _, _ = await play(executor, who)
    copied = await executor.branch(handle.session_id)
    assert await session_calls(executor.store, copied.session_id) == []
    await play(executor, who, session_id=copied.session_id)
    assert [brief(c) for c in await session_calls(executor.store, copied.session_id)] == [(2, 1, "answered", 1)]
    assert len(await session_calls(executor.store, handle.session_id)) == 1
    assert await session_calls(executor.store, "nobody") == []


async def test_a_session_that_is_deleted_in_mid_run_was_used_all_the_same(file_world: World) -> None:
    """Its worker died before the run's end, so no other process will count it."""
    gate = Gate()
    who = agent("helper", tools=[a_tool("look", lambda _, __: "found")])
    dying = file_world.executor([{**calls(call("look")), "usage": used().model_dump()}, gated(gate, "never")])
    handle = await dying.execute(who, "go")
    await gate.reached()
    await dying.close()
    executor = file_world.executor()
    assert await executor.delete(handle.session_id)
    (row,) = (await counted(executor.store, agent_scope("helper"))).values()
    assert numbers(row) == (100, 10, 500, 1, 1)
    assert await session_calls(executor.store, handle.session_id) == []


async def test_a_counter_that_went_away_is_made_again(quick_world: World) -> None:
    executor = quick_world.executor([says("Done.", used())] * 2)
    await play(executor, agent("helper"))
    rows = await executor.store.query("control", "usage#agent:helper")
    await executor.store.transact("age", [Delete(row.key) for row in rows])
    await play(executor, agent("helper"))
    (row,) = (await counted(executor.store, agent_scope("helper"))).values()
    assert numbers(row) == (100, 10, 500, 1, 1)


async def test_unpriced_calls_are_told(quick_world: World) -> None:
    usage = Usage(prompt_tokens=5, completion_tokens=5, calls=1, priced=False)
    executor = quick_world.executor([says("Done.", usage)])
    await play(executor, agent("helper"))
    (row,) = (await counted(executor.store, agent_scope("helper"))).values()
    assert (row.unpriced, row.micros, row.tokens) == (1, 0, 10)


async def test_whoever_asks_for_the_agents_reads_no_tenant() -> None:
    """There are as many tenants as users, and the deployed `govern` asks each minute."""
    read: list[str] = []

    class Listening(MemoryStateStore):
        async def query(self, *where: Any, **options: Any) -> list[Any]:
            rows = await super().query(*where, **options)
            read.extend(row.key.sort for row in rows)
            return rows

    store = Listening()
    scopes = [agent_scope("a"), agent_scope("~"), tenant_scope("ada"), tenant_scope("bob")]
    await store.transact("count", [Put(Key("control", "usage", scope), {"scope": scope}) for scope in scopes])
    assert await read_scopes(store, "agent:") == read == scopes[:2]
    assert await read_scopes(store) == scopes
