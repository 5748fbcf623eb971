"""Blobs in a folder, usually next to a SQLite store's file.

Law: a file appears under its key whole or not at all, and is on disk before `put` returns. All files and folders are
private to their owner. `check_blob_key` makes sure that no key leaves the folder, and no key names an unfinished file,
because the names of those begin with a dot.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

from helix._private_files import make_folder
from helix.core.errors import StoreError
from helix.ports.blobs import LocalBlobs, check_blob_key, check_blob_prefix

P = ParamSpec("P")
T = TypeVar("T")
UNFINISHED = ".part"
ATTEMPTS = 20
"""The maximum number of attempts of a `put` if concurrent `delete` calls remove its empty folder."""


class FolderBlobs(LocalBlobs):
    """Implements `Blobs`. `folder` is created when the first blob is stored."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, key: str, data: bytes, media_type: str) -> None:
        await self._call(key, self._put, data)

    async def get(self, key: str) -> bytes | None:
        return await self._call(key, _read, None)

    async def head(self, key: str, length: int) -> tuple[int, bytes] | None:
        return await self._call(key, _head, length)

    async def delete(self, key: str) -> None:
        await self._call(key, self._delete)

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        check_blob_prefix(prefix)
        return await asyncio.to_thread(_explained, _keys, self._folder, prefix, after, limit)

    async def _call(self, key: str, verb: Callable[..., T], *given: object) -> T:
        """Call `verb` with the path of the key, in a thread."""
        check_blob_key(key)
        return await asyncio.to_thread(_explained, verb, self._folder / key, *given)

    def _put(self, path: Path, data: bytes) -> None:
        for attempt in range(ATTEMPTS):
            try:
                self._make_folders(path.parent)
                _write(path, data)
                return
            except FileNotFoundError:  # `delete` removed the empty folder
                if attempt == ATTEMPTS - 1:
                    raise

    def _make_folders(self, folder: Path) -> None:
        make_folder(self._folder.parent)
        for place in reversed([folder, *folder.parents]):
            if place == self._folder or self._folder in place.parents:
                place.mkdir(mode=0o700, exist_ok=True)

    def _delete(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        for unfinished in _unfinished(path):  # left by a process that died in `put`
            unfinished.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # stop at the first folder that is not empty
            for place in path.parents:
                if self._folder not in place.parents:
                    break
                place.rmdir()


def _explained(call: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    try:
        return call(*given, **named)
    except OSError as error:
        raise StoreError(f"the folder of files cannot be used: {error}") from error


def _read(path: Path, length: int | None) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read() if length is None else file.read(length)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _head(path: Path, length: int) -> tuple[int, bytes] | None:
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_size, file.read(length)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _write(path: Path, data: bytes) -> None:
    made, unfinished = tempfile.mkstemp(UNFINISHED, f".{path.name}.", path.parent)  # its mode is 0600
    try:
        with os.fdopen(made, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(made)
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise
    with contextlib.suppress(OSError):  # some systems cannot open a folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _unfinished(path: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for one in path.parent.iterdir():
            if one.name.startswith(f".{path.name}.") and one.name.endswith(UNFINISHED):
                yield one


def _keys(folder: Path, prefix: str, after: str, limit: int) -> list[str]:
    keys: list[str] = []
    for place, _, names in os.walk(folder / prefix.rpartition("/")[0]):
        within = Path(place).relative_to(folder)
        found = ((within / name).as_posix() for name in names if not name.startswith("."))
        keys += [key for key in found if key.startswith(prefix) and key > after]
    return sorted(keys)[:limit]
