"""The console's bundle in the wheel is up to date with its sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.browser import npm

from helix.gateway.console_page import STATIC

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_sources_give_the_bundle(tmp_path: Path) -> None:
    npm("run", "check")
    npm("exec", "--", "vite", "build", "--outDir", str(tmp_path / "built"), "--emptyOutDir")
    built = {path.name: path.read_bytes() for path in (tmp_path / "built").iterdir()}
    stored = {path.name: path.read_bytes() for path in STATIC.iterdir()}
    assert built.keys() == stored.keys()
    assert [name for name in built if built[name] != stored[name]] == [], "in clients/console: npm run build"
