"""The site builds without a warning, and its reference has every public name once."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.docs.documents import ROOT

import helix


def test_the_reference_has_every_public_name_once() -> None:
    pages = "\n".join(path.read_text("utf-8") for path in (ROOT / "docs" / "reference").glob("*.md"))
    named = Counter(re.findall(r"^::: helix\.([A-Za-z_]\w*)$", pages, flags=re.MULTILINE))
    assert named == Counter(name for name in helix.__all__ if name != "__version__")


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Dead links and anchors, pages missing from the navigation, and unknown names cause warnings."""
    build = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "reference" / "running.html").read_text("utf-8")
    for heading in ("helix.LocalExecutor.execute", "helix.Sessions.get", "helix.AgentExecutionHandle.result"):
        assert f'id="{heading}"' in page, "methods are there, inherited ones too"
    assert "session_id" in page, "signatures come from the sources"
    words = " ".join(re.sub(r"<[^>]+>", "", page).split())
    assert "completion_reason: str | None" in words, "and so do the fields of models"
    assert "<li><code>branch</code>: " in page, "parameters are a list"
    assert 'href="guide/deploy.html' in (tmp_path / "index.html").read_text("utf-8")
    assert (tmp_path / "search" / "search_index.json").stat().st_size > 100_000
