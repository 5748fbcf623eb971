"""Time travel: a session continues from any of its own checkpoints, and from no other session's."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support_resume import Log, interrupted_in_model, writer
from tests.support_run import (
    Gate,
    World,
    a_tool,
    agent,
    call,
    calls,
    chunks_of,
    gated,
    history,
    of_type,
    play,
    result_of,
    told,
    types,
)

from helix import Agent, Confirmation, LocalExecutor, ModelError
from helix.core.errors import CallNotPendingError, CheckpointNotFoundError, InvalidInputError


async def three_turns(executor: LocalExecutor, who: Agent[Any, Any]) -> tuple[str, list[str]]:
    """Play a session of three turns. Return the checkpoint at the end of each."""
    points = []
    session_id = "ses_travel"
    for turn in range(1, 4):
        handle, result, _ = await play(executor, who, f"turn {turn}", session_id=session_id)
        assert result.status == "completed"
        points.append((await handle.get_state()).checkpoint_id)
    return session_id, points


def turn_script(*names: str) -> list[Any]:
    return [item for name in names for item in (calls(call("write", text=name)), f"said {name}")]


async def test_from_checkpoint_of_a_completed_session(world: World) -> None:
    who = agent(tools=[writer()], state_schema=Log)
    executor = world.executor([*turn_script("one", "two", "three"), *turn_script("other")])
    session_id, points = await three_turns(executor, who)
    before = {point: told(await executor.sessions.get_checkpoint_messages(session_id, point)) for point in points}
    ids = [m.id for m in await history(executor, session_id) if m.role != "system"]

    handle = await executor.resume(who, session_id, checkpoint_id=points[0], mode="from_checkpoint", message="instead")
    chunks = await chunks_of(handle)
    assert (await result_of(handle)).output == "said other"
    assert types(chunks)[:2] == ["run_resumed", "stream_resync"]
    assert of_type(chunks, "stream_resync")[0].checkpoint_id
    lines = told(await history(executor, session_id))
    assert lines[:4] == before[points[0]] and lines[4] == "user: instead" and len(lines) == 8
    after = [m.id for m in await history(executor, session_id) if m.role != "system"]
    assert after[:4] == ids[:4] and not set(after[4:]) & set(ids)  # a message keeps its id, which no other gets
    conversation = await executor.sessions.load_conversation_messages(session_id)
    assert [m.id for m in conversation if m.role != "system"] == after
    state = await handle.get_state()
    assert state.custom_state == {"lines": ["one", "other"]} and state.step_count == 4 and state.turn == 4
    for point in points:  # old checkpoints keep their messages
        assert told(await executor.sessions.get_checkpoint_messages(session_id, point)) == before[point]
    assert (await executor.sessions.get_checkpoint(session_id, points[2])).state == {"lines": ["one", "two", "three"]}
    runs = (await executor.sessions.list_runs(session_id)).runs
    assert [run.status for run in runs] == ["completed"] * 4


async def test_forward_again_to_a_checkpoint_of_an_older_lineage(world: World) -> None:
    who = agent(tools=[writer()], state_schema=Log)
    executor = world.executor([*turn_script("one", "two", "three"), *turn_script("other"), *turn_script("four")])
    session_id, points = await three_turns(executor, who)
    await result_of(await executor.resume(who, session_id, checkpoint_id=points[0], message="instead"))
    handle = await executor.resume(who, session_id, checkpoint_id=points[2], message="back")
    assert (await result_of(handle)).output == "said four"
    assert (await handle.get_state()).custom_state == {"lines": ["one", "two", "three", "four"]}
    lines = told(await history(executor, session_id))
    assert [line for line in lines if line.startswith("user")] == [
        "user: turn 1",
        "user: turn 2",
        "user: turn 3",
        "user: back",
    ]


async def test_from_a_checkpoint_in_mid_run(world: World) -> None:
    who = agent(tools=[writer()], state_schema=Log)
    executor = world.executor([*turn_script("one"), "said otherwise"])
    handle, _, chunks = await play(executor, who)
    points = of_type(chunks, "checkpoint_created")
    assert [(p.step_count, p.message_count) for p in points] == [(0, 1), (1, 3), (2, 4)]
    again = await handle.resume(mode="from_checkpoint", checkpoint_id=points[1].checkpoint_id)
    assert (await result_of(again)).output == "said otherwise"
    assert told(await history(executor, handle.session_id))[-2:] == ["tool: wrote one", "assistant: said otherwise"]


async def test_from_checkpoint_of_failed_interrupted_and_paused(world: World) -> None:
    gate = Gate()
    who = agent(tools=[writer(), a_tool("ask", "client")], state_schema=Log)
    executor = world.executor(
        [
            "one",
            ModelError("down"),
            "after failure",
            gated(gate, "x"),
            "after interrupt",
            calls(call("ask")),
            "after pause",
        ]
    )
    handle, _, _ = await play(executor, who)
    point = (await handle.get_state()).checkpoint_id
    sid = handle.session_id

    async def back(expected: str) -> None:
        again = await executor.resume(who, sid, checkpoint_id=point, message="again")
        assert (await result_of(again)).output == expected
        assert told(await history(executor, sid)) == [
            "user: go",
            "assistant: one",
            "user: again",
            f"assistant: {expected}",
        ]

    _, result, _ = await play(executor, who, "fails", session_id=sid)
    assert result.status == "failed"
    await back("after failure")
    await interrupted_in_model(executor, who, gate, session_id=sid)
    await back("after interrupt")
    _, result, _ = await play(executor, who, "asks", session_id=sid)
    assert result.status == "paused"
    await back("after pause")
    with pytest.raises(CallNotPendingError):
        await executor.answer(who, sid, Confirmation("call_0"))


async def test_a_branch_of_a_paused_session_is_whole_steps_and_leaves_the_question(world: World) -> None:
    """A question belongs to the session that asked it. If it were approved in both, its tool would run twice."""
    ran: list[str] = []
    pay = a_tool("pay", lambda given, ctx: ran.append("paid"), require_approval=True)
    who = agent(tools=[pay])
    executor = world.executor([calls(call("pay")), "instead", "done"])
    handle, result, _ = await play(executor, who)
    assert result.status == "paused"
    paused = await handle.get_state()
    copy = await executor.branch(handle.session_id)
    assert (copy.status, copy.pending, copy.message_count) == ("completed", [], 1)
    assert copy.forked_from == {"session_id": handle.session_id, "checkpoint_id": paused.checkpoint_id}
    _, result, _ = await play(executor, who, "what else?", session_id=copy.session_id)
    assert result.text == "instead" and ran == []
    assert (await handle.get_state()).pending == paused.pending
    again = await executor.resume(who, handle.session_id, confirmation=Confirmation("call_0"))
    assert (await result_of(again)).text == "done" and ran == ["paid"]


async def test_checkpoints_of_others_are_refused(world: World) -> None:
    executor = world.executor(["a", "b"])
    who = agent()
    one, _, _ = await play(executor, who, session_id="ses_a")
    two, _, _ = await play(executor, who, session_id="ses_a-s1")
    foreign = (await two.get_state()).checkpoint_id
    for wrong in (foreign, "nonsense", "", "cpv1-ses_a-s1-t5-000001", "cpv1-ses_a-s1-t5-zzzzzz"):
        with pytest.raises(CheckpointNotFoundError):
            await executor.resume(who, "ses_a", mode="from_checkpoint", checkpoint_id=wrong)
        with pytest.raises(CheckpointNotFoundError):
            await executor.sessions.get_checkpoint("ses_a", wrong)
    with pytest.raises(InvalidInputError, match="checkpoint_id"):
        await executor.resume(who, "ses_a", mode="from_checkpoint")
    assert (await one.get_state()).status == "completed"
