"""A run's stream through its handle: live, late, from another process, and repeatedly."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support_run import (
    Gate,
    Nothing,
    World,
    a_tool,
    agent,
    assert_stream,
    call,
    calls,
    chunks_of,
    gated,
    of_type,
    play,
    result_of,
    text_of,
    types,
)

from helix import ModelError, ScriptedModel, ToolContext, create_sub_agent_tool
from helix.core.chunks import RunResumedChunk, StreamChunk, UnknownChunk
from helix.core.errors import InvalidInputError
from helix.core.handles import AgentExecutionHandle
from helix.core.wire import StreamMessage
from helix.services.run_stream import RUN, RunStream
from helix.sessions import snapshots
from helix.stream.handler import create_resumable_stream_handler
from helix.stream.reader import create_reader
from helix.stream.state import Snapshot, StreamProjector, create_state_projection


class Found(BaseModel):
    fact: str


async def messages_of(handle: AgentExecutionHandle[Any], **options: Any) -> list[StreamMessage]:
    async with asyncio.timeout(10):
        return [m async for m in await handle.messages(**options)]


async def test_a_stream_is_there_as_soon_as_its_run_is_claimed(world: World) -> None:
    """A browser requests the stream right after the response to its request, while the first message is on its way."""
    gate = Gate()
    executor, other = world.executor([gated(gate, "Hello.")]), world.executor([])
    handler = create_resumable_stream_handler(stream_manager=other.streams, clock=other.engine.clock)
    assert (await handler.handle(stream_id="ses_early")).status == 404
    assert await create_reader(other.streams, "ses_early") is None
    handle = await executor.execute(agent(), "go", session_id="ses_early")
    response = await handler.handle(stream_id="ses_early")
    reader = await create_reader(other.streams, "ses_early")
    assert response.status == 200 and reader is not None
    await gate.reached()
    gate.open()
    async with asyncio.timeout(10):
        body = b"".join([part async for part in response.body]).decode()
        messages = [message async for message in reader]
    assert body.count("event: end") == 1 and messages[-1].kind == "end" and messages[0].sequence == 1
    copy = await other.clone_session("ses_early", "ses_copy")
    assert await create_reader(other.streams, copy.session_id) is None  # a copied session has no run, and so no stream
    assert await other.delete(handle.session_id)
    assert (await handler.handle(stream_id="ses_early")).status == 404


async def test_live_chunks_come_before_the_run_ends(world: World) -> None:
    gate = Gate()

    async def wait(given: Nothing, ctx: ToolContext[Any]) -> str:
        await gate.wait()
        return "ok"

    executor = world.executor([calls(call("wait"), content="Working."), "done"])
    handle = await executor.execute(agent(tools=[a_tool("wait", wait)]), "go")
    seen: list[StreamChunk] = []
    async with asyncio.timeout(10):
        async for chunk in await handle.stream():
            seen.append(chunk)
            if chunk.type == "tool_start":
                assert (await handle.get_state()).status == "running"
                gate.open()
    assert text_of(seen) == "Working.done"
    assert seen == await chunks_of(handle)  # the same again, from the beginning


async def test_each_run_has_its_own_part(world: World) -> None:
    executor = world.executor(["one", ModelError("down"), "three"])
    who = agent()
    first, _, a = await play(executor, who)
    second, _, b = await play(executor, who, "again", session_id=first.session_id)
    third = await second.retry()
    c = await chunks_of(third)
    assert [text_of(part) for part in (a, b, c)] == ["one", "", "three"]
    sequences = [chunk.sequence for chunk in [*a, *b, *c]]
    assert sequences == sorted(sequences) and {x.run_id for x in b} == {second.run_id}
    assert await chunks_of(first) == a and await chunks_of(second) == b  # read late, it still has only this run's part
    runs = (await executor.sessions.list_runs(first.session_id)).runs
    assert [r.start_sequence for r in runs] == [sum(map(_count, [a, b])), _count(a), 0]


def _count(chunks: list[StreamChunk]) -> int:
    """Return the number of the run's messages: its chunks and its end."""
    return len(chunks) + 1


async def test_after_a_sequence(world: World) -> None:
    executor = world.executor(["some words to be said"])
    handle, _, chunks = await play(executor, agent())
    for place in range(len(chunks)):
        assert await chunks_of(handle, after=chunks[place].sequence) == chunks[place + 1 :]
    assert await chunks_of(handle, after=0) == chunks


