"""A real redis-server on a free port of 127.0.0.1, with its own folder, which tests start, kill and restart.

On a machine without it these tests are skipped with a reason. In CI they fail.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

PATIENCE_S = 20.0


class RedisServer:
    """A server. `options` are lines of redis.conf as pairs: `appendonly="yes"`. Without any, it writes nothing to disk."""

    def __init__(self, folder: Path, **options: str) -> None:
        binary = shutil.which("redis-server")
        if binary is None:
            missing = "these tests need a real Redis server: apt-get install redis-server"
            if os.environ.get("CI"):
                pytest.fail(missing)
            pytest.skip(missing)
        self._binary, self._folder = binary, folder
        self._log = folder / "log"
        self.port = free_port()
        self._options = {"save": "", "appendonly": "no"} | {k.replace("_", "-"): v for k, v in options.items()}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return once it has read its file and listens. If another process took its port meanwhile, it takes another port,
        unless it ran before and clients know the port."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for _ in range(1 if self._process is not None else 5):
            if self._began():
                return
            self.port = free_port()
        raise AssertionError(f"redis-server did not start: {self._log.read_text()}")

    def _began(self) -> bool:
        command = [self._binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        for name, value in self._options.items():
            command += [f"--{name}", *([""] if not value else value.split())]
        self._log.write_bytes(b"")
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE_S
        while "Ready to accept connections" not in self._log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                process.wait()
                return False
            time.sleep(0.005)
        self._process = process
        return True

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def kill(self) -> None:
        """Kill it as a crash does: without a goodbye, and without saving anything."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Pause it. Connections stay open, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def ask(self, *command: str) -> str:
        """Send one command, and return the first line of its answer, or "" if no server listens."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
                connection.sendall((" ".join(command) + "\r\n").encode())
                return connection.makefile("rb").readline().decode().strip()
        except OSError:
            return ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
