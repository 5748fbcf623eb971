"""The emulator's state on disk: one file, written every few seconds while there are changes, and at the end.

Law: the file is replaced atomically, so a crash during a save leaves the previous one. A save is a consistent snapshot of
all services. A forked process holds the copy and writes it while the emulator continues. The functions' code is stored next
to it, in files named after their content hash. A code file is deleted only when no saved state refers to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import signal
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ministack import app
from ministack.core import persistence
from ministack.services import lambda_svc

SHARE = 0.1
"""The share of one CPU that saving may use."""
SAVE_S = 60.0
NAME, FORMAT = "state.json", "__ministack_format__"

Services = Mapping[str, Callable[[], Any]]


class StateFile:
    """The state file, which replaces MiniStack's own persistence with one file per service. Those files are still read if
    no other state exists. `failed` is called with an error message when a save fails. `every_s` is the time between two
    saves, in seconds. Raises `ValueError` if the file cannot be read, so that it is not overwritten."""

    def __init__(self, folder: Path, failed: Callable[[str], None], every_s: float) -> None:
        self._path, self._failed, self._every_s = folder / NAME, failed, every_s
        self._loaded = self._read() if self._path.exists() else None
        self._lock = asyncio.Lock()
        self._child: int | None = None
        self._changed, self._closed = False, False
        app.load_state, app.save_all = self._load, self._save_at_the_end

    def watching(self, serve: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the ASGI app so that each request counts as a change."""

        async def served(scope: Any, receive: Any, send: Any) -> None:
            self._changed = True
            await serve(scope, receive, send)

        return served

    async def save_periodically(self) -> None:
        """Save periodically. A request's background work may end after the request, so two saves follow the last
        request."""
        loop, took, once_more = asyncio.get_running_loop(), 0.0, False
        while not self._closed:
            await asyncio.sleep(max(self._every_s, took / SHARE))
            if self._changed or once_more:
                once_more, self._changed = self._changed, False
                begun = loop.time()
                if not await self.save():
                    self._changed = True
                took = loop.time() - begun

    async def save(self) -> bool:
        """Save, and return once the current state is on disk. Returns False if it could not be written or the process is
        ending."""
        async with self._lock:
            if self._closed:
                return False
            child = self._child = self._fork()
            waiting = asyncio.create_task(asyncio.to_thread(os.waitpid, child, 0))
            if not (await asyncio.wait([waiting], timeout=SAVE_S))[0]:
                os.kill(child, signal.SIGKILL)
            status = os.waitstatus_to_exitcode((await waiting)[1])
            self._child = None
        if status != 0 and not self._closed:
            self._failed("the state could not be saved; if the emulator is killed, what changes now is lost")
        return status == 0

    def _save_at_the_end(self, services: Services) -> None:
        self._closed = True
        if self._child is not None:  # otherwise it would replace a newer file
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._fork(), 0)

    def _fork(self) -> int:
        """Fork a copy of this process that writes the state and exits with 0 on success. Return its process id."""
        child, code = os.fork(), 1
        if child != 0:
            return child
        try:
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # otherwise sockets stay open when the parent closes them
            copy.deepcopy = _return_itself  # type: ignore[assignment]  # this whole process is a copy
            self._write(app._build_persistence_save_dict())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _write(self, services: Services) -> None:
        referenced, remove_others = set[str](), lambda_svc._prune_orphan_code_blobs
        lambda_svc._prune_orphan_code_blobs = referenced.update
        states = {name: get_state() for name, get_state in services.items()}
        wrapped = {
            name: {FORMAT: persistence._state_format_version(name), "payload": state}
            for name, state in states.items()
            if state is not None
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            file.write(json.dumps(wrapped, default=persistence._json_default))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        remove_others(referenced)

    def _read(self) -> dict[str, Any]:
        saved = json.loads(self._path.read_text(encoding="utf-8"), object_hook=persistence._json_object_hook)
        for name, state in saved.items():
            if state[FORMAT] > persistence._state_format_version(name):
                raise ValueError(f"{str(self._path)!r} was written by a newer version of MiniStack")
        return {name: state["payload"] for name, state in saved.items()}

    def _load(self, service: str) -> Any:
        """Return the saved state of a service. None: nothing was saved."""
        return persistence.load_state(service) if self._loaded is None else self._loaded.pop(service, None)


def _return_itself(value: Any, memo: Any = None) -> Any:
    return value
