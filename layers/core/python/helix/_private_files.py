"""Files that only their owner can read: `.helix`, with sessions, keys and logs, and each file that holds a
conversation.

Law: a `.helix` is 0700, and files written in it are 0600 from the first byte. If others could read one, its mode is
corrected. A new database or export is 0600 wherever it is; an existing file keeps its mode.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

STATE = ".helix"


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """Make all files private to their owner that this process or its child processes create inside the `with` block."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def make_private(folder: Path) -> None:
    """Make the folder, and everything in it, private to its owner. Links are not followed."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o700)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents. Those that are a `.helix`, or are in one, become private."""
    for place in (folder, *folder.parents):
        if place.name == STATE:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if place.stat().st_mode & 0o077:
                make_private(place)
    with private_files() if STATE in folder.parts else contextlib.nullcontext():
        folder.mkdir(parents=True, exist_ok=True)


def make_file(path: Path) -> None:
    """Make an empty file unless it exists. If the system refuses, opening the file later reports why."""
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[TextIO]:
    """Open a new file for writing text. It appears under its name when the `with` block ends, with all of the text, and
    not at all if the block fails."""
    unfinished = path.with_name(f"{path.name}.part")
    unfinished.unlink(missing_ok=True)
    made = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(made, "w", encoding="utf-8") as file:
            yield file
        unfinished.rename(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def write_whole(path: Path, text: str) -> None:
    """Write a new file atomically. It either has all of the text or does not exist."""
    with new_file(path) as file:
        file.write(text)
