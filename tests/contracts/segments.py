"""Contract of a segment log behind another log: repeated batches are recognized, reported again and never appended
again."""

from __future__ import annotations

import asyncio

import pytest

from helix.core.sequencer import StreamRecord
from helix.core.wire import StreamMessage
from helix.services.segments import Entry, SegmentStreams
from helix.testing.contracts.streams import S, committed, ended, everything, record, started, text, texts

# 56 digits, as in Kinesis. Compared as strings, or as numbers of 38 digits, they are in another order.
POSITIONS = [str(10**55 + n) for n in range(40)]
SHORT = "9" * 55


def entries(*records: StreamRecord, first: int = 0) -> list[Entry]:
    """Give each record a position of its own, from `first` on."""
    return [Entry(POSITIONS[first + n], [one]) for n, one in enumerate(records)]


def said(messages: list[StreamMessage]) -> list[str]:
    """Return the texts of messages, and the kinds of messages without text."""
    return [
        str(message.chunk.get("delta", message.chunk["type"])) if message.chunk else message.kind
        for message in messages
    ]


class SegmentLogContract:
    """Expects the fixture `log`. The fixture `other` is a second projector on the same data, where that exists."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def other(self, log: SegmentStreams) -> SegmentStreams:
        return log

    async def test_what_is_new_is_reported(self, log: SegmentStreams) -> None:
        """`project` returns the messages of new records with their sequences in the log."""
        first = await log.project(S, entries(started(), text(0, "a", "b")))
        second = await log.project(S, entries(text(1, "c"), first=2))
        assert said(first) == ["a", "b"] and said(second) == ["c"]
        assert [*first, *second] == await everything(log)

    async def test_a_batch_that_comes_again_is_reported_again(self, log: SegmentStreams, other: SegmentStreams) -> None:
        """Any projector reports a repeated batch again, and nothing is appended."""
        await log.project(S, entries(started(), text(0, "before")))
        batch = entries(text(1, "a"), text(2, "b"), first=2)
        once = await log.project(S, batch)
        assert await log.project(S, batch) == once == await other.project(S, batch)
        assert said(once) == ["a", "b"] and await texts(other) == ["before", "a", "b"]

    async def test_a_batch_that_comes_again_with_more(self, log: SegmentStreams, other: SegmentStreams) -> None:
        """Known and new records of one batch are reported in one order."""
        batch = entries(started(), text(0, "a"), text(1, "b"), text(2, "c"))
        await log.project(S, batch[:2])
        assert said(await other.project(S, batch)) == ["a", "b", "c"]
        assert said(await log.project(S, batch[2:])) == ["b", "c"]
        assert await texts(log) == ["a", "b", "c"]

    async def test_positions_are_ordered_as_numbers(self, log: SegmentStreams) -> None:
        """A position with one more digit is later, whatever its digits are."""
        await log.project(S, [Entry(SHORT, [started(), text(0, "a")])])
        assert said(await log.project(S, [Entry(POSITIONS[0], [text(1, "b")])])) == ["b"]
        assert said(await log.project(S, [Entry(POSITIONS[0], [text(1, "b")])])) == ["b"]
        assert said(await log.project(S, [Entry(SHORT, [started(), text(0, "a")])])) == ["a", "b"]

    async def test_a_producers_repeat_says_nothing(self, log: SegmentStreams) -> None:
        """The same records at later positions are a producer's retry. They are recognized and not reported again."""
        await log.project(S, entries(started(), text(0, "a")))
        assert await log.project(S, entries(started(), text(0, "a"), first=2)) == []
        assert await texts(log) == ["a"]

    async def test_two_projectors_of_one_batch(self, log: SegmentStreams, other: SegmentStreams) -> None:
        """A projector that timed out and its successor work concurrently. There is one log, and each of them reports the
        whole batch."""
        await log.project(S, entries(started()))
        batch = entries(*(text(n, f"{n}", "x" * 60_000) for n in range(8)), first=1)
        both = await asyncio.gather(log.project(S, batch), other.project(S, batch))
        messages = await everything(log)
        assert [said(mine) for mine in both] == [said(messages)] * 2

    async def test_a_beginning_without_a_chunk_is_remembered(self, log: SegmentStreams, other: SegmentStreams) -> None:
        """A run's first record tells how the step before it ended. That also counts for the projector of the next
        record."""
        call = record("call", step=1, attempt=1, call_id="c", n=0, mark="committed")
        call.chunks = [{"type": "tool_end", "tool_call_id": "c"}]
        await log.project(
            S, entries(started(), text(0, "a"), committed(1), call, ended(status="paused", mark="paused"))
        )
        before = await everything(log)
        assert await other.project(S, entries(started(2, last=(1, 1)), first=5)) == []
        again = [committed(0, turn=2), call.model_copy(update={"turn": 2, "run_id": "run_2"})]
        assert await log.project(S, entries(*again, first=6)) == []
        assert await everything(other) == before
        assert said(await other.project(S, entries(text(0, "b", step=2, turn=2), first=8))) == ["b"]

    async def test_nothing_is_too_large(self, log: SegmentStreams, other: SegmentStreams) -> None:
        """Many chunks at once, and one that fills an item alone, are read back unchanged."""
        many = [text(n, f"{n}." + "é" * 4_000) for n in range(100)]
        await log.project(S, [Entry(POSITIONS[0], [started(), *many]), Entry(POSITIONS[1], [text(100, "z" * 500_000)])])
        messages = await everything(other)
        assert len(messages) == 101 and said(messages)[-1] == "z" * 500_000
        assert await log.project(S, [Entry(POSITIONS[1], [text(100, "z" * 500_000)])]) == messages[-1:]

    async def test_a_stream_can_be_failed(self, log: SegmentStreams, other: SegmentStreams) -> None:
        """The failure belongs to no run. It discards the open step once, is repeated at its position, and the next turn
        goes on."""
        await log.project(S, entries(started(), text(0, "a")))
        once = await log.fail(S, "why", POSITIONS[2], now=2.0)
        assert said(once) == ["step_discarded", "fail"]
        last = once[-1]
        assert (last.status, last.error, last.turn, last.session_id) == ("failed", "why", 1, S)
        assert await other.fail(S, "why", POSITIONS[2], now=3.0) == once
        assert await other.project(S, entries(text(1, "late"), ended(), first=3)) == []
        assert said(await log.project(S, entries(started(2), text(0, "b", turn=2), first=5))) == ["b"]

    async def test_an_unknown_stream_can_be_failed(self, log: SegmentStreams) -> None:
        """A client that waits for the first run of the stream learns of the failure."""
        assert said(await log.fail(S, "why", POSITIONS[0], now=2.0)) == ["fail"]
        info = await log.info(S)
        assert info is not None and info.status == "failed"

    async def test_info_reports_where_the_turn_began(self, log: SegmentStreams) -> None:
        """`info` returns the last sequence before the turn and the turn's number. A claimed run may not be in the log
        yet."""
        await log.project(S, entries(started(), text(0, "a"), ended()))
        await log.project(S, entries(started(2), text(0, "b", turn=2), first=3))
        info = await log.info(S)
        assert info is not None and (info.turn, info.began, info.latest_sequence) == (2, 3, 4)
