"""What becomes of waiting messages with the session that holds them: files, copies, deletion, budgets, several senders."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_blob_deletion import blobs
from tests.support.command_line import CommandLine
from tests.support.sample_files import png
from tests.support_budgets import bounded_executor, manager, says, worker
from tests.support_run import (
    Gate,
    Text,
    World,
    a_tool,
    agent,
    call,
    calls,
    eventually,
    gated,
    history,
    result_of,
    told,
)

from helix import Confirmation, LocalExecutor, MemoryStateStore, ScriptedModel, create_sub_agent_tool
from helix.adapters.memory_blobs import MemoryBlobs
from helix.core.files import Content
from helix.core.periods import TokenPeriod
from helix.engine.engine import Settings

S = "ses"


async def users(executor: LocalExecutor, session_id: str = S) -> list[str]:
    return [
        line.removeprefix("user: ") for line in told(await history(executor, session_id)) if line.startswith("user")
    ]


def executor_with_files(script: Any, **settings: Any) -> tuple[LocalExecutor, MemoryStateStore]:
    store = MemoryStateStore()
    made = LocalExecutor(store, model=ScriptedModel(script), blobs=MemoryBlobs(), settings=Settings(**settings))
    return made, store


async def test_a_queued_message_keeps_its_files() -> None:
    gate = Gate()
    model = [gated(gate, "one"), "a picture", "copied"]
    executor, store = executor_with_files(model)
    async with executor:
        first = await executor.execute(agent(), "hello", session_id=S)
        await gate.reached()
        queued = await executor.execute(agent(), ["look", png()], session_id=S, when_running="queue")
        oops = await executor.execute(agent(), ["never", png(note=b"other")], session_id=S, when_running="queue")
        assert [len(m.files) for m in (await executor.sessions.get(S)).inbox] == [1, 1]
        assert await executor.withdraw(S, str(oops.queued_id)) == "withdrawn"
        gate.open()
        await result_of(first)
        assert (await result_of(queued)).text == "a picture"
        (message,) = [m for m in await history(executor, S) if m.role == "user" and m.queued_id]
        assert await executor.read_file(S, message.files[0]) == png()
        await executor.delete(S)
        assert await store.query("sessions", S) == []
        assert [(blob["state"], count) for blob, count in await blobs(store)] == [("marked", 0)] * 2


@pytest.mark.parametrize("end", ["delete", "expire"])
async def test_a_session_goes_with_the_messages_and_files_that_wait_in_it(end: str) -> None:
    gate = Gate()
    executor, store = executor_with_files([gated(gate, "never")], session_ttl_s=0.05)
    async with executor:
        handle = await executor.execute(agent(), "hello", session_id=S)
        await gate.reached()
        waiting = await executor.execute(agent(), ["look", png()], session_id=S, when_running="queue")
        await handle.interrupt(wait=True)
        gate.open()
        assert [m.id for m in (await executor.sessions.get(S)).inbox] == [waiting.queued_id]
        if end == "delete":
            assert await executor.delete(S)
        else:
            await asyncio.sleep(0.1)  # the session's time to live, which the store's clock measures
            assert await executor.expire() == 1
        assert await store.query("sessions", S) == []
        assert [count for _, count in await blobs(store)] in ([], [0])


async def stopped_with_waiting(db: Path) -> None:
    """Make a session of ann's that was stopped while a message waited in it."""
    gate = Gate()
    async with LocalExecutor(db, model=ScriptedModel([gated(gate, "never")])) as executor:
        handle = await executor.execute(agent(), "hello", session_id=S, user_id="ann")
        await gate.reached()
        content: Content = ["a secret that waits", png()]
        await executor.execute(agent(), content, session_id=S, user_id="ann", when_running="queue")
        await handle.interrupt(wait=True)
        gate.open()
        assert len((await executor.sessions.get(S)).inbox) == 1


