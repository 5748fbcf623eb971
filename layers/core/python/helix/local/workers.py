"""Lambda workers: a pool of processes, each one execution environment of one published version of a function.

Law: an environment serves one invocation at a time, lives on after an exception of the handler (as on AWS), and dies
with a time-out, a kill or a failed start. A new version of a function never waits for the old one: idle environments of
older code are ended when newer code is first called, busy ones when they are done. Unpacked code is kept by its hash,
so that environments share it and its compiled files.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from helix.adapters.system import SystemClock
from helix.local.worker_process import MARK, PATH

SCRIPT = Path(__file__).with_name("worker_process.py")
START_S = 60.0
"""An environment that is not ready by then has failed to start."""
LOG_S = 1.0
"""How long an answer waits for the rest of its log."""
KILLED = "Runtime.ExitError"
_SOCKETS = re.compile(
    r"https?://[\w.:-]+/_aws/execute-api/(\w+)/([\w$-]+)|https://(\w+)\.execute-api\.[\w.-]+/([\w$-]+)"
)

IDS = ("session_id", "run_id", "step", "call")

Sink = Callable[[dict[str, Any]], None]
"""Takes {"function", "version", "request_id", "about", "time", "line"}: a line of a function's log, as it is written;
`about` has the ids that the function was called with."""


@dataclass(frozen=True, slots=True)
class Code:
    """What an environment runs. `zips` are the function's package and then its layers, first come first on the path."""

    function: str
    version: str
    handler: str
    zips: tuple[bytes, ...]
    environment: Mapping[str, str]
    memory_mb: int = 128

    @property
    def key(self) -> str:
        parts = [self.function, self.version, self.handler, json.dumps(dict(self.environment), sort_keys=True)]
        return hashlib.sha256("\0".join(parts + [_name(data) for data in self.zips]).encode()).hexdigest()


@dataclass(slots=True)
class Answer:
    """`result` or `error`, which is Lambda's {"errorType", "errorMessage", "stackTrace"}; `log` is what was written."""

    result: Any = None
    error: dict[str, Any] | None = None
    log: list[str] = field(default_factory=list)


