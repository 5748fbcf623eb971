"""Reading a project's lock for Lambda's platform: `uv.lock`, `pylock.toml`, or a requirements file.

Law: no dependencies are resolved. A package that does not come from an index, or has no wheel for Lambda, is rejected with
its name before anything is downloaded.
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from helix.infra.config import Architecture, Settings
from helix.infra.packages import LOCK, NO_LOCK, ROOT, Lock, LockError, is_left_out, machine, read_requirements, target
from helix.runtime.project import PYPROJECT, HelixProject

PYPI: Final = "https://pypi.org/simple"
GLIBC: Final = range(34, 16, -1)
"""The minor versions of glibc 2 in the tags of wheels that run on Amazon Linux 2023: from its own, 2.34, down to
manylinux2014's, 2.17."""

Table = Mapping[str, Any]


def lock_of(project: HelixProject, settings: Settings) -> Lock:
    """Return the project's pins, or an empty `Lock` if the project has no lock. Raises `LockError`."""
    if not project.lock:
        return NO_LOCK
    own = [*project.modules, *project.table.include]
    return read_lock(project.root / project.lock, settings.target_architecture, settings.python, project.root, own)


def read_lock(
    file: Path, architecture: Architecture, python: str, root: Path | None = None, own: Collection[str] = ()
) -> Lock:
    """Read a lock. Raises `LockError`.

    root: the folder of the project's pyproject.toml. own: modules that are deployed with the project; a package with
    such a name does not need a wheel.
    """
    if file.suffix != ".toml" and file.name != "uv.lock":
        return read_requirements(file, architecture, python)
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise LockError(f"{PYPROJECT}: [tool.helix] requirements: {file.name!r} cannot be read: {error}") from error
    reader = _Reader(file.name, architecture, python, {canonicalize_name(name.split(".")[0]) for name in own})
    try:
        if file.name == "uv.lock":
            return _read_uv(reader, table, tomllib.loads((root or file.parent).joinpath(PYPROJECT).read_text("utf-8")))
        return _read_pylock(reader, table)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, LockError):
            raise
        problem = f"it is not of a form that Helix reads ({type(error).__name__}: {error})"
        raise LockError(f"{file.name}: {problem}; write another lock: {LOCK}") from error


class _Reader:
    def __init__(self, file: str, architecture: Architecture, python: str, own: Collection[str]) -> None:
        self.file, self._own, self._architecture, self._python = file, own, architecture, python
        self._target = target(architecture, python)
        self._tags = frozenset(_tags(architecture, python))

    def is_needed(self, entry: Table) -> bool:
        """Return whether the entry has no marker, or one that is true on Lambda."""
        return "marker" not in entry or Marker(entry["marker"]).evaluate({**self._target, "extra": ""})

    def pins(self, packages: Mapping[str, Table], names: Collection[str]) -> list[tuple[str, str, list[str], str]]:
        """Return name, pin, hashes of the wheels, and index of each of `names` that is deployed as a package."""
        return [self.pin(packages[name]) for name in sorted(names) if not is_left_out(name) and name not in self._own]

    def pin(self, package: Table) -> tuple[str, str, list[str], str]:
        name: str = canonicalize_name(package["name"])
        index = package.get("source", {}).get("registry") or package.get("index", "")
        if not index.startswith(("https://", "http://")):
            place = ", ".join(f"{key} {value!r}" for key, value in package.get("source", {}).items()) or "no index"
            advice = (
                f"publish it, or put its code below the project's source, name it in include, and lock without {name}"
            )
            raise LockError(f"{self.file}: {name!r} comes from {place}, and Lambda needs a wheel of an index: {advice}")
        wheels = package.get("wheels", ())
        if not any(self._fits(wheel) for wheel in wheels):
            where = f"Lambda (Linux, {machine(self._architecture)}, Python {self._python})"
            advice = "lock another version, or replace it"
            raise LockError(f"{self.file}: {name!r} {package['version']} has no wheel for {where}: {advice}")
        hashes = [wheel.get("hash") or f"sha256:{wheel.get('hashes', {}).get('sha256', '')}" for wheel in wheels]
        return name, f"{name}=={package['version']}", [each for each in hashes if not each.endswith(":")], index

    def lock(self, found: Sequence[tuple[str, str, list[str], str]], spare: Collection[str], needs: Any) -> Lock:
        """Return the lock. It contains hashes only if every package has them, because pip requires all or none."""
        hashed = all(hashes for _, _, hashes, _ in found)
        lines = {
            name: " ".join([pin, *(f"--hash={each}" for each in hashes if hashed)]) for name, pin, hashes, _ in found
        }
        indexes = sorted({index for *_, index in found} - {PYPI, f"{PYPI}/"})
        return Lock(
            tuple((name, line) for name, line in lines.items() if name not in spare),
            tuple(f"--extra-index-url {index}" for index in indexes),
            tuple((name, line) for name, line in lines.items() if name in spare),
            needs,
        )

    def _fits(self, wheel: Table) -> bool:
        place = wheel.get("name") or wheel.get("filename") or wheel.get("url") or wheel.get("path", "")
        try:
            *_, tags = parse_wheel_filename(unquote(place.rpartition("/")[2]))
        except InvalidWheelFilename:
            return False
        return not self._tags.isdisjoint(tags)


