"""The closing of a wide step leaves nothing open and removes no results (docs/protocol.md#wide)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.integration.test_wide_steps import NARROW, Answer, numbered
from tests.support_run import Text, World, a_tool, agent, call, calls, history, play, result_of, results

from helix import create_sub_agent_tool
from helix.ports.state_store import Operation
from helix.runtime.handle import RunStoppedError


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
