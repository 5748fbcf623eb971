"""Files that are their owner's alone: `.helix`, with sessions, keys and logs, and each file that holds a conversation.

Law: a `.helix` is 0700 and what is written in it 0600, from the first byte; one that others could read is repaired. A
database or an export is made 0600 wherever it is; a file that exists keeps its mode.
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
    """Make an empty file unless it exists. If the system refuses, opening the file later says why."""
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def write_whole(path: Path, text: str) -> None:
    """Write a new file, which has all of the text or is not there."""
    unfinished = path.with_name(f"{path.name}.part")
    unfinished.unlink(missing_ok=True)
    made = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(made, "w", encoding="utf-8") as file:
        file.write(text)
    unfinished.rename(path)
