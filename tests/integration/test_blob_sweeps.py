"""Files that no session holds are deleted by sweeps, and when an executor is entered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.blob_ages import due_now
from tests.support.sample_files import png

from helix import LocalExecutor, MemoryStateStore, ScriptedModel
from helix.adapters.memory_blobs import MemoryBlobs
from helix.core.delivery import Delivery
from helix.core.errors import StoreError
from helix.core.file_checks import describe
from helix.engine.engine import Settings
from helix.ports.state_store import Key, Row, Value
from helix.services.activity import SWEEP
from helix.services.blob_rows import PARTITIONS, blob_owner, due_partition
from helix.services.file_inputs import ReadFile
from helix.sessions.sweep import sweep
from helix.testing.clocks import SetClock

MINUTE = 60.0
OWNER = blob_owner("ada", "")
SOME = 24


class Partitions(MemoryStateStore):
    """A store that records which partitions of due files are read, and how often the time of the last sweep is."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.beats = 0

    async def query(self, table: str, partition: str, **bounds: object) -> list[Row]:
        if partition.startswith("blobs-due#"):
            self.read.append(partition)
        return await super().query(table, partition, **bounds)  # type: ignore[arg-type]

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        self.beats += keys.count(SWEEP)
        return await super().get(keys)

    def take(self) -> list[str]:
        read, self.read = self.read, []
        return read


class Deletions(MemoryBlobs):
    """Bytes that cannot be deleted while `fails` is true. Each deletion takes a second."""

    def __init__(self, clock: SetClock) -> None:
        super().__init__()
        self.fails, self._clock = False, clock

    async def delete(self, key: str) -> None:
        self._clock.advance(1)
        if self.fails:
            raise StoreError("S3 delete_object: slow down")
        await super().delete(key)


class Place:
    def __init__(self) -> None:
        self.clock, self.store = SetClock(1_000_000.0), Partitions()
        self.blobs = Deletions(self.clock)
        model = ScriptedModel(["done"], repeat=True)
        settings = Settings(session_ttl_s=86_400)
        self.executor = LocalExecutor(self.store, model=model, blobs=self.blobs, clock=self.clock, settings=settings)

    async def upload(self, count: int) -> None:
        """Upload files that no message names, and let their time come."""
        assert self.executor.engine.files is not None
        datas = [png(note=b"%d" % number) for number in range(count)]
        files = [ReadFile(describe(data), data) for data in datas]
        await self.executor.engine.files.uploads.store(OWNER, files)
        for file in files:
            await due_now(self.store, OWNER, file.part.sha256 or "")

    async def sweep(self, lasts_s: float = 3_600) -> int:
        done = await sweep(self.executor.engine, Delivery("sweep", self.clock.now() + lasts_s))
        return done["files deleted"]

    async def left(self) -> int:
        return len(await self.blobs.list("blobs/"))


@pytest.fixture
def place() -> Place:
    return Place()


def names(numbers: Sequence[int]) -> list[str]:
    return [due_partition(number) for number in numbers]


async def test_a_sweep_each_minute_reads_one_partition_and_reaches_all_of_them(place: Place) -> None:
    await place.upload(SOME)
    first = int(place.clock.now() // MINUTE)
    await place.sweep()  # the first one ever looks through all of them
    assert await place.left() == 0
    assert place.store.take() == names([number % PARTITIONS for number in range(first - PARTITIONS + 1, first + 1)])
    await place.upload(SOME)
    read = []
    for _ in range(PARTITIONS):
        place.clock.advance(MINUTE - place.clock.now() % MINUTE)
        deleted = await place.sweep()
        assert deleted < SOME, "the others wait for their minute"
        read += place.store.take()
    assert sorted(read) == sorted(names(range(PARTITIONS))) and await place.left() == 0


async def test_the_first_sweep_of_an_hour_at_rest_looks_through_all_partitions(place: Place) -> None:
    await place.sweep()
    place.store.take()
    place.clock.advance(60 * MINUTE)
    await place.sweep()
    assert sorted(place.store.take()) == sorted(names(range(PARTITIONS)))


async def test_a_sweep_reads_the_time_of_the_last_one_once(place: Place) -> None:
    for times in (1, 2):
        await place.sweep()
        assert place.store.beats == times


async def test_a_sweep_stops_before_its_deadline_and_the_next_one_continues(place: Place) -> None:
    await place.upload(SOME)
    deleted = await place.sweep(15)
    assert deleted == 10, "each deletion takes a second, and the last five seconds stay free"
    assert await place.left() == SOME - deleted
    place.clock.advance(60 * MINUTE)
    assert await place.sweep() == SOME - deleted


async def test_bytes_that_cannot_be_deleted_stay_for_the_next_sweep(place: Place) -> None:
    await place.upload(2)
    place.blobs.fails = True
    assert await place.sweep() == 0 and await place.left() == 2
    place.blobs.fails = False
    place.clock.advance(60 * MINUTE)
    assert await place.sweep() == 2 and await place.left() == 0


async def test_an_executor_that_is_entered_deletes_files_that_are_due(tmp_path: Path) -> None:
    data = png()
    read = ReadFile(describe(data), data)
    folder = tmp_path / "helix.db-files"
    async with LocalExecutor(tmp_path / "helix.db") as executor:
        assert executor.engine.files is not None
        await executor.engine.files.uploads.store(OWNER, [read])
        await due_now(executor.store, OWNER, read.part.sha256 or "")
    assert [path for path in folder.rglob("*") if path.is_file()]
    async with LocalExecutor(tmp_path / "helix.db"):
        assert not [path for path in folder.rglob("*") if path.is_file()]
