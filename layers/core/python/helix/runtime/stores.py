"""Opens state stores by path or URL.

Law: only this module knows which store a string names. The scheme of a URL selects a row of `_OPENERS`, or else an entry
point of the group `helix.stores`, by which another distribution adds a store. A string without a scheme is the path of a
SQLite file. A store's package is imported when the first store of that scheme is opened.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from helix.core.errors import DefinitionError, InvalidInputError
from helix.ports.blobs import Blobs
from helix.ports.state_store import StateStore

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

MEMORY = ":memory:"
"""The name of an in-memory store. Each call that opens it creates a new one."""
GROUP = "helix.stores"
"""The group of the entry points that add stores. The name of an entry point is a scheme, and its value is a function
that takes a URL and returns a `StateStore`."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class _Opener(NamedTuple):
    """The functions that open one kind of store, and check whether a store exists."""

    open: Callable[[str], StateStore]
    """Opens the store at a path or URL. Raises `InvalidInputError`, or `DefinitionError` if a package is missing."""
    exists: Callable[[str], bool] = lambda _: True
    """Returns whether the store exists. A server is not queried, because its store exists as long as the server does."""


def open_store(store: str | Path | StateStore) -> StateStore:
    """Return the store at a path or URL, or the given store itself. Raises `InvalidInputError` if URLs with that scheme are
    not supported."""
    if not isinstance(store, (str, Path)):
        return store
    return _opener_of(str(store)).open(str(store))


def open_blobs(store: str | Path | StateStore) -> Blobs | None:
    """Return the store for files that belongs to a state store: a folder next to a SQLite file, or memory. None: other
    kinds of stores do not have one."""
    if isinstance(store, str | Path):
        if str(store) == MEMORY:
            return _memory_blobs()
        if _opener_of(str(store)) is not _SQLITE:
            return None
        from helix.adapters.sqlite import read_sqlite_url

        return _folder_blobs(read_sqlite_url(str(store))[0])
    if _is_of(store, "helix.adapters.memory", "MemoryStateStore"):
        return _memory_blobs()
    return _folder_blobs(store.path) if _is_of(store, "helix.adapters.sqlite", "SQLiteStateStore") else None  # type: ignore[attr-defined]


def _is_of(store: StateStore, module: str, name: str) -> bool:
    """Whether the store is an instance of that class. If the module has not been imported, it cannot be one."""
    return module in sys.modules and isinstance(store, getattr(sys.modules[module], name))


def _memory_blobs() -> Blobs:
    from helix.adapters.memory_blobs import MemoryBlobs

    return MemoryBlobs()


def _folder_blobs(path: Path) -> Blobs:
    from helix.adapters.folder_blobs import FolderBlobs

    return FolderBlobs(path.with_name(f"{path.name}-files"))


def store_exists(store: str) -> bool:
    """Return whether a store exists at a path or URL. Only files are checked; a server is not queried. Raises
    `InvalidInputError`."""
    return _opener_of(store).exists(store)


def _open_memory(_: str) -> StateStore:
    from helix.adapters.memory import MemoryStateStore

    return MemoryStateStore()


def _open_sqlite(store: str) -> StateStore:
    from helix.adapters.sqlite import open_sqlite

    return open_sqlite(store)


def _is_file(store: str) -> bool:
    from helix.adapters.sqlite import read_sqlite_url

    return read_sqlite_url(store)[0].is_file()


def _open_redis(url: str) -> StateStore:
    from helix.adapters.redis import open_redis

    return open_redis(url)


def _open_dynamodb(url: str) -> StateStore:
    from helix.adapters.aws.dynamodb_url import open_dynamodb

    return open_dynamodb(url)


_IN_MEMORY = _Opener(_open_memory, lambda _: False)
_SQLITE = _Opener(_open_sqlite, _is_file)
_OPENERS: Mapping[str, _Opener] = {
    "sqlite": _SQLITE,
    "redis": _Opener(_open_redis),
    "rediss": _Opener(_open_redis),
    "unix": _Opener(_open_redis),
    "dynamodb": _Opener(_open_dynamodb),
}
"""Helix's own schemes. An entry point cannot replace them."""


def _opener_of(store: str) -> _Opener:
    if store == MEMORY:
        return _IN_MEMORY
    url = _URL.match(store)
    if url is None:
        return _SQLITE
    scheme = url[1]
    return _OPENERS.get(scheme) or _Opener(_find_entry_point(scheme))


def _find_entry_point(scheme: str) -> Callable[[str], StateStore]:
    """Return the function that a distribution provides for the scheme. Raises `InvalidInputError` if none does, and
    `DefinitionError` if the function cannot be imported."""
    from importlib.metadata import entry_points  # takes 10 ms to import, and few processes need it

    found = entry_points(group=GROUP)
    matching = [point for point in found if point.name == scheme]
    if not matching:
        known = ", ".join(f"{name}://" for name in sorted({*_OPENERS, *found.names}))
        raise InvalidInputError(
            f"no store opens URLs that begin with '{scheme}://'; use the path of a SQLite file, {MEMORY!r}, or a URL "
            f"with one of {known}. A package adds another scheme with an entry point of the group {GROUP!r}"
        )
    if len(matching) > 1:
        packages = " and ".join(sorted(_package_of(point) for point in matching))
        raise DefinitionError(GROUP, scheme, f"is defined by {packages}: uninstall all but one of them")
    point = matching[0]
    try:
        opener: Callable[[str], StateStore] = point.load()
    except (ImportError, AttributeError) as error:
        problem = f"{point.value!r} of the package {_package_of(point)} cannot be imported: {error}"
        raise DefinitionError(GROUP, scheme, problem) from error
    return opener


def _package_of(point: EntryPoint) -> str:
    return repr(point.dist.name) if point.dist is not None else "an unknown package"
