"""Start execution environments quickly, by forking them from a template process that has already imported the shared
modules of their layers.

Law: an environment is a separate process and runs the code in its own layers, as if it had been started alone. Only imports
and botocore's descriptions of services are shared, as with SnapStart. They take most of the startup time, and all functions
of a stage start on its first message.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Protocol, cast

from helix.local.worker_process import LENGTH, PATH

SCRIPT = Path(__file__).with_name("worker_process.py")
MOST = 4
"""The maximum number of templates of one emulator. A stage has one for each set of layers, and each edit to an agent
creates a new set."""
START_S = 60.0
"""The timeout for the start of a template or an environment."""
FORKS = sys.platform == "linux"
"""Whether environments are forked. On other platforms system libraries may not survive a fork, so each environment is
started on its own."""


class Process(Protocol):
    """The part of `subprocess.Popen`'s interface that workers use."""

    stdin: IO[str] | None
    """The stream that carries requests to the process."""
    stdout: IO[str] | None
    """The stream that carries its responses."""
    stderr: IO[str] | None
    """The stream that carries its log."""

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...

    def kill(self) -> None: ...


class Templates:
    """The templates of one emulator. `base`: the environment variables common to all functions."""

    def __init__(self, base: Mapping[str, str]) -> None:
        self._base, self._lock = dict(base), threading.Lock()
        self._templates: OrderedDict[str, _Template] = OrderedDict()

    def start(self, folders: Sequence[Path], environment: Mapping[str, str]) -> Process:
        """Start a function's environment. `folders`: the function's package and then its layers. Raises `OSError`,
        including `TimeoutError`, if it cannot be started."""
        own, layers = str(folders[0]), _path(folders[1:])
        variables = {**environment, PATH: os.pathsep.join([own, *layers])}
        if not FORKS:
            return _start_without_template(own, variables)
        path = os.pathsep.join(layers)
        try:
            return self._template_for(path).fork(own, variables)
        except TimeoutError:
            raise
        except OSError:  # the template was killed or evicted since it was chosen
            return self._template_for(path).fork(own, variables)

    def _template_for(self, path: str) -> _Template:
        with self._lock:
            template = self._templates.pop(path, None)
            if template is not None and not template.alive:
                template.close()
                template = None
            template = self._templates[path] = template or _Template({**self._base, PATH: path})
            while len(self._templates) > MOST:
                self._templates.popitem(last=False)[1].close()
            return template

    def close(self) -> None:
        with self._lock:
            for template in self._templates.values():
                template.close()
            self._templates.clear()


class _Template:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._requests, theirs = socket.socketpair()
        self._requests.settimeout(START_S)
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(SCRIPT), str(number)],
                env=environment,
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        self._forking, self._lock = threading.Lock(), threading.Lock()
        self._statuses: dict[int, Future[int]] = {}
        threading.Thread(target=self._read_ends, daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether the template accepts requests."""
        return self._requests.fileno() >= 0 and self._process.poll() is None

    def fork(self, folder: str, environment: Mapping[str, str]) -> Process:
        """Fork an environment. Raises `OSError` if the template is closed or has ended, and `TimeoutError` if it does not
        respond."""
        request = json.dumps({"folder": folder, "environment": dict(environment)}).encode()
        (theirs_in, ours_in), (ours_out, theirs_out), (ours_log, theirs_log) = os.pipe(), os.pipe(), os.pipe()
        given = [theirs_in, theirs_out, theirs_log]
        try:
            with self._forking:
                socket.send_fds(self._requests, [len(request).to_bytes(LENGTH, "big")], given)
                self._requests.sendall(request)
                reply = self._requests.recv(LENGTH, socket.MSG_WAITALL)
            if not reply:
                raise OSError("the process that forks environments has ended")
        except OSError:
            given += [ours_in, ours_out, ours_log]
            self.close()  # a late answer to this request would be mistaken for the next one's
            raise
        finally:
            for pipe in given:
                os.close(pipe)
        ident = int.from_bytes(reply, "big")
        return _Forked(ident, self._status(ident), *map(_open_text, (ours_in, ours_out, ours_log), "wrr"))

    def close(self) -> None:
        """Stop forking. Environments that the template forked continue, and it still reports their exit."""
        self._requests.close()

    def _read_ends(self) -> None:
        assert self._process.stdout is not None
        with self._process:
            for line in self._process.stdout:
                ident, status = map(int, line.split())
                self._status(ident).set_result(status)
        with self._lock:
            left = [(ident, future) for ident, future in self._statuses.items() if not future.done()]
        for ident, future in left:  # the template was killed and cannot report their exits
            _kill(ident)
            future.set_result(-signal.SIGKILL)

    def _status(self, ident: int) -> Future[int]:
        """Return the future of a process's exit status. The owner of the process and the reader of exit reports each call
        this once. The second call removes the future, because the process id may be reused afterwards."""
        with self._lock:
            if (known := self._statuses.pop(ident, None)) is not None:
                return known
            return self._statuses.setdefault(ident, Future())


class _Forked:
    def __init__(self, ident: int, status: Future[int], stdin: IO[str], stdout: IO[str], stderr: IO[str]) -> None:
        self._ident, self._status = ident, status
        self.stdin: IO[str] | None = stdin
        self.stdout: IO[str] | None = stdout
        self.stderr: IO[str] | None = stderr

    def poll(self) -> int | None:
        return self._status.result() if self._status.done() else None

    def wait(self) -> int:
        return self._status.result()

    def kill(self) -> None:
        if not self._status.done():
            _kill(self._ident)


def _kill(ident: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.kill(ident, signal.SIGKILL)


def _start_without_template(folder: str, environment: Mapping[str, str]) -> Process:
    return subprocess.Popen(
        [sys.executable, "-P", str(SCRIPT)],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    )


def _open_text(pipe: int, mode: str) -> IO[str]:
    return cast(IO[str], os.fdopen(pipe, mode, encoding="utf-8", errors="replace"))


def _path(layers: Sequence[Path]) -> list[str]:
    """Return the import path for layers, as on Lambda: the folder python/ of each."""
    return [str(layer / "python") for layer in layers if (layer / "python").is_dir()]
