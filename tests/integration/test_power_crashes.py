"""The power fails at any call to the store or the stream. A new process reaches the same transcript from the data on disk.

As in `test_sigkill.py`, but data that the dying process had not synced is lost, torn or there (`tests/support/power.py`).
External effects of its tools stay, and each row whose write was acknowledged must exist.
"""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.support import power
from tests.support_processes import Worker

pytestmark = power.NEEDED
Point = tuple[str, int]


class Losses:
    def __init__(self, folder: Path) -> None:
        self.folder, self.disk, self.log = folder, folder / "disk", folder / "log"
        self.disk.mkdir()
        self.numbers = count()
        self.dying = Worker("crash_worker", power.variables(self.disk, self.log))
        self.well = Worker("crash_worker")
        reference = str(folder / "reference.db")
        answer = self.well.ask(do="run", db=reference)
        self.points: list[Point] = [(name, n) for name, n in answer["points"]]
        self.transcript = self.well.ask(do="resume", db=reference)["transcript"]

    def trial(self, point: Point, seed: int, synchronous: str = "FULL") -> bool:
        """Return whether the process reached the point. If it ended before, the power fails after its end."""
        name = f"{next(self.numbers)}.db"
        self.log.write_bytes(b"")
        died = self.dying.ask(do="run", db=str(self.disk / name), at=point, synchronous=synchronous)
        assert "error" not in died, f"until {point}: {died['error']}"
        records = power.read(self.log)
        for path, data in power.after_loss(records, len(records), random.Random(seed)).items():
            if path in (name, f"{name}-wal"):
                (self.folder / path).write_bytes(data)
        for done in (self.disk / f"{name}.log", self.disk / f"{name}.told"):
            if done.exists():
                shutil.copy(done, self.folder)
        answer = self.well.ask(do="resume", db=str(self.folder / name))
        assert "error" not in answer, f"after a loss at {point}, seed {seed}: {answer['error']}"
        assert answer["transcript"] == self.transcript, f"another transcript after a loss at {point}, seed {seed}"
        return bool(died["signal"] == signal.SIGKILL)

    def close(self) -> None:
        self.dying.close()
        self.well.close()


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Losses]:
    made = Losses(tmp_path_factory.mktemp("power"))
    yield made
    made.close()


def test_some_points(losses: Losses) -> None:
    chosen = losses.points[::24]
    assert sum(losses.trial(point, seed) for seed, point in enumerate(chosen)) >= len(chosen) * 0.8


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_points(losses: Losses) -> None:
    chosen = losses.points[5::3]
    assert sum(losses.trial(point, seed) for seed, point in enumerate(chosen)) >= len(chosen) * 0.8


def test_without_syncs_something_is_lost(losses: Losses) -> None:
    """Otherwise the tests above would prove nothing."""
    with pytest.raises(AssertionError, match="after a loss at"):
        for seed, point in enumerate(losses.points[-60::3]):
            losses.trial(point, seed, "NORMAL")
