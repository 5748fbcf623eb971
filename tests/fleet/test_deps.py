"""Dependencies of tools in worker processes: each process makes them once, and closes them when it leaves."""

from __future__ import annotations

from pathlib import Path

from tests.fleet.conftest import MakeRuntime
from tests.support import worker_agents
from tests.support.worker_agents import logged
from tests.support_fleet import PATIENCE_S

from helix.fleet import ResourceConfig


async def test_a_process_makes_the_dependencies_of_tools_once_and_closes_them(
    runtime_of: MakeRuntime, tmp_path: Path
) -> None:
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(min_instances=1, max_instances=2))
    await runtime.start()
    (process_id,) = await runtime.start_agent("steady")
    pid = (await runtime.processes.get_process(process_id)).pid
    for _ in range(2):
        assert (await (await runtime.execute("steady", "tool borrow")).result(PATIENCE_S)).status == "completed"
    assert logged(tmp_path) == ["pool opened", *[f"borrowed in process {pid}"] * 2]
    await runtime.shutdown(5)
    assert logged(tmp_path)[-1] == "pool closed"