async def test_the_end_is_told(world: World) -> None:
    gate = Gate()
    executor = world.executor(["one", ModelError("down"), calls(call("ask")), gated(gate, "x")])
    who = agent(tools=[a_tool("ask", "client")])
    ends = []
    for name in ("completed", "failed", "paused"):
        handle, _, _ = await play(executor, who, session_id=f"ses_{name}")
        messages = await messages_of(handle)
        assert [m.sequence for m in messages] == list(range(1, len(messages) + 1))
        ends.append((messages[-1].kind, messages[-1].status, messages[-1].error))
    handle = await executor.execute(who, "go")
    await gate.reached()
    await handle.interrupt(wait=True)
    last = (await messages_of(handle))[-1]
    ends.append((last.kind, last.status, last.error))
    assert ends == [
        ("end", "completed", None),
        ("fail", "failed", "down"),
        ("paused", "paused", None),
        ("end", "interrupted", None),
    ]
    infos = [await executor.streams.info(s) for s in ("ses_completed", "ses_failed", "ses_paused", handle.session_id)]
    assert [i.status for i in infos if i] == ["ended", "failed", "paused", "ended"]


async def test_a_late_handle_from_another_process(file_world: World) -> None:
    gate = Gate()
    executor = file_world.executor([calls(call("wait"), content="First."), "Second."])

    async def wait(given: Nothing, ctx: ToolContext[Any]) -> str:
        await gate.wait()
        return "ok"

    who = agent(tools=[a_tool("wait", wait)])
    handle = await executor.execute(who, "go")
    await gate.reached()
    other = await file_world.executor().get_handle(who, handle.session_id)
    watching = asyncio.create_task(chunks_of(other))
    waiting = asyncio.create_task(result_of(other))
    gate.open()
    assert text_of(await watching) == "First.Second." and (await waiting).output == "Second."
    assert await watching == await chunks_of(handle)


async def test_children_are_on_it(world: World) -> None:
    finder = agent("finder", output_schema=Found)
    boss = agent("boss", tools=[create_sub_agent_tool(finder)])
    script = {
        "boss": [calls(call("subagent__finder", message="x")), "done"],
        "finder": [calls(call("__finish__", fact="y"), content="Looking.")],
    }
    executor = world.executor(script)
    handle, _, chunks = await play(executor, boss)
    assert_stream(chunks)
    (ref,) = await executor.sessions.list_sub_sessions(handle.session_id)
    child = await executor.get_handle(finder, ref.session_id)
    mine = [c for c in await chunks_of(child) if c.agent_id == ref.session_id]
    assert mine == [c for c in chunks if c.agent_id == ref.session_id]
    assert (await result_of(child)).output == Found(fact="y")
    ends = [m for m in await messages_of(handle) if m.kind != "chunk"]
    assert [(m.session_id, m.status) for m in ends] == [(ref.session_id, "completed"), (handle.session_id, "completed")]


async def test_a_run_that_is_taken_over_ends_with_its_successor(file_world: World) -> None:
    gate = Gate()
    first = file_world.executor([gated(gate, "never")])
    who = agent()
    handle = await first.execute(who, "go")
    await gate.reached()
    await first.close()  # it releases its lease and stops where it is
    second = file_world.executor(["finished elsewhere"])
    old = await second.get_handle(who, handle.session_id)
    again = await second.resume(who, handle.session_id)
    chunks = await chunks_of(again)
    assert (await result_of(again)).output == "finished elsewhere"
    assert isinstance(chunks[0], RunResumedChunk) and chunks[0].mode == "takeover"
    assert {c.run_id for c in await chunks_of(old)} <= {old.run_id}
    result = await result_of(old)
    assert (result.status, result.error_code) == ("failed", "runtime_crash")


async def test_sync_tools_emit_from_their_thread(world: World) -> None:
    """This works also when the stream's timer has expired, because any thread may append a chunk."""
    go_on = threading.Event()

    def work(given: Nothing, ctx: ToolContext[Any]) -> str:
        assert go_on.wait(10)
        for i in range(3):
            ctx.emit("progress", i)
        return "ok"

    executor = world.executor([calls(call("work")), "done"])
    handle = await executor.execute(agent(tools=[a_tool("work", work)]), "go")
    seen: list[StreamChunk] = []
    async with asyncio.timeout(10):
        async for chunk in await handle.stream():
            seen.append(chunk)
            if chunk.type == "tool_start":
                go_on.set()
    assert [c.data for c in of_type(seen, "custom")] == [0, 1, 2]
    order = types(seen)
    assert order.index("custom") > order.index("tool_start") and order.index("tool_end") > order.index("custom")
    assert of_type(seen, "tool_end")[0].success


