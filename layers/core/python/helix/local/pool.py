"""The execution environments of all functions: a bounded pool of worker processes and a queue of invocations.

Law: an environment serves one invocation at a time. An invocation takes an idle environment with its code, or a new one is
started. If the limit is reached, an idle environment of another function is evicted, or the invocation waits in the queue.
It never fails because of the limit. Only one or a few environments start at a time, because starting takes processor time,
and most calls end before another environment would be ready. If every environment is blocked (possibly waiting for another
function), one more is started every `STALLED_S` seconds, even beyond the limit, so that no call waits forever.

A new version of a function never waits for the old one. When newer code is called, idle environments with older code are
ended immediately, and busy ones when they are done. Unpacked code is stored by hash, so that environments share it.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from helix.adapters.system import SystemClock
from helix.local.templates import Templates
from helix.local.workers import KILLED, Code, Reply, Sink, Worker, content_name, ids_of

PER_CORE, LEAST = 16, 8
WORKER_BYTES = 150 * 2**20
"""The assumed memory of an environment with Helix and the SDKs loaded."""
MEMORY_SHARE = 0.5
PATIENT_S = 0.25
"""The time in seconds that an invocation waits for a busy environment with its code before another one is started. If there
are already as many environments as cores, another one is started only if none was released in that time."""
STALLED_S = 2.0
SURPLUS_S = 60.0
"""The idle time after which an environment is ended, if another one with the same code is also idle."""
_SOCKETS = re.compile(
    r"https?://[\w.:-]+/_aws/execute-api/(\w+)/([\w$-]+)|https://(\w+)\.execute-api\.[\w.-]+/([\w$-]+)"
)


def limit_of(memory: int, cores: int) -> int:
    """Return the number of environments that a machine supports. It can exceed the number of cores, because environments
    spend most of their time waiting for a model or the emulator."""
    return max(LEAST, min(PER_CORE * cores, int(memory * MEMORY_SHARE) // WORKER_BYTES))


def memory_of_this_machine() -> int:
    """Return the available memory in bytes: the container's limit if there is one, otherwise the machine's memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.is_file() else ""
    return min(memory, int(text)) if text.isdigit() else memory


class _Waiting:
    """An invocation in the queue. `worker` is the environment that it is given. `fresh`: whether that environment still has
    to be started."""

    def __init__(self, code: Code, since: float) -> None:
        self.code, self.key, self.since = code, code.key, since
        self.worker: Worker | None = None
        self.fresh, self.served = False, threading.Event()


