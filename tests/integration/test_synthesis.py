"""A synthesis that fails, and the stored ones."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from helix.local import project
from helix.local.project import Project, SynthError


@pytest.mark.parametrize(
    ("app", "seconds", "problem"),
    [("import time; time.sleep(60)", 1, "within 1 seconds"), ("raise SystemExit('no stack')", 60, "no stack")],
)
def test_a_synthesis_that_ends_badly_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: str, seconds: int, problem: str
) -> None:
    monkeypatch.setattr(project, "APP", (sys.executable, "-c", app))
    monkeypatch.setattr(project, "SYNTH_S", seconds)
    (tmp_path / "pyproject.toml").write_text("[tool.helix]\n")
    (tmp_path / "agents.py").write_text("")
    made = Project(tmp_path, tmp_path / "made", [], os.environ)
    with pytest.raises(SynthError, match=problem):
        made.synthesise({})
    assert not any(path.is_dir() for path in (tmp_path / "made").iterdir())


def test_what_another_process_uses_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the stored syntheses, the newest three stay, and all that were used in the last hour."""
    write = "import pathlib, sys; pathlib.Path(sys.argv[-1], 'manifest.json').write_text('{}')"
    monkeypatch.setattr(project, "APP", (sys.executable, "-c", write))
    (tmp_path / "pyproject.toml").write_text("[tool.helix]\n")
    (tmp_path / "agents.py").write_text("")
    made = Project(tmp_path, tmp_path / "made", [], os.environ)
    folders = [made.synthesise({"agents": str(n)}) for n in range(5)]
    assert all(folder.is_dir() for folder in folders)
    for hours, folder in enumerate(folders):
        os.utime(folder, (0, time.time() - hours * 3700))
    newest = made.synthesise({"agents": "newest"})
    assert [folder.is_dir() for folder in (newest, *folders)] == [True, True, True, False, False, False]
