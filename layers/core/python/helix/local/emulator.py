"""The emulator process: MiniStack on loopback with corrections, controlled by the process that started it.

Law: when its standard input closes, it saves its state and exits. Standard input receives commands, one JSON object per
line, each with an `id`. Standard output emits events, one JSON object per line: {"type": "log", ...} for a function's log
line, and {"type": "done", "id", "result"} for a completed command. MiniStack itself logs to standard error.

    python -m helix.local.emulator PORT FOLDER WORKERS [CORRECTIONS TO LEAVE OUT]
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix.adapters.system import SystemClock
from helix.local.credentials import Credentials

if TYPE_CHECKING:
    from helix.local.commands import Commands
    from helix.local.pool import Pool

ACCOUNT = "000000000000"
HOSTS = "HELIX_HOSTS"
"""The environment variable with host names, in addition to those of loopback, that requests to the emulator may use.
Containers use them."""
SAVE_S = "HELIX_SAVE_S"
"""The environment variable with the time between two saves of the state, in seconds. The default is `SAVED_S`."""
SAVED_S = 2.0
HANG_UP_S = 2.0
LOOK_S = 0.05
_LEFT_OUT = ("AWS_", "HELIX_", "MINISTACK_", "LAMBDA_", "SFN_", "_HELIX")
_SHARED = {"NO_PROXY", "no_proxy", "TMPDIR", "PYTHONUNBUFFERED", "HELIX_LOG_CONTENT"}
"""The emulator's environment variables that its functions also receive."""


def settings(
    port: int,
    folder: Path,
    credentials: Credentials,
    environment: Mapping[str, str],
    *,
    auth: bool = True,
    wait_scale: float = 1,
) -> dict[str, str]:
    """Return the environment of the emulator process. The user's own AWS settings are left out, so that nothing here can
    reach a real account. The credentials are those of the emulated account's root user."""
    retained = {name: value for name, value in environment.items() if not _is_left_out(name)}
    local = ",".join(filter(None, [retained.get("NO_PROXY") or retained.get("no_proxy"), "127.0.0.1", "localhost"]))
    return {
        **retained,
        "NO_PROXY": local,
        "no_proxy": local,
        "AUTH": "true" if auth else "false",
        **credentials.variables,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "DOCKER_HOST": f"unix://{folder / 'no-docker'}",
        "GATEWAY_PORT": str(port),
        "MINISTACK_HOST": "127.0.0.1",
        "MINISTACK_ACCOUNT_ID": ACCOUNT,
        "PERSIST_STATE": "1",
        "STATE_DIR": str(folder / "state"),
        "S3_PERSIST": "1",
        "S3_DATA_DIR": str(folder / "objects"),
        "SFN_WAIT_SCALE": str(wait_scale),
        "SFTP_ENABLED": "0",
        "IOT_MTLS_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
        "TMPDIR": str(folder / "tmp"),
        "PYTHONUNBUFFERED": "1",
    }


class EventWriter:
    """Writes events to standard output, one at a time."""

    def __init__(self) -> None:
        self._lock, self._out = threading.Lock(), os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)  # other output must not mix with the protocol

    def __call__(self, event: Mapping[str, Any]) -> None:
        text = json.dumps(event) + "\n"
        with self._lock:
            try:
                self._out.write(text)
                self._out.flush()
            except BrokenPipeError:  # the parent is gone, so standard input ends too
                return

    def log(self, line: Mapping[str, Any]) -> None:
        self({"type": "log", **line})

    def warn(self, text: str) -> None:
        """Write a log line that does not belong to a function."""
        line = {"function": "emulator", "version": "", "request_id": "", "about": {}, "line": f"[ERROR] {text}"}
        self.log({**line, "time": SystemClock().now()})


async def serve(port: int, folder: Path, workers: int, without: Collection[str] = ()) -> None:
    from hypercorn.asyncio import serve as run
    from hypercorn.config import Config
    from ministack.app import app

    from helix.local import corrections, corrections_sockets
    from helix.local.commands import commands_of
    from helix.local.ministack_auth import make_request_filter
    from helix.local.pool import Pool
    from helix.local.state_file import StateFile

    events, ended, loop = EventWriter(), asyncio.Event(), asyncio.get_running_loop()
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    state = StateFile(folder / "state", events.warn, float(os.environ.get(SAVE_S, SAVED_S)))
    pool = Pool(folder / "code", f"http://127.0.0.1:{port}", function_variables(os.environ), events.log, workers)
    corrections.apply(pool, without)
    commands = commands_of(pool, lambda: asyncio.run_coroutine_threadsafe(state.save(), loop).result())
    end = partial(loop.call_soon_threadsafe, ended.set)
    threading.Thread(target=_read_commands, args=(commands, events, end), daemon=True).start()

    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.websocket_max_message_size = corrections_sockets.SOCKET_MESSAGE
    config.graceful_timeout = 1.0
    config.errorlog = "-"
    gc.freeze()  # the emulator's hundreds of services stay, and scanning them for garbage would delay requests
    tasks = [asyncio.create_task(state.save_periodically()), asyncio.create_task(_announce(port, events))]
    try:
        filtered = make_request_filter(state.watching(app), port, os.environ.get(HOSTS, ""))
        await run(filtered, config, shutdown_trigger=lambda: _close_connections(ended, pool))  # type: ignore[arg-type]
    finally:
        for task in tasks:
            task.cancel()
        pool.close()


async def _close_connections(ended: asyncio.Event, pool: Pool) -> None:
    """At shutdown, close all sockets and give functions a moment to finish while they can still respond."""
    from ministack.services import apigateway

    await ended.wait()
    for connection in list(apigateway._ws_connections.values()):
        connection["close_event"].set()
    loop = asyncio.get_running_loop()
    until = loop.time() + HANG_UP_S
    while loop.time() < until:
        await asyncio.sleep(LOOK_S)
        if not (apigateway._ws_connections or pool.busy):
            return


async def _announce(port: int, events: EventWriter) -> None:
    """Report once that the emulator accepts requests."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
            continue
        writer.close()
        events({"type": "ready"})
        return


def function_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that functions receive in addition to their own variables. It is this machine's, including the
    model providers' keys, without the emulator's own variables."""
    own = settings(0, Path(), Credentials("", ""), {}).keys() - _SHARED
    return {name: value for name, value in environment.items() if not (name in own or _is_left_out(name))}


def _is_left_out(name: str) -> bool:
    return name.startswith(_LEFT_OUT) and name not in _SHARED


def _read_commands(commands: Commands, events: EventWriter, end: Callable[[], None]) -> None:
    for line in sys.stdin:
        threading.Thread(target=_run_command, args=(commands, events), kwargs=json.loads(line), daemon=True).start()
    end()


def _run_command(commands: Commands, events: EventWriter, *, id: int, command: str, **fields: Any) -> None:
    try:
        events({"type": "done", "id": id, "result": commands[command](**fields)})
    except Exception as error:
        events({"type": "done", "id": id, "error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