class Worker:
    """One process. Made by `Pool`; `invoke` is called by one thread at a time."""

    def __init__(self, code: Code, folders: Sequence[Path], environment: Mapping[str, str], sink: Sink) -> None:
        self.code, self.busy, self.idle_since = code, True, 0.0
        self._sink, self._clock = sink, SystemClock()
        self._request, self._about, self._log = "", dict[str, Any](), list[str]()
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._log_done = threading.Event()
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(SCRIPT)],
            cwd=folders[0],
            env={**environment, PATH: os.pathsep.join(_path(folders))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        threading.Thread(target=self._read_answers, daemon=True).start()
        threading.Thread(target=self._read_log, daemon=True).start()
        self._ready = False

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def start(self) -> dict[str, Any] | None:
        """Wait until the handler is loaded. Returns the failure, if it is one."""
        if self._ready:
            return None
        answer = self._next(START_S)
        if answer is None or answer["status"] == "error":
            self.end()
            return _error(answer or {"errorType": KILLED, "errorMessage": "the worker ended while it started"})
        self._ready = True
        return None

    def invoke(self, event: Any, request_id: str, arn: str, timeout_s: float) -> Answer:
        self._request, self._about, self._log = request_id, _ids(event), []
        self._log_done.clear()
        if (failure := self.start()) is not None:
            self._log_done.wait(0.05)
            return Answer(error=failure, log=self._log)
        request = {"event": event, "request_id": request_id, "arn": arn, "timeout_s": timeout_s}
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:  # killed while idle
            return Answer(error=self._exited(request_id), log=self._log)
        try:
            answer = self._next(timeout_s)
        except queue.Empty:
            self.end()
            message = f"Task timed out after {timeout_s:.2f} seconds"
            return Answer(error={"errorType": "Sandbox.Timedout", "errorMessage": message}, log=self._log)
        if answer is None:
            return Answer(error=self._exited(request_id), log=self._log)
        self._log_done.wait(LOG_S)
        if answer["status"] == "error":
            return Answer(error=_error(answer), log=self._log)
        return Answer(result=answer["result"], log=self._log)

    def end(self) -> None:
        """Kill it. Whoever waits for its answer gets `KILLED`."""
        self._process.kill()
        self._process.wait()

    def _next(self, seconds: float) -> dict[str, Any] | None:
        """Raises `queue.Empty` after `seconds`."""
        return self._answers.get(timeout=seconds)

    def _exited(self, request_id: str) -> dict[str, Any]:
        status = self._process.wait()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        message = f"RequestId: {request_id} Error: Runtime exited with error: {how}"
        return {"errorType": KILLED, "errorMessage": message}

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put(None)

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if line.startswith(MARK):
                if line[len(MARK) :].strip() == self._request:
                    self._log_done.set()
                continue
            text = line.rstrip("\n")
            self._log.append(text)
            where = {"function": self.code.function, "version": self.code.version, "request_id": self._request}
            self._sink({**where, "about": self._about, "time": self._clock.now(), "line": text})
        self._log_done.set()


class Pool:
    """All environments. `folder` keeps unpacked code; `endpoint` is the emulator's URL; `base` the environment that every
    function begins with, below its own."""

    def __init__(self, folder: Path, endpoint: str, base: Mapping[str, str], sink: Sink) -> None:
        self._folder, self._endpoint, self._base, self._sink = folder, endpoint, dict(base), sink
        self._lock, self._clock = threading.Lock(), SystemClock()
        self._workers: list[Worker] = []
        self._newest: dict[str, str] = {}
        self._closed = False

    def invoke(
        self, code: Code, credentials: Mapping[str, str], event: Any, request_id: str, arn: str, timeout_s: float
    ) -> Answer:
        worker = self._take(code, credentials)
        answer = None
        try:
            answer = worker.invoke(event, request_id, arn, timeout_s)
            return answer
        finally:
            if answer is None:
                worker.end()
            self._give_back(worker)

    @property
    def busy(self) -> bool:
        """Whether a function is at work."""
        with self._lock:
            return any(worker.busy for worker in self._workers)

    def tell(self, code: Code, request_id: str, event: Any, line: str) -> None:
        """Add a line to the function's log, as Lambda itself does."""
        where = {"function": code.function, "version": code.version, "request_id": request_id, "about": _ids(event)}
        self._sink({**where, "time": self._clock.now(), "line": line})

    def warm(self, code: Code, credentials: Mapping[str, str]) -> None:
        """Start an environment for the next call, unless one is idle. A failure to start is the next call's to tell."""
        worker = self._take(code, credentials)
        worker.start()
        self._give_back(worker)

    def kill(self, function: str) -> int:
        """SIGKILL to every busy environment of the function. Returns how many."""
        with self._lock:
            busy = [w for w in self._workers if w.busy and w.code.function == function]
        for worker in busy:
            worker.end()
        return len(busy)

    def retire(self) -> None:
        """End what is idle, and what is busy when it is done."""
        with self._lock:
            self._newest.clear()
            idle = [w for w in self._workers if not w.busy]
            self._workers = [w for w in self._workers if w.busy]
        for worker in idle:
            worker.end()

    def close(self) -> None:
        with self._lock:
            self._closed, workers, self._workers = True, self._workers, []
        for worker in workers:
            worker.end()

    def _take(self, code: Code, credentials: Mapping[str, str]) -> Worker:
        key = code.key
        with self._lock:
            old = [w for w in self._workers if not w.busy and w.code.function == code.function and w.code.key != key]
            self._newest[code.function] = key
            dead = [w for w in self._workers if not w.busy and not w.alive]
            self._workers = [w for w in self._workers if w not in old and w not in dead]
            for worker in self._workers:
                if not worker.busy and worker.code.key == key:
                    worker.busy = True
                    break
            else:
                worker = self._spawn(code, credentials)
                self._workers.append(worker)
        for stale in old:
            stale.end()
        return worker

    def _give_back(self, worker: Worker) -> None:
        with self._lock:
            stale = self._newest.get(worker.code.function) != worker.code.key
            if worker.alive and not stale and not self._closed:
                worker.busy = False
                return
            self._workers = [w for w in self._workers if w is not worker]
        worker.end()

    def _spawn(self, code: Code, credentials: Mapping[str, str]) -> Worker:
        folders = [self._unpack(data) for data in code.zips]
        own = {name: self._local(value) for name, value in code.environment.items()}
        runtime = {
            "AWS_ENDPOINT_URL": self._endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_python{sys.version_info[0]}.{sys.version_info[1]}",
            "AWS_LAMBDA_FUNCTION_NAME": code.function,
            "AWS_LAMBDA_FUNCTION_VERSION": code.version,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(code.memory_mb),
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{code.function}",
            "AWS_LAMBDA_LOG_STREAM_NAME": code.key[:32],
            "LAMBDA_TASK_ROOT": str(folders[0]),
            "_HANDLER": code.handler,
            **credentials,
        }
        return Worker(code, folders, {**self._base, **runtime, **own}, self._sink)

    def _local(self, value: str) -> str:
        """A WebSocket stage's address, AWS's or that of an earlier start on another port, is here."""
        return _SOCKETS.sub(
            lambda found: f"{self._endpoint}/_aws/execute-api/{found[1] or found[3]}/{found[2] or found[4]}", value
        )

    def _unpack(self, data: bytes) -> Path:
        folder = self._folder / _name(data)
        if not folder.is_dir():
            fresh = folder.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            with zipfile.ZipFile(io.BytesIO(data)) as package:
                package.extractall(fresh)
            fresh.rename(folder)
        return folder


@lru_cache(maxsize=64)  # asked for at each invocation, and packages are large
def _name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:20]


def _ids(event: Any) -> dict[str, Any]:
    return {name: event[name] for name in IDS if name in event} if isinstance(event, dict) else {}


def _path(folders: Sequence[Path]) -> list[str]:
    """As Lambda's: the function's own folder, then what layers have in python/."""
    code, *layers = folders
    return [str(code), *(str(layer / "python") for layer in layers if (layer / "python").is_dir())]


def _error(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {name: answer[name] for name in ("errorType", "errorMessage", "stackTrace") if name in answer}
