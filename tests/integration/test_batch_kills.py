"""SIGKILL at every write of batches and at every call to the provider. Another process ends the runs, and the provider has
executed each request once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from tests.integration.test_batches import plays
from tests.support.batch_servers import OpenAIBatchServer
from tests.support_processes import Worker

RUNS, ZYGOTES = 2, 3
ABOUT_BATCHES = ("provider:", *(f"transact:{name}:" for name in ("claim_step", "stage", "commit", "put_batch_queue")))
Point = tuple[str, int]


class Trials:
    """Zygotes that share a provider."""

    def __init__(self, folder: Path, server: OpenAIBatchServer) -> None:
        self.folder, self.server, self.numbers = folder, server, count()
        self.zygotes = [Worker("batch_worker", {**os.environ, **server.environment()}) for _ in range(ZYGOTES)]
        self.free: SimpleQueue[Worker] = SimpleQueue()
        for zygote in self.zygotes:
            self.free.put(zygote)

    def trial(self, at: Point | None) -> dict[str, Any]:
        """Run with a kill at that point, then again without one. Return the answer of the first process."""
        zygote = self.free.get()
        try:
            db = str(self.folder / f"{next(self.numbers)}.db")
            first = zygote.ask(db=db, runs=RUNS, at=at)
            last = zygote.ask(db=db, runs=RUNS) if first["signal"] else first
        finally:
            self.free.put(zygote)
        assert "error" not in last, f"{at}: {last['error']}"
        assert last["found"] == [["completed", "three", None]] * RUNS, at
        assert (last["problems"], last["batches"]) == ([], []), at
        assert set(self.server.executed.values()) == {1}, f"bought twice by a trial beside {at}"
        return first


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    with OpenAIBatchServer(plays) as server:
        made = Trials(tmp_path_factory.mktemp("batches"), server)
        yield made
        for zygote in made.zygotes:
            zygote.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_is_bought_twice_wherever_a_process_is_killed(trials: Trials) -> None:
    first = [(name, n) for name, n in trials.trial(None)["points"] if n == 0]
    points = [point for point in first if "batch" in point[0] or point[0].startswith(ABOUT_BATCHES)]
    names = {name for name, _ in points}
    assert {"provider:send:before", "provider:send:after", "transact:mark_batched:after"} <= names
    assert {"transact:store_batched:after", "provider:answer:after", "transact:continue_batched:after"} <= names
    with ThreadPoolExecutor(ZYGOTES) as pool:
        answers = list(pool.map(trials.trial, points))
    assert sum(answer["signal"] == signal.SIGKILL for answer in answers) == len(points)
    assert sum(trials.server.executed.values()) == 2 * RUNS * (1 + len(points))
