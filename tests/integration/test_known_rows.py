"""A worker does not read again what it has just read or written. If other workers changed it meanwhile, their change
counts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from pydantic import BaseModel
from tests.support_run import Gate, Text, World, a_tool, agent, call, calls, gated, result_of

from helix import Agent, LocalExecutor, MemoryStateStore, ModelError, ScriptedModel
from helix.core.errors import AgentAlreadyRunningError, StoreError
from helix.ports.state_store import Key, Operation, Row, Value
from helix.services.budget_rows import version_copy
from helix.services.segments import SegmentStreams
from helix.testing.contracts.streams import S, ended, everything, started, text


class Answer(BaseModel):
    word: str


ECHO = a_tool("echo", lambda given, ctx: given.text, input_schema=Text)


class Counted(MemoryStateStore):
    """A process's store on the rows of another store, which records its reads."""

    def __init__(self, rows: MemoryStateStore | None = None) -> None:
        super().__init__()
        if rows is not None:
            self.__dict__ = dict(rows.__dict__)
        self.reads: list[list[str]] = []

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        if keys:
            self.reads.append([f"{key.table} {key.sort}" for key in keys])
        return await super().get(keys)

    async def query(self, table: Any, partition: str, **options: Any) -> list[Row]:
        self.reads.append([f"{table} {options.get('start', '')}.."])
        return await super().query(table, partition, **options)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World("memory", tmp_path)
    yield made
    await made.close()


async def test_a_turn_in_a_new_process_reads_each_row_once(world: World) -> None:
    """There are four reads before the model call: the session with its runs, the end of the stream, later writes of other
    processes, and the messages. Then the counters are read. A process reads the count itself once, and not only a copy."""
    rows = Counted()
    who = agent(tools=[ECHO])
    first = LocalExecutor(rows, model=ScriptedModel([*(calls(call("echo", text="a")) for _ in range(5)), "done"]))
    session_id = (handle := await first.execute(who, "go")).session_id
    await result_of(handle)
    store, gate = Counted(rows), Gate()
    executor = LocalExecutor(store, model=ScriptedModel([gated(gate, "again")]))
    handle = await executor.execute(who, "more", session_id=session_id)
    await gate.reached()
    stop = f"sessions x#{handle.run_id}"
    count = ["control version", f"control {version_copy(crc32(session_id.encode())).sort}"]
    before = [["sessions r#.."], ["streams .."], [stop, *count], ["sessions m#000000#00000000.."]]
    assert store.reads == before
    gate.open()
    assert (await result_of(handle)).text == "again"
    later = [read for read in store.reads[4:] if read != [stop]]
    assert later == [["control total#scripted#completion", "control agent:helper"]]


async def test_a_prompt_of_the_state_takes_no_read_of_its_own(world: World) -> None:
    class Log(BaseModel):
        word: str = "calm"

    rows = Counted()
    who = agent(system_prompt=lambda state: f"Be {state.word}.", state_schema=Log)
    handle = await LocalExecutor(rows, model=ScriptedModel(["done"])).execute(
        who, {"message": "go", "state": {"word": "loud"}}
    )
    await result_of(handle)
    store, model = Counted(rows), ScriptedModel(["again"])
    handle = await LocalExecutor(store, model=model).execute(who, "more", session_id=handle.session_id)
    await result_of(handle)
    assert [len(read) for read in store.reads[:4]] == [1, 1, 4, 1]
    assert model.requests[0].messages[0].content == "Be loud."


ENDS: dict[str, tuple[Agent[Any, Any], list[Any]]] = {
    "text": (agent(), ["done"]),
    "text after a tool": (agent(tools=[ECHO]), [calls(call("echo", text="a"), content="so"), "done"]),
    "output": (agent(output_schema=Answer), [calls(call("finish_run", word="so"), content="thus")]),
    "output behind a tool": (
        agent(output_schema=Answer, tools=[ECHO]),
        [calls(call("echo", text="a"), call("finish_run", word="so"), content="thus")],
    ),
    "no more steps": (agent(tools=[ECHO], max_steps=1), [calls(call("echo", text="a"), content="so")]),
    "a failing model": (agent(), [ModelError("down")]),
    "a tool that asks": (
        agent(tools=[a_tool("send", lambda given, ctx: "sent", require_approval=True)]),
        [calls(call("send"))],
    ),
}


