"""A synthesis that fails."""

from __future__ import annotations

import os
import sys
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
