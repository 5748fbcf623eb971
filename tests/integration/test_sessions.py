"""Sessions over several turns: state, branches, clones, deletion, lists, recovery."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from tests.support_run import (
    Gate,
    Text,
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
)

from helix import Agent, LocalExecutor, ModelError, ScriptedModel, ToolContext, recover_conversation
from helix.core.errors import (
    CheckpointNotFoundError,
    InvalidInputError,
    RunNotFoundError,
    SessionExistsError,
    SessionNotFoundError,
)
from helix.core.messages import AssistantMessage


class Log(BaseModel):
    lines: list[str] = []
    mood: str = "calm"


def write(given: Text, ctx: ToolContext[Log]) -> str:
    ctx.update_state(lambda s: s.lines.append(given.text))
    return f"wrote {given.text}"


def scribe(**fields: Any) -> Agent[Any, Any]:
    return agent("scribe", tools=[a_tool("write", write, input_schema=Text)], state_schema=Log, **fields)


def turn(name: str) -> list[Any]:
    return [calls(call("write", text=name)), f"said {name}"]


async def session_of(executor: LocalExecutor, who: Agent[Any, Any], *names: str, sid: str = "ses_one") -> str:
    for name in names:
        _, result, _ = await play(executor, who, f"say {name}", session_id=sid)
        assert result.status == "completed"
    return sid


async def test_turns_share_history_and_state(world: World) -> None:
    model = ScriptedModel([*turn("a"), *turn("b"), "c"])
    executor = world.executor(model)
    who = scribe()
    sid = await session_of(executor, who, "a", "b")
    handle, _, chunks = await play(executor, who, {"message": "c", "state": {"mood": "keen"}}, session_id=sid)
    state = await handle.get_state()
    assert state.custom_state == {"lines": ["a", "b"], "mood": "keen"}  # merged over, not reset
    assert (state.turn, state.step_count, state.message_count) == (3, 5, 10)
    assert [m.role for m in model.requests[-1].messages] == [
        "system",
        *["user", "assistant", "tool", "assistant"] * 2,
        "user",
    ]
    assert of_type(chunks, "state_patch")[0].patches == [{"op": "replace", "path": "/mood", "value": "keen"}]
    runs = (await executor.sessions.list_runs(sid)).runs
    assert [(r.turn, r.steps, r.mode) for r in runs] == [(3, 1, "execute"), (2, 2, "execute"), (1, 2, "execute")]
    assert runs[0].start_sequence > runs[1].start_sequence > runs[2].start_sequence == 0
    assert [r.previous_run_id for r in runs[:2]] == [runs[1].run_id, runs[2].run_id]


async def test_a_fresh_executor_goes_on(file_world: World) -> None:
    first = file_world.executor(turn("a"))
    await session_of(first, scribe(), "a")
    await first.close()
    model = ScriptedModel(turn("b"))
    await session_of(file_world.executor(model), scribe(), "b")
    assert told(model.requests[0].messages)[1:5] == [
        "user: say a",
        "assistant: [write]",
        "tool: wrote a",
        "assistant: said a",
    ]


async def test_call_ids_stay_unique(world: World) -> None:
    """Some providers count from zero in every answer, or repeat an id within one answer."""
    repeated = {"tool_calls": [{"id": "c", "name": "write", "arguments": {"text": t}} for t in "xy"]}
    executor = world.executor([repeated, repeated, "done"])
    handle, _, chunks = await play(executor, scribe())
    messages = await history(executor, handle.session_id)  # this asserts pairs and uniqueness
    ids = [c.id for m in messages if isinstance(m, AssistantMessage) for c in m.tool_calls]
    assert ids == ["c", "c_2", "c_3", "c_4"]
    assert {c.tool_call_id for c in of_type(chunks, "tool_end")} == set(ids)


# --- branch and clone ---------------------------------------------------------------------------------------------


async def test_branch_from_the_latest(world: World) -> None:
    executor = world.executor([*turn("a"), *turn("b"), "branched", "original"])
    who = scribe()
    sid = await session_of(executor, who, "a", "b")
    handle, result, _ = await play(executor, who, "another way", branch={"from_session_id": sid})
    assert handle.session_id != sid and result.output == "branched"
    state = await handle.get_state()
    point = (await executor.sessions.get(sid)).checkpoint_id
    assert state.forked_from == {"session_id": sid, "checkpoint_id": point}
    assert (
        state.custom_state["lines"] == ["a", "b"] and state.message_count == 10 and state.stream_id == handle.session_id
    )
    _, result, _ = await play(executor, who, "on", session_id=sid)
    assert result.output == "original"
    assert (await executor.sessions.get_message_count(sid)) == 10
    assert [r.turn for r in (await executor.sessions.list_runs(handle.session_id)).runs] == [1]


async def test_branch_from_a_checkpoint_under_a_chosen_id(world: World) -> None:
    executor = world.executor([*turn("a"), *turn("b"), "branched"])
    who = scribe()
    sid = await session_of(executor, who, "a")
    point = (await executor.sessions.get(sid)).checkpoint_id
    await session_of(executor, who, "b")
    handle, result, _ = await play(
        executor, who, "x", session_id="ses_branch", branch={"from_session_id": sid, "checkpoint_id": point}
    )
    assert handle.session_id == "ses_branch" and result.output == "branched"
    lines = told(await history(executor, "ses_branch"))
    assert lines == [
        "user: say a",
        "assistant: [write]",
        "tool: wrote a",
        "assistant: said a",
        "user: x",
        "assistant: branched",
    ]
    assert (await handle.get_state()).custom_state["lines"] == ["a"]
    with pytest.raises(InvalidInputError, match="exists"):
        await executor.execute(who, "x", session_id="ses_branch", branch={"from_session_id": sid})
    for wrong in ({"checkpoint_id": point}, {"from_session_id": sid, "checkpoint": point}):
        with pytest.raises(InvalidInputError, match="branch"):
            await executor.execute(who, "x", branch=wrong)
    with pytest.raises(SessionNotFoundError):
        await executor.execute(who, "x", branch={"from_session_id": "ses_nowhere"})
    foreign = (await handle.get_state()).checkpoint_id
    with pytest.raises(CheckpointNotFoundError):
        await executor.branch(sid, foreign)


async def test_branch_of_a_running_session(world: World) -> None:
    gate = Gate()
    executor = world.executor([*turn("a"), gated(gate, "slow"), "branched"])
    who = scribe()
    sid = await session_of(executor, who, "a")
    running = await executor.execute(who, "slowly", session_id=sid)
    await gate.reached()
    handle, result, _ = await play(executor, who, "meanwhile", branch={"from_session_id": sid})
    assert result.output == "branched"
    gate.open()
    assert (await result_of(running)).output == "slow"
    assert told(await history(executor, handle.session_id))[-3:] == [
        "user: slowly",
        "user: meanwhile",
        "assistant: branched",
    ]


async def test_clone_by_checkpoint(world: World) -> None:
    executor = world.executor([*turn("a"), *turn("b"), "cloned"])
    who = scribe()
    sid = await session_of(executor, who, "a")
    point = (await executor.sessions.get(sid)).checkpoint_id
    await session_of(executor, who, "b")
    state = await executor.clone_session(sid, "ses_clone", from_checkpoint_id=point)
    assert (state.status, state.turn, state.message_count, state.step_count) == ("completed", 0, 4, 2)
    assert state.custom_state["lines"] == ["a"]
    assert (await executor.sessions.list_runs("ses_clone")).runs == []
    assert len((await executor.sessions.list_checkpoints("ses_clone")).items) == 1  # its own summaries, not copies
    with pytest.raises(SessionExistsError):
        await executor.clone_session(sid, "ses_clone")
    with pytest.raises(RunNotFoundError):
        await executor.sessions.get_current_run("ses_clone")
    _, result, _ = await play(executor, who, "hi", session_id="ses_clone")
    assert result.output == "cloned"


async def test_clone_by_message_count_keeps_pairs_whole(world: World) -> None:
    executor = world.executor([calls(call("write", text="a"), call("write", text="b")), "said", *turn("c")])
    who = scribe()
    sid = await session_of(executor, who, "a", "c")
    counts, lines = [], []
    for wanted in range(10):
        state = await executor.clone_session(sid, f"ses_clone{wanted}", from_message_index=wanted)
        counts.append(state.message_count)
        lines.append(state.custom_state["lines"])
        assert (await recover_conversation(executor.store, f"ses_clone{wanted}")).messages == await history(
            executor, f"ses_clone{wanted}"
        )
    assert counts == [0, 1, 1, 1, 4, 5, 6, 6, 8, 9]
    assert lines == [[]] * 4 + [["a", "b"]] * 4 + [["a", "b", "c"]] * 2
    for options in ({"from_message_index": -1}, {"from_message_index": 1, "from_checkpoint_id": "x"}):
        with pytest.raises(InvalidInputError):
            await executor.clone_session(sid, "ses_wrong", **options)
    with pytest.raises(InvalidInputError, match="session_id"):
        await executor.clone_session(sid, "bad id")


async def test_clone_after_a_rewind(world: World) -> None:
    """A clone has the state of the history that it copies, not of the abandoned one."""
    executor = world.executor([*turn("a"), *turn("b"), *turn("c")])
    who = scribe()
    sid = await session_of(executor, who, "a")
    point = (await executor.sessions.get(sid)).checkpoint_id
    await session_of(executor, who, "b")
    await result_of(await executor.resume(who, sid, checkpoint_id=point, message="say c"))
    state = await executor.clone_session(sid, "ses_clone", from_message_index=8)
    assert state.custom_state["lines"] == ["a", "c"]
    state = await executor.clone_session(sid, "ses_less", from_message_index=5)
    assert state.custom_state["lines"] == ["a"]


async def test_a_long_session_is_copied_in_pages(world: World) -> None:
    executor = world.executor([f"reply {i}" for i in range(60)])
    who = agent()
    for i in range(60):
        await result_of(await executor.execute(who, f"message {i}", session_id="ses_long"))
    state = await executor.clone_session("ses_long", "ses_copy")
    assert state.message_count == 120
    assert told(await history(executor, "ses_copy")) == told(await history(executor, "ses_long"))
    page = await executor.sessions.get_messages("ses_long", offset=100, limit=15)
    assert (len(page.messages), page.total, page.has_more) == (15, 120, True)
    assert page.messages[0].content == "message 50"
    last = await executor.sessions.get_messages("ses_long", offset=115, limit=15)
    assert (len(last.messages), last.has_more) == (5, False)
    assert (await executor.sessions.get_messages("ses_long", offset=500)).messages == []


# --- lists --------------------------------------------------------------------------------------------------------


async def test_lists_in_pages(world: World) -> None:
    executor = world.executor(["x"] * 20)
    who = agent()
    for i in range(5):
        await play(executor, who, session_id=f"ses_{i}", user_id="ada")
    await play(executor, who, session_id="ses_other")
    first = await executor.sessions.list_sessions(user_id="ada", limit=2)
    second = await executor.sessions.list_sessions(user_id="ada", limit=2, after=first.cursor)
    third = await executor.sessions.list_sessions(user_id="ada", limit=2, after=second.cursor)
    found = [s.session_id for page in (first, second, third) for s in page.sessions]
    assert found == ["ses_4", "ses_3", "ses_2", "ses_1", "ses_0"] and third.cursor is None
    assert [s.session_id for s in (await executor.sessions.list_sessions()).sessions] == ["ses_other"]

    for _ in range(3):
        await play(executor, who, session_id="ses_other")
    runs = await executor.sessions.list_runs("ses_other", limit=3)
    assert [r.turn for r in runs.runs] == [4, 3, 2] and runs.has_more
    points = await executor.sessions.list_checkpoints("ses_other", limit=5)
    assert points.has_more and len(points.items) == 5
    rest = await executor.sessions.list_checkpoints("ses_other", limit=5, after=points.cursor)
    versions = [p.id for p in [*points.items, *rest.items]]
    assert len(set(versions)) == 8 and not rest.has_more
    assert [p.count for p in [*points.items, *rest.items]] == [8, 7, 6, 5, 4, 3, 2, 1]
    latest = await executor.sessions.get_latest_checkpoint("ses_other")
    assert latest.id == versions[0] and latest.state == {}
    for limit in (0, 1001):
        with pytest.raises(InvalidInputError, match="limit"):
            await executor.sessions.list_runs("ses_other", limit=limit)
    with pytest.raises(InvalidInputError, match="offset"):
        await executor.sessions.get_messages("ses_other", offset=-1)


async def test_what_does_not_exist(world: World) -> None:
    sessions = world.executor().sessions
    assert await sessions.load("ses_nowhere") is None and not await sessions.exists("ses_nowhere")
    for query in (
        sessions.get,
        sessions.get_messages,
        sessions.load_conversation_messages,
        sessions.get_message_count,
        sessions.get_current_run,
        sessions.list_runs,
        sessions.list_checkpoints,
        sessions.get_latest_checkpoint,
        sessions.list_sub_sessions,
    ):
        with pytest.raises(SessionNotFoundError):
            await query("ses_nowhere")
    with pytest.raises(SessionNotFoundError):
        await recover_conversation(world.executor().store, "ses_nowhere")


# --- delete, recover ----------------------------------------------------------------------------------------------


async def test_delete_leaves_nothing_and_frees_the_id(world: World) -> None:
    executor = world.executor([*turn("a"), *turn("b"), "new"])
    who = scribe()
    sid = await session_of(executor, who, "a", "b")
    assert await executor.delete(sid) is True
    assert await executor.streams.info(sid) is None and not await executor.sessions.exists(sid)
    assert (await executor.sessions.list_sessions()).sessions == []
    assert await executor.store.query("sessions", sid) == []
    handle, result, chunks = await play(executor, who, "hello", session_id=sid)
    assert result.output == "new" and chunks[0].sequence == 1
    assert told(await history(executor, sid)) == ["user: hello", "assistant: new"]
    assert (await handle.get_state()).custom_state["lines"] == []


async def test_recover_conversation(world: World) -> None:
    gate = Gate()
    executor = world.executor(["fine", ModelError("down"), calls(call("write", text="a")), gated(gate, "x")])
    who = scribe()
    await play(executor, who, session_id="ses_completed")
    await play(executor, who, session_id="ses_failed")
    handle = await executor.execute(who, "go", session_id="ses_interrupted")
    await gate.reached()
    running = await recover_conversation(executor.store, "ses_interrupted")
    assert not running.can_resume and told(running.messages)[-1] == "tool: wrote a"
    await handle.interrupt(wait=True)
    for name, can_resume in (("completed", False), ("failed", False), ("interrupted", True)):
        found = await recover_conversation(executor.store, f"ses_{name}")
        assert found.can_resume == can_resume, name
        assert found.can_resume == (await executor.can_resume(f"ses_{name}")).can_resume
        assert found.messages == await executor.sessions.load_conversation_messages(f"ses_{name}")


async def test_thinking_is_kept_and_can_be_left_out(world: World) -> None:
    blocks = [{"text": "hm", "signature": "sig"}, {"redacted": "xyz"}]
    model = ScriptedModel([calls(call("write", text="a")) | {"thinking": blocks}, "done", "again"])
    executor = world.executor(model)
    who = scribe()
    handle, _, chunks = await play(executor, who)
    thinking = of_type(chunks, "thinking")
    assert any(c.is_complete for c in thinking)
    sent = model.requests[1].messages[2]
    assert isinstance(sent, AssistantMessage) and [b.model_dump(exclude_defaults=True) for b in sent.thinking] == blocks
    page = await executor.sessions.get_messages(handle.session_id, include_thinking=False)
    assert not any(m.thinking for m in page.messages if isinstance(m, AssistantMessage)) and len(page.messages) == 4
    kept = (await executor.sessions.get_messages(handle.session_id)).messages[1]
    assert isinstance(kept, AssistantMessage) and len(kept.thinking) == 2


async def test_a_snapshot_and_the_stream_after_it_are_the_whole(world: World) -> None:
    """It has the messages at a checkpoint, and the sequence number at which the stream continues. Nothing is doubled, and
    nothing is lost."""
    gate = Gate()
    executor = world.executor([*turn("a"), gated(gate, "said b")])
    who = scribe()
    sid = await session_of(executor, who, "a")
    done = await executor.get_snapshot(sid)
    assert (done.status, len(done.messages), done.custom_state["lines"]) == ("completed", 4, ["a"])
    handle = await executor.execute(who, "say b", session_id=sid)
    await gate.reached()
    snapshot = await executor.get_snapshot(sid)
    assert snapshot.status == "running" and told(snapshot.messages)[-1] == "user: say b"
    gate.open()
    after = await chunks_of(handle, after=snapshot.sequence)
    assert "".join(c.delta for c in of_type(after, "text_delta")) == "said b"
    assert after[0].sequence == snapshot.sequence + 1 or after[0].sequence > snapshot.sequence
    assert [c.message_count for c in of_type(after, "checkpoint_created")] == [6]
    with pytest.raises(SessionNotFoundError):
        await executor.get_snapshot("ses_nowhere")


async def test_metadata_of_messages_and_sessions(world: World) -> None:
    executor = world.executor(["a", "b"])
    who = agent()
    given = {"message": "hi", "metadata": {"channel": "mail"}}
    handle, _, _ = await play(executor, who, given, metadata={"plan": "pro"}, tags=["x"], user_id="ada")
    state = await handle.get_state()
    assert (state.metadata, state.tags, state.user_id) == ({"plan": "pro"}, ["x"], "ada")
    first = (await history(executor, handle.session_id))[0]
    assert first.metadata == {"channel": "mail"} and first.run_id == handle.run_id  # type: ignore[union-attr]
    for wrong in ({"user_id": "a" * 257}, {"user_id": "\udc80"}, {"metadata": {"x": float("inf")}}, {"tags": "abc"}):
        with pytest.raises(InvalidInputError):
            await executor.execute(who, "x", **wrong)
    with pytest.raises(InvalidInputError):
        await executor.execute(who, {"message": "x", "metadata": {"x": "\udc80"}})
