"""The emulator as a child process: starting it, sending it commands, receiving its events and ending it.

Law: it ends when its parent ends (because its standard input closes) or calls `close`, and saves its state first. It never
touches other processes. Only one emulator at a time uses a folder. Function log lines reach every listener in the order in
which they were written.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from queue import Empty, Queue
from typing import IO, Any

from helix._private_files import make_folder, make_private, private_files
from helix.core.errors import OperatorError
from helix.local.credentials import new_credentials
from helix.local.emulator import HOSTS, SAVE_S, SAVED_S, settings

START_S = 30.0
END_S = 20.0
COMMAND_S = 120.0
LOOK_S = 0.05

Listener = Callable[[dict[str, Any]], None]
"""A function that receives a line of a function's log: {"function", "version", "request_id", "about", "time", "line"}."""


class OfflineError(OperatorError):
    """The offline cloud cannot start, or cannot continue. The message says what to do."""

    code = "offline"


class PortTakenError(OfflineError):
    """Another program is listening on the port."""

    code = "port_taken"


class FolderInUseError(OfflineError):
    """Another running offline cloud is using the folder for its state."""

    code = "folder_in_use"


class Emulator:
    """An emulator.

    port: 0 for a free one. folder: the folder for the state, objects, unpacked code and the emulator's log. auth: whether
    IAM is enforced. wait_scale: a factor for the waits and retry intervals of state machines. workers: the maximum number
    of workers, or 0 for as many as this machine supports. hosts: the names by which containers reach this machine. without:
    the names of corrections to leave out. saved_s: the time between two saves of the state, if it has changed. The
    attribute `credentials` contains credentials for the account's root user, which were created for this object alone.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        auth: bool = True,
        wait_scale: float = 1.0,
        workers: int = 0,
        environment: Mapping[str, str],
        hosts: Collection[str] = (),
        without: Collection[str] = (),
        saved_s: float = SAVED_S,
    ) -> None:
        self.folder, self.port = folder.resolve(), port or free_port()
        self.credentials = new_credentials()
        self._own = {SAVE_S: str(saved_s), **({HOSTS: ",".join(hosts)} if hosts else {})}
        self._auth, self._scale, self._environment = auth, wait_scale, environment
        self._words = [str(workers), *without]
        self._listeners: list[Listener] = []
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Queue[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._log: IO[str] | None = None
        self._owned: IO[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_path(self) -> Path:
        return self.folder / "emulator.log"

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def start(self) -> None:
        """Start the emulator, and return once it accepts requests. Raises `FolderInUseError`, `PortTakenError` and
        `OfflineError`."""
        with private_files():
            make_folder(self.folder)
            if self.folder.stat().st_uid != os.getuid():
                raise OfflineError(f"{str(self.folder)!r} belongs to another user; choose another folder with --state")
            if self.folder.stat().st_mode & 0o077:  # created by an earlier version
                make_private(self.folder)
            self._owned = _lock_folder(self.folder)
            try:
                _require_free(self.port)
                self._start(self._owned)
            except BaseException:
                self.kill()
                raise

    def _start(self, owned: IO[str]) -> None:
        self._log = self.log_path.open("w", encoding="utf-8")
        options = {"auth": self._auth, "wait_scale": self._scale}
        environment = settings(self.port, self.folder, self.credentials, self._environment, **options)  # type: ignore[arg-type]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "helix.local.emulator", str(self.port), str(self.folder), *self._words],
            env={**environment, **self._own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
            pass_fds=[owned.fileno()],  # the child keeps the folder's lock until its state is saved, even if we end
            start_new_session=True,  # Ctrl-C must reach only this process, which shuts the emulator down
        )
        ready: Queue[dict[str, Any]] = Queue()
        self._waiting[0] = ready
        reader = threading.Thread(target=self._read_events, args=(self._process,), daemon=True)
        reader.start()
        self._reader = reader  # only now, because a signal may end the start here, and `kill` joins the thread
        try:
            reply = ready.get(timeout=START_S)
        except Empty:
            reply = {"error": f"it does not answer after {START_S:.0f} s"}
        if "error" in reply:
            raise OfflineError(f"MiniStack did not start: {reply['error']}; its log is {str(self.log_path)!r}")

    def ask(self, command: str, **fields: Any) -> Any:
        """Send a command (`helix.local.commands`) and return its result. Raises `OfflineError`."""
        number, replies = next(self._numbers), Queue[dict[str, Any]]()
        self._waiting[number] = replies
        try:
            with self._lock:
                assert self._process is not None and self._process.stdin is not None, "start it first"
                self._process.stdin.write(json.dumps({"id": number, "command": command, **fields}) + "\n")
                self._process.stdin.flush()
            reply = replies.get(timeout=COMMAND_S)
        except (OSError, Empty) as error:
            raise OfflineError(
                f"the emulator does not answer {command!r}; its log is {str(self.log_path)!r}"
            ) from error
        finally:
            del self._waiting[number]
        if "error" in reply:
            raise OfflineError(f"{command!r} failed: {reply['error']}")
        return reply["result"]

    def close(self) -> None:
        """Shut the emulator down cleanly. Afterwards its state is on disk."""
        if self._process is None:
            return
        self._close_input(self._process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self.kill()

    def kill(self) -> None:
        """Kill the emulator and its workers, if they are still running."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._close_input(self._process)
        if self._reader is not None:
            self._reader.join(END_S)
        elif self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        for file in (self._log, self._owned):
            if file is not None:
                file.close()

    @staticmethod
    def _close_input(process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()

    def _read_events(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                event = json.loads(line)
                if event.pop("type") == "log":
                    for listener in self._listeners:
                        listener(event)
                elif (waiting := self._waiting.get(event.get("id", 0))) is not None:
                    waiting.put(event)
        for waiting in list(self._waiting.values()):
            waiting.put({"error": f"it ended: {_last_line(self.log_path)}"})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _lock_folder(folder: Path) -> IO[str]:
    """Acquire the folder's lock, which is held while the file or a duplicate of it is open. Raises `FolderInUseError`.

    If the holder's parent has ended, the holder is an emulator that is saving its state before it exits, so wait for it.
    """
    lock, ends = (folder / "lock").open("a+", encoding="utf-8"), time.monotonic() + END_S
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            return lock
        lock.seek(0)
        holder = lock.read()
        if _is_running(holder) or time.monotonic() > ends:
            lock.close()
            raise FolderInUseError(
                f"{str(folder)!r} is in use: process {holder or '?'} runs an offline cloud from it; end that, or choose "
                "another folder with --state"
            )
        time.sleep(LOOK_S)


def _is_running(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise PortTakenError(
                f"port {port} is in use: stop the process that listens there (another offline cloud?), "
                "or choose another with --port"
            ) from error


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "without a message"