def _read_uv(reader: _Reader, table: Table, pyproject: Table) -> Lock:
    """Read the packages that the project needs, without its extras and groups. Packages that only Helix needs become
    `spare`."""
    if table.get("version") != 1:
        raise LockError(f"{reader.file}: version {table.get('version')!r} is not known; write another lock: {LOCK}")
    packages: dict[str, list[Table]] = {}
    for package in table["package"]:
        packages.setdefault(package["name"], []).append(package)
    project: Table = pyproject.get("project", {})
    if (own_name := canonicalize_name(str(project.get("name", "")))) not in packages:
        raise LockError(f"{reader.file} does not have the project {own_name!r}: run `uv lock`")
    (root,) = packages[own_name]
    asked = {canonicalize_name(Requirement(line).name) for line in project.get("dependencies", ())}
    known = {entry["name"] for entry in root.get("metadata", {}).get("requires-dist", ())}
    if missing := sorted(asked - known):
        raise LockError(f"{reader.file} is older than {PYPROJECT}, which needs {missing[0]!r}: run `uv lock`")
    chosen: dict[str, Table] = {}
    needs = _read_needs(reader, packages, root, chosen, through=False)
    own = {name for needed in needs.values() for name in needed}
    every = _read_needs(reader, packages, root, chosen, through=True)
    spare = {name for needed in every.values() for name in needed} - own
    found = reader.pins(chosen, own)
    for name in sorted(spare):
        with contextlib.suppress(LockError):  # it may be a tool of this machine, without a wheel for Lambda
            found += reader.pins(chosen, [name])
    return reader.lock(found, spare, tuple((name, tuple(sorted(needed))) for name, needed in sorted(needs.items())))


def _read_needs(
    reader: _Reader, packages: Mapping[str, list[Table]], root: Table, chosen: dict[str, Table], *, through: bool
) -> dict[str, set[str]]:
    """Return the dependencies of each package that the project needs, directly or indirectly. `through`: whether to follow
    packages that are not deployed, such as Helix."""
    needs: dict[str, set[str]] = {}
    seen, waiting = set[tuple[str, str]](), [(ROOT, root, "")]
    while waiting:
        name, package, extra = waiting.pop()
        listed = package.get("optional-dependencies", {}).get(extra, ()) if extra else package.get("dependencies", ())
        for entry in filter(reader.is_needed, listed):
            needed = entry["name"]
            needs.setdefault(name, set()).add(needed)
            chosen[needed] = _find_package(reader, packages, entry)
            for wanted in ("", *entry.get("extra", ())):
                if (needed, wanted) not in seen and (through or not is_left_out(needed)):
                    seen.add((needed, wanted))
                    waiting.append((needed, chosen[needed], wanted))
    return needs


def _find_package(reader: _Reader, packages: Mapping[str, list[Table]], entry: Table) -> Table:
    """Return the locked package of an entry. The entry names the version and source if several are locked."""
    for package in packages.get(entry["name"], ()):
        if all(entry.get(key) in (None, package.get(key)) for key in ("version", "source")):
            return package
    raise LockError(f"{reader.file}: {entry['name']!r} is needed and not locked: run `uv lock`")


def _read_pylock(reader: _Reader, table: Table) -> Lock:
    """Read all packages whose markers hold on Lambda. The file does not say which packages the project needs."""
    if not str(table.get("lock-version", "")).startswith("1."):
        raise LockError(f"{reader.file}: lock-version {table.get('lock-version')!r} is not known; it must be 1.0")
    held = [package for package in table.get("packages", ()) if reader.is_needed(package)]
    packages: dict[str, Table] = {canonicalize_name(package["name"]): package for package in held}
    project = {name for name, package in packages.items() if package.get("directory", {}).get("path") == "."}
    return reader.lock(reader.pins(packages, packages.keys() - project), (), ())


def _tags(architecture: Architecture, python: str) -> Iterator[Tag]:
    """Yield the tags of wheels that run on Lambda."""
    major, minor = map(int, python.split("."))
    name = machine(architecture)
    platforms = [*(f"manylinux_2_{glibc}_{name}" for glibc in GLIBC), f"manylinux2014_{name}", f"linux_{name}"]
    if architecture == "x86_64":
        platforms += [f"manylinux_2_{glibc}_{name}" for glibc in range(16, 4, -1)]
        platforms += [f"{old}_{name}" for old in ("manylinux2010", "manylinux1")]
    yield from cpython_tags((major, minor), platforms=platforms)
    yield from compatible_tags((major, minor), f"cp{major}{minor}", platforms)
