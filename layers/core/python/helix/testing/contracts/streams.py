"""The contract of `StreamManager`: many writers form one gapless, replayable, consistent stream
(docs/protocol.md#stream)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from helix.core.sequencer import StreamRecord
from helix.core.wire import StreamMessage
from helix.ports.streams import StreamManager

S = "stream"
SOON_S = 5.0
LONG_S = 60.0


def record(kind: Any, *texts: str, turn: int = 1, session: str = S, **fields: Any) -> StreamRecord:
    """Return a record of a run. Its chunks are text deltas."""
    step, attempt = fields.get("step", 0), fields.get("attempt", 0)
    chunks: list[Any] = [
        {"type": "text_delta", "delta": text, "session_id": session, "step": step, "attempt": attempt} for text in texts
    ]
    run_id = f"run_{turn}"
    return StreamRecord(session_id=session, run_id=run_id, turn=turn, kind=kind, chunks=chunks, time=1.0, **fields)


def started(turn: int = 1, session: str = S, last: tuple[int, int] | None = None) -> StreamRecord:
    return record("run", turn=turn, session=session, mark="started", last=last)


def ended(turn: int = 1, session: str = S, status: str = "completed", mark: str = "end", **fields: Any) -> StreamRecord:
    return record("run", turn=turn, session=session, mark=mark, status=status, **fields)


def text(n: int, *texts: str, step: int = 1, attempt: int = 1, **fields: Any) -> StreamRecord:
    return record("attempt", *texts, step=step, attempt=attempt, n=n, **fields)


def committed(n: int, step: int = 1, attempt: int = 1, **fields: Any) -> StreamRecord:
    made = record("attempt", step=step, attempt=attempt, n=n, mark="committed", **fields)
    made.chunks = [{"type": "step_committed", "step": step, "attempt": attempt}]
    return made


async def everything(streams: StreamManager, after: int = 0, limit: int = 1000) -> list[StreamMessage]:
    """Return all messages after a sequence, read page by page. Asserts that the sequence has no gaps."""
    found: list[StreamMessage] = []
    while page := await streams.read(S, after + len(found), limit):
        found.extend(page)
    assert [message.sequence for message in found] == list(range(after + 1, after + 1 + len(found)))
    return found


async def texts(streams: StreamManager) -> list[str]:
    return [str(m.chunk["delta"]) for m in await everything(streams) if m.chunk and m.chunk["type"] == "text_delta"]


async def types(streams: StreamManager) -> list[str]:
    return [str(m.chunk["type"]) if m.chunk else m.kind for m in await everything(streams)]


class StreamManagerContract:
    """The contract tests. They need a fixture `streams`. If possible, the fixture `other` is the stream manager of a second
    process on the same data."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def other(self, streams: StreamManager) -> StreamManager:
        return streams

    async def test_it_declares_whether_it_coalesces(self, streams: StreamManager) -> None:
        """`coalesces` is True or False."""
        assert isinstance(streams.coalesces, bool)

    async def test_a_stream_is_made_by_its_first_record(self, streams: StreamManager, other: StreamManager) -> None:
        """Before its first record, a stream does not exist and has no messages. A run that begins without a chunk leaves it
        empty."""
        assert await streams.info(S) is None and await streams.read(S) == []
        await streams.append(S, [started(), text(0, "a")])
        info = await other.info(S)
        assert info is not None and (info.stream_id, info.latest_sequence, info.status) == (S, 1, "active")

    async def test_sequences_are_dense_and_in_order(self, streams: StreamManager, other: StreamManager) -> None:
        """Sequences are 1, 2, 3, ... over all appends, in the order of the appended chunks, and the same for every
        reader."""
        await streams.append(S, [started(), text(0, "a", "b"), text(1, "c")])
        await streams.append(S, [text(2, "d"), committed(3)])
        await streams.append(S, [ended()])
        messages = await everything(streams)
        assert [m.sequence for m in messages] == [1, 2, 3, 4, 5, 6]
        assert await types(streams) == ["text_delta"] * 4 + ["step_committed", "end"]
        assert await texts(other) == ["a", "b", "c", "d"] and await everything(other) == messages

    async def test_a_replay_from_anywhere_is_the_rest(self, streams: StreamManager) -> None:
        """Reading after any sequence returns exactly the messages that follow, with any limit."""
        await streams.append(S, [started(), text(0, "a", "b", "c")])
        for n in range(1, 8):
            await streams.append(S, [text(n, f"{n}")])
        messages = await everything(streams)
        for after in range(len(messages) + 2):
            for limit in (1, 3, 1000):
                assert await everything(streams, after, limit) == messages[after:]

    async def test_a_long_stream_is_read_whole(self, streams: StreamManager) -> None:
        """Thousands of messages are read page by page, without duplicates or gaps."""
        await streams.append(S, [started()])
        for n in range(300):
            await streams.append(S, [text(n, *(f"{n}.{k}" for k in range(8)))])
        found = await texts(streams)
        assert found == [f"{n}.{k}" for n in range(300) for k in range(8)]

    async def test_a_resend_changes_nothing(self, streams: StreamManager, other: StreamManager) -> None:
        """Records that are sent again, completely or in part, through any manager, are dropped."""
        records = [started(), text(0, "a"), text(1, "b")]
        await streams.append(S, records)
        await streams.append(S, records)
        await other.append(S, records[1:])
        await streams.append(S, [text(1, "b"), text(2, "c")])
        await other.append(S, [text(2, "c")])
        assert await texts(streams) == ["a", "b", "c"]

    async def test_a_newer_attempt_takes_the_older_back(self, streams: StreamManager, other: StreamManager) -> None:
        """A newer attempt emits `step_discarded` first. The superseded worker can no longer write."""
        await streams.append(S, [started(), text(0, "old")])
        await other.append(S, [text(0, "new", attempt=2)])
        await streams.append(S, [text(1, "zombie"), committed(2)])
        await other.append(S, [committed(1, attempt=2)])
        await streams.append(S, [text(3, "late", attempt=2)])
        assert await types(other) == ["text_delta", "step_discarded", "text_delta", "step_committed"]
        assert await texts(streams) == ["old", "new"]

    async def test_a_newer_turn_silences_the_older(self, streams: StreamManager, other: StreamManager) -> None:
        """Text and end of a superseded run are dropped, so that turn 1 cannot end a reader of turn 2."""
        await streams.append(S, [started(), text(0, "one")])
        await other.append(S, [started(2), text(0, "two", turn=2)])
        await streams.append(S, [text(1, "zombie")])
        await streams.append(S, [ended()])
        await other.append(S, [ended(2)])
        messages = await everything(streams)
        assert [(m.turn, m.kind) for m in messages if m.kind != "chunk"] == [(2, "end")]
        assert await texts(streams) == ["one", "two"]

    async def test_an_end_is_emitted_once_and_last(self, streams: StreamManager, other: StreamManager) -> None:
        """A repeated end, and anything after an end, is dropped. The next turn continues the stream."""
        await streams.append(S, [started(), ended(status="interrupted")])
        await other.append(S, [ended(status="interrupted")])
        await streams.append(S, [text(0, "late")])
        assert [(m.kind, m.status) for m in await everything(other)] == [("end", "interrupted")]
        await streams.append(S, [started(2), text(0, "next", turn=2)])
        assert await texts(other) == ["next"]

    async def test_a_run_that_begins_closes_the_one_before(self, streams: StreamManager) -> None:
        """A new run closes an open attempt: it is committed if it was the last one staged, and discarded otherwise."""
        await streams.append(S, [started(), text(0, "staged")])
        await streams.append(S, [started(2, last=(1, 1))])
        await streams.append(S, [text(0, "lost", step=2, turn=2)])
        await streams.append(S, [started(3, last=(1, 1))])
        assert await types(streams) == ["text_delta", "step_committed", "text_delta", "step_discarded"]

    @pytest.mark.parametrize(
        ("mark", "status", "wanted"),
        [("end", "completed", "ended"), ("fail", "failed", "failed"), ("paused", "paused", "paused")],
    )
    async def test_info_reports_the_status(self, streams: StreamManager, mark: str, status: str, wanted: str) -> None:
        """The status is active while the root runs. Afterwards it is the status of the last run, until the next run makes
        it active again."""
        await streams.append(S, [started(), text(0, "a"), committed(1), ended(status=status, mark=mark, error="why")])
        info = await streams.info(S)
        assert info is not None and (info.status, info.latest_sequence) == (wanted, 3)
        last = (await everything(streams))[-1]
        assert (last.kind, last.status, last.error) == (mark, status, "why")
        await streams.append(S, [started(2), text(0, "b", turn=2)])
        info = await streams.info(S)
        assert info is not None and (info.status, info.latest_sequence) == ("active", 4)

    async def test_a_child_ends_alone(self, streams: StreamManager) -> None:
        """A sub-agent's end is reported under its own session and does not end other sessions."""
        await streams.append(S, [started(), text(0, "parent")])
        await streams.append(S, [started(session="child"), text(0, "child", session="child"), ended(session="child")])
        info = await streams.info(S)
        assert info is not None and info.status == "active"
        await streams.append(S, [text(1, "parent"), ended()])
        assert [(m.session_id, m.kind) for m in await everything(streams) if m.kind != "chunk"] == [
            ("child", "end"),
            (S, "end"),
        ]

    async def test_many_writers_leave_no_gap(self, streams: StreamManager, other: StreamManager) -> None:
        """A parent and its children write concurrently through two managers. The stream has no gaps, and contains each
        chunk once, in its writer's order."""
        sessions = [S, "child1", "child2", "child3"]
        await streams.append(S, [started()])

        async def write(session: str, mine: StreamManager) -> None:
            await mine.append(S, [started(session=session)])
            for n in range(12):
                await mine.append(S, [text(n, f"{session}.{n}", session=session)])

        await asyncio.gather(*(write(s, (streams, other)[n % 2]) for n, s in enumerate(sessions)))
        messages = await everything(streams)
        assert len(messages) == 48 and await everything(other) == messages
        for session in sessions:
            mine = [str(m.chunk["delta"]) for m in messages if m.session_id == session and m.chunk]
            assert mine == [f"{session}.{n}" for n in range(12)]

    async def test_wait_returns_at_once_where_there_is_more(self, streams: StreamManager) -> None:
        """`wait` returns at once if there are already messages after the given sequence."""
        await streams.append(S, [started(), text(0, "a", "b")])
        began = time.monotonic()
        await asyncio.wait_for(streams.wait(S, 1, LONG_S), SOON_S)
        assert time.monotonic() - began < SOON_S

    async def test_wait_wakes(self, streams: StreamManager, other: StreamManager) -> None:
        """An append by any process wakes a waiting reader, even if the stream did not exist before."""
        for n, writer in enumerate((streams, other)):
            waiting = asyncio.ensure_future(streams.wait(S, n, LONG_S))
            await asyncio.sleep(0.05)
            await writer.append(S, [started(), text(n, "a")])
            await asyncio.wait_for(waiting, SOON_S)

    async def test_wait_returns_when_its_time_is_over(self, streams: StreamManager) -> None:
        """Without new messages, `wait` returns after its timeout."""
        await asyncio.wait_for(streams.wait(S, 0, 0.05), SOON_S)

    async def test_a_live_reader_sees_what_a_replay_shows(self, streams: StreamManager, other: StreamManager) -> None:
        """A live reader, which alternates between reading and waiting, gets every message once, in order, to the end."""

        async def write() -> None:
            await streams.append(S, [started()])
            for n in range(20):
                await streams.append(S, [text(n, f"{n}")])
                if n % 5 == 0:
                    await asyncio.sleep(0.003)
            await streams.append(S, [committed(20), ended()])

        async def follow() -> list[StreamMessage]:
            seen: list[StreamMessage] = []
            while not seen or seen[-1].kind == "chunk":
                page = await other.read(S, len(seen), 7)
                seen.extend(page)
                await asyncio.sleep(0)
                if not page:
                    await other.wait(S, len(seen), LONG_S)
            return seen

        async with asyncio.timeout(4 * SOON_S):
            seen, _ = await asyncio.gather(follow(), write())
        assert seen == await everything(streams) and len(seen) == 22

    async def test_delete(self, streams: StreamManager, other: StreamManager) -> None:
        """A deletion removes everything, may be repeated, and lets the stream start again at 1 through any manager."""
        for n in range(3):
            await streams.append(S, [started(), text(n, f"{n}")])
        await streams.append("another", [started(session="another"), text(0, "kept", session="another")])
        await other.delete(S)
        await other.delete(S)
        assert await streams.info(S) is None and await streams.read(S) == [] == await other.read(S)
        assert len(await streams.read("another")) == 1
        await streams.append(S, [started(), text(0, "again")])
        assert await texts(other) == ["again"]

    async def test_chunks_come_back_as_they_were(self, streams: StreamManager) -> None:
        """Chunks with any JSON, any alphabet and large content are preserved."""
        given: Any = {"type": "custom", "event_name": "é\U0001f600", "data": {"a": [1, 2.5, None, True, "x" * 100_000]}}
        made = record("call", step=1, attempt=1, call_id="c", n=0)
        made.chunks = [given]
        await streams.append(S, [started(), made])
        (message,) = await everything(streams)
        assert message.chunk == given and message.run_id == "run_1" and message.session_id == S
