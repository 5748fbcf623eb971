"""A run's text is appended to the log at once, or at intervals if the log charges for each append."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from unittest.mock import patch

import pytest
from tests.support_streams import STREAM, HandClock, MemoryStreams

from helix.adapters.system import SystemClock
from helix.core.chunk_envelope import ChunkBase
from helix.core.chunks import CustomEventChunk, TextDeltaChunk, ThinkingChunk
from helix.core.errors import StoreError
from helix.core.sequencer import StreamRecord
from helix.core.session_row import SessionRow
from helix.services.run_stream import (
    BURST,
    FIRST_S,
    LONGEST_S,
    RUN,
    SHARED_S,
    TRIES,
    WORDS_PER_S,
    Boundary,
    RunStream,
    Writer,
)

WORDS = Writer("attempt", 1, 1)


class Log(MemoryStreams):
    """A log that records the number of chunks of each append. Appends wait while the gate is closed."""

    def __init__(self, coalesces: bool) -> None:
        super().__init__()
        self.coalesces = coalesces
        self.batches: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        self.batches.append(sum(len(record.chunks) for record in records))
        await self.gate.wait()
        await super().append(stream_id, records)

    def said(self) -> list[str]:
        return [str(m.chunk["delta"]) for m in self.logs.get(STREAM, []) if m.chunk and "delta" in m.chunk]


class Sleeps(HandClock):
    """A clock that records how long it slept. Sleepers wake only after `pass_`."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []
        self.over = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.over.wait()
        self.over.clear()
        self.time += seconds

    async def pass_(self) -> None:
        self.over.set()
        await turns()


