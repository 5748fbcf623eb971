"""ProcessManager with system commands: it starts, watches, ends, restarts and gives up processes."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix.core.resources import ResourceConfig
from helix.fleet import (
    Command,
    ProcessFailedError,
    ProcessInfo,
    ProcessManager,
    ProcessNotFoundError,
    ProcessStatus,
    RestartPolicy,
)
from helix.workers.usage import bind_cores

PATIENCE_S = 20.0
STAYS = Command((sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"))
STUBBORN = Command(
    (
        sys.executable,
        "-c",
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
    )
)


class Watched:
    """A manager that records all its reports."""

    def __init__(self, folder: Path, **policy: float) -> None:
        self.told: list[ProcessInfo] = []
        self.ends: list[tuple[str, bool]] = []
        self.changed = asyncio.Condition()
        self.manager = ProcessManager(
            logs=folder,
            on_change=self._note,
            on_end=self._end,
            policy=RestartPolicy(**{"first_s": 0.01, **policy}),  # type: ignore[arg-type]
            jitter=lambda: 0.0,
        )

    async def _note(self, info: ProcessInfo) -> None:
        async with self.changed:
            self.told.append(info)
            self.changed.notify_all()

    async def _end(self, info: ProcessInfo, crashed: bool) -> None:
        self.ends.append((info.worker_id, crashed))

    async def until(self, status: ProcessStatus, count: int = 0) -> ProcessInfo:
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(lambda: self.told[-1].status is status and self.told[-1].restart_count >= count)
        return self.told[-1]

    async def logged(self, process_id: str, text: str) -> None:
        """Wait until the process has logged the text. A child process can report in no other way."""
        async with asyncio.timeout(PATIENCE_S):
            while text not in self.manager.read_log(process_id):
                await asyncio.sleep(0.01)


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    made = Watched(tmp_path)
    yield made
    await made.manager.shutdown(1)


async def test_a_process_is_started_listed_and_stopped(watched: Watched) -> None:
    manager = watched.manager
    started = await manager.start_process("job", STAYS)
    info = await manager.ready(started.process_id)
    assert info.pid is not None and os.getpgid(info.pid) == info.pid
    assert [found.process_id for found in await manager.list_processes("job")] == [info.process_id]
    assert (await manager.get_process(info.process_id)).status is ProcessStatus.RUNNING
    stopped = await manager.stop_process(info.process_id)
    assert (stopped.status, stopped.pid, stopped.last_error) == (ProcessStatus.STOPPED, None, None)
    statuses = [told.status.value for told in watched.told]
    order = ["starting", "running", "stopping", "stopped"]
    assert [s for n, s in enumerate(statuses) if n == 0 or statuses[n - 1] != s] == order
    assert watched.ends == [(info.worker_id, False)]


async def test_one_that_does_not_listen_is_killed(watched: Watched) -> None:
    info = await watched.manager.start_process("job", STUBBORN)
    await watched.logged(info.process_id, "up")
    pid = (await watched.manager.get_process(info.process_id)).pid
    assert pid is not None and Path(f"/proc/{pid}").exists()
    stopped = await watched.manager.stop_process(info.process_id, timeout_s=0.2)
    assert stopped.status is ProcessStatus.STOPPED
    assert not Path(f"/proc/{pid}").exists(), "it is dead, and not only called stopped"


async def test_its_children_end_with_it(watched: Watched, tmp_path: Path) -> None:
    code = "import subprocess, sys, time; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); time.sleep(600)"
    info = await watched.manager.start_process("job", Command((sys.executable, "-c", code)))
    await watched.logged(info.process_id, "\n")
    grandchild = int(watched.manager.read_log(info.process_id))
    assert Path(f"/proc/{grandchild}/status").exists()
    await watched.manager.kill_process(info.process_id)
    async with asyncio.timeout(PATIENCE_S):
        while (
            Path(f"/proc/{grandchild}/status").exists()
            and "zombie" not in Path(f"/proc/{grandchild}/status").read_text()
        ):
            await asyncio.sleep(0.01)


async def test_one_that_is_killed_is_started_again(watched: Watched) -> None:
    info = await watched.manager.start_process("job", STAYS)
    ready = await watched.manager.ready(info.process_id)
    assert ready.pid is not None
    os.kill(ready.pid, signal.SIGKILL)
    again = await watched.until(ProcessStatus.RUNNING, 1)
    assert (again.process_id, again.restart_count) == (info.process_id, 1)
    assert again.last_error == "it was killed by SIGKILL"
    assert watched.ends == [(ready.worker_id, True)] and again.worker_id != ready.worker_id


async def test_a_crash_loop_backs_off_and_is_given_up(tmp_path: Path) -> None:
    watched = Watched(tmp_path, limit=3)
    code = "import sys; print('no good', file=sys.stderr); sys.exit(3)"
    info = await watched.manager.start_process("job", Command((sys.executable, "-c", code)))
    failed = await watched.until(ProcessStatus.FAILED)
    assert (failed.restart_count, failed.last_error) == (2, "it exited with code 3: no good")
    assert [crashed for _, crashed in watched.ends] == [True] * 3
    with pytest.raises(ProcessFailedError, match="no good"):
        await watched.manager.ready(info.process_id)
    await watched.manager.restart_process(info.process_id, command=STAYS)  # an explicit restart allows new tries
    assert (await watched.manager.ready(info.process_id)).restart_count == 3
    await watched.manager.shutdown(1)


async def test_one_that_does_not_start_says_why(watched: Watched) -> None:
    watched.manager._policy = RestartPolicy(limit=1)
    info = await watched.manager.start_process("job", Command(("/nowhere/to/be/found",)))
    with pytest.raises(ProcessFailedError, match="cannot be started"):
        await watched.manager.ready(info.process_id)


@pytest.mark.slow
async def test_one_that_never_reports_is_not_ready(tmp_path: Path) -> None:
    watched = Watched(tmp_path, limit=1)
    silent = Command((sys.executable, "-c", "import time; time.sleep(600)"), reports=True)
    info = await watched.manager.start_process("job", silent, resources=ResourceConfig(startup_timeout=5))
    with pytest.raises(ProcessFailedError, match="not ready within 5 s"):
        await watched.manager.ready(info.process_id)


async def test_one_that_says_too_much_is_given_up_like_any_other(tmp_path: Path) -> None:
    """Output that is too long ends the process, but not its supervisor."""
    watched = Watched(tmp_path, limit=2)
    code = "import time; print('x' * 200_000, flush=True); time.sleep(600)"
    await watched.manager.start_process("job", Command((sys.executable, "-c", code), reports=True))
    failed = await watched.until(ProcessStatus.FAILED)
    assert failed.restart_count == 1 and failed.last_error and failed.pid is None


def test_what_is_gone_cannot_be_bound() -> None:
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    assert bind_cores(gone.pid, 0.5) is False


async def test_logs_are_the_owners_alone(watched: Watched) -> None:
    """Logs contain what users' code prints, so only their owner may read them."""
    info = await watched.manager.start_process("job", STAYS)
    await watched.logged(info.process_id, "up")
    assert stat.S_IMODE(Path(info.log).stat().st_mode) == 0o600


