"""`make release` makes a commit and a tag, or states a reason and changes nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.documents import ROOT

VERSION_FILE = "layers/core/python/helix/_version.py"
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A tool.\n\n## [0.1.0] - 2026-01-01\n\n- All of it.\n"


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{name}_NAME", "A")
        monkeypatch.setenv(f"{name}_EMAIL", "a@example.com")
    (tmp_path / VERSION_FILE).parent.mkdir(parents=True)
    (tmp_path / VERSION_FILE).write_text('"""The version."""\n\n__version__ = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "Begin")
    return tmp_path


def release(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / ".ci" / "release.py"), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_release_is_a_commit_and_a_tag(clone: Path) -> None:
    done = release(clone, "0.2.0")
    assert (done.returncode, done.stdout) == (0, "Publish it with: git push origin main v0.2.0\n"), done.stderr
    assert git(clone, "log", "-1", "--format=%s") == "Release 0.2.0" and git(clone, "status", "--porcelain") == ""
    assert git(clone, "describe") == "v0.2.0"
    assert '__version__ = "0.2.0"' in (clone / VERSION_FILE).read_text()
    changes = (clone / "CHANGELOG.md").read_text()
    assert re.search(r"## \[Unreleased\]\n\n## \[0\.2\.0\] - \d{4}-\d\d-\d\d\n\n### Added\n\n- A tool\.", changes)
    assert "nothing under" in release(clone, "0.3.0").stderr


@pytest.mark.parametrize(
    ("words", "spoil", "reason"),
    [
        ((), None, "give the version, as in"),
        (("1.2",), None, "'1.2' is not a version like 1.2.3"),
        (("0.0.9",), None, "version 0.0.9 is older than 0.1.0"),
        (("0.2.0",), ("CHANGELOG.md", "x"), "commit or stash the changes"),
        (("0.2.0",), "checkout --quiet -b other", "on the branch main"),
        (("0.2.0",), "tag v0.2.0", "the tag v0.2.0 exists"),
    ],
)
def test_a_release_that_cannot_be_made_changes_nothing(
    words: tuple[str, ...], spoil: str | tuple[str, str] | None, reason: str, clone: Path
) -> None:
    if isinstance(spoil, str):
        git(clone, *spoil.split())
    elif spoil is not None:
        (clone / spoil[0]).write_text(spoil[1])
    before = git(clone, "status", "--porcelain"), git(clone, "rev-parse", "HEAD")
    done = release(clone, *words)
    assert done.returncode == 1 and reason in done.stderr
    assert (git(clone, "status", "--porcelain"), git(clone, "rev-parse", "HEAD")) == before


def test_this_repository_can_be_released() -> None:
    text = (ROOT / VERSION_FILE).read_text("utf-8")
    assert len(re.findall(r'^__version__ = "(\d+\.\d+\.\d+)"$', text, flags=re.MULTILINE)) == 1
    assert (ROOT / "CHANGELOG.md").read_text("utf-8").count("## [Unreleased]\n") == 1
