"""The emulator's process: MiniStack on loopback, set right where it matters, ruled by the process that started it.

Law: it ends when its standard input does, and saves its state first: it outlives nobody. Standard input takes orders,
one JSON object a line, each with an `id`; standard output gives events, one JSON object a line: {"type": "log", ...}
lines of functions and {"type": "done", "id", "result"} for orders. What MiniStack itself has to say goes to standard
error.

    python -m helix.local.emulator PORT FOLDER [CORRECTIONS TO LEAVE OUT]
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from helix.local.workers import Pool

ADMIN = "test"
"""Access key id and secret of the account's root, as MiniStack knows it."""
ACCOUNT = "000000000000"
HANG_UP_S = 2.0
LOOK_S = 0.05
_KEPT_OUT = ("AWS_", "HELIX_", "MINISTACK_", "LAMBDA_", "SFN_", "_HELIX")


def settings(
    port: int, folder: Path, *, auth: bool, wait_scale: float, environment: Mapping[str, str]
) -> dict[str, str]:
    """The environment of the emulator's process. The user's own AWS settings stay out: nothing here may reach an
    account.
    """
    kept = {name: value for name, value in environment.items() if not name.startswith(_KEPT_OUT)}
    local = ",".join(filter(None, [kept.get("NO_PROXY") or kept.get("no_proxy"), "127.0.0.1", "localhost"]))
    return {
        **kept,
        "NO_PROXY": local,
        "no_proxy": local,
        "AUTH": "true" if auth else "false",
        "AWS_ACCESS_KEY_ID": ADMIN,
        "AWS_SECRET_ACCESS_KEY": ADMIN,
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


class Voice:
    """Standard output, one event at a time."""

    def __init__(self) -> None:
        self._lock, self._out = threading.Lock(), os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)  # whatever prints does not speak the protocol

    def __call__(self, event: Mapping[str, Any]) -> None:
        text = json.dumps(event) + "\n"
        with self._lock:
            try:
                self._out.write(text)
                self._out.flush()
            except BrokenPipeError:  # the one who started this is gone; standard input says so too
                return


async def serve(port: int, folder: Path, without: Collection[str] = ()) -> None:
    from hypercorn.asyncio import serve as run
    from hypercorn.config import Config
    from ministack.app import app

    from helix.local import corrections
    from helix.local.orders import Orders
    from helix.local.workers import Pool

    voice, ended = Voice(), asyncio.Event()
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    pool = Pool(
        folder / "code",
        f"http://127.0.0.1:{port}",
        _for_functions(os.environ),
        lambda line: voice({"type": "log", **line}),
    )
    corrections.apply(pool, without)
    orders = Orders(pool)
    loop = asyncio.get_running_loop()
    threading.Thread(
        target=_listen, args=(orders, voice, lambda: loop.call_soon_threadsafe(ended.set)), daemon=True
    ).start()

    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.websocket_max_message_size = corrections.SOCKET_MESSAGE
    config.graceful_timeout = 1.0
    config.errorlog = "-"
    announcing = asyncio.create_task(_announce(port, voice))
    try:
        await run(app, config, shutdown_trigger=lambda: _hang_up(ended, pool))
    finally:
        announcing.cancel()
        pool.close()


async def _hang_up(ended: asyncio.Event, pool: Pool) -> None:
    """At the end: close all sockets, and let functions finish, a moment, while there is somebody to answer them."""
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


async def _announce(port: int, voice: Voice) -> None:
    """Say that it answers, once it does."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
            continue
        writer.close()
        voice({"type": "ready"})
        return


def _for_functions(environment: Mapping[str, str]) -> dict[str, str]:
    """What a function finds beside its own environment: this machine's, with the providers' keys, without the
    emulator's.
    """
    own = (
        *_KEPT_OUT,
        "AUTH",
        "DOCKER_HOST",
        "GATEWAY_PORT",
        "PERSIST_STATE",
        "STATE_DIR",
        "S3_",
        "SFTP_",
        "IOT_",
        "LOG_LEVEL",
    )
    return {name: value for name, value in environment.items() if not name.startswith(own)}


def _listen(orders: Callable[[Mapping[str, Any]], Any], voice: Voice, end: Callable[[], None]) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        threading.Thread(target=_do, args=(orders, voice, order), daemon=True).start()
    end()


def _do(orders: Callable[[Mapping[str, Any]], Any], voice: Voice, order: Mapping[str, Any]) -> None:
    try:
        voice({"type": "done", "id": order["id"], "result": orders(order)})
    except Exception as error:
        voice({"type": "done", "id": order["id"], "error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
