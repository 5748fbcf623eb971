"""SIGKILL at every write and every call to the provider of runs whose steps go into batches. Another process ends the runs,
and the provider has executed each request once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_batches import plays
from tests.support.batch_servers import OpenAIBatchServer
from tests.support_processes import Worker

RUNS = 2


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder, numbers = tmp_path_factory.mktemp("batches"), count()
    with OpenAIBatchServer(plays) as server:
        worker = Worker("batch_worker", {**os.environ, **server.environment()})

        def trial(at: Any) -> dict[str, Any]:
            """Run with a kill at that point, then again without one. Return the answer of the first process."""
            db: Path = folder / f"{next(numbers)}.db"
            server.executed.clear()
            first = worker.ask(db=str(db), runs=RUNS, at=at)
            last = worker.ask(db=str(db), runs=RUNS) if first["signal"] else first
            assert "error" not in last, last["error"]
            assert last["found"] == [["completed", "three", None]] * RUNS, at
            assert (last["problems"], last["batches"]) == ([], []), at
            assert sorted(server.executed.values()) == [1] * 2 * RUNS, f"bought twice after a kill at {at}"
            return first

        yield trial
        worker.close()


def test_nothing_is_bought_twice_wherever_a_process_is_killed(trials: Any) -> None:
    points = [point for point in trials(None)["points"] if point[1] == 0]
    names = {name for name, _ in points}
    assert {"provider:send:before", "provider:send:after", "transact:mark_batched:after"} <= names
    assert {"transact:store_batched:after", "provider:answer:after", "transact:continue_batched:after"} <= names
    killed = [point for point in points if trials(point)["signal"] == signal.SIGKILL]
    assert len(killed) > len(points) / 2  # not every point is reached each time, because batches differ
