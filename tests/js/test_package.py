"""The TypeScript client is checked, tested, small, and packed with nothing but what a user needs."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest
from tests.js.conftest import CLIENT, Npm

pytestmark = pytest.mark.slow
MOST_BYTES = 15_000


def test_generated_parts_and_types_are_right(npm: Npm) -> None:
    npm("run", "check")


def test_its_own_tests_pass(npm: Npm) -> None:
    npm("test")


def test_the_whole_client_is_small(npm: Npm, package: Path) -> None:
    """Bundled, minified and compressed, as a page loads it."""
    bundle = [CLIENT / "node_modules" / ".bin" / "esbuild", "dist/index.js", "--bundle", "--minify", "--format=esm"]
    done = subprocess.run(bundle, cwd=package, capture_output=True, check=True)
    assert 1_000 < len(gzip.compress(done.stdout, 9)) < MOST_BYTES


def test_the_package_has_its_entry_points_and_no_dependencies(package: Path) -> None:
    about = json.loads((package / "package.json").read_text())
    assert "dependencies" not in about
    for entry in about["exports"].values():
        assert all((package / path).is_file() for path in entry.values())
    files = {path.relative_to(package).parts[0] for path in package.rglob("*") if path.is_file()}
    assert files == {"LICENSE", "README.md", "dist", "package.json"}


def test_it_runs_from_where_it_is_installed(npm: Npm, package: Path, tmp_path: Path) -> None:
    """As a dependency of a project, by its name."""
    (tmp_path / "package.json").write_text('{"type": "module"}')
    target = tmp_path / "node_modules" / "@helix-agents" / "client"
    target.parent.mkdir(parents=True)
    target.symlink_to(package)
    script = 'import { HelixClient } from "@helix-agents/client"; console.log(typeof HelixClient.connect);'
    node = CLIENT / "node_modules" / ".bin" / "node"
    done = subprocess.run([node, "--input-type=module", "-e", script], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "function\n"), done.stderr
