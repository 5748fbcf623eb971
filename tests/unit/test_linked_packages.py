"""Agents behind symbolic links are deployed, and changes behind the links are noticed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from helix.local.cloud import OfflineCloud
from helix.local.reload import Reloader
from helix.runtime.project import read_project

PATIENCE_S = 30.0


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose folder `agents` is a link and contains a package and a module that are links."""
    for name, text in {
        "real/__init__.py": "",
        "shared/__init__.py": "",
        "shared/one.py": "",
        "lone/two.py": "",
    }.items():
        (tmp_path / "elsewhere" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "elsewhere" / name).write_text(text)
    root = tmp_path / "project"
    root.mkdir()
    (root / "pyproject.toml").write_text('[tool.helix]\nagents = ["agents"]\n')
    (root / "agents").symlink_to(tmp_path / "elsewhere" / "real")
    (root / "agents" / "shared").symlink_to(tmp_path / "elsewhere" / "shared")
    (root / "agents" / "two.py").symlink_to(tmp_path / "elsewhere" / "lone" / "two.py")
    (root / "agents" / "again").symlink_to(tmp_path / "elsewhere" / "real")
    return root


def test_what_is_behind_links_is_deployed_once(project: Path) -> None:
    assert sorted(read_project(project).files()) == [
        "agents/__init__.py",
        "agents/shared/__init__.py",
        "agents/shared/one.py",
        "agents/two.py",
    ]


@pytest.mark.parametrize("changed", ["real/__init__.py", "shared/one.py", "lone/two.py"])
def test_a_change_behind_a_link_is_seen(project: Path, tmp_path: Path, changed: str) -> None:
    from watchfiles import watch

    file, stop = tmp_path / "elsewhere" / changed, threading.Event()
    watched = Reloader(OfflineCloud(project), {}).watched()
    timer = threading.Timer(PATIENCE_S, stop.set)
    timer.start()
    for batch in watch(*watched, stop_event=stop, debounce=50, step=10, rust_timeout=50, yield_on_timeout=True):
        if file in {Path(path).resolve() for _, path in batch}:
            break
        file.write_text("changed = True\n")
    timer.cancel()
    assert not stop.is_set(), "no change was reported"
