"""Worker processes and supervisors are killed: others notice and continue, nothing is done twice, and the rows record
it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.conftest import MakeRuntime
from tests.support import worker_agents
from tests.support.worker_agents import logged
from tests.support_fleet import PATIENCE_S, asked, processes_of, seen

from helix.core.json import loads
from helix.core.messages import ToolResultMessage
from helix.fleet import AgentRuntime, ProcessStatus, ResourceConfig
from helix.fleet.process_info import is_living
from helix.fleet.rows import read_processes
from helix.services.work_queue import LEASE_S
from helix.testing.invariants import check_session

ROOT = Path(__file__).parents[2]


async def test_sigkill_in_mid_call(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    """The death is noticed, the worker restarted, and the same run continues without repeating finished tools. At the end
    its slot is released."""
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady)
    await runtime.start()
    (process_id,) = await runtime.start_agent("steady")
    handle = await runtime.execute("steady", "notes 2 block 2")
    await asked(runtime.executor, handle, 2, tmp_path)
    before = await runtime.processes.get_process(process_id)
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)
    (crashed,) = await processes_of(runtime, "steady", lambda infos: infos[0].last_error is not None)
    assert "SIGKILL" in (crashed.last_error or "")
    result = await handle.result(PATIENCE_S)
    assert (result.status, result.run_id) == ("completed", handle.run_id)
    assert [line for line in logged(tmp_path) if line.startswith("note")] == ["note 1", "note 2"]
    assert logged(tmp_path).count("asked notes 2 block 2") == 2  # the call that was killed, and its repetition
    (after,) = await processes_of(runtime, "steady", lambda infos: infos[0].status is ProcessStatus.RUNNING)
    assert (after.process_id, after.restart_count) == (process_id, 1)
    assert after.pid != before.pid
    runs = (await runtime.executor.sessions.list_runs(handle.session_id)).runs
    assert [run.run_id for run in runs] == [handle.run_id]
    assert runtime.engine.slots is not None

    async def released() -> bool:
        return not await runtime.engine.slots.holders("steady") and not await runtime.queue.open_work()  # type: ignore[union-attr]

    await seen(runtime.store, ("control", "work"), released)
    await check_session(runtime.store, runtime.engine.streams, handle.session_id, at_rest=True)


@pytest.mark.slow
async def test_a_tool_that_kills_its_workers_has_a_result(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    """After three deaths the call is not started again. The run continues, and the process survives and serves other
    runs."""
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady)
    await runtime.start()
    await runtime.start_agent("steady")
    handle = await runtime.execute("steady", "tool die")
    result = await handle.result(3 * PATIENCE_S)
    assert (result.status, logged(tmp_path)) == ("completed", ["die"] * 3)
    assert await codes(runtime, handle.session_id) == ["tool_crashed"]
    assert (await (await runtime.execute("steady", "notes 0")).result(PATIENCE_S)).status == "completed"
    (info,) = await read_processes(runtime.store, "steady")
    assert "exited with code 7" in (info.last_error or "")


async def codes(runtime: AgentRuntime, session_id: str) -> list[Any]:
    """Return the error codes of the session's failed calls."""
    messages = (await runtime.executor.sessions.get_messages(session_id)).messages
    return [loads(message.content)["code"] for message in messages if isinstance(message, ToolResultMessage)]


@pytest.mark.slow
async def test_a_process_over_its_memory_limit_is_ended(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(memory_limit_mb=250))
    await runtime.start()
    await runtime.start_agent("steady")
    handle = await runtime.execute("steady", "tool hog")
    infos = await processes_of(runtime, "steady", lambda infos: infos[0].status is ProcessStatus.CRASHED)
    assert "its limit is 250 MiB" in (infos[0].last_error or "")
    assert infos[0].memory_mb > 250
    result = await handle.result(3 * PATIENCE_S)
    assert (result.status, logged(tmp_path)) == ("completed", ["hog"] * 3)
    assert await codes(runtime, handle.session_id) == ["tool_crashed"]
    assert (await (await runtime.execute("steady", "notes 0")).result(PATIENCE_S)).status == "completed"


async def test_a_parent_with_more_children_than_workers_finishes(runtime_of: MakeRuntime) -> None:
    runtime = runtime_of(max_workers=1)
    await runtime.register_agent("steady", worker_agents.steady)
    await runtime.start()
    handle = await runtime.execute("steady", "children 6")
    result = await handle.result(PATIENCE_S)
    assert (result.status, len(await runtime.processes.list_processes())) == ("completed", 1)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("where", "at_most_s"), [("", 20.0), ("elsewhere", LEASE_S + 20.0)])
async def test_the_next_supervisor_takes_over_from_a_dead_one(
    where: str, at_most_s: float, runtime_of: MakeRuntime, tmp_path: Path
) -> None:
    """Supervisor and worker are killed in a model call. On the same machine their deaths are seen and the run continues at
    once. On another machine they are known only after the worker's lease ends."""
    command = [sys.executable, "-m", "tests.support.fleet_runtime", str(tmp_path), *filter(None, [where])]
    runtime = runtime_of()  # also sets the folder for the other process
    old = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert old.stdout is not None
    process_id = (await asyncio.wait_for(old.stdout.readline(), PATIENCE_S)).decode().strip()
    try:
        await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(shutdown_timeout=5))
        handle = await runtime.execute("steady", "notes 2 block 2")
        await asked(runtime.executor, handle, 2, tmp_path)
        (worker,) = await read_processes(runtime.store, "steady")
        assert worker.pid is not None
    finally:
        old.kill()
        await old.wait()
    os.killpg(worker.pid, signal.SIGKILL)
    clock = asyncio.get_running_loop().time
    died = clock()
    await runtime.start()
    result = await handle.result(at_most_s + PATIENCE_S)
    took = clock() - died
    print(f"\nsupervisor and worker killed {where or 'here'}: {took:.1f} s")
    assert (result.status, result.run_id) == ("completed", handle.run_id)
    assert took < at_most_s
    infos = {info.process_id: info for info in await read_processes(runtime.store, "steady")}
    assert where or infos[process_id].status is ProcessStatus.STOPPED
    assert len(infos) == 2


async def test_workers_do_not_outlive_their_supervisor(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.fleet_runtime", str(tmp_path)]
    runtime = runtime_of()
    old = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert old.stdout is not None
    await asyncio.wait_for(old.stdout.readline(), PATIENCE_S)
    (worker,) = await read_processes(runtime.store, "steady")
    assert is_living(worker.pid, worker.born)
    old.kill()
    await old.wait()
    async with asyncio.timeout(PATIENCE_S):
        while is_living(worker.pid, worker.born):
            await asyncio.sleep(0.05)  # its parent is dead, so no process can wait for its exit


@pytest.mark.slow
@pytest.mark.parametrize("cores", [0.3, 1.0])
async def test_the_cpu_limit_is_kept(runtime_of: MakeRuntime, cores: float) -> None:
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(cpu_limit=cores))
    await runtime.start()
    (process_id,) = await runtime.start_agent("steady")
    info = await runtime.processes.get_process(process_id)
    handle = await runtime.execute("steady", "tool burn")
    import psutil

    process = psutil.Process(info.pid)
    if cores == 1.0:
        assert len(process.cpu_affinity()) == 1
        return
    begun = process.cpu_times().user
    loop = asyncio.get_running_loop()
    since = loop.time()
    await handle.result(PATIENCE_S)
    used = (process.cpu_times().user - begun) / (loop.time() - since)
    assert used < 0.55  # of a core; without the limit it would use a whole one