def test_a_forgotten_user_leaves_no_waiting_message(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    asyncio.run(stopped_with_waiting(db))
    assert CommandLine(tmp_path)("forget", "--user", "ann", "--yes", "--db", str(db)).code == 0

    async def rows() -> Any:
        async with LocalExecutor(db, model=ScriptedModel([])) as executor:
            return await executor.store.query("sessions", S)

    assert asyncio.run(rows()) == []


def test_an_export_leaves_waiting_messages_behind_and_its_import_runs(tmp_path: Path) -> None:
    db, other, file = tmp_path / "a.db", tmp_path / "b.db", tmp_path / "ses.jsonl"
    asyncio.run(stopped_with_waiting(db))
    helix = CommandLine(tmp_path)
    assert helix("export", S, "--to", str(file), "--db", str(db)).code == 0
    assert '"sort": "i#' not in file.read_text()
    assert helix("import", str(file), "--db", str(other)).code == 0

    async def runs() -> None:
        async with LocalExecutor(other, model=ScriptedModel(["two"])) as executor:
            assert (await executor.sessions.get(S)).inbox == []
            last = await executor.execute(agent(), "again", session_id=S, user_id="ann", when_running="queue")
            assert ((await result_of(last)).text, last.queued_id) == ("two", None)
            assert await executor.delete(S)

    asyncio.run(runs())


async def test_a_branch_leaves_waiting_messages_behind_and_runs(world: World) -> None:
    gate = Gate()
    executor = world.executor(["zero", gated(gate, "one"), "two", "in the branch"])
    await result_of(await executor.execute(agent(), "0", session_id=S))
    handle = await executor.execute(agent(), "1", session_id=S)
    await gate.reached()
    queued = await executor.execute(agent(), "2", session_id=S, when_running="queue")
    copied = await executor.branch(S, session_id="copy")
    assert copied.inbox == []
    gate.open()
    await result_of(handle)
    assert (await result_of(queued)).text == "two"
    assert (await result_of(await executor.execute(agent(), "3", session_id="copy", when_running="queue"))).text
    assert "2" not in await users(executor, "copy") and await users(executor) == ["0", "1", "2"]


async def test_a_sub_agent_is_addressed_while_its_parent_waits_for_it(world: World) -> None:
    """The sub-agent waits for a person, so its parent is paused, and the message waits in the sub-agent's own session."""
    model = ScriptedModel(
        {
            "boss": [calls(call("subagent__helper", message="dig")), "done"],
            "helper": [calls(call("pay")), calls(call("__finish__", text="dug there"))],
        }
    )
    executor = world.executor(model)
    pay = a_tool("pay", lambda *_: "paid", require_approval=True)
    helper = agent("helper", tools=[pay], output_schema=Text)
    boss = agent("boss", tools=[create_sub_agent_tool(helper)])
    paused = await result_of(await executor.execute(boss, "go", session_id=S))
    assert paused.status == "paused"
    (child,) = await executor.sessions.list_sub_sessions(S)
    steered = await executor.execute(helper, "dig there", session_id=child.session_id, when_running="steer")
    assert [m.id for m in (await executor.sessions.get(child.session_id)).inbox] == [steered.queued_id]
    then = await executor.execute(boss, "and then", session_id=S, when_running="queue")
    (pending,) = (await executor.sessions.get(child.session_id)).pending
    await executor.resume(boss, S, confirmation=Confirmation(pending.call_id, True))

    async def over() -> bool:
        return (await executor.sessions.get(S)).turn >= 2 and not (await executor.sessions.get(S)).inbox

    await eventually(over)
    assert await users(executor, child.session_id) == ["dig", "dig there"]
    await result_of(then)
    assert await users(executor) == ["go", "and then"]


async def test_two_clients_at_once_deliver_each_message_once_and_in_their_order(world: World) -> None:
    gate, count = Gate(), 8
    first, second = [world.executor([gated(gate, "go")] + ["ok"] * (2 * count + 1)) for _ in range(2)]
    handle = await first.execute(agent(), "go", session_id=S)
    await gate.reached()

    async def send(executor: LocalExecutor, name: str) -> list[Any]:
        made = []
        for n in range(count):
            made.append(await executor.execute(agent(), f"{name}{n}", session_id=S, when_running="queue"))
        return made

    sent = await asyncio.gather(send(first, "a"), send(second, "b"))
    assert len((await first.sessions.get(S)).inbox) == 2 * count
    gate.open()
    await result_of(handle)
    for one in [*sent[0], *sent[1]]:
        assert (await result_of(one)).status == "completed"
    said = (await users(first))[1:]
    assert sorted(said) == sorted(f"{name}{n}" for name in "ab" for n in range(count))
    for name in "ab":
        assert [text for text in said if text.startswith(name)] == [f"{name}{n}" for n in range(count)]


async def test_messages_that_wait_when_the_budget_is_used_up_fail_one_by_one(quick_world: World) -> None:
    gate = Gate()
    executor = bounded_executor(quick_world, [gated(gate, says("one", 90)), says("more", 10)])
    await manager(executor).set_budget(150, TokenPeriod.TOTAL, session=S)
    handle = await executor.execute(worker(), "1", session_id=S)
    await gate.reached()
    queued = [await executor.execute(worker(), text, session_id=S, when_running="queue") for text in ("2", "3")]
    gate.open()
    assert (await result_of(handle)).status == "completed"
    assert [(await result_of(one)).error_code for one in queued] == ["budget_exceeded"] * 2
    assert (await executor.sessions.get(S)).inbox == []
    await manager(executor).set_budget(10_000, TokenPeriod.TOTAL, session=S)
    last = await executor.execute(worker(), "4", session_id=S, when_running="queue")
    assert (await result_of(last)).status == "completed" and (await users(executor))[-1] == "4"
    assert await executor.delete(S)


@pytest.mark.parametrize("mode", ["steer", "queue", "interrupt"])
@pytest.mark.parametrize("state", ["paused", "interrupted", "aborted", "running"])
@pytest.mark.parametrize("act", ["run", "stop", "delete"])
async def test_a_session_with_waiting_messages_can_be_run_stopped_and_deleted(
    quick_world: World, mode: Any, state: str, act: str
) -> None:
    gate = Gate()
    first: Any = calls(call("pay")) if state == "paused" else gated(gate, "late")
    executor = quick_world.executor([first, *["fine"] * 9])
    who = agent(tools=[a_tool("pay", lambda *_: "paid", require_approval=True)])
    handle = await executor.execute(who, "1", session_id=S)
    if state == "paused":
        await result_of(handle)
    else:
        await gate.reached()
    for text in ("2", "3"):
        await executor.execute(who, text, session_id=S, when_running=mode)
    if state == "interrupted":
        await handle.interrupt(wait=True)
    elif state == "aborted":
        await handle.abort("no")
    gate.open()

    async def rests() -> bool:
        return (await executor.sessions.get(S)).status != "running"

    if act == "run":
        last = await executor.execute(who, "last", session_id=S, when_running="interrupt")
        assert (await result_of(last)).status in ("completed", "interrupted")
    elif act == "stop":
        await executor.abort(who, S, "enough")
    await eventually(rests)
    said = await users(executor)
    assert len(said) == len(set(said)), "no message is delivered twice"
    assert await executor.delete(S)
    assert await executor.store.query("sessions", S) == []