async def test_a_model_that_repeats_itself_within_a_step(world: World) -> None:
    """The adapter retries. The partial answer is taken back, the error is streamed, and the step continues."""

    class Flaky(ScriptedModel):
        async def generate_step(self, request: Any) -> Any:
            request.callbacks.on_text_delta("half a")
            request.callbacks.on_error(ModelError("overloaded \udc80", retryable=True))
            return await super().generate_step(request)

    _, result, chunks = await play(world.executor(Flaky(["a whole answer"])), agent())
    assert result.output == "a whole answer"
    assert types(chunks) == ["checkpoint_created", "error", "step_discarded", "step_committed", "checkpoint_created"]
    (error,) = of_type(chunks, "error")
    assert error.recoverable and error.code == "model_error"


async def test_the_state_can_be_followed(world: World) -> None:
    class Log(BaseModel):
        lines: list[str] = []
        count: int = 0

    def write(given: Nothing, ctx: ToolContext[Log]) -> str:
        with ctx.draft() as state:
            state.lines.append("x")
            state.count += 1
        return "ok"

    executor = world.executor([calls(call("write")), calls(call("write"), call("write")), "done"])
    handle, _, chunks = await play(executor, agent(tools=[a_tool("write", write)], state_schema=Log))
    projector = StreamProjector(
        create_state_projection(lambda s: len(s.get("lines", []))),  # type: ignore[arg-type]
        Snapshot({}),
        session_id=handle.session_id,
    )
    values = [projector.value for chunk in chunks if await projector.feed(chunk)]
    assert values == [1, 3] and projector.state == (await handle.get_state()).custom_state


async def test_waiting_has_an_end(quick_world: World) -> None:
    gate = Gate()
    handle = await quick_world.executor([gated(gate, "x")]).execute(agent(), "go")
    with pytest.raises(TimeoutError):
        await handle.result(timeout_s=0.01)
    assert (await handle.get_state()).status == "running"  # the end of a wait does not stop the run
    gate.open()
    assert (await result_of(handle)).status == "completed"


async def test_writers_refuse_what_they_do_not_know(quick_world: World) -> None:
    executor = quick_world.executor(["x"])
    handle, _, _ = await play(executor, agent())
    row = await executor.engine.history.existing(handle.session_id)
    stream = RunStream(executor.streams, executor.engine.clock, row, row.run_id, row.turn)
    with pytest.raises(InvalidInputError):
        stream.put(RUN, [UnknownChunk(type="hologram")])


async def test_server_sent_events_of_a_run(world: World) -> None:
    executor = world.executor(["hello"])
    handle, _, chunks = await play(executor, agent())
    handler = create_resumable_stream_handler(stream_manager=executor.streams, clock=executor.engine.clock)
    response = await handler.handle(stream_id=handle.session_id, resume_at=str(chunks[0].sequence))
    assert response.status == 200
    body = b"".join([part async for part in response.body])
    ids = [int(line[4:]) for line in body.decode().splitlines() if line.startswith("id: ")]
    assert ids == list(range(chunks[0].sequence + 1, chunks[-1].sequence + 2))
    assert (await handler.handle(stream_id=handle.session_id, resume_at=ids[-1])).status == 204


@pytest.mark.parametrize("size", [3, 10_000])
async def test_text_arrives_whole_whatever_its_pieces(quick_world: World, size: int) -> None:
    text = "Ein Wörterbuch — ".join(map(str, range(300)))
    executor = quick_world.executor(ScriptedModel([text], delta_chars=size))
    _, result, chunks = await play(executor, agent())
    assert text_of(chunks) == result.output == text


async def test_a_snapshot_of_a_long_run_reads_only_the_end_of_its_stream(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "PAGE", 20)
    tick = a_tool("tick", lambda given, ctx: "tock")
    executor = world.executor([*[calls(call("tick"))] * 40, "Done."])
    _, result, _ = await play(executor, agent(tools=[tick], max_steps=None), "go")
    whole = await executor.streams.read(result.session_id, 0)
    read, afters = executor.streams.read, list[int]()

    async def counted(stream_id: str, after: int = 0, limit: int = 1000) -> list[StreamMessage]:
        afters.append(after)
        return await read(stream_id, after, limit)

    monkeypatch.setattr(executor.streams, "read", counted)
    snapshot = await executor.get_snapshot(result.session_id, newest=1)
    newest = [m.sequence for m in whole if (m.chunk or {}).get("type") == "checkpoint_created"][-1]
    assert snapshot.sequence == newest and afters and min(afters) >= len(whole) - 20 > 100
