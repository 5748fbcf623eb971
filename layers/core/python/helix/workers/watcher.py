"""FileWatcher: restarts running agents when their files change. It is meant for local development.

Law: a new process imports all modules again, so it runs the saved code. An active run is handed over at its next pause.
New, changed and deleted files are treated alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field
from watchfiles import awatch

from helix.engine.engine import logger
from helix.workers.config import Config, Text
from helix.workers.tasks import end_tasks, first_of

if TYPE_CHECKING:
    from helix.workers.runtime import AgentRuntime

LOOK_MS = 200
STEP_MS = 50
STOP_S = 5.0


class WatcherConfig(Config):
    """The settings of a `FileWatcher`. Raises `DefinitionError`, which names the invalid field."""

    watch_paths: list[Text] = Field(default_factory=list)
    """The files and folders to watch. Those that do not exist when watching starts are skipped, and the log says so."""
    ignore_patterns: list[Text] = Field(default=["__pycache__", "*.pyc", ".git", "venv"])
    """The patterns for ignored names. A file is ignored if a pattern matches its name or the name of one of its folders."""
    patterns: list[Text] = Field(default=["*.py"])
    """The patterns for the names of watched files."""
    debounce_seconds: float = Field(default=1.0, ge=0)
    """The time without changes after which agents restart."""

    def is_watched(self, path: Path) -> bool:
        ignored = any(fnmatch(part, pattern) for part in path.parts for pattern in self.ignore_patterns)
        return not ignored and any(fnmatch(path.name, pattern) for pattern in self.patterns)


class FileWatcher:
    """Watches files and restarts agents. `reloads` counts the restarts, and `changed` is notified of each one."""

    def __init__(self, config: WatcherConfig, runtime: AgentRuntime) -> None:
        self.config, self._runtime = config, runtime
        self.reloads = 0
        self.changed = asyncio.Condition()
        self._stop = asyncio.Event()
        self._watching = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start_monitoring(self) -> None:
        """Start watching. No change after this method returns is missed. Idempotent."""
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
        await first_of(self._task, self._watching.wait())

    async def stop_monitoring(self) -> None:
        self._stop.set()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait({task}, timeout=STOP_S)
            await end_tasks(task)

    start, stop = start_monitoring, stop_monitoring

    async def _watch(self, paths: list[Path]) -> None:
        quiet_s = self.config.debounce_seconds
        look_ms = max(1, min(LOOK_MS, round(quiet_s * 1000)))
        changes = awatch(
            *paths,
            watch_filter=lambda change, path: self.config.is_watched(Path(path)),
            debounce=look_ms,
            step=min(STEP_MS, look_ms),
            rust_timeout=look_ms,
            yield_on_timeout=True,
            stop_event=self._stop,
            recursive=True,
        )
        clock, changed, last = asyncio.get_running_loop().time, set[str](), 0.0
        async for batch in changes:
            self._watching.set()  # it yields on its first timeout at the latest
            if batch:
                changed.update(Path(path).name for _, path in batch)
                last = clock()
            if changed and clock() >= last + quiet_s:
                await self._reload(changed)
                changed.clear()

    async def _reload(self, changed: Collection[str]) -> None:
        names = ", ".join(sorted(changed))
        # The supervisor gave up on any agent that should be running but is not, perhaps because of the code that has now
        # changed.
        running = [found["agent_id"] for found in await self._runtime.list_agents() if found["wanted"] > 0]
        logger.info("hot reload: %s changed; restarting %s", names, ", ".join(running) or "no agents")
        results = await asyncio.gather(*(self._runtime.restart_agent(it) for it in running), return_exceptions=True)
        for agent_name, error in zip(running, results, strict=True):
            if isinstance(error, Exception):
                logger.error("hot reload: agent %s: %s: %s", agent_name, type(error).__name__, error)
            elif isinstance(error, BaseException):
                raise error
        async with self.changed:
            self.reloads += 1
            self.changed.notify_all()
