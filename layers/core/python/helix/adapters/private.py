"""Files that are their owner's alone: `.helix`, with sessions, keys and logs.

Law: a `.helix` is 0700 and what is written in it 0600, from the first byte; one that others could read is repaired.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

STATE = ".helix"


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """What this process and those that it starts create meanwhile is readable by its owner alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def make_private(folder: Path) -> None:
    """Leave the folder, and all in it, to its owner alone. Links are not followed."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o700)


def make_folder(folder: Path) -> None:
    """With its parents; what of it is a `.helix`, or is in one, is private."""
    for place in (folder, *folder.parents):
        if place.name == STATE:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if place.stat().st_mode & 0o077:
                make_private(place)
    with private_files() if STATE in folder.parts else contextlib.nullcontext():
        folder.mkdir(parents=True, exist_ok=True)


def make_file(path: Path) -> None:
    """An empty one, if it is in a `.helix` and there is none yet."""
    if STATE in path.parts:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
