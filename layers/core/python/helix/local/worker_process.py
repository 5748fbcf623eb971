"""The execution environment of one Lambda function, which replaces AWS's Python runtime. Run as a script, with `-P`.

Law: this script imports only the standard library. `helix` comes only from the function's own layers, so that the deployed
code runs. Requests arrive as lines of JSON on standard input, and responses are lines on the original standard output. The
function's output goes to standard error as its log. The line `MARK request-id` there marks the end of a request's log. The
process ends when its input closes, even while the function is running.

If the argument is the number of a socket, the process is a template instead. It imports the modules that the functions with
its layers share, reads botocore's descriptions of their services, and forks an environment for each request on the socket
(`helix.local.templates`).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TextIO

MARK = "\x1e"
PATH = "HELIX_WORKER_PATH"
"""The environment variable with the folders of the function's code and its layers, in import path order."""
PRELOADED = (
    "boto3",
    "helix.runtime.lambdas",
    "helix.runtime.verbs",
    "helix.gateway.lambdas",
    "helix.gateway.lambdas_project",
    "helix.fleet.lambdas",
)
"""The modules that a template imports: the handlers that a run needs."""
LENGTH = 4
"""The size, in bytes, of the length field that precedes a request to a template."""
RECORDER = "OFFLINE_RECORDER"
"""A variable for tests: the path of a module whose `arm()` is called before the function's code is loaded."""

Handler = Callable[[Any, Any], Any]


class Context:
    """The Lambda context object, with the attributes that handlers and Powertools read. `timeout_s` is the function's
    configured timeout."""

    identity = None
    client_context = None

    def __init__(self, request_id: str, arn: str, timeout_s: float) -> None:
        self.function_name = os.environ["AWS_LAMBDA_FUNCTION_NAME"]
        self.function_version = os.environ["AWS_LAMBDA_FUNCTION_VERSION"]
        self.memory_limit_in_mb = int(os.environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"])
        self.log_group_name = os.environ["AWS_LAMBDA_LOG_GROUP_NAME"]
        self.log_stream_name = os.environ["AWS_LAMBDA_LOG_STREAM_NAME"]
        self.aws_request_id, self.invoked_function_arn = request_id, arn
        self._ends = time.monotonic() + timeout_s

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int((self._ends - time.monotonic()) * 1000))


def main() -> None:
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(requests, lines), daemon=True).start()

    sys.path[:0] = os.environ.pop(PATH).split(os.pathsep)
    try:
        _plan_deaths()
        if recorder := os.environ.get(RECORDER):
            _arm(Path(recorder))
        handler = _load(os.environ["_HANDLER"])
    except BaseException as error:
        _write_reply(output, _init_failure(error))
        return
    _write_reply(output, {"status": "ready"})
    while True:
        _serve(handler, json.loads(lines.get()), output)


def _listen(requests: TextIO, lines: queue.Queue[str]) -> None:
    for line in requests:
        lines.put(line)
    os._exit(0)  # the emulator is gone, and no process reads a reply


def _plan_deaths() -> None:
    """Load `kill_points.py` for `helix demo --kill`. That file is not in the function's layers."""
    if folder := os.environ.get("OFFLINE_KILLS"):
        _arm(Path(__file__).with_name("kill_points.py"), Path(folder))


def _arm(file: Path, *given: Any) -> None:
    """Load a module by its path, and call its `arm` function."""
    found = importlib.util.spec_from_file_location(file.stem, file)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    module.arm(*given)


def _load(name: str) -> Handler:
    module, _, attribute = name.rpartition(".")
    handler: Handler = getattr(importlib.import_module(module.replace("/", ".")), attribute)
    return handler


def _serve(handler: Handler, request: dict[str, Any], output: TextIO) -> None:
    context = Context(request["request_id"], request["arn"], request["timeout_s"])
    try:
        text = json.dumps({"status": "ok", "result": handler(request["event"], context)})
    except Exception as error:
        text = json.dumps(_failure(error, type(error).__name__, str(error)))
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(2, f"{MARK}{context.aws_request_id}\n".encode())
    output.write(text + "\n")
    output.flush()


def _write_reply(output: TextIO, reply: dict[str, Any]) -> None:
    output.write(json.dumps(reply) + "\n")
    output.flush()


def _init_failure(error: BaseException) -> dict[str, Any]:
    """Format the failure as AWS's runtime does, because tests and people look for that message."""
    module = os.environ["_HANDLER"].rpartition(".")[0]
    match error:
        case SyntaxError():
            return _failure(error, "Runtime.UserCodeSyntaxError", f"Syntax error in module '{module}': {error}")
        case ImportError():
            return _failure(error, "Runtime.ImportModuleError", f"Unable to import module '{module}': {error}")
        case AttributeError():
            return _failure(error, "Runtime.HandlerNotFound", str(error))
        case SystemExit():
            return _failure(error, "Runtime.ExitError", f"Runtime exited during init: {error}")
        case _:
            return _failure(error, type(error).__name__, str(error))


def _failure(error: BaseException, error_type: str, message: str) -> dict[str, Any]:
    frames = traceback.format_list(traceback.extract_tb(error.__traceback__)[1:])
    return {"status": "error", "errorType": error_type, "errorMessage": message, "stackTrace": frames}


# --- the template --------------------------------------------------------------------------------------------------------


def fork_environments(requests: socket.socket) -> None:
    """Fork an environment for each request. A request is JSON, {"folder", "environment"}, and comes with three pipes:
    input, output, log. The response is the new process's id. For each process that has ended, a line "id status" is written
    to standard output. The function returns in each new process. In the template, it ends when its input closes."""
    before, plain = set(os.environ), list(sys.path)
    sys.path[:0] = os.environ.pop(PATH).split(os.pathsep)
    for module in PRELOADED:
        with contextlib.suppress(Exception):  # the environment imports it again, and reports the problem
            importlib.import_module(module)
    with contextlib.suppress(Exception):  # layers with an older Helix
        importlib.import_module("helix.runtime.cloud").read_service_descriptions()
    made = {name: value for name, value in os.environ.items() if name not in before}
    signal.signal(signal.SIGCHLD, _report_ends)
    while True:
        head, pipes, _, _ = socket.recv_fds(requests, LENGTH, 3)
        if not head:
            _wait_for_all()
        request = json.loads(_receive(requests, int.from_bytes(head, "big")))
        if (process := os.fork()) == 0:
            break
        for pipe in pipes:
            os.close(pipe)
        requests.sendall(process.to_bytes(LENGTH, "big"))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    requests.close()
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(made | request["environment"])
    sys.path[:] = plain


def _receive(requests: socket.socket, length: int) -> bytes:
    """Receive exactly `length` bytes. A signal may cut one `recv` short, even with MSG_WAITALL."""
    data = b""
    while len(data) < length:
        if not (more := requests.recv(length - len(data))):
            _wait_for_all()
        data += more
    return data


def _report_ends(*_: Any, options: int = os.WNOHANG) -> None:
    with contextlib.suppress(ChildProcessError):  # there are no child processes
        while (ended := os.waitpid(-1, options))[0]:
            os.write(1, f"{ended[0]} {os.waitstatus_to_exitcode(ended[1])}\n".encode())


def _wait_for_all() -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _report_ends(options=0)
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:]:
        fork_environments(socket.socket(fileno=int(sys.argv[1])))
    main()
