"""The fleet on a Redis server, which several machines could share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fleet.conftest import MakeRuntime
from tests.support import worker_agents
from tests.support.redis_server import RedisServer
from tests.support.worker_agents import logged
from tests.support_fleet import PATIENCE_S, asked


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as made:
        yield made


async def test_a_worker_on_redis_is_killed_and_its_run_goes_on(
    server: RedisServer, runtime_of: MakeRuntime, tmp_path: Path
) -> None:
    runtime = runtime_of(store=server.url)
    await runtime.register_agent("steady", worker_agents.steady)
    await runtime.start()
    (process_id,) = await runtime.start_agent("steady")
    handle = await runtime.execute("steady", "notes 2 block 2")
    await asked(runtime.executor, handle, 2, tmp_path)
    pid = (await runtime.processes.get_process(process_id)).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    result = await handle.result(PATIENCE_S)
    assert (result.status, result.run_id) == ("completed", handle.run_id)
    assert [line for line in logged(tmp_path) if line.startswith("note")] == ["note 1", "note 2"]