@pytest.mark.parametrize("name", list(ENDS))
async def test_the_result_of_this_process_is_what_the_rows_say(world: World, name: str) -> None:
    who, script = ENDS[name]
    executor, other = world.executor(script), world.executor()
    handle = await executor.execute(who, "go")
    here = await result_of(handle)
    there = await result_of(await other.get_handle(who, handle.session_id, handle.run_id))
    assert here == there
    run = await other.sessions.get_run(handle.session_id, handle.run_id)
    assert run.effects == "done"


@pytest.mark.parametrize("stop", ["abort", "interrupt"])
async def test_a_stop_behind_the_claim_comes_before_the_model(world: World, stop: str) -> None:
    """The run's first step uses the row that the claim wrote. Its own write then finds that another process has changed
    it."""
    model = ScriptedModel(["never"])
    executor, other = world.executor(model), world.executor()
    handle = await executor.execute(agent(), "go")
    if stop == "abort":
        await other.abort(agent(), handle.session_id)
    else:
        await other.interrupt(handle.session_id)
    found = await result_of(handle)
    assert found.status == ("failed" if stop == "abort" else "interrupted") and model.requests == []


async def test_a_claim_on_what_another_has_changed_meanwhile_is_refused() -> None:
    """Another process claims the session between this process's read and its claim."""
    rows, gate = Counted(), Gate()
    quick = LocalExecutor(rows, model=ScriptedModel(["one", gated(gate, "two")]))
    handle = await quick.execute(agent(), "go")
    await result_of(handle)

    class Slow(Counted):
        async def query(self, table: Any, partition: str, **options: Any) -> list[Row]:
            found = await super().query(table, partition, **options)
            if options.get("start") == "r#":
                await quick.execute(agent(), "mine", session_id=partition)
            return found

    model = ScriptedModel(["three"])
    with pytest.raises(AgentAlreadyRunningError):
        await LocalExecutor(Slow(rows), model=model).execute(agent(), "late", session_id=handle.session_id)
    gate.open()
    assert model.requests == []
    await result_of(await quick.get_handle(agent(), handle.session_id))


async def test_a_stream_goes_on_from_the_end_that_its_claim_saw() -> None:
    """It does not read the end again, unless the stream was deleted and started anew, or another process wrote to it."""
    store = Counted()
    log, other = SegmentStreams(store), SegmentStreams(store)
    await log.append(S, [started(), text(0, "a"), ended()])

    async def seen(by: SegmentStreams) -> tuple[int, float]:
        info = await by.info(S)
        assert info is not None
        return info.latest_sequence, info.updated_at

    end = await seen(log)
    store.reads.clear()
    await log.append(S, [started(2).model_copy(update={"seen": end}), text(0, "b", turn=2), ended(2)])
    assert store.reads == []
    await other.delete(S)
    await other.append(S, [started(), text(0, "new"), ended()])
    end = await seen(other)
    await log.append(S, [started(2).model_copy(update={"seen": end}), ended(2)])
    end = await seen(log)
    await other.append(S, [started(3), ended(3)])
    await log.append(S, [started(4).model_copy(update={"seen": end}), ended(4)])
    messages = await everything(other)
    assert [message.turn for message in messages if message.kind == "end"] == [1, 2, 3, 4]
    assert [message.sequence for message in messages] == list(range(1, len(messages) + 1))


async def test_an_end_that_may_be_another_workers_is_read() -> None:
    """The transaction that fails the run gets no answer, and meanwhile an abort fails the run. The result is that of the
    abort."""
    rows = Counted()
    other = LocalExecutor(rows, model=ScriptedModel([]))

    class Losing(Counted):
        async def transact(self, name: str, operations: Sequence[Operation]) -> None:
            if name == "end_failed" and (first := operations[0].key.partition) not in lost:
                lost.add(first)
                await other.abort(agent(), first)
                raise StoreError("no answer")
            await super().transact(name, operations)

    lost: set[str] = set()
    handle = await LocalExecutor(Losing(rows), model=ScriptedModel([ModelError("down")])).execute(agent(), "go")
    assert (await result_of(handle)).error_code == "aborted" and lost
