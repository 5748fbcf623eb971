"""A hundred concurrent writers finish although they conflict by DynamoDB's rules."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from tests.support.aws_resources import fresh, make_tables, moto, tables
from tests.support.conflicts import Conflicts, LoopClock, played
from tests.support.delivery_stage import Stage
from tests.support_run import a_tool, agent, call, calls

from helix import MemoryStateStore
from helix.adapters.aws.dynamodb import TRIES, DynamoDBStateStore
from helix.core.errors import StoreError
from helix.ports.state_store import Check, Key, Put, Update, When
from helix.services.segments import SegmentStreams
from helix.sessions.deletion import delete_session

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
MANY = 100


class World:
    """Tables with DynamoDB's rule of conflicts. Each call of `store` gives the store of one more process."""

    def __init__(self) -> None:
        self.client, self.prefix = boto3.client("dynamodb"), fresh()
        make_tables(self.client, self.prefix)
        self.clock, self.dice = LoopClock(), random.Random(11)
        self.conflicts = Conflicts(self.client, self.clock.now)

    def store(self, **options: Any) -> DynamoDBStateStore:
        given: dict[str, Any] = {"clock": self.clock, "jitter": self.dice.random, **options}
        return DynamoDBStateStore(self.client, tables(self.prefix), **given)


@pytest.fixture
def world() -> Iterator[World]:
    with moto():
        yield World()


def row(sort: str) -> Key:
    return Key("control", "p", sort)


def test_a_hundred_transactions_on_one_row_all_come_through(world: World) -> None:
    async def work() -> None:
        await world.store().transact("put", [Put(row("shared"), {"open": True})])

        async def write(place: int) -> None:
            check = Check(row("shared"), When(equal={"open": True}))
            await world.store().transact("write", [check, Put(row(f"own{place}"), {"n": place})])

        await asyncio.gather(*(write(place) for place in range(MANY)))
        assert len(await world.store().query("control", "p", start="own", end="own~")) == MANY

    played(work())
    assert world.conflicts.refused["TransactWriteItems"] >= MANY - 1


def test_a_single_write_waits_for_a_transaction(world: World) -> None:
    async def work() -> None:
        store = world.store()
        await store.transact("two", [Put(row("a"), {"n": 1}), Put(row("b"), {"n": 1})])
        await asyncio.gather(*(store.transact("one", [Update(row("a"), add={"n": 1})]) for _ in range(MANY)))
        assert await store.get([row("a")]) == [{"n": MANY + 1}]

    played(work())
    assert world.conflicts.refused["UpdateItem"] >= MANY


def test_pauses_are_any_part_of_twice_the_one_before(world: World) -> None:
    """Pauses follow full jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/."""
    slept: list[float] = []

    class Noted(LoopClock):
        async def sleep(self, seconds: float) -> None:
            slept.append(seconds)

    async def work() -> None:
        shares = iter([0.0, 1.0, 0.5, 0.25, *[1.0] * 7])
        both = [Put(row("a"), {}), Put(row("b"), {})]
        await world.store().transact("hold", both)
        with pytest.raises(StoreError, match="late"):
            await world.store(clock=Noted(), jitter=lambda: next(shares)).transact("late", both)

    played(work())
    assert slept == [0.0, 0.04, 0.04, 0.04, 0.32, 0.64, 1.0, 1.0, 1.0, 1.0, 1.0] and len(slept) == TRIES - 1


def test_a_sessions_rows_are_deleted_by_the_page(world: World) -> None:
    """Each page is deleted only while the session is hidden, so a slow deletion spares a session created since."""
    written: list[tuple[str, int]] = []

    def note(model: Any, params: Any, **_: Any) -> None:
        written.append((model.name, len(json.loads(params["body"]).get("TransactItems", [0]))))

    async def work() -> None:
        streams = SegmentStreams(world.store(), clock=world.clock, ttl_s=60.0)
        words = [calls(*(call("look") for _ in range(20))), "Done."]
        helper = agent("helper", tools=[a_tool("look", lambda arguments, context: "seen", inline=True)])
        stage = Stage(words, helper, store=world.store(), streams=streams, clock=world.clock, stop_poll_s=1.0)
        event = await stage.begin(helper)
        await stage.end(event)
        world.client.meta.events.register("before-call.dynamodb", note)
        assert await delete_session(stage.engine, event["session_id"])
        assert await world.store().query("sessions", event["session_id"]) == []

    played(work())
    sizes = [size for operation, size in written if operation == "TransactWriteItems"]
    assert sizes[0] == 2 and sizes[-1] == 4, "hide it, and end it with its rows of the index"
    assert sum(sizes[1:-1]) > 20 and len(sizes) < 10
    assert not any(operation == "DeleteItem" for operation, _ in written)


@pytest.mark.slow
def test_a_hundred_parallel_tools_finish(world: World) -> None:
    """Each tool runs in a process of its own, and each claim checks the session's row."""
    executed: list[str] = []

    def look(arguments: Any, context: Any) -> str:
        executed.append(context.tool_call_id)
        return "seen"

    async def work() -> None:
        streams = SegmentStreams(MemoryStateStore(), clock=world.clock)
        script = [calls(*(call("look") for _ in range(MANY))), "Done."]
        helper = agent("helper", tools=[a_tool("look", look)])

        def process(words: Any) -> Stage:
            return Stage(words, helper, store=world.store(), streams=streams, clock=world.clock, stop_poll_s=1.0)

        stage = process(script)
        event = await stage.begin(helper)
        told = await stage.deliver("call_model", event)
        place = {name: told[name] for name in ("session_id", "run_id", "part")}
        ones = [{**place, "call": one} for one in told["calls"]]
        answers = await asyncio.gather(*(process([]).deliver("call_tool", one) for one in ones))
        assert answers == [{"call": "done"}] * MANY
        await stage.end(told)
        assert await stage.results(event) == [("seen", True)] * MANY

    played(work())
    assert len(executed) == len(set(executed)) == MANY
    assert world.conflicts.refused["TransactWriteItems"] >= MANY - 1
