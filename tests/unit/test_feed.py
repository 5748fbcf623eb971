"""A client's feed returns messages in the stream's order, whatever order the frames arrive in."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given
from hypothesis import strategies as st

from helix.client.feed import EARLY, Feed, Following, skip_until, whole_stream
from helix.client.link import ClientSettings
from helix.core.errors import StoreError
from helix.core.json import JsonObject
from helix.core.wire import StreamMessage, one_run
from helix.testing.clocks import ShiftedClock


def message(sequence: int, *, session: str = "s", turn: int = 1, kind: str = "chunk", run: str = "r") -> StreamMessage:
    chunk = {"type": "text_delta", "delta": str(sequence)} if kind == "chunk" else None
    return StreamMessage(
        stream_id="s", session_id=session, run_id=run, turn=turn, sequence=sequence, kind=kind, chunk=chunk
    )


def resync(sequence: int) -> StreamMessage:
    chunk = {"type": "stream_resync", "reason": "messages have expired", "from_sequence": sequence}
    return StreamMessage(stream_id="s", session_id="s", run_id="", sequence=sequence, kind="chunk", chunk=chunk)


async def read(feed: Feed) -> list[int]:
    found = []
    while (one := await feed.next(0)) is not None:
        found.append(one.sequence)
    return found


@given(st.integers(0, 30), st.integers(0, 30), st.randoms(use_true_random=False), st.integers(1, 7))
async def test_messages_leave_in_order_and_once(after: int, count: int, dice: random.Random, size: int) -> None:
    feed = Feed("s", after, whole_stream, 1000)
    sent = [message(sequence) for sequence in range(1, after + count + 1)] * 2
    dice.shuffle(sent)
    found: list[int] = []
    while sent:
        feed.add_messages(sent[:size])
        del sent[:size]
        found += await read(feed)
    assert found == list(range(after + 1, after + count + 1))
    assert not feed.has_gap


async def test_a_hole_is_known_until_it_is_filled() -> None:
    feed = Feed("s", 0, whole_stream, 10)
    feed.add_messages([message(1), message(3)])
    assert feed.has_gap and feed.position == 1
    feed.add_messages([message(2)])
    assert not feed.has_gap and await read(feed) == [1, 2, 3]


async def test_what_comes_while_the_timeout_fires_is_read() -> None:
    """The timeout and then the last messages come in one iteration of the event loop. No message is lost."""
    feed, loop = Feed("s", 0, one_run("s", 1), 10), asyncio.get_running_loop()
    reading = asyncio.create_task(feed.next(0.02))
    await asyncio.sleep(0)
    loop.call_later(0.03, feed.add_messages, [message(1), message(2, kind="end")])
    end = loop.time() + 0.05
    while loop.time() < end:  # keeps the loop busy until both are due
        continue
    found = await reading
    assert found is not None and found.sequence == 1 and await read(feed) == [2]


async def test_what_the_log_has_lost_is_told_once_and_passed() -> None:
    feed = Feed("s", 2, one_run("s", 1), 10)
    feed.add_messages([message(9), resync(8), message(10)])
    assert await read(feed) == [8, 9, 10] and not feed.has_gap


async def test_a_run_begins_and_ends_with_its_own_messages() -> None:
    feed = Feed("s", 0, one_run("s", 2), 20)
    feed.add_messages(
        [
            message(1, session="child", turn=1),
            message(2, turn=1, kind="end"),
            message(3, session="child", turn=1),
            message(4, turn=2),
            message(5, session="child", turn=1, kind="end"),
            message(6, turn=2, kind="end"),
            message(7, turn=3),
        ]
    )
    assert feed.done and await read(feed) == [4, 5, 6]


async def test_a_run_that_was_taken_over_ends_with_the_next() -> None:
    feed = Feed("s", 0, one_run("s", 2), 20)
    feed.add_messages([message(1, turn=2), message(2, turn=3)])
    assert feed.done and await read(feed) == [1]


async def test_what_was_seen_is_left_out_also_where_it_was_the_end() -> None:
    feed = Feed("s", 0, skip_until(2, one_run("s", 1)), 20)
    feed.add_messages([message(1), message(2), message(3), message(4, kind="end")])
    assert await read(feed) == [3, 4]
    seen = Feed("s", 0, skip_until(2, one_run("s", 1)), 20)
    seen.add_messages([message(1), message(2, kind="end")])
    assert seen.done and await read(seen) == []


async def test_a_full_feed_takes_no_more_and_says_so() -> None:
    feed = Feed("s", 0, whole_stream, 3)
    feed.add_messages([message(n) for n in range(1, 6)])
    feed.add_messages([message(6)])
    assert feed.dropped and feed.position == 3 and await read(feed) == [1, 2, 3]
    feed.add_messages([message(4), message(5)])
    assert await read(feed) == [4, 5]


async def test_a_feed_that_failed_gives_what_it_has_and_then_raises() -> None:
    feed = Feed("s", 0, whole_stream, 3)
    feed.add_messages([message(1)])
    feed.fail(StoreError("away"))
    assert (await feed.next(0)) is not None
    try:
        await feed.next(0)
    except StoreError:
        return
    raise AssertionError("nothing was raised")


async def test_what_closes_a_gap_is_taken_however_much_lies_behind_it() -> None:
    feed = Feed("s", 0, whole_stream, 3)
    feed.add_messages([message(sequence) for sequence in range(5, 12)])
    assert (feed.has_gap, feed.dropped) == (True, True), "dropped messages are requested again"
    feed.add_messages([message(sequence) for sequence in range(1, 5)])
    found = await read(feed)
    feed.add_messages([message(sequence) for sequence in range(4, 6)])
    assert found + await read(feed) == [1, 2, 3, 4, 5]


async def test_a_reader_that_keeps_up_has_nothing_waiting() -> None:
    """10,000 messages pass through a feed with room for 20."""
    feed = Feed("s", 0, whole_stream, 20)
    for sequence in range(1, 10_001, 10):
        feed.add_messages([message(n) for n in range(sequence, sequence + 10)])
        assert await read(feed) == list(range(sequence, sequence + 10))
        assert not (feed.has_ready or feed.has_gap or feed.dropped)


def following() -> Following:
    """Return the followed streams of a client without a service. Requests are ignored."""

    async def ask(action: str, fields: object) -> JsonObject:
        return {}

    return Following(ask, lambda work: work.close(), ShiftedClock(), ClientSettings())


def on(stream_id: str, sequence: int) -> StreamMessage:
    return message(sequence).model_copy(update={"stream_id": stream_id})


def test_what_comes_before_the_reply_is_there_whatever_else_comes() -> None:
    """Only messages of its own stream are returned. A limited number is stored, the newest ones, and only until the start
    is over."""
    one = following()
    with one.starting():
        one.on_messages("busy", [on("busy", n + 1) for n in range(2 * EARLY)])
        one.on_messages("own", [on("own", 5)])
        feed = one.add("own", 4, whole_stream, subscribed=True)
        assert (feed.has_ready, feed.position, feed.has_gap) == (True, 5, False)
        late = one.add("busy", 0, whole_stream, subscribed=True)
        assert (late.has_ready, late.has_gap) == (False, True)
    assert not one.add("own", 4, whole_stream, subscribed=True).has_ready


def test_a_run_on_a_stream_that_is_read_already_is_there_too() -> None:
    one = following()
    one.add("own", 4, whole_stream, subscribed=True)
    with one.starting():
        one.on_messages("own", [on("own", 5)])
        assert one.add("own", 4, whole_stream, subscribed=True).has_ready
