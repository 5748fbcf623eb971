"""FileWatcher: running agents are started anew when their files change. For development on this machine.

Law: a new process imports everything anew, so what was saved is what runs; a run that is at work is handed over at its
next pause. New, changed and deleted files count alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Protocol

from watchfiles import Change, awatch

from helix.core.checks import require
from helix.core.errors import HelixError
from helix.engine.engine import logger
from helix.runtime.ending import end_tasks

OWNER = "WatcherConfig"
LOOK_MS = 200
STOP_S = 5.0


@dataclass(frozen=True, kw_only=True)
class WatcherConfig:
    """Raises `DefinitionError` naming the field that is wrong.

    watch_paths: files and folders; those that do not exist when watching begins are passed over, with a word in the log.
    ignore_patterns: of names; a file is ignored if one matches its name or that of a folder that it is in.
    patterns: of the names of files that matter. debounce_seconds: changes within this time are one.
    """

    watch_paths: list[str] = field(default_factory=list)
    ignore_patterns: list[str] = field(default_factory=lambda: ["__pycache__", "*.pyc", ".git", "venv"])
    patterns: list[str] = field(default_factory=lambda: ["*.py"])
    debounce_seconds: float = 1.0

    def __post_init__(self) -> None:
        for name in ("watch_paths", "ignore_patterns", "patterns"):
            given = getattr(self, name)
            valid = not isinstance(given, str) and all(isinstance(text, str) and text for text in given)
            require(valid, OWNER, name, "must be a list of texts")
        require(self.debounce_seconds >= 0, OWNER, "debounce_seconds", "must be a number of seconds, 0 or more")

    def matters(self, path: Path) -> bool:
        ignored = any(fnmatch(part, pattern) for part in path.parts for pattern in self.ignore_patterns)
        return not ignored and any(fnmatch(path.name, pattern) for pattern in self.patterns)


class Restarts(Protocol):
    """What a watcher needs of a runtime."""

    async def list_agents(self) -> list[dict[str, Any]]: ...

    async def restart_agent(self, agent_id: str) -> list[str]: ...


class FileWatcher:
    """`reloads` counts what it has done; `changed` is notified of each."""

    def __init__(self, config: WatcherConfig, runtime: Restarts) -> None:
        self.config, self._runtime = config, runtime
        self.reloads = 0
        self.changed = asyncio.Condition()
        self._stop = asyncio.Event()
        self._watching = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start_monitoring(self) -> None:
        """Watch from now on: a change after the return is not missed. Idempotent."""
        if self._task is not None:
            return
        paths = [Path(path) for path in self.config.watch_paths]
        there = [path.resolve() for path in paths if path.exists()]
        for path in paths:
            if not path.exists():
                logger.info("hot reload: there is no %r to watch", str(path))
        if not there:
            return
        self._stop.clear()
        self._task = asyncio.get_running_loop().create_task(self._watch(there), name="helix:watcher")
        watching = asyncio.ensure_future(self._watching.wait())
        await asyncio.wait({self._task, watching}, return_when=asyncio.FIRST_COMPLETED)
        watching.cancel()

    async def stop_monitoring(self) -> None:
        self._stop.set()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait({task}, timeout=STOP_S)
            await end_tasks(task)

    start, stop = start_monitoring, stop_monitoring

    async def _watch(self, paths: list[Path]) -> None:
        changes = awatch(
            *paths,
            watch_filter=lambda change, path: self.config.matters(Path(path)),
            debounce=max(1, round(self.config.debounce_seconds * 1000)),
            step=min(50, max(1, round(self.config.debounce_seconds * 1000))),
            rust_timeout=LOOK_MS,
            yield_on_timeout=True,
            stop_event=self._stop,
            recursive=True,
        )
        async for batch in changes:
            self._watching.set()  # it yields at its first timeout at the latest
            if batch:
                await self._reload(batch)

    async def _reload(self, batch: Collection[tuple[Change, str]]) -> None:
        names = ", ".join(sorted({Path(path).name for _, path in batch}))
        # What is wanted and does not run was given up, maybe because of what was changed now.
        running = [found["agent_id"] for found in await self._runtime.list_agents() if found["wanted"] > 0]
        logger.info("hot reload: %s changed; restarting %s", names, ", ".join(running) or "nobody")
        results = await asyncio.gather(*(self._runtime.restart_agent(it) for it in running), return_exceptions=True)
        for agent_id, error in zip(running, results, strict=True):
            if isinstance(error, HelixError):
                logger.error("hot reload: agent %s: %s", agent_id, error)
            elif isinstance(error, BaseException):
                raise error
        async with self.changed:
            self.reloads += 1
            self.changed.notify_all()
