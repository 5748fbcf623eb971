"""Lambda workers. Each is a process that serves as an execution environment for one published version of a function.

Law: an environment serves one invocation at a time. As on AWS, it survives an exception in the handler, and ends after a
timeout, a kill or a failed start.
"""

from __future__ import annotations

import hashlib
import json
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from helix.adapters.system import SystemClock
from helix.local.templates import START_S, Process
from helix.local.worker_process import MARK

LOG_S = 1.0
"""The maximum time that a response waits for the rest of its log."""
KILLED = "Runtime.ExitError"
IDS = ("session_id", "run_id", "step", "call")

Sink = Callable[[dict[str, Any]], None]
"""A function that receives a function's log lines as they are written: {"function", "version", "request_id", "about",
"time", "line"}. `about` contains the ids that the function was called with."""


@dataclass(frozen=True, slots=True)
class Code:
    """The code and settings of an environment."""

    function: str
    """The function's name."""
    version: str
    """The published version."""
    handler: str
    """The handler, as `<module>.<function>`."""
    zips: tuple[bytes, ...]
    """The zips of the function's package and its layers, in import path order."""
    environment: Mapping[str, str]
    """The function's environment variables."""
    memory_mb: int = 128
    """The configured memory in MB."""

    @property
    def key(self) -> str:
        parts = [self.function, self.version, self.handler, json.dumps(dict(self.environment), sort_keys=True)]
        return hashlib.sha256("\0".join(parts + [content_name(data) for data in self.zips]).encode()).hexdigest()


@dataclass(slots=True)
class Reply:
    """The outcome of an invocation."""

    result: Any = None
    """The handler's result. None if `error` is set."""
    error: dict[str, Any] | None = None
    """Lambda's {"errorType", "errorMessage", "stackTrace"}. None: the handler succeeded."""
    log: list[str] = field(default_factory=list)
    """The log lines of the invocation."""


class Worker:
    """One worker process, created by `Pool`. Only one thread at a time may call `start` and `invoke`."""

    def __init__(self, code: Code, sink: Sink) -> None:
        self.code, self.key = code, code.key
        self.busy, self.idle_since = True, 0.0
        self._sink, self._clock = sink, SystemClock()
        self._request, self._about, self._log = "", dict[str, Any](), list[str]()
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._log_done = threading.Event()
        self._process: Process | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, process: Process) -> dict[str, Any] | None:
        """Wait until the handler is loaded. Returns the init error, or None."""
        self._process = process
        for read in (self._read_answers, self._read_log):
            threading.Thread(target=read, args=(process,), daemon=True).start()
        try:
            reply = self._answers.get(timeout=START_S)
        except queue.Empty:
            reply = {"status": "error", "errorType": "Runtime.Timedout", "errorMessage": "it took too long to start"}
        if reply is None or reply["status"] == "error":
            self.end()
            return _error_fields(reply or {"errorType": KILLED, "errorMessage": "the worker ended while it started"})
        return None

    def begin(self, request_id: str, event: Any) -> None:
        """Attribute the following log lines to this request."""
        self._request, self._about, self._log = request_id, ids_of(event), []
        self._log_done.clear()

    def failed(self, failure: dict[str, Any]) -> Reply:
        self._log_done.wait(0.05)
        return Reply(error=failure, log=self._log)

    def invoke(self, event: Any, arn: str, timeout_s: float) -> Reply:
        request = {"event": event, "request_id": self._request, "arn": arn, "timeout_s": timeout_s}
        process = self._process
        assert process is not None, "start it first"
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except OSError:  # killed while idle
            return Reply(error=self._exit_error(process), log=self._log)
        try:
            reply = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            self.end()
            message = f"Task timed out after {timeout_s:.2f} seconds"
            return Reply(error={"errorType": "Sandbox.Timedout", "errorMessage": message}, log=self._log)
        if reply is None:
            return Reply(error=self._exit_error(process), log=self._log)
        self._log_done.wait(LOG_S)
        if reply["status"] == "error":
            return Reply(error=_error_fields(reply), log=self._log)
        return Reply(result=reply["result"], log=self._log)

    def end(self) -> None:
        """Kill the process. A running invocation ends with `KILLED`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _exit_error(self, process: Process) -> dict[str, Any]:
        status = process.wait()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        message = f"RequestId: {self._request} Error: Runtime exited with error: {how}"
        return {"errorType": KILLED, "errorMessage": message}

    def _read_answers(self, process: Process) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put(None)

    def _read_log(self, process: Process) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith(MARK):
                if line[len(MARK) :].strip() == self._request:
                    self._log_done.set()
                continue
            text = line.rstrip("\n")
            self._log.append(text)
            where = {"function": self.code.function, "version": self.code.version, "request_id": self._request}
            self._sink({**where, "about": self._about, "time": self._clock.now(), "line": text})
        self._log_done.set()


@lru_cache(maxsize=64)  # called on each invocation, and packages are large
def content_name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:20]


def ids_of(event: Any) -> dict[str, Any]:
    return {name: event[name] for name in IDS if name in event} if isinstance(event, dict) else {}


def _error_fields(reply: Mapping[str, Any]) -> dict[str, Any]:
    return {name: reply[name] for name in ("errorType", "errorMessage", "stackTrace") if name in reply}
