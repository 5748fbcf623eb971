"""Custom state on the stream is written as patches and followed as a view."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support_streams import STREAM, HandClock, MemoryStreams, Run

from helix.core.chunks import StatePatchChunk, StreamChunk, StreamResyncChunk, TextDeltaChunk
from helix.core.errors import StaleStateError, StoreError
from helix.core.tracker import create_state_tracker
from helix.stream.filters import collect_all
from helix.stream.reader import chunks_of, read_stream
from helix.stream.state import (
    CustomStateStreamer,
    Snapshot,
    StreamProjector,
    create_state_projection,
    create_state_streamer,
)


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


async def streamer(streams: MemoryStreams, **fields: Any) -> CustomStateStreamer:
    await Run(streams).start()
    given: dict[str, Any] = {"run_id": "run_1", "turn": 1, "step": 1, "agent_type": "writer", **fields}
    return create_state_streamer(stream_manager=streams, stream_id=STREAM, clock=HandClock(), **given)


def patches(streams: MemoryStreams) -> list[Any]:
    return [message.parsed().patches for message in streams.logs[STREAM]]  # type: ignore[union-attr]


# --- writing ---------------------------------------------------------------------------------------------------------


async def test_a_patch_is_a_chunk_with_its_envelope() -> None:
    streams = MemoryStreams()
    await (await streamer(streams)).emit_patch([add("/a", 1)])
    chunk = streams.logs[STREAM][0].parsed()
    assert isinstance(chunk, StatePatchChunk) and chunk.patches == [add("/a", 1)]
    assert (chunk.session_id, chunk.agent_id, chunk.agent_type, chunk.run_id) == (STREAM, STREAM, "writer", "run_1")
    assert (chunk.step, chunk.timestamp, chunk.sequence) == (1, 1000.0, 1)


async def test_no_patches_no_chunk() -> None:
    streams = MemoryStreams()
    state = await streamer(streams)
    await state.emit_patch([])
    await state.emit_patch(create_state_tracker({"a": 1}).get_patches())
    assert streams.logs[STREAM] == []


async def test_a_lost_answer_does_not_repeat_a_patch() -> None:
    streams = MemoryStreams()
    state = await streamer(streams)
    streams.lose_answers = 1
    with pytest.raises(StoreError):
        await state.emit_patch([add("/l/-", 1)])
    await state.emit_patch([add("/l/-", 2)])
    await state.flush()
    assert patches(streams) == [[add("/l/-", 1)], [add("/l/-", 2)]]


async def test_what_could_not_be_written_goes_out_first_later() -> None:
    streams = MemoryStreams()
    state = await streamer(streams)
    streams.lose_next = 2
    for number in (1, 2):
        with pytest.raises(StoreError):
            await state.emit_patch([add("/l/-", number)])
    assert streams.logs[STREAM] == []
    await state.emit_patch([])
    assert patches(streams) == [[add("/l/-", 1)], [add("/l/-", 2)]]


async def test_concurrent_patches_keep_their_order() -> None:
    streams = MemoryStreams()
    state = await streamer(streams)
    await asyncio.gather(*(state.emit_patch([add("/l/-", number)]) for number in range(20)))
    assert patches(streams) == [[add("/l/-", number)] for number in range(20)]


async def test_a_superseded_run_writes_nothing() -> None:
    streams = MemoryStreams()
    state = await streamer(streams)
    await Run(streams, turn=2).start()
    await state.emit_patch([add("/a", 1)])
    assert streams.logs[STREAM] == []


async def test_a_child_writes_under_its_own_name() -> None:
    streams = MemoryStreams()
    await (await streamer(streams, session_id="child")).emit_patch([add("/a", 1)])
    assert streams.logs[STREAM][0].session_id == "child"


async def test_a_later_attempt_takes_over_without_a_gap() -> None:
    streams = MemoryStreams()
    await (await streamer(streams)).emit_patch([add("/a", 1)])
    await (await streamer(streams, attempt=2)).emit_patch([add("/b", 1)])
    assert patches(streams) == [[add("/a", 1)], [add("/b", 1)]]


# --- following -------------------------------------------------------------------------------------------------------


def patch(*operations: dict[str, Any], sequence: int = 0, session: str = STREAM) -> StreamChunk:
    return StatePatchChunk(patches=list(operations), sequence=sequence, session_id=session, agent_id=session)


def resync(sequence: int = 0, session: str = STREAM) -> StreamChunk:
    return StreamResyncChunk(reason="rewound", sequence=sequence, session_id=session, agent_id=session)


async def chunks(*given: StreamChunk) -> Any:
    for chunk in given:
        yield chunk


COUNT = create_state_projection(lambda state: state.get("n"))


async def test_only_changes_of_the_projected_value_come() -> None:
    projector = StreamProjector(COUNT, Snapshot({"n": 0}), session_id=STREAM)
    assert projector.value == 0
    stream = chunks(
        patch(add("/n", 1)),
        patch(add("/other", 1)),
        TextDeltaChunk(delta="x", session_id=STREAM),
        patch(add("/n", 1)),
        patch(add("/n", True)),
        patch(add("/n", 2), session="child"),
        patch({"op": "remove", "path": "/n"}),
    )
    assert await collect_all(projector.project(stream)) == [1, True, None]
    assert projector.state == {"other": 1} and projector.value is None


async def test_patches_that_the_snapshot_holds_are_skipped() -> None:
    projector = StreamProjector(COUNT, Snapshot({"n": 2}, 5), session_id=STREAM)
    stream = chunks(patch(add("/n", 1), sequence=4), patch(add("/n", 2), sequence=5), patch(add("/n", 3), sequence=6))
    assert await collect_all(projector.project(stream)) == [3]


async def test_resync_loads_anew() -> None:
    snapshots = [Snapshot({"n": 9}, 7)]

    async def load() -> Snapshot:
        return snapshots.pop()

    projector = StreamProjector(COUNT, Snapshot({"n": 0}), session_id=STREAM, load_snapshot=load)
    stream = chunks(
        resync(2, session="child"),
        patch(add("/n", 1), sequence=3),
        resync(4),
        patch(add("/n", 5), sequence=6),
        patch(add("/n", 10), sequence=8),
    )
    assert await collect_all(projector.project(stream)) == [1, 9, 10]
    assert snapshots == []


async def test_a_patch_that_does_not_fit_loads_anew() -> None:
    async def load() -> Snapshot:
        return Snapshot({"n": 4}, 1)

    projector = StreamProjector(COUNT, Snapshot({}), session_id=STREAM, load_snapshot=load)
    misfit = patch({"op": "replace", "path": "/n", "value": 4}, sequence=1)
    assert await collect_all(projector.project(chunks(misfit))) == [4]


@pytest.mark.parametrize("chunk", [resync(), patch({"op": "remove", "path": "/nope"})])
async def test_without_a_loader_it_says_so(chunk: StreamChunk) -> None:
    projector = StreamProjector(COUNT, Snapshot({"n": 1}), session_id=STREAM)
    with pytest.raises(StaleStateError, match="load_snapshot"):
        await projector.feed(chunk)
    assert projector.state == {"n": 1}


async def test_values_are_the_readers_own() -> None:
    whole = create_state_projection(lambda state: state["l"])
    snapshot = Snapshot({"l": [1]})
    projector = StreamProjector(whole, snapshot, session_id=STREAM)
    projector.value.append(9)  # type: ignore[union-attr]
    got = []
    async for value in projector.project(chunks(patch(add("/l/-", 2)), patch(add("/l/-", 3)))):
        got.append(list(value))  # type: ignore[arg-type]
        value.clear()  # type: ignore[union-attr]
    assert got == [[1, 2], [1, 2, 3]] and snapshot.state == {"l": [1]}


async def test_from_tracker_to_view_over_a_stream() -> None:
    streams = MemoryStreams()
    state = await streamer(streams)
    tracker = create_state_tracker({"notes": []})
    projection = create_state_projection(lambda s: len(s["notes"]))  # type: ignore[arg-type]
    projector = StreamProjector(projection, Snapshot(tracker.to_json()), session_id=STREAM)
    for number in range(3):
        tracker.update(lambda s, number=number: s["notes"].append(number))  # type: ignore[misc]
        await state.emit_patch(tracker.get_patches())
        tracker.reset_patches()
    await Run(streams).end()
    assert await collect_all(projector.project(chunks_of(read_stream(streams, STREAM)))) == [1, 2, 3]
    assert projector.state == tracker.to_json()