class Pool:
    """A pool of environments. `folder` stores unpacked code. `endpoint` is the emulator's URL. `base` contains the
    environment variables of every function, which its own variables override. `limit` is the maximum number of
    environments; 0 means as many as this machine supports."""

    def __init__(self, folder: Path, endpoint: str, base: Mapping[str, str], sink: Sink, limit: int = 0) -> None:
        self._folder, self._endpoint, self._base, self._sink = folder, endpoint, dict(base), sink
        self._templates = Templates(base)
        self._lock, self._unpacking, self._clock = threading.Lock(), threading.Lock(), SystemClock()
        self._cores = os.cpu_count() or 1
        self._limit = limit or limit_of(memory_of_this_machine(), self._cores)
        self._workers: list[Worker] = []
        self._line: list[_Waiting] = []
        self._starting, self._moved = 0, 0.0
        self._newest: dict[str, str] = {}
        self._handed_over: dict[str, float] = {}
        self._closed = False

    def invoke(
        self, code: Code, credentials: Mapping[str, str], event: Any, request_id: str, arn: str, timeout_s: float
    ) -> Reply:
        worker, fresh = self._acquire_worker(code)
        try:
            worker.begin(request_id, event)
            failure = self._start(worker, credentials) if fresh else None
            return worker.invoke(event, arn, timeout_s) if failure is None else worker.failed(failure)
        except BaseException:
            worker.end()
            raise
        finally:
            self._release_worker(worker)

    def warm(self, code: Code, credentials: Mapping[str, str]) -> None:
        """Start an environment for the next invocation, unless one is already idle. If it fails to start, the next
        invocation reports the error."""
        worker, fresh = self._acquire_worker(code)
        try:
            if fresh:
                self._start(worker, credentials)
        finally:
            self._release_worker(worker)

    @property
    def busy(self) -> bool:
        """Whether an invocation is running or waiting."""
        with self._lock:
            return bool(self._line) or any(worker.busy for worker in self._workers)

    def write_log(self, code: Code, request_id: str, event: Any, line: str) -> None:
        """Add a line to the function's log, as Lambda itself would."""
        where = {"function": code.function, "version": code.version, "request_id": request_id, "about": ids_of(event)}
        self._sink({**where, "time": self._clock.now(), "line": line})

    def kill(self, function: str) -> int:
        """Send SIGKILL to every busy environment of the function. Returns their number."""
        with self._lock:
            busy = [w for w in self._workers if w.busy and w.alive and w.code.function == function]
        for worker in busy:
            worker.end()
        return len(busy)

    def retire(self) -> None:
        """End idle environments now, and busy ones when they are done."""
        with self._lock:
            self._newest.clear()
            idle = self._remove(lambda worker: not worker.busy)
        _end_workers(idle)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            workers = self._remove(lambda worker: True)
        _end_workers(workers)
        self._templates.close()
        self._serve()

    # --- the queue ----------------------------------------------------------------------------------------------------

    def _acquire_worker(self, code: Code) -> tuple[Worker, bool]:
        """Return an environment, and whether it still has to be started. Raises `RuntimeError` when the pool is closed."""
        waiting = _Waiting(code, time.monotonic())
        with self._lock:
            self._newest[code.function] = waiting.key
            old = self._remove(lambda w: not w.busy and w.code.function == code.function and w.key != waiting.key)
            self._line.append(waiting)
        _end_workers(old)
        self._serve()
        while not waiting.served.wait(PATIENT_S):
            self._serve()
        if waiting.worker is None:
            raise RuntimeError("the emulator is ending")
        return waiting.worker, waiting.fresh

    def _serve(self) -> None:
        """Assign available environments to waiting invocations, and end surplus environments."""
        with self._lock:
            now = time.monotonic()
            ended = self._remove(lambda worker: not (worker.busy or worker.alive))
            for waiting in list(self._line):
                if not self._closed:
                    waiting.worker = self._find_idle(waiting.key) or self._add_worker(waiting, now)
                if waiting.worker is not None or self._closed:
                    self._line.remove(waiting)
                    waiting.served.set()
            ended += self._remove_surplus(now)
        _end_workers(ended)

    def _find_idle(self, key: str) -> Worker | None:
        """Return the most recently used idle environment, so that the others can become surplus."""
        idle = [worker for worker in self._workers if not worker.busy and worker.key == key]
        if not idle:
            return None
        found = max(idle, key=lambda worker: worker.idle_since)
        found.busy = True
        return found

    def _add_worker(self, waiting: _Waiting, now: float) -> Worker | None:
        if not self._may_start(waiting, now):
            return None
        waiting.fresh, self._moved = True, now
        self._starting += 1
        worker = Worker(waiting.code, self._sink)
        self._workers.append(worker)
        return worker

    def _may_start(self, waiting: _Waiting, now: float) -> bool:
        if now - max(waiting.since, self._moved) >= STALLED_S and not self._starting:
            return True
        if self._starting >= max(1, self._cores // 2):
            return False
        same = sum(worker.key == waiting.key for worker in self._workers)
        since = waiting.since if same < self._cores else max(waiting.since, self._handed_over.get(waiting.key, 0.0))
        if same and now - since < PATIENT_S:
            return False
        return len(self._workers) < self._limit or any(not worker.busy for worker in self._workers)

    def _remove_surplus(self, now: float) -> list[Worker]:
        """Return the oldest idle environments beyond the limit, and those that have not been needed for `SURPLUS_S`."""
        idle = sorted((w for w in self._workers if not w.busy), key=lambda worker: worker.idle_since)
        ended = idle[: max(0, len(self._workers) - self._limit)]
        newest = {worker.key: worker for worker in idle}
        ended += [w for w in idle if now - w.idle_since > SURPLUS_S and newest[w.key] is not w and w not in ended]
        return self._remove(lambda worker: worker in ended)

    def _remove(self, chosen: Callable[[Worker], bool]) -> list[Worker]:
        removed = [worker for worker in self._workers if chosen(worker)]
        self._workers = [worker for worker in self._workers if worker not in removed]
        return removed

    def _release_worker(self, worker: Worker) -> None:
        with self._lock:
            worker.busy, worker.idle_since = False, time.monotonic()
            self._moved = self._handed_over[worker.key] = worker.idle_since
            stale = self._newest.get(worker.code.function) != worker.key
            ended = self._remove(lambda w: w is worker and stale)
            if self._closed:
                ended = [worker]
        _end_workers(ended)
        self._serve()

    # --- starts ----------------------------------------------------------------------------------------------------------

    def _start(self, worker: Worker, credentials: Mapping[str, str]) -> dict[str, Any] | None:
        try:
            code = worker.code
            folders = [self._unpack(data) for data in code.zips]
            own = {name: self._replace_addresses(value) for name, value in code.environment.items()}
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
                "AWS_LAMBDA_LOG_STREAM_NAME": worker.key[:32],
                "LAMBDA_TASK_ROOT": str(folders[0]),
                "_HANDLER": code.handler,
                **credentials,
            }
            try:
                process = self._templates.start(folders, {**self._base, **runtime, **own})
            except OSError as error:
                return {"errorType": KILLED, "errorMessage": f"the environment could not be started: {error}"}
            return worker.start(process)
        finally:
            with self._lock:
                self._starting -= 1
            self._serve()

    def _replace_addresses(self, value: str) -> str:
        """Replace the address of a WebSocket stage, whether an AWS address or that of an earlier start on another port,
        with the emulator's."""
        return _SOCKETS.sub(
            lambda found: f"{self._endpoint}/_aws/execute-api/{found[1] or found[3]}/{found[2] or found[4]}", value
        )

    def _unpack(self, data: bytes) -> Path:
        folder = self._folder / content_name(data)
        with self._unpacking:
            if not folder.is_dir():
                fresh = folder.with_suffix(".new")
                shutil.rmtree(fresh, ignore_errors=True)
                fresh.mkdir(parents=True)
                with zipfile.ZipFile(io.BytesIO(data)) as package:
                    package.extractall(fresh)
                fresh.rename(folder)
        return folder


def _end_workers(workers: list[Worker]) -> None:
    for worker in workers:
        worker.end()
