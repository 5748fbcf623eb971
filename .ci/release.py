"""Prepare a release: `make release VERSION=1.2.3`, or `python .ci/release.py 1.2.3`.

Sets the version, dates the changelog section, commits both changes, and creates the tag. It does not push. When the tag is
pushed, .github/workflows/release.yml publishes the wheel.
"""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import date
from pathlib import Path

VERSION_FILE = Path("layers/core/python/helix/_version.py")
CHANGELOG = Path("CHANGELOG.md")
UNRELEASED = "## [Unreleased]\n"
VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout.strip()


def main(version: str) -> None:
    """Prepare the release. If it cannot be made, raises `SystemExit` with the reason before anything is changed."""
    if VERSION.fullmatch(version) is None:
        sys.exit(f"release: {version!r} is not a version like 1.2.3")
    code, changes = VERSION_FILE.read_text("utf-8"), CHANGELOG.read_text("utf-8")
    (current,) = re.findall(r'^__version__ = "(.+)"$', code, flags=re.MULTILINE)
    if numbers(version) < numbers(current):
        sys.exit(f"release: version {version} is older than {current}")
    if git("status", "--porcelain"):
        sys.exit("release: commit or stash the changes in the working tree first")
    if git("branch", "--show-current") != "main":
        sys.exit("release: releases are made on the branch main")
    if git("tag", "--list", f"v{version}"):
        sys.exit(f"release: the tag v{version} exists")
    _, _, rest = changes.partition(UNRELEASED)
    if not rest.partition("\n## [")[0].strip():
        sys.exit(f"release: {CHANGELOG} has nothing under {UNRELEASED.strip()!r}")
    VERSION_FILE.write_text(code.replace(f'"{current}"', f'"{version}"'), "utf-8")
    CHANGELOG.write_text(changes.replace(UNRELEASED, f"{UNRELEASED}\n## [{version}] - {date.today()}\n", 1), "utf-8")
    git("add", str(VERSION_FILE), str(CHANGELOG))
    git("commit", "--message", f"Release {version}")
    git("tag", "--annotate", f"v{version}", "--message", f"Helix {version}")
    sys.stdout.write(f"Publish it with: git push origin main v{version}\n")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("release: give the version, as in `make release VERSION=1.2.3`")
    main(sys.argv[1])
