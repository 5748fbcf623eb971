"""Hot reload: new, changed and deleted files restart running agents, which then run the new code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.conftest import MakeRuntime
from tests.support_fleet import PATIENCE_S

from helix.core.errors import DefinitionError
from helix.fleet import FileWatcher, WatcherConfig

AGENT = "async def echo(text: str) -> str:\n    'Answer.'\n    return {!r} + text\n"


class Restarted:
    """A stub of a runtime with one agent that is wanted and one that is stopped."""

    def __init__(self) -> None:
        self.restarts: list[str] = []
        self.at: list[float] = []
        self.problem: Exception | None = None

    async def list_agents(self) -> list[dict[str, Any]]:
        return [{"agent_id": "a", "wanted": 1}, {"agent_id": "b", "wanted": 0}]

    async def restart_agent(self, agent_id: str) -> list[str]:
        self.restarts.append(agent_id)
        self.at.append(time.monotonic())
        if self.problem is not None:
            raise self.problem
        return []


@pytest.fixture
async def restarted() -> Restarted:
    return Restarted()


@pytest.fixture
async def watcher(restarted: Restarted, tmp_path: Path) -> AsyncIterator[FileWatcher]:
    (tmp_path / "old.py").write_text("old = 1\n")
    (tmp_path / "venv").mkdir()
    config = WatcherConfig(watch_paths=[str(tmp_path), str(tmp_path / "nowhere")], debounce_seconds=0.1)
    made = FileWatcher(config, restarted)  # type: ignore[arg-type]
    await made.start_monitoring()
    yield made
    await made.stop_monitoring()


async def reloads(watcher: FileWatcher, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S), watcher.changed:
        await watcher.changed.wait_for(lambda: watcher.reloads >= count)


async def test_a_restart_that_fails_does_not_end_the_watching(
    watcher: FileWatcher, restarted: Restarted, tmp_path: Path
) -> None:
    restarted.problem = OSError("no more processes")
    (tmp_path / "new.py").write_text("new = 1\n")
    await reloads(watcher, 1)
    (tmp_path / "new.py").write_text("new = 2\n")
    await reloads(watcher, 2)


async def test_new_changed_and_deleted_files_count(watcher: FileWatcher, restarted: Restarted, tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text("new = 1\n")
    await reloads(watcher, 1)
    (tmp_path / "old.py").write_text("old = 2\n")
    await reloads(watcher, 2)
    (tmp_path / "new.py").unlink()
    await reloads(watcher, 3)
    assert restarted.restarts == ["a"] * 3  # a stopped agent is not started


async def test_what_is_ignored_does_not_count(watcher: FileWatcher, restarted: Restarted, tmp_path: Path) -> None:
    (tmp_path / "venv" / "lib.py").write_text("x = 1\n")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "old.pyc").write_text("x")
    (tmp_path / "old.py").write_text("old = 3\n")
    await reloads(watcher, 1)
    assert restarted.restarts == ["a"]


async def test_it_waits_until_nothing_has_changed_for_the_quiet_time(restarted: Restarted, tmp_path: Path) -> None:
    """An editor or a checkout that keeps writing for longer than that, even to one file, causes one restart."""
    quiet_s = 0.5
    watcher = FileWatcher(WatcherConfig(watch_paths=[str(tmp_path)], debounce_seconds=quiet_s), restarted)  # type: ignore[arg-type]
    await watcher.start_monitoring()
    writes: list[float] = []

    def write() -> None:
        while not writes or writes[-1] - writes[0] < 4 * quiet_s:
            (tmp_path / "one.py").write_text(f"one = {len(writes)}\n")
            writes.append(time.monotonic())
            time.sleep(0.02)

    await asyncio.to_thread(write)
    await reloads(watcher, 1)
    await watcher.stop_monitoring()
    assert restarted.at
    for restart in restarted.at:
        before = [write for write in writes if write < restart]
        assert restart - before[-1] >= quiet_s


def test_patterns_are_of_names_anywhere_in_the_path() -> None:
    config = WatcherConfig()
    assert config.ignore_patterns == ["__pycache__", "*.pyc", ".git", "venv"]
    assert (config.watch_paths, config.debounce_seconds) == ([], 1.0)
    judged = {
        name: config.is_watched(Path(name))
        for name in ("a/b.py", "a/__pycache__/b.py", ".git/hooks/x.py", "b.pyc", "b.md")
    }
    assert judged == {
        "a/b.py": True,
        "a/__pycache__/b.py": False,
        ".git/hooks/x.py": False,
        "b.pyc": False,
        "b.md": False,
    }
    with pytest.raises(DefinitionError, match="debounce_seconds"):
        WatcherConfig(debounce_seconds=-1)


@pytest.mark.slow
async def test_the_new_code_is_what_runs(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "echoing.py").write_text(AGENT.format("one "))
    runtime = runtime_of(hot_reload=True, watch_paths=[str(folder)])
    await runtime.register_agent("echo", f"{folder}/echoing.py:echo")
    await runtime.start()
    (process_id,) = await runtime.start_agent("echo")
    assert (await (await runtime.execute("echo", "x")).result(PATIENCE_S)).output == "one x"
    watcher = runtime.watcher
    assert isinstance(watcher, FileWatcher)
    (folder / "echoing.py").write_text(AGENT.format("three "))
    await reloads(watcher, 1)
    assert (await (await runtime.execute("echo", "x")).result(PATIENCE_S)).output == "three x"
    assert (await runtime.processes.get_process(process_id)).restart_count == 1
    (folder / "echoing.py").write_text("an error\n")  # and back: an agent that was given up is tried again
    await reloads(watcher, 2)
    assert (await runtime.get_agent_status("echo"))["status"] == "stopped"
    (folder / "echoing.py").write_text(AGENT.format("three "))
    await reloads(watcher, 3)
    assert (await (await runtime.execute("echo", "x")).result(PATIENCE_S)).output == "three x"