async def test_a_command_that_ends_well_is_over(watched: Watched) -> None:
    await watched.manager.start_process("job", Command((sys.executable, "-c", "pass")))
    over = await watched.until(ProcessStatus.STOPPED)
    assert (over.restart_count, over.last_error) == (0, None)


async def test_a_restart_keeps_the_id(watched: Watched) -> None:
    info = await watched.manager.start_process("job", STAYS)
    first = await watched.manager.ready(info.process_id)
    await watched.manager.restart_process(info.process_id, generation=4)
    second = await watched.manager.ready(info.process_id)
    assert (second.generation, second.restart_count, second.pid != first.pid) == (4, 1, True)


async def test_one_that_was_stopped_between_two_lives_is_restarted(tmp_path: Path) -> None:
    watched = Watched(tmp_path, first_s=60)
    info = await watched.manager.start_process("job", Command((sys.executable, "-c", "import sys; sys.exit(3)")))
    await watched.until(ProcessStatus.CRASHED)
    await watched.manager.stop_process(info.process_id)
    code = """import time; print('{"status": "ready"}', flush=True); time.sleep(600)"""
    serves = Command((sys.executable, "-c", code), reports=True)
    await watched.manager.restart_process(info.process_id, command=serves)
    assert (await watched.manager.ready(info.process_id)).restart_count == 1
    await watched.manager.shutdown(1)


async def test_memory_over_the_limit_ends_it(tmp_path: Path) -> None:
    watched = Watched(tmp_path, limit=1)
    code = "x = bytearray(200 << 20); x[::4096] = b'x' * len(x[::4096]); import time; time.sleep(600)"
    limits = ResourceConfig(memory_limit_mb=100)
    await watched.manager.start_process("job", Command((sys.executable, "-c", code)), resources=limits)
    failed = await watched.until(ProcessStatus.FAILED)
    assert "its limit is 100 MiB" in (failed.last_error or "") and failed.memory_mb > 100


async def test_what_is_not_there(watched: Watched) -> None:
    for verb in (watched.manager.get_process, watched.manager.stop_process, watched.manager.restart_process):
        with pytest.raises(ProcessNotFoundError):
            await verb("nobody")


def test_pauses_grow_and_healthy_lives_begin_anew() -> None:
    policy = RestartPolicy(first_s=1, longest_s=5, healthy_s=60, limit=6)
    deaths, pauses = 0, []
    for _ in range(6):
        deaths = policy.in_a_row(deaths, lived_s=2)
        pauses.append(policy.pause_s(deaths, jitter=0))
    assert pauses == [1, 2, 4, 5, 5, None]
    assert policy.in_a_row(5, lived_s=61) == 1
    assert policy.pause_s(1, jitter=1) == 1.5