async def turns(count: int = 20) -> None:
    """Let all runnable tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)


def opened(log: Log, clock: HandClock) -> RunStream:
    row = SessionRow(
        session_id=STREAM, agent_type="a", stream_id=STREAM, status="running", version=1, run_id="run_1", turn=1
    )
    stream = RunStream(log, clock, row, "run_1", 1)
    stream.put(RUN, boundary=Boundary("started"))
    return stream


def say(stream: RunStream, *texts: str) -> None:
    for text in texts:
        stream.put(WORDS, [TextDeltaChunk(delta=text)])


async def test_words_wait_for_no_clock() -> None:
    log, clock = Log(coalesces=False), Sleeps()
    stream = opened(log, clock)
    for text in "abc":
        say(stream, text)
        await turns()
        assert log.said()[-1] == text
    stream.put(WORDS, [ThinkingChunk(content="hm")])
    await turns()
    assert log.batches == [1, 1, 1, 1] and clock.slept == []


async def test_what_comes_during_an_append_goes_together_with_the_next() -> None:
    log = Log(coalesces=False)
    stream = opened(log, Sleeps())
    log.gate.clear()
    say(stream, "a")
    await turns()
    for text in "bcd":
        say(stream, text)
        await turns()
    assert log.batches == [1] and log.said() == []
    log.gate.set()
    await turns()
    assert log.batches == [1, 3] and log.said() == ["a", "b", "c", "d"]
    assert [m.sequence for m in log.logs[STREAM]] == [1, 2, 3, 4]


async def test_what_the_log_refuses_for_whatever_reason_is_not_lost_in_silence() -> None:
    class Broken(Log):
        async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
            if "b" in str(records):
                raise ValueError("not for this log")
            await super().append(stream_id, records)

    log = Broken(coalesces=False)
    stream = opened(log, Sleeps())
    for text in "abc":
        say(stream, text)
        await turns()
    assert log.said() == ["a"], "no reader gets a later chunk before an earlier one"
    for _ in range(2):
        with pytest.raises(ValueError, match="not for this log"):
            await stream.flush()


async def test_what_nobody_reads_aloud_waits_for_company() -> None:
    """Steps without text have several chunks each. One append for each chunk would make short steps slow."""
    log, clock = Log(coalesces=False), Sleeps()
    stream = opened(log, clock)
    stream.put(WORDS, [CustomEventChunk(event_name="x")])
    await turns()
    assert log.batches == [] and clock.slept == [FIRST_S]
    say(stream, "a")  # this append includes the waiting chunk
    await turns()
    assert log.batches == [2] and log.said() == ["a"]
    stream.put(WORDS, [CustomEventChunk(event_name="y")])
    await turns()
    await clock.pass_()
    assert log.batches == [2, 1] and clock.slept == [FIRST_S, FIRST_S]


async def test_an_event_loop_with_many_runs_makes_fewer_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)  # time stands still, so no share becomes free

    class Brief(SystemClock):
        """A clock that records how long it slept and returns at once."""

        def __init__(self) -> None:
            self.slept: list[float] = []

        async def sleep(self, seconds: float) -> None:
            self.slept.append(seconds)
            await asyncio.sleep(0)

    async def waited(words: bool = False) -> float:
        log, clock = Log(coalesces=False), Brief()
        stream = opened(log, clock)  # type: ignore[arg-type]
        stream.put(WORDS, [CustomEventChunk(event_name="done")])
        if words:
            stream.put(WORDS, [TextDeltaChunk(delta="a")])
        while not log.batches:
            await asyncio.sleep(0)
        await stream.close()
        return sum(clock.slept)

    shares = [await waited() for _ in range(BURST + 20)]
    assert shares[: BURST - 1] == [FIRST_S] * (BURST - 1)
    assert shares[BURST:] == [pytest.approx(SHARED_S)] * 20, "a step's flush takes them along before that"
    assert await waited(words=True) == 0, "words have separate shares"


async def test_a_log_that_charges_for_appends_gets_them_at_growing_intervals() -> None:
    log, clock = Log(coalesces=True), Sleeps()
    stream = opened(log, clock)
    say(stream, "a")
    await turns()
    assert log.batches == [1] and clock.slept == [], "the first word at once"
    for _ in range(6):
        say(stream, "b")
        await turns()
        say(stream, "c")
        await turns()
        await clock.pass_()
    assert log.batches == [1, 2, 2, 2, 2, 2, 2]
    assert clock.slept[:3] == pytest.approx([FIRST_S, FIRST_S * 1.5, FIRST_S * 1.5**2])
    assert clock.slept[-1] == LONGEST_S
    say(stream, *["x" * 500] * 6)
    await turns()
    assert log.batches[-1] == 6, "4 KB do not wait"


async def test_words_said_during_an_append_are_not_left_behind() -> None:
    log, clock = Log(coalesces=True), Sleeps()
    stream = opened(log, clock)
    log.gate.clear()
    say(stream, "a")
    await turns()
    say(stream, "b")
    log.gate.set()
    await turns()
    assert log.said() == ["a"] and clock.slept == [FIRST_S]
    await clock.pass_()
    assert log.said() == ["a", "b"]


@pytest.mark.parametrize("coalesces", [False, True])
async def test_a_model_that_never_yields_is_held_up_until_its_words_are_there(coalesces: bool) -> None:
    log = Log(coalesces)
    stream = opened(log, HandClock())
    said, held_up = 0, list[int]()
    while len(held_up) < 3 and said < 100_000:
        say(stream, "a")
        said += 1
        if (relief := stream.relief()) is not None:
            await relief
            held_up.append(said)
            assert len(log.said()) == said and stream.relief() is None, "no chunk is late now"
    assert held_up[0] == 1 and len(held_up) == 3, "the first word at once"
    assert held_up[1] > 2, "later ones together"


async def test_runs_of_one_event_loop_share_its_appends() -> None:
    log, clock = Log(coalesces=False), Sleeps()
    stream = opened(log, clock)
    for _ in range(20 * BURST):
        say(stream, "a")
        await turns(3)
        if clock.slept:
            break
    assert len(log.batches) >= BURST and 0 < clock.slept[0] <= 1 / WORDS_PER_S
    before = len(log.batches)
    say(stream, "b", "c")
    await turns()
    assert len(log.batches) == before
    await clock.pass_()
    assert log.batches[before:] == [3] and log.said()[-3:] == ["a", "b", "c"]


async def test_relief_may_be_left_alone_and_is_for_the_loops_thread_only() -> None:
    log = Log(coalesces=False)
    stream = opened(log, HandClock())
    for _ in range(100_000):
        say(stream, "a")
        if stream.relief() is not None:
            break
    assert stream.relief() is not None
    assert await asyncio.to_thread(stream.relief) is None
    await stream.close()


async def test_a_log_that_is_away_fails_the_run_and_not_its_model() -> None:
    log = Log(coalesces=False)
    log.lose_next = TRIES
    stream = opened(log, HandClock())
    relief = None
    while relief is None:
        say(stream, "a")
        relief = stream.relief()
    await relief
    with pytest.raises(StoreError):
        await stream.flush()


async def test_chunks_that_are_no_words_are_flushed_with_the_run() -> None:
    log = Log(coalesces=False)
    stream = opened(log, Sleeps())
    chunks: list[ChunkBase] = [CustomEventChunk(event_name="x")]
    stream.put(WORDS, chunks)
    await stream.close()
    assert log.batches == [1]


async def test_what_a_cancelled_flush_took_goes_first_with_the_next_one() -> None:
    log = Log(coalesces=True)
    stream = opened(log, Sleeps())
    await stream.flush()
    log.gate.clear()
    say(stream, "one")
    flush = asyncio.ensure_future(stream.flush())
    await turns()
    flush.cancel()
    await asyncio.wait({flush})
    say(stream, "two")
    log.gate.set()
    await stream.close()
    assert flush.cancelled() and log.said() == ["one", "two"]


async def test_a_flush_that_was_cancelled_too_late_is_known_by_its_numbers() -> None:
    log = Log(coalesces=True)
    stream = opened(log, Sleeps())
    say(stream, "one")
    records = list(stream._pending)
    with patch.object(log, "append", side_effect=asyncio.CancelledError):
        with pytest.raises(asyncio.CancelledError):
            await stream.flush()
    await log.append(STREAM, records)  # the append whose caller was cancelled
    say(stream, "two")
    await stream.close()
    assert log.said() == ["one", "two"]
