"""A stage changes between Kinesis and direct streaming during runs, and no chunk is lost.

The deliveries of a turn follow each other as in a run: each is acknowledged before the next begins. Records on Kinesis are
projected late, some long after they were acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, Literal

import pytest
from botocore.exceptions import ClientError

from helix import MemoryStateStore
from helix.adapters.aws import direct
from helix.adapters.aws.direct import AwaitedStreams, DirectStreams
from helix.adapters.aws.kinesis import KinesisStreams
from helix.adapters.system import SystemClock
from helix.core.errors import StoreError
from helix.core.log_records import unpack
from helix.ports.streams import StreamManager
from helix.services.segments import Entry, SegmentStreams
from helix.testing.contracts.streams import S, committed, ended, everything, record, started, text, texts, types

Mode = Literal["kinesis", "both", "direct"]
STEPS = 12
pytestmark = pytest.mark.asyncio


class Stage:
    """Kinesis with a late projector. `gone` is the error of Kinesis once the stage's stream is deleted."""

    def __init__(self, seed: int = 0) -> None:
        self.store, self.random = MemoryStateStore(), Random(seed)
        self.data: list[bytes] = []
        self.projected, self.gone, self.projects = 0, "", True

    def put_record(self, **request: Any) -> dict[str, Any]:
        if self.gone:
            raise ClientError({"Error": {"Code": self.gone, "Message": "no"}}, "PutRecord")
        self.data.append(request["Data"])
        return {"SequenceNumber": str(10**55 + len(self.data))}

    async def project(self, limit: int) -> None:
        for place in range(self.projected, min(len(self.data), self.projected + limit)):
            stream_id, records = unpack(self.data[place])
            await SegmentStreams(self.store).project(stream_id, [Entry(str(10**55 + place), records)])
            self.projected = place + 1

    def process(self, mode: Mode) -> StreamManager:
        """Return the streams of a function's new process."""
        log = SegmentStreams(self.store)
        match mode:
            case "kinesis":
                return KinesisStreams(self, "chunks", log, SystemClock())
            case "both":
                return AwaitedStreams(self, "chunks", log, Late(self))
            case "direct":
                return DirectStreams(self.store, clock=SystemClock())


class Late(SystemClock):
    """A clock that lets the projector take a record whenever a process waits."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._passed = stage, 0.0

    def now(self) -> float:
        return super().now() + self._passed

    async def sleep(self, seconds: float) -> None:
        self._passed += seconds
        if self._stage.projects:
            await self._stage.project(1)
        await asyncio.sleep(0)


async def play(stage: Stage, modes: Sequence[Mode]) -> list[str]:
    """Play a turn: one delivery per step, in the mode of its function."""
    for step, mode in enumerate(modes, 1):
        process = stage.process(mode)
        if step == 1:
            await process.append(S, [started()])
        await process.append(S, [text(0, f"{step}a", step=step), text(1, f"{step}b", step=step)])
        await process.append(S, [committed(2, step=step)])
        if step == len(modes):
            await process.append(S, [ended(last=(step, 1))])
        if stage.random.random() < 0.3:
            await stage.project(stage.random.randrange(6))
    await stage.project(len(stage.data))
    return await types(SegmentStreams(stage.store))


WHOLE = ["text_delta", "text_delta", "step_committed"] * STEPS + ["end"]


def changing(random: Random, first: Mode, then: Mode) -> list[Mode]:
    """Return modes in which both deployments serve for a while, the old functions concurrently with the new ones."""
    begin, over = sorted(random.sample(range(1, STEPS), 2))
    return [first if n < begin else random.choice((first, then)) if n < over else then for n in range(STEPS)]


@pytest.mark.parametrize("seed", range(40))
async def test_neighbours_lose_nothing(seed: int) -> None:
    """The pairs are kinesis and both, and both and direct, in either direction."""
    stage = Stage(seed)
    pairs: list[tuple[Mode, Mode]] = [("kinesis", "both"), ("both", "kinesis"), ("both", "direct"), ("direct", "both")]
    modes = changing(stage.random, *pairs[seed % 4])
    assert await play(stage, modes) == WHOLE
    assert await texts(SegmentStreams(stage.store)) == [f"{n}{x}" for n in range(1, STEPS + 1) for x in "ab"]


async def test_kinesis_and_direct_are_no_neighbours() -> None:
    """This is why there is a setting between them: records on their way are overtaken, and taken for those of a dead
    attempt."""
    modes: list[Mode] = ["kinesis", "direct"]
    assert "step_discarded" in await play(Stage(), [mode for mode in modes for _ in range(6)])


@pytest.mark.parametrize("code", sorted(direct.GONE))
async def test_a_function_that_outlives_the_stream_appends_by_itself(code: str) -> None:
    stage = Stage()
    process = stage.process("both")
    await process.append(S, [started(), text(0, "a")])
    stage.gone = code
    await process.append(S, [text(1, "b"), committed(2)])
    assert await texts(SegmentStreams(stage.store)) == ["a", "b"]


async def test_what_is_refused_for_another_reason_is_not_appended() -> None:
    """It would overtake records on Kinesis."""
    stage = Stage()
    stage.gone = "ProvisionedThroughputExceededException"
    with pytest.raises(StoreError):
        await stage.process("both").append(S, [started(), text(0, "a")])
    assert await everything(SegmentStreams(stage.store)) == []


async def test_an_append_that_is_not_taken_in_time_is_repeated() -> None:
    """The writer's repeat is on Kinesis twice, and on the log once."""
    stage = Stage()
    stage.projects = False
    process = stage.process("both")
    with pytest.raises(StoreError, match="project_stream has not taken"):
        await process.append(S, [started(), text(0, "a")])
    stage.projects = True
    await process.append(S, [started(), text(0, "a")])
    await stage.project(len(stage.data))
    assert len(stage.data) == 2 and await texts(SegmentStreams(stage.store)) == ["a"]


async def test_records_of_a_dead_attempt_are_not_waited_for() -> None:
    """Such records never reach the log."""
    stage = Stage()
    await stage.process("both").append(S, [started(), text(0, "dead"), text(0, "alive", attempt=2)])
    await stage.process("both").append(S, [text(1, "late")])
    assert await texts(SegmentStreams(stage.store)) == ["dead", "alive"]


async def test_a_repeat_of_an_earlier_modes_records_changes_nothing() -> None:
    """Kinesis redelivers records that were projected before functions began to append by themselves."""
    stage = Stage()
    await stage.process("both").append(S, [started(), text(0, "a"), committed(1)])
    await stage.process("direct").append(S, [text(0, "b", step=2)])
    stage.projected = 0
    await stage.project(len(stage.data))
    tools = [record("call", step=2, attempt=1, call_id="c", n=0, mark="committed")]
    await stage.process("direct").append(S, tools)
    assert await texts(SegmentStreams(stage.store)) == ["a", "b"]
