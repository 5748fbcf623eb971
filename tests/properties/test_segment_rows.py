"""A segment's row is smaller than its messages and its head, and restores them. Rows of earlier versions work as well."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from helix import MemoryStateStore
from helix.core.json import dumps, loads, size
from helix.core.sequencer import Head, SessionHead
from helix.core.wire import StreamMessage
from helix.ports.state_store import Key, Put, Row
from helix.services.segment_rows import segment_head, segment_messages, segment_value
from helix.services.segments import SegmentStreams
from helix.services.stream_ends import segment_sort
from helix.testing.contracts.streams import committed, ended, everything, started, text, texts

NAMES = st.sampled_from(["stream", "child", ""])
RUNS = st.sampled_from(["run_1", "run_000001_A", "run_000002_B", ""])
TIMES = st.one_of(st.sampled_from([0.0, 1.0, 1795361118.8642]), st.floats(0, 2e9), st.integers(0, 3).map(float))
COUNTS = st.integers(0, 2)
POINTS = st.sampled_from(
    [
        "cpv1-stream-s0-t1-000001",
        "cpv1-stream-s2-t1-1000001",
        "cpv1-stream-0-1-1",
        "cpv1-child-s0-t1-000001",
        "~",
        "none",
    ]
)
FIELDS = {
    "delta": st.text(max_size=3),
    "checkpoint_id": POINTS,
    "turn": COUNTS,
    "step_count": COUNTS,
    "data": st.none() | st.lists(COUNTS),
}


@st.composite
def message(draw: Any) -> dict[str, Any]:
    session, run = draw(NAMES), draw(RUNS)
    made: dict[str, Any] = {"session_id": session, "run_id": run, "turn": draw(COUNTS)}
    if draw(st.booleans()):
        words = st.none() | st.sampled_from(["completed", "it broke"])
        return {
            **made,
            "kind": draw(st.sampled_from(["end", "fail", "paused"])),
            "status": draw(words),
            "error": draw(words),
        }
    chunk = {"type": draw(st.sampled_from(["text_delta", "checkpoint_created", "end"]))}
    chunk |= {"session_id": session, "run_id": run, "agent_id": session, "agent_type": draw(NAMES)}
    chunk |= {"step": draw(COUNTS), "attempt": draw(COUNTS), "timestamp": draw(TIMES)}
    chunk |= draw(st.fixed_dictionaries({}, optional=FIELDS))
    odd = st.dictionaries(st.sampled_from(sorted(chunk)), st.just("other"), max_size=1)
    for name, value in draw(st.just({}) | odd).items():
        chunk[name] = value
    for name in draw(st.just(set()) | st.sets(st.sampled_from(sorted(chunk)), max_size=1)):
        del chunk[name]
    return {**made, "kind": "chunk", "chunk": chunk}


@st.composite
def session_head(draw: Any) -> SessionHead:
    return SessionHead(
        turn=draw(COUNTS),
        over=draw(st.booleans()),
        status=draw(st.sampled_from(["running", "completed"])),
        run_id=draw(RUNS),
        agent_type=draw(NAMES),
        calls={"c": (1, 0, True)},
    )


@given(
    st.lists(message(), max_size=6),
    st.dictionaries(NAMES, session_head(), max_size=2),
    NAMES,
    TIMES,
    TIMES,
    st.integers(1, 10**6),
)
def test_reading_gives_what_was_written(
    bodies: list[dict[str, Any]],
    sessions: dict[str, SessionHead],
    root: str,
    created_at: float,
    updated_at: float,
    first: int,
) -> None:
    messages = [StreamMessage(stream_id="stream", sequence=first + n, **body) for n, body in enumerate(bodies)]
    sequence = first - 1 + len(messages)
    head = Head(sequence=sequence, root=root, created_at=created_at, updated_at=updated_at, sessions=sessions)
    stored = loads(dumps(segment_value("stream", head, messages)))
    row = Row(Key("streams", "stream", segment_sort(first)), stored)
    assert list(segment_messages(row)) == messages
    assert segment_head(row) == head


def test_what_messages_share_is_said_once() -> None:
    """A delta takes its text plus some 30 bytes."""
    envelope = {"session_id": "ses_1", "run_id": "run_1", "agent_id": "ses_1", "agent_type": "writer"}
    chunks = [
        {
            "type": "text_delta",
            "delta": "a few words ",
            **envelope,
            "step": 1,
            "attempt": 1,
            "timestamp": 1795361118.8 + n,
        }
        for n in range(100)
    ]
    about = {"stream_id": "ses_1", "session_id": "ses_1", "run_id": "run_1", "turn": 1}
    messages = [StreamMessage(**about, sequence=n, kind="chunk", chunk=chunk) for n, chunk in enumerate(chunks, 1)]
    head = Head(sequence=100, root="ses_1", sessions={"ses_1": SessionHead(turn=1, over=False, run_id="run_1")})
    assert size(segment_value("ses_1", head, messages)) < 100 * 45 + 200


async def test_a_stream_of_an_earlier_version_goes_on() -> None:
    """Version 0.1 wrote rows with each message in full, and the head's sequence."""
    store = MemoryStateStore()
    delta = {"type": "text_delta", "delta": "a", "session_id": "stream", "step": 1, "attempt": 1}
    about = {"session_id": "stream", "run_id": "run_1", "turn": 1, "kind": "chunk"}
    session = {"turn": 1, "over": False, "step": 1, "attempt": 1, "open": True, "n": 0, "run_id": "run_1"}
    head = {"sequence": 2, "root": "stream", "created_at": 1.0, "updated_at": 1.0, "sessions": {"stream": session}}
    rows = [{**about, "sequence": n, "chunk": {**delta, "delta": letter}} for n, letter in ((1, "a"), (2, "b"))]
    key = Key("streams", "stream", segment_sort(1))
    await store.transact("seed", [Put(key, {"head": head, "messages": rows})])
    log = SegmentStreams(store)
    await log.append("stream", [started(), text(0, "again"), text(1, "c"), committed(2), ended()])
    assert await texts(log) == ["a", "b", "c"]
    assert [m.kind for m in await everything(log)] == ["chunk"] * 4 + ["end"]
    info = await log.info("stream")
    assert info is not None and (info.latest_sequence, info.created_at, info.status) == (5, 1.0, "ended")
