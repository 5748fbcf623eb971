"""Workers, commands started by them, and their rows and logs, after their supervisor is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.fleet.conftest import MakeRuntime
from tests.support import worker_agents
from tests.support.worker_agents import logged
from tests.support_fleet import PATIENCE_S, processes_of, seen

from helix.core.row_keys import SESSION
from helix.fleet import AgentRuntime, ProcessInfo, ProcessStatus, ResourceConfig
from helix.fleet.process_info import is_living
from helix.fleet.rows import MAX_PROCESSES, put_process, read_processes
from helix.ports.state_store import Key, Put
from helix.services.open_runs import open_run_key

ROOT = Path(__file__).parents[2]


async def test_a_tools_command_does_not_read_the_workers_orders(runtime_of: MakeRuntime) -> None:
    """The command has its own empty input. With the worker's input it would block and consume the supervisor's messages."""
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady)
    await runtime.start()
    result = await (await runtime.execute("steady", "tool swallow")).result(PATIENCE_S)
    assert result.status == "completed"


@pytest.mark.slow
async def test_a_worker_that_hears_nothing_ends_with_its_supervisor(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    """The worker's event loop is blocked and it has started a command. Both end with the supervisor."""
    command = [sys.executable, "-m", "tests.support.fleet_runtime", str(tmp_path)]
    runtime = runtime_of()
    old = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert old.stdout is not None
    await asyncio.wait_for(old.stdout.readline(), PATIENCE_S)
    await runtime.register_agent("steady", worker_agents.steady, ResourceConfig(shutdown_timeout=5))
    await runtime.execute("steady", "tool deaf")
    async with asyncio.timeout(PATIENCE_S):
        while not logged(tmp_path):
            await asyncio.sleep(0.05)  # a file sends no notification
    child = int(logged(tmp_path)[0].removeprefix("child "))
    (worker,) = await processes_of(runtime, "steady", lambda infos: bool(infos))
    assert is_living(worker.pid, worker.born) and is_living(child, None)
    old.kill()
    await old.wait()
    async with asyncio.timeout(PATIENCE_S):
        while is_living(worker.pid, worker.born) or is_living(child, None):
            await asyncio.sleep(0.05)  # its parent is dead, so no process can wait for its exit


async def runtime_in_a_program(folder: Path, *arguments: str) -> tuple[asyncio.subprocess.Process, str]:
    """Start a program with a runtime and return it with the id of its worker's process, once the worker serves."""
    command = [sys.executable, "-m", "tests.support.fleet_runtime", str(folder), *arguments]
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=pipe, stderr=pipe)
    assert program.stdout is not None
    line = await asyncio.wait_for(program.stdout.readline(), PATIENCE_S)
    return program, line.decode().strip()


async def finished(program: asyncio.subprocess.Process) -> str:
    """Return the program's standard error. A program that does not end is killed, and the test fails."""
    try:
        _, errors = await asyncio.wait_for(program.communicate(), PATIENCE_S)
    finally:
        if program.returncode is None:
            program.kill()
    return errors.decode()


async def worker_is_gone(runtime: AgentRuntime) -> None:
    (worker,) = await read_processes(runtime.store, "steady")
    async with asyncio.timeout(PATIENCE_S):
        while is_living(worker.pid, worker.born):
            await asyncio.sleep(0.05)


async def test_a_program_that_fails_without_a_shutdown_ends_and_says_why(
    runtime_of: MakeRuntime, tmp_path: Path
) -> None:
    program, _ = await runtime_in_a_program(tmp_path, "raise")
    assert "RuntimeError: the program failed" in await finished(program)
    assert program.returncode == 1
    await worker_is_gone(runtime_of())


async def test_sigterm_ends_a_program_that_waits_for_something_else(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    """The runtime shuts down in order. Then the signal ends the program as it does by default."""
    program, _ = await runtime_in_a_program(tmp_path, "forever")
    program.send_signal(signal.SIGTERM)
    await finished(program)
    assert program.returncode == -signal.SIGTERM
    await worker_is_gone(runtime_of())


async def test_sigterm_lets_a_program_go_on_that_waits_for_the_shutdown(tmp_path: Path) -> None:
    program, _ = await runtime_in_a_program(tmp_path)
    program.send_signal(signal.SIGTERM)
    await finished(program)
    assert program.returncode == 0


def of_another(name: str, number: int, **fields: object) -> ProcessInfo:
    told = {"status": ProcessStatus.RUNNING, "host": "gone", "supervisor": "runtime_gone", **fields}
    return ProcessInfo(process_id=f"proc_{number:04d}", name=name, **told)


async def test_processes_of_a_machine_that_is_gone_are_over(runtime_of: MakeRuntime) -> None:
    """Containers come back under other names, so rows of the old ones must not stay forever."""
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady)
    now = runtime.engine.clock.now()
    await put_process(runtime.store, "steady", of_another("steady", 1, seen_at=now - 3600), now)
    await put_process(runtime.store, "steady", of_another("steady", 2, seen_at=now), now)
    await runtime.start()
    infos = await processes_of(runtime, "steady", lambda infos: infos[0].status is ProcessStatus.STOPPED)
    assert infos[1].status is ProcessStatus.RUNNING


async def test_logs_go_with_the_processes_that_are_forgotten(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    runtime = runtime_of()
    await runtime.register_agent("steady", worker_agents.steady)
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(MAX_PROCESSES + 2):
        (logs / f"proc_{number:04d}.log").write_text("said")
        over = of_another("steady", number, status=ProcessStatus.STOPPED)
        await put_process(runtime.store, "steady", over, runtime.engine.clock.now())
    await runtime.start()
    await processes_of(runtime, "steady", lambda infos: len(infos) <= MAX_PROCESSES)
    async with asyncio.timeout(PATIENCE_S):
        while len(os.listdir(logs)) > MAX_PROCESSES:
            await asyncio.sleep(0.01)  # a folder sends no notification
    assert not (logs / "proc_0000.log").exists() and (logs / "proc_0002.log").exists()


async def test_a_run_that_no_sweep_can_read_keeps_nothing_else_from_being_tidied(runtime_of: MakeRuntime) -> None:
    """Otherwise one unreadable row would keep all finished rows forever."""
    runtime = runtime_of()
    unread = {"session_id": "s1", "agent_type": "steady", "started_at": 0.0}
    ended = {"name": "run_0", "session_id": "s0", "run_id": "run_0", "ttl": 0}
    rows = [
        Put(Key("sessions", "s1", SESSION), {"status": []}),
        Put(open_run_key("run_1"), unread),
        Put(Key("control", "work-ended", f"{1:017.6f}#run_0"), ended),
    ]
    await runtime.store.transact("spoil", rows)
    await runtime.start()

    async def tidied() -> bool:
        return not await runtime.store.query("control", "work-ended")

    await seen(runtime.store, ("control", "work-ended"), tidied)
