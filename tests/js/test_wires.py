"""Both clients read one recorded wire, and get the same messages, the same chunks and the same state.

Each scenario of the parity suite is recorded: failed and repeated steps, pauses, sub-agents, rewinds, aborts. Its frames
arrive in another order and some of them twice, as over several connections.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.e2e.parity_scenarios import SCENARIOS
from tests.e2e.parity_stage import stage_of

from helix.client.feed import Feed, whole_stream
from helix.core.chunks import StreamChunk
from helix.core.errors import HelixError
from helix.core.frames import Joiner, message_frames
from helix.core.json import loads
from helix.core.wire import StreamMessage
from helix.stream.agui import AgUiEncoder
from helix.stream.state import Snapshot, StreamProjector, create_state_projection
from helix.stream.ui_messages import UIMessageEncoder

pytestmark = pytest.mark.slow


@pytest.fixture(params=SCENARIOS)
async def recorded(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, list[StreamMessage]]:
    """Play a scenario. Return its session and its stream."""
    async with stage_of("local", tmp_path, request, f"ses_{request.param}") as stage:
        await SCENARIOS[request.param](stage)
        stream_id = (await stage.executor.sessions.get(stage.session)).stream_id
        return stage.session, await stage.executor.streams.read(stream_id, 0, 100_000)


def shuffled(messages: list[StreamMessage], seed: int) -> list[str]:
    """Return frames of a few messages each, out of order, and some twice."""
    dice = random.Random(seed)
    frames: list[bytes] = []
    while messages:
        count = dice.randint(1, 5)
        frames += message_frames(messages[0].stream_id, messages[:count])
        messages = messages[count:]
    frames += dice.choices(frames, k=len(frames) // 3)
    dice.shuffle(frames)
    return [frame.decode() for frame in frames]


async def fold(frames: list[str], session_id: str, stream_id: str) -> dict[str, Any]:
    """Fold with the Python client, as `driver.mjs` does with the TypeScript client."""
    joiner, feed = Joiner(), Feed(stream_id, 0, whole_stream, 1_000_000)

    def take(text: str) -> None:
        frame = loads(text)
        if frame["type"] == "part":
            if (whole := joiner.add(frame)) is not None:
                take(whole)
        else:
            bodies = [{"stream_id": stream_id, **body} for body in frame["messages"]]
            feed.add_messages([StreamMessage.model_validate(body) for body in bodies])

    for text in frames:
        take(text)
    messages: list[StreamMessage] = []
    while feed.has_ready and (message := await feed.next(0)) is not None:
        messages.append(message)
    chunks: list[StreamChunk] = [message.parsed() for message in messages if message.kind == "chunk"]
    projector = StreamProjector(create_state_projection(lambda state: state), Snapshot({}), session_id=session_id)
    state: Any
    try:
        for chunk in chunks:
            await projector.feed(chunk)
        state = projector.state
    except HelixError as error:
        state = error.code
    found: dict[str, Sequence[BaseModel]] = {"messages": messages, "chunks": chunks}
    return {name: [item.model_dump(mode="json") for item in items] for name, items in found.items()} | {"state": state}


async def test_both_clients_read_a_recorded_wire_the_same(
    recorded: tuple[str, list[StreamMessage]], typescript: Any
) -> None:
    session, messages = recorded
    stream_id = messages[0].stream_id
    for seed in range(3):
        frames = shuffled(messages, seed)
        here = await fold(frames, session, stream_id)
        there = await typescript("fold", frames=frames, session_id=session, stream_id=stream_id)
        assert len(here["messages"]) == len(messages) > 3
        assert there["messages"] == here["messages"]
        assert there["chunks"] == here["chunks"]
        assert there["state"] == here["state"]


async def test_both_encoders_make_the_same_parts_for_the_ai_sdk(
    recorded: tuple[str, list[StreamMessage]], typescript: Any
) -> None:
    """The SDK's schema accepts each part."""
    session, messages = recorded
    encoder, here = UIMessageEncoder(session), list[Any]()
    for message in messages:
        parts = encoder.feed(message)
        ends = message.kind != "chunk" and message.session_id == session
        here.append(parts + (encoder.close() if ends else []))
    sent = [message.model_dump(mode="json") for message in messages]
    assert (await typescript("encode", messages=sent, session_id=session))["parts"] == here
    assert sum(map(len, here)) > 3


async def test_both_encoders_make_the_same_events_for_ag_ui(
    recorded: tuple[str, list[StreamMessage]], typescript: Any
) -> None:
    """The schemas of AG-UI accept each event."""
    session, messages = recorded
    run_id = messages[0].run_id
    encoder = AgUiEncoder(session, state={})
    encoder.announce(run_id=run_id, messages=True)
    here = [encoder.feed(message) for message in messages]
    sent = [message.model_dump(mode="json") for message in messages]
    given: Any = {"messages": sent, "session_id": session, "state": {}, "run_id": run_id}
    assert (await typescript("events", **given))["events"] == here
    assert sum(map(len, here)) > 3
