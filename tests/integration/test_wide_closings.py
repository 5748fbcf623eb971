"""The closing of a wide step leaves nothing open and removes no results (docs/protocol.md#wide)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.integration.test_wide_steps import MANY, NARROW, Answer, numbered
from tests.support.sample_files import png
from tests.support_run import Text, World, a_tool, agent, call, calls, history, play, result_of, results

from helix import Confirmation, create_sub_agent_tool
from helix.core.files import Content
from helix.core.messages import UserMessage
from helix.ports.state_store import Operation
from helix.runtime.handle import RunStoppedError
from helix.testing.invariants import check_session


class DiedError(Exception):
    """The process of a caller ends here."""


async def test_sub_agents_of_calls_that_a_dead_caller_closed_are_aborted(
    quick_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = agent("child", tools=[a_tool("ask", "client", input_schema=Text)], output_schema=Answer)
    asked = calls(*(call("subagent__child", message=str(i)) for i in range(6)))
    script = {"helper": [asked, "fine"], "child": [numbered("ask", 1)] * 6}
    executor = quick_world.executor(script, settings=NARROW)
    who = agent(tools=[create_sub_agent_tool(child)])
    handle, result, _ = await play(executor, who)
    assert result.status == "paused" and len(result.pending) == 6
    transact = executor.store.transact

    async def dies(name: str, operations: Sequence[Operation]) -> None:
        if name == "claim_execute":
            raise DiedError
        await transact(name, operations)

    with monkeypatch.context() as patched:
        patched.setattr(executor.store, "transact", dies)
        with pytest.raises(DiedError):
            await executor.execute(who, "forget it", session_id=handle.session_id)
    _, result, _ = await play(executor, who, "forget it", session_id=handle.session_id)
    assert result.output == "fine"
    subs = await executor.sessions.list_sub_sessions(handle.session_id)
    assert [sub.status for sub in subs] == ["failed"] * 6


async def test_a_repeated_request_closes_nothing(quick_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first delivery claimed the session and paused, after the second one had looked for the key."""
    executor = quick_world.executor([numbered("ask", 9), "fine"], settings=NARROW)
    who = agent(tools=[a_tool("ask", "client", input_schema=Text)])
    first = await executor.execute(who, "go", session_id="s", key="once")
    assert len((await result_of(first)).pending) == 9

    async def too_early(*_: Any) -> None:
        monkeypatch.undo()

    monkeypatch.setattr(executor, "_find_keyed_run", too_early)
    again = await executor.execute(who, "go", session_id="s", key="once")
    assert again.run_id == first.run_id
    assert len((await result_of(again)).pending) == 9


async def test_a_message_with_many_files_closes_many_calls(world: World) -> None:
    """A claim closes the calls in several transactions, however often it has to read the session again."""
    executor = world.executor([numbered("ask", MANY), "fine"])
    who = agent(tools=[a_tool("ask", "client", input_schema=Text)])
    handle, result, _ = await play(executor, who)
    assert len(result.pending) == MANY
    files = [png(4, 4, note=b"%d" % number) for number in range(50)]
    again = await executor.resume(who, handle.session_id, message=["Look", *files])
    assert (await result_of(again)).output == "fine"
    messages = await executor.sessions.load_conversation_messages(handle.session_id)
    assert [len(message.files) for message in messages if isinstance(message, UserMessage)] == [0, 50]
    await check_session(executor.store, executor.engine.streams, handle.session_id, at_rest=True)


async def test_sixty_calls_and_fifty_files(quick_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is not wide. If the caller dies after it has closed some calls, the others can still be answered."""
    executor = quick_world.executor([numbered("ask", 60), "fine"])
    who = agent(tools=[a_tool("ask", "client", input_schema=Text)])
    handle, _, _ = await play(executor, who)
    transact = executor.store.transact

    async def dies(name: str, operations: Sequence[Operation]) -> None:
        if name == "claim_with_message":
            raise DiedError
        await transact(name, operations)

    content: Content = ["Look", *(png(4, 4, note=b"%d" % number) for number in range(50))]
    with monkeypatch.context() as patched:
        patched.setattr(executor.store, "transact", dies)
        with pytest.raises(DiedError):
            await executor.resume(who, handle.session_id, message=content)
    await check_session(executor.store, executor.engine.streams, handle.session_id, at_rest=True)
    session = await executor.engine.history.existing(handle.session_id)
    assert session.status == "paused" and len(session.pending) == 30
    left = session.pending[0].call_id
    await executor.answer(who, handle.session_id, Confirmation(left, True, data={"text": "yes"}))
    again = await executor.resume(who, handle.session_id, message=content)
    assert (await result_of(again)).output == "fine"
    await check_session(executor.store, executor.engine.streams, handle.session_id, at_rest=True)


async def test_calls_that_were_refused_keep_their_results(quick_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker dies before it writes the rows of the calls that were refused together with the answer."""
    executor = quick_world.executor([calls(*(call("nothing") for _ in range(9))), "fine"], settings=NARROW)
    transact = executor.store.transact

    async def dies(name: str, operations: Sequence[Operation]) -> None:
        if name == "claim_calls":
            raise DiedError
        await transact(name, operations)

    with monkeypatch.context() as patched:
        patched.setattr(executor.store, "transact", dies)
        with pytest.raises(RunStoppedError):
            await play(executor, agent(), session_id="s")
    _, result, _ = await play(executor, agent(), "and now?", session_id="s")
    assert result.output == "fine"
    found = results(await history(executor, "s"))
    assert len(found) == 9 and all("there is no tool" in text for text in found)
