"""SIGKILL at every call to the store and the stream, before and after it. A new process reaches the same transcript.

Processes are forked from a warm one. A trial is a run that is killed at one point, and a run that resumes and checks.
`tests/support/crash_worker.py` has the checks: no finished tool and no staged answer is requested again, every invariant of
rows and stream holds, and the transcript is that of an undisturbed run.
"""

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from queue import SimpleQueue

import pytest
from tests.support_processes import Worker

ZYGOTES = 3
Point = tuple[str, int]


class Trials:
    """Zygotes that try points concurrently."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.numbers = count()
        self.zygotes = [Worker("crash_worker") for _ in range(ZYGOTES)]
        self.free: SimpleQueue[Worker] = SimpleQueue()
        for zygote in self.zygotes:
            self.free.put(zygote)
        answer = self.zygotes[0].ask(do="run", db=str(folder / "reference.db"))
        assert "error" not in answer, answer["error"]
        self.points: list[Point] = [(name, n) for name, n in answer["points"]]
        answer = self.zygotes[0].ask(do="resume", db=str(folder / "reference.db"))
        assert "error" not in answer, answer["error"]
        self.transcript = answer["transcript"]

    def trial(self, *kills: Point) -> bool:
        """Die at each of these points in turn, then end normally. Return whether every process reached its point."""
        zygote = self.free.get()
        try:
            db = str(self.folder / f"trial-{next(self.numbers)}.db")
            hits = 0
            for number, kill in enumerate(kills):
                answer = zygote.ask(do="run" if number == 0 else "resume", db=db, at=kill, deaths=number)
                assert "error" not in answer, f"killed at {kills[: number + 1]}: {answer['error']}"
                hits += answer["signal"] == signal.SIGKILL
            answer = zygote.ask(do="resume", db=db, deaths=len(kills))
            assert "error" not in answer, f"after kills at {kills}: {answer['error']}"
            assert answer["transcript"] == self.transcript, f"another transcript after kills at {kills}"
            return hits == len(kills)
        finally:
            self.free.put(zygote)

    def all(self, trials: Sequence[Sequence[Point]]) -> int:
        """Return the number of trials that died at their points."""
        with ThreadPoolExecutor(ZYGOTES) as pool:
            return sum(pool.map(lambda kills: self.trial(*kills), trials))

    def close(self) -> None:
        for zygote in self.zygotes:
            zygote.close()


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    made = Trials(tmp_path_factory.mktemp("sigkill"))
    yield made
    made.close()


def test_a_reference_run_passes_every_kind_of_point(trials: Trials) -> None:
    names = {name for name, _ in trials.points}
    wanted = [
        "claim_execute",
        "stage",
        "claim_step",
        "call_result",
        "report_to_parent",
        "commit",
        "append_segment",
        "effects_done",
    ]
    assert {f"transact:{name}:{when}" for name in wanted for when in ("before", "after")} <= names
    assert {"get:session:before", "query:message:after", "append:fold:before", "append:end:after"} <= names
    assert len(trials.points) > 150


def test_some_points(trials: Trials) -> None:
    steady = [point for point in trials.points if "append" not in point[0]]  # a busy machine makes fewer appends
    chosen = steady[::10]
    assert trials.all([[point] for point in chosen]) >= len(chosen) * 0.8


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_point(trials: Trials) -> None:
    hits = trials.all([[point] for point in trials.points])
    print(f"\nSIGKILL at {hits} of {len(trials.points)} points")
    assert hits >= len(trials.points) * 0.9  # timers may skip a flush now and then


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_deaths(trials: Trials) -> None:
    """The process that resumes dies as well, anywhere, and the third one continues."""
    first, second = trials.points[5::9], trials.points[3::23]
    pairs = [[point, second[number % len(second)]] for number, point in enumerate(first)]
    assert trials.all(pairs) > len(pairs) // 4  # the second process may finish before its point
