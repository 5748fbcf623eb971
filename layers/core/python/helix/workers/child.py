"""One operating system process, in its own process group, and the pipes to it.

Law: a process that `reports` receives JSON lines on its standard input. The first line is its assignment. Later lines are
orders, `{"do": "leave" | "drain", "grace_s": ...}`. The end of the input means that its supervisor is gone. One line on its
standard output reports that it is ready, or why it cannot start. Any other process is a command. Everything else that a
process prints is its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from helix._private_files import make_folder
from helix.core.json import JsonObject, load_object
from helix.fleet.process_info import ProcessInfo
from helix.workers.tasks import first_of

LAST_WORDS = 2_000
MAX_SAID = 500


class NotReadyError(Exception):
    """The process ended, took too long, or reported that it cannot start. The first argument is the reason."""


@dataclass(frozen=True, slots=True)
class Command:
    """The command line and the environment of a process."""

    argv: tuple[str, ...]
    """The program and its arguments."""
    given: JsonObject | None = None
    """The assignment for a process that `reports`. `worker_id` and `process_id` are added. None adds no other fields."""
    reports: bool = False
    """Whether the process reads orders and reports that it is ready. If not, it is a plain command, which may end on its
    own."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The variables that are added to this process's environment for the new process."""
    cwd: str | None = None
    """The working directory. None: this process's own."""


class Child:
    def __init__(self, process: asyncio.subprocess.Process, command: Command, log: Path) -> None:
        self.process, self.exited = process, asyncio.Event()
        self._command, self._log = command, log
        self._waiting = asyncio.get_running_loop().create_task(self._wait())

    @classmethod
    async def start(cls, command: Command, log: Path, info: ProcessInfo) -> Child:
        """Start the process. Raises `OSError`."""
        pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        with _open_log(log) as file:
            process = await asyncio.create_subprocess_exec(
                *command.argv,
                stdin=pipe if command.reports else none,
                stdout=pipe if command.reports else file,
                stderr=file,
                env={**os.environ, **command.env},
                cwd=command.cwd,
                process_group=0,
            )
        child = cls(process, command, log)
        if command.reports:
            child._send({**(command.given or {}), "process_id": info.process_id, "worker_id": info.worker_id})
        return child

    @property
    def pid(self) -> int:
        return self.process.pid

    async def ready(self, timeout_s: float, ends: asyncio.Event) -> None:
        """Wait until the process reports that it is ready. Raises `NotReadyError`, also when the process is asked to end
        first."""
        if not self._command.reports:
            return
        assert self.process.stdout is not None
        line = asyncio.get_running_loop().create_task(self.process.stdout.readline())
        try:
            await first_of(line, ends.wait(), timeout_s=timeout_s)
            if not line.done():
                late = f"it was not ready within {timeout_s:g} s"
                raise NotReadyError("it was asked to end before it was ready" if ends.is_set() else late)
            said = load_object(line.result())
        except ValueError:
            raise NotReadyError("its first line of output is too long for a ready message") from None
        finally:
            line.cancel()
        if said is None:
            await self.exited.wait()
            raise NotReadyError(self.how_it_ended() or "it ended before it was ready")
        if said.get("status") != "ready":
            raise NotReadyError(str(said.get("error", "it said that it cannot start"))[:MAX_SAID])

    def ask(self, what: str, grace_s: float) -> None:
        """Ask the process to leave within `grace_s`, or to drain."""
        if self._command.reports:
            self._send({"do": what, "grace_s": grace_s})
        elif what == "leave":
            self._signal(signal.SIGTERM)

    async def end(self, timeout_s: float | None) -> None:
        """Wait for the process to exit, and kill it after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.exited.wait()
        except TimeoutError:
            self.kill()
            await self.exited.wait()

    def kill(self) -> None:
        """Kill the whole process group, including processes that a dead process left running."""
        self._signal(signal.SIGKILL)

    def how_it_ended(self) -> str | None:
        """Return how the process ended. None if the process is still running, or is a command that finished."""
        code = self.process.returncode
        if code is None or (code == 0 and not self._command.reports):
            return None
        how = f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it exited with code {code}"
        words = self._read_last_line() if code >= 0 else ""
        return f"{how}: {words}" if words else how

    # --- internals ------------------------------------------------------------------------------------------------

    async def _wait(self) -> None:
        try:
            await self.process.wait()
        except asyncio.CancelledError:  # the event loop stops without a shutdown, so the process must be killed here
            self.kill()
            await self.process.wait()
        finally:
            if self.process.stdin is not None:
                self.process.stdin.close()
            self.exited.set()

    def _send(self, line: JsonObject) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(ConnectionError, RuntimeError):  # it has ended, and its exit is handled elsewhere
            self.process.stdin.write(json.dumps(line).encode() + b"\n")

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _read_last_line(self) -> str:
        """Return the last line of the process's log."""
        lines = read_end(self._log, LAST_WORDS).strip().splitlines()
        return lines[-1].strip()[:MAX_SAID] if lines else ""


def read_end(log: Path, last_bytes: int) -> str:
    """Return the last bytes of a log as a string, or "" if it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - last_bytes))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _open_log(log: Path) -> BinaryIO:
    """Open the log. It contains output from users' code, so only its owner may read it."""
    make_folder(log.parent)
    return open(log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600))
